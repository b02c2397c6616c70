"""What a coordinator does so that its runs outlive members: records on all members, and attempts that begin when they
may.

`docs/design/0033-jobs-outlive-members.md` has the rules. Knows nothing of how a run is made, nor of clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from shmjet.cluster.jobs.cluster import SKEW_S, Cluster, others, why_no_attempt
from shmjet.cluster.jobs.run import JobRun
from shmjet.cluster.jobs.run_copies import RunCopies, in_messages
from shmjet.cluster.jobs.run_replication import RunCollection, RunReplication
from shmjet.cluster.jobs.scaling import Scaling
from shmjet.cluster.membership.run_messages import (
    AskRuns,
    AskToLeave,
    EndedRun,
    KeepEnded,
    KeepRun,
    KeepRunState,
    MayLeave,
    RunEnd,
    RunMessage,
    RunOrigin,
    RunRecordCopy,
    RunsAre,
    RunState,
    RunStateKept,
)
from shmjet.cluster.membership.views import Peer, View
from shmjet.core import JobStateError, JobStatus
from shmjet.execution.failure import member_lost, without_exception

LEAVE_S = 10.0
"""How long a member that leaves in good order waits until no run has a part on it."""
_KEPT_SIZES = 64
_LEAVES = "another coordinator: this one leaves the cluster"
_MOST_EXCEPTION = 1 << 16
"""Bytes of a pickled exception that all members keep."""

logger = logging.getLogger("shmjet.member")


class _Kept(msgspec.Struct, eq=False):
    """A live run that this member coordinates."""

    run: JobRun
    scaling: Scaling
    has_snapshot: bool
    is_committing: bool = False
    last: RunState = msgspec.field(default_factory=lambda: RunState((0, 0)))


class SurvivingRuns:
    """See the module.

    Args:
        cluster: the cluster.
        scale_up_delay: seconds from the last join to the restarts.
        take_up: goes on with a run whose coordinator is lost, by its record and the address of that member.
        taken_over: called when this member has gone on with all runs of a lost coordinator, or does not coordinate.
        send_files: called with a member that has just got all records.
    """

    def __init__(
        self,
        cluster: Cluster,
        scale_up_delay: float,
        *,
        take_up: Callable[[RunRecordCopy, str], None],
        taken_over: Callable[[], None],
        send_files: Callable[[str], None],
    ) -> None:
        self.copies = RunCopies()
        self._cluster = cluster
        self._delay = scale_up_delay
        self._take_up = take_up
        self._taken_over = taken_over
        self._replication = RunReplication(self.copies, cluster.send, self._full, send_files)
        self._collection = RunCollection(self.copies, cluster.send, self._collected)
        self._kept: dict[int, _Kept] = {}
        self._counter = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: set[str] = set()
        """The members that leave in good order, on which no attempt begins."""
        self._has_left: asyncio.Future[None] | None = None
        """Set when no run has a part on this member any more, which leaves."""
        self._lost = ""
        """The address of the last coordinator before this member."""
        self._sizes: deque[tuple[float, int]] = deque(maxlen=_KEPT_SIZES)
        """Of the views before the one in force: when they ended, and how many members they had."""
        self._asked = 0, ""
        """The epoch and the identity of the last new coordinator that has asked for records."""
        self._epoch = 0
        """Of the last view: while this member has none, its states are newer than before, too."""
        self._has_to_collect = False
        """Whether it has lost touch with the others before they had said which runs there are."""

    @property
    def is_taking_over(self) -> bool:
        """Whether this member coordinates, and does not know yet what runs there are."""
        return self._collection.is_active

    def ended_runs(self) -> list[EndedRun]:
        """Return the runs that have ended, under whichever coordinator; none where this member does not coordinate."""
        return self.copies.ended() if self._cluster.view.coordinator.uuid == self._cluster.me else []

    # -- runs that are coordinated here -------------------------------------------------------------------------

    def add(self, run: JobRun, token: str, state: RunState | None = None, age: float = 0.0) -> None:
        """Take a run, before its first attempt here.

        Args:
            run: the run.
            token: of the request that started it.
            state: that another coordinator has left it in; None for a new run.
            age: seconds since the request was sent first. The quorum is of the largest cluster since then: the
                coordinator that was asked first may be cut off, and go on with the run in its part.
        """
        settings = run.job.settings
        quorum = 0 if state is None else state.quorum
        scaling = Scaling(settings, self._largest(age), self._delay, quorum)
        has_snapshot = settings.initial_snapshot is not None if state is None else state.has_snapshot
        kept = _Kept(run, scaling, has_snapshot)
        self._kept[run.id] = kept
        origin = RunOrigin(run.id, run.job, token, run.logs, run.started_at)
        kept.last = self._state(kept)
        self._replication.put(run.id, kept.last, origin)
        run.add_status_listener(lambda *_: self._changed(run.id))
        run.on_asked = partial(self.note, run.id)

    def _changed(self, run: int) -> None:
        self.note(run)
        if self._leaving:
            self._see_off()

    def note(self, run: int) -> None:
        """Take that a run has changed."""
        kept = self._kept.get(run)
        if kept is None:
            return
        state = self._state(kept)
        if msgspec.structs.replace(state, version=kept.last.version) != kept.last:
            kept.last = state
            self._replication.put(run, state)

    def ended(self, run: JobRun) -> None:
        """Take that a run has its outcome; this comes before clients hear of it."""
        kept = self._kept.pop(run.id, None)
        if kept is not None:
            failure = run.failure
            if failure is not None and failure.exception is not None and len(failure.exception) > _MOST_EXCEPTION:
                failure = without_exception(failure)
            at, members = run.completed_at or time.time(), run.member_addresses
            end = RunEnd(run.status.value, run.cancelled, failure, at, members)
            self._end(run.id, self._state(kept), end)

    def is_over(self, run: JobRun) -> None:
        """Take that nothing of a run is left anywhere."""
        self._kept.pop(run.id, None)
        if self._leaving:
            self._see_off()

    def end_unbegun(self, copy: RunRecordCopy, end: RunEnd) -> None:
        """Give a run that cannot go on its outcome."""
        self._end(copy.origin.run, msgspec.structs.replace(copy.state, version=self._version()), end)

    def _end(self, run: int, state: RunState, end: RunEnd) -> None:
        self._replication.put(run, msgspec.structs.replace(state, cause=None, end=end))

    async def before_commit(self, run: int) -> None:
        """Have all members know that the results of a run are about to be made visible."""
        kept = self._kept.get(run)
        if kept is not None:
            kept.is_committing = True
            kept.last = self._state(kept)
            await self._replication.put_confirmed(run, kept.last)

    def _state(self, kept: _Kept) -> RunState:
        run, suspension = kept.run, kept.run.suspension
        kept.has_snapshot = kept.has_snapshot or (run.job.settings.has_guarantee and run.last_snapshot is not None)
        cause = None if suspension is None else suspension.failure
        return RunState(
            self._version(),
            lineage="" if run.lineage is None else run.lineage.name,
            attempts=run.attempt_count,
            is_suspended=run.is_to_be_suspended,
            is_cancelled=run.cancelled,
            cause=None if cause is None else without_exception(cause),
            has_snapshot=kept.has_snapshot,
            quorum=kept.scaling.quorum,
            is_committing=kept.is_committing,
        )

    def _version(self) -> tuple[int, int]:
        return max(self._epoch, self._cluster.view.epoch), next(self._counter)

    def _full(self, origin: RunOrigin) -> RunOrigin:
        """Return an origin with the code of its job, which a coordinator has only once."""
        kept = self._kept.get(origin.run)
        if kept is None:
            return origin
        job = msgspec.structs.replace(origin.job, code=bytes(kept.run.code.view()), code_size=0)
        return msgspec.structs.replace(origin, job=job)

    def files_sent(self, run: int, members: list[str]) -> None:
        """Take that members have been sent the files attached to the job of a run: now they get its record."""
        self._replication.files_sent(run, members)

    def knows(self, run: int) -> bool:
        """Say whether there is a record of a run here, or it has ended."""
        copies = self.copies
        return run in self._kept or copies.state_of(run) is not None or copies.end_of(run) is not None

    async def recorded(self, run: int) -> None:
        """Wait until all members that have been sent the record of a run have it, or are lost."""
        kept = self._kept.get(run)
        if kept is not None:
            await self._replication.put_confirmed(run, kept.last)

    def _largest(self, age: float) -> int:
        """Return how many members the cluster had at most in the last seconds."""
        since = asyncio.get_running_loop().time() - age - SKEW_S if age else math.inf
        return max([len(self._cluster.view.members), *(size for until, size in self._sizes if until >= since)])

    # -- attempts -----------------------------------------------------------------------------------------------

    def waits_for(self, run: JobRun) -> str:
        """Say what the next attempt of a run waits for; empty when it may begin."""
        kept = self._kept.get(run.id)
        lacking = "" if kept is None else kept.scaling.lacks_quorum(self._cluster.view.uuids)
        leaves = _LEAVES if self._cluster.me in self._leaving else ""
        return leaves or why_no_attempt(self._cluster) or lacking

    def participants(self) -> View:
        """Return the view in force, without the members that leave."""
        view = self._cluster.view
        if self._leaving.isdisjoint(view.uuids) or self._cluster.me in self._leaving:
            return view
        staying = [place for place, peer in enumerate(view.members) if peer.uuid not in self._leaving]
        return View(
            view.epoch, tuple(view.members[place] for place in staying), tuple(view.since[place] for place in staying)
        )

    def begins(self, run: JobRun, members: Iterable[Peer]) -> None:
        """Take that an attempt of a run begins on these members."""
        kept = self._kept.get(run.id)
        if kept is not None:
            kept.scaling.begins([peer.uuid for peer in members])
            if self._leaving:
                self._see_off()

    # -- leaving in good order ----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Wait until no run has a part on this member, which leaves the cluster, or for `LEAVE_S`."""
        self._has_left = asyncio.get_running_loop().create_future()
        self._ask_to_leave()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_left, LEAVE_S)

    def _ask_to_leave(self) -> None:
        """Ask the coordinator of the view in force, which may be this member."""
        view, me = self._cluster.view, self._cluster.me
        if len(view.members) == 1 or self._cluster.trouble:
            self._may_leave()
        elif view.coordinator.uuid == me:
            self._let_go(me)
        else:
            self._cluster.send(view.coordinator.uuid, AskToLeave())

    def _may_leave(self) -> None:
        if self._has_left is not None and not self._has_left.done():
            self._has_left.set_result(None)

    def _let_go(self, member: str) -> None:
        """Have all runs go on without a member, or be suspended, if they do not follow the cluster."""
        self._leaving.add(member)
        for kept in list(self._kept.values()):
            if kept.run.has_attempt and kept.scaling.has_part_on(member):
                self._move(kept, member)
        self._see_off()

    def _move(self, kept: _Kept, member: str) -> None:
        run, settings = kept.run, kept.run.job.settings
        peer = self._cluster.view.find(member)
        address = "" if peer is None else peer.address
        with contextlib.suppress(JobStateError):  # it ends, or is being suspended
            if settings.auto_scaling:
                run.restart(graceful=True, reason=f"member {address} leaves the cluster")
                logger.warning("job %s goes on without member %s, which leaves", run.job.label, address)
            elif settings.has_guarantee:
                run.suspend(member_lost(f"member {address} has left the cluster", member=address))

    def _see_off(self) -> None:
        """Tell members that leave when no run has a part on them; runs that do not follow the cluster fail then."""
        for member in list(self._leaving):
            if any(
                kept.run.has_attempt
                and kept.scaling.has_part_on(member)
                and (kept.run.job.settings.auto_scaling or kept.run.job.settings.has_guarantee)
                for kept in self._kept.values()
            ):
                continue
            if member != self._cluster.me:
                self._cluster.send(member, MayLeave())
            else:
                self._may_leave()

    # -- the cluster --------------------------------------------------------------------------------------------

    def view_changed(self, old: View | None, view: View, *, has_joined: bool) -> None:
        """Take a new view.

        Args:
            old: the one before; None for none.
            view: in force now.
            has_joined: whether there are members in it that were not in the old one.
        """
        me, self._epoch = self._cluster.me, view.epoch
        if old is not None:
            self._sizes.append((asyncio.get_running_loop().time(), len(old.members)))
        self._leaving.intersection_update(view.uuids)
        if self._has_left is not None and not self._has_left.done():
            self._ask_to_leave()
        has_to_collect, self._has_to_collect = self._has_to_collect, False
        if view.coordinator.uuid != me:
            self._stop_collecting()
            return
        is_new = old is not None and old.coordinator.uuid != me
        if old is not None and is_new:
            self._lost = old.coordinator.address
        if self._collection.is_active or is_new or has_to_collect:
            self._collection.begin(view.epoch, [peer.uuid for peer in others(self._cluster)])
        if has_joined:
            now = asyncio.get_running_loop().time()
            for kept in self._kept.values():
                kept.scaling.members_joined(view.uuids, now)
                self.note(kept.run.id)
            self._set_timer()
        self._look()

    def connected(self, member: str) -> None:
        """Take that a member is connected."""
        self._collection.ask(member)
        self._look()

    def connection_lost(self, member: str) -> None:
        """Take that the connection to a member is lost."""
        self._replication.member_lost(member)

    def _look(self) -> None:
        """Bring members up to date, and begin attempts that have waited."""
        if self._cluster.view.coordinator.uuid != self._cluster.me or self._collection.is_active:
            return
        self._replication.follow([p.uuid for p in others(self._cluster) if self._cluster.is_connected(p.uuid)])
        for kept in list(self._kept.values()):
            kept.run.reconsider()

    def _collected(self) -> None:
        for copy in self.copies.live():
            if copy.origin.run not in self._kept:
                self._take_up(copy, self._lost)
        self._look()
        self._taken_over()

    def _stop_collecting(self) -> None:
        if self._collection.is_active:
            self._collection.stop()
            self._taken_over()

    def receive(self, sender: str, message: RunMessage) -> None:
        """Take what another member says about records."""
        match message:
            case KeepRun() | KeepRunState() if self._is_late(sender, message):
                pass
            case KeepRun():
                self.copies.keep(message.copy.origin.run, message.copy.state, message.copy.origin)
            case KeepRunState():
                self.copies.keep(message.run, message.state)
                if message.number:
                    self._cluster.send(sender, RunStateKept(message.number))
            case KeepEnded():
                self.copies.keep_ended(message.runs)
            case RunStateKept():
                self._replication.confirmed(sender, message)
            case AskRuns():
                self._asked = max(self._asked, (message.epoch, sender))
                live, ended = self.copies.newer_than(message.known)
                for piece in in_messages(ended):
                    self._cluster.send(sender, KeepEnded(list(piece)))
                self._cluster.send(sender, RunsAre(message.epoch, live))
            case RunsAre():
                self._collection.take(sender, message)
            case AskToLeave():
                self._let_go(sender)
            case MayLeave():
                self._may_leave()

    def _is_late(self, sender: str, message: KeepRun | KeepRunState) -> bool:
        """Say whether a record comes from a coordinator that is lost, and the next one was told what is here.

        What the next one does not know it may begin anew, when the client asks for it again.
        """
        epoch, coordinator = self._asked
        state = message.copy.state if isinstance(message, KeepRun) else message.state
        return sender != coordinator and state.version[0] < epoch

    def isolated(self) -> None:
        """Wait for nothing that others would have to say: this member has lost touch with them."""
        self._may_leave()
        if self._collection.is_active:
            self._has_to_collect = True
            self._stop_collecting()

    def forget(self) -> None:
        """Forget all records: this member is out of its cluster."""
        self._epoch, self._has_to_collect = 0, False
        self.copies.forget()
        self._sizes.clear()
        self._asked = 0, ""
        self._kept.clear()
        self._may_leave()
        self._stop_collecting()
        self._replication.follow([])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- joins --------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [kept.scaling.due_at for kept in self._kept.values() if kept.scaling.due_at is not None]
        if due:
            self._timer = asyncio.get_running_loop().call_at(min(due), self._look_at_joins)

    def _look_at_joins(self) -> None:
        self._timer = None
        view, now = self._cluster.view, asyncio.get_running_loop().time()
        for kept in list(self._kept.values()):
            run = kept.run
            if kept.scaling.take_due(view.uuids, now, is_running=run.status is JobStatus.RUNNING):
                logger.warning("job %s is restarted: members have joined", run.job.label)
                with contextlib.suppress(JobStateError):
                    run.restart(graceful=True, reason="members have joined the cluster")
        self._set_timer()
