"""`JetInstance`: a member with its workers as this process, which started it, sees and uses it."""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import cloudpickle
import msgspec

from shmjet.cluster.availability import check_job
from shmjet.cluster.connection import Connection
from shmjet.cluster.job import Execution, Job
from shmjet.cluster.launch import StartingMember
from shmjet.cluster.logs import LogReceiver
from shmjet.cluster.protocol import (
    CancelExecution,
    Describe,
    Execute,
    Executing,
    ExecutionChanged,
    GetMetrics,
    ListJobs,
    Shutdown,
    Submission,
)
from shmjet.cluster.settings import KEPT_RESULTS, LARGE_CODE, SOCKET_NAME
from shmjet.core import DAG, DagError, JetConfig, JobConfig, JobStatus, MemberLostError, ShmjetError
from shmjet.execution.code import code_of
from shmjet.execution.failure import to_exception
from shmjet.execution.large import Large
from shmjet.execution.messages import JobShape
from shmjet.execution.metrics import Metrics
from shmjet.execution.plan import describe
from shmjet.grid import Grid, IList, IMap

_SHUTDOWN_S = 2.0
_PLAIN_CONFIG: bytes = cloudpickle.dumps(JobConfig())


@dataclass(frozen=True)
class Member:
    """A member of the cluster.

    `address` is "local" for a member without a network; `uuid` names it for good, `pid` is its process; `cores` are the
    core numbers that its workers run on; `workers` are the pids of its workers; `is_local`: this process started it;
    `is_coordinator`: it is the oldest, which coordinates jobs.
    """

    address: str
    uuid: str
    pid: int
    cores: tuple[int, ...]
    workers: tuple[int, ...]
    is_local: bool
    is_coordinator: bool


class Planned(Protocol):
    """What can be made a DAG: a pipeline."""

    def to_dag(self, config: JobConfig | None = None) -> DAG:
        """Return the DAG, planned for a job's settings."""


class Cluster:
    """The members that a client sees.

    Example:
        >>> [len(member.workers) for member in jet.cluster.members]             # doctest: +SKIP
        [4]
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, the oldest, which coordinates, first.

        Raises:
            MemberLostError: the member is gone.
        """
        reply = self._connection.ask(Describe)
        return (
            Member(
                address=reply.address,
                uuid=reply.uuid,
                pid=reply.pid,
                cores=tuple(reply.cores),
                workers=tuple(reply.workers),
                is_local=True,
                is_coordinator=True,
            ),
        )

    def __repr__(self) -> str:
        try:
            return f"<Cluster of {', '.join(f'{member.address} (pid {member.pid})' for member in self.members)}>"
        except ShmjetError:
            return "<Cluster that is gone>"


