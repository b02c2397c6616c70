"""CPU time and memory of a process, and how long it has waited for a core, as the kernel tells them."""

from __future__ import annotations

import os
from pathlib import Path


def used_by(pid: int) -> tuple[float, int] | None:
    """Return the CPU seconds that a process has used so far and its resident bytes; None when there is no such one."""
    try:
        times = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except (OSError, IndexError):
        return None
    ticks = int(times[11]) + int(times[12])  # utime and stime, fields 14 and 15
    return ticks / os.sysconf("SC_CLK_TCK"), int(pages) * os.sysconf("SC_PAGESIZE")


def waited_for_core(pid: int) -> float:
    """Return the seconds that the main thread of a process was ready to run while others ran; 0 where not known."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
