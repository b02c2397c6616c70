"""`JetInstance`: a cluster as one process sees and uses it, by the member that it started or over the network."""

from __future__ import annotations

import atexit
import copy
import os
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle

from shmjet.cluster.client.callback_runner import CallbackRunner
from shmjet.cluster.client.connection import CLOSED, Connection
from shmjet.cluster.client.execution import Execution
from shmjet.cluster.client.execution_control import ExecutionControl
from shmjet.cluster.client.grid_access import GridAccess
from shmjet.cluster.client.job import Job
from shmjet.cluster.client.job_description import JobDescription, closed, opened
from shmjet.cluster.client.job_starter import JobStarter
from shmjet.cluster.client.known_executions import KnownExecutions
from shmjet.cluster.client.log_levels import levels
from shmjet.cluster.client.logs import LogSink
from shmjet.cluster.client.members import Cluster
from shmjet.cluster.client.observable import Bell, Observable, Observers
from shmjet.cluster.client.snapshot import Snapshot
from shmjet.cluster.client.status_poller import ExecutionStatusPoller
from shmjet.cluster.client.submission import PLAIN, attachments_of, graph_of, listeners_of, submission_of
from shmjet.cluster.client.unsupported_settings import check_job
from shmjet.cluster.observable_messages import Observed
from shmjet.cluster.protocol import (
    CancelExecution,
    CoordinatorLost,
    Executing,
    ExecutionChanged,
    ListJobs,
    Logged,
    MembersAre,
    News,
    WatchAgain,
    watches,
)
from shmjet.cluster.settings import SOCKET_NAME
from shmjet.core import (
    DAG,
    DagError,
    JetConfig,
    JobConfig,
    JobStatus,
    MemberLostError,
    ShmjetError,
)
from shmjet.core.checks import check_observable_name
from shmjet.execution.failure import to_exception
from shmjet.execution.foreign_errors import name_of, text_of

if TYPE_CHECKING:
    from shmjet.cluster.client.backend import Backend
    from shmjet.grid import IList, IMap


class Planned(Protocol):
    """What can be made a DAG: a pipeline."""

    def to_dag(self, config: JobConfig | None = None) -> DAG:
        """Return the DAG, planned for a job's settings."""


