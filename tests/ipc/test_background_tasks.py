"""Background tasks of an owner on an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging

import pytest

from shmjet.ipc.background_tasks import BackgroundTasks


def test_a_task_that_no_one_else_refers_to_runs_to_its_end() -> None:
    async def story() -> bool:
        tasks, ended, go = BackgroundTasks(), asyncio.Event(), asyncio.Event()

        async def work() -> None:
            await go.wait()
            ended.set()

        tasks.start(work())
        await asyncio.sleep(0)
        gc.collect()
        go.set()
        return await asyncio.wait_for(ended.wait(), 60)

    assert asyncio.run(story())


async def fail() -> None:
    raise LookupError("lost")


def test_a_failure_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        BackgroundTasks().start(fail())
        for _ in range(3):
            await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(story())
    (record,) = caplog.records
    assert "a background task has failed" in record.message
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)


def test_an_owner_may_take_failures_itself() -> None:
    failures: list[BaseException] = []

    async def story() -> None:
        BackgroundTasks(failures.append).start(fail())
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(story())
    assert [str(failure) for failure in failures] == ["lost"]


def test_cancel_waits_for_the_ends_and_reports_no_failure() -> None:
    failures: list[BaseException] = []
    cancelled = []

    async def story() -> None:
        tasks = BackgroundTasks(failures.append)

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        tasks.start(work())
        await asyncio.sleep(0)
        await tasks.cancel()
        assert cancelled

    asyncio.run(story())
    assert not failures
