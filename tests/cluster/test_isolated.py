"""A member that is cut off stops all attempts and keeps its jobs; a member that was removed gives them up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shmjet.cluster.jobs.member_loss import MemberLossHandler
from shmjet.cluster.jobs.service import JobService
from shmjet.cluster.membership.peer_messages import CancelPart, PartEnded, PartFinished, PreparePart
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.protocol import CoordinatorLost, Execute, Submission, WatchAgain
from shmjet.cluster.requests.named_jobs import NamedJobs
from shmjet.core import JobStatus
from shmjet.core.ownership import PartitionOwners
from shmjet.execution.failure import member_lost
from shmjet.execution.job_plan import JobShape
from shmjet.execution.metrics import NO_METRICS
from shmjet.snapshots.store import SnapshotStore

PEERS = tuple(Peer(name, f"{name}:1", 1) for name in "abc")
JOB = Submission("0123456789abcdef", "job", JobShape([], []), b"", b"", {}, [])


class Recorder:
    """Notes what is called, with its arguments."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **_: self.calls.append((name, arguments))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def arguments(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


class CutCluster:
    """Three members of which this one is the oldest; it can be cut off."""

    is_networked, member_for, me = True, 60.0, "a"

    def __init__(self) -> None:
        self.trouble = ""
        self.view = View(3, PEERS, (1, 2, 3))
        self.sent: list[tuple[str, Any]] = []

    def is_connected(self, identity: str) -> bool:
        return not self.trouble

    def send(self, identity: str, message: object) -> None:
        self.sent.append((identity, message))

    def cut_off(self) -> None:
        self.trouble, self.view = "it has lost touch", View(0, PEERS[:1], (1,))

    def come_back(self) -> None:
        self.trouble, self.view = "", View(4, PEERS, (1, 2, 3))


class Participants(Recorder):
    """This member's own parts; nothing is run."""

    def members_lost(self, uuids: Any, failure: Any) -> list[int]:
        return []

    def has_job(self, job_id: str) -> bool:
        return False


class Client(Recorder):
    """The client that has submitted the job."""

    identity = "client"


class Member:
    """The jobs of a coordinator, and what they say to others."""

    def __init__(self) -> None:
        self.cluster = CutCluster()
        self.parts = Participants()
        services = SimpleNamespace(
            snapshots=SnapshotStore(Path()),
            snapshot_copies=None,
            snapshot_keeper=None,
            partition_count=7,
            workers=SimpleNamespace(workers=[1]),
            ring_memory=1 << 20,
            address="a:1",
        )
        post: Any = SimpleNamespace(send=self.cluster.send, send_files=_no_files, has_all=lambda _: True)
        self._numbers = iter(range(1, 100))
        registry: Any = self.parts
        self.jobs = JobService(
            services,  # type: ignore[arg-type]
            registry,
            post,
            NamedJobs({}),
            cluster=self.cluster,
            owners=lambda view: PartitionOwners(len(view.members), [0] * 7),
            next_number=lambda: next(self._numbers),
            allow_code=True,
            restart_pause=0.0,
            observables=Recorder(),
        )

    def orders(self, kind: type) -> list[str]:
        return sorted(identity for identity, message in self.cluster.sent if isinstance(message, kind))

    def own_part_ends(self) -> None:
        for message in (PartEnded(1), PartFinished(1, NO_METRICS)):
            self.jobs.receive("a", message, self.cluster.view, PEERS[0])


async def _no_files(members: Any, job: Any) -> None:
    pass


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))  # type: ignore[arg-type]


def begun(others: str = "bc") -> Member:
    """Return a coordinator with a job of which all members have been asked to prepare their parts."""
    member = Member()
    all_of_them = member.cluster.view
    member.cluster.view = View(2, PEERS[: 1 + len(others)], all_of_them.since[: 1 + len(others)])
    client: Any = Client()
    member.jobs.submissions.execute(client, Execute(1, JOB.job_id, JOB, False, token="token"), [])
    assert member.orders(PreparePart) == list(others)
    member.cluster.view = all_of_them
    member.cluster.sent.clear()
    return member


@pytest.mark.parametrize("others", ["bc", ""], ids=["on all members", "begun before others joined"])
def test_a_coordinator_that_is_cut_off_stops_the_attempt_and_goes_on_with_the_job_when_it_is_back(others: str) -> None:
    async def story() -> None:
        member = begun(others)
        old, jobs = member.cluster.view, member.jobs
        member.cluster.cut_off()
        jobs.isolated(["b", "c"], member_lost("a has lost touch with b:1, c:1", member="b:1"))
        assert "orphan_all" in member.parts.names
        assert [type(order) for _, order, _ in member.parts.arguments("take")][-1] is CancelPart
        member.own_part_ends()
        found = jobs.table.run(1)
        assert found is not None
        assert not found.status.is_terminal
        assert jobs.table.started_by("token") == 1
        assert member.orders(PreparePart) == []
        member.cluster.come_back()
        jobs.view_changed(old, member.cluster.view, has_joined=False)
        while not member.orders(PreparePart):
            await asyncio.sleep(0)
        assert member.orders(PreparePart) == ["b", "c"]
        assert jobs.table.run(1) is found

    run(story)


def test_a_member_that_was_removed_from_its_cluster_forgets_the_jobs_that_it_coordinated() -> None:
    async def story() -> None:
        member = begun()
        found = member.jobs.table.run(1)
        failure = member_lost("a was removed", member="a:1")
        member.jobs.members_lost(["b", "c"], failure)
        member.jobs.forget_all(failure)
        assert "orphan_all" in member.parts.names
        assert member.jobs.table.run(1) is None
        assert found is not None
        member.own_part_ends()
        assert found.status is JobStatus.FAILED
        assert member.orders(PreparePart) == []

    run(story)


def test_what_is_told_when_a_member_is_cut_off_and_when_it_was_removed() -> None:
    jobs, clients, forwarder, cleared = Recorder(), Recorder(), Recorder(), Recorder()
    parts: tuple[Any, ...] = jobs, clients, forwarder
    handler = MemberLossHandler(*parts, clear_grid=cleared.grid, clear_observables=cleared.observables)
    handler.isolated(PEERS[1:2], PEERS[1:], "a:1")
    ((others, failure),) = jobs.arguments("isolated")
    assert others == ["b", "c"], "a member that it still hears may not hear it"
    assert "b:1" in failure.text
    assert "c:1" not in failure.text
    assert clients.arguments("forwarded_gone") == [("b",), ("c",)]
    assert [type(news) for (news,) in clients.arguments("tell_all")] == [CoordinatorLost]
    assert forwarder.names == ["lost"]
    assert jobs.names == ["isolated"]
    assert cleared.names == [], "it may be what it was when it hears the others again"
    handler.fenced(PEERS[1:], "it was away", "a:1")
    assert jobs.names == ["isolated", "members_lost", "forget_all"]
    assert [type(news) for (news,) in clients.arguments("tell_all")] == [CoordinatorLost, WatchAgain]
    assert sorted(cleared.names) == ["grid", "observables"]
