"""The jobs of a member: the runs that it coordinates, and its parts in attempts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, get_args

from shmjet.cluster.jobs.cluster import Cluster, others
from shmjet.cluster.jobs.context import MemberServices
from shmjet.cluster.jobs.coordinator import AttemptPlan, JobCoordinator
from shmjet.cluster.jobs.ended_attempt import EndedAttempt
from shmjet.cluster.jobs.lineage import Lineage
from shmjet.cluster.jobs.lineages import Lineages
from shmjet.cluster.jobs.recorded_runs import RecordedRuns
from shmjet.cluster.jobs.registry import ParticipantRegistry
from shmjet.cluster.jobs.restart_policy import DAMAGED, next_after, next_after_losing_all, pause_before_next
from shmjet.cluster.jobs.run import JobRun
from shmjet.cluster.jobs.run_parts import Next, RunPolicy, RunRequest, Told
from shmjet.cluster.jobs.run_records import RunRecords
from shmjet.cluster.jobs.run_recovery import RunRecovery
from shmjet.cluster.jobs.run_watchers import RunWatchers
from shmjet.cluster.jobs.submissions import Submissions
from shmjet.cluster.jobs.surviving_runs import SurvivingRuns
from shmjet.cluster.jobs.table import JobTable
from shmjet.cluster.jobs.unexpected import unexpected
from shmjet.cluster.membership.peer_messages import (
    AskMetrics,
    AskOpenSources,
    CancelPart,
    CommitPart,
    FinishPart,
    PartLogs,
    PreparePart,
    ProbePart,
    ResolvePart,
    SavePart,
    StartPart,
)
from shmjet.cluster.membership.run_messages import KeepEnded, RunEnd, RunMessage, RunRecordCopy
from shmjet.cluster.membership.views import Peer, View
from shmjet.cluster.protocol import Submission
from shmjet.cluster.requests.named_jobs import NamedJobs
from shmjet.cluster.requests.post import FilePost, JobPost, Payload
from shmjet.core.ownership import PartitionOwners
from shmjet.execution.messages import Failure
from shmjet.ipc.background_tasks import BackgroundTasks

_ORDERS = (
    ProbePart,
    PreparePart,
    StartPart,
    CancelPart,
    CommitPart,
    FinishPart,
    SavePart,
    ResolvePart,
    AskOpenSources,
    AskMetrics,
)
_RECORDS = get_args(RunMessage)

logger = logging.getLogger("shmjet.member")


class AttachedFiles(FilePost, Protocol):
    """The post to other members, and the files attached to jobs (`shmjet.cluster.requests.attachments`)."""

    def has_all(self, job: Submission) -> bool:
        """Say whether all files attached to a job are here."""


class WrittenObservables(Protocol):
    """The observables of the cluster, as far as jobs are concerned (`shmjet.cluster.member.observables`)."""

    def run_begins(self, run: int, names: Iterable[str]) -> None: ...
    def run_ends(
        self, run: int, names: Iterable[str], *, job: str, failure: Failure | None = None, cancelled: bool = False
    ) -> None: ...


class JobService:
    """See the module.

    Args:
        services: what jobs use of the member.
        registry: of its participants.
        post: to other members.
        named: the jobs of the member's own configuration.
        cluster: the members.
        owners: gives the owners of partitions among the members of a view.
        next_number: gives numbers of attempts, unique in the cluster.
        allow_code: whether clients may bring code.
        restart_pause: the first pause between attempts that fail one after the other, in seconds.
        observables: are told of the runs that write to them.
        records: of runs, with which a member that is started again goes on; None where they end with the member.
        scale_up_delay: seconds from the last join of members to the restarts of jobs.
        taken_over: called when this member has gone on with the runs of a lost coordinator.
    """

    def __init__(
        self,
        services: MemberServices,
        registry: ParticipantRegistry,
        post: AttachedFiles,
        named: NamedJobs,
        *,
        cluster: Cluster,
        owners: Callable[[View], PartitionOwners],
        next_number: Callable[[], int],
        allow_code: bool,
        restart_pause: float,
        observables: WrittenObservables,
        records: RunRecords | None = None,
        scale_up_delay: float = 10.0,
        taken_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._services = services
        self._cluster = cluster
        self._owners = owners
        self._next_number = next_number
        self._post = JobPost(post, self._deliver)
        self._coordinators: dict[int, JobCoordinator] = {}
        self._recorded = RecordedRuns(records)
        self._followed: set[int] = set()
        """The runs with which this member goes on because their coordinator is lost."""
        self._lineages = Lineages(services.snapshots, services.snapshot_copies)
        self._observables = observables
        self._is_closing = False
        self._runs: dict[int, JobRun] = {}
        self._pause_before_next = partial(pause_before_next, unit=restart_pause)
        self._tasks = BackgroundTasks()
        self._surviving = SurvivingRuns(
            cluster,
            scale_up_delay,
            take_up=lambda copy, lost: self.recovery.take_up(copy, lost),
            taken_over=taken_over,
            send_files=self._send_files,
        )
        self._policy = RunPolicy(
            after_failure=self._after_failure,
            pause_before_next=self._pause_before_next,
            waits_for=self._surviving.waits_for,
        )
        self.participants = registry
        registry.open(services, self._post)
        self.watchers = RunWatchers()
        self.table = JobTable(self.watchers, self._surviving.copies.end_of, self._surviving.ended_runs)
        self.submissions = Submissions(
            self.table,
            self.watchers,
            self._make_new_run,
            named,
            lambda: cluster.member_for,
            post.has_all,
            allow_code=allow_code,
        )
        self.recovery = RunRecovery(
            self.submissions,
            self._make_run,
            self._lineages,
            self._recorded,
            may_run=lambda job: allow_code or job.named in named,
            has_files=post.has_all,
            runs=lambda: self._runs,
            has_record=lambda run: self._surviving.knows(run),
            give_outcome=self._give_outcome,
        )

    async def recorded(self) -> None:
        """Wait until all members have the records of all runs, as far as they are connected."""
        for number in list(self._runs):
            await self._surviving.recorded(number)

    def has_job(self, job_id: str) -> bool:
        """Say whether a job may be run again, or is being run."""
        return self.table.knows(job_id) or self.participants.has_job(job_id) or self._surviving.copies.has_job(job_id)

    @property
    def is_taking_over(self) -> bool:
        """Whether this member coordinates, and does not know yet what runs there are."""
        return self._surviving.is_taking_over

    # -- what is coordinated here -------------------------------------------------------------------------------

    def _make_new_run(self, request: RunRequest, on_status: Told, on_over: Told) -> JobRun:
        number, lineage = self._next_number(), self._lineages.for_new_run(request.job)
        return self._make_run(number, request, on_status, on_over, lineage=lineage)

    def _make_run(
        self,
        number: int,
        request: RunRequest,
        on_status: Told,
        on_over: Told,
        *,
        lineage: Lineage | None,
        copy: RunRecordCopy | None = None,
    ) -> JobRun:
        """Make a run.

        Args:
            number: of the run.
            request: what is run.
            on_status: called at every change of its status.
            on_over: called when nothing of it is left.
            lineage: of its snapshots.
            copy: its record, if another coordinator has begun it.
        """
        is_kept = self._recorded.keeps(lineage)
        has_outcome = False
        job, observables = request.job.name or request.job.job_id, request.job.settings.observables

        def told(run: JobRun) -> None:
            nonlocal has_outcome
            if run.status.is_terminal and not self._is_closing:
                has_outcome = True
                try:
                    note_outcome(run)
                except Exception as error:
                    unexpected(error, f"while the end of {run.name} was recorded")
            on_status(run)

        def note_outcome(run: JobRun) -> None:
            self._recorded.ended(run)
            self._surviving.ended(run)
            failure, cancelled = run.failure, run.cancelled
            self._observables.run_ends(run.id, observables, job=job, failure=failure, cancelled=cancelled)

        def over(run: JobRun) -> None:
            is_forgotten = self._runs.pop(run.id, None) is None
            self._followed.discard(run.id)
            try:
                self._surviving.is_over(run)
                self._recorded.forget(run)
                if run.lineage is not None and (has_outcome or not is_kept) and not is_forgotten:
                    run.lineage.remove()
            except Exception as error:
                unexpected(error, f"while what {run.name} has left was removed")
            on_over(run)

        run = JobRun(
            number,
            request,
            attempts=self._make_attempt,
            on_status=told,
            on_over=over,
            policy=self._policy,
            # The first attempt may have begun before a record said so. A number must not come again: members that
            # still have a part of the first attempt would take the next one for it, and the run would never start.
            attempts_before=0 if copy is None else max(1, copy.state.attempts),
            started_at=None if copy is None else copy.origin.started_at,
            lineage=lineage,
            make_lineage=partial(self._lineages.new, request.job),
        )
        if is_kept:
            self._recorded.add(run)
        self._runs[number] = run
        if copy is not None:
            self._followed.add(number)
        self._observables.run_begins(number, observables)
        if self._cluster.is_networked:
            self._record_on_others(run, request, copy)
        return run

    def _record_on_others(self, run: JobRun, request: RunRequest, copy: RunRecordCopy | None) -> None:
        """Have other members keep the record of a run, so that it outlives this one."""
        self._surviving.add(run, request.token, None if copy is None else copy.state, age=request.age)
        run.awaits_record = copy is None and bool(request.job.attachments)
        if run.awaits_record and self._surviving.waits_for(run):  # an attempt sends the files before it begins
            for peer in others(self._cluster):
                self._send_files(peer.uuid)
        if run.lineage is not None:
            run.lineage.on_valid = partial(self._surviving.note, run.id)

    def _give_outcome(self, copy: RunRecordCopy, end: RunEnd) -> None:
        """Give a run that another coordinator has begun its outcome; no attempt begins here."""
        run, job = copy.origin.run, copy.origin.job
        name, observables = job.name or job.job_id, job.settings.observables
        self._surviving.end_unbegun(copy, end)
        self._observables.run_begins(run, observables)
        self._observables.run_ends(run, observables, job=name, failure=end.failure, cancelled=end.cancelled)

    def _files_sent(self, run: JobRun, members: list[str]) -> None:
        """Take that members have been sent the files attached to the job of a run."""
        self._surviving.files_sent(run.id, members)

        async def confirm() -> None:
            await self._surviving.recorded(run.id)
            run.recorded()

        if run.awaits_record:
            self._tasks.start(confirm())

    def _send_files(self, member: str) -> None:
        """Send a member that has just got the records of runs the files that are attached to their jobs."""

        async def send(run: int, job: Submission) -> None:
            try:
                await self._post.send_files([member], job)
            except OSError as error:
                logger.error("a file attached to job %s is not here any more: %s", job.label, error)
            else:
                self._surviving.files_sent(run, [member])

        for copy in self._surviving.copies.live():
            if copy.origin.job.attachments:
                self._tasks.start(send(copy.origin.run, copy.origin.job))

    def _after_failure(self, run: JobRun, failure: Failure) -> Next:
        lineage, is_damaged = run.lineage, failure.type_name == DAMAGED
        job, text = run.job.label, failure.text.split("\n", 1)[0]
        if lineage is not None and is_damaged:
            lineage.distrust_newest()
        if lineage is not None and is_damaged and lineage.has_lost_all:  # after others the next attempt says so
            lineage.begin_anew()
            goes_on = self._recorded.is_restarted(run) or run.id in self._followed
            has_begun = run.last_snapshot is not None or goes_on
            follows = next_after_losing_all(run.job.settings, has_begun_before=has_begun)
            if follows is Next.SUSPEND:
                logger.error("job %s is suspended: %s", job, text)
            return follows
        follows = next_after(failure, run.job.settings, run.failed_attempts)
        if follows is Next.AGAIN:
            pause = self._pause_before_next(run.failed_attempts)
            logger.warning("job %s is restarted%s: %s", job, f" in {pause:.2g} s" if pause else "", text)
        elif follows is Next.END and self._recorded.is_restarted(run) and run.last_snapshot is None:
            logger.error("job %s failed before its first snapshot here, and is suspended: %s", job, text)
            self._recorded.note_unable(run.id)
            return Next.SUSPEND
        return follows

    def _make_attempt(self, run: JobRun, on_change: Told, on_over: Told) -> JobCoordinator:
        number = run.id if run.attempt_count == 1 else self._next_number()
        view = self._surviving.participants()
        members = view.members
        self._post.add_identity(members[0].uuid)

        def over(ended: EndedAttempt) -> None:
            del self._coordinators[number]
            on_over(ended)

        self._surviving.begins(run, members)
        plan = AttemptPlan(
            id=number,
            run=run.id,
            job=run.job,
            code=run.code,
            logs=run.logs,
            members=members,
            epoch=lambda: self._cluster.view.epoch,
            owners=self._owners(view),
            lineage=run.lineage,
            is_followed=lambda: run.is_going_on,
            before_commit=partial(self._surviving.before_commit, run.id) if self._cluster.is_networked else None,
            files_sent=partial(self._files_sent, run),
        )
        coordinator = JobCoordinator(plan, self._services, self._post, on_change=on_change, on_over=over)
        self._coordinators[number] = coordinator
        return coordinator

    def look_after_snapshots(self) -> None:
        """Have copies made, where the members that are gone had some, of snapshots that no attempt will copy anew."""
        if self._services.snapshot_copies is not None:
            self._services.snapshot_copies.look(self._idle_lineages)

    def _idle_lineages(self) -> list[str]:
        """Return the lineages of suspended runs."""
        runs = self._runs.values()
        return [run.lineage.name for run in runs if run.suspension is not None and run.lineage is not None]

    # -- messages -----------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Any, view: View | None, me: Peer) -> None:
        """Take what another member says about an attempt.

        Args:
            sender: its identity.
            message: the order or report.
            view: in force here.
            me: this member.
        """
        if isinstance(message, _RECORDS):
            self._surviving.receive(sender, message)
            if isinstance(message, KeepEnded):  # the live ones have come before
                self._remove_left_over()
        elif isinstance(message, PartLogs):
            peer = None if view is None else view.find(sender)
            self.logged(message.execution, "" if peer is None else peer.address, message.records, message.dropped)
        elif not isinstance(message, PreparePart) or (
            view is not None and self.participants.admits(sender, message, view, me)
        ):
            self._deliver(sender, message, None)

    def _deliver(self, sender: str, message: Any, payload: Payload) -> None:
        if isinstance(message, _ORDERS):
            self.participants.take(sender, message, payload)
        else:
            coordinator = self._coordinators.get(getattr(message, "execution", 0))
            if coordinator is not None:
                coordinator.report(sender, message, payload)

    def logged(self, attempt: int, member: str, records: list[bytes], dropped: int) -> None:
        """Pass log records of an attempt's processors on to who has the job run."""
        coordinator = self._coordinators.get(attempt)
        self.watchers.logged(attempt if coordinator is None else coordinator.run, member, records, dropped)

    # -- members that go ----------------------------------------------------------------------------------------

    def members_lost(self, uuids: Iterable[str], failure: Failure) -> None:
        """Take that members are gone, or that connections to them have broken."""
        gone = list(uuids)
        for coordinator in list(self._coordinators.values()):
            coordinator.members_lost(gone, failure)
        for run in self.participants.members_lost(gone, failure):
            if self._surviving.copies.state_of(run) is None:
                self.table.note_gone(run, failure)
        for uuid in gone:
            self._surviving.connection_lost(uuid)

    def view_changed(self, old: View | None, view: View, *, has_joined: bool) -> None:
        """Take a new view: go on with the runs of a lost coordinator, and with runs that have waited for it.

        Args:
            old: the one before; None for none.
            view: in force now.
            has_joined: whether there are members in it that were not in the old one.
        """
        self._surviving.view_changed(old, view, has_joined=has_joined)
        if view.coordinator.uuid == self._cluster.me and not self.is_taking_over:
            self._remove_left_over()

    def _remove_left_over(self) -> None:
        live = [copy.state.lineage for copy in self._surviving.copies.live()]
        if self._services.snapshot_keeper is not None:
            self._services.snapshot_keeper.remove_left_over(live)

    def connected(self, member: str) -> None:
        """Take that a member is connected, which may not be in the view yet."""
        self._surviving.connected(member)

    async def leave(self) -> None:
        """Have all runs go on without this member, which is to leave its cluster, as far as that is soon done."""
        await self._surviving.leave()

    def isolated(self, others: Iterable[str], failure: Failure) -> None:
        """Stop all attempts: others may count this member as lost, and go on with the runs.

        It keeps the runs and their records: they go on here if it hears the others again before they have removed it.

        Args:
            others: the other members of its view.
            failure: of the attempts.
        """
        self.members_lost(others, failure)
        for coordinator in list(self._coordinators.values()):
            coordinator.break_off(failure)
        self.participants.orphan_all(failure.text)
        self._surviving.isolated()

    def forget_all(self, failure: Failure) -> None:
        """Stop what others lead, and forget what this member coordinates: it does not any more, and others may."""
        runs = list(self.table.active)
        self._runs.clear()
        self._surviving.forget()
        self.participants.orphan_all(failure.text)
        self.table.forget_all(failure)
        for run in runs:  # no one knows of it any more, so no attempt may follow
            run.cancel()
        if self._services.snapshot_keeper is not None:
            self._services.snapshot_keeper.forget_all()

    def cancel_all(self) -> None:
        """Cancel what this member coordinates."""
        for run in self.table.active:
            run.cancel()

    def end_all(self, *, goes_on: bool) -> None:
        """Stop everything: this member is shut down. Runs of which there are records go on when it is started again.

        Args:
            goes_on: whether other members go on with its runs, so that clients hear nothing of their end here; nor do
                clients that look for members hear of runs with which this one goes on when it is started again.
        """
        self._is_closing = True
        if goes_on:
            self.watchers.tell_nobody()
        elif self._cluster.is_networked:
            for number, run in self._runs.items():
                if self._recorded.keeps(run.lineage):
                    self.watchers.forget(number)
        self.cancel_all()
        self.participants.orphan_all("its member is being shut down")
