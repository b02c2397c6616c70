"""Jobs: a run is a chain of attempts; an attempt has one coordinator, and a participant on each member.

From the outside in: `table` (jobs and what clients ask), `run` (`JobRun`), `coordinator` (one attempt), `participant`
(one member's part of it) with its `context`. `attempt` and `part` are the state machines of the two: pure, messages in,
messages out. `post` carries those: to the own member in the process, to others over the network. `service` puts them
together for a member. See docs/design/0019-jobs.md.
"""
