"""Leading an execution over several members: the coordinator's side, and what a member does that is led.

`ClusterExecution` looks to clients like any execution. It owns the coordinator's own part, asks the others to prepare
theirs, and lets `Coordination` decide what happens next; here its orders are carried out. `FollowedPart` is the
conductor of a part on another member: it reports, and does as it is told; when its coordinator is gone, it stops, and
lets go by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from shmjet.cluster.arenas import PooledArena
from shmjet.cluster.coordination import Coordination, Order, Stage
from shmjet.cluster.executions import MasterExecution
from shmjet.cluster.merging import merge_metrics
from shmjet.cluster.peer_messages import (
    AskMetrics,
    CancelPart,
    CommitPart,
    FinishPart,
    PartCommitted,
    PartEnded,
    PartFailed,
    PartFinished,
    PartMetrics,
    PartReady,
    PreparePart,
    StartPart,
)
from shmjet.cluster.phase import Phase
from shmjet.cluster.protocol import Submission
from shmjet.cluster.site import MemberServices
from shmjet.cluster.views import Peer, View
from shmjet.core import JobStatus
from shmjet.execution.failure import member_failed
from shmjet.execution.large import Large
from shmjet.execution.messages import Failure, JobPlan, LogWish, Probed, Seat
from shmjet.execution.metrics import Metrics

METRICS_S = 1.0
"""How long other members may take to tell their metrics."""


class Post(Protocol):
    """Sends messages to other members."""

    def send(self, identity: str, message: object) -> None:
        """Send a message; it is lost when the member is."""


class FilePost(Post, Protocol):
    """Sends files, too."""

    async def send_files(self, uuids: Sequence[str], job: Submission) -> None:
        """Send the files attached to a job."""


def owners_of(partition_count: int, members: int) -> list[int]:
    """Return the place of the member that owns each partition: they are dealt out in turn."""
    return [partition % members for partition in range(partition_count)]


class ClusterExecution:
    """Runs one job once, on all members of a view.

    Args:
        id: of the execution, unique in the cluster.
        job: what to run.
        code: of the job.
        view: of whose members all take part; the first is this one.
        services: of this member.
        post: to the others.
        first_worker: where processor 0 of every vertex is placed here.
        on_status: called at every change of status.
        on_over: called when nothing of it is left anywhere.
        on_part: called with this member's own part, which children report to.
        logs: the client's wish for log records.
        epoch: gives that of the view in force: members may join before all are asked to prepare.
    """

    def __init__(
        self,
        id: int,  # noqa: A002
        job: Submission,
        code: Large,
        view: View,
        services: MemberServices,
        post: FilePost,
        first_worker: int,
        on_status: Callable[[ClusterExecution], None],
        on_over: Callable[[ClusterExecution], None],
        on_part: Callable[[MasterExecution], None],
        logs: LogWish | None = None,
        epoch: Callable[[], int] | None = None,
    ) -> None:
        self.id = id
        self.job = job
        self._code = code
        self.status = JobStatus.STARTING
        self.started_at = time.time()
        self._view = view
        self._own = view.members[0].uuid
        self._others = view.members[1:]
        self._services = services
        self._post = post
        self._on_status = on_status
        self._on_over = on_over
        self._coordination = Coordination(view.uuids)
        self._logs = logs
        self._epoch: Callable[[], int] = epoch or (lambda: view.epoch)
        own = wish_at(logs, self._own)
        self._part = MasterExecution(id, job, code, services, first_worker, lambda _: None, self._part_over, self, own)
        on_part(self._part)
        self._finals: dict[str, Metrics] = {}
        self._latest: dict[str, Metrics] = {}
        self._asked: dict[int, tuple[str, asyncio.Future[Metrics]]] = {}
        self._requests = 0
        self._told = False
        self._over = asyncio.Event()
        self._preparing: asyncio.Future[None] | None = None

    @property
    def failure(self) -> Failure | None:
        """The first error, if there was one."""
        return self._coordination.failure

    @property
    def cancelled(self) -> bool:
        """Whether it was asked to end."""
        return self._coordination.cancelled

    @property
    def completed_at(self) -> float | None:
        """When this member's part ended, in seconds since 1970."""
        return self._part.completed_at

    @property
    def plan(self) -> JobPlan | None:
        """How this member's part is laid out, as long as it has its arena."""
        return self._part.plan

    @property
    def arena(self) -> PooledArena | None:
        """The arena of this member's part, while it has one."""
        return self._part.arena

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return self._over.is_set()

    def start(self) -> None:
        """Begin, with the questions to the meta-suppliers."""
        self._part.start()

    def cancel(self) -> None:
        """Ask for the end; `on_status` tells when it has come."""
        self._coordination.cancel()
        self._carry_out()

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        self._part.forget_exception()
        self._coordination.forget_exception()

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> None:
        """Take that members are gone, or that connections to them have broken."""
        gone = list(uuids)
        self._coordination.lost(gone, failure)
        for request, (uuid, future) in list(self._asked.items()):
            if uuid in gone and not future.done():
                future.cancel()
                self._asked.pop(request, None)
        self._carry_out()

    # -- this member's own part ---------------------------------------------------------------------------------

    def other_addresses(self) -> list[str]:
        """Return where the other members are."""
        return [peer.address for peer in self._others]

    def probed(self, part: MasterExecution, probed: Probed) -> None:
        """Have all members prepare, now that the meta-suppliers have said what each gets."""
        self._preparing = asyncio.ensure_future(self._prepare(probed))

    async def _prepare(self, probed: Probed) -> None:
        uuids = [peer.uuid for peer in self._others]
        if self.job.attachments:
            try:
                await self._post.send_files(uuids, self.job)
            except OSError as error:
                text = f"a file attached to the job is not on this member any more: {error}; make the job anew"
                self._part.break_off(member_failed(OSError(text)))
                return
        if self._coordination.stage is not Stage.PREPARING:
            return  # cancelled or failed meanwhile, and nobody else knows of it
        self._told = True
        seat = Seat(
            index=0,
            peers=list(self._view.uuids),
            addresses=[peer.address for peer in self._view.members],
            owners=owners_of(self._services.partition_count, len(self._view.members)),
            default_parallelism=len(self._services.workers.workers),
            ring_memory=self._services.ring_memory,
        )
        job = msgspec.structs.replace(self.job, code=bytes(self._code.view()), code_size=0)
        for place, peer in enumerate(self._others, start=1):
            suppliers = probed.others[place - 1] if probed.others else {}
            theirs = Probed(self.id, suppliers, probed.non_cooperative)
            logs = wish_at(self._logs, peer.uuid)
            own_seat = msgspec.structs.replace(seat, index=place)
            self._post.send(peer.uuid, PreparePart(self.id, self._epoch(), job, theirs, own_seat, logs))
        self._part.deploy(probed, seat)

    def ready(self, part: MasterExecution) -> None:
        """Take that all is ready here."""
        self._coordination.ready(self._own)
        self._carry_out()

    def failed(self, part: MasterExecution, failure: Failure) -> None:
        """Take that something failed here."""
        self._coordination.failed(self._own, located(failure, self._view.members[0]))
        self._carry_out()

    def ended(self, part: MasterExecution) -> None:
        """Take that no tasklet is left here."""
        self._coordination.ended(self._own, part.commits)
        self._carry_out()

    def committed(self, part: MasterExecution) -> None:
        """Take that all is committed here."""
        self._coordination.committed(self._own)
        self._carry_out()

    def _part_over(self, part: MasterExecution) -> None:
        self._finals[self._own] = part.metrics()
        self._coordination.finished(self._own)
        self._carry_out()

    # -- the others ---------------------------------------------------------------------------------------------

    def report(self, uuid: str, message: object) -> None:
        """Take what another member reports."""
        match message:
            case PartReady():
                self._coordination.ready(uuid)
            case PartFailed():
                self._coordination.failed(uuid, message.failure)
            case PartEnded():
                self._coordination.ended(uuid, message.commits)
            case PartCommitted():
                self._coordination.committed(uuid)
            case PartFinished():
                self._finals[uuid] = message.metrics
                self._coordination.finished(uuid)
            case PartMetrics():
                self._latest[uuid] = message.metrics
                _, future = self._asked.pop(message.request, (uuid, None))
                if future is not None and not future.done():
                    future.set_result(message.metrics)
        self._carry_out()

    def _carry_out(self) -> None:
        coordination = self._coordination
        while orders := coordination.take_orders():
            self._carry_out_orders(orders)
        if coordination.status is not self.status:
            self.status = coordination.status
            self._on_status(self)
        if coordination.stage is Stage.OVER and not self._over.is_set():
            self._over.set()
            self._on_over(self)

    def _carry_out_orders(self, orders: list[tuple[str, Order]]) -> None:
        coordination = self._coordination
        for uuid, order in orders:
            if uuid != self._own and not self._told:
                coordination.ended(uuid)  # it has never heard of this execution
                coordination.finished(uuid)
            elif uuid != self._own:
                self._tell(uuid, order)
            elif order is Order.START:
                self._part.go()
            elif order is Order.CANCEL:
                self._part.cancel()
            elif order is Order.COMMIT:
                self._part.commit()
            elif order is Order.FINISH:
                self._part.finish(coordination.error)

    def _tell(self, uuid: str, order: Order) -> None:
        match order:
            case Order.START:
                self._post.send(uuid, StartPart(self.id))
            case Order.CANCEL:
                self._post.send(uuid, CancelPart(self.id))
            case Order.COMMIT:
                self._post.send(uuid, CommitPart(self.id))
            case Order.FINISH:
                self._post.send(uuid, FinishPart(self.id, self._coordination.error))

    # -- looking ------------------------------------------------------------------------------------------------

    def own_metrics(self) -> Metrics:
        """Return those of this member's part alone."""
        return self._finals[self._own] if self._own in self._finals else self._part.metrics()

    async def metrics(self) -> Metrics:
        """Return the metrics of all members, as they are now or were at the end; of one that is late its last ones."""
        if self._coordination.stage is Stage.FINISHING:
            await _within(METRICS_S, [asyncio.ensure_future(self._over.wait())])
        found = {**self._latest, **self._finals}
        if self._own not in found:
            found[self._own] = self.own_metrics()
        waiting = []
        for peer in self._others:
            if peer.uuid not in self._finals and not self._over.is_set():
                self._requests += 1
                future: asyncio.Future[Metrics] = asyncio.get_running_loop().create_future()
                self._asked[self._requests] = peer.uuid, future
                waiting.append((peer, future))
                self._post.send(peer.uuid, AskMetrics(self._requests, self.id))
        await _within(METRICS_S, [future for _, future in waiting])
        for peer, future in waiting:
            if future.done() and not future.cancelled():
                found[peer.uuid] = future.result()
        parts = [(peer.address, found[peer.uuid]) for peer in self._view.members if peer.uuid in found]
        return merge_metrics(parts, self.started_at)


