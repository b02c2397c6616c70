"""The shared memory of a worker."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from shmjet.execution.shared_memory import SharedMemory


def test_an_arena_that_comes_again_leaves_no_descriptor_of_the_first_time() -> None:
    shared = SharedMemory(memoryview(bytearray(8)))
    deploy: Any = SimpleNamespace(arena_attached=False, arena_id=1, arena_size=4096, arena_reserved=4096)
    counts = []
    for _ in range(3):
        fd = os.memfd_create("arena")
        os.ftruncate(fd, 4096)
        view = shared.arena(deploy, [fd])[:8]
        view[0] = 7
        view.release()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1:] == counts[:-1]
    shared.forget(1)
