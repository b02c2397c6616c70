"""The member's arenas: made when an execution needs one, kept and used again.

Reserving pages costs a millisecond per few megabytes, which a job should not pay twice; and the slabs of one arena get
theirs one after the other, whatever the number of workers, since they are parts of one file. An arena is used again
only when every process that had it mapped has said that it let go. What the last jobs have used waits for the next one
like them, and most of it goes back to the system when none comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from shmjet.host.memory_limits import available_memory
from shmjet.ring.arena import Arena, ArenaError

_KEPT = 256 << 20
"""Bytes of free arenas that stay."""
_SHARE_KEPT = 16
"""So long as jobs follow each other, a sixteenth of the memory that is available stays, if that is more."""
_IDLE_S = 30.0
_KEPT_ARENAS = 16
_DESCRIPTORS_PER_KEPT_ARENA = 16
"""An arena takes two descriptors: no more than an eighth of what the process may have are of free arenas."""
_WASTE = 8
_STEP = 1 << 16


class PooledArena(msgspec.Struct, eq=False):
    """An arena with the endpoints whose processes have it mapped."""

    id: int
    arena: Arena
    attached: set[int] = msgspec.field(default_factory=set)
    is_viewed: bool = False
    """Whether a batch that lies in it outlives its execution somewhere, so that it must not be used again."""


class ArenaPool:
    """Arenas of one member, free and in use.

    Args:
        forget: called with an arena that is given up, already closed here, so that workers let go of it too.
        kept_bytes: of free arenas, that stay.
        idle_s: after so many seconds without a job that gives back an arena, no more than these stay.
    """

    def __init__(
        self, forget: Callable[[PooledArena], None], *, kept_bytes: int = _KEPT, idle_s: float = _IDLE_S
    ) -> None:
        self._forget = forget
        self._kept_bytes = kept_bytes
        self._idle_s = idle_s
        self._kept = max(
            1, min(_KEPT_ARENAS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _DESCRIPTORS_PER_KEPT_ARENA)
        )
        self._expected: dict[PooledArena, asyncio.Event] = {}
        self._returns: set[asyncio.Task[None]] = set()
        self._free: list[PooledArena] = []
        self._idle: asyncio.TimerHandle | None = None
        self._used: set[PooledArena] = set()
        self._ids = itertools.count(1)

    def acquire(self, size: int, label: str, later: int = 0) -> PooledArena:
        """Return an arena of at least `size` bytes, the smallest free arena that fits and is not far too large.

        Where no arena can be made, for lack of memory or of descriptors, the free arenas make way for it.

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
            size = -(-size // _STEP) * _STEP
            try:
                arena = Arena.create(size, label=label, later=later)
            except ArenaError:
                if not self._free:
                    raise
                self._give_up_free()
                arena = Arena.create(size, label=label, later=later)
            best = PooledArena(next(self._ids), arena)
        self._used.add(best)
        return best

    def give_back(self, pooled: PooledArena) -> None:
        """Take an arena back from an attempt. Needs the running loop where more than `kept_bytes` are free then."""
        self._used.discard(pooled)
        if pooled in self._expected:
            self._expected.pop(pooled).set()
        if pooled.is_viewed:
            self._give_up(pooled)
            return
        self._free.append(pooled)
        if len(self._free) > self._kept:
            self._give_up(self._free.pop(0))
        if sum(a.arena.used for a in self._free) > self._kept_bytes:
            self._shrink(max(self._kept_bytes, available_memory() // _SHARE_KEPT))
            self._stop_waiting()
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._shrink, self._kept_bytes)

    def expect(self, pooled: PooledArena) -> None:
        """Note that the attempt that has an arena is over, and gives it back as soon as its processes let go."""
        self._expected.setdefault(pooled, asyncio.Event())

    def give_back_after(self, pooled: PooledArena, end: Coroutine[Any, Any, None]) -> None:
        """Take an arena back when `end`, of the processes that have it mapped, has come. Needs the running loop."""

        self.expect(pooled)

        async def wait() -> None:
            try:
                await end
            finally:
                self.give_back(pooled)

        task = asyncio.ensure_future(wait())
        self._returns.add(task)
        task.add_done_callback(self._returns.discard)

    @property
    def can_make_room(self) -> bool:
        """Whether there are free arenas, or attempts that are over have processes that still hold theirs."""
        return bool(self._free or self._expected)

    async def make_room(self, longest_s: float) -> None:
        """Let go of all free arenas, and of what attempts that are over give back within `longest_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                for given_back in list(self._expected.values()):
                    await given_back.wait()
        self._give_up_free()

    def _shrink(self, most: int) -> None:
        """Give up free arenas, the oldest first, until they have no more than so many bytes."""
        while self._free and sum(a.arena.used for a in self._free) > most:
            self._give_up(self._free.pop(0))

    def _stop_waiting(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _give_up_free(self) -> None:
        while self._free:
            self._give_up(self._free.pop())

    def _give_up(self, pooled: PooledArena) -> None:
        pooled.arena.close()
        self._forget(pooled)

    def worker_gone(self, endpoint: int) -> None:
        """Forget what a dead worker had mapped, of arenas that jobs without it are using just now too."""
        for pooled in (*self._free, *self._used):
            pooled.attached.discard(endpoint)

    def close(self) -> None:
        """Close all free arenas, at the end of all workers."""
        self._stop_waiting()
        for pooled in self._free:
            pooled.arena.close()
        self._free.clear()
