"""The jobs of one instance: how they are made and executed, and what the member says of their runs."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle

from shmjet.cluster.client.callback_runner import CallbackRunner
from shmjet.cluster.client.connection import CLOSED, Connection
from shmjet.cluster.client.execution import Execution
from shmjet.cluster.client.execution_control import ExecutionControl
from shmjet.cluster.client.job import Job
from shmjet.cluster.client.job_description import JobDescription, closed, opened
from shmjet.cluster.client.job_record import JobCode, JobRecord
from shmjet.cluster.client.job_starter import JobStarter
from shmjet.cluster.client.known_run import KnownRun
from shmjet.cluster.client.known_runs import KnownRuns
from shmjet.cluster.client.status_poller import ExecutionStatusPoller
from shmjet.cluster.client.submission import PLAIN, attachments_of, graph_of, listeners_of, submission_of
from shmjet.cluster.client.unsupported_settings import check_job
from shmjet.cluster.protocol import CancelExecution, Executing, ExecutionChanged, ListJobs, watches
from shmjet.core import DAG, DagError, JetConfig, JobConfig, JobStatus, MemberLostError, ShmjetError
from shmjet.execution.failure import to_exception
from shmjet.execution.foreign_errors import name_of, text_of

if TYPE_CHECKING:
    from shmjet.cluster.client.backend import Backend
    from shmjet.cluster.client.client_ties import ClientTies


class Planned(Protocol):
    """What can be made a DAG: a pipeline."""

    def to_dag(self, config: JobConfig | None = None) -> DAG:
        """Return the DAG, planned for a job's settings."""


