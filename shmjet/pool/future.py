"""The future of one task: what `concurrent.futures.Future` is, made in a tenth of the time.

A `Future` makes a condition, a lock and two lists for whoever may come to wait for it. Of many small tasks hardly a
future is ever waited for: its result is there when somebody asks. So these are made by whoever needs them first, and
until then the future is one object without a lock. Two things are settled by a `dict.setdefault`, which is atomic:

- Whether the task begins or is cancelled: `_fate`.
- Whether it ended before anybody looked closely: then a lock of its own, held until all is said, stands where the
  condition would, for nobody will ever wait on it. Else the condition is there and all goes as in the base class.

`wait`, `as_completed` and `asyncio` work on the attributes of the base class and find them here.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import Future, InvalidStateError
from typing import Any, Final

_PENDING: Final = "PENDING"
_RUNNING: Final = "RUNNING"
_CANCELLED: Final = "CANCELLED"
_FINISHED: Final = "FINISHED"
_MADE_LATE: Final = {"_condition": threading.Condition, "_waiters": list, "_done_callbacks": list}


class TaskFuture(Future[Any]):
    """The future of a task of a pool."""

    _state = _PENDING
    _result = None
    _exception = None
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

    def begin(self) -> bool:
        """Say that the task is about to run; False when it has been cancelled, and `drop` is to be called."""
        if self.__dict__.setdefault("_fate", _RUNNING) is not _RUNNING:
            return False
        self._state = _RUNNING
        return True

    def drop(self) -> None:
        """Tell those who wait that the task will not run. Calls callbacks: nobody may hold a lock."""
        super().cancel()  # whoever cancels it may not have come so far
        super().set_running_or_notify_cancel()

    def cancel(self) -> bool:
        if self.__dict__.setdefault("_fate", _CANCELLED) is not _CANCELLED:
            return False
        return super().cancel()

    def set_running_or_notify_cancel(self) -> bool:
        if self.begin():
            return True
        return super().set_running_or_notify_cancel()

    def finish(self, value: Any) -> None:
        """Do as `set_result` does, without a condition if there is none; one that has ended already stays as it is."""
        attributes = self.__dict__
        condition = attributes.get("_condition")
        if condition is None:
            lock = threading.RLock()
            with lock:
                condition = attributes.setdefault("_condition", lock)
                if condition is lock:
                    self._result = value
                    self._state = _FINISHED
                    return
        with condition:
            if self._state not in (_PENDING, _RUNNING):
                return
            self._result = value
            self._state = _FINISHED
            for waiter in attributes.get("_waiters", ()):
                waiter.add_result(self)
            condition.notify_all()
        if "_done_callbacks" in attributes:
            self._invoke_callbacks()

    def fail(self, error: BaseException) -> None:
        """Do as `set_exception` does; a future that has ended already stays as it is."""
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)

    def result(self, timeout: float | None = None) -> Any:
        if self._state == _FINISHED and self._exception is None:
            return self._result
        attributes = self.__dict__
        if "_condition" not in attributes:  # not by __getattr__, which takes longer
            attributes.setdefault("_condition", threading.Condition())
        try:
            return super().result(timeout)
        finally:
            self = None  # type: ignore[assignment]  # as the base class does: no cycle through the traceback

    def done(self) -> bool:
        return self._state == _FINISHED or super().done()
