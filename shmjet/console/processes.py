"""The share of a core that processes use, from what they have used so far. Pure; the clock comes in."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """One process: the share of one core that it used since the last look, CPU seconds in all, resident bytes."""

    cpu: float
    cpu_seconds: float
    resident: int


class ProcessMeter:
    """Looks at processes again and again; remembers of each only what the next look needs."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}

    def look(self, used: Mapping[int, tuple[float, int]], now: float) -> dict[int, Usage]:
        """Return what processes use.

        The first look at a process tells nothing of its share.

        Args:
            used: CPU seconds so far and resident bytes, by pid; one that is not in it any more is forgotten.
            now: seconds, by any clock.
        """
        found = {}
        for pid, (spent, resident) in used.items():
            then, earlier = self._before.get(pid, (now, spent))
            share = (spent - earlier) / (now - then) if now > then else 0.0
            found[pid] = Usage(round(max(0.0, share), 4), round(spent, 2), resident)
        self._before = {pid: (now, spent) for pid, (spent, _) in used.items()}
        return found