class Jobs:
    """See the module. May be used from any thread.

    Args:
        config: of the instance.
        backend: the member, or the way to it.
        connection: returns the connection to the member.
        callbacks: calls what programs have given to executions and jobs.
        ties: gives what sources and sinks use of the instance in a run.
        drain_logs: returns when all has been shown that processors have logged so far.
    """

    def __init__(
        self,
        config: JetConfig,
        backend: Backend,
        connection: Callable[[], Connection],
        callbacks: CallbackRunner,
        ties: Callable[[KnownRun], ClientTies],
        drain_logs: Callable[[], None],
    ) -> None:
        self.key = opened(self)
        """By which jobs find their instance again after they were pickled."""
        self._config = config
        self._backend = backend
        self._connection = connection
        self._callbacks = callbacks
        self._ties = ties
        self._drain_logs = drain_logs
        self._known = KnownRuns()
        self._records: weakref.WeakValueDictionary[str, JobRecord] = weakref.WeakValueDictionary()
        self._closed = False
        self._lost = False
        self._disruptions = 0
        """How often executions may have been lost, or news of them."""
        self.status_poller = ExecutionStatusPoller(lambda make: connection().post(make), self._known.pending)
        self.control = ExecutionControl(lambda make, timeout=None: connection().ask(make, timeout))
        self._starter = JobStarter(lambda *arguments: connection().ask(*arguments), backend)

    # -- making and finding -------------------------------------------------------------------------------------

    def new_job(self, dag: DAG | Planned, config: JobConfig | None = None, *, joins: bool = False) -> Job:
        """Make a job; see `JetInstance.new_job`.

        Args:
            dag: what to run.
            config: how.
            joins: see `JobRecord`.
        """
        if config is None:
            config = dag.config if isinstance(dag, JobDescription) else PLAIN
        check_job(config)
        config = copy.copy(config)
        if not isinstance(dag, DAG):
            if isinstance(dag, type) or not hasattr(dag, "to_dag"):
                raise DagError(f"new_job() takes a Pipeline or a DAG, got {dag!r} ({type(dag).__name__})")
            dag = dag.to_dag(config)
        if not dag.vertices:
            raise DagError("new_job(): the DAG has no vertices; make some with dag.new_vertex()")
        job_id = os.urandom(8).hex()
        submission = submission_of(dag, config, job_id, attachments_of(config))
        is_networked = not self._backend.has_own_member or self._config.bind is not None
        if self._backend.has_own_member and self._config.bind is not None:
            from shmjet.net.compression import check_installed  # only members with a network need it

            check_installed(
                submission.shape.edges, [vertex.name for vertex in submission.shape.vertices], "this member"
            )
        self._starter.upload(job_id, config)
        code = JobCode(
            graph_of(dag, submission.shape),
            listeners_of(dag),
            is_endless=any(vertex.is_endless for vertex in submission.shape.vertices),
            is_kept=is_networked or bool(submission.attachments),
        )
        return self._known_as(JobRecord(job_id, config, self._callbacks.call, submission, code, joins=joins))

    def new_job_if_absent(self, dag: DAG | Planned, config: JobConfig | None = None) -> Job:
        """Return a job that joins the one of its name that runs or is suspended; see `JetInstance`."""
        name = None if config is None else config.name
        found = None if name is None else _best(self._listed(lambda record: record.config.name == name))
        if found is None or found.run is None or found.run.status.is_terminal:
            return self.new_job(dag, config, joins=True)
        record = JobRecord(found.id, copy.copy(found.config), self._callbacks.call, joins=True)
        record.attach(found.run)
        return Job(record, self)

    def named_job(self, name: str) -> Job:
        """Return a job of the cluster's own configuration."""
        return self._known_as(JobRecord(os.urandom(8).hex(), JobConfig(name=name), self._callbacks.call, named=name))

    def all(self) -> list[Job]:
        """Return all jobs that have been executed, the oldest first. Raises MemberLostError."""
        return [self._public(record) for record in self._listed(lambda _: True)]

    def find(self, name: str | None, job_id: str | None) -> Job | None:
        """Return the job of a name or an id, or None; see `JetInstance.job`."""

        def is_wanted(record: JobRecord) -> bool:
            return (job_id is None or record.id == job_id) and (name is None or record.config.name == name)

        best = _best(self._listed(is_wanted))
        return None if best is None else self._public(best)

    def _known_as(self, record: JobRecord) -> Job:
        self._records[record.id] = record
        return self._public(record)

    def _public(self, record: JobRecord) -> Job:
        """Return what programs have of a job: the same object, as long as they hold it."""
        job = record.seen()
        if not isinstance(job, Job):
            job = Job(record, self)
            record.seen = weakref.ref(job)
        return job

    def _listed(self, is_wanted: Callable[[JobRecord], bool]) -> list[JobRecord]:
        """Return the jobs of the cluster that are wanted, with their latest runs."""
        rows = self._connection().ask(ListJobs).jobs
        unknown: list[int] = []
        records = [self._record_of(row, unknown) for row in rows]
        for watch in watches(unknown):  # not known here: from now on the member reports their changes
            self._connection().ask(watch)
        return [record for record in records if is_wanted(record)]

    def _record_of(self, row: Any, unknown: list[int]) -> JobRecord:
        """Return a job with its latest run, whose number is added to `unknown` where nothing is known of it."""
        record = self._records.get(row.job_id)
        if record is None:
            record = JobRecord(row.job_id, cloudpickle.loads(row.config), self._callbacks.call)
            self._records[row.job_id] = record
        if row.execution_id is not None and not record.executing.locked():
            run, is_new = self._known.find(row.execution_id, record, self._new_run)
            if is_new:
                run.started_as(row.execution_id)
                unknown.append(row.execution_id)
            record.attach(run)
        return record

    # -- executing ----------------------------------------------------------------------------------------------

    def _new_run(self) -> KnownRun:
        return KnownRun(self.control, self._callbacks.call)

    def execute(self, record: JobRecord, *, patient: bool, timeout: float | None = None) -> Execution:
        """Run a job once more.

        Args:
            record: of the job.
            patient: the caller will wait for the end; so this may take a millisecond, and spares small jobs a message.
            timeout: seconds that the member may take to answer; what it starts after that is cancelled.

        Raises:
            ShmjetError: the instance has been shut down, or what the member refuses.
        """
        with record.executing:
            return record.attach(self._execute(record, patient, timeout))

    def _execute(self, record: JobRecord, patient: bool, timeout: float | None) -> KnownRun:
        if self._closed:
            raise ShmjetError(CLOSED)
        run = self._new_run()
        disruptions = self._disruptions
        try:
            self._begin(record, run)
            submission = record.take_submission()
            try:
                reply = self._starter.start(record, submission, patient, timeout, self._started_late)
            except ShmjetError:
                record.give_back(submission)  # no member has kept it, or none is there
                raise
        except BaseException as error:
            text = f"{name_of(error)}: {text_of(error)}"
            run.changed(JobStatus.FAILED, False, lambda: ShmjetError(f"the job could not be started: {text}"))
            raise
        is_joined = False
        if reply.job_id:
            record.joined(reply.job_id)
            joined, is_joined = self._known.find(reply.execution_id, record, lambda: run)
            if joined is not run:  # this client knows it already
                run.changed(JobStatus.FAILED, True, None)
                return joined
        run.started_as(reply.execution_id)
        changes, was_known = self._known.add(reply.execution_id, run, record)
        for change in changes:
            self._apply(run, record, change)
        if self._lost:
            self.fail_pending(None)
        elif is_joined or was_known or self._disruptions != disruptions:  # news may have come before this
            self.status_poller.some([reply.execution_id])
        return run

    def _begin(self, record: JobRecord, run: KnownRun) -> None:
        """Have sources and sinks that work together with the client be ready for a run."""
        if record.code is None:
            return
        run.is_endless = record.code.is_endless
        if record.code.listeners:
            ties = self._ties(run)
            for tell in record.code.listeners:
                tell(run.execution, ties)

    def _started_late(self, reply: Any) -> None:
        """Cancel a run that started after the caller had stopped waiting."""
        if isinstance(reply, Executing):
            self._known.drop(reply.execution_id)
            self._connection().post(lambda number: CancelExecution(number, reply.execution_id))

    # -- news ---------------------------------------------------------------------------------------------------

    def take(self, news: ExecutionChanged) -> None:
        """Take what the member says of a run."""
        known = self._known.take(news)
        if known is not None:
            self._apply(*known, news)

    def disrupted(self) -> None:
        """Take that news may have been lost."""
        self._disruptions += 1

    def member_lost(self) -> None:
        """Take that there is no member any more: all that has not ended fails."""
        self._lost = True
        self.fail_pending(None)

    def close(self) -> None:
        """Take that the instance is being shut down; what has not ended goes with the connection."""
        self._closed = True
        closed(self.key)

    def fail_pending(self, why: str | None) -> None:
        """End what has not ended: by an error, or as cancelled when the instance is being shut down."""
        for run, record in self._known.forget_all():
            if self._closed and self._backend.has_own_member:
                run.changed(JobStatus.FAILED, True, None)
                continue
            text = f"{self._backend.loss} (job {record.text})" if why is None else f"job {record.text} failed: {why}"
            if self._closed:
                state = "suspended" if run.cause is not None else "still running"
                text = f"this client is closed; job {record.text} is {state}"
            run.changed(JobStatus.FAILED, False, partial(MemberLostError, text))

    def _apply(self, run: KnownRun, record: JobRecord, change: ExecutionChanged) -> None:
        make_error = None
        if change.failure is not None and not change.cancelled:
            make_error = partial(to_exception, change.failure, member=self._backend.address, job=record.text)
        status = JobStatus(change.status)
        if status.is_terminal:
            self._drain_logs()  # what its processors have logged has been sent before they ended
            self._known.forget(change.execution_id)
        run.changed(status, change.cancelled, make_error, change.cause)


def _best(records: list[JobRecord]) -> JobRecord | None:
    """Return the last job that has not ended, else the last; None when there is none."""
    going_on = [record for record in records if record.run is None or not record.run.status.is_terminal]
    best = going_on or records
    return best[-1] if best else None
