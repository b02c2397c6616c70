"""Requests under way when a member, or the way to it, is lost: asked again where that is safe, else refused."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.client.connection import Connection
from shmjet.cluster.jobs.submissions import Submissions
from shmjet.cluster.lifecycle_messages import ExportSnapshot
from shmjet.cluster.member.grid_requests import GridRequests
from shmjet.cluster.membership.peer_messages import Bounced, Forward
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.protocol import (
    Done,
    DumpAll,
    Execute,
    Executing,
    ExecutionChanged,
    GridCall,
    GridReply,
    JobsReply,
    ListJobs,
    Refused,
    Request,
    StatusRequest,
    Submission,
)
from shmjet.cluster.requests.request_forwarder import PATIENCE_S, RequestForwarder
from shmjet.cluster.retry import as_retry, is_idempotent
from shmjet.core import JobStatus
from shmjet.data.errors import MemberLostError
from shmjet.execution.job_plan import JobShape
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.grid import Grid
from shmjet.grid.layout import MAP_RECORD, record_key
from shmjet.grid.operations import Numbered, Replace, Size
from shmjet.ipc.channel import Channel, ChannelClosed
from tests.cluster.jobs_here import JobsHere

SUBMISSION = Submission("job", None, JobShape([], []), b"", b"", {}, [])


class Asker:
    """A client that remembers what it is told."""

    number, is_here, is_closed = 7, False, False

    def __init__(self) -> None:
        self.told: list[Any] = []

    def queue(self, message: object) -> None:
        self.told.append(message)

    def send(self, message: object) -> None:
        self.told.append(message)

    def flush(self) -> None:
        pass

    async def until_read(self) -> None:
        pass


# -- who coordinates ----------------------------------------------------------------------------------------------


class Run:
    """An execution that runs for ever."""

    status, failure, cancelled, is_over, job = JobStatus.RUNNING, None, False, False, SUBMISSION
    started_at, completed_at, suspension = 0.0, None, None
    snapshot_waits_for: list[str] = []

    def __init__(self, number: int) -> None:
        self.id = number

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass

    async def metrics(self) -> Metrics:
        return NO_METRICS


def submissions(member_for: float) -> tuple[Submissions, list[Run]]:
    runs: list[Run] = []

    def make(*_: Any) -> Any:
        runs.append(Run(len(runs) + 1))
        return runs[-1]

    return JobsHere(make, member_for=lambda: member_for).submissions, runs


def test_a_request_that_comes_again_starts_nothing_again() -> None:
    jobs, runs = submissions(math.inf)
    first, again = Asker(), Asker()
    request = Execute(1, "job", SUBMISSION, False, None, None, "token")
    jobs.execute(first, request, [])
    jobs.execute(again, Execute(5, "job", SUBMISSION, False, None, None, "token", 3.0), [])
    assert len(runs) == 1
    assert again.told == [Executing(5, 1), ExecutionChanged(1, "running")]
    jobs.execute(again, Execute(6, "job", None, False, None, None, "another"), [])
    assert len(runs) == 2


def test_one_who_has_been_a_member_for_longer_knows_that_it_was_not_carried_out() -> None:
    jobs, runs = submissions(60.0)
    client = Asker()
    jobs.execute(client, Execute(1, "job", SUBMISSION, False, None, None, "token", 3.0), [])
    assert len(runs) == 1
    assert client.told == [Executing(1, 1)]


def test_one_who_has_come_since_says_that_nobody_knows() -> None:
    jobs, runs = submissions(2.0)
    client = Asker()
    jobs.execute(client, Execute(1, "job", SUBMISSION, False, None, None, "token", 3.0), [])
    assert not runs
    (refused,) = client.told
    assert (refused.error, refused.request) == ("MemberLostError", 1)
    assert "the outcome of the job is unknown" in refused.text
    jobs.execute(client, Execute(2, "job", SUBMISSION, False, None, None, "new"), [])
    assert len(runs) == 1


def test_a_job_whose_files_went_to_a_lost_coordinator_is_to_be_sent_with_them_again() -> None:
    jobs, client = JobsHere(lambda *_: pytest.fail("it is run"), has_files=lambda _: False), Asker()
    submission = msgspec.structs.replace(SUBMISSION, attachments={"words": "0/words"})
    jobs.submissions.execute(client, Execute(1, "job", submission, False, None, None, "token", 3.0), [])
    (refused,) = client.told
    assert refused.error == "JobNotFoundError"
    assert not jobs.table.knows("job")


def test_a_client_is_not_answered_before_other_members_have_the_files_and_the_record() -> None:
    submission = msgspec.structs.replace(SUBMISSION, attachments={"words": "0/words"})
    changes: list[Callable[[Any], None]] = []

    class Unrecorded(Run):
        status, job, awaits_record = JobStatus.STARTING, submission, True

    run: Any = Unrecorded(1)

    def make(_: Any, changed: Any, __: Any) -> Any:
        changes.append(changed)
        return run

    jobs, client = JobsHere(make).submissions, Asker()
    jobs.execute(client, Execute(1, "job", submission, False, None, None, "token"), [])
    changes[0](run)
    assert not client.told, "the next coordinator would not know the run"
    run.awaits_record = False
    changes[0](run)
    assert client.told[0] == Executing(1, 1)


# -- the member in between ----------------------------------------------------------------------------------------


class FakeNetwork:
    """Members that are there, or not."""

    trouble = "it is looking for its cluster"

    def __init__(self) -> None:
        self.view: View | None = None
        self.connected = True
        self.sent: list[tuple[str, Any]] = []
        self.reached = asyncio.Event()

    def coordinated_by(self, uuid: str) -> None:
        self.view = View(1, (Peer(uuid, f"{uuid}:1", 1),), (1,))

    def is_connected(self, identity: str) -> bool:
        return self.connected

    async def reach(self, identities: Any) -> None:
        await self.reached.wait()
        if not self.connected:
            raise OSError("no connection")

    def send(self, identity: str, message: Any) -> None:
        self.sent.append((identity, message))


async def until(predicate: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not predicate():
            await asyncio.sleep(0.001)


def passing(story: Callable[[FakeNetwork, RequestForwarder, Any], Coroutine[Any, Any, None]]) -> None:
    """Tell a story of a member that passes requests on to "old"."""

    async def main() -> None:
        network, client = FakeNetwork(), Asker()
        network.coordinated_by("old")
        tasks: list[Any] = []
        forwarder: Any = None

        def serve(asker: Any, request: Any) -> None:
            forwarder.take(asker, request, [])

        fake: Any = network
        forwarder = RequestForwarder(fake, serve, lambda work: tasks.append(asyncio.ensure_future(work)))
        await story(network, forwarder, client)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_when_the_coordinator_is_lost_the_next_one_is_asked() -> None:
    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        forwarder.take(client, ListJobs(1), [])
        forwarder.take(client, Execute(2, "job", None, True, None, None, "token"), [])
        forwarder.take(client, GridCall(3, b"x"), [])
        forwarder.take(client, ListJobs(4), [])
        forwarder.answered(client.number, 4)
        network.sent.clear()
        network.coordinated_by("new")
        forwarder.lost("member old:1 is gone")
        await until(lambda: len(network.sent) == 2)
        assert {identity for identity, _ in network.sent} == {"new"}
        bodies = [request_in(message) for _, message in network.sent]
        assert bodies[0] == ListJobs(1)
        assert (bodies[1].request, bodies[1].token) == (2, "token")
        assert bodies[1].age > 0
        (refused,) = client.told
        assert (refused.request, refused.error) == (3, "MemberLostError")
        assert "member old:1 is gone; whether the operation was carried out is not known" in refused.text

    passing(story)


def test_the_next_one_is_asked_however_long_the_lost_one_was_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.cluster.requests.request_forwarder.PATIENCE_S", 0.0)

    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        forwarder.take(client, ListJobs(1), [])
        network.coordinated_by("new")
        forwarder.lost("member old:1 is gone")
        await until(lambda: len(network.sent) == 2)
        assert network.sent[1][0] == "new"
        assert not client.told

    passing(story)


def test_operations_for_other_members_are_asked_again_when_a_member_has_to_join_anew() -> None:
    """Its connections to all go at once, so that none of them is lost by itself."""

    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        forwarder.pass_to("old", client, GridCall(1, b"x"))
        assert len(network.sent) == 1
        forwarder.lost("this member was removed", is_over=True)
        (refused,) = client.told
        assert (refused.request, refused.error) == (1, "PartitionMovedError")

    passing(story)


def request_in(message: Any) -> Any:
    assert isinstance(message, Forward)
    return msgspec.msgpack.decode(message.body, type=Request)


def test_a_read_that_comes_again_is_answered_by_the_store_that_it_was_asked_of(tmp_path: Path) -> None:
    Grid.create(tmp_path / "grid", environments=1)
    size = msgspec.msgpack.encode(Size(0, record_key(MAP_RECORD, "m")))

    async def story() -> None:
        grid, client = GridRequests(tmp_path / "grid"), Asker()
        grid.perform(client, GridCall(1, size))
        await until(lambda: client.told)
        store = client.told[0].store
        grid.perform(client, GridCall(2, size, store, again=True))
        grid.perform(client, GridCall(3, size, store + 1, again=True))
        await until(lambda: len(client.told) == 3)
        told = {reply.request: reply for reply in client.told}
        assert told[2] == GridReply(2, msgspec.msgpack.encode(0), store)
        assert told[3].error == "MemberLostError"
        assert "maps and lists may be lost" in told[3].text
        grid.close()

    asyncio.run(story())


def test_a_change_that_comes_again_is_done_once(tmp_path: Path) -> None:
    Grid.create(tmp_path / "grid", environments=1)
    encode = msgspec.msgpack.encode
    put = Replace(0, record_key(MAP_RECORD, "m"), b"\0\0sa", encode(("a", 1)), False)
    body = encode(Numbered(b"c" * 16, 1, 1, encode(put)))

    async def story() -> None:
        grid, client = GridRequests(tmp_path / "grid"), Asker()
        grid.perform(client, GridCall(1, body))
        await until(lambda: client.told)
        store = client.told[0].store
        call = GridCall(2, body, store)
        assert is_idempotent(call)
        grid.perform(client, as_retry(call, 0.1))
        grid.perform(client, as_retry(GridCall(3, body, store + 1), 0.1))
        await until(lambda: len(client.told) == 3)
        told = {reply.request: reply for reply in client.told}
        assert told[1].body == told[2].body == encode(None), "there was nothing before the first time"
        assert told[3].error == "MemberLostError", "another store does not know whether it was done"
        grid.close()

    asyncio.run(story())


def test_when_the_connection_breaks_it_waits_for_another_one() -> None:
    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        forwarder.take(client, ListJobs(1), [])
        network.sent.clear()
        network.connected = False
        forwarder.lost("the connection was lost")
        for _ in range(5):
            await asyncio.sleep(0)
        assert not network.sent
        network.connected = True
        network.reached.set()
        await until(lambda: network.sent)
        assert request_in(network.sent[0][1]) == ListJobs(1)
        assert not client.told

    passing(story)


def test_what_a_lost_coordinator_was_at_for_long_is_asked_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        forwarder.take(client, ExportSnapshot(1, 7, "kept", token="token"), [])
        monkeypatch.setattr("shmjet.cluster.requests.request_forwarder.PATIENCE_S", 0.0)
        network.coordinated_by("new")
        forwarder.lost("member old:1 is gone")
        await until(lambda: client.told or len(network.sent) == 2)
        assert not client.told
        assert request_in(network.sent[1][1]) == ExportSnapshot(1, 7, "kept", token="token", again=True)

    passing(story)


def test_where_nobody_can_be_reached_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.cluster.requests.request_forwarder.PATIENCE_S", -1.0)

    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        network.connected = False
        network.reached.set()
        forwarder.take(client, ListJobs(1), [])
        await until(lambda: client.told)
        assert client.told == [Refused(1, "MemberLostError", "no connection")]
        network.connected = True
        forwarder.take(client, ListJobs(2), [])
        forwarder.lost("this member was put out", is_over=True)
        assert "whether the request (ListJobs) was carried out is not known" in client.told[1].text
        network.view = None
        forwarder.take(client, ListJobs(3), [])
        assert client.told[2] == Refused(3, "MemberLostError", network.trouble)

    passing(story)


def test_a_coordinator_that_cannot_be_reached_is_waited_for_as_long_as_views_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shmjet.cluster.requests.request_forwarder.BOUNCE_S", 0.0)

    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        network.connected = False
        network.reached.set()
        forwarder.take(client, Execute(1, "job", None, True, None, None, "token", 3.0), [])
        for _ in range(10):
            await asyncio.sleep(0)
        assert not client.told
        network.coordinated_by("new")
        network.connected = True
        await until(lambda: network.sent)
        assert network.sent[0][0] == "new"
        assert request_in(network.sent[0][1]).age > 3.0, "it has grown older"

    passing(story)


def test_what_was_not_looked_at_is_asked_again_whatever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.cluster.requests.request_forwarder.BOUNCE_S", 0.0)

    async def story(network: FakeNetwork, forwarder: RequestForwarder, client: Any) -> None:
        forwarder.take(client, GridCall(1, b"x"), [])
        forwarder.bounced(Bounced(client.number, 99))
        forwarder.bounced(Bounced(client.number, 1))
        await until(lambda: len(network.sent) == 2)
        assert request_in(network.sent[1][1]) == GridCall(1, b"x")
        monkeypatch.setattr("shmjet.cluster.requests.request_forwarder.PATIENCE_S", -1.0)
        forwarder.bounced(Bounced(client.number, 1))
        assert "nothing was done, ask again" in client.told[0].text
        forwarder.client_gone(client.number)
        forwarder.lost("this member was put out", is_over=True)
        assert len(client.told) == 1

    assert PATIENCE_S > 0
    passing(story)


# -- the client ---------------------------------------------------------------------------------------------------


class TwoMembers:
    """An endpoint that leads to one end of a socket pair, and then to one of another."""

    patience = None
    reconnect_s = 10.0
    gone = "no member can be reached"

    def __init__(self) -> None:
        self.members: list[Channel] = []
        self.sockets: list[socket.socket] = []
        self.left = 2
        self.again = threading.Event()

    def connect(self) -> tuple[socket.socket, bytes, Callable[[], None]]:
        ours, theirs = socket.socketpair()
        self.sockets.append(theirs)
        self.members.append(Channel(theirs, Request))
        self.left -= 1
        return ours, b"", ours.close

    def connect_again(self, stopped: Callable[[], bool]) -> tuple[socket.socket, bytes, Callable[[], None]] | None:
        if stopped() or not self.left:
            return None
        opened = self.connect()
        self.again.set()
        return opened


@pytest.fixture
def endpoint() -> Iterator[TwoMembers]:
    endpoint = TwoMembers()
    yield endpoint
    for member in endpoint.members:
        member.close()


def test_a_client_asks_another_member_what_the_first_did_not_answer(endpoint: TwoMembers) -> None:
    lost = threading.Event()
    connection = Connection(endpoint, lambda news: None, lambda: None, lost.set)
    try:
        rows = connection.post(ListJobs)
        run = connection.post(lambda number: Execute(number, "job", None, True, None, None, "token"))
        written = connection.post(lambda number: GridCall(number, b"x"))
        read = connection.post(lambda number: GridCall(number, b"y", 77))
        first = endpoint.members[0]
        sent = [first.receive()[0] for _ in range(4)]
        first.close()
        with pytest.raises(MemberLostError, match=r"whether the request \(GridCall\) was carried out is not known"):
            written.result(60)
        assert endpoint.again.wait(60)
        second = endpoint.members[1]
        again = [second.receive()[0] for _ in range(3)]
        assert again[0] == sent[0]
        assert (again[1].request, again[1].token) == (sent[1].request, "token")
        assert again[1].age > 0
        second.send(JobsReply(again[0].request, []))
        second.send(Executing(again[1].request, 5))
        assert again[2] == GridCall(sent[3].request, b"y", 77, again=True)
        second.send(GridReply(again[2].request, b"z", 77))
        assert read.result(60).body == b"z"
        assert rows.result(60).jobs == []
        assert run.result(60).execution_id == 5
        waiting = connection.post(ListJobs)
        second.receive()
        second.close()
        with pytest.raises(MemberLostError, match="ListJobs"):
            waiting.result(60)
        assert lost.wait(60)
        with pytest.raises(MemberLostError, match="no member can be reached"):
            connection.post(ListJobs)
    finally:
        connection.close()
    with pytest.raises(ChannelClosed):
        endpoint.members[0].receive()


@pytest.mark.parametrize("question", [StatusRequest, DumpAll])
def test_who_only_looks_asks_another_member(endpoint: TwoMembers, question: Callable[[int], Any]) -> None:
    connection = Connection(endpoint, lambda news: None, lambda: None, lambda: None)
    try:
        waiting = connection.post(question)
        endpoint.members[0].receive()
        endpoint.members[0].close()
        assert endpoint.again.wait(60)
        (request, _) = endpoint.members[1].receive()
        endpoint.members[1].send(Done(request.request))
        assert waiting.result(60) == Done(request.request)
    finally:
        connection.close()


def test_what_could_not_be_sent_any_more_is_sent_to_the_next_member(endpoint: TwoMembers) -> None:
    connection = Connection(endpoint, lambda news: None, lambda: None, lambda: None)
    try:
        endpoint.sockets[0].shutdown(socket.SHUT_RD)  # nothing can be sent, and the client has not been told
        rows = connection.post(ListJobs)
        with pytest.raises(MemberLostError, match="no member can be reached"):
            connection.post(lambda number: GridCall(number, b"x"))
        assert not rows.done()
        endpoint.members[0].close()
        assert endpoint.again.wait(60)
        (request, _) = endpoint.members[1].receive()
        endpoint.members[1].send(JobsReply(request.request, []))
        assert rows.result(60).jobs == []
        endpoint.sockets[1].shutdown(socket.SHUT_RD)
        unsent = connection.post(ListJobs)
        endpoint.members[1].close()
        with pytest.raises(MemberLostError, match="no member can be reached"):
            unsent.result(60)
    finally:
        connection.close()
