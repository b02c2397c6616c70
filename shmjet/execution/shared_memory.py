"""What one worker or carrier has mapped, and the codec that it uses for all its lanes."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

from shmjet._native import Codec
from shmjet.execution.messages import Deploy
from shmjet.ring.arena import reserve


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

    def arena(self, deploy: Deploy, fds: Sequence[int]) -> memoryview:
        """Return an execution's arena, mapped; unless it is already, the first of the descriptors is its own."""
        if not deploy.arena_attached:
            fd = fds[0]
            self.forget(deploy.arena_id)  # after a failure it comes again: the member cannot tell whether it was mapped
            try:
                mapping = mmap.mmap(fd, deploy.arena_size)
            except BaseException:
                os.close(fd)
                raise
            # A copy of the worker, forked by user code, must not go on in the rings; but it may look at its batches.
            mapping.madvise(mmap.MADV_DONTFORK, 0, deploy.arena_reserved)
            self._mapped[deploy.arena_id] = memoryview(mapping)
            self._fds[deploy.arena_id] = fd
        return self._mapped[deploy.arena_id]

    def reserve(self, arena_id: int, offset: int, size: int) -> None:
        """Give a part of an arena its memory. Raises OSError when there is none."""
        reserve(self._fds[arena_id], offset, size)

    def forget(self, arena_id: int) -> None:
        """Unmap an arena."""
        fd = self._fds.pop(arena_id, -1)
        if fd >= 0:
            os.close(fd)
        memory = self._mapped.pop(arena_id, None)
        if memory is not None:
            mapping = memory.obj
            with contextlib.suppress(BufferError):  # a view somewhere still holds it; it goes with that view
                memory.release()
                mapping.close()  # type: ignore[attr-defined]