class JetInstance:
    """A running member with its workers, and the way to use it; made by `new_instance`.

    All methods may be called from any thread. Leaving the `with` block, `shutdown` and the end of the process that
    made it end the instance: jobs that still run are cancelled, maps and lists are gone.

    Example:
        >>> with shmjet.new_instance() as jet:               # doctest: +SKIP
        ...     jet.new_job(dag).run()
        ...     print(dict(jet.get_map("counts")))
    """

    def __init__(self, config: JetConfig, member: StartingMember) -> None:
        self._config = config
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._executions: dict[int, tuple[Execution, Job]] = {}
        self._ended: deque[int] = deque()
        self._unclaimed: dict[int, list[ExecutionChanged]] = {}
        self._jobs: weakref.WeakValueDictionary[str, Job] = weakref.WeakValueDictionary()
        self._closed = False
        self._lost = False
        self._process, self._started = member.process, member.wait()
        self._folder = Path(self._started.folder)
        self._connection = Connection(self.member_socket, self._changed, self._member_lost)
        self._logs = LogReceiver(member.logs, member.log_level)
        self._grid: Grid | None = None
        atexit.register(self._at_exit)

    @property
    def config(self) -> JetConfig:
        """The settings that the instance was started with."""
        return self._config

    @property
    def folder(self) -> Path:
        """Where its member's socket and maps are; for an `Observer`."""
        return self._folder

    @property
    def cluster(self) -> Cluster:
        """The cluster: one member, unless it joined others."""
        return Cluster(self._connection)

    # -- jobs ---------------------------------------------------------------------------------------------------

    def new_job(self, dag: DAG | Planned, config: JobConfig | None = None) -> Job:
        """Make a job; nothing runs before `execute` or `run`.

        Args:
            dag: what to run, a DAG or a pipeline; later changes of it do not matter.
            config: how to run it.

        Raises:
            DagError: the DAG is not valid.
            PlanError: the pipeline cannot be planned.
            ConfigError: the config asks for what this version does not have (snapshots).
            TypeError: something in it cannot be pickled; the text names the vertex.
        """
        config = JobConfig() if config is None else config
        check_job(config)
        if not isinstance(dag, DAG):
            if isinstance(dag, type) or not hasattr(dag, "to_dag"):
                raise DagError(f"new_job() takes a Pipeline or a DAG, got {dag!r} ({type(dag).__name__})")
            dag = dag.to_dag(config)
        shape = describe(dag)
        job_id = os.urandom(8).hex()
        submission = Submission(
            job_id=job_id,
            name=config.name,
            shape=shape,
            code=_pickle_code(dag, shape, config),
            config=_PLAIN_CONFIG if config == JobConfig() else cloudpickle.dumps(config),
            attachments=self._copy_attachments(job_id, config),
            import_paths=[os.path.abspath(path) for path in sys.path],
        )
        job = Job(self, job_id, config, submission, _listeners(dag), (list(dag), list(dag.edges)))
        self._jobs[job_id] = job
        return job

    def _copy_attachments(self, job_id: str, config: JobConfig) -> dict[str, str]:
        """Copy attached files into the instance's folder, so that later changes of them do not matter."""
        if not config.attached_files:
            return {}
        import shutil

        copies = {}
        for number, (key, path) in enumerate(config.attached_files.items()):
            place = self._folder / "attachments" / job_id / str(number)
            place.mkdir(parents=True)
            copies[key] = str(shutil.copyfile(path, place / path.name))
        return copies

    def jobs(self) -> list[Job]:
        """Return all jobs that have been executed, the oldest first.

        Raises:
            MemberLostError: the member is gone.
        """
        return [self._job_of(row) for row in self._connection.ask(ListJobs).jobs]

    def job(self, name: str | None = None, id: str | None = None) -> Job | None:  # noqa: A002
        """Return a job, or None when there is none.

        Args:
            name: its name; one that runs is preferred, then the latest.
            id: its id, 16 hexadecimal digits.

        Raises:
            MemberLostError: the member is gone.
        """
        found = [job for job in self.jobs() if (id is None or job.id == id) and (name is None or job.name == name)]
        best = [job for job in found if not job.status.is_terminal] or found
        return best[-1] if best else None

    def _job_of(self, row: Any) -> Job:
        job = self._jobs.get(row.job_id)
        if job is None:
            job = Job(self, row.job_id, cloudpickle.loads(row.config))
            self._jobs[row.job_id] = job
        if row.execution_id is not None:
            known = self._executions.get(row.execution_id)
            if known is not None:
                job.attach(known[0])
        return job

    def execute(self, job: Job, *, patient: bool) -> Execution:
        """Run a job once more; what `Job.execute` calls.

        Args:
            job: made by this instance.
            patient: the caller will wait for the end; so this may take a millisecond, and spares small jobs a message.
        """
        if self._closed:
            raise ShmjetError("this instance has been shut down; start a new one with shmjet.new_instance()")
        execution = Execution(self)
        code = Large(b"")
        try:
            for tell in job.listeners:
                tell(execution)
            submission = job.take_submission()
            code = code if submission is None else Large.of(submission.code, LARGE_CODE)
            if code.fds:
                submission = msgspec.structs.replace(submission, code=code.inline, code_size=code.size)
            reply = self._connection.ask(lambda number: Execute(number, job.id, submission, patient), fds=code.fds)
        except BaseException as error:
            if job.listeners:
                execution.changed(JobStatus.FAILED, False, error)
            raise
        finally:
            code.close()
        assert isinstance(reply, Executing)
        execution.started_as(reply.execution_id)
        with self._lock:
            early = self._unclaimed.pop(reply.execution_id, [])
            self._executions[reply.execution_id] = (execution, job)
        for change in early:
            self._apply(execution, job, change)
        if self._lost:
            self._fail_pending()
        return execution

    @property
    def member_socket(self) -> str:
        """Path of the member's socket."""
        return str(self._folder / SOCKET_NAME)

    def cancel_execution(self, execution_id: int) -> None:
        """Ask the member to end an execution; what `Execution.cancel` calls."""
        self._connection.ask(lambda number: CancelExecution(number, execution_id))

    def execution_metrics(self, execution_id: int) -> Metrics:
        """Ask the member for metrics; what `Execution.metrics` calls."""
        metrics: Metrics = self._connection.ask(lambda number: GetMetrics(number, execution_id)).metrics
        return metrics

    def _changed(self, change: ExecutionChanged) -> None:
        with self._lock:
            known = self._executions.get(change.execution_id)
            if known is None:
                self._unclaimed.setdefault(change.execution_id, []).append(change)
                return
        self._apply(*known, change)

    def _apply(self, execution: Execution, job: Job, change: ExecutionChanged) -> None:
        error = None
        if change.failure is not None and not change.cancelled:
            name = repr(job.name) if job.name else job.id
            error = to_exception(change.failure, member="local", job=name)
        status = JobStatus(change.status)
        if status.is_terminal:
            self._logs.drain()  # what its processors have logged has been sent before they ended
            self._forget_oldest(change.execution_id)
        execution.changed(status, change.cancelled, error)

    def _forget_oldest(self, ended: int) -> None:
        """Remember as many executions that have ended as the member does; whoever holds one keeps it."""
        with self._lock:
            self._ended.append(ended)
            while len(self._ended) > KEPT_RESULTS:
                self._executions.pop(self._ended.popleft(), None)

    def _member_lost(self) -> None:
        self._lost = True
        self._fail_pending()

    def _fail_pending(self) -> None:
        with self._lock:
            pending = [execution for execution, _ in self._executions.values() if not execution.done()]
        for execution in pending:
            if self._closed:
                execution.changed(JobStatus.FAILED, True, None)
            else:
                text = f"the member (pid {self._process.pid}) was lost while the job ran"
                execution.changed(JobStatus.FAILED, False, MemberLostError(text))

    # -- maps and lists -----------------------------------------------------------------------------------------

    def _open_grid(self) -> Grid:
        if self._closed:
            raise ShmjetError("this instance has been shut down; its maps and lists are gone")
        with self._lock:
            if self._grid is None:
                self._grid = Grid.open(self._folder / "grid")
            return self._grid

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Return the map of that name; it comes into being when it is first written to.

        Args:
            name: the same name gives the same map, in every process.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        return self._open_grid().get_map(name)

    def get_list(self, name: str) -> IList[Any]:
        """Return the list of that name; it comes into being when it is first written to.

        Args:
            name: the same name gives the same list, in every process.

        Raises:
            ShmjetError: the instance has been shut down.
        """
        return self._open_grid().get_list(name)

    # -- end ----------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the instance: cancel what runs, stop all its processes, remove its maps. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._at_exit)
        if os.getpid() != self._pid:  # a forked child's copy: the instance is the parent's
            return
        with contextlib.suppress(MemberLostError, TimeoutError):
            self._connection.post(Shutdown).result(_SHUTDOWN_S)
        if self._grid is not None:
            self._grid.close()
        self._connection.close()
        try:
            self._process.wait(_SHUTDOWN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
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

    def __repr__(self) -> str:
        state = "closed" if self._closed else "lost" if self._lost else f"member pid {self._process.pid}"
        return f"<JetInstance {self._config.cluster_name!r} {state}>"


def _listeners(dag: DAG) -> tuple[Callable[[Execution], None], ...]:
    """Return the methods `on_client` of the suppliers that have one, each once."""
    suppliers = {id(vertex.supplier): vertex.supplier for vertex in dag.vertices}
    found = [getattr(supplier, "on_client", None) for supplier in suppliers.values()]
    return tuple(listener for listener in found if callable(listener))


def _pickle_code(dag: DAG, shape: JobShape, config: JobConfig) -> bytes:
    """Pickle a DAG's code, that of the config's modules by value."""
    modules = config.modules
    already = set(cloudpickle.list_registry_pickle_by_value())
    added = [module for module in modules if module.__name__ not in already]
    for module in added:
        cloudpickle.register_pickle_by_value(module)
    try:
        data: bytes = cloudpickle.dumps(code_of(dag, shape), protocol=5)
        return data
    except Exception as error:
        raise _explain(dag, error) from error
    finally:
        for module in added:
            cloudpickle.unregister_pickle_by_value(module)


def _explain(dag: DAG, error: Exception) -> Exception:
    """Name the vertex or edge whose code cannot be pickled."""
    for vertex in dag.vertices:
        try:
            cloudpickle.dumps(vertex.supplier)
        except Exception as cause:
            return TypeError(
                f"vertex {vertex.name!r} cannot be sent to the workers: {cause}; "
                "open files, locks and connections in the processor's init() instead of capturing them"
            )
    for edge in dag.edges:
        try:
            cloudpickle.dumps((edge.key_fn, edge.partitioner, edge.order_key))
        except Exception as cause:
            return TypeError(f"edge {edge!r} cannot be sent to the workers: {cause}")
    return TypeError(f"the DAG cannot be sent to the workers: {error}")
