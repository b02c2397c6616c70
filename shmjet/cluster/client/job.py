"""A job and its executions as a client sees them."""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from shmjet.cluster.client.callback_runner import call_all
from shmjet.core import Edge, JobConfig, JobStatus, ShmjetError, Vertex
from shmjet.execution.metrics import NO_METRICS, Metrics

PROGRESS_VARIABLE = "SHMJET_PROGRESS"
"""The environment variable that makes every `Job.run` show its progress."""


_UNMADE: Final = ShmjetError("see Execution.exception()")
"""Stands in a future for an exception that is made at the first request for it. Never raised."""


def _nothing() -> None:
    return None


class JobRunner(Protocol):
    """What a job needs of its instance."""

    @property
    def member_socket(self) -> str: ...

    def execute(self, job: Job, *, patient: bool, timeout: float | None = None) -> Execution: ...

    def cancel_execution(self, execution_id: int) -> None: ...

    def call_back(self, callbacks: Callable[[], None]) -> None: ...

    def execution_metrics(self, execution_id: int) -> Metrics: ...

    def shared_list(self, name: str) -> Any: ...


class Execution(Future[None]):
    """One run of a job: a `concurrent.futures.Future` whose result is None.

    It is pending while the job runs. `cancel` asks for the end and returns True; when the last processor has been
    closed, the future is cancelled and `result` raises `CancelledError`. What is given to `add_done_callback` is called
    in a thread of its own, and may use the instance: look at metrics and maps, or run the next job.

    Example:
        >>> execution = job.execute()            # doctest: +SKIP
        >>> execution.result(timeout=60)         # doctest: +SKIP
    """

    def __init__(self, runner: JobRunner) -> None:
        super().__init__()
        self._runner = runner
        self._id: int | None = None
        self._status = JobStatus.STARTING
        self._changing = threading.Lock()
        self._numbered = threading.Event()
        self._cancel_asked = False
        self._make_error: Callable[[], BaseException] | None = None
        self._made_error: Callable[[], BaseException | None] = _nothing

    @property
    def id(self) -> int:
        """The execution's number, unique in its member; 0 before the member has given one."""
        return self._id or 0

    @property
    def member_socket(self) -> str:
        """Path of the socket of the member that runs it."""
        return self._runner.member_socket

    def open_list(self, name: str) -> Any:
        """Return a list of the cluster, None when no part of it is on other hosts: a way for results."""
        return self._runner.shared_list(name)

    def wait_for_id(self) -> int:
        """Return the execution's number as soon as the member has given one; 0 when it ended without."""
        self._numbered.wait()
        return self.id

    @property
    def status(self) -> JobStatus:
        """What the member said last."""
        return self._status

    def metrics(self) -> Metrics:
        """Return the metrics as they are now, or as they were at the end.

        Raises:
            MemberLostError: the member is gone.
        """
        return NO_METRICS if self._id is None else self._runner.execution_metrics(self._id)

    def cancel(self) -> bool:
        """Ask for the end of this execution.

        Returns:
            True, or False when it has ended already.
        """
        if self.done():
            return super().cancelled()
        with self._changing:
            self._cancel_asked = True
        if self._id is not None:
            try:
                self._runner.cancel_execution(self._id)
            except ShmjetError:  # the member is gone, or this instance: the future learns of it by itself
                return False
        return True

    def running(self) -> bool:
        """Return True while the job is starting, running or completing."""
        return not self.done()

    # -- the outcome --------------------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> None:
        """Wait for the end of the job.

        Args:
            timeout: seconds; the job goes on when they are over.

        Raises:
            JobFailedError, WorkerLostError, MemberLostError: how it failed.
            concurrent.futures.CancelledError: it was cancelled.
            TimeoutError: `timeout` is over.
        """
        error = self.exception(timeout)
        try:
            if error is not None:
                raise error
        finally:
            self = error = None  # type: ignore[assignment]  # no cycle through the traceback

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the job, and return what it failed with; None when it did not fail.

        The exception is made here, from what the member has sent, and is not kept: its traceback would keep the
        variables of every function through which it is raised. As long as it is in use, further calls return the same.

        Args:
            timeout: seconds; the job goes on when they are over.

        Raises:
            concurrent.futures.CancelledError: it was cancelled.
            TimeoutError: `timeout` is over.
        """
        ended_with = super().exception(timeout)
        if self._make_error is None:
            return ended_with
        made = self._made_error()
        if made is None:
            made = self._make_error()
            self._made_error = weakref.ref(made)
        return made

    def set_result(self, result: None) -> NoReturn:
        """Refuse: an execution ends when its job does.

        Raises:
            InvalidStateError: always.
        """
        raise InvalidStateError(f"{self!r} ends when its job does; cancel() ends it early")

    def set_exception(self, exception: BaseException | None) -> NoReturn:
        """Refuse, as `set_result` does.

        Raises:
            InvalidStateError: always.
        """
        raise InvalidStateError(f"{self!r} ends when its job does; cancel() ends it early")

    def set_running_or_notify_cancel(self) -> NoReturn:
        """Refuse: whether it runs is for the member to say.

        Raises:
            InvalidStateError: always.
        """
        raise InvalidStateError(f"{self!r} is started by its job; see its status")

    # -- told by the instance -----------------------------------------------------------------------------------

    def started_as(self, execution_id: int) -> None:
        """Take the number that the member gave; what was cancelled before it had one is cancelled now."""
        with self._changing:
            self._id = execution_id
            is_cancelled = self._cancel_asked
        self._numbered.set()
        if is_cancelled:
            self.cancel()

    def changed(self, status: JobStatus, cancelled: bool, error: Callable[[], BaseException] | None) -> None:
        """Take a new status; a terminal one ends the future, and no other follows it: two threads may bring news.

        Args:
            status: the new one.
            cancelled: it has ended because it was cancelled.
            error: makes what it has failed with, for the threads that ask; None: it has not failed.
        """
        with self._changing:
            if self._status.is_terminal:
                return
            self._status = status
        if not status.is_terminal:
            return
        self._numbered.set()
        self._make_error = error
        with contextlib.suppress(InvalidStateError, RuntimeError):  # it was ended by methods of the base class
            if error is not None:
                super().set_exception(_UNMADE)
            elif cancelled:
                super().cancel()
                super().set_running_or_notify_cancel()
            else:
                super().set_result(None)

    def _invoke_callbacks(self) -> None:
        """See `Future`, which calls this once, when it has ended; it is in the way of the thread that brings news."""
        callbacks: list[Callable[[Future[None]], object]] = vars(self)["_done_callbacks"]
        vars(self)["_done_callbacks"] = []
        if callbacks:
            self._runner.call_back(partial(call_all, callbacks, self))

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self._status.name}>"


class Job:
    """What to run and how: made by `new_job`; runs when it is executed, as often as wanted.

    Attributes speak of the latest execution.

    Example:
        >>> with shmjet.new_instance() as jet:               # doctest: +SKIP
        ...     jet.new_job(dag, JobConfig(name="primes")).run()
    """

    def __init__(
        self,
        runner: JobRunner,
        job_id: str,
        config: JobConfig,
        submission: Any = None,
        listeners: tuple[Callable[[Execution], None], ...] = (),
        graph: tuple[list[Vertex], list[Edge]] | None = None,
        named: str | None = None,
    ) -> None:
        self.named = named
        """How the members' own configuration calls it, None for a job of a client; for the instance."""
        self.keeps_submission = False
        """Whether the member that knows it may be lost, and another one has to be told; for the instance."""
        self.kept_submission: Any = None
        self._graph = graph
        self.listeners = listeners
        """Told of each execution before it starts; for the instance."""
        self._runner = runner
        self._id = job_id
        self._config = config
        self._submission = submission
        self._latest: Execution | None = None
        self._lock = threading.Lock()

    @property
    def id(self) -> str:
        """The job's id, 16 hexadecimal digits."""
        return self._id

    @property
    def name(self) -> str | None:
        """The name from its config."""
        return self._config.name

    @property
    def config(self) -> JobConfig:
        """A copy of its config; changing it does not change the job."""
        return copy.copy(self._config)

    def take_submission(self) -> Any:
        """Return what the member has to be told before the first execution, None when it knows; for the instance."""
        submission, self._submission = self._submission, None
        if submission is not None and self.keeps_submission:
            self.kept_submission = submission
        return submission

    def give_back(self, submission: Any) -> None:
        """Take that the member has refused the first execution, and remembers nothing of it; for the instance."""
        if submission is not None:
            self._submission = submission

    @property
    def is_starting(self) -> bool:
        """Whether another thread executes it just now, and will have that execution as the latest; for the instance."""
        return self._lock.locked()

    @property
    def status(self) -> JobStatus:
        """The status of the latest execution; NOT_RUNNING before the first."""
        return self._latest.status if self._latest is not None else JobStatus.NOT_RUNNING

    @property
    def latest(self) -> Execution | None:
        """The latest execution, None before the first."""
        return self._latest

    def execute(self) -> Execution:
        """Start the job and return at once.

        Raises:
            JobAlreadyExistsError: another job of the same name is running.
            MemberLostError: the member is gone.
        """
        return self._execute(patient=False)

    def _execute(self, *, patient: bool, timeout: float | None = None) -> Execution:
        with self._lock:
            self._latest = self._runner.execute(self, patient=patient, timeout=timeout)
            return self._latest

    def attach(self, execution: Execution) -> None:
        """Take an execution that another client started as the latest; for the instance."""
        self._latest = execution

    def run(self, timeout: float | None = None, progress: bool = False) -> None:
        """Execute the job and wait for its end.

        Args:
            timeout: seconds; the job is cancelled when they are over.
            progress: show on standard error, if that is a terminal, or in a notebook's cell, what each vertex does,
                which edge is full, and how far sources are. `shmjet run --progress` asks for it too.

        Raises:
            JobFailedError: a processor or supplier raised; the text ends with the user's own traceback.
            WorkerLostError: a worker died.
            TimeoutError: `timeout` is over.
            concurrent.futures.CancelledError: it was cancelled.
        """
        progress = progress or _always_shows()
        deadline = None if timeout is None else time.monotonic() + timeout
        execution = self._execute(patient=not progress, timeout=timeout)
        try:
            if progress:
                from shmjet.observe.live import follow

                follow(execution, execution.metrics, self.name or f"job {self.id}", timeout)
            execution.result(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except (TimeoutError, KeyboardInterrupt):
            if not execution.done():
                execution.cancel()
            raise

    def cancel(self) -> bool:
        """Cancel the latest execution; False when there is none or it has ended."""
        return self._latest is not None and self._latest.cancel()

    def metrics(self) -> Metrics:
        """Return the metrics of the latest execution; empty before the first."""
        return NO_METRICS if self._latest is None else self._latest.metrics()

    def _repr_svg_(self) -> str | None:
        """Show the DAG with what has gone through it so far, in a notebook."""
        if self._graph is None:
            return None
        from shmjet.observe.picture import job_svg

        try:
            metrics = self.metrics()
        except ShmjetError:  # the member is gone, or the instance has been shut down
            metrics = NO_METRICS
        return job_svg(*self._graph, metrics)

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"<Job {self._id}{name} {self.status.name}>"


def _always_shows() -> bool:
    """Whether progress is shown although the code does not ask for it (`shmjet run --progress`)."""
    return os.environ.get(PROGRESS_VARIABLE, "") not in ("", "0")


__all__ = ["CancelledError", "Execution", "Job", "JobRunner"]
