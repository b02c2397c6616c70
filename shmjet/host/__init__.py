"""Floor 1: the machine: cores, NUMA nodes, control groups, memory, processes and their limits. Knows no cluster and no
job.
"""
