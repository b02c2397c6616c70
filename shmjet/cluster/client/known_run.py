"""The run of a job as an instance knows it: told by the member, and telling the future that the program has."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from shmjet.cluster.client.execution import Execution, end
from shmjet.cluster.client.execution_control import ExecutionControl
from shmjet.cluster.lifecycle_messages import SuspensionCause
from shmjet.core import JobStatus, ShmjetError
from shmjet.execution.metrics import NO_METRICS, Metrics

RunObserver = Callable[["KnownRun", JobStatus], None]
"""Called with a run and its status. It must return soon, and not raise."""


def _nothing() -> None:
    return None


class KnownRun:
    """One run of a job, through all its attempts. May be used from any thread.

    It keeps its `Execution` until it has ended; from then on only the program does.

    Args:
        control: what can be asked of the member about it.
        call_back: calls the callbacks of an execution that has ended.
    """

    def __init__(self, control: ExecutionControl, call_back: Callable[[Callable[[], None]], None]) -> None:
        self.is_endless = False
        """Whether the job ends only when it fails or is cancelled."""
        self.call_back = call_back
        self._control = control
        self._id: int | None = None
        self._status = JobStatus.STARTING
        self._cause: SuspensionCause | None = None
        self._observers: list[RunObserver] = []
        self._others: list[KnownRun] = []
        self._changing = threading.RLock()
        self._numbered = threading.Event()
        self._cancel_asked = False
        self._is_cancelled = False
        self._make_error: Callable[[], BaseException] | None = None
        self._made_error: Callable[[], BaseException | None] = _nothing
        self._pending: Execution | None = Execution(self)
        self._last: Callable[[], Execution | None] = weakref.ref(self._pending)

    @property
    def id(self) -> int:
        """Its number, unique in its member; 0 before the member has given one."""
        return self._id or 0

    @property
    def status(self) -> JobStatus:
        """What the member said last."""
        return self._status

    @property
    def cause(self) -> SuspensionCause | None:
        """Why it is suspended; None while it is not."""
        return self._cause

    @property
    def execution(self) -> Execution:
        """The future that the program has; another one where it has let go of that of a run which has ended."""
        with self._changing:
            execution = self._last()
            if execution is None:
                execution = Execution(self)
                self._last = weakref.ref(execution)
                end(execution, has_failed=self.has_failed, is_cancelled=self._is_cancelled)
            return execution

    @property
    def has_failed(self) -> bool:
        """Whether it has ended with an error."""
        return self._make_error is not None

    def error(self) -> BaseException:
        """Return what it has failed with: the same exception, as long as that is in use."""
        error = self._made_error()
        if error is None:
            assert self._make_error is not None
            error = self._make_error()
            self._made_error = weakref.ref(error)
        return error

    def wait_for_id(self) -> int:
        """Return the number as soon as the member has given one; 0 when the run ended without."""
        self._numbered.wait()
        return self.id

    def metrics(self) -> Metrics:
        """Return the metrics as they are now, or as they were at the end. Raises MemberLostError."""
        return NO_METRICS if self._id is None else self._control.metrics(self._id)

    def cancel(self) -> bool:
        """Ask for the end, now or as soon as there is a number; False when no member can be asked."""
        with self._changing:
            self._cancel_asked = True
        if self._id is not None:
            try:
                self._control.cancel(self._id)
            except ShmjetError:  # the member is gone, or this instance: the future learns of it by itself
                return False
        return True

    def observe(self, observer: RunObserver) -> None:
        """Have a function told the status now and at each change, in the order of the changes."""
        with self._changing:
            if not self._status.is_terminal:
                self._observers.append(observer)
            observer(self, self._status)

    def started_as(self, number: int) -> None:
        """Take the number that the member gave; what was cancelled before it had one is cancelled now."""
        with self._changing:
            self._id = number
            is_cancelled = self._cancel_asked
        self._numbered.set()
        if is_cancelled:
            self.cancel()

    def pass_on_to(self, other: KnownRun) -> None:
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
        with self._changing:
            self._make_error, self._is_cancelled = error, cancelled
            execution, self._pending = self._pending, None
        assert execution is not None
        end(execution, has_failed=error is not None, is_cancelled=cancelled)

    def __repr__(self) -> str:
        return f"<KnownRun {self.id} {self._status.name}>"
