"""Address space that a process keeps for the moment when it has no more (RLIMIT_AS, `ulimit -v`).

An allocation that fails may be anyone's. C libraries were seen to dereference NULL then, Python 3.11 to raise the same
`MemoryError` for ever, and its importer to return an error without an exception. So small allocations take from the
reserve first. The loop of the process calls `hold_reserve` at a place where it can deal with a lack of memory, and
learns there that the reserve cannot be had again. Code that has caught a `MemoryError` calls `release_reserve` before
it reports it.
A reserve costs address space, not memory.
"""

from __future__ import annotations

import resource
from functools import partial

from shmjet import _native
from shmjet._native import release_reserve

__all__ = ["hold_reserve", "no_memory", "release_reserve"]

_PART_BYTES = 2 << 20
"""Two areas in which Python has its small objects; saying what has happened takes less than one."""

hold_reserve = partial(_native.hold_reserve, _PART_BYTES)
"""Hold the reserve, or hold it again; False where there is no address space for it. First called in one thread only."""


def no_memory() -> MemoryError:
    """Return the error of a process that has no reserve any more."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    allowed = "" if limit == resource.RLIM_INFINITY else f", which lets a process have {limit} bytes"
    return MemoryError(
        f"less than {2 * _PART_BYTES >> 20} MiB of address space are left: see RLIMIT_AS (`ulimit -v`){allowed}"
    )
