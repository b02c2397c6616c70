"""What workers send back: read from their rings under the engine's lock, then given to futures without it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from typing import Any, Final

from shmjet._native import Codec
from shmjet.pool import layout as records
from shmjet.pool.crew import Crewman, Task
from shmjet.pool.dispatching import Dispatcher
from shmjet.pool.functions import Function
from shmjet.pool.layout import HEAD
from shmjet.pool.payload import from_file, from_record

_FRAME: Final = 256

Done = list[tuple[Task, int, Any]]
"""Tasks with the kind of the answer and what it brought."""


class Results:
    """Reads answers of workers.

    Args:
        dispatcher: told of tasks that have ended.
        on_not_up: told of an initializer that raised, with its traceback.
    """

    def __init__(self, dispatcher: Dispatcher, on_not_up: Callable[[str], None]) -> None:
        self._dispatcher = dispatcher
        self._on_not_up = on_not_up
        self._codec = Codec()

    def read(self, man: Crewman, done: Done) -> None:
        """Take all answers of one worker."""
        while (record := man.results.pull(self._codec, _FRAME)) is not None:
            if type(record) is list:
                self._read_values(man, record, done)
            else:
                self._read_one(man, record, done)
            man.suspect = False
        self._dispatcher.has_read(man)

    def _read_values(self, man: Crewman, rows: list[tuple[int, int, Any]], done: Done) -> None:
        """Take plain results, most of which are of one function."""
        inflight = man.inflight
        function: Function | None = None
        spent = count = 0
        load = 0.0
        for number, taken, value in rows:
            task = inflight.pop(number)
            if task.function is not function:
                if function is not None:
                    function.took(spent / count, count)
                function, spent, count = task.function, 0, 0
            spent += taken
            count += 1
            load += task.cost
            if task.in_file:
                man.files -= 1
                task.in_file = False
            done.append((task, records.KIND_VALUE, value))
        assert function is not None
        function.took(spent / count, count)
        man.load = man.load - load if inflight else 0.0

    def _read_one(self, man: Crewman, record: Any, done: Done) -> None:
        kind, _, _, _, payload = record
        number, _, taken, size = HEAD.unpack_from(payload)
        length = size or len(payload)
        try:
            if size:
                value = from_file(man.receive(), size)
            else:
                with payload[HEAD.size :] as body:
                    is_columns = kind == records.KIND_RESULTS
                    value = self._codec.decode(body, man.inflight[number].items) if is_columns else from_record(body)
        except BaseException as error:
            kind, value = records.KIND_BAD_ARGUMENTS, (error, "the result cannot be unpickled")
        payload.release()
        man.results.release()
        if kind == records.KIND_UP:
            man.up = True
        elif kind == records.KIND_NOT_UP:
            self._on_not_up(value)
        elif kind == records.KIND_RETIRED:
            man.retired = True
        else:
            task = man.inflight.pop(number)
            function = task.function
            assert function is not None
            if task.columns is not None and kind in (records.KIND_VALUE, records.KIND_RESULTS):
                function.item_bytes = max(function.item_bytes, length / task.items)
            function.took(taken / task.items)
            self._dispatcher.settle(man, task)
            done.append((task, kind, value))


class PartialChunk:
    """What a chunk of `map` gave before it raised."""

    __slots__ = ("error", "results")

    def __init__(self, results: list[Any], error: BaseException) -> None:
        self.results = results
        self.error = error


def resolve(task: Task, kind: int, value: Any) -> None:
    """Give a future what its worker has answered."""
    future = task.future
    if kind == records.KIND_VALUE:
        future.finish(value)
        return
    if kind == records.KIND_RESULTS:
        future.has_columns = True
        future.finish(value)
        return
    if kind == records.KIND_PARTIAL:
        results, error, text = value
        error.__cause__ = _remote(text)
        future.finish(PartialChunk(results, error))
        return
    error, text = value
    if kind == records.KIND_BAD_ARGUMENTS:
        name = type(error).__name__
        broken = BrokenProcessPool(f"a task's arguments or result could not be unpickled: {name}: {error}")
        broken.__cause__ = error
        future.fail(broken)
        return
    error.__cause__ = _remote(text)
    future.fail(error)


def fail(task: Task, error: BaseException | None) -> None:
    """Give a future the error for which its task has no result; None: it has been cancelled."""
    if error is None:
        task.future.drop()
    else:
        task.future.fail(error)


def _remote(text: str) -> BaseException:
    """Return what shows a worker's traceback above the exception."""
    return _RemoteTraceback(f'\n"""\n{text}"""')  # type: ignore[arg-type]
