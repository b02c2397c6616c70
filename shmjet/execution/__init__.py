"""Floor 4: runs one member's share of a job — plan, arena layout, tasklets, worker loop, fork server.

It knows DAGs and processors (floor 3) and the lanes between them (floor 2). It must not know pipelines, where maps
and lists are kept, or how members and clients talk to each other; what it needs of those comes in as arguments.
"""