class FollowedPart:
    """The conductor of a part that another member leads.

    Args:
        coordinator: who leads it.
        me: this member.
        post: to the coordinator.
        on_over: called when nothing of it is left here.
    """

    def __init__(
        self, coordinator: str, me: Peer, peers: Sequence[str], post: Post, on_over: Callable[[int], None]
    ) -> None:
        self.coordinator = coordinator
        self.peers = frozenset(peers)
        self.part: MasterExecution | None = None
        self._me = me
        self._post = post
        self._on_over = on_over
        self._orphaned: str | None = None

    def other_addresses(self) -> list[str]:
        """Nobody asks: the meta-suppliers are the coordinator's."""
        return []

    def probed(self, part: MasterExecution, probed: Probed) -> None:
        """Nobody asks: the meta-suppliers are the coordinator's."""

    def ready(self, part: MasterExecution) -> None:
        """Report it."""
        self._report(PartReady(part.id))

    def failed(self, part: MasterExecution, failure: Failure) -> None:
        """Report it."""
        self._report(PartFailed(part.id, located(failure, self._me)))

    def ended(self, part: MasterExecution) -> None:
        """Report it, or let go if there is nobody to report to."""
        if self._orphaned is not None:
            part.finish(self._orphaned)
        else:
            self._report(PartEnded(part.id, part.commits))

    def committed(self, part: MasterExecution) -> None:
        """Report it."""
        self._report(PartCommitted(part.id))

    def over(self, part: MasterExecution) -> None:
        """Report the end, with the metrics."""
        self._report(PartFinished(part.id, part.metrics()))
        self._on_over(part.id)

    def _report(self, message: object) -> None:
        if self._orphaned is None:
            self._post.send(self.coordinator, message)

    def follow(self, message: object) -> None:
        """Do as the coordinator says."""
        part = self.part
        assert part is not None
        match message:
            case StartPart():
                part.go()
            case CancelPart():
                part.cancel()
            case CommitPart():
                part.commit()
            case FinishPart():
                part.finish(message.error)
            case AskMetrics():
                self._post.send(self.coordinator, PartMetrics(message.request, part.metrics(), part.id))

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> None:
        """Stop when one that takes part is gone, and let go when that is the coordinator."""
        part, gone = self.part, set(uuids)
        assert part is not None
        if self.coordinator in gone:
            self.orphan(failure.text)
        elif gone & self.peers:
            part.break_off(failure)

    def orphan(self, why: str) -> None:
        """Stop and let go: nobody leads this part any more."""
        part = self.part
        assert part is not None
        if self._orphaned is None:
            self._orphaned = why
            if part.phase is Phase.AWAITING:
                part.finish(why)
            else:
                part.cancel()


def wish_at(logs: LogWish | None, member: str) -> LogWish | None:
    """Return a client's wish for log records as far as a member has to fulfil it: not where the client hears itself."""
    return None if logs is None or logs.home == member else logs


def located(failure: Failure, peer: Peer) -> Failure:
    """Return a failure that says on which member it happened."""
    return failure if failure.member else msgspec.structs.replace(failure, member=peer.address)


async def _within(seconds: float, futures: Sequence[asyncio.Future[Any]]) -> None:
    """Wait until all are done, but no longer; what is not done then is given up."""
    if futures:
        _, pending = await asyncio.wait(futures, timeout=seconds)
        for future in pending:
            future.cancel()
