"""Runs a pool in the client's process: which task goes to which worker, and what becomes of its result.

`submit` writes into a worker's ring itself when one has room, under the engine's lock, so that a task waits for no
other thread. One thread collects results; it sleeps on the client's doorbell, which workers ring and the fork server
too. User code (callbacks of futures) is called without the lock.

How many tasks are with one worker follows from what they cost: one, as long as that is not known or more than
`_AHEAD_NS`; else as many as that time holds. What is there and has not begun can be taken back (`claims.h`), and is
when its worker dies or hangs while another has nothing to do; so being ahead never makes a task wait for a stuck one.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool, _RemoteTraceback
from typing import Any, Final

from shmjet._native import Codec, Doorbell, clock_ns
from shmjet.pool import layout as records
from shmjet.pool.crew import MOST_FILES, ChannelClosed, Crewman, Exited, Forked, Server, Task
from shmjet.pool.functions import Functions
from shmjet.pool.layout import CELLS, HEAD, Layout
from shmjet.pool.payload import from_file
from shmjet.pool.worker import PoolSettings
from shmjet.ring.arena import Arena
from shmjet.ring.pickling import dumps_by_value, loads

_AHEAD_NS: Final = 2e6
_OVERHEAD_NS: Final = 4e3
"""Added to what a task costs, so that tasks of no cost are not without number."""
_TINY_NS: Final = 15e3
_TINY_AHEAD_NS: Final = 4e5
"""So much of tasks that take less than waking somebody is given to a worker that is awake, even if another is idle."""
_UNKNOWN_NS: Final = 1e12
_MOST_AHEAD: Final = CELLS // 2
_LOOK_NS: Final = 10**9
"""How long the collector sleeps at most while tasks run: a worker that is killed while it rings could lose a bell."""
_IDLE_NS: Final = 3600 * 10**9
_STUCK_NS: Final = 2 * 10**6
"""A worker that ends nothing for so long, while another is idle, gets its waiting tasks taken back."""
_FRAME: Final = 256
_MOST_STILLBORN: Final = 3
"""Workers that may die one after the other before they are ready; one with an initializer, as it is to blame."""

logger = logging.getLogger("concurrent.futures")


class TaskTimeout(TimeoutError):
    """A task ran for longer than `task_timeout`, and its worker was killed."""


class Engine:
    """All of a pool that is running.

    Args:
        cores: the core of each worker, None for one that is not pinned; their number is the most there will be.
        spin_ns: how long an idle worker looks again before it sleeps.
        initializer, initargs: run in each worker first.
        most_tasks: after which a worker is replaced; None: never.
        task_timeout: seconds that one task may run; None: for ever.
        on_end: called by the collector when it has ended.
    """

    def __init__(
        self,
        cores: Sequence[int | None],
        spin_ns: int,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
        most_tasks: int | None,
        task_timeout: float | None,
        on_end: Callable[[], object],
    ) -> None:
        import multiprocessing.process
        import sys

        prepared = None if initializer is None else b"".join(dumps_by_value((initializer, initargs)))
        authkey = bytes(multiprocessing.process.current_process().authkey)
        self._settings = pickle.dumps(
            PoolSettings(len(cores), spin_ns, prepared, authkey, most_tasks, list(sys.path)), 5
        )
        self.lock = threading.RLock()
        self._cores = cores
        self._layout = Layout(len(cores))
        self._task_timeout_ns = None if task_timeout is None else int(task_timeout * 1e9)
        self._on_end = on_end
        self._arena = Arena.create(self._layout.size, label="pool")
        self._bell = Doorbell(self._arena.memory, 0)
        self._codec, self._result_codec = Codec(), Codec()
        self._functions = Functions()
        self._pending: deque[Task] = deque()
        self._crew: dict[int, Crewman] = {}
        self._idle: dict[Crewman, None] = {}
        self._open: deque[Crewman] = deque()
        self._tokens = itertools.count(1)
        self._server: Server | None = None
        self._stillborn = 0
        self._most_stillborn = _MOST_STILLBORN if initializer is None else 1
        self._closing = False
        self._ended = False
        self.broken: str | None = None
        self._thread = threading.Thread(target=self._collect_forever, name="shmjet-pool")
        try:
            self._server = Server(self._arena)
            self._thread.start()
        except BaseException:
            if self._server is not None:
                self._server.close()
            self._arena.close()
            raise

    # -- what the executor calls -------------------------------------------------------------------------------------

    def submit(self, task: Task) -> None:
        """Take a task on. Raises BrokenProcessPool when no task can run any more."""
        failed: list[tuple[Task, BaseException]] = []
        with self.lock:
            if self.broken is not None:
                raise BrokenProcessPool(self.broken)
            self._pending.append(task)
            if len(self._pending) == 1 or self._idle:
                self._dispatch(failed)
        for culprit, error in failed:
            _fail(culprit, error)

    def function_of(self, fn: Any) -> Any:
        """Return what is known of a function; raises when it cannot be pickled."""
        with self.lock:
            function, forgotten = self._functions.find(fn)
            if forgotten:
                for man in self._crew.values():
                    man.forget(forgotten)
            return function

    def close(self, cancel: bool = False) -> None:
        """Let the collector end when all tasks have; with `cancel`, those that have not begun are cancelled."""
        with self.lock:
            dropped = [task for task in self._pending if not task.begun] if cancel else []
            if cancel:
                self._pending = deque(task for task in self._pending if task.begun)
            self._closing = True
            self._ring()
        for task in dropped:
            task.future.cancel()
            task.future.set_running_or_notify_cancel()

    def abandon(self) -> None:
        """Close without the lock: called by the garbage collector, whoever holds it."""
        self._closing = True
        self._ring()

    def join(self) -> None:
        """Wait for the end that `close` asked for."""
        self._thread.join()

    def kill(self, future: Future[Any]) -> bool:
        """Kill the worker that runs a future's task; False when none does."""
        with self.lock:
            for man in self._crew.values():
                for number, task in man.inflight.items():
                    if task.future is future:
                        man.excuses[number] = BrokenProcessPool("the task was killed by PoolExecutor.kill()")
                        if man.claims.running()[0] == number:
                            man.kill()
                            return True
                        if man.claims.revoke(number):
                            del man.inflight[number]
                            self._settle(man, task)
                            error = man.excuses.pop(number)
                            break
                        man.kill()
                        return True
                else:
                    continue
                break
            else:
                return False
        _fail(task, error)
        return True

    def signal_workers(self, number: int) -> None:
        """Send a signal to all workers; nobody takes the place of those that die of it."""
        with self.lock:
            self.broken = self.broken or "The workers of the process pool were killed."
            for man in self._crew.values():
                man.kill(number)

    @property
    def pids(self) -> tuple[int, ...]:
        """The workers' process ids; of one that is just being forked, 0."""
        with self.lock:
            return tuple(man.pid for man in self._crew.values())

    @property
    def is_alive(self) -> bool:
        """Whether the collector has not ended."""
        return not self._ended

    def leave(self) -> None:
        """Forget all of it in a forked child: the memory stays mapped but is not touched."""
        if self._server is not None:
            self._server.leave()
        for man in self._crew.values():
            man.sock.close()
            man.other.close()
        os.close(self._arena.fd)

    def _ring(self) -> None:
        with contextlib.suppress(ValueError):  # it has just been closed: there is nobody to wake
            self._bell.post()

    # -- tasks to workers --------------------------------------------------------------------------------------------

    def _dispatch(self, failed: list[tuple[Task, BaseException]]) -> None:
        """Give pending tasks to workers as long as one has room. Holds the lock."""
        pending = self._pending
        while pending:
            task = pending[0]
            function = task.function
            if function is None:
                try:
                    function = task.function = self.function_of(task.fn)
                except BaseException as error:
                    pending.popleft()
                    if task.begun or task.future.set_running_or_notify_cancel():
                        failed.append((task, error))
                    continue
            estimate = function.estimate
            cost = _UNKNOWN_NS if estimate is None else estimate * task.items + _OVERHEAD_NS
            man = self._pick(cost)
            if man is None:
                return
            pending.popleft()
            if not task.begun:
                if not task.future.set_running_or_notify_cancel():
                    self._put_back(man)
                    continue
                task.begun = True
            try:
                sent = man.push(task)
            except BaseException as error:
                failed.append((task, error))
                self._put_back(man)
                continue
            if not sent:
                pending.appendleft(task)
                if not man.inflight:  # only a worker that is dead can be empty and have no room
                    return
                continue
            task.cost = cost
            man.load += cost
            if man.load < _AHEAD_NS and len(man.inflight) < _MOST_AHEAD:
                self._open.append(man)
                man.is_open = True

    def _pick(self, cost: float) -> Crewman | None:
        """Return a worker for a task of this cost: an idle one, a new one, or one with little to do."""
        if cost < _TINY_NS and self._open:  # waking another worker would cost more than it saves
            man = self._open[0]
            if man.inflight and man.load < _TINY_AHEAD_NS and not man.suspect and not man.retired:
                self._open.popleft()
                man.is_open = False
                return man
        if self._idle:
            return self._idle.popitem()[0]
        if len(self._crew) < len(self._cores):
            return self._hire()
        while self._open:
            man = self._open[0]
            if not man.inflight or man.load >= _AHEAD_NS or man.suspect or man.retired:
                self._open.popleft()
                man.is_open = False
                continue
            if man.load + cost > _AHEAD_NS or man.files >= MOST_FILES:
                return None
            self._open.popleft()
            man.is_open = False
            return man
        return None

    def _put_back(self, man: Crewman) -> None:
        if not man.inflight:
            self._idle[man] = None
        elif not man.is_open:
            self._open.append(man)
            man.is_open = True

    def _hire(self) -> Crewman | None:
        """Have one more worker forked."""
        index = next(i for i in range(len(self._cores)) if i not in self._crew)
        man = Crewman(index, next(self._tokens), self._arena, self._layout, self._codec, self._bell)
        try:
            if self._server is None:
                self._server = Server(self._arena)
            self._server.fork(man, self._cores[index], self._settings)
        except ChannelClosed:
            man.close()
            self._ring()  # the collector finds the server dead and starts another
            return None
        except BaseException:
            man.close()
            raise
        man.pid_deadline = time.monotonic() + _LOOK_NS / 1e9
        self._crew[index] = man
        return man

    def _take_back(self, man: Crewman) -> list[Task]:
        """Revoke what a worker has not begun; in order."""
        taken = []
        for number in [n for n in man.inflight if man.claims.revoke(n)]:
            task = man.inflight.pop(number)
            self._settle(man, task)
            taken.append(task)
        return taken

    @staticmethod
    def _settle(man: Crewman, task: Task) -> None:
        man.load = man.load - task.cost if man.inflight else 0.0
        man.files -= task.in_file
        task.in_file = False

    # -- results -----------------------------------------------------------------------------------------------------

    def _collect_forever(self) -> None:
        try:
            while self._collect():
                pass
        finally:
            self._finish()

    def _collect(self) -> bool:
        """Do what there is to do, then sleep; False when all is over."""
        seen = self._bell.commands
        done: list[tuple[Task, int, Any]] = []
        failed: list[tuple[Task, BaseException]] = []
        with self.lock:
            for man in list(self._crew.values()):
                if man.results.has_data:
                    self._read(man, done)
            self._hear_news(done, failed)
            self._dispatch(failed)
            timeout = self._look_after()
            over = self._closing and not self._pending and not any(man.inflight for man in self._crew.values())
            pollers = [man.poller for man in self._crew.values()]
        for task, kind, value in done:
            _resolve(task, kind, value)
        for task, error in failed:
            _fail(task, error)
        if over or (self.broken is not None and not self._crew):
            return False
        del done, failed
        task = value = error = None  # type: ignore[assignment]  # nothing may live here while this thread sleeps
        self._bell.wait(pollers, seen, 0, timeout)
        return True

    def _read(self, man: Crewman, done: list[tuple[Task, int, Any]]) -> None:
        """Take all results of one worker."""
        inflight = man.inflight
        while (record := man.results.pull(self._result_codec, _FRAME)) is not None:
            if type(record) is list:
                for number, taken, value in record:
                    task = inflight.pop(number)
                    assert task.function is not None
                    task.function.took(taken)
                    self._settle(man, task)
                    done.append((task, records.KIND_VALUE, value))
            else:
                self._read_one(man, record, done)
            man.progress += 1
            man.suspect = False
        if not inflight and not man.retired:
            self._idle[man] = None
        elif man.load < _AHEAD_NS and not man.is_open and inflight:
            self._open.append(man)
            man.is_open = True

    def _read_one(self, man: Crewman, record: Any, done: list[tuple[Task, int, Any]]) -> None:
        kind, _, _, _, payload = record
        number, _, taken, size = HEAD.unpack_from(payload)
        try:
            if size:
                value = from_file(man.receive(), size)
            else:
                with payload[HEAD.size :] as body:
                    value = loads(body)
        except BaseException as error:
            kind, value = records.KIND_BAD_ARGUMENTS, (error, "the result cannot be unpickled")
        payload.release()
        man.results.release()
        if kind == records.KIND_UP:
            man.up = True
        elif kind == records.KIND_NOT_UP:
            logger.critical("Exception in initializer:\n%s", value)
            self._break("A process in the process pool could not be initialized: its initializer raised an exception.")
        elif kind == records.KIND_RETIRED:
            man.retired = True
        else:
            task = man.inflight.pop(number)
            assert task.function is not None
            if kind == records.KIND_VALUE and task.columns is not None:
                task.function.item_bytes = max(task.function.item_bytes, (size or len(record)) / task.items)
            task.function.took(taken / task.items)
            self._settle(man, task)
            done.append((task, kind, value))

    def _look_after(self) -> int:
        """Look for tasks that run too long or wait behind one that does; returns how long to sleep."""
        timeout = _IDLE_NS
        has_idle = bool(self._idle)
        limit = self._task_timeout_ns
        for man in self._crew.values():
            if not man.pid:
                timeout = min(timeout, _LOOK_NS)
            if not man.inflight:
                continue
            timeout = min(timeout, _LOOK_NS)
            if has_idle and len(man.inflight) > 1:
                if man.progress == man.progress_seen:
                    man.suspect = True
                    self._pending.extendleft(reversed(self._take_back(man)))
                    return 0
                man.progress_seen = man.progress
                timeout = min(timeout, _STUCK_NS)
            if limit is not None:
                number, started = man.claims.running()
                left = started + limit - clock_ns() if number else limit
                if number in man.inflight and left <= 0 and number not in man.excuses:
                    seconds = limit / 1e9
                    man.excuses[number] = TaskTimeout(f"the task ran for more than task_timeout={seconds:g} s")
                    man.kill()
                elif left > 0:
                    timeout = min(timeout, left)
        return timeout

    # -- life and death of workers -----------------------------------------------------------------------------------

    def _hear_news(self, done: list[tuple[Task, int, Any]], failed: list[tuple[Task, BaseException]]) -> None:
        if self._server is None:
            return
        try:
            news = self._server.news()
        except ChannelClosed:
            self._server.close()
            self._server = None
            for man in list(self._crew.values()):
                self._bury(man, "the pool's fork server was killed", done, failed)
            return
        for message in news:
            if isinstance(message, Forked):
                for man in self._crew.values():
                    if man.token == message.token:
                        man.pid = message.pid
            else:
                for man in list(self._crew.values()):
                    if man.pid == message.pid:
                        self._bury(man, _how(message), done, failed)
        for man in list(self._crew.values()):
            if not man.pid and time.monotonic() > man.pid_deadline and _is_closed(man):
                self._bury(man, "it could not be forked", done, failed)

    def _bury(
        self, man: Crewman, how: str, done: list[tuple[Task, int, Any]], failed: list[tuple[Task, BaseException]]
    ) -> None:
        """Settle what a dead worker leaves: results that it wrote count, tasks that it had not begun go to others."""
        self._read(man, done)
        del self._crew[man.index]
        self._idle.pop(man, None)
        if man.is_open:
            self._open.remove(man)
        back = self._take_back(man)
        for number, task in man.inflight.items():
            error = man.excuses.get(number) or BrokenProcessPool(
                f"A process in the process pool was terminated abruptly while the future was running: {how}"
            )
            failed.append((task, error))
        man.inflight.clear()
        self._pending.extendleft(reversed(back))
        self._stillborn = 0 if man.up else self._stillborn + 1
        if self._stillborn >= self._most_stillborn and not man.retired and self.broken is None:
            self._break(f"A process in the process pool ended before it was ready: {how}")
        man.close()
        if self.broken is not None:
            failed += [(task, BrokenProcessPool(self.broken)) for task in back]
            self._pending.clear()

    def _break(self, why: str) -> None:
        """Give up: workers cannot start."""
        self.broken = why
        for man in self._crew.values():
            man.kill()

    def _finish(self) -> None:
        """End the workers, then the server, then let go of everything."""
        with self.lock:
            why = self.broken or "the pool has ended"
            left = [*self._pending, *(task for man in self._crew.values() for task in man.inflight.values())]
            self._pending.clear()
            for man in self._crew.values():
                man.end()
            deadline = time.monotonic() + 5.0
            while self._crew and self._server is not None and time.monotonic() < deadline:
                seen = self._bell.commands
                self._hear_news([], [])
                if self._crew:
                    self._bell.wait([], seen, 0, _LOOK_NS // 10)
            for man in self._crew.values():
                man.close()
            self._crew.clear()
            if self._server is not None:
                self._server.close()
            self._idle.clear()
            self._open.clear()
            self._ended = True
            if self.broken is None:
                self.broken = "the pool has ended"
            self._bell.close()
            self._arena.close()
        for task in left:
            if task.begun or task.future.set_running_or_notify_cancel():
                _fail(task, BrokenProcessPool(why))
        self._on_end()


def _resolve(task: Task, kind: int, value: Any) -> None:
    """Give a future what its worker has answered."""
    future = task.future
    if kind == records.KIND_VALUE:
        future.set_result(value)
        return
    if kind == records.KIND_PARTIAL:
        results, error, text = value
        error.__cause__ = _remote(text)
        future.set_result(PartialChunk(results, error))
        return
    error, text = value
    if kind == records.KIND_BAD_ARGUMENTS:
        name = type(error).__name__
        broken = BrokenProcessPool(f"a task's arguments or result could not be unpickled: {name}: {error}")
        broken.__cause__ = error
        future.set_exception(broken)
        return
    error.__cause__ = _remote(text)
    future.set_exception(error)


class PartialChunk:
    """What a chunk of `map` gave before it raised."""

    __slots__ = ("error", "results")

    def __init__(self, results: list[Any], error: BaseException) -> None:
        self.results = results
        self.error = error


def _remote(text: str) -> BaseException:
    """Return what shows a worker's traceback above the exception."""
    return _RemoteTraceback(f'\n"""\n{text}"""')  # type: ignore[arg-type]


def _fail(task: Task, error: BaseException) -> None:
    task.future.set_exception(error)


def _how(message: Exited) -> str:
    return f"killed by signal {-message.status}" if message.status < 0 else f"exit status {message.status}"


def _is_closed(man: Crewman) -> bool:
    """Whether the other end of a worker's socket is closed, though it was never said to have been forked."""
    try:
        return not man.sock.recv(1, 0x42)  # MSG_PEEK | MSG_DONTWAIT
    except BlockingIOError:
        return False
    except OSError:
        return True
