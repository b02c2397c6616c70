"""Floor 6: members and their clients — starting an instance, jobs and their executions, workers' lives.

It knows executions (floor 4) and maps and lists (floor 5). It must not know pipelines or what processors do: user code
passes through a member as opaque bytes and is unpickled in workers and clients only.
"""
