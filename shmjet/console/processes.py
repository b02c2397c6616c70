"""The share of a core that processes use, from their CPU time so far. Pure; time is an argument."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """One process: the share of one core that it used since the last sample, CPU seconds in all, resident bytes."""

    cpu: float
    cpu_seconds: float
    resident: int


class ProcessMeter:
    """Samples processes repeatedly; remembers of each only what the next sample needs."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}

    def look(self, used: Mapping[int, tuple[float, int]], now: float) -> dict[int, Usage]:
        """Return the usage of processes.

        The share is 0 in the first sample of a process.

        Args:
            used: CPU seconds so far and resident bytes, by pid; a process that is missing is forgotten.
            now: seconds, by any clock.
        """
        found = {}
        for pid, (spent, resident) in used.items():
            then, earlier = self._before.get(pid, (now, spent))
            share = (spent - earlier) / (now - then) if now > then else 0.0
            found[pid] = Usage(round(max(0.0, share), 4), round(spent, 2), resident)
        self._before = {pid: (now, spent) for pid, (spent, _) in used.items()}
        return found
