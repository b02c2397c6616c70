"""A worker of a pool: takes tasks from one ring, runs those not revoked, and puts their results into another ring.

One thread. A result is written before the next task begins, so that no result waits here for a long task. The worker
sleeps on its doorbell when there is nothing to do; the kernel kills it when the client is gone.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections.abc import Callable
from typing import Any, Final

from shmjet._native import Claims, Codec, Doorbell, Poller, RingConsumer, RingProducer
from shmjet.execution.foreign_errors import attempt, is_exception, name_of, text_of, traceback_text
from shmjet.host.memory_reserve import hold_reserve, release_reserve
from shmjet.pool import layout as records
from shmjet.pool.initializer_globals import WorkerGlobals
from shmjet.pool.layout import CELLS, HEAD, INITIALIZER, Layout
from shmjet.pool.payload import PLAIN, from_file, from_record, size_of, to_file
from shmjet.ring.frames import KIND_DONE
from shmjet.ring.pickling import Buffer, dumps_by_value, loads

_LOOK_AGAIN_NS: Final = 3600 * 10**9
_FRAME: Final = 64


class PoolSettings:
    """The settings of all workers of a pool, pickled once."""

    def __init__(
        self,
        workers: int,
        spin_ns: int,
        initializer: bytes | None,
        authkey: bytes,
        most_tasks: int | None,
        path: list[str],
    ) -> None:
        self.workers = workers
        self.spin_ns = spin_ns
        self.initializer = initializer
        self.authkey = authkey
        self.most_tasks = most_tasks
        self.path = path


class PoolWorker:
    """One worker.

    Args:
        index: its slot in the arena.
        memory: the pool's arena.
        sock: the socket to the client, for descriptors of large payloads.
        settings: pickled `PoolSettings`.
    """

    def __init__(self, index: int, memory: memoryview, sock: socket.socket, settings: bytes) -> None:
        self._settings: PoolSettings = pickle.loads(settings)
        slot = Layout(self._settings.workers).slot(index)
        client = self.client_bell = Doorbell(memory, 0)
        self._bell = Doorbell(memory, slot.doorbell)
        self._claims = Claims(memory, slot.claims, CELLS)
        self._tasks = RingConsumer(memory, slot.tasks, client)
        self._results = RingProducer(memory, slot.results, client)
        self._codec = Codec()
        self._out_codec = Codec()
        self._sock = sock
        self._functions: dict[int, Callable[..., Any]] = {}
        self._inputs = [Poller([self._tasks], [])]
        self._room = [Poller([], [self._results])]
        self._ran = 0
        self._called: Callable[..., Any] | None = None
        self._globals: WorkerGlobals | None = None

    def running(self) -> tuple[int, Callable[..., Any] | None]:
        """Return the number of the running task and what it calls; 0 and None when there is none."""
        number, _ = self._claims.running()
        return (number, self._called) if number not in (0, INITIALIZER) else (0, None)

    def run(self) -> None:
        """Run tasks until the client ends the worker, or until it has run as many as a worker may run."""
        settings = self._settings
        sys.path[:] = settings.path
        import multiprocessing.process  # so that managers' proxies can be unpickled, as in a child of multiprocessing

        multiprocessing.process.current_process().authkey = settings.authkey
        if settings.initializer is not None and not self._initialize(settings.initializer):
            return
        self._send(records.KIND_UP, 0, 0, os.getpid())
        pull, codec, bell = self._tasks.pull, self._codec, self._bell
        most = self._most = settings.most_tasks or sys.maxsize
        while self._ran < most:
            record = pull(codec, _FRAME)
            if record is None:
                hold_reserve()  # a task may have used it
                bell.wait(self._inputs, 0, settings.spin_ns, _LOOK_AGAIN_NS)
            elif type(record) is list:
                self._run_plain(record)
            elif record[0] == KIND_DONE and len(record) == 3:
                return
            else:
                self._run_record(record)
                self._called = None  # which may hold much
        self._send(records.KIND_RETIRED, 0, 0, None)

    def _initialize(self, pickled: bytes) -> bool:
        self._claims.take(INITIALIZER)  # it has as long as a task has
        try:
            initializer, arguments, names = loads(pickled)
            initializer(*arguments)
            self._globals = WorkerGlobals(initializer, names)
        except BaseException as error:
            self._send(records.KIND_NOT_UP, 0, 0, _text_of(error))
            return False
        self._claims.done()
        return True

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _run_plain(self, rows: list[tuple[Any, ...]]) -> None:
        """Run tasks whose arguments came as columns. Each result is sent before the next task begins."""
        take, end, functions = self._claims.take, self._claims.done, self._functions
        push, codec = self._results.push, self._out_codec
        for number, known, *arguments in rows:
            if self._ran >= self._most:  # the client gives the tasks left to other workers
                return
            if not take(number):
                continue
            self._ran += 1
            called = self._called = functions[known]
            try:
                value = called(*arguments)
            except BaseException as error:
                self._fail(number, error)
                continue
            if type(value) not in PLAIN or push(codec, [(number, end(), value)], 0, 1) != 1:
                self._answer(number, value)

    def _run_record(self, record: Any) -> None:
        """Run a task whose arguments came pickled, or load a function."""
        kind, _, _, _, payload = record
        number, function, count, size = HEAD.unpack_from(payload)
        if kind == records.KIND_FORGET:
            self._give_back(payload)
            self._functions.pop(function, None)
            return
        is_mine = kind == records.KIND_FUNCTION or self._claims.take(number)
        content: Any = None
        bad: BaseException | None = None
        try:
            if size:
                fd = self._receive()
                self._give_back(payload)
                if is_mine:
                    content = from_file(fd, size)
                else:
                    os.close(fd)
            else:
                with payload[HEAD.size :] as body:
                    if not is_mine:
                        content = None
                    elif kind == records.KIND_ITEMS:
                        content = None, (self._codec.decode(body, count),)
                    else:
                        content = from_record(body)
        except BaseException as error:
            bad = error
        if not size:
            self._give_back(payload)
        if not is_mine:
            return
        if kind == records.KIND_FUNCTION:
            self._load_function(function, content, bad)
            return
        self._ran += 1
        if bad is not None:
            self._fail(number, bad, records.KIND_BAD_ARGUMENTS)
            return
        del payload, record
        try:
            if kind in (records.KIND_CHUNK, records.KIND_ITEMS):
                self._run_chunk(number, function, content)
                return
            arguments, keywords = content
            del content
            if function:
                called = self._called = self._functions[function]
            else:
                called, *arguments = arguments
                self._called = called
                if self._globals is not None:
                    self._globals.give(called)
            value = called(*arguments, **keywords)
            del called, arguments, keywords
        except BaseException as error:
            self._fail(number, error)
            return
        self._answer(number, value)

    def _run_chunk(self, number: int, function: int, content: tuple[Any, ...]) -> None:
        """Run a chunk of `map`; the results before an exception are sent with it."""
        fixed, columns = content
        del content
        results: list[Any] = []
        call = self._called = self._functions[function] if fixed is None else fixed
        if self._globals is not None and fixed is not None:
            self._globals.give(fixed)  # it comes with its own copy each time
        try:
            _call_with_all(call, columns, results)
        except BaseException as error:
            self._answer_partly(number, results, error)
            return
        del columns
        self._answer_chunk(number, results)

    def _answer_partly(self, number: int, results: list[Any], error: BaseException) -> None:
        """Send the results before an exception, and the exception."""
        try:
            error, text = loads(b"".join(_pickled_error(error)))
            parts = dumps_by_value((results, error, text))
        except BaseException as unpicklable:
            self._fail(number, unpicklable)
        else:
            self._put(records.KIND_PARTIAL, number, self._claims.done(), parts)

    def _answer_chunk(self, number: int, results: list[Any]) -> None:
        """Send a chunk's results, in columns if they are plain."""
        encoded = self._out_codec.encode(results, 0, len(results))
        if encoded is None or HEAD.size + len(encoded) > self._results.max_record:
            self._answer(number, results)
        else:
            self._put(records.KIND_RESULTS, number, self._claims.done(), [encoded])

    def _load_function(self, number: int, content: Any, bad: BaseException | None) -> None:
        if bad is not None:
            self._functions[number] = _Unusable(bad)
            return
        function, rebound, path = content
        if path is not None:
            sys.path[:] = path
        if function is None:
            return
        try:
            loaded = loads(function)
            if self._globals is not None:
                self._globals.give(loaded, rebound)
            self._functions[number] = loaded
        except ModuleNotFoundError as error:
            text = (
                f"{error.msg}: a task's function refers to it, and the workers cannot import it; extend sys.path, or "
                "call cloudpickle.register_pickle_by_value(module) before the task is submitted"
            )
            self._functions[number] = _Unusable(ModuleNotFoundError(text, name=error.name, path=error.path))
        except BaseException as error:
            self._functions[number] = _Unusable(error)

    # -- results -----------------------------------------------------------------------------------------------------

    def _answer(self, number: int, value: Any) -> None:
        if type(value) in PLAIN:
            frame = [(number, self._claims.done(), value)]
            while (accepted := self._results.push(self._out_codec, frame, 0, 1)) == 0:
                self._wait_for_room()
            if accepted == 1:
                return
        try:
            parts = dumps_by_value(value)
        except BaseException as error:
            self._fail(number, error)
        else:
            self._put(records.KIND_VALUE, number, self._claims.done(), parts)

    def _fail(self, number: int, error: BaseException, kind: int = records.KIND_ERROR) -> None:
        if not hold_reserve():
            release_reserve()  # to say so takes memory, too
        parts = _pickled_error(error)
        self._put(kind, number, self._claims.done(), parts)

    def _send(self, kind: int, number: int, taken: int, content: object) -> None:
        """Send a record; raises what pickling raises, before anything is written."""
        self._put(kind, number, taken, dumps_by_value(content))

    def _put(self, kind: int, number: int, taken: int, parts: list[Buffer]) -> None:
        size = size_of(parts)
        in_file = HEAD.size + size > self._results.max_record
        head = HEAD.pack(number, 0, taken, size if in_file else 0)
        if in_file:
            try:
                fd = to_file(parts)
            except OSError as error:  # no memory or no descriptor: the record of this error is small
                self._put(records.KIND_ERROR, number, taken, _pickled_error(error))
                return
            socket.send_fds(self._sock, [b"f"], [fd])
            os.close(fd)
            parts = []
        while not self._results.push_bytes(kind, 0, 0, 1, [head, *parts]):
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._bell.wait(self._room, 0, 0, _LOOK_AGAIN_NS)

    def _give_back(self, payload: memoryview) -> None:
        payload.release()
        self._tasks.release()

    def _receive(self) -> int:
        _, fds, _, _ = socket.recv_fds(self._sock, 1, 1)
        return fds[0]


