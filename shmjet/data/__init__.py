"""Floor 1: what travels: `Batch`, `Text`, columns with and without nulls, marks, and the root of all errors.

Knows nothing of how items travel, of processes or of jobs.
"""
