"""What one worker or carrier has mapped, and the codec that it uses for all its lanes."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Sequence

from shmjet._native import Codec
from shmjet.execution.messages import Deploy

_INLINE = 16 << 10


def put_state(state: bytes) -> tuple[bytes, list[int]]:
    """Return a state as it goes into a message: as it is, or, when it is large, as the descriptor of a file."""
    if len(state) <= _INLINE:
        return state, []
    fd = os.memfd_create("shmjet-state", os.MFD_CLOEXEC)
    view = memoryview(state)
    while view:
        view = view[os.write(fd, view) :]
    return b"", [fd]


def take_state(state: bytes, size: int, fds: Sequence[int]) -> bytes:
    """Return a state that came by `put_state`, and close its descriptor."""
    if not fds:
        return state
    data = os.pread(fds[0], size, 0)
    for fd in fds:
        os.close(fd)
    return data


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
            try:
                mapping = mmap.mmap(fds[0], deploy.arena_size)
            finally:
                for fd in fds:
                    os.close(fd)
            mapping.madvise(mmap.MADV_DONTFORK)  # a copy of the worker, forked by user code, must not go on in it
            self._mapped[deploy.arena_id] = memoryview(mapping)
        return self._mapped[deploy.arena_id]

    def forget(self, arena_id: int) -> None:
        """Unmap an arena."""
        memory = self._mapped.pop(arena_id, None)
        if memory is not None:
            mapping = memory.obj
            with contextlib.suppress(BufferError):  # a view somewhere still holds it; it goes with that view
                memory.release()
                mapping.close()  # type: ignore[attr-defined]
