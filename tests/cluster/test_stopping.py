"""When processes are interrupted that do not stop their part of an attempt."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from shmjet.cluster.jobs.stopping import Stopping


def test_a_job_that_goes_on_from_a_snapshot_is_interrupted_before_others() -> None:
    async def main() -> None:
        interrupted: list[str] = []
        both = asyncio.Event()

        def child(name: str, *, stopping: bool = False) -> Any:
            block = SimpleNamespace(request_interrupt=lambda _: not stopping)
            return SimpleNamespace(name=name, lost=False, stopping=stopping, block=block)

        def interrupt(child: Any) -> None:
            interrupted.append(child.name)
            if len(set(interrupted)) == 2:
                both.set()

        workers: Any = SimpleNamespace(interrupt=interrupt, kill=lambda _: None)
        left = {"later": [child("later")], "soon": [child("soon"), child("told to exit", stopping=True)]}
        watched = [Stopping(1, name, workers, lambda name=name: left[name], lambda _: None) for name in left]
        watched[0].stop()
        watched[1].stop(soon=True)
        await asyncio.wait_for(both.wait(), 20)
        assert interrupted[0] == "soon"
        assert "told to exit" not in interrupted
        for stopping in watched:
            stopping.end()

    asyncio.run(main())
