"""A number per environment that tells whether anything was committed since a page was read.

LMDB can say so too, by the id of a new read transaction, but asking costs more than most of what one saves by
knowing. So the number of each write transaction is announced here right before it commits, under the environment's
lock. LMDB numbers commits without a gap and a read transaction bears the number of the last commit it sees: as long
as that number is the one announced, nothing newer exists. A writer that is killed or fails between announcing and
committing leaves a number that no page has, which only means "unknown" until the next commit.

The numbers lie in one small file that all processes map; a writer does one store, a reader one load. Next to each lie
two more, for the log of changes that go to backups (`change_log`): up to where it has been written, announced in the
same way, and up to where all backups have it. A fourth one is a hint: whether a process holds the environment's lock
for writers, or was killed as it did. A fifth one of the first environment is when the member turned last (`lease`). A
sixth one says from which number on the log is kept for copies of partitions that are being made; 0: there are none. A
seventh number of the first environment is the error that the disk of the store has now, 0 for none. The eighth says up
to where the log is on disk; of a store that is kept in memory alone it is `ALL`.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

NUMBER_SIZE = 8
SPACING = 64
"""Bytes from one environment's number to the next: a cache line each."""
COMMITTED, LOGGED, BACKED_UP, WRITING, TURNED, KEPT, DISK_ERROR, ON_DISK = range(8)
"""What the numbers of an environment are."""
NUMBERS = 8
ALL = (1 << 64) - 1


class CommitCounters:
    """The numbers of one store, mapped into this process.

    Args:
        path: a file that `create` made.
        count: environments.
    """

    def __init__(self, path: Path, count: int) -> None:
        with path.open("r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), count * SPACING)).cast("Q")

    @staticmethod
    def create(path: Path, count: int) -> None:
        """Make the file, with its memory reserved: a page that a full /dev/shm lacks is a SIGBUS."""
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, count * SPACING)

    def of(self, environment: int) -> memoryview:
        """Return the numbers of one environment, as a memoryview that keeps the mapping alive."""
        at = environment * SPACING // NUMBER_SIZE
        return self._numbers[at : at + NUMBERS]
