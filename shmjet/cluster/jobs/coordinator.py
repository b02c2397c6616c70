"""The coordinator of an attempt: it asks all members to prepare, and carries out what `Attempt` decides.

Its own member is one of them: what it is told goes through the same post, as what it reports does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from shmjet.cluster.jobs.attempt import Attempt
from shmjet.cluster.jobs.attempt_snapshots import AttemptSnapshots, Done
from shmjet.cluster.jobs.context import MemberServices, needs_probe
from shmjet.cluster.jobs.ended_attempt import EndedAttempt, metrics_of_all
from shmjet.cluster.jobs.lineage import LOST_ALL, Lineage
from shmjet.cluster.jobs.phase import Phase
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.jobs.snapshot_taking import SnapshotSource, Timer
from shmjet.cluster.jobs.unexpected import in_background, step, unexpected
from shmjet.cluster.membership.peer_messages import (
    AskMetrics,
    CommitPart,
    FinishPart,
    PartAtEnd,
    PartFailed,
    PartFinished,
    PartMetrics,
    PartOpenSources,
    PartProbed,
    PartReady,
    PartResolved,
    PartSaved,
    PreparePart,
    ProbePart,
)
from shmjet.cluster.membership.views import Peer
from shmjet.cluster.protocol import Submission
from shmjet.cluster.requests.post import JobPost, Payload
from shmjet.core import JobStatus, ShmjetError
from shmjet.core.ownership import PartitionOwners
from shmjet.data.decoders import from_msgpack
from shmjet.execution.failure import is_loss, member_failed
from shmjet.execution.job_plan import MemberSlot
from shmjet.execution.messages import Failure, LogSubscription, Probed
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.ipc.inline_or_memfd import InlineOrMemfd
from shmjet.snapshots.manifest import DamagedSnapshotError

METRICS_S = 1.0
"""How long other members may take to tell their metrics."""


class AttemptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be attempted, and where.

    Args:
        id: of the attempt, unique in the cluster.
        run: of which it is an attempt.
        job: what to run.
        code: of the job.
        logs: the client's subscription to log records.
        members: who takes part; the first is this member, which coordinates.
        epoch: gives that of the view in force: members may join before all are asked to prepare.
        owners: of partitions, among the members.
        lineage: to which its snapshots belong; None for a job without a guarantee that begins from none.
        is_followed: says, once it has failed, whether another attempt follows at once.
        files_sent: called with the identities of other members when they have been sent the files attached to the job.
        before_commit: is waited for before any member is told to commit; None for nothing.
    """

    id: int
    run: int
    job: Submission
    code: InlineOrMemfd
    logs: LogSubscription | None
    members: tuple[Peer, ...]
    epoch: Callable[[], int]
    owners: PartitionOwners
    lineage: Lineage | None = None
    is_followed: Callable[[], bool] = lambda: False
    files_sent: Callable[[list[str]], None] = lambda _: None
    before_commit: Callable[[], Awaitable[None]] | None = None


