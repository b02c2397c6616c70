"""When processes are interrupted that do not stop their part of an attempt."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from shmjet.cluster.jobs import stopping
from shmjet.cluster.jobs.stopping import Stopping
from shmjet.execution import control
from tests.loops import skipping


def test_a_job_that_goes_on_from_a_snapshot_is_interrupted_before_others() -> None:
    async def main() -> None:
        interrupted: list[str] = []
        both = asyncio.Event()

        def child(name: str, *, stopping: bool = False) -> Any:
            block = SimpleNamespace(request_interrupt=lambda _: not stopping)
            return SimpleNamespace(name=name, pid=0, lost=False, stopping=stopping, block=block)

        def interrupt(child: Any) -> None:
            interrupted.append(child.name)
            if len(set(interrupted)) == 2:
                both.set()

        workers: Any = SimpleNamespace(interrupt=interrupt, kill=lambda _: None)
        left = {"later": [child("later")], "soon": [child("soon"), child("told to exit", stopping=True)]}
        watched = [Stopping(1, name, workers, lambda name=name: left[name], lambda _: None) for name in left]
        watched[0].stop()
        watched[1].stop(soon=True)
        await asyncio.wait_for(both.wait(), 60)
        assert interrupted[0] == "soon"
        assert "told to exit" not in interrupted
        for each in watched:
            each.end()

    skipping(main())


class Loops:
    """Processes whose code does not return, and a clock of what has been done to them."""

    def __init__(self, *pids: int) -> None:
        block = SimpleNamespace(request_interrupt=lambda _: True, words={control.CURRENT_EXECUTION: 1})
        self.left: list[Any] = [SimpleNamespace(pid=pid, lost=False, stopping=False, block=block) for pid in pids]
        self.interrupted: list[float] = []
        self.killed: dict[int, float] = {}
        workers: Any = SimpleNamespace(interrupt=self._interrupt, kill=self._kill)
        self.watched = Stopping(1, "j", workers, lambda: list(self.left), lambda _: None)

    def _interrupt(self, child: Any) -> None:
        self.interrupted.append(asyncio.get_running_loop().time())

    def _kill(self, child: Any) -> None:
        self.killed[child.pid] = asyncio.get_running_loop().time()
        self.left.remove(child)

    async def until_killed(self) -> None:
        async with asyncio.timeout(60):
            while self.left:
                await asyncio.sleep(0.001)
        self.watched.end()


def test_time_in_which_a_process_waited_for_a_core_is_no_part_of_its_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    def now() -> float:
        return asyncio.get_running_loop().time()

    starved = {7: lambda: 0.0, 8: now, 9: lambda: min(0.1, now())}
    monkeypatch.setattr(stopping, "waited_for_core", lambda pid: starved[pid]())

    async def main() -> dict[int, float]:
        processes = Loops(*starved)
        processes.watched.stop()
        await processes.until_killed()
        return processes.killed

    killed = skipping(main())
    assert list(killed) == [7, 9, 8]
    assert killed[7] == pytest.approx(stopping.GRACE_S, abs=stopping.LEAST_GRACE_S)
    assert killed[9] == pytest.approx(stopping.GRACE_S + 0.1, abs=stopping.LEAST_GRACE_S)
    assert killed[8] == pytest.approx(stopping.MOST_GRACE_S, abs=stopping.LEAST_GRACE_S)


@pytest.mark.parametrize("what", ["stop", "close"])
def test_time_in_which_the_whole_machine_stood_still_is_no_part_of_the_grace(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(stopping, "waited_for_core", lambda _: 0.0)

    async def main() -> Loops:
        processes = Loops(7)
        getattr(processes.watched, what)()
        asyncio.get_running_loop().skipping.now += 100  # type: ignore[attr-defined]
        await processes.until_killed()
        return processes

    processes = skipping(main())
    assert len(processes.interrupted) >= 3  # each of them may have come back by now
    assert processes.killed[7] >= processes.interrupted[0] + 0.6
