"""The layout of a pool's arena, and the records in its rings: numbers that client and workers share.

The arena starts with the client's doorbell. A slot for each worker follows: its doorbell, its claims, the ring of tasks
and the ring of results. A slot is used again by the worker that takes a dead one's place.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from shmjet._native import CLAIMS_HEADER, DOORBELL_SIZE, RING_HEADER

CELLS: Final = 1024
"""Most tasks in flight at one worker, and a few more."""
INITIALIZER: Final = CELLS << 40
"""The task number of the initializer in claims; no task reaches it."""
QUEUE: Final = 2048
"""Most records in a ring at once."""

KIND_CALL: Final = 16
"""A task: `HEAD`, then (args, kwargs) pickled; the function first in args when its number is 0."""
KIND_CHUNK: Final = 17
"""A task of `map`: `HEAD`, then the columns of arguments pickled."""
KIND_FUNCTION: Final = 18
"""A function that calls will name by its number: `HEAD`, then (function, sys.path or None) pickled."""
KIND_FORGET: Final = 19
"""`HEAD`: the function of that number will not be called again."""
KIND_VALUE: Final = 20
"""`HEAD`, then the pickled result of the task."""
KIND_ERROR: Final = 21
"""`HEAD`, then (exception, text of the traceback) pickled."""
KIND_PARTIAL: Final = 22
"""`HEAD`, then (results, exception, text of the traceback) pickled: a chunk of `map` that failed half way."""
KIND_BAD_ARGUMENTS: Final = 23
"""`HEAD`, then (exception, text) pickled: the arguments could not be unpickled."""
KIND_UP: Final = 24
"""`HEAD`, then the worker's process id pickled: the initializer has run."""
KIND_NOT_UP: Final = 25
"""`HEAD`, then the text of the initializer's exception pickled."""
KIND_RETIRED: Final = 26
"""`HEAD`: the worker has run as many tasks as it may, and ends."""

KIND_ITEMS: Final = 27
"""A task of `map` over one iterable of plain items: `HEAD` with their number, then the items as columns."""
KIND_RESULTS: Final = 28
"""`HEAD`, then the results of a task of `map` as columns; there are as many as the task has items."""

HEAD: Final = struct.Struct("=QQqQ")
"""Number of the task; number of the function; ns that it took, or the items of `KIND_ITEMS`; bytes of the payload when
it lies in a file, else 0."""

_ALIGNMENT: Final = 128
_MOST_MEMORY: Final = 64 << 20
_RING_SIZES: Final = (64 << 10, 4 << 20)


@dataclass(frozen=True)
class Slot:
    """Offsets of one worker's parts of the arena."""

    doorbell: int
    claims: int
    tasks: int
    results: int


@dataclass(frozen=True)
class Layout:
    """Offsets of everything in the arena of a pool with this many workers."""

    workers: int

    @property
    def ring_capacity(self) -> int:
        """Bytes of data in each ring: all together stay below 64 MiB, each between 64 KiB and 4 MiB."""
        least, most = _RING_SIZES
        wanted = _MOST_MEMORY // (2 * self.workers)
        return max(least, min(most, 1 << (wanted.bit_length() - 1)))

    @property
    def size(self) -> int:
        """Bytes of the arena."""
        return DOORBELL_SIZE + self.workers * self._slot_size

    @property
    def _slot_size(self) -> int:
        return DOORBELL_SIZE + _aligned(CLAIMS_HEADER + 8 * CELLS) + 2 * (RING_HEADER + self.ring_capacity)

    def slot(self, index: int) -> Slot:
        """Return the offsets of one worker's parts."""
        doorbell = DOORBELL_SIZE + index * self._slot_size
        claims = doorbell + DOORBELL_SIZE
        tasks = claims + _aligned(CLAIMS_HEADER + 8 * CELLS)
        return Slot(doorbell, claims, tasks, tasks + RING_HEADER + self.ring_capacity)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
