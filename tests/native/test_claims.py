"""Claims: of the two sides that want a queued task exactly one gets it."""

from __future__ import annotations

import mmap
import os

import pytest

from shmjet._native import CLAIMS_HEADER, Claims

CELLS = 64


def made() -> tuple[mmap.mmap, Claims]:
    memory = mmap.mmap(-1, CLAIMS_HEADER + 8 * CELLS)
    return memory, Claims(memory, 0, CELLS)


def test_a_task_is_taken_or_revoked_once() -> None:
    _, claims = made()
    for number in (1, CELLS, CELLS + 1, 2**61):
        claims.put(number)
        assert claims.take(number)
        assert not claims.take(number)
        assert not claims.revoke(number)
        assert claims.running()[0] == number
        assert claims.done() >= 0
        assert claims.running()[0] == 0
    claims.put(5)
    assert claims.revoke(5)
    assert not claims.take(5)
    assert not claims.revoke(5)
    assert not claims.take(7)  # was never put


def test_several_tasks_are_put_at_once() -> None:
    _, claims = made()
    claims.put_several(CELLS - 1, 3)
    assert [claims.take(number) for number in range(CELLS - 2, CELLS + 3)] == [False, True, True, True, False]
    for wrong in ((0, 1), (1, CELLS + 1), (1, -1), (1,)):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            claims.put_several(*wrong)  # type: ignore[call-arg]


def test_two_processes_never_both_get_a_task() -> None:
    memory, claims = made()
    both = mmap.mmap(-1, 4096)
    for start in range(1, 64 * CELLS, CELLS):
        for number in range(start, start + CELLS):
            claims.put(number)
        child = os.fork()
        if child == 0:
            other = Claims(memory, 0, CELLS)
            both[:CELLS] = bytes(other.take(number) for number in range(start, start + CELLS))
            os._exit(0)
        mine = [claims.revoke(number) for number in reversed(range(start, start + CELLS))]
        assert os.waitpid(child, 0)[1] == 0
        assert [bool(theirs) for theirs in both[:CELLS]] == [not got for got in reversed(mine)]
    both.close()


def test_what_is_wrong_is_refused() -> None:
    memory, claims = made()
    with pytest.raises(ValueError, match="from 1"):
        claims.put(0)
    with pytest.raises(ValueError, match="cells"):
        Claims(memory, 0, 0)
    with pytest.raises(ValueError, match="does not lie"):
        Claims(memory, 0, 1 << 20)
    claims.close()
    claims.close()
    for call in (claims.take, claims.revoke, claims.put):
        with pytest.raises(ValueError, match="closed"):
            call(1)
    with pytest.raises(ValueError, match="closed"):
        claims.done()
