"""Arenas: reserved memory without a name, shared by descriptor, gone with the last holder."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from shmjet._native import RingProducer, ring_format
from shmjet.ring import arena as module
from shmjet.ring.arena import Arena, ArenaError


def test_an_arena_is_zeros_without_a_name_and_reserved() -> None:
    before = set(os.listdir("/dev/shm"))
    with Arena.create(100_000, label="test") as arena:
        assert bytes(arena.memory) == bytes(100_000)
        assert arena.size == 100_000
        assert os.fstat(arena.fd).st_blocks * 512 >= 100_000
        assert set(os.listdir("/dev/shm")) <= before


def test_two_mappings_of_one_descriptor_share_their_bytes() -> None:
    with Arena.create(8192, label="test") as ours, Arena.attach(os.dup(ours.fd), 8192) as theirs:
        ours.memory[5000] = 9
        assert theirs.memory[5000] == 9


def test_attaching_needs_the_promised_size() -> None:
    with Arena.create(4096, label="test") as arena:
        with pytest.raises(ArenaError, match="should have 9000"):
            Arena.attach(arena.fd, 9000)
        with pytest.raises(ValueError, match="at least 1"):
            Arena.create(0, label="nothing")


def test_a_ring_outlives_the_arena_object() -> None:
    arena = Arena.create(16384, label="test")
    ring_format(arena.memory, 0, 4096, 10)
    producer = RingProducer(arena.memory, 0)
    arena.close()
    arena.close()
    with pytest.raises(ValueError, match="closed"):
        arena.memory
    assert producer.push_mark(4, 0)
    producer.close()


def test_a_full_dev_shm_means_anonymous_memory_and_a_word_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(size: int, later: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "posix_segment", full)
    with caplog.at_level(logging.WARNING), Arena.create(4096, label="job 7") as arena:
        arena.memory[0] = 1
        assert "memfd:shmjet-job 7" in Path("/proc/self/maps").read_text()
    assert "job 7" in caplog.text
    assert "--shm-size" in caplog.text


def test_no_memory_anywhere_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: 1 << 40)
    with pytest.raises(ArenaError, match=r"needs \d+ bytes.*Lower ring_memory") as caught:
        Arena.create(1 << 50, label="huge")  # more than any /dev/shm
    assert isinstance(caught.value, OSError)
    assert caught.value.errno in (errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EINVAL)


def test_nothing_stays_open_when_reserving_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(ArenaError, match="anonymous memory failed too"):
        Arena.create(mmap.PAGESIZE, label="test")


def test_many_small_reservations_read_the_memory_of_the_host_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, available, readings = [time.monotonic() + 2], [1 << 30], []  # what was read before is old

    def read() -> int:
        readings.append(available[0])
        return available[0]

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(module, "available_memory", read)
    monkeypatch.setattr(os, "posix_fallocate", lambda fd, offset, size: None)
    for at in range(100):
        module.reserve(-1, at << 12, 1 << 12)
    assert readings == [1 << 30]
    available[0] = 1 << 20
    with pytest.raises(OSError, match="only 1048576 bytes of memory are available"):
        module.reserve(-1, 0, 1 << 22)  # more than is left of a 256th
    clock[0] += 2
    with pytest.raises(OSError, match="only 1048576 bytes"):
        module.reserve(-1, 0, 1 << 21)
