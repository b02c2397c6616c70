"""What a member says by a view that this one does not follow yet: heard once it does, and before what comes later."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from shmjet.cluster.membership import early_messages
from shmjet.cluster.membership.discovery import NoDiscovery
from shmjet.cluster.membership.early_messages import EarlyMessages
from shmjet.cluster.membership.network import Network
from shmjet.cluster.membership.network_user import NetworkSettings
from shmjet.cluster.membership.run_messages import AskRuns
from shmjet.cluster.membership.views import Accept, JoinRequest, Peer, Propose
from shmjet.execution.control import link_offset
from shmjet.net.messages import PeerDown, PeerUp, Received
from tests.net.members import SECRET
from tests.net.test_link_process import Member

COUNT = 4


class User:
    """The first member of a cluster: it notes what its network says."""

    stored_table = None

    def __init__(self, folder: Path) -> None:
        self.folder = SimpleNamespace(path=folder)
        self.told: list[Any] = []
        self.sizes: list[int] = []
        self.link = Member(7)

    def peer(self, identity: str, address: str) -> Peer:
        return Peer(identity, address, 1)

    def link_setup(self) -> tuple[int, int, list[int]]:
        return self.link.control.size, link_offset(1), [self.link.control.fd, self.link.eventfd]

    def view_changed(self, event: Any) -> None:
        self.sizes.append(len(event.view.members))

    def peer_message(self, sender: str, message: Any) -> None:
        assert self.sizes[-1] == 2
        self.told.append((sender, message))

    def table_changed(self) -> None: ...
    def connected(self, identity: str) -> None: ...
    def connection_lost(self, peer: Peer, why: str) -> None: ...


@contextlib.asynccontextmanager
async def first_and_newcomer(folder: Path) -> AsyncIterator[tuple[Network, User, Member]]:
    """A member with its cluster, and the link of another member, connected and not in the view."""
    settings = NetworkSettings("127.0.0.1:0", (), "test", SECRET, b"", None, COUNT, 100_000_000, True, 5.0, 0)
    user, newcomer = User(folder), Member(0)
    network = Network(settings, user, NoDiscovery())  # type: ignore[arg-type]
    try:
        await network.open_port()
        await network.join()
        await newcomer.start()
        newcomer.client.connect(network.address)
        await newcomer.await_(PeerUp)
        yield network, user, newcomer
    finally:
        await newcomer.stop()
        await network.stop()
        await user.link.stop()


def say(newcomer: Member, network: Network, *messages: object) -> None:
    for message in messages:
        newcomer.client.send(network.me.uuid, msgspec.msgpack.encode(message))


async def join(newcomer: Member, network: Network) -> None:
    """Be taken into the view, as far as the first member knows."""
    say(newcomer, network, JoinRequest(Peer(newcomer.uuid, newcomer.address, 2), COUNT, 0, 0))
    while True:
        message = msgspec.msgpack.decode((await newcomer.await_(Received)).payload)
        if message[0] == "Propose":
            say(newcomer, network, Accept(newcomer.uuid, msgspec.convert(message, Propose).view.epoch))
            return


async def told(user: User, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        while len(user.told) < count:
            await asyncio.sleep(0.001)
    return [message.epoch for _, message in user.told]


def test_what_comes_before_the_view_is_heard_when_the_view_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with first_and_newcomer(tmp_path) as (network, user, newcomer):
            say(newcomer, network, AskRuns(1, {}), AskRuns(2, {}))
            await join(newcomer, network)
            say(newcomer, network, AskRuns(3, {}))
            assert await told(user, 3) == [1, 2, 3]

    asyncio.run(main())


def test_what_came_by_a_lost_connection_is_not_heard(tmp_path: Path) -> None:
    async def main() -> None:
        async with first_and_newcomer(tmp_path) as (network, user, newcomer):
            say(newcomer, network, AskRuns(1, {}))
            newcomer.client.disconnect(network.me.uuid)
            await newcomer.await_(PeerDown)
            newcomer.client.connect(network.address)
            await newcomer.await_(PeerUp)
            await join(newcomer, network)
            say(newcomer, network, AskRuns(2, {}))
            assert await told(user, 1) == [2]

    asyncio.run(main())


def test_who_says_too_much_too_early_loses_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_messages, "MOST_BYTES", 10)

    async def main() -> None:
        async with first_and_newcomer(tmp_path) as (network, user, newcomer):
            say(newcomer, network, AskRuns(1, {}))
            await newcomer.await_(PeerDown)
            assert user.told == []

    asyncio.run(main())


def test_messages_of_each_member_keep_their_order_and_give_their_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_messages, "MOST_BYTES", 10)
    early = EarlyMessages()
    assert [early.hold(sender, text) for sender, text in [("a", b"1234"), ("b", b"12"), ("a", b"5")]] == [True] * 3
    assert not early.hold("c", b"1234")
    assert early.take(["a", "c"]) == [("a", b"1234"), ("a", b"5")]
    assert early.take(["a"]) == []
    early.connection_lost("b")
    assert early.hold("c", b"0123456789")
    early.forget_all()
    assert early.take(["b", "c"]) == []
    assert early.hold("c", b"0123456789")
