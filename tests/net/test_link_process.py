"""Real link processes behind `LinkClient`: starting, talking, dying, and waking up for rings."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shmjet.core import DAG, between
from shmjet.execution.control import control_size, link_offset
from shmjet.net.client import LinkClient, LinkLost
from shmjet.net.messages import Heard, Limits, OpenExecution, PeerDown, PeerUp, Received, Secret, Setup
from shmjet.ring.arena import Arena
from tests.execution.vertices import Collect, Emit
from tests.net.members import SECRET, MemberRun

ITEMS = 20_000


class Member:
    """A link process, and what it has said."""

    def __init__(self, number: int) -> None:
        self.uuid = f"{number + 1:032x}"
        self.workers = 1
        self.address = ""
        self.events: list[Any] = []
        self.news = asyncio.Event()
        self.is_lost = False
        self.control = Arena.create(control_size(1), label="control")
        self.eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.client = LinkClient(self._take, self._lost)

    def _take(self, event: Any, fds: list[int]) -> None:
        assert not fds
        self.events.append(event)
        self.news.set()

    def _lost(self) -> None:
        self.is_lost = True
        self.news.set()

    async def start(self) -> None:
        setup = Setup(self.uuid, "test", Secret(SECRET), None, Limits(), 100_000_000, self.control.size, link_offset(1))
        self.client.start(setup, [self.control.fd, self.eventfd])
        self.address = await self.client.listen("127.0.0.1:0")

    async def await_(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(60):
            while True:
                for i, event in enumerate(self.events):
                    if isinstance(event, kind):
                        return self.events.pop(i)
                self.news.clear()
                await self.news.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def stop(self) -> None:
        await self.client.stop()
        os.close(self.eventfd)
        self.control.close()

    def order(self, order: OpenExecution, fds: tuple[int, ...]) -> None:
        """What `MemberRun` calls; the answer is awaited by who made it."""
        self.opening = asyncio.ensure_future(self.client.open_execution(order, fds[0]))


@contextlib.asynccontextmanager
async def two() -> AsyncIterator[tuple[Member, Member]]:
    first, second = Member(0), Member(1)
    try:
        await first.start()
        await second.start()
        first.client.connect(second.address)
        assert (await first.await_(PeerUp)).peer == second.uuid
        assert (await second.await_(PeerUp)).peer == first.uuid
        yield first, second
    finally:
        await first.stop()
        await second.stop()


def runs(test: Callable[[Member, Member], Awaitable[None]]) -> None:
    async def main() -> None:
        async with two() as (first, second):
            await test(first, second)

    asyncio.run(main())


@pytest.mark.slow
def test_links_talk_beat_and_end() -> None:
    async def test(first: Member, second: Member) -> None:
        payload = os.urandom(3 << 20)
        first.client.send(second.uuid, payload)
        assert (await second.await_(Received)).payload == payload
        first.client.set_heartbeat(0.01, 10)
        second.client.set_heartbeat(0.01, 10)
        assert (await first.await_(Heard)).peer == second.uuid
        assert (await second.await_(Heard)).peer == first.uuid
        stats = await first.client.stats()
        assert stats.peers[0].bytes_out > 3 << 20
        secret = SECRET.decode()
        for place in ("cmdline", "environ"):
            assert secret not in Path(f"/proc/{first.client.pid}/{place}").read_bytes().decode(errors="replace")

    runs(test)


@pytest.mark.slow
def test_what_is_asked_of_a_link_that_is_being_stopped_fails_and_nothing_more_is_said_of_it() -> None:
    said: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context["message"]))
        member = Member(0)
        await member.start()
        stopping = asyncio.ensure_future(member.stop())
        await asyncio.sleep(0)
        with pytest.raises(LinkLost):
            await member.client.close_execution(7)
        with pytest.raises(LinkLost):
            await member.client.stats()
        await stopping
        del member
        gc.collect()

    asyncio.run(main())
    assert said == []


@pytest.mark.slow
def test_a_killed_link_is_noticed_by_its_member_and_by_its_peer() -> None:
    async def test(first: Member, second: Member) -> None:
        waiting = asyncio.ensure_future(first.client.stats())
        await asyncio.sleep(0)
        os.kill(first.client.pid, signal.SIGKILL)
        await first.until(lambda: first.is_lost)
        assert (await second.await_(PeerDown)).peer == first.uuid
        with contextlib.suppress(LinkLost):
            await waiting
        with pytest.raises(LinkLost):
            first.client.send(second.uuid, b"no peer there")

    runs(test)


@pytest.mark.slow
def test_links_wake_up_for_rings_and_workers_for_links() -> None:
    """Both links sleep in epoll; only the doorbells of rings tell them that there is something to do."""

    async def test(first: Member, second: Member) -> None:
        from shmjet.execution.job_plan import MemberSlot
        from shmjet.execution.plan import describe

        dag = DAG()
        source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(i, ITEMS, n)), local_parallelism=1)
        sink = dag.new_vertex("sink", Collect, local_parallelism=1)
        dag.edge(between(source, sink).distributed())
        members = [first, second]
        owners = [p % 2 for p in range(271)]
        slots = [
            MemberSlot(i, [m.uuid for m in members], [m.address for m in members], owners, 1, 1 << 20) for i in (0, 1)
        ]
        shape = describe(dag)
        parts = [MemberRun(m, dag, shape, slot) for m, slot in zip(members, slots, strict=True)]  # type: ignore[arg-type]
        try:
            await asyncio.gather(first.opening, second.opening)
            async with asyncio.timeout(60):
                while any(part.tasklets for part in parts):
                    progress = [t.call() for part in parts for t in part.tasklets]
                    await asyncio.sleep(0 if any(progress) else 0.001)
            got = [item for part in parts for _, _, item in part.grid.lists["out"]]
            assert sorted(got) == list(range(ITEMS))
        finally:
            for member, part in zip(members, parts, strict=True):
                await member.client.close_execution(part.execution)
                part.close()

    runs(test)
