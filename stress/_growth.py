"""Whether processes grow: their own memory over time, each by itself, judged by slopes that single peaks do not move.

What counts is a process' anonymous memory (`RssAnon`). The pages of shared segments are counted apart: their number
rises until each ring has been filled once, and has a bound of its own. The client is judged by the floor of its memory,
the least in each of 30 parts of the run, because big arrays come and go above it. Workers are killed and replaced, and
each young one warms up; so a worker is compared with itself only, and the slopes of all of them are taken together.

A slope is the median of those between any two points (Theil and Sen): up to three points in ten may be outliers.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

BLOCK = 64
"""Bytes of one of Python's small blocks, on average."""
PARTS = 30
"""Parts of a run of which each gives one floor."""
WARM_UP = 0.25
"""The first part of a run, in which the client may grow."""
YOUNG_S = 5.0
"""Seconds in which a new worker may grow."""
APART_S = 5.0
"""Two samples of a worker that are closer together say nothing about its slope."""

Point = tuple[float, float]
"""Seconds since the beginning, megabytes."""

_FIELDS = re.compile(r"^(RssAnon|RssShmem):\s+(\d+) kB$", re.MULTILINE)


def resident(pid: int) -> dict[str, float] | None:
    """Megabytes of `RssAnon` and `RssShmem` of a process; None when it is gone."""
    try:
        found = _FIELDS.findall(Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return None
    return {name: int(size) / 1024 for name, size in found} if found else None


_OF_MALLOC = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Heap(ctypes.Structure):
    """What glibc's `mallinfo2` returns."""

    _fields_ = [(name, ctypes.c_size_t) for name in _OF_MALLOC]


def in_use() -> float:
    """Megabytes that this process has in use: what it has allocated and not freed.

    Where much runs at the same time now and then, resident memory rises for an hour: freed memory is kept, and each
    highest mark is a little above the one before.
    """
    info = ctypes.CDLL(None).mallinfo2
    info.restype = _Heap
    found = info()
    return (found.uordblks + found.hblkhd + BLOCK * sys.getallocatedblocks()) / (1 << 20)


class Growth:
    """The memory of this process and of its workers over a run."""

    def __init__(self) -> None:
        self.client: list[Point] = []
        self.shared: list[Point] = []
        self.workers: dict[int, list[Point]] = defaultdict(list)
        self.descriptors: list[int] = []

    def sample(self, at: float, workers: Iterable[int]) -> str:
        """Look at all of them; returns a line for the log.

        Args:
            at: seconds since the beginning.
            workers: their pids.
        """
        own = resident(os.getpid())
        assert own is not None
        self.client.append((at, own["RssAnon"]))
        self.shared.append((at, own["RssShmem"]))
        self.descriptors.append(len(os.listdir("/proc/self/fd")))
        parts = [f"client {own['RssAnon']:.1f}", f"shared {own['RssShmem']:.1f}"]
        for pid in workers:
            found = resident(pid) if pid else None
            if found is not None:
                self.workers[pid].append((at, found["RssAnon"]))
                parts.append(f"{pid} {found['RssAnon']:.1f}")
        return f"{at:.1f} s: {', '.join(parts)} MB, {self.descriptors[-1]} descriptors"

    def floors(self, points: list[Point], seconds: float) -> list[Point]:
        """The least in each part of the run."""
        part = seconds / PARTS
        found = []
        for i in range(PARTS):
            sizes = [size for at, size in points if i * part <= at < (i + 1) * part]
            if sizes:
                found.append((i * part, min(sizes)))
        return found

    def client_slope(self, seconds: float) -> float:
        """Megabytes a minute by which this process grows after the first quarter."""
        late = [point for point in self.floors(self.client, seconds) if point[0] >= WARM_UP * seconds]
        return 60 * theil_sen(list(itertools.combinations(late, 2)))

    def worker_slope(self) -> float:
        """Megabytes a minute by which a worker grows once it is warm."""
        pairs = []
        for points in self.workers.values():
            warm = [point for point in points if point[0] >= points[0][0] + YOUNG_S]
            pairs += [(a, b) for a, b in itertools.combinations(warm, 2) if b[0] - a[0] >= APART_S]
        return 60 * theil_sen(pairs)


def theil_sen(pairs: list[tuple[Point, Point]]) -> float:
    """The median of the slopes of pairs of points, the later one second; 0 where there are none."""
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs) if pairs else 0.0
