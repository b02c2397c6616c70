"""One run of a job as its member sees it: from the plan to the last word of every process that took part.

A state machine driven by reports of children; it holds no clock and no socket of its own. The order is Jet's: every
process makes and initialises its processors, all say ready, all start; the first failure anywhere stops all; the
execution has ended when no tasklet is left anywhere.

Where several members take part, this is one member's part: a `Conductor` decides when all are ready and when all have
ended, see `shmjet.cluster.conducting`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from shmjet.cluster.arenas import PooledArena
from shmjet.cluster.conductor import Conductor
from shmjet.cluster.phase import Phase
from shmjet.cluster.protocol import Submission
from shmjet.cluster.site import MemberServices, Site, probe_of
from shmjet.cluster.stopping import Stopping
from shmjet.cluster.taking_part import Participants, loss_of
from shmjet.cluster.visitors import Visitors
from shmjet.cluster.workers import Child
from shmjet.core import ConfigError, JobStatus, PlanError
from shmjet.execution.collect import Reading
from shmjet.execution.failure import member_failed, without_exception
from shmjet.execution.large import Large
from shmjet.execution.messages import (
    Adopt,
    Cancel,
    Commit,
    Committed,
    DoorOpened,
    Ended,
    Failed,
    Failure,
    Finish,
    Finished,
    HandOver,
    JobPlan,
    LogWish,
    Probed,
    Ready,
    Seat,
    Start,
)
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.execution.readiness import PREPARING, READY

logger = logging.getLogger("shmjet.member")

ANNOUNCE_S = 0.001
"""How long after its start an execution's client is told how far it is, if it has not ended by then."""
_NONSENSE = (ValueError, LookupError, OverflowError)
"""What comes of reading numbers that mean nothing."""
LONGEST_LOOK_S = 0.1
"""How long, at most, the member does not look whether all processes of an execution are ready."""


