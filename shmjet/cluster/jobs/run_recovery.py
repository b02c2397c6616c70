"""The runs with which a member goes on that it has not begun, or not since it was started: from their records.

A record lies on the disk of a member that is started again (`recorded_runs`), or in the memory of the members whose
coordinator is lost (`run_copies`). Each such run begins another attempt, is suspended, or gets its outcome here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Protocol

import msgspec

from shmjet.cluster.jobs.lineage import ELSEWHERE, LOST_ALL, Lineage
from shmjet.cluster.jobs.lineages import Lineages
from shmjet.cluster.jobs.recorded_runs import RecordedRuns
from shmjet.cluster.jobs.restart_policy import next_after
from shmjet.cluster.jobs.run import JobRun
from shmjet.cluster.jobs.run_parts import Next, Running, RunRequest, Told
from shmjet.cluster.jobs.run_records import RunRecord
from shmjet.cluster.jobs.submissions import Submissions
from shmjet.cluster.membership.run_messages import RunEnd, RunRecordCopy
from shmjet.cluster.protocol import Submission
from shmjet.core import AuthenticationError, JobStatus, ShmjetError
from shmjet.execution.failure import member_failed, member_lost
from shmjet.execution.messages import Failure
from shmjet.snapshots.manifest import DamagedSnapshotError

logger = logging.getLogger("shmjet.member")


class MakeContinuedRun(Protocol):
    """Makes a run that goes on (`shmjet.cluster.jobs.service`)."""

    def __call__(
        self,
        number: int,
        request: RunRequest,
        on_status: Told,
        on_over: Told,
        *,
        lineage: Lineage | None,
        copy: RunRecordCopy | None = None,
    ) -> Running:
        """Return it, not started."""


class RunRecovery:
    """See the module.

    Args:
        submissions: take the runs, and keep the jobs.
        make: makes a run.
        lineages: of this member.
        recorded: the records on disk.
        may_run: says whether clients may have a job run here.
        has_files: says whether the files attached to a job are here.
        runs: gives the live runs of this member by their numbers.
        has_record: says whether a run is live or has ended by what other members have said.
        give_outcome: called with the record of a run that does not go on, and with its outcome.
    """

    def __init__(
        self,
        submissions: Submissions,
        make: MakeContinuedRun,
        lineages: Lineages,
        recorded: RecordedRuns,
        *,
        may_run: Callable[[Submission], bool],
        has_files: Callable[[Submission], bool],
        runs: Callable[[], Mapping[int, JobRun]],
        has_record: Callable[[int], bool],
        give_outcome: Callable[[RunRecordCopy, RunEnd], None],
    ) -> None:
        self._submissions = submissions
        self._make = make
        self._lineages = lineages
        self._recorded = recorded
        self._may_run = may_run
        self._has_files = has_files
        self._runs = runs
        self._has_record = has_record
        self._give_outcome = give_outcome

    def restore(self, records: list[RunRecord] | None = None) -> None:
        """Go on with the runs of which there are records, and remove snapshots that belong to none of them.

        Args:
            records: those with which a cluster goes on whose members have all come; None: those here, of a member that
                may be the first of its cluster.
        """
        own = self._recorded.all()
        if own is None:
            return
        found = own if records is None else [record for record in records if not self._has_record(record.run)]
        for record in found:
            job = record.job
            try:
                lineage = self._lineages.named(record.lineage, job)
                lineage.check()
                self._recorded.note_restarted(record.run)
                run = self._submissions.restore(job, partial(self._make, record.run, lineage=lineage))
            except (OSError, ShmjetError) as error:
                logger.error("job %s cannot go on: %s", job.label, error)
                continue
            state = "is still suspended" if record.is_suspended else "goes on"
            absent = [] if record.is_suspended or records is not None else lineage.absent()
            state = "is suspended" if absent or (lineage.has_lost_all and not record.is_suspended) else state
            logger.warning("job %s %s: its member was started again", job.label, state)
            if record.is_suspended:
                run.start_suspended(record.cause)
            elif lineage.has_lost_all:
                lineage.begin_anew()
                run.start_suspended(member_failed(DamagedSnapshotError(LOST_ALL)))
            elif absent:
                text = f"{ELSEWHERE}: {', '.join(absent)}"
                run.start_suspended(member_failed(DamagedSnapshotError(text)))
            else:
                run.start()
        if records is not None:
            self.forget_ended({record.run for record in found})
        live = {run.lineage.name for run in self._runs().values() if run.lineage is not None}
        self._lineages.remove_all_but({record.lineage for record in found} | live)

    def forget_ended(self, but: Collection[int] = ()) -> None:
        """Remove what is on disk of runs that others have brought to their end, for a coordinator that knows all runs.

        Args:
            but: numbers of further runs of which the record stays.
        """
        self._recorded.keep_only({*self._runs(), *but})

    def take_up(self, copy: RunRecordCopy, lost: str) -> None:
        """Go on with a run whose coordinator is lost.

        Args:
            copy: its record.
            lost: the address of that member.
        """
        state, job = copy.state, copy.origin.job
        name, settings = job.label, job.settings
        failure = member_lost(f"member {lost}, which coordinated it, is gone", member=lost)
        follows = Next.SUSPEND if state.is_suspended else next_after(failure, settings, 1)
        if state.is_cancelled:
            self._give_up(copy, failure, cancelled=True)
            return
        if state.is_committing:
            text = f"{failure.text}; it was making results visible, so the outcome of the job is unknown"
            self._give_up(copy, msgspec.structs.replace(failure, text=text))
            return
        if not self._may_run(job):
            text = "the members of the cluster run only the jobs of their own configuration (allow_code is off)"
            self._give_up(copy, member_failed(AuthenticationError(text)))
            return
        if follows is Next.END:
            self._give_up(copy, failure)
            return
        if not self._has_files(job):
            text = f"{failure.text}, and a file attached to the job with it; it has not run, submit it again"
            self._give_up(copy, msgspec.structs.replace(failure, text=text))
            return
        try:
            lineage = self._lineages.named(state.lineage, job) if state.lineage else None
            make = partial(self._make, copy.origin.run, lineage=lineage, copy=copy)
            run = self._submissions.restore(job, make, copy.origin.token, copy.origin.logs)
        except (OSError, ShmjetError) as error:
            self._give_up(copy, member_failed(error))
            return
        if state.is_suspended:
            run.start_suspended(state.cause)
        elif lineage is not None and state.has_snapshot and lineage.newest() < 0:
            logger.error("job %s is suspended: no snapshot of it is on this member", name)
            lineage.begin_anew()
            run.start_suspended(member_failed(DamagedSnapshotError(LOST_ALL)))
        elif follows is Next.SUSPEND:
            logger.warning("job %s is suspended: %s", name, failure.text)
            run.start_suspended(failure)
        else:
            logger.warning("job %s is restarted: %s", name, failure.text)
            run.go_on(failure.text)

    def _give_up(self, copy: RunRecordCopy, failure: Failure, *, cancelled: bool = False) -> None:
        """Give a run whose coordinator is lost its outcome."""
        what = "was cancelled" if cancelled else "does not go on"
        logger.warning("job %s %s: %s", copy.origin.job.label, what, failure.text)
        end = RunEnd(JobStatus.FAILED.value, cancelled, None if cancelled else failure, time.time())
        self._give_outcome(copy, end)