class JobCoordinator:
    """Leads one attempt.

    Args:
        plan: what is attempted.
        services: of this member.
        post: to all members.
        on_change: called at every change of its status.
        on_over: called with what is kept of it, when nothing of it is left anywhere.
    """

    def __init__(
        self,
        plan: AttemptPlan,
        services: MemberServices,
        post: JobPost,
        *,
        on_change: Callable[[JobCoordinator], None],
        on_over: Callable[[EndedAttempt], None],
    ) -> None:
        self.id = plan.id
        self.status = JobStatus.STARTING
        self.started_at = time.time()
        self._plan = plan
        self._members = plan.members
        self._own = plan.members[0].uuid
        self._services = services
        self._post = post
        self._on_change = on_change
        self._on_over: Callable[[EndedAttempt], None] | None = on_over
        self._attempt = Attempt(plan.id, [peer.uuid for peer in plan.members])
        self._finals: dict[str, Callable[[], Metrics]] = {}
        self._latest: dict[str, Metrics] = {}
        self._asked: dict[int, tuple[str, asyncio.Future[Metrics]]] = {}
        self._requests = 0
        self._over: asyncio.Event | None = None
        self._preparing: asyncio.Future[None] | None = None
        self._committing: asyncio.Future[None] | None = None
        self._ready: dict[str, PartReady] = {}
        lineage = plan.lineage
        self._snapshots = self._snapshots_of(lineage) if lineage is not None and lineage.takes_snapshots else None

    def _snapshots_of(self, lineage: Lineage) -> AttemptSnapshots:
        plan = self._plan
        source = SnapshotSource(
            attempt=plan.id,
            job_id=plan.job.job_id,
            job_name=plan.job.name,
            shape=plan.job.shape,
            members=[peer.uuid for peer in plan.members],
            partition_count=self._services.partition_count,
        )
        return AttemptSnapshots(
            source, lineage, send=self._post.send, fail=self._fail, on_terminal=self._snapshot_ends_it, clock=self
        )

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call something of this attempt later; see `Clock`."""
        return asyncio.get_running_loop().call_later(delay, step, self, callback)

    def break_down(self, error: Exception) -> None:
        """Stop for an unexpected error, which may have come between any two steps."""
        self._attempt.fail(unexpected(error, f"in the coordinator of job {self._plan.job.label}"))
        try:
            self._take_steps()
        except Exception as another:
            unexpected(another, f"while job {self._plan.job.label} was stopped for that")

    @property
    def run(self) -> int:
        """The run of which this is an attempt."""
        return self._plan.run

    @property
    def failure(self) -> Failure | None:
        """The first error, if there was one."""
        return self._attempt.failure

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
        return self._attempt.cancelled

    @property
    def may_be_followed(self) -> bool:
        """Whether it has failed before anything may have been made visible, so that another attempt may follow."""
        return self.failure is not None and not self.cancelled and not self._attempt.may_be_visible

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return self._attempt.phase is Phase.OVER

    @property
    def members(self) -> tuple[Peer, ...]:
        """The members that take part; the first is the coordinator's own."""
        return self._members

    @property
    def snapshot_waits_for(self) -> list[str]:
        """The vertices for whose end a snapshot waits."""
        return [] if self._snapshots is None else self._snapshots.postponed_for

    @property
    def left_off(self) -> bool:
        """Whether it ends, or has ended, with a terminal snapshot."""
        return self._attempt.left_off is not None

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        self._attempt.forget_exception()

    def start(self) -> None:
        """Begin; a job with meta-suppliers, or of unknown manners, is looked at in a worker first."""
        step(self, self._start)

    def _start(self) -> None:
        plan = self._plan
        if not needs_probe(plan.job.shape):
            self._probed(Probed(self.id, {}, []))
            return
        self._attempt.ask([self._own])
        others = [peer.address for peer in self._members[1:]]
        logs = subscription_at(plan.logs, self._own)
        self._post.send(
            self._own, ProbePart(self.id, plan.run, plan.job, others, logs, list(plan.owners.places)), plan.code
        )

    def cancel(self) -> None:
        """Ask for the end; `on_change` tells when it has come."""
        self._attempt.cancel()
        self._carry_out()

    def take_snapshot(self, request: SnapshotRequest, lineage: Lineage, done: Done) -> None:
        """Take a snapshot as soon as that is possible; without a guarantee it is exported.

        Args:
            request: what kind of snapshot.
            lineage: to which it belongs.
            done: called when it is over, with what went wrong.
        """
        if self._snapshots is None:
            self._snapshots = self._snapshots_of(lineage)
            for uuid, ready in self._ready.items():
                self._snapshots.report(uuid, ready)
            self._snapshots.follow(self._attempt.phase)
        self._snapshots.take(request, done)

    def _snapshot_ends_it(self) -> None:
        self._attempt.leave_off("the job goes on from its snapshot, in another attempt")

    def _fail(self, failure: Failure) -> None:
        """Stop for an error that is none of a participant's."""
        self._attempt.fail(failure)
        self._carry_out()

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> None:
        """Take that members are gone, or that connections to them have broken."""
        gone = list(uuids)
        self._attempt.lost(gone, failure)
        for request, (uuid, future) in list(self._asked.items()):
            if uuid in gone and not future.done():
                future.cancel()
                self._asked.pop(request, None)
        self._carry_out()

    def break_off(self, failure: Failure) -> None:
        """Stop the attempt, for something that happened outside of it."""
        self._attempt.fail(failure)
        self._carry_out()

    # -- asking all to prepare ----------------------------------------------------------------------------------

    def _probed(self, probed: Probed) -> None:
        """Have all members prepare, now that the meta-suppliers have said what each gets."""
        lineage = self._plan.lineage
        has_files = len(self._members) > 1 and (self._plan.job.attachments or lineage is not None)
        if has_files or (lineage is not None and lineage.is_writing):
            self._preparing = in_background(self, self._prepare_with_files(probed))
        else:
            self._plan.files_sent([])
            self._prepare(probed, {})

    async def _prepare_with_files(self, probed: Probed) -> None:
        lineage, files = self._plan.lineage, {}
        try:
            members = [peer.uuid for peer in self._members[1:]]
            await self._post.send_files(members, self._plan.job)
            self._plan.files_sent(members)
        except OSError as error:
            text = f"a file attached to the job is not on this member any more: {error}; make the job anew"
            self.report(self._own, PartFailed(self.id, member_failed(OSError(text))))
            return
        try:
            if lineage is not None:
                files = await lineage.find()
        except (OSError, ShmjetError) as error:
            text = f"a member has not said which snapshots it has: {error}"
            failure = msgspec.structs.replace(member_failed(OSError(text)), restartable=True)
            self.report(self._own, PartFailed(self.id, failure))
            return
        self._prepare(probed, files)

    def _prepare(self, probed: Probed, files: Mapping[str, Mapping[str, list[str]]]) -> None:
        plan, members = self._plan, self._members
        lineage = plan.lineage
        restored = -1 if lineage is None else lineage.newest()
        snapshots = lineage.name if lineage is not None and (lineage.takes_snapshots or restored >= 0) else ""
        if lineage is not None and lineage.has_lost_all:
            self.report(self._own, PartFailed(self.id, member_failed(DamagedSnapshotError(LOST_ALL))))
            return
        if not self._attempt.ask([peer.uuid for peer in members]):
            return  # cancelled or failed meanwhile, and no other member knows of it
        slot = MemberSlot(
            index=0,
            peers=[peer.uuid for peer in members],
            addresses=[peer.address for peer in members],
            owners=list(plan.owners.places),
            default_parallelism=len(self._services.workers.workers),
            ring_memory=self._services.ring_memory,
        )
        epoch = plan.epoch()
        for place, peer in reversed(list(enumerate(members))):  # this member begins last: the others have further to go
            if place:
                suppliers = probed.others[place - 1] if probed.others else {}
                theirs = Probed(self.id, suppliers, probed.non_cooperative)
            else:
                theirs = probed
            its_slot = msgspec.structs.replace(slot, index=place)
            logs = subscription_at(plan.logs, peer.uuid)
            lacks = dict(files.get(peer.uuid, {}))
            order = PreparePart(self.id, epoch, plan.job, theirs, its_slot, logs, plan.run, restored, snapshots, lacks)
            self._post.send(peer.uuid, order, plan.code)

    # -- what participants report -------------------------------------------------------------------------------

    def report(self, uuid: str, message: Any, payload: Payload = None) -> None:
        """Take what a participant reports."""
        step(self, self._take, uuid, message, payload)
        self._carry_out()

    def _take(self, uuid: str, message: Any, payload: Payload) -> None:
        match message:
            case PartProbed():
                self._probed(message.probed)
            case PartFailed():
                self._attempt.report(uuid, PartFailed(self.id, self._located(message.failure, uuid)))
            case PartMetrics():
                self._latest[uuid] = message.metrics
                _, future = self._asked.pop(message.request, (uuid, None))
                if future is not None and not future.done():
                    future.set_result(message.metrics)
            case PartFinished():
                self._finals[uuid] = payload if callable(payload) else _encoded(message.metrics)
                self._attempt.report(uuid, message)
            case PartSaved() | PartResolved() | PartAtEnd() | PartOpenSources():
                if self._snapshots is not None:
                    self._snapshots.report(uuid, message)
            case PartReady():
                self._ready[uuid] = message
                if self._snapshots is not None:
                    self._snapshots.report(uuid, message)
                self._attempt.report(uuid, message)
            case _:
                self._attempt.report(uuid, message)

    def _located(self, failure: Failure, uuid: str) -> Failure:
        """Return a failure that says on which member it happened, where there are several."""
        if failure.member or len(self._members) == 1:
            return failure
        address = next((peer.address for peer in self._members if peer.uuid == uuid), "")
        return msgspec.structs.replace(failure, member=address)

    def _carry_out(self) -> None:
        step(self, self._take_steps)

    def _take_steps(self) -> None:
        attempt = self._attempt
        status = attempt.status
        if status is not self.status:
            self.status = status
            self._on_change(self)
        commits = []
        keeps_services = attempt.phase is Phase.FINISHING and self._keeps_services()
        for uuid, order in attempt.take_orders():
            if isinstance(order, CommitPart) and self._plan.before_commit is not None:
                commits.append((uuid, order))
                continue
            if isinstance(order, FinishPart):
                order = msgspec.structs.replace(order, is_followed=keeps_services)
            self._post.send(uuid, order)
        if commits and self._plan.before_commit is not None:
            self._committing = in_background(self, self._commit(commits, self._plan.before_commit()))
        if self._snapshots is not None:
            self._snapshots.follow(attempt.phase)
        if self.is_over and self._on_over is not None:
            ended = self._ended()
            on_over, self._on_over = self._on_over, None
            if self._over is not None:
                self._over.set()
            on_over(ended)

    async def _commit(self, orders: list[tuple[str, CommitPart]], ready: Awaitable[None]) -> None:
        """Have members commit, unless one of them is lost before all is ready for that."""
        await ready
        if self._attempt.phase is Phase.COMMITTING:
            for uuid, order in orders:
                self._post.send(uuid, order)

    def _keeps_services(self) -> bool:
        """Say whether services stay open for the next attempt; not after an error that may have been theirs."""
        return is_loss(self.failure) and self._plan.is_followed()

    def _ended(self) -> EndedAttempt:
        return EndedAttempt(
            id=self.id,
            status=self.status,
            failure=self.failure,
            cancelled=self.cancelled,
            may_be_followed=self.may_be_followed,
            left_off=self.left_off,
            members=self._members,
            metrics_of={**{uuid: _encoded(metrics) for uuid, metrics in self._latest.items()}, **self._finals},
            started_at=self.started_at,
        )

    # -- looking ------------------------------------------------------------------------------------------------

    async def metrics(self) -> Metrics:
        """Return the metrics of all members, as they are now or were at the end; a late member's last known ones."""
        if self._attempt.phase is Phase.FINISHING and len(self._members) > 1:
            self._over = self._over or asyncio.Event()
            await _within(METRICS_S, [asyncio.ensure_future(self._over.wait())])
        found = await self._ask(self._members)
        return metrics_of_all(self._members, found, self.started_at)

    async def own_metrics(self) -> Metrics:
        """Return those of this member's part alone."""
        return (await self._ask(self._members[:1])).get(self._own, NO_METRICS)

    async def _ask(self, members: Sequence[Peer]) -> dict[str, Metrics]:
        """Ask members for their metrics, unless they have told their last ones."""
        waiting: list[asyncio.Future[Metrics]] = []
        for peer in members:
            if peer.uuid not in self._finals and not self.is_over:
                self._requests += 1
                future: asyncio.Future[Metrics] = asyncio.get_running_loop().create_future()
                self._asked[self._requests] = peer.uuid, future
                self._post.send(peer.uuid, AskMetrics(self._requests, self.id))
                waiting.append(future)
        await _within(METRICS_S, [future for future in waiting if not future.done()])
        return {**self._latest, **{uuid: final() for uuid, final in self._finals.items()}}


def _encoded(metrics: Metrics) -> Callable[[], Metrics]:
    """Return what gives these metrics again: encoded they are a tenth as large."""
    return partial(from_msgpack, msgspec.msgpack.encode(metrics), Metrics)


def subscription_at(logs: LogSubscription | None, member: str) -> LogSubscription | None:
    """Return a client's subscription for one member; None where the client gets that member's records directly."""
    return None if logs is None or logs.home == member else logs


async def _within(seconds: float, futures: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until all are done, but no longer; what is not done then is given up."""
    if futures:
        _, pending = await asyncio.wait(futures, timeout=seconds)
        for future in pending:
            future.cancel()
