"""Floor 5: what a job's numbers mean to a person, and how they are shown in a terminal or a notebook.

It knows metrics and no instances: the caller passes the numbers in. `flow` is pure; `table`, `html` and
`picture` draw it; `live` redraws it while a job runs. `Job.run(progress=True)`, `shmjet top` and the console share it.
"""
