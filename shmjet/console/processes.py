"""CPU and memory of processes, as the kernel tells them."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec
import psutil


class Usage(msgspec.Struct, frozen=True):
    """One process: the share of one core that it used since the last look, CPU seconds in all, resident bytes."""

    cpu: float
    cpu_seconds: float
    resident: int


class ProcessMeter:
    """Looks at processes again and again; remembers of each only what the next look needs."""

    def __init__(self) -> None:
        self._processes: dict[int, psutil.Process] = {}
        self._before: dict[int, tuple[float, float]] = {}

    def look(self, pids: Iterable[int]) -> dict[int, Usage]:
        """Return what these processes use; one that is gone is left out, and all others are forgotten.

        The first look at a process tells its mean since it started.
        """
        found: dict[int, Usage] = {}
        before, self._before = self._before, {}
        processes, self._processes = self._processes, {}
        for pid in pids:
            try:
                process = processes.get(pid) or psutil.Process(pid)
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info()
                    began = process.create_time()
            except psutil.Error:
                continue
            now, spent = time.monotonic(), times.user + times.system
            then, earlier = before.get(pid, (now - max(time.time() - began, 0.01), 0.0))
            share = (spent - earlier) / max(now - then, 0.01)
            found[pid] = Usage(round(max(0.0, share), 4), round(spent, 2), memory.rss)
            self._processes[pid], self._before[pid] = process, (now, spent)
        return found
