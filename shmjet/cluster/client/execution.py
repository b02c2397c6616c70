"""One run of a job as a client sees it: a future that lives through restarts and suspensions."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from shmjet.cluster.client.callback_runner import call_all
from shmjet.cluster.client.execution_control import ExecutionControl
from shmjet.cluster.lifecycle_messages import SuspensionCause
from shmjet.core import JobStatus, ShmjetError
from shmjet.execution.metrics import NO_METRICS, Metrics

_UNMADE: Final = ShmjetError("see Execution.exception()")
"""Stands in a future for an exception that is made at the first request for it. Never raised."""


def _nothing() -> None:
    return None


class ExecutionRunner(Protocol):
    """What an execution needs of its instance."""

    @property
    def member_socket(self) -> str: ...

    @property
    def control(self) -> ExecutionControl: ...

    def call_back(self, callbacks: Callable[[], None]) -> None: ...

    def shared_list(self, name: str) -> Any: ...

    def shared_bell(self, name: str, told: Callable[[], None]) -> Any: ...


class Execution(Future[None]):
    """One run of a job: a `concurrent.futures.Future` whose result is None.

    It is pending while the job runs, is restarted, or is suspended. `cancel` asks for the end and returns True; when
    the last processor has been closed, the future is cancelled and `result` raises `CancelledError`. What is given to
    `add_done_callback` is called in a thread of its own, and may use the instance: look at metrics and maps, or run the
    next job.

    Example:
        >>> execution = job.execute()            # doctest: +SKIP
        >>> execution.result(timeout=60)         # doctest: +SKIP
    """

    def __init__(self, runner: ExecutionRunner) -> None:
        super().__init__()
        self.is_endless = False
        """Whether the job ends only when it fails or is cancelled; for the instance."""
        self._runner = runner
        self._id: int | None = None
        self._status = JobStatus.STARTING
        self._cause: SuspensionCause | None = None
        self._observers: list[Callable[[Execution, JobStatus], None]] = []
        self._others: list[Execution] = []
        self._changing = threading.RLock()
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

    def open_bell(self, name: str, told: Callable[[], None]) -> Any:
        """Return what processors ring through an observable; `told` is called then, and must return at once."""
        return self._runner.shared_bell(name, told)

    def wait_for_id(self) -> int:
        """Return the execution's number as soon as the member has given one; 0 when it ended without."""
        self._numbered.wait()
        return self.id

    @property
    def status(self) -> JobStatus:
        """What the member said last."""
        return self._status

    @property
    def suspension_cause(self) -> SuspensionCause | None:
        """Why it is suspended, with `requested_by_user` and `error` (a text); None while it is not suspended."""
        return self._cause

    def observe(self, observer: Callable[[Execution, JobStatus], None]) -> None:
        """Have a function told the status now and at each change, in the order of the changes; for the job.

        Args:
            observer: called with this execution and its status. It must return soon, and not raise.
        """
        with self._changing:
            if not self._status.is_terminal:
                self._observers.append(observer)
            observer(self, self._status)

    def metrics(self) -> Metrics:
        """Return the metrics as they are now, or as they were at the end.

        Raises:
            MemberLostError: the member is gone.
        """
        return NO_METRICS if self._id is None else self._runner.control.metrics(self._id)

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
                self._runner.control.cancel(self._id)
            except ShmjetError:  # the member is gone, or this instance: the future learns of it by itself
                return False
        return True

    def _goes_on(self) -> str:
        """Say what a job does that has not ended."""
        if self._status is not JobStatus.SUSPENDED:
            return "it goes on"
        return "it is suspended until its job is resumed, restarted or cancelled; `suspension_cause` says why"

    def running(self) -> bool:
        """Return True until the job has ended."""
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
            KeyboardInterrupt: Ctrl-C, which cancels a job that has an endless source.
        """
        __tracebackhide__ = True
        try:
            error = self.exception(timeout)
        except KeyboardInterrupt as stopped:
            if self.is_endless and not self.done():
                self.cancel()
            raise stopped.with_traceback(None) from None  # the user's call, not how it waits
        except TimeoutError:
            raise TimeoutError(f"the job has not ended within {timeout:g} s; {self._goes_on()}") from None
        except CancelledError as cancelled:
            raise cancelled.with_traceback(None) from None
        try:
            if error is not None:
                raise error.with_traceback(None)  # it may have been raised before, elsewhere
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

    def _pass_on_to(self, other: Execution) -> None:
        """Have another one of the same number told what this one is told from now on."""
        with self._changing:
            self._others.append(other)

    def changed(
        self,
        status: JobStatus,
        cancelled: bool,
        error: Callable[[], BaseException] | None,
        cause: SuspensionCause | None = None,
    ) -> None:
        """Take a new status; a terminal one ends the future, and no other follows it: two threads may bring news.

        Args:
            status: the new one.
            cancelled: it has ended because it was cancelled.
            error: makes what it has failed with, for the threads that ask; None: it has not failed.
            cause: why it is suspended.
        """
        with self._changing:
            if self._status.is_terminal:
                return
            is_new = status is not self._status
            self._status, self._cause = status, cause
            for observer in self._observers if is_new else ():
                observer(self, status)
            others = list(self._others)
            if status.is_terminal:
                self._observers.clear()
                self._others.clear()
        for other in others:
            other.changed(status, cancelled, error, cause)
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

    def _repr_html_(self) -> str:
        """Show how it is doing, in a notebook."""
        from shmjet.cluster.client.notebook import execution_html

        return execution_html(self)

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self._status.name}>"
