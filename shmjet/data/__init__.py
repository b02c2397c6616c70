"""Floor 1: what travels: `Batch`, `Text`, columns with and without nulls, marks, and the root of all errors.

Knows nothing of how items travel, of processes or of jobs.
"""

from shmjet.data import window_results as window_results  # the codec of every process knows these classes
