"""The shared memory of a worker."""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from shmjet.execution.shared_memory import SharedMemory
from shmjet.ring.arena import ArenaError

LARGE = 1 << 30


def deploy_of(arena: int, size: int = LARGE, *, attached: bool = False) -> Any:
    return SimpleNamespace(
        arena_attached=attached,
        arena_id=arena,
        arena_size=size,
        arena_reserved=4096,
        job_name=None,
        job_id=f"job {arena}",
    )


def descriptor(size: int = LARGE) -> int:
    fd = os.memfd_create("arena")
    os.ftruncate(fd, size)
    return fd


@contextmanager
def address_space_for(more: int) -> Iterator[None]:
    """Let this process map only so many bytes more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_an_arena_that_comes_again_leaves_no_descriptor_of_the_first_time() -> None:
    shared = SharedMemory(memoryview(bytearray(8)))
    deploy = deploy_of(1, 4096)
    counts = []
    for _ in range(3):
        fd = descriptor(4096)
        view = shared.arena(deploy, [fd])[:8]
        view[0] = 7
        view.release()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1:] == counts[:-1]
    shared.forget(1)


def test_arenas_that_no_execution_uses_make_way_for_one_and_are_mapped_again() -> None:
    shared = SharedMemory(memoryview(bytearray(8)))
    shared.arena(deploy_of(1), [descriptor()])[0] = 7
    shared.let_go(1)
    with address_space_for(LARGE // 2):
        shared.arena(deploy_of(2), [descriptor()])[0] = 8
        shared.let_go(2)
        assert shared.arena(deploy_of(1, attached=True), [])[0] == 7
        with pytest.raises(ArenaError, match=r"of job 2.*RLIMIT_AS"):
            shared.arena(deploy_of(2, attached=True), [])
    shared.forget(1)


def test_no_arena_stays_mapped_where_address_space_has_a_limit() -> None:
    shared = SharedMemory(memoryview(bytearray(8)))
    with address_space_for(LARGE + LARGE // 2):
        shared.arena(deploy_of(1), [descriptor()])[0] = 7
        shared.let_go(1)
        mmap.mmap(-1, LARGE).close()
        assert shared.arena(deploy_of(1, attached=True), [])[0] == 7
    shared.forget(1)


def test_an_arena_that_cannot_be_mapped_leaves_no_descriptor() -> None:
    shared = SharedMemory(memoryview(bytearray(8)))
    fd = descriptor()
    with address_space_for(LARGE // 2), pytest.raises(ArenaError) as caught:
        shared.arena(deploy_of(1), [fd])
    assert caught.value.errno == errno.ENOMEM
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    shared.arena(deploy_of(1, 4096), [descriptor(4096)])
    shared.forget(1)