def _call_with_all(call: Callable[..., Any], columns: tuple[Any, ...], results: list[Any]) -> None:
    """Call with each row of the columns. Not `map`: it would take the user's StopIteration for the end."""
    keep = results.append
    if len(columns) == 1:
        for item in columns[0]:
            keep(call(item))
    else:
        for row in zip(*columns, strict=True):
            keep(call(*row))


class _Unusable:
    """Takes the place of a function that could not be unpickled: every call raises the error."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise self._error


def _pickled_error(error: BaseException) -> list[Buffer]:
    """Return an exception with its traceback as a payload; an exception that cannot be pickled is sent as text."""
    text = _text_of(error)

    def pickled() -> list[Buffer]:
        parts = dumps_by_value((error, text))
        found = loads(b"".join(parts))[0]
        if not is_exception(found):
            raise TypeError(f"it unpickles to {name_of(found)}")
        return parts

    def in_words(broken: BaseException) -> list[Buffer]:
        plain = RuntimeError(f"{name_of(error)}: {text_of(error)}")
        why = f"{name_of(broken)}: {text_of(broken)}"
        return dumps_by_value((plain, f"{text}\n(the exception itself cannot be pickled: {why})"))

    return attempt(pickled, in_words)


def _text_of(error: BaseException) -> str:
    """Return the traceback as `concurrent.futures` words it, without the frames of this module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    return traceback_text(error, trace)
