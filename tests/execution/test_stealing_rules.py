"""Who asks for a tasklet, and which one is given."""

from __future__ import annotations

import mmap
from typing import Any, cast

import pytest

from shmjet.execution import control
from shmjet.execution.control import BLOCK_SIZE, WorkerControl, control_size
from shmjet.execution.work_stealing import Hosted, Stealing

MS = 1_000_000


@pytest.fixture
def blocks() -> list[WorkerControl]:
    """Of two workers; the first has six tasklets and is awake."""
    memory = memoryview(mmap.mmap(-1, control_size(2)))
    made = [WorkerControl(memory, index * BLOCK_SIZE) for index in range(2)]
    made[0].words[control.TASKLETS] = 6
    return made


def asks(blocks: list[WorkerControl]) -> bool:
    asked = blocks[0].words[control.THIEF] == 2
    blocks[0].words[control.THIEF] = 0
    return asked


def test_a_worker_asks_when_it_sleeps_for_more_than_half_of_the_time(blocks: list[WorkerControl]) -> None:
    thief = Stealing(1, blocks, 2)
    idle = blocks[1].words
    now = 100 * MS
    for slept, expected in ((1 * MS, False), (4 * MS, False), (6 * MS, True), (10 * MS, True), (0, False)):
        now += 10 * MS
        idle[control.IDLE_NS] += slept
        assert thief.look_for_work(4, now), "there is a worker with more"
        assert asks(blocks) is expected, slept


def test_a_short_wait_makes_no_thief(blocks: list[WorkerControl]) -> None:
    thief = Stealing(1, blocks, 2)
    thief.look_for_work(4, 100 * MS)
    blocks[1].words[control.IDLE_NS] += 1 * MS
    assert thief.look_for_work(4, 101 * MS)
    assert not asks(blocks)


def test_a_worker_without_tasklets_asks_at_once(blocks: list[WorkerControl]) -> None:
    assert Stealing(1, blocks, 2).look_for_work(0, MS)
    assert asks(blocks)


def test_nothing_is_asked_of_a_list_that_is_hardly_longer(blocks: list[WorkerControl]) -> None:
    assert not Stealing(1, blocks, 2).look_for_work(5, MS)
    assert not asks(blocks)


class Worked:
    """A tasklet that has worked for so long."""

    stays_until_ns = 0

    def __init__(self, busy_ns: int) -> None:
        self.busy_ns = busy_ns


class Owner:
    """A deployment that hands over everything."""

    def hand_over(self, tasklet: Any, thief: int) -> tuple[str, list[int]]:
        return "moved", []


def given(blocks: list[WorkerControl], margin: int, *busy_ns: int) -> int | None:
    blocks[0].words[control.THIEF] = 2
    hosted = [cast("Hosted", (Worked(busy), Owner())) for busy in busy_ns]
    found = Stealing(0, blocks, margin).give(hosted, MS)
    assert blocks[0].words[control.THIEF] == 0, "each request is answered once"
    return None if found is None else found.tasklet.busy_ns


def test_the_tasklet_that_has_worked_most_is_given(blocks: list[WorkerControl]) -> None:
    assert given(blocks, 2, MS, 9 * MS, 2 * MS) == 9 * MS
    assert blocks[0].words[control.STOLEN] == 1


def test_none_is_given_before_it_has_worked(blocks: list[WorkerControl]) -> None:
    assert given(blocks, 2, 0, MS - 1, 10_000) is None
    assert given(blocks, -1000, 0, 5, 0) == 5
