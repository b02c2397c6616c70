"""The future of one task: a `concurrent.futures.Future`, made in a tenth of the time.

A `Future` makes a condition, a lock and two lists for threads that may wait for it. Of many small tasks hardly any
future is ever waited for: its result is there when a thread asks for it. So the first thread that needs these makes
them, and until then the future is one object without a lock. `dict.setdefault`, which is atomic, decides two things:

- Whether the task begins, is cancelled or gets a result from its owner: `_fate`.
- Whether it ended before any thread needed the condition: then its own lock, held until the outcome is stored, takes
  the place of the condition, and no thread will ever wait on it. Else the condition is there, as in the base class.

The first thread that asks for a pickled result (`result`, `exception`) unpickles it. Unpickling runs code of the user,
which may raise anything or never return; the thread that collects results must not depend on that.

`wait`, `as_completed` and `asyncio` work on the attributes of the base class and find them here.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from typing import Any, Final

_PENDING: Final = "PENDING"
_RUNNING: Final = "RUNNING"
_CANCELLED: Final = "CANCELLED"
_FINISHED: Final = "FINISHED"
_TAKEN: Final = "TAKEN"
"""The fate of a future that was ended by its owner, not by the pool: its task does not run."""
_MADE_LATE: Final = {"_condition": threading.Condition, "_waiters": list, "_done_callbacks": list}

logger = logging.getLogger("concurrent.futures")

Outcome = tuple[Any, BaseException | None]
"""A result and None, or None and what the task raised."""


class TaskFuture(Future[Any]):
    """The future of a task of a pool."""

    _state = _PENDING
    _result = None
    _exception = None
    _unread: Callable[[], Outcome] | None = None
    """Makes the outcome from the worker's answer; None when it has been read."""
    items = 1
    """The number of items of `map` whose results it will have."""
    has_columns = False
    """Whether its result came as columns: numbers and texts, and tuples, lists and dicts of them."""
    __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """Make the attributes that the base class makes in its constructor."""
        make = _MADE_LATE.get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.__dict__.setdefault(name, make())

    # -- what the pool calls -----------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Mark the task as about to run; False when it was cancelled or has ended: then call `drop`."""
        attributes = self.__dict__
        if attributes.setdefault("_fate", _RUNNING) is not _RUNNING:
            return False
        if "_condition" not in attributes:
            self._state = _RUNNING
            return True
        with self._condition:
            if self._state == _PENDING:  # else its owner has called `set_running_or_notify_cancel`
                self._state = _RUNNING
        return True

    def drop(self) -> None:
        """Tell waiting threads that the task will not run. Calls callbacks: the caller must hold no lock."""
        self.cancel()
        if self.__dict__["_fate"] is _TAKEN:
            return
        with self._condition:
            is_cancelled = self._state == _CANCELLED
        if is_cancelled:
            super().set_running_or_notify_cancel()
        else:
            self.fail(CancelledError())

    def finish(self, value: Any, unread: Callable[[], Outcome] | None = None, failed: bool = False) -> None:
        """Do as `set_result` does, without a condition if there is none; a future that has ended stays as it is.

        Args:
            value: the result, where it is known already.
            unread: makes the outcome when it is asked for; it must not raise.
            failed: the outcome will be an exception.
        """
        attributes = self.__dict__
        condition = attributes.get("_condition")
        if condition is None:
            lock = threading.RLock()
            with lock:
                condition = attributes.setdefault("_condition", lock)
                if condition is lock:
                    self._result = value
                    if unread is not None:
                        self._unread = unread
                    self._state = _FINISHED
                    return
        with condition:
            if self._state not in (_PENDING, _RUNNING):
                return
            self._result = value
            if unread is not None:
                self._unread = unread
            self._state = _FINISHED
            for waiter in attributes.get("_waiters", ()):
                (waiter.add_exception if failed else waiter.add_result)(self)
            condition.notify_all()
        if "_done_callbacks" in attributes:
            self._invoke_callbacks()

    def fail(self, error: BaseException) -> None:
        """Do as `set_exception` does; a future that has ended stays as it is."""
        with contextlib.suppress(InvalidStateError):
            super().set_exception(error)

    def _invoke_callbacks(self) -> None:
        """Call all callbacks and log what they raise. An error that is not an `Exception` is raised after the last."""
        raised: BaseException | None = None
        callbacks: list[Callable[[Future[Any]], object]] = self.__dict__.pop("_done_callbacks", [])
        for callback in callbacks:
            try:
                callback(self)
            except BaseException as error:
                log_error("exception calling callback for %r", self)
                if not issubclass(type(error), Exception):
                    raised = error
        if raised is not None:
            try:
                raise raised
            finally:
                raised = None

    # -- what any code may call --------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        if self.__dict__.setdefault("_fate", _CANCELLED) is not _CANCELLED:
            return False
        return super().cancel()

    def set_running_or_notify_cancel(self) -> bool:
        self.__dict__.setdefault("_fate", _RUNNING)
        return super().set_running_or_notify_cancel()

    def set_result(self, result: Any) -> None:
        self.__dict__.setdefault("_fate", _TAKEN)
        super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        self.__dict__.setdefault("_fate", _TAKEN)
        super().set_exception(exception)

    def result(self, timeout: float | None = None) -> Any:
        try:
            if self._state != _FINISHED:
                self._wait(timeout)
            if self._unread is not None:
                self._read()
            if self._exception is None:
                return self._result
            return super().result(0)
        finally:
            self = None  # type: ignore[assignment]  # as the base class does: no cycle through the traceback

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state != _FINISHED:
            self._wait(timeout)
        if self._unread is not None:
            self._read()
        return self._exception

    def done(self) -> bool:
        return self._state == _FINISHED or super().done()

    def _wait(self, timeout: float | None) -> None:
        """Wait for the end. Raises as `result` does on a timeout, or when the task has been cancelled."""
        attributes = self.__dict__
        if "_condition" not in attributes:  # not by __getattr__, which takes longer
            attributes.setdefault("_condition", threading.Condition())
        super().exception(timeout)

    def _read(self) -> None:
        """Make the outcome; a second thread waits for the first one."""
        with self.__dict__.setdefault("_reading", threading.RLock()):
            if self._unread is not None:
                self._result, self._exception = self._unread()
                self._unread = None


def log_error(text: str, *args: object) -> None:
    """Log the exception that is handled now. Never raises: its text and the program's handlers are the user's code."""
    with contextlib.suppress(BaseException):
        logger.exception(text, *args)
