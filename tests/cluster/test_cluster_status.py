"""One member asks the others, without members: what it makes of answers, late ones and odd ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.member import cluster_status
from shmjet.cluster.member.cluster_status import ClusterStatus
from shmjet.cluster.membership.peer_messages import AskReport, Report
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.protocol import ChildPids, Describe, MembersReply, MemberStatus, StatusReply, StatusRequest
from tests.loops import skipping

PEERS = [Peer(name, f"{name}:1", number) for number, name in enumerate(("me", "quick", "late", "odd"))]


def status_of(name: str) -> MemberStatus:
    return MemberStatus(name, f"{name}:1", 1, "0", 0, 0.0, {}, [], {}, [])


class Asker:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def send(self, message: object) -> None:
        self.answers.append(message)


async def ask(
    request: Any, answer: Callable[[ClusterStatus], Any], answers: dict[str, bytes]
) -> tuple[Asker, list[tuple[str, Any]]]:
    """Have a request served by "me", while the others answer what is given for them, or not at all."""
    sent: list[tuple[str, Any]] = []

    def post(identity: str, message: Any) -> None:
        sent.append((identity, message))
        if identity in answers:
            asking.take(identity, Report(message.request, answers[identity]))

    async def pids() -> ChildPids:
        return ChildPids([11], [12])

    asking = ClusterStatus(Path("nowhere"), lambda: PEERS, lambda: "me", post, pids, lambda: status_of("me"))
    client = Asker()
    answer(asking)(client, request)
    while not client.answers:
        await asyncio.sleep(0.001)
    asking.take("late", Report(99, b""))  # no request waits for it any more
    return client, sent


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_status, "STATUS_S", 0.01)
    monkeypatch.setattr(cluster_status, "WORKERS_S", 0.01)


def test_a_status_has_the_members_that_answer_and_names_the_silent() -> None:
    answers = {"quick": msgspec.msgpack.encode(status_of("quick")), "odd": b"\xc1"}
    client, sent = skipping(ask(StatusRequest(5), lambda status: status.report_status, answers))
    (reply,) = client.answers
    assert isinstance(reply, StatusReply)
    assert [member.uuid for member in reply.members] == ["me", "quick"]
    assert reply.silent == ["late:1", "odd:1"]
    assert reply.coordinator == "me:1", "the oldest, even if another answers"
    assert [(to, message.kind) for to, message in sent] == [("quick", "status"), ("late", "status"), ("odd", "status")]


def test_members_are_described_with_the_workers_that_are_told() -> None:
    answers = {"quick": msgspec.msgpack.encode(ChildPids([21, 22], [23]))}
    client, _ = skipping(ask(Describe(6), lambda status: status.describe_members, answers))
    (reply,) = client.answers
    assert isinstance(reply, MembersReply)
    assert [(row.uuid, row.workers, row.carriers) for row in reply.members] == [
        ("me", [11], [12]),
        ("quick", [21, 22], [23]),
        ("late", [], []),
        ("odd", [], []),
    ]
    assert reply.asked == "me"


def test_a_member_that_is_lost_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_status, "STATUS_S", 120.0)
    peers = PEERS[:3]
    client = Asker()

    async def story() -> None:
        asking = ClusterStatus(Path("nowhere"), lambda: peers, lambda: "me", post, no_pids, lambda: status_of("me"))
        asking.report_status(client, StatusRequest(5))
        while len(sent) < 2:
            await asyncio.sleep(0)
        asking.member_lost("late")
        assert not client.answers
        asking.take("late", Report(sent[1].request, b"too late"))
        asking.take("quick", Report(sent[0].request, msgspec.msgpack.encode(status_of("quick"))))
        async with asyncio.timeout(60):
            while not client.answers:
                await asyncio.sleep(0)

    sent: list[Any] = []

    def post(_: str, message: Any) -> None:
        sent.append(message)

    async def no_pids() -> ChildPids:
        return ChildPids([], [])

    asyncio.run(story())
    assert client.answers[0].silent == ["late:1"]


def test_another_member_is_told_and_what_it_asks_in_vain_is_answered_with_nothing() -> None:
    told: list[tuple[str, Any]] = []

    async def story() -> None:
        async def pids() -> ChildPids:
            return ChildPids([11], [12])

        asked = ClusterStatus(
            Path("nowhere"), lambda: PEERS, lambda: "me", lambda *sent: told.append(sent), pids, lambda: status_of("me")
        )
        for number, kind in enumerate(("workers", "status", "of a later version")):
            asked.take("quick", AskReport(number, kind))
        while len(told) < 3:
            await asyncio.sleep(0.001)

    skipping(story())
    replies = {message.request: message.body for _, message in told}
    assert msgspec.msgpack.decode(replies[0], type=ChildPids) == ChildPids([11], [12])
    assert msgspec.msgpack.decode(replies[1], type=MemberStatus) == status_of("me")
    assert replies[2] == b""