class JetInstance:
    """A running cluster and the way to use it; made by `new_instance`, with a member of its own, or by `new_client`.

    All methods may be called from any thread. Leaving the `with` block, `shutdown` and the end of the process that
    made it end the member that it started: alone, jobs that still run are cancelled, maps and lists are gone; in a
    cluster the others go on. A client only goes away.

    Example:
        >>> with shmjet.new_instance() as jet:               # doctest: +SKIP
        ...     jet.new_job(dag).run()
        ...     print(dict(jet.get_map("counts")))
    """

    def __init__(self, config: JetConfig, home: Backend) -> None:
        self._config = config
        self.key = opened(self)
        """By which its jobs find it again after they were pickled; for them."""
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._known = KnownExecutions()
        self._jobs: weakref.WeakValueDictionary[str, Job] = weakref.WeakValueDictionary()
        self._closed = False
        self._lost = False
        self._disruptions = 0
        """How often executions may have been lost, or news of them."""
        self._backend = home
        self._callbacks = CallbackRunner()
        self._maps = GridAccess(home.grid_folder, lambda make: self._connection.ask(make), home.check, home.dial)
        self._observers = Observers(
            lambda make: self._connection.ask(make), lambda make: self._connection.post(make), lambda: home.address
        )
        self._status_poller = ExecutionStatusPoller(lambda make: self._connection.post(make), self._known.pending)
        self._connection = Connection(
            home.endpoint, self._news, self._again, self._member_lost, self._status_poller.all
        )
        self.control = ExecutionControl(lambda make, timeout=None: self._connection.ask(make, timeout))
        """What executions and jobs ask of the member; for them."""
        self._starter = JobStarter(self._connection.ask, home)
        self._logs = home.logs()
        self._sink = LogSink(levels()[0]) if self._logs is None else self._logs.sink
        _open.add(self)
        atexit.register(self._at_exit)

    @property
    def config(self) -> JetConfig:
        """The settings that the instance was started with."""
        return self._config

    @property
    def folder(self) -> Path:
        """Where its member's socket and maps are; for an `Observer`.

        Raises:
            ShmjetError: it has no member of its own, but is a client of others.
        """
        if self._backend.folder is None:
            raise ShmjetError("a client has no member of its own, so there is no folder to look into")
        return self._backend.folder

    @property
    def cluster(self) -> Cluster:
        """The cluster: one member, unless it joined others."""
        return Cluster(self._connection, self._backend.has_own_member, self._backend.learn)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def new_job(self, dag: DAG | Planned, config: JobConfig | None = None) -> Job:
        """Make a job; nothing runs before `execute` or `run`.

        Args:
            dag: what to run, a DAG or a pipeline; later changes of it do not matter. Or a job that was unpickled.
            config: how to run it; later changes of it do not matter either. By default that of an unpickled job.

        Raises:
            DagError: the DAG is not valid, or empty.
            PlanError: the pipeline cannot be planned.
            ConfigError: the config is none, or asks for what this version does not have, or an edge for a compression
                that is not installed.
            TypeError: something in it cannot be pickled; the text names the vertex.
        """
        return self._new_job(dag, config)

    def new_job_if_absent(self, dag: DAG | Planned, config: JobConfig | None = None) -> Job:
        """Return the job of the config's name that runs or is suspended, or make it as `new_job` does.

        `execute` and `run` of what this returns join that job, too, if another client has started it in the meantime:
        several clients may do the same, and one of them starts the job.

        Args:
            dag: what to run if there is no such job; it is not compared with what runs.
            config: how, with the name.

        Raises:
            MemberLostError: the member is gone.
            DagError, PlanError, ConfigError, TypeError: as `new_job`.

        Example:
            >>> jet.new_job_if_absent(pipeline, JobConfig(name="clicks")).execute()          # doctest: +SKIP
        """
        found = None if config is None or config.name is None else self.job(name=config.name)
        if found is None or found.execution is None or found.status.is_terminal:
            return self._new_job(dag, config, joins=True)
        job = Job(self, found.id, found.config, joins=True)
        job.attach(found.execution)
        return job

    def _new_job(self, dag: DAG | Planned, config: JobConfig | None, *, joins: bool = False) -> Job:
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
        if self._backend.has_own_member and self._config.bind is not None:
            from shmjet.net.compression import check_installed  # only members with a network need it

            check_installed(
                submission.shape.edges, [vertex.name for vertex in submission.shape.vertices], "this member"
            )
        self._starter.upload(job_id, config)
        listeners = listeners_of(dag)
        if any(vertex.is_endless for vertex in submission.shape.vertices):
            listeners = (*listeners, _endless)
        job = Job(self, job_id, config, submission, listeners, graph_of(dag, submission.shape), joins=joins)
        is_networked = not self._backend.has_own_member or self._config.bind is not None
        job.keeps_submission = is_networked or bool(submission.attachments)
        self._jobs[job_id] = job
        return job

    def named_job(self, name: str) -> Job:
        """Return a job of the cluster's own configuration (`JetConfig.jobs`); it is made there when it is executed.

        Args:
            name: that the members' configuration gives it; it is the job's name, too.

        Raises:
            ConfigError: the name is not a string.

        Example:
            >>> jet.named_job("nightly").run()               # doctest: +SKIP
        """
        job = Job(self, os.urandom(8).hex(), JobConfig(name=name), named=name)
        self._jobs[job.id] = job
        return job

    def jobs(self) -> list[Job]:
        """Return all jobs that have been executed, the oldest first.

        Raises:
            MemberLostError: the member is gone.
        """
        rows = self._connection.ask(ListJobs).jobs
        unknown: list[int] = []
        jobs = [self._job_of(row, unknown) for row in rows]
        for watch in watches(unknown):  # not known here: from now on the member reports their changes
            self._connection.ask(watch)
        return jobs

    def job(self, name: str | None = None, id: str | None = None) -> Job | None:  # noqa: A002
        """Return a job, or None when there is none.

        Args:
            name: its name; a running job is preferred, then the latest.
            id: its id, 16 hexadecimal digits.

        Raises:
            TypeError: neither is given.
            MemberLostError: the member is gone.
        """
        if name is None and id is None:
            raise TypeError("job() takes the name of a job, or its id; all jobs: jobs()")
        found = [job for job in self.jobs() if (id is None or job.id == id) and (name is None or job.name == name)]
        best = [job for job in found if not job.status.is_terminal] or found
        return best[-1] if best else None

    def _job_of(self, row: Any, unknown: list[int]) -> Job:
        """Return a job with its latest execution, whose number is added to `unknown` where nothing is known of it."""
        job = self._jobs.get(row.job_id)
        if job is None:
            job = Job(self, row.job_id, cloudpickle.loads(row.config))
            self._jobs[row.job_id] = job
        if row.execution_id is not None and not job.is_starting:
            execution, is_new = self._known.find(row.execution_id, job, partial(Execution, self))
            if is_new:
                execution.started_as(row.execution_id)
                unknown.append(row.execution_id)
            job.attach(execution)
        return job

    def execute(self, job: Job, *, patient: bool, timeout: float | None = None) -> Execution:
        """Run a job once more; what `Job.execute` calls.

        Args:
            job: made by this instance.
            patient: the caller will wait for the end; so this may take a millisecond, and spares small jobs a message.
            timeout: seconds that the member may take to answer; what it starts after that is cancelled.
        """
        if self._closed:
            raise ShmjetError(CLOSED)
        execution = Execution(self)
        disruptions = self._disruptions
        try:
            for tell in job.listeners:
                tell(execution)
            submission = job.take_submission()
            try:
                reply = self._starter.start(job, submission, patient, timeout, self._started_late)
            except ShmjetError:
                job.give_back(submission)  # no member has kept it, or none is there
                raise
        except BaseException as error:
            if job.listeners:
                text = f"{name_of(error)}: {text_of(error)}"
                execution.changed(JobStatus.FAILED, False, lambda: ShmjetError(f"the job could not be started: {text}"))
            raise
        is_joined = False
        if reply.job_id:
            job.joined(reply.job_id)
            joined, is_joined = self._known.find(reply.execution_id, job, lambda: execution)
            if joined is not execution:  # this client knows it already
                execution.changed(JobStatus.FAILED, True, None)
                return joined
        execution.started_as(reply.execution_id)
        changes, was_known = self._known.add(reply.execution_id, execution, job)
        for change in changes:
            self._apply(execution, job, change)
        if self._lost:
            self._fail_pending(None)
        elif is_joined or was_known or self._disruptions != disruptions:  # news may have come before this
            self._status_poller.some([reply.execution_id])
        return execution

    def _started_late(self, reply: Any) -> None:
        """Cancel an execution that started after the caller had stopped waiting."""
        if isinstance(reply, Executing):
            self._known.drop(reply.execution_id)
            self._connection.post(lambda number: CancelExecution(number, reply.execution_id))

    @property
    def member_socket(self) -> str:
        """Path of the member's socket. Raises ShmjetError where there is no member of this process."""
        return str(self.folder / SOCKET_NAME)

    def call_back(self, callbacks: Callable[[], None]) -> None:
        """Call the callbacks of an execution that has ended."""
        self._callbacks.call(callbacks)

    def _news(self, news: News) -> None:
        if isinstance(news, Logged):
            self._sink.take(news.records, news.member, news.dropped)
            return
        if isinstance(news, CoordinatorLost):
            self._disruptions += 1
            self._maps.forget()
            self._fail_pending(news.text)
            self._observers.subscriptions.again()
            return
        if isinstance(news, Observed):
            self._observers.take(news)
            return
        if isinstance(news, WatchAgain):
            self._again()
            return
        if isinstance(news, MembersAre):
            self._backend.learn(news.addresses)
            return
        known = self._known.take(news)
        if known is not None:
            self._apply(*known, news)

    def _again(self) -> None:
        """Ask the member that we are connected to now about everything that has not ended; we may have missed it."""
        self._disruptions += 1
        self._maps.forget()
        self._status_poller.all()
        self._observers.subscriptions.again()

    def _apply(self, execution: Execution, job: Job, change: ExecutionChanged) -> None:
        make_error = None
        if change.failure is not None and not change.cancelled:
            name = repr(job.name) if job.name else job.id
            make_error = partial(to_exception, change.failure, member=self._backend.address, job=name)
        status = JobStatus(change.status)
        if status.is_terminal:
            if self._logs is not None:
                self._logs.drain()  # what its processors have logged has been sent before they ended
            self._known.forget(change.execution_id)
        execution.changed(status, change.cancelled, make_error, change.cause)

    def _member_lost(self) -> None:
        self._lost = True
        self._fail_pending(None)
        error = ShmjetError(CLOSED) if self._closed else MemberLostError(self._backend.endpoint.gone)
        self._observers.subscriptions.close(error)

    def _fail_pending(self, why: str | None) -> None:
        """End what has not ended: by an error, or as cancelled when this instance is being closed."""
        for execution, job in self._known.forget_all():
            if self._closed and self._backend.has_own_member:
                execution.changed(JobStatus.FAILED, True, None)
                continue
            name = repr(job.name) if job.name else job.id
            text = f"{self._backend.loss} (job {name})" if why is None else f"job {name} failed: {why}"
            if self._closed:
                state = "suspended" if execution.suspension_cause is not None else "still running"
                text = f"this client is closed; job {name} is {state}"
            execution.changed(JobStatus.FAILED, False, partial(MemberLostError, text))

    def snapshots(self) -> list[Snapshot]:
        """Return the exported snapshots of all jobs, the oldest first (`Job.export_snapshot`).

        Raises:
            MemberLostError: the member is gone.
        """
        return self.control.snapshots()

    # -- maps and lists -----------------------------------------------------------------------------------------

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Return the map of that name; it comes into being when it is first written to.

        Args:
            name: the same name gives the same map, in every process.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        return self._maps.open().get_map(name)

    def get_list(self, name: str) -> IList[Any]:
        """Return the list of that name; it comes into being when it is first written to.

        Args:
            name: the same name gives the same list, in every process.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        return self._maps.open().get_list(name)

    def shared_list(self, name: str) -> IList[Any] | None:
        """Return the list of that name, None when nothing runs but the member of this process; see `Execution`."""
        return self.get_list(name) if self._backend.is_networked else None

    def shared_bell(self, name: str, told: Callable[[], None]) -> Bell:
        """Return what processors anywhere ring, by the observable of that name; see `Execution`."""
        return Bell(self._observers, name, told)

    def get_observable(self, name: str) -> Observable[Any]:
        """Return the observable of that name, to which jobs write with `sinks.observable(name)`.

        Args:
            name: the same name gives the same observable, for every client of the cluster.

        Raises:
            TypeError: `name` is not a string of 1 to 1,024 characters.

        Example:
            >>> for price in jet.get_observable("prices"):       # doctest: +SKIP
            ...     print(price)
        """
        return Observable(check_observable_name("get_observable", name), self._observers)

    # -- end ----------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the instance; may be called twice.

        The member that it started leaves its cluster and ends with all its processes; alone, it cancels what runs and
        removes its maps. A client closes its connection.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._maps.refuse()
        _open.discard(self)
        closed(self.key)
        atexit.unregister(self._at_exit)
        if os.getpid() != self._pid:  # a forked child's copy: the instance is the parent's
            return
        self._maps.end_listeners()
        self._backend.begin_end(self._connection)
        self._maps.close()
        self._observers.close(ShmjetError(CLOSED))
        self._connection.close()
        self._callbacks.close()
        self._backend.end()
        if self._logs is not None:
            self._logs.close()

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.shutdown()

    def __enter__(self) -> JetInstance:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()

    def _repr_html_(self) -> str:
        """Show members and jobs, in a notebook."""
        from shmjet.cluster.client.notebook import instance_html

        return instance_html(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self._lost else self._backend.name
        return f"<JetInstance {self._config.cluster_name!r} {state}>"


_open: weakref.WeakSet[JetInstance] = weakref.WeakSet()


def open_instances() -> list[JetInstance]:
    """Return the instances that this process has started and not shut down."""
    return [instance for instance in list(_open) if instance._pid == os.getpid() and not instance._lost]


def _endless(execution: Execution) -> None:
    """Note that an execution is that of a job without an end."""
    execution.is_endless = True