@dataclass(eq=False)
class MasterExecution:
    """Runs one job once.

    Args:
        id: of the execution, unique in this member.
        job: what to run.
        code: of the job.
        services: of the member.
        first_worker: where processor 0 of every vertex is placed.
        on_status: called at every change of status.
        on_over: called when nothing of it is left anywhere.
        conductor: leads it where several members take part; None where this one is alone.
        logs: who wants its log records from elsewhere.
    """

    id: int
    job: Submission
    code: Large
    services: MemberServices
    first_worker: int
    on_status: Callable[[MasterExecution], None]
    on_over: Callable[[MasterExecution], None]
    conductor: Conductor | None = None
    logs: LogWish | None = None
    phase: Phase = Phase.PROBING
    status: JobStatus = JobStatus.STARTING
    failure: Failure | None = None
    cancelled: bool = False
    started_at: float = field(default_factory=time.time)
    completed_at: float | None = None
    visitors: Visitors = field(default_factory=Visitors)
    _parts: Participants = field(default_factory=Participants)
    _site: Site | None = None
    _overdue: bool = False
    _final: Reading | None = None
    _committers: dict[int, Child] = field(default_factory=dict)
    _announcer: asyncio.TimerHandle | None = None
    _opening: asyncio.Future[None] | None = None
    _link_open: bool = False
    _said_ready: bool = False

    def __post_init__(self) -> None:
        workers, name_of = self.services.workers, self.services.name_of
        self._stopping = Stopping(self.id, self.name, workers, self._pending, name_of)

    @property
    def name(self) -> str:
        """How the job is called in messages."""
        return repr(self.job.name) if self.job.name else self.job.job_id

    @property
    def commits(self) -> bool:
        """Whether a process has something to commit when all has ended well everywhere."""
        return bool(self._committers)

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left anywhere."""
        return self.phase is Phase.OVER

    def forget_exception(self) -> None:
        """Keep the text of its failure only."""
        if self.failure is not None:
            self.failure = without_exception(self.failure)

    def _pending(self) -> Iterator[Child]:
        """Give the processes that have not done yet what they were told: to stop, or at the end to close all."""
        return self._parts.unfinished() if self.phase is Phase.FINISHING else self._parts.unended()

    # -- starting -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Plan and deploy; a job with meta-suppliers, or of unknown manners, is looked at in a worker first."""
        self._announcer = asyncio.get_running_loop().call_later(ANNOUNCE_S, self._announce, ANNOUNCE_S)
        others = () if self.conductor is None else self.conductor.other_addresses()
        probe = probe_of(self.id, self.job, self.code, self.services, others, self.logs)
        if probe is None:
            self._planned(Probed(self.id, {}, []))
            return
        child = self.services.workers.workers[self.first_worker]
        self._parts.add(child)
        child.send(probe, self.code.fds)

    def _planned(self, probed: Probed) -> None:
        if self.conductor is not None:
            self.conductor.probed(self, probed)
        else:
            self.deploy(probed)

    def deploy(self, probed: Probed, seat: Seat | None = None) -> None:
        """Make the plan and have the processors made.

        Args:
            probed: what the meta-suppliers said.
            seat: this member's place among several.
        """
        try:
            site = self._site = Site(
                self.id, self.job, self.code, self.services, probed, self.first_worker, seat, self.logs
            )
        except (PlanError, ConfigError) as error:
            self._fail(member_failed(error))
            self._check_ended()
            return
        endpoints = site.plan.participants()
        try:
            site.open()
            for endpoint in sorted(endpoints):
                self._parts.add(site.child_at(endpoint))
            if site.plan.gate is not None:
                self._opening = asyncio.ensure_future(self._open_link(site))
        except OSError as error:  # no shared memory, or no descriptor for a carrier: nobody has been told anything
            for part in self._parts.values():
                part.is_out()
            self._fail(member_failed(error))
            self._check_ended()
            return
        self.phase = Phase.PREPARING
        for endpoint, part in self._parts.items():
            if endpoint not in endpoints:
                part.ready = part.ended = True  # it only answered the probe
                continue
            site.deploy(part.child)

    async def _open_link(self, site: Site) -> None:
        try:
            await site.open_link()
        except OSError as error:
            self.break_off(member_failed(error))
        else:
            self._link_open = True
            self._check_ready()

    def _pass_on(self, message: HandOver, fds: list[int]) -> None:
        """Give a tasklet that one worker hands over to another, which may not have taken part so far."""
        child = self.services.workers.workers[message.to]
        part = self._parts.of(child)
        if part is None:
            part = self._parts.add(child, ready=True)
            assert self._site is not None
            self._site.deploy(child, takes_part=False)
        part.ended = False
        part.adopted += 1
        adopt = Adopt(self.id, message.vertex, message.processor, message.state, message.size, message.tables)
        child.send(adopt, fds)
        child.channel.when_flushed(fds)
        if self._stopping.is_stopping:  # it stops already, and this process has not been told, or has ended its part
            child.send(Cancel(self.id))

    # -- reports ------------------------------------------------------------------------------------------------

    def report(self, child: Child, message: Any, fds: list[int]) -> None:
        """Take what a child reports about this execution."""
        part = self._parts.of(child)
        if part is None:
            return
        match message:
            case Probed():
                part.ended = True
                if message.commits:
                    self._committers[child.index] = child
                if self.failure is None and not self.cancelled:
                    self._planned(message)
                else:
                    self._check_ended()
            case Ready():
                part.ready = True
                self._check_ready()
            case Failed():
                if self.phase is Phase.PREPARING and self._site is not None:
                    self._site.detach(child)  # it may not have been able to map the arena
                if self.phase is Phase.PROBING:
                    part.ended = True
                self._committers.clear()
                self._fail(message.failure)
                self._check_ended()
            case Ended():
                if message.adopted == part.adopted:  # else a tasklet was on its way when it said so
                    part.ready = part.ended = True
                    part.finished = message.finished
                    if message.commits:
                        self._committers[child.index] = child
                    self._note_views(message.has_views)
                    self._check_ready()
                    self._check_ended()
            case HandOver():
                self._pass_on(message, fds)
            case DoorOpened():
                self.visitors.opened(message.door, child)
            case Committed():
                self._committers.pop(child.index, None)
                if self._committers or self.failure is not None:
                    return
                if self.conductor is not None:
                    self.conductor.committed(self)
                else:
                    self._check_ended()
            case Finished():
                part.finished = True
                self._note_views(message.has_views)
                self._check_over()

    def _note_views(self, has_views: bool) -> None:
        if has_views and self._site is not None:
            self._site.note_views()

    def child_lost(self, child: Child) -> bool:
        """Take the death of a process; returns whether it took part."""
        part = self._parts.of(child)
        if part is None:
            return False
        running = not part.ended or self._committers.pop(child.index, None) is child
        if self._site is not None:
            self._site.detach(child)
        part.is_out()
        if running and self.phase not in (Phase.FINISHING, Phase.OVER):
            self._fail(loss_of(child, self._site.vertices_at(child.index) if self._site is not None else []))
        self._check_ended()
        self._check_over()
        return True

    def break_off(self, failure: Failure) -> None:
        """Stop, for something that happened outside of the processes that take part."""
        if self.phase not in (Phase.AWAITING, Phase.FINISHING, Phase.OVER):
            self._fail(failure)
            self._check_ended()

    def cancel(self) -> None:
        """Ask for the end; `on_status` tells when it has come."""
        if self.phase in (Phase.COMMITTING, Phase.AWAITING, Phase.FINISHING, Phase.OVER):
            return
        self.cancelled = True
        self._stop_all()
        self._check_ended()

    # -- transitions --------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        """See whether all are ready, by their messages or in the arena, and tell those to start that have not."""
        if self.phase is not Phase.PREPARING or self.cancelled or self.failure is not None:
            return
        site = self._site
        assert site is not None
        states = {endpoint: site.state_of(endpoint) for endpoint in self._parts}
        if any(states[endpoint] == PREPARING and not part.ready for endpoint, part in self._parts.items()):
            return
        if self.conductor is not None:
            if self._link_open and not self._said_ready:
                self._said_ready = True
                self.conductor.ready(self)
            return
        self._run(states)

    def go(self) -> None:
        """Start: all members are ready."""
        site = self._site
        if self.phase is Phase.PREPARING and not self.cancelled and self.failure is None and site is not None:
            site.open_gate()
            self._run({endpoint: site.state_of(endpoint) for endpoint in self._parts})

    def _run(self, states: dict[int, int]) -> None:
        self.phase = Phase.RUNNING
        self.status = JobStatus.RUNNING
        if self._overdue:
            self.on_status(self)
        for endpoint, part in self._parts.items():
            if states[endpoint] == READY and not part.ended:
                part.child.send(Start(self.id))

    def _announce(self, after: float) -> None:
        """Tell how far it is, unless it has ended by now: a job of a millisecond need not wake its client twice."""
        self._check_ready()
        if not self._overdue:
            self._overdue = True
            self.on_status(self)
        if self.phase in (Phase.PROBING, Phase.PREPARING):
            after = min(2 * after, LONGEST_LOOK_S)
            self._announcer = asyncio.get_running_loop().call_later(after, self._announce, after)

    def _fail(self, failure: Failure) -> None:
        if self.failure is None and not self.cancelled:
            self.failure = failure
        self._stop_all()
        if self.conductor is not None:
            self.conductor.failed(self, failure)

    def _stop_all(self) -> None:
        if self._stopping.is_stopping:
            return
        self.visitors.end()
        if self._site is not None:
            self._site.say_cancelled()
        for child in self._parts.unended():
            child.send(Cancel(self.id))
        self._stopping.stop()

    def _check_ended(self) -> None:
        done = (Phase.AWAITING, Phase.FINISHING, Phase.OVER)
        if self.phase in done or not self._parts.have_ended:
            return
        if self.phase not in (Phase.RUNNING, Phase.COMMITTING) and self.failure is None and not self.cancelled:
            return
        if self.conductor is not None:
            self.phase = Phase.AWAITING
            self._stop_timers()
            self.conductor.ended(self)
            return
        if self._committers and self.failure is None and not self.cancelled:
            if self.phase is Phase.RUNNING:
                self.phase = Phase.COMMITTING
                self.status = JobStatus.COMPLETING
                if self._overdue:
                    self.on_status(self)
                self._tell_committers()
            return
        error = self.failure.text if self.failure is not None else "the job was cancelled" if self.cancelled else None
        self.finish(error)

    def _stop_timers(self) -> None:
        if self._announcer is not None:
            self._announcer.cancel()
        self._stopping.end()

    def commit(self) -> None:
        """Have all commit that have something to: all members have ended well."""
        if self._committers:
            self._tell_committers()
        elif self.conductor is not None and self.failure is None:
            self.conductor.committed(self)

    def _tell_committers(self) -> None:
        for child in self._committers.values():
            child.send(Commit(self.id))

    def finish(self, error: str | None) -> None:
        """Have all let go: no tasklet is left anywhere.

        Args:
            error: what suppliers are told, None when all is well.
        """
        if self.phase in (Phase.FINISHING, Phase.OVER):
            return
        self._stop_timers()
        self.phase = Phase.FINISHING
        self.visitors.end()
        self.completed_at = time.time()
        self._set_status(JobStatus.COMPLETED if error is None else JobStatus.FAILED)
        self._final = self._reading()
        for part in self._parts.values():
            if part.child.lost:
                part.finished = True
            elif not part.finished:
                part.child.send(Finish(self.id, error))
        self._check_over()
        if self.phase is Phase.FINISHING:
            self._stopping.close()

    def _check_over(self) -> None:
        if self.phase is not Phase.FINISHING or not self._parts.have_finished:
            return
        self.phase = Phase.OVER
        self._stopping.end()
        carriers = self._parts.carriers
        for child in carriers:
            if not child.lost:
                self.services.workers.stop_carrier(child)
        if self._site is not None:
            self._site.release(carriers)
        self._parts.clear()
        self.on_over(self)

    def _set_status(self, status: JobStatus) -> None:
        self.status = status
        self.on_status(self)

    # -- looking ------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> JobPlan | None:
        """How it is laid out, as long as it has its arena."""
        return None if self._site is None or self._site.arena is None else self._site.plan

    @property
    def arena(self) -> PooledArena | None:
        """Its arena, while it has one."""
        return None if self._site is None else self._site.arena

    def own_metrics(self) -> Metrics:
        """Return those of this member's part: all there are."""
        return self.metrics()

    def metrics(self) -> Metrics:
        """Return the metrics as they are now, or as they were at the end."""
        reading = self._final or self._reading()
        try:
            return NO_METRICS if reading is None else reading.metrics(self.started_at, self.completed_at)
        except _NONSENSE as error:
            self._cannot_be_read(error)
            return NO_METRICS

    def _reading(self) -> Reading | None:
        """Read the counters, which user code may have overwritten: they must not keep the execution from its end."""
        try:
            return None if self._site is None else self._site.reading()
        except _NONSENSE as error:
            self._cannot_be_read(error)
            return None

    def _cannot_be_read(self, error: Exception) -> None:
        logger.error("job %s has no metrics: its shared memory was overwritten, by its own code (%s)", self.name, error)
