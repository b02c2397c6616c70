"""Members have connections of their own for changes of partitions, and use their links where these do not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shmjet.cluster.member.member_lines import MemberLines
from shmjet.cluster.membership.peer_messages import ChangesTaken, OfferLine
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.protocol import Done, Refused, Reply, TakeLine
from shmjet.cluster.requests.client_connections import Clients
from shmjet.ipc.channel import Channel
from tests.cluster.test_asking_again import until

VIEW = View(1, (Peer("a", "there:a", 1), Peer("b", "there:b", 1)), (1, 1))


class Member:
    """One of two members that hear each other."""

    def __init__(self, name: str, secret: bytes | None = b"secret") -> None:
        self.name = name
        self.view: View | None = VIEW
        self.table = None
        self.other: Member = self
        self.by_link: list[object] = []
        self.by_line: list[tuple[str, object]] = []
        self.copies: list[tuple[str, socket.socket]] = []
        self.lines = MemberLines(
            self, lambda: self.name, "dev", secret, self._take, lambda sender, sock: self.copies.append((sender, sock))
        )
        self.clients = Clients(None, lambda client, request, _: self.lines.request(client, request), lambda _: None)

    def send(self, identity: str, message: object) -> None:
        assert identity == self.other.name
        if isinstance(message, OfferLine):
            asyncio.get_running_loop().call_soon(self.other.lines.offered, self.name, message)
        else:
            self.by_link.append(message)

    async def reach(self, identities: Sequence[str]) -> None:
        pass

    def _take(self, sender: str, message: Any, way: Callable[[object], None]) -> None:
        self.by_line.append((sender, message))
        if message.number > 0:
            way(ChangesTaken(-message.number, ""))


def tell(story: Callable[[Member, Member], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell a story of two members."""

    async def main() -> None:
        first, second = Member("a"), Member("b")
        first.other, second.other = second, first
        loop = asyncio.get_running_loop()

        def dial(address: str, **_: object) -> Any:
            ours, theirs = socket.socketpair()
            there = {"there:a": first, "there:b": second}[address]
            loop.call_soon_threadsafe(lambda: there.clients.add(theirs, is_here=False))
            return SimpleNamespace(socket=ours, leftover=b"")

        monkeypatch.setattr("shmjet.net.dial.dial", dial)
        try:
            await story(first, second)
        finally:
            for member in (first, second):
                await member.lines.stop()
                member.clients.close()

    asyncio.run(main())


@pytest.mark.parametrize("who", [0, 1], ids=["makes-it", "asks-for-it"])
def test_a_line_is_used_both_ways_as_soon_as_it_is_there(monkeypatch: pytest.MonkeyPatch, who: int) -> None:
    async def story(*both: Member) -> None:
        here, there = both[who], both[1 - who]
        number = 0
        while not there.by_line:
            number += 1
            here.lines.send(there.name, ChangesTaken(number, ""))
            await asyncio.sleep(0)
        split = len(here.by_link)
        assert 0 < split < number
        assert here.by_link == [ChangesTaken(at, "") for at in range(1, split + 1)], "before it was there"
        await until(lambda: len(here.by_line) == number - split)
        assert there.by_line == [(here.name, ChangesTaken(at, "")) for at in range(split + 1, number + 1)]
        assert here.by_line == [(there.name, ChangesTaken(-at, "")) for at in range(split + 1, number + 1)]
        there.lines.send(here.name, ChangesTaken(-7, ""))
        await until(lambda: here.by_line[-1] == (there.name, ChangesTaken(-7, "")))
        here.lines.doubt(there.name)
        before = len(here.by_link)
        here.lines.send(there.name, ChangesTaken(8, ""))
        assert len(here.by_link) == before + 1, "and not at once another one"

    tell(story, monkeypatch)


def test_the_line_of_a_member_that_is_not_in_the_view_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: Member, there: Member) -> None:
        here.lines.send("b", ChangesTaken(-1, ""))
        while not there.by_line:
            here.lines.send("b", ChangesTaken(-2, ""))
            await asyncio.sleep(0)
        there.view = View(2, VIEW.members[1:], (1,))
        there.lines.view_changed()
        before = len(here.by_link)
        async with asyncio.timeout(60):
            while len(here.by_link) == before:
                here.lines.send("b", ChangesTaken(-3, ""))
                await asyncio.sleep(0.001)

    tell(story, monkeypatch)


@pytest.mark.parametrize("who", [0, 1])
def test_a_connection_for_copies_is_next_to_the_line(monkeypatch: pytest.MonkeyPatch, who: int) -> None:
    async def story(*both: Member) -> None:
        here, there = both[who], both[1 - who]
        sock = await here.lines.connect_for_copies(there.name)
        assert sock is not None
        with sock:
            await until(lambda: there.copies)
            ((sender, other),) = there.copies
            assert sender == here.name
            with other:
                sock.send(b"a copy")
                assert await asyncio.to_thread(other.recv, 100) == b"a copy"
        assert not there.by_line
        here.view = View(2, VIEW.members[who : who + 1], (1,))
        assert await here.lines.connect_for_copies(there.name) is None

    tell(story, monkeypatch)


def test_without_a_secret_for_clients_there_is_no_connection_for_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: Member, other: Member) -> None:
        here = Member("a", None)
        here.other = other
        assert await here.lines.connect_for_copies("b") is None
        here.clients.close()

    tell(story, monkeypatch)


def test_a_client_gets_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: Member, _: Member) -> None:
        ours, theirs = socket.socketpair()
        here.clients.add(theirs, is_here=False)
        here.lines.offered("b", OfferLine(b"x" * 16))
        client = Channel(ours, Reply)
        for number, token in enumerate((b"y" * 16, b"", b"x" * 16, b"x" * 16), 1):
            here.view = None if number == 3 else VIEW
            client.send(TakeLine(number, token))
            reply, _ = await asyncio.to_thread(client.receive)
            assert isinstance(reply, Refused)
            assert reply.error == "AuthenticationError"
        client.close()

    tell(story, monkeypatch)


def test_a_token_is_good_for_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(here: Member, _: Member) -> None:
        here.lines.offered("b", OfferLine(b"x" * 16))
        answers = []
        for _ in range(2):
            ours, theirs = socket.socketpair()
            here.clients.add(theirs, is_here=False)
            client = Channel(ours, Reply)
            client.send(TakeLine(1, b"x" * 16))
            answers.append(type((await asyncio.to_thread(client.receive))[0]))
            client.close()
        assert answers == [Done, Refused]

    tell(story, monkeypatch)


def test_nothing_but_the_answer_is_sent_before_the_other_end_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(_: Member, other: Member) -> None:
        here = Member("a", None)  # it makes none by itself
        here.other = other
        here.lines.offered("b", OfferLine(b"x" * 16))
        ours, theirs = socket.socketpair()
        here.clients.add(theirs, is_here=False)
        client = Channel(ours, Done | ChangesTaken)
        client.send(TakeLine(1, b"x" * 16))
        assert (await asyncio.to_thread(client.receive))[0] == Done(1)
        here.lines.send("b", ChangesTaken(1, ""))
        assert here.by_link == [ChangesTaken(1, "")]
        client.send(OfferLine(b""))
        client.send(ChangesTaken(-5, ""))
        await until(lambda: here.by_line)
        here.lines.send("b", ChangesTaken(2, ""))
        assert (await asyncio.to_thread(client.receive))[0] == ChangesTaken(2, "")
        assert here.by_link == [ChangesTaken(1, "")]
        client.close()
        await here.lines.stop()
        here.clients.close()

    tell(story, monkeypatch)
