"""The member's arenas: made when an execution needs one, kept and used again.

Reserving pages costs a millisecond per few megabytes, which a short job should not pay twice. An arena is used again
only when every process that had it mapped has said that it let go.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from shmjet.ring.arena import Arena

_KEPT = 256 << 20
_WASTE = 8
_STEP = 1 << 16


@dataclass(eq=False)
class PooledArena:
    """An arena with the endpoints whose processes have it mapped."""

    id: int
    arena: Arena
    attached: set[int] = field(default_factory=set)
    is_viewed: bool = False
    """Whether a batch that lies in it outlives its execution somewhere, so that it must not be used again."""


class ArenaPool:
    """Arenas of one member, free and in use."""

    def __init__(self) -> None:
        self._free: list[PooledArena] = []
        self._used: set[PooledArena] = set()
        self._ids = itertools.count(1)

    def acquire(self, size: int, label: str, later: int = 0) -> PooledArena:
        """Return an arena of at least `size` bytes, the smallest free arena that fits and is not far too large.

        Args:
            size: bytes that must have memory.
            label: what the arena is for.
            later: bytes behind all that has memory, for slabs.

        Raises:
            ArenaError: there is not that much shared memory.
        """
        fitting = [
            a
            for a in self._free
            if size <= a.arena.reserved <= max(size * _WASTE, 1 << 20) and later <= a.arena.size - a.arena.reserved
        ]
        if fitting:
            best = min(fitting, key=lambda a: a.arena.reserved)
            self._free.remove(best)
        else:
            best = PooledArena(next(self._ids), Arena.create(-(-size // _STEP) * _STEP, label=label, later=later))
        self._used.add(best)
        return best

    def give_back(self, pooled: PooledArena) -> list[PooledArena]:
        """Take an arena back from an attempt; return the arenas that are given up, already closed here."""
        self._used.discard(pooled)
        if pooled.is_viewed:
            pooled.arena.close()
            return [pooled]
        self._free.append(pooled)
        dropped = []
        while sum(a.arena.used for a in self._free) > _KEPT:
            oldest = self._free.pop(0)
            oldest.arena.close()
            dropped.append(oldest)
        return dropped

    def worker_gone(self, endpoint: int) -> None:
        """Forget what a dead worker had mapped, of arenas that jobs without it are using just now too."""
        for pooled in (*self._free, *self._used):
            pooled.attached.discard(endpoint)

    def close(self) -> None:
        """Close all free arenas."""
        for pooled in self._free:
            pooled.arena.close()
        self._free.clear()
