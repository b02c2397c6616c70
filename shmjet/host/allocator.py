"""What the C library keeps for what is allocated next, and for how many threads: `mallopt(3)` of glibc.

By default glibc asks the kernel for arrays from 128 KiB on and gives them back when they are freed, so every batch that
a stage of columns makes is pages that the kernel has to clear first. That took more time than computing what is in
them. And each thread gets a heap of its own, 64 MB of address space at once, which counts against `RLIMIT_AS`. Must
not know who asks.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

KEPT_BYTES: Final = 64 << 20
"""Free memory at the end of the heap that is not given back."""
LARGEST_BYTES: Final = 32 << 20
"""Blocks below this come from the heap; glibc has no higher limit than that."""

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
_OWN_SETTINGS: Final = ("GLIBC_TUNABLES", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")
_OWN_HEAPS: Final = ("GLIBC_TUNABLES", "MALLOC_ARENA_MAX")


def keep_freed_memory() -> bool:
    """Let this process and its children use freed memory again instead of giving it back at once.

    What the user has set in the environment stays.

    Returns:
        whether the C library does so: musl's has no such setting.
    """
    return not any(name in os.environ for name in _OWN_SETTINGS) and (
        _set(_MMAP_THRESHOLD, LARGEST_BYTES) and _set(_TRIM_THRESHOLD, KEPT_BYTES)
    )


def share_one_heap() -> bool:
    """Let all threads of this process allocate from one heap: for a process whose threads seldom run at once.

    What the user has set in the environment stays.

    Returns:
        whether the C library does so.
    """
    return not any(name in os.environ for name in _OWN_HEAPS) and _set(_ARENA_MAX, 1)


def _set(setting: int, value: int) -> bool:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(setting, value))
