"""Columns in files that a process maps once and keeps mapped, so that a bench meets warm memory in every run.

A module of its own, because workers import it: what belongs to the script itself is made anew for every job.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from shmjet.data.batch import Batch

Files = tuple[str, str]
"""Paths of the key and the value column."""


@functools.cache
def mapped(files: Files) -> tuple[Any, ...]:
    """Map the key and the value column."""
    return tuple(np.load(path, mmap_mode="r").view(np.ndarray) for path in files)


def read(files: Files, size: int, index: int, total: int) -> Iterator[Batch]:
    """Give a processor's share of the rows, in batches of views."""
    key, value = mapped(files)
    first, last = (len(key) * i // total for i in (index, index + 1))
    for at in range(first, last, size):
        end = min(at + size, last)
        yield Batch({"k": key[at:end], "v": value[at:end]})
