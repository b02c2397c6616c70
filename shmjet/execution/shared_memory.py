"""What one worker or carrier has mapped, and the codec that it uses for all its lanes."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import resource
from collections.abc import Sequence
from typing import cast

from shmjet._native import Codec
from shmjet.execution.messages import Deploy
from shmjet.ring.arena import ArenaError, map_segment, reserve


class SharedMemory:
    """What a process has mapped: the control segment, and arenas by id, kept for executions that use them again.

    Args:
        control: the control segment, in which the workers' doorbells lie.
        link_eventfd: what wakes the link process; -1 where there is none. Not closed here.
    """

    def __init__(self, control: memoryview, link_eventfd: int = -1) -> None:
        self.control = control
        self.link_eventfd = link_eventfd
        self.codec = Codec()
        self._mapped: dict[int, memoryview] = {}
        self._fds: dict[int, int] = {}
        self._in_use: set[int] = set()

    def arena(self, deploy: Deploy, fds: Sequence[int]) -> memoryview:
        """Return an execution's arena, mapped; unless it is known already, the first of the descriptors is its own.

        Where there is no address space for it, arenas that no execution uses now are unmapped until they are needed.

        Raises:
            ArenaError: it cannot be mapped.
        """
        arena_id = deploy.arena_id
        if not deploy.arena_attached:
            self.forget(arena_id)  # after a failure it comes again: the member cannot tell whether it was mapped
            self._fds[arena_id] = fds[0]
        if arena_id not in self._mapped:
            try:
                mapping = self._map(self._fds[arena_id], deploy.arena_size, f"of {deploy.job_name or deploy.job_id}")
            except BaseException:
                self.forget(arena_id)
                raise
            # A copy of the worker, forked by user code, must not go on in the rings; but it may look at its batches.
            mapping.madvise(mmap.MADV_DONTFORK, 0, deploy.arena_reserved)
            self._mapped[arena_id] = memoryview(mapping)
        self._in_use.add(arena_id)
        return self._mapped[arena_id]

    def adopt(self, arena_id: int, memory: memoryview, fd: int = -1) -> None:
        """Take an arena that this process has mapped already.

        Args:
            arena_id: its number.
            memory: all of it.
            fd: its descriptor; -1 where no memory of it has to be reserved.
        """
        self._mapped[arena_id] = memory
        self._fds[arena_id] = fd

    def _map(self, fd: int, size: int, label: str) -> mmap.mmap:
        try:
            return map_segment(fd, size, label)
        except ArenaError as error:
            if error.errno != errno.ENOMEM:
                raise
        for free in self._mapped.keys() - self._in_use:
            self._unmap(free)
        return map_segment(fd, size, label)

    def let_go(self, arena_id: int) -> None:
        """Note that no execution uses an arena any more; without a limit of address space it stays mapped."""
        self._in_use.discard(arena_id)
        if _is_limited():
            self._unmap(arena_id)

    def reserve(self, arena_id: int, offset: int, size: int) -> None:
        """Give a part of an arena its memory. Raises OSError when there is none."""
        reserve(self._fds[arena_id], offset, size)

    def forget(self, arena_id: int) -> None:
        """Unmap an arena, for good."""
        self._in_use.discard(arena_id)
        fd = self._fds.pop(arena_id, -1)
        if fd >= 0:
            os.close(fd)
        self._unmap(arena_id)

    def _unmap(self, arena_id: int) -> None:
        memory = self._mapped.pop(arena_id, None)
        if memory is None:
            return
        mapping = cast("mmap.mmap", memory.obj)
        if not _is_closed(memory, mapping) and _is_limited():
            gc.collect()  # views of what has failed half-way
            _is_closed(memory, mapping)


def _is_closed(memory: memoryview, mapping: mmap.mmap) -> bool:
    """Unmap an arena; where a view somewhere still holds it, it goes with that view."""
    try:
        memory.release()
        mapping.close()
    except BufferError:
        return False
    return True


def _is_limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
