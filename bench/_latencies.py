"""How late results were by their schedule: counts of latencies, written to a file when a run ends.

Imported by shmjet's workers and by Bytewax's process alike, so it must not import either.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Iterable
from pathlib import Path

KEYS = 100
"""Keys of the items."""
WINDOW_MS = 100
"""Length of the tumbling windows."""
STEPS = 100
"""Latencies are told apart to one part in so many."""
BUCKETS = 30 * STEPS


class Latencies:
    """Counts how late results are, by the logarithm of their nanoseconds.

    Args:
        folder: gets a file of each object.
        begin_ns: results that were due before, by `time.time_ns`, are not counted: the job was still starting.
    """

    def __init__(self, folder: str, begin_ns: int) -> None:
        self._folder = folder
        self.begin_ns = begin_ns
        self.counts = array("q", bytes(8 * BUCKETS))
        self._late = array("q")

    def note(self, dues_ns: Iterable[int]) -> None:
        """Note results that have come together, now: what is done with them here is not the engine's time."""
        now, begin = time.time_ns(), self.begin_ns
        self._late.extend(now - due for due in dues_ns if due >= begin)

    def write(self) -> None:
        """Write the counts down."""
        for late in self._late:
            self.counts[int(STEPS * math.log(max(1, late)))] += 1
        Path(self._folder, f"{id(self)}-{time.monotonic_ns()}").write_bytes(self.counts.tobytes())


def read(folder: Path) -> array[int]:
    """Return the counts of all files in a folder."""
    found = array("q", bytes(8 * BUCKETS))
    for file in folder.iterdir():
        counts = array("q")
        counts.frombytes(file.read_bytes())
        for i, count in enumerate(counts):
            found[i] += count
    return found


def at(counts: array[int], share: float) -> float:
    """Return the latency in milliseconds that so large a share of the results does not exceed."""
    left = share * sum(counts)
    for i, count in enumerate(counts):
        left -= count
        if count and left <= 0:
            return math.exp((i + 0.5) / STEPS) / 1e6
    return math.nan
