"""The future of one task: what `concurrent.futures.Future` is, made in a tenth of the time.

A `Future` makes a condition, a lock and two lists for whoever may come to wait for it. Of many small tasks hardly a
future is ever waited for: its result is there when somebody asks. So these are made by whoever needs them first, and
until then the future is one object without a lock. Two things are settled by a `dict.setdefault`, which is atomic:

- Whether the task begins, is cancelled or gets a result from its owner: `_fate`.
- Whether it ended before anybody looked closely: then a lock of its own, held until all is said, stands where the
  condition would, for nobody will ever wait on it. Else the condition is there and all goes as in the base class.

A result that was pickled is unpickled by the first thread that asks for it (`result`, `exception`). Unpickling runs
code of the user, which may raise anything or never return; the thread that collects results must not depend on that.

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
"""The fate of a future that somebody else than the pool has ended: its task does not run."""
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
    """Makes the outcome from what the worker has sent, as long as nobody has asked for it."""
    items = 1
    """Items of `map` whose results it will have."""
    has_columns = False
    """Whether its result came as columns: numbers and texts, and tuples, lists and dicts of them."""
    __init__ = object.__init__

    def __getattr__(self, name: str) -> Any:
        """Make what the base class makes at once."""
        make = _MADE_LATE.get(name)
        if make is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.__dict__.setdefault(name, make())

    # -- what the pool calls -----------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Say that the task is about to run; False when it has been cancelled or ended: then `drop` is to be called."""
        attributes = self.__dict__
        if attributes.setdefault("_fate", _RUNNING) is not _RUNNING:
            return False
        if "_condition" not in attributes:
            self._state = _RUNNING
            return True
        with self._condition:
            if self._state == _PENDING:  # else somebody else has called `set_running_or_notify_cancel`
                self._state = _RUNNING
        return True

    def drop(self) -> None:
        """Tell the threads that wait that the task will not run. Calls callbacks: nobody may hold a lock."""
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
        """Do as `set_result` does, without a condition if there is none; one that has ended already stays as it is.

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
        """Do as `set_exception` does; a future that has ended already stays as it is."""
        with contextlib.suppress(InvalidStateError):
            super().set_exception(error)

    def _invoke_callbacks(self) -> None:
        """Call all callbacks, and log what they raise. What is no `Exception` is raised again behind the last."""
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

    # -- what everybody may call -------------------------------------------------------------------------------------

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
        """Wait for the end. Raises as `result` does when there is none in time, or the task has been cancelled."""
        attributes = self.__dict__
        if "_condition" not in attributes:  # not by __getattr__, which takes longer
            attributes.setdefault("_condition", threading.Condition())
        super().exception(timeout)

    def _read(self) -> None:
        """Make the outcome; a thread that comes while another does so waits for it."""
        with self.__dict__.setdefault("_reading", threading.RLock()):
            if self._unread is not None:
                self._result, self._exception = self._unread()
                self._unread = None


def log_error(text: str, *args: object) -> None:
    """Log the exception that is handled now. Never raises: its text and the program's handlers are the user's code."""
    with contextlib.suppress(BaseException):
        logger.exception(text, *args)
