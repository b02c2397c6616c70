"""Steps are done in turn, a few milliseconds at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from shmjet.ipc.fair_turns import SHARE_S, Turns


def test_all_else_comes_first_when_the_time_is_up() -> None:
    async def run() -> list[str]:
        now, done = 0.0, list[str]()
        turns = Turns(lambda: now)

        def step(name: str, takes: float, again: int) -> Callable[[], None]:
            def do() -> None:
                nonlocal now
                now += takes
                done.append(name)
                if again:
                    turns.add(step(name, takes, again - 1))

            return do

        turns.add(step("a", SHARE_S / 2, 2))
        turns.add(step("b", SHARE_S / 2, 2))
        for _ in range(5):
            await asyncio.sleep(0)
            done.append("-")
        return done

    assert asyncio.run(run()) == ["a", "b", "-", "a", "b", "-", "a", "b", "-", "-", "-"]


def test_a_step_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> list[int]:
        done: list[int] = []
        turns = Turns()

        def fail() -> None:
            raise ValueError("this one")

        for step in (lambda: done.append(1), fail, lambda: done.append(2)):
            turns.add(step)
        for _ in range(3):
            await asyncio.sleep(0)
        turns.add(lambda: done.append(3))
        await asyncio.sleep(0)
        return done

    assert asyncio.run(run()) == [1, 2, 3]
    assert "this one" in caplog.text


def test_a_step_is_done_at_once_as_long_as_there_is_time_and_nobody_waits() -> None:
    async def run() -> None:
        now, done = 1.0, list[str]()
        turns = Turns(lambda: now)

        def step() -> None:
            nonlocal now
            now += 0.6 * SHARE_S
            done.append("step")

        assert turns.now(step)
        assert turns.now(step)
        assert not turns.now(step), "the time is up"
        now += 2 * SHARE_S
        assert turns.now(step)
        turns.add(lambda: done.append("first"))
        assert not turns.now(step), "another one waits"
        await asyncio.sleep(0)
        assert done == ["step", "step", "step", "first"]

    asyncio.run(run())
