"""Answers of workers: read from their rings under the engine's lock, then given to futures without it.

Nothing is unpickled here: unpickling runs code of the user, in the thread that asks a future for its outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from functools import partial
from typing import Any, Final

from shmjet._native import Codec
from shmjet.execution.foreign_errors import is_exception, name_of, set_cause, text_of
from shmjet.pool import layout as records
from shmjet.pool.dispatcher import Dispatcher
from shmjet.pool.functions import Function
from shmjet.pool.future import Outcome
from shmjet.pool.layout import HEAD
from shmjet.pool.payload import Load, kept_file, kept_record
from shmjet.pool.worker_handles import Task, WorkerHandle

_FRAME: Final = 256

logger = logging.getLogger("concurrent.futures")

Done = list[tuple[Task, int, Any]]
"""Tasks with the kind of the answer and its content: a value, results in columns, or a function that loads them."""


class Results:
    """Reads answers of workers.

    Args:
        dispatcher: is told which tasks have ended.
        on_not_up: called with the traceback of an initializer that raised.
    """

    def __init__(self, dispatcher: Dispatcher, on_not_up: Callable[[str], None]) -> None:
        self._dispatcher = dispatcher
        self._on_not_up = on_not_up
        self._codec = Codec()

    def read(self, worker: WorkerHandle, done: Done) -> None:
        """Take all answers of one worker. A worker whose memory cannot be read is killed, and not read again."""
        if worker.damage is not None:
            return
        try:
            while (record := worker.results.pull(self._codec, _FRAME)) is not None:
                if type(record) is list:
                    self._read_values(worker, record, done)
                else:
                    self._read_one(worker, record, done)
                worker.suspect = False
        except Exception as error:
            worker.damage = f"its results cannot be read ({type(error).__name__}: {error}); was its memory overwritten?"
            logger.exception("worker %d of a pool is killed: %s", worker.index, worker.damage)
            worker.kill(because=worker.damage)
            return
        self._dispatcher.has_read(worker)

    def _read_values(self, worker: WorkerHandle, rows: list[tuple[int, int, Any]], done: Done) -> None:
        """Take plain results, most of them of one function."""
        inflight = worker.inflight
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
                worker.files -= 1
                task.in_file = False
            done.append((task, records.KIND_VALUE, value))
        assert function is not None
        function.took(spent / count, count)
        worker.load = worker.load - load if inflight else 0.0

    def _read_one(self, worker: WorkerHandle, record: Any, done: Done) -> None:
        kind, _, _, _, payload = record
        number, _, taken, size = HEAD.unpack_from(payload)
        length = size or len(payload)
        content: Any = None
        try:
            if size:
                content = kept_file(worker.receive(), size)
            else:
                with payload[HEAD.size :] as body:
                    if kind == records.KIND_RESULTS:
                        content = self._codec.decode(body, worker.inflight[number].items)
                    elif len(body):
                        content = kept_record(body)
        except (OSError, MemoryError) as error:
            kind, content = records.KIND_BAD_ARGUMENTS, partial(_raise, error)
        payload.release()
        worker.results.release()
        if kind == records.KIND_UP:
            worker.up = True
            worker.forked_as(content())
        elif kind == records.KIND_NOT_UP:
            self._on_not_up(content())
        elif kind == records.KIND_RETIRED:
            worker.retired = True
        else:
            task = worker.inflight.pop(number)
            function = task.function
            assert function is not None
            if task.columns is not None and kind in (records.KIND_VALUE, records.KIND_RESULTS):
                function.item_bytes = max(function.item_bytes, length / task.items)
            function.took(taken / task.items)
            self._dispatcher.subtract_load(worker, task)
            done.append((task, PICKLED if kind == records.KIND_VALUE else kind, content))


PICKLED: Final = -1
"""The kind of a `KIND_VALUE` whose value is pickled; plain values keep `KIND_VALUE`."""


class PartialChunk:
    """The results of a chunk of `map` up to an error, and the error."""

    __slots__ = ("error", "results")

    def __init__(self, results: list[Any], error: BaseException) -> None:
        self.results = results
        self.error = error


def resolve(task: Task, kind: int, content: Any) -> None:
    """Give a future its worker's answer. Raises a `BaseException` of a callback that is not an `Exception`."""
    future = task.future
    if kind == records.KIND_VALUE:
        future.finish(content)
    elif kind == records.KIND_RESULTS:
        future.has_columns = True
        future.finish(content)
    else:
        failed = kind in (records.KIND_ERROR, records.KIND_BAD_ARGUMENTS)
        future.finish(None, partial(_outcome, kind, content), failed)


def fail(task: Task, error: BaseException | None) -> None:
    """Give a future the error of its task; None: the task has been cancelled.

    Raises a `BaseException` of a callback that is not an `Exception`.
    """
    if error is None:
        task.future.drop()
    else:
        task.future.fail(error)


def _outcome(kind: int, load: Load) -> Outcome:
    """Unpickle a worker's answer, in the thread that asked for it. Raises nothing but that thread's own Ctrl-C."""
    try:
        content = load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return None, _unreadable(error)
    if kind == PICKLED:
        return content, None
    if kind == records.KIND_PARTIAL:
        results, raised, text = content
        return PartialChunk(results, _with_remote_traceback(raised, text)), None
    raised, text = content
    if kind == records.KIND_BAD_ARGUMENTS:
        return None, _unreadable(raised)
    return None, _with_remote_traceback(raised, text)


def _unreadable(error: BaseException) -> BaseException:
    if not is_exception(error):
        error = TypeError(f"an exception was sent that unpickles to {type(error).__name__}")
    broken = BrokenProcessPool(
        f"a task's arguments or result could not be unpickled: {name_of(error)}: {text_of(error)}"
    )
    broken.__cause__ = error
    return broken


def _with_remote_traceback(error: Any, text: str) -> BaseException:
    """Return the exception with its worker's traceback as its cause, which is shown above it."""
    if not is_exception(error):
        error = RuntimeError(f"the task raised an exception that unpickles to {type(error).__name__}; see its cause")
    set_cause(error, _RemoteTraceback(f'\n"""\n{text}"""'))  # type: ignore[arg-type]
    found: BaseException = error
    return found


def _raise(error: BaseException) -> Any:
    raise error
