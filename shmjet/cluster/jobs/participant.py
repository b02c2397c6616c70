"""A member's part of an attempt: its processes, its arena, and the coordinator's orders.

`Part` decides; here its decisions are carried out. A part whose coordinator is gone stops, and lets go by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from shmjet.cluster.jobs.context import ExecutionContext, MemberServices, probe_of
from shmjet.cluster.jobs.endpoints import ProcessorEndpoints
from shmjet.cluster.jobs.part import Part
from shmjet.cluster.jobs.part_counters import PartCounters
from shmjet.cluster.jobs.part_snapshots import PartSnapshots
from shmjet.cluster.jobs.phase import Phase
from shmjet.cluster.jobs.stopping import Stopping
from shmjet.cluster.jobs.unexpected import in_background, step, unexpected
from shmjet.cluster.membership.peer_messages import (
    AskMetrics,
    AskOpenSources,
    CancelPart,
    CommitPart,
    FinishPart,
    PartAtEnd,
    PartFinished,
    PartMetrics,
    PartOpenSources,
    PartResolved,
    PartSaved,
    PreparePart,
    ProbePart,
    ResolvePart,
    SavePart,
    StartPart,
)
from shmjet.cluster.processes.arenas import PooledArena
from shmjet.cluster.processes.workers import Child
from shmjet.cluster.protocol import Submission
from shmjet.cluster.requests.post import JobPost
from shmjet.core import ConfigError, JobStatus, PlanError, ShmjetError
from shmjet.execution.failure import member_failed
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.messages import (
    Adopt,
    AtEnd,
    Committed,
    Ended,
    EndpointOpened,
    Failed,
    Failure,
    Finish,
    Finished,
    HandOver,
    Probed,
    Ready,
    Resolved,
    Saved,
    Start,
)
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.execution.readiness import PREPARING, READY
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

logger = logging.getLogger("shmjet.member")

FIRST_LOOK_S, LONGEST_LOOK_S = 0.002, 0.1
"""How soon, and how rarely at most, the member looks whether all processes of an attempt are ready."""
LONGEST_RETURN_S = 10.0
"""How long an attempt without memory or descriptors waits for those of attempts that are over."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a participant is given.

    Args:
        id: of the attempt, unique in the cluster.
        run: of which it is an attempt.
        job: what to run.
        code: of the job.
        coordinator: identity of the member that leads the attempt.
        first_worker: where processor 0 of every vertex is placed.
    """

    id: int
    run: int
    job: Submission
    code: InlineOrMemfd
    coordinator: str
    first_worker: int


class Participant:
    """One member's part of an attempt.

    Args:
        assignment: what it takes part in.
        services: of the member.
        post: to the coordinator.
        on_over: called when nothing of it is left here.
    """

    def __init__(
        self, assignment: Assignment, services: MemberServices, post: JobPost, on_over: Callable[[Participant], None]
    ) -> None:
        self.id = assignment.id
        self.run = assignment.run
        self.job = assignment.job
        self.coordinator = assignment.coordinator
        self.peers: frozenset[str] = frozenset()
        self.started_at = time.time()
        self.completed_at: float | None = None
        self.endpoints = ProcessorEndpoints()
        self._assignment = assignment
        self._services = services
        self._post = post
        self._on_over = on_over
        self._part = Part(self.id)
        self._children: dict[int, Child] = {}
        self._context: ExecutionContext | None = None
        self._counters = PartCounters(self.name, self.started_at)
        self._snapshots: PartSnapshots | None = None
        """None as long as none has been ordered."""
        self._look_timer: asyncio.TimerHandle | None = None
        self._opening: asyncio.Future[None] | None = None
        self._stopping: Stopping | None = None
        """None as long as no process has been told to stop, or to close what is left."""

    @property
    def name(self) -> str:
        """How the job is called in messages."""
        return repr(self.job.name) if self.job.name else self.job.job_id

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left here."""
        return self._part.phase is Phase.OVER

    def _pending(self) -> Iterator[Child]:
        """Give the processes that have not done yet what they were told: to stop, or at the end to close all."""
        part = self._part
        pending = part.unfinished() if part.phase is Phase.FINISHING else part.unended()
        return (self._children[endpoint] for endpoint in pending)

    def _unfinished(self) -> dict[int, Child]:
        """Return the processes that have not let go, by their endpoints."""
        return {endpoint: self._children[endpoint] for endpoint in self._part.unfinished()}

    def _saving(self) -> PartSnapshots:
        if self._snapshots is None:
            store, has_guarantee = self._services.snapshots, self.job.settings.has_guarantee
            self._snapshots = PartSnapshots(self.id, store, self._unfinished, self._report, has_guarantee=has_guarantee)
        return self._snapshots

    def _watching(self) -> Stopping:
        if self._stopping is None:
            services = self._services
            self._stopping = Stopping(self.id, self.name, services.workers, self._pending, services.name_of)
        return self._stopping

    @property
    def _planned(self) -> JobPlan | None:
        return None if self._context is None else self._context.plan

    def _endpoint(self, child: Child) -> int | None:
        """Return where a process takes part; None when it does not, or took part in its place before."""
        return child.index if self._children.get(child.index) is child else None

    # -- what the coordinator says ------------------------------------------------------------------------------

    def probe(self, order: ProbePart) -> None:
        """Have a worker look at the suppliers."""
        step(self, self._probe, order)

    def _probe(self, order: ProbePart) -> None:
        child = self._services.workers.workers[self._assignment.first_worker]
        self._children[child.index] = child
        self._part.probe(child.index)
        code = self._assignment.code
        child.send(probe_of(order, code, self._services), code.fds)

    def prepare(self, order: PreparePart, *, may_wait: bool = True, has_files: bool = False) -> None:
        """Make the plan and have the processors made, when the snapshot that is to be restored is here.

        Args:
            order: what the coordinator says.
            has_files: whether it is here.
            may_wait: whether it tries again, when memory or descriptors are missing, with what attempts that are over
                are giving back just now.
        """
        step(self, self._prepare, order, may_wait, has_files)

    def _prepare(self, order: PreparePart, may_wait: bool, has_files: bool) -> None:
        part, assignment = self._part, self._assignment
        if part.phase is not Phase.PROBING:  # it was stopped before it has begun
            return
        self.peers = frozenset(order.slot.peers)
        if order.snapshots and order.slot.count > 1 and not has_files:
            self._opening = in_background(self, self._prepare_with_files(order))
            return
        more = may_wait and self._services.arenas.can_make_room
        try:
            context = ExecutionContext(order, assignment.code, self._services, first_worker=assignment.first_worker)
            endpoints = sorted(context.plan.participants())
            children = context.open(endpoints)
        except (PlanError, ConfigError, OSError) as error:
            # no valid plan, no shared memory, or no descriptor for a carrier: no process has been told anything
            if more and isinstance(error, OSError):
                self._opening = in_background(self, self._prepare_with_more(order))
                return
            part.refuse(member_failed(error), self._children)
            self._carry_out()
            return
        self._context = context
        self._children.update(children)
        part.prepare(
            endpoints,
            linked=context.plan.start_barrier_endpoint is None,
            processors=[vertex.parallelism for vertex in context.plan.vertices],
        )
        if context.plan.start_barrier_endpoint is not None:
            self._opening = in_background(self, self._open_link(context))
        for endpoint in endpoints:
            context.deploy(self._children[endpoint])
        self._look_after(FIRST_LOOK_S)

    async def _prepare_with_more(self, order: PreparePart) -> None:
        await self._services.arenas.make_room(LONGEST_RETURN_S)
        self.prepare(order, may_wait=False, has_files=True)

    async def _prepare_with_files(self, order: PreparePart) -> None:
        keeper = self._services.snapshot_keeper
        assert keeper is not None
        try:
            await keeper.restore(order.snapshots, order.restored, self.coordinator, order.files)
        except (OSError, ShmjetError, ValueError) as error:
            if self._part.phase is not Phase.PROBING:  # it was stopped meanwhile
                return
            text = f"member {self._services.address} cannot have snapshot {order.restored}: {error}"
            failure = msgspec.structs.replace(member_failed(OSError(text)), restartable=True)
            self._part.refuse(failure, self._children)
            self._carry_out()
        else:
            self.prepare(order, has_files=True)

    async def _open_link(self, context: ExecutionContext) -> None:
        try:
            await context.open_link()
        except OSError as error:
            self.break_off(member_failed(error))
        else:
            self._part.link_opened()
            self._carry_out()

    def order(self, message: object) -> None:
        """Do as the coordinator says."""
        step(self, self._obey, message)

    def _obey(self, message: object) -> None:
        match message:
            case StartPart():
                self._part.start()
            case CancelPart():
                self._part.cancel(is_lossy=message.is_lossy)
            case CommitPart():
                self._part.commit()
            case FinishPart():
                self._part.finish(message.error, is_followed=message.is_followed)
            case SavePart():
                self._saving().save(message, self._planned)
            case ResolvePart():
                self._saving().resolve(message)
            case AskOpenSources():
                context = self._context
                open_here = [] if context is None else context.unended_of(message.vertices)
                self._post.send(self.coordinator, PartOpenSources(self.id, open_here))
            case AskMetrics():
                self._post.send(self.coordinator, PartMetrics(message.request, self.metrics(), self.id))
        self._carry_out()

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> None:
        """Stop when a participating member is gone; let go when it was the coordinator."""
        gone = set(uuids)
        if self.coordinator in gone:
            self.orphan(failure.text)
        elif gone & self.peers:
            self.break_off(failure)

    def orphan(self, why: str) -> None:
        """Stop and let go: no coordinator leads this part any more."""
        self.coordinator = ""
        self._part.orphan(why)
        self._carry_out()

    def break_off(self, failure: Failure) -> None:
        """Stop, for something that happened outside of the processes that take part."""
        self._part.break_off(failure)
        self._carry_out()

    # -- what processes report ----------------------------------------------------------------------------------

    def report(self, child: Child, message: Any, fds: list[int]) -> None:
        """Take what a process reports about this attempt."""
        step(self, self._take, child, message, fds)

    def _take(self, child: Child, message: Any, fds: list[int]) -> None:
        at, part = self._endpoint(child), self._part
        if at is None:
            return
        match message:
            case Probed():
                part.probed(at, message)
            case Ready():
                part.ready(at, *self._seen_ready())
            case Failed():
                if self._context is not None:
                    self._context.detach(child)  # it may not have been able to map the arena
                part.failed(at, message.failure)
            case Ended():
                self._note_views(message.has_views)
                if part.awaits_ready:
                    part.ready(*self._seen_ready())
                part.ended(at, adopted=message.adopted, finished=message.finished, commits=message.commits)
                if message.finished and self._snapshots is not None:
                    self._snapshots.report_gone(self._planned)
            case Saved():
                self._report(PartSaved(self.id, message.snapshot_id, message.processors, message.error))
            case Resolved():
                self._report(PartResolved(self.id, message.snapshot_id, message.processors))
            case AtEnd():
                self._report(PartAtEnd(self.id, message.processors))
            case HandOver():
                self._hand_over(message, fds)
            case EndpointOpened():
                self.endpoints.opened(message.endpoint, child)
            case Committed():
                part.committed(at)
            case Finished():
                self._note_views(message.has_views)
                part.finished(at)
        self._carry_out()

    def _seen_ready(self) -> list[int]:
        """Return the processes that say in the arena that they are ready, or have started already."""
        context = self._context
        if context is None or not self._part.awaits_ready:
            return []
        return [endpoint for endpoint in self._children if context.state_of(endpoint) != PREPARING]

    def _look_after(self, seconds: float) -> None:
        self._look_timer = asyncio.get_running_loop().call_later(seconds, step, self, self._look, seconds)

    def _look(self, after: float) -> None:
        self._look_timer = None
        self._part.ready(*self._seen_ready())
        self._carry_out()
        if self._part.awaits_ready:
            self._look_after(min(2 * after, LONGEST_LOOK_S))

    def _hand_over(self, message: HandOver, fds: list[int]) -> None:
        """Give a tasklet that one worker hands over to another, which may not have taken part so far."""
        child = self._services.workers.workers[message.to]
        is_new = self._endpoint(child) is None
        if is_new:
            self._children[child.index] = child
            assert self._context is not None
            self._context.deploy(child, takes_part=False)
            for order in () if self._snapshots is None else self._snapshots.newest:
                child.send(order)
        adopt = Adopt(self.id, message.vertex, message.processor, message.state, message.size, message.tables)
        child.send(adopt, fds)
        child.channel.when_flushed(fds)
        self._part.adopts(child.index, is_new=is_new)

    def _note_views(self, has_views: bool) -> None:
        if has_views and self._context is not None:
            self._context.note_views()

    def child_lost(self, child: Child) -> None:
        """Take the death of a process."""
        step(self, self._lost, child)

    def _lost(self, child: Child) -> None:
        at = self._endpoint(child)
        if at is None:
            return
        context, failure = self._context, None
        if context is not None:
            context.detach(child)
        takes_snapshots = self.job.settings.has_guarantee  # then it may have to report what has ended there, too
        if self._part.needs(at) or (takes_snapshots and self._part.phase is Phase.RUNNING):
            failure = child.loss_of(context.vertices_at(at) if context is not None else [])
        self._part.lost(at, failure)
        self._carry_out()

    # -- carrying out -------------------------------------------------------------------------------------------

    def break_down(self, error: Exception) -> None:
        """Stop for an unexpected error, which may have come between any two steps."""
        part = self._part
        part.break_off(unexpected(error, f"in this member's part of job {self.name}"))
        while part.entered or part.commands or part.reports:  # one less with each error
            try:
                self._carry_out()
            except Exception as another:
                unexpected(another, f"while the part of job {self.name} was stopped for that")

    def _carry_out(self) -> None:
        part = self._part
        while part.entered or part.commands or part.reports:
            entered, part.entered = deque(part.entered), []
            commands, part.commands = deque(part.commands), []
            reports, part.reports = deque(part.reports), []
            try:
                while entered:
                    self._enter(entered.popleft())
                while commands:
                    self._tell(*commands.popleft())
                while reports:
                    self._report(reports.popleft())
            except Exception:  # what comes after the step that has raised is still to be done
                part.entered, part.commands = [*entered, *part.entered], [*commands, *part.commands]
                part.reports = [*reports, *part.reports]
                raise

    def _enter(self, phase: Phase) -> None:
        context = self._context
        match phase:
            case Phase.RUNNING:
                assert context is not None
                context.open_start_barrier()
            case Phase.STOPPING:
                self.endpoints.end()
                if context is not None:
                    context.say_cancelled()
                self._watching().stop(soon=self.job.settings.has_guarantee)
            case Phase.ENDED:
                self._end_timers()
            case Phase.FINISHING:
                if context is not None:
                    context.say_over()
                self._end_timers()
                self.endpoints.end()
                self.completed_at = time.time()
                self._counters.end(self._context, self.completed_at)
                if self._part.phase is Phase.FINISHING:
                    self._watching().close()
            case Phase.OVER:
                self._release()

    def _tell(self, endpoint: int, command: object) -> None:
        child, context = self._children[endpoint], self._context
        if isinstance(command, Start) and context is not None and context.state_of(endpoint) != READY:
            return  # it has found out by itself
        if isinstance(command, Finish) and child.lost:
            self._part.finished(endpoint)
        child.send(command)

    def _report(self, message: object) -> None:
        if self.coordinator:
            self._post.send(self.coordinator, message)

    def _end_timers(self) -> None:
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        if self._stopping is not None:
            self._stopping.end()

    def _release(self) -> None:
        self._end_timers()
        self._stopping = self._snapshots = None  # no cycle keeps the plan and the code of the job
        carriers = [child for child in self._children.values() if child.is_carrier]
        try:
            self._services.workers.stop_carriers(carriers)
            if self._context is not None:
                self._context.release(carriers)
        except Exception as error:
            unexpected(error, f"while the memory of job {self.name} was given back")
        self._children.clear()
        if self.coordinator:
            # Not bound to this participant, which has done its part.
            self._post.send(self.coordinator, PartFinished(self.id, NO_METRICS), self._counters.final)
        self._on_over(self)

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def status(self) -> JobStatus:
        """How far this part is."""
        return self._part.status

    @property
    def failure(self) -> Failure | None:
        """The first error here, if there was one."""
        return self._part.failure

    @property
    def cancelled(self) -> bool:
        """Whether it was told to stop."""
        return self._part.cancelled

    @property
    def plan(self) -> JobPlan | None:
        """How it is laid out, as long as it has its arena."""
        return None if self._context is None or self._context.arena is None else self._context.plan

    @property
    def arena(self) -> PooledArena | None:
        """Its arena, while it has one."""
        return None if self._context is None else self._context.arena

    def metrics(self) -> Metrics:
        """Return the metrics of this part, as they are now, or as they were at the end."""
        return self._counters.now(self._context, self.completed_at)
