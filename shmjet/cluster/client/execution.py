"""One run of a job as a program sees it: a future that lives through restarts and suspensions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from functools import partial
from typing import Final, NoReturn, Protocol

from shmjet.cluster.client.callback_runner import call_all
from shmjet.cluster.lifecycle_messages import SuspensionCause
from shmjet.core import JobStatus, ShmjetError
from shmjet.execution.metrics import Metrics

_UNMADE: Final = ShmjetError("see Execution.exception()")
"""Stands in a future for an exception that is made at the first request for it. Never raised."""


class RunState(Protocol):
    """What the instance knows of the run of a job."""

    @property
    def id(self) -> int: ...

    @property
    def status(self) -> JobStatus: ...

    @property
    def cause(self) -> SuspensionCause | None: ...

    @property
    def is_endless(self) -> bool: ...

    @property
    def has_failed(self) -> bool: ...

    def error(self) -> BaseException: ...

    def metrics(self) -> Metrics: ...

    def cancel(self) -> bool: ...

    def call_back(self, callbacks: Callable[[], None]) -> None: ...


class Execution(Future[None]):
    """One run of a job: a `concurrent.futures.Future` whose result is None.

    It is pending while the job runs, is restarted, or is suspended. `cancel` asks for the end and returns True; when
    the last processor has been closed, the future is cancelled and `result` raises `CancelledError`. What is given to
    `add_done_callback` is called in a thread of its own, and may use the instance: look at metrics and maps, or run the
    next job. Made by `Job.execute`.

    Example:
        >>> execution = job.execute()            # doctest: +SKIP
        >>> execution.result(timeout=60)         # doctest: +SKIP
    """

    def __init__(self, run: RunState) -> None:
        super().__init__()
        self._run = run

    @property
    def id(self) -> int:
        """The execution's number, unique in its member; 0 before the member has given one."""
        return self._run.id

    @property
    def status(self) -> JobStatus:
        """What the member said last."""
        return self._run.status

    @property
    def suspension_cause(self) -> SuspensionCause | None:
        """Why it is suspended, with `requested_by_user` and `error` (a text); None while it is not suspended."""
        return self._run.cause

    def metrics(self) -> Metrics:
        """Return the metrics as they are now, or as they were at the end.

        Raises:
            MemberLostError: the member is gone.
        """
        return self._run.metrics()

    def cancel(self) -> bool:
        """Ask for the end of this execution.

        Returns:
            True, or False when it has ended already.
        """
        return super().cancelled() if self.done() else self._run.cancel()

    def _goes_on(self) -> str:
        """Say what a job does that has not ended."""
        if self.status is not JobStatus.SUSPENDED:
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
            if self._run.is_endless and not self.done():
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
        return self._run.error() if self._run.has_failed else ended_with

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

    def _invoke_callbacks(self) -> None:
        """See `Future`, which calls this once, when it has ended; it is in the way of the thread that brings news."""
        callbacks: list[Callable[[Future[None]], object]] = vars(self)["_done_callbacks"]
        vars(self)["_done_callbacks"] = []
        if callbacks:
            self._run.call_back(partial(call_all, callbacks, self))

    def _repr_html_(self) -> str:
        """Show how it is doing, in a notebook."""
        from shmjet.cluster.client.notebook import execution_html

        return execution_html(self)

    def __repr__(self) -> str:
        return f"<Execution {self.id} {self.status.name}>"


def end(execution: Execution, *, has_failed: bool, is_cancelled: bool) -> None:
    """End an execution as its run has ended; its own methods refuse that.

    Args:
        execution: not yet ended.
        has_failed: the run knows with what.
        is_cancelled: it has ended because it was cancelled.
    """
    with contextlib.suppress(InvalidStateError, RuntimeError):  # it was ended by methods of the base class
        if has_failed:
            Future.set_exception(execution, _UNMADE)
        elif is_cancelled:
            Future.cancel(execution)
            Future.set_running_or_notify_cancel(execution)
        else:
            Future.set_result(execution, None)
