"""What one worker or carrier has mapped, and the codec that it uses for all its lanes."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

from shmjet._native import Codec
from shmjet.execution.messages import Deploy


class SharedMemory:
    """What a process has mapped: the control segment, and arenas by id, kept for executions that use them again.

    Args:
        control: the control segment, in which the workers' doorbells lie.
    """

    def __init__(self, control: memoryview) -> None:
        self.control = control
        self.codec = Codec()
        self._mapped: dict[int, memoryview] = {}

    def arena(self, deploy: Deploy, fds: Sequence[int]) -> memoryview:
        """Return an execution's arena, mapped."""
        if fds:
            self._mapped[deploy.arena_id] = memoryview(mmap.mmap(fds[0], deploy.arena_size))
            for fd in fds:
                os.close(fd)
        return self._mapped[deploy.arena_id]

    def forget(self, arena_id: int) -> None:
        """Unmap an arena."""
        memory = self._mapped.pop(arena_id, None)
        if memory is not None:
            mapping = memory.obj
            with contextlib.suppress(BufferError):  # a view somewhere still holds it; it goes with that view
                memory.release()
                mapping.close()  # type: ignore[attr-defined]
