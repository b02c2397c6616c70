"""Runs a pool in the client's process: what the executor calls, and the thread that collects results.

`submit` writes into a worker's ring itself when one has room, under the engine's lock, so that a task waits for no
other thread. One thread collects results; it sleeps on the client's doorbell, which workers ring and the fork server
too. User code (callbacks of futures) is called without the lock.

`dispatching` decides who gets what, `results` reads what comes back, `staff` has the processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

from shmjet._native import Doorbell, clock_ns
from shmjet.cluster.client.log_levels import levels
from shmjet.cluster.client.logs import LogReceiver
from shmjet.execution.foreign_errors import name_of, text_of
from shmjet.host.process_limits import lack_text
from shmjet.host.standard_descriptors import fill_standard_descriptors
from shmjet.pool.blocks import blocks
from shmjet.pool.dispatcher import STUCK_NS, Dispatcher, Failed
from shmjet.pool.functions import Functions
from shmjet.pool.future import TaskFuture, log_error
from shmjet.pool.layout import INITIALIZER, Layout
from shmjet.pool.results import Done, Results, fail, resolve
from shmjet.pool.worker import PoolSettings
from shmjet.pool.worker_handles import Task, WorkerHandle
from shmjet.pool.worker_pool import LOOK_NS, WorkerPool
from shmjet.ring.arena import Arena
from shmjet.ring.pickling import dumps_by_value

_IDLE_NS: Final = 10 * 10**9
"""How long the collector sleeps while nothing runs: a worker that is killed while it rings could lose a bell."""
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

        fill_standard_descriptors()

        prepared = None if initializer is None else b"".join(dumps_by_value((initializer, initargs)))
        authkey = bytes(multiprocessing.process.current_process().authkey)
        settings = pickle.dumps(PoolSettings(len(cores), spin_ns, prepared, authkey, most_tasks, list(sys.path)), 5)
        self.lock = threading.RLock()
        layout = Layout(len(cores))
        self._task_timeout_ns = None if task_timeout is None else int(task_timeout * 1e9)
        self._on_end = on_end
        self._arena = Arena.create(layout.size, label="pool")
        self._bell = Doorbell(self._arena.memory, 0)
        self._functions = Functions()
        self._closing = False
        self._ended = False
        self._heard = -1
        self._was_woken = False
        self._is_relaxed = False
        """Whether the collector sleeps without a look at those that work, because nobody did."""
        self._watched_from = 2 if task_timeout is None else 1
        """Tasks under way for which it has to look; one task without a limit of time can keep nobody waiting."""
        dispatcher = self._dispatcher = Dispatcher(len(cores), self._hire, self.function_of)
        self._results = Results(dispatcher, self._not_up)
        self._logs_seen = 0
        self._thread = threading.Thread(target=self._collect_forever, name="shmjet-pool")
        most = _MOST_STILLBORN if initializer is None else 1
        with contextlib.ExitStack() as undoing:
            undoing.callback(self._arena.close)
            try:
                ours, self._logs_of_workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                undoing.callback(self._logs_of_workers.close)
                undoing.callback(ours.close)
                self._logs = LogReceiver(ours, levels()[0])
                undoing.callback(self._logs.close)
                self._staff = WorkerPool(
                    cores,
                    self._arena,
                    layout,
                    self._bell,
                    settings,
                    most,
                    dispatcher,
                    self._results,
                    self._ring,
                    self._logs_of_workers,
                )
                undoing.callback(self._staff.dismiss)
                self._thread.start()
            except OSError as error:
                raise OSError(error.errno, f"no pool can be started: {lack_text(error)}") from error
            except RuntimeError as error:
                raise RuntimeError(f"no pool can be started: {lack_text(error)}") from error
            undoing.pop_all()

    @property
    def broken(self) -> str | None:
        """Why no task can run any more; None as long as they can."""
        return "the pool has ended" if self._ended and self._staff.broken is None else self._staff.broken

    # -- what the executor calls -------------------------------------------------------------------------------------

    def submit(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture:
        """Take a call on; returns its future. Raises BrokenProcessPool when no task can run any more."""
        task = Task(fn, args, kwargs)
        self.take(task)
        return task.future

    def take(self, task: Task) -> None:
        """Take a task on. Raises BrokenProcessPool when no task can run any more."""
        failed: Failed = []
        dispatcher = self._dispatcher
        with self.lock:
            if self._ended or self._staff.broken is not None:
                raise BrokenProcessPool(self.broken)
            dispatcher.submit(task, failed)
            if self._is_relaxed and (dispatcher.unwatched >= self._watched_from or self._staff.has_news):
                self._is_relaxed = False
                self._ring()
        _tell(failed)

    def function_of(self, fn: Any) -> Any:
        """Return what is known of a function; raises when it cannot be pickled."""
        with self.lock:
            function, forgotten = self._functions.find(fn)
            if forgotten:
                for man in self._dispatcher.crew.values():
                    man.forget(forgotten)
            return function

    def close(self, cancel: bool = False) -> None:
        """Let the collector end when all tasks have; with `cancel`, those that have not begun are cancelled."""
        with self.lock:
            dropped = self._dispatcher.cancel() if cancel else []
            self._closing = True
            self._ring()
        for task in dropped:
            task.future.cancel()
            task.future.drop()

    def abandon(self) -> None:
        """Close without the lock: called by the garbage collector, whoever holds it."""
        self._closing = True
        self._ring()

    def join(self) -> None:
        """Wait for the end that `close` asked for."""
        self._thread.join()

    def kill(self, future: Future[Any]) -> bool:
        """Kill the worker that runs a future's task; False when none does."""
        error = BrokenProcessPool("the task was killed by PoolExecutor.kill()")
        with self.lock:
            found = self._worker_with(future)
            if found is None:
                return False
            man, number = found
            if man.claims.running()[0] == number or not man.claims.revoke(number):
                man.excuses[number] = error
                man.kill(because="a task that it ran was killed by PoolExecutor.kill()")
                return True
            task = man.inflight.pop(number)  # it had not begun: its worker need not die for it
            self._dispatcher.settle(man, task)
            man.suspect = man.suspect or not man.inflight  # so that somebody sees when it may have more
            self._ring()
        fail(task, error)
        return True

    def _worker_with(self, future: Future[Any]) -> tuple[WorkerHandle, int] | None:
        for man in self._dispatcher.crew.values():
            for number, task in man.inflight.items():
                if task.future is future:
                    return man, number
        return None

    def signal_workers(self, number: int) -> None:
        """Send a signal to all workers; nobody takes the place of those that die of it."""
        with self.lock:
            self._staff.broken = self._staff.broken or "The workers of the process pool were killed."
            for man in self._dispatcher.crew.values():
                man.kill(number)

    @property
    def pids(self) -> tuple[int, ...]:
        """The workers' process ids; not of one that is just being forked."""
        with self.lock:
            return tuple(man.pid for man in self._dispatcher.crew.values() if man.pid > 0)

    @property
    def workers(self) -> int:
        """How many workers there are, those that are just being forked among them."""
        return len(self._dispatcher.crew)

    @property
    def is_alive(self) -> bool:
        """Whether the collector has not ended."""
        return not self._ended

    def leave(self) -> None:
        """Forget all of it in a forked child: the memory stays mapped but is not touched.

        Of one that has ended nothing is left, and its descriptors' numbers may be others' by now.
        """
        if self._ended:
            return
        self._staff.leave()
        self._logs.leave()
        self._logs_of_workers.close()
        os.close(self._arena.fd)

    def _ring(self) -> None:
        with contextlib.suppress(ValueError):  # it has just been closed: there is nobody to wake
            self._bell.post()

    def _hire(self) -> WorkerHandle | None:
        return self._staff.hire()

    def _not_up(self, text: str) -> None:
        logger.critical("Exception in initializer:\n%s", text)
        why = "A process in the process pool could not be initialized: its initializer raised an exception."
        self._staff.give_up(why)

    # -- the collector -----------------------------------------------------------------------------------------------

    def _collect_forever(self) -> None:
        try:
            while self._collect():
                pass
        except BaseException as error:  # a fault of this pool's: its users must not wait for ever
            log_error("the thread of a pool has failed, and with it the pool")
            with self.lock:
                self._staff.give_up(f"the pool's own thread has failed: {name_of(error)}: {text_of(error)}")
        finally:
            self._finish()

    def _collect(self) -> bool:
        """Do what there is to do, then sleep; False when all is over."""
        seen = self._bell.commands
        has_news = seen != self._heard or not self._was_woken
        self._heard = seen
        done: Done = []
        failed: Failed = []
        dispatcher = self._dispatcher
        try:
            with self.lock:
                for man in list(dispatcher.crew.values()):
                    if man.results.has_data:
                        self._results.read(man, done)
                if has_news:
                    self._staff.hear_news(done, failed)
                dispatcher.dispatch(failed)
                timeout = self._look_after()
                dispatcher.unwatched = 0
                self._is_relaxed = timeout == _IDLE_NS
                over = self._closing and not dispatcher.is_busy
                pollers = [man.poller for man in dispatcher.crew.values()]
        finally:
            self._hand_out_logs()
            _tell_quietly(done, failed)
        if over or (self._staff.broken is not None and not dispatcher.crew):
            return False
        del done, failed  # nothing may live here while this thread sleeps
        self._was_woken = self._bell.wait(pollers, seen, 0, timeout)
        return True

    def _hand_out_logs(self) -> None:
        """Give records of workers to this process' handlers, if there are any, before the results that follow them."""
        posted = self._bell.commands
        if posted != self._logs_seen:
            self._logs_seen = posted
            self._logs.drain()

    def _close_logs(self) -> None:
        self._logs_of_workers.close()
        self._logs.close()

    def _look_after(self) -> int:
        """Look for tasks that run too long or wait behind one that does; returns how long to sleep."""
        timeout = _IDLE_NS
        limit = self._task_timeout_ns
        dispatcher = self._dispatcher
        now = clock_ns()
        for man in dispatcher.crew.values():
            if not man.pid:
                timeout = min(timeout, LOOK_NS)
            if limit is not None and (man.inflight or not man.up):
                timeout = min(timeout, self._end_overdue(man, limit))
            if not man.inflight:
                if man.suspect:
                    if dispatcher.welcome(man):
                        return 0
                    timeout = min(timeout, LOOK_NS)
                continue
            timeout = min(timeout, LOOK_NS)
            if dispatcher.rescue(man, now):
                return 0
            if now - man.still_since > LOOK_NS and not man.runs_a_task:
                man.still_since = now
                man.bell.ring()  # for a wake-up that was lost
            if dispatcher.may_rescue(man):
                timeout = min(timeout, STUCK_NS)
        return timeout

    @staticmethod
    def _end_overdue(man: WorkerHandle, limit: int) -> int:
        """Kill a worker whose task or initializer has run for longer than the limit; returns when to look again."""
        number, started = man.claims.running()
        left = started + limit - clock_ns() if number else limit
        if left > 0:
            return left
        too_long = f"ran for more than task_timeout={limit / 1e9:g} s"
        if number == INITIALIZER:
            man.kill(because=f"its initializer {too_long}")
        elif number in man.inflight and number not in man.excuses:
            man.excuses[number] = TaskTimeout(f"the task {too_long}")
            man.kill(because=f"a task {too_long}")
        return LOOK_NS

    def _finish(self) -> None:
        """End the workers, then the server, then let go of everything."""
        left: list[Task] = []
        try:
            with self.lock:
                why = self._staff.broken or "the pool has ended"
                left = self._dispatcher.drop_all()
                try:
                    self._staff.dismiss()
                finally:
                    self._dispatcher.clear()
                    self._ended = True
                    self._bell.close()
                    self._arena.close()
        finally:
            self._close_logs()
            _tell_quietly([], [(task, BrokenProcessPool(why) if task.begin() else None) for task in left])
            blocks.trim()
            self._on_end()


def _tell(failed: Failed) -> None:
    """Give all these futures their errors; what a callback raises that is no `Exception` is raised after the last."""
    raised: BaseException | None = None
    for task, error in failed:
        try:
            fail(task, error)
        except BaseException as found:
            raised = found
    if raised is not None:
        raise raised


def _tell_quietly(done: Done, failed: Failed) -> None:
    """Give futures what has become of their tasks. What their callbacks raise has been logged, and stays here."""
    for task, kind, content in done:
        with contextlib.suppress(BaseException):
            resolve(task, kind, content)
    for task, error in failed:
        with contextlib.suppress(BaseException):
            fail(task, error)
