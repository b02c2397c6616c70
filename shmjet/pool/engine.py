"""The engine of a pool in the client's process: what the executor calls, and the thread that collects results.

`submit` writes into a worker's ring itself when one has room, under the engine's lock, so that a task waits for no
other thread. One thread collects results; it sleeps on the client's doorbell, which the workers and the fork server
ring. User code (callbacks of futures) is called without the lock.

`dispatcher` assigns tasks to workers, `results` reads their answers, `worker_pool` has the processes.
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
from shmjet.pool.initializer_globals import InitializerGlobals
from shmjet.pool.layout import INITIALIZER, Layout
from shmjet.pool.results import Done, Results, fail, resolve
from shmjet.pool.worker import PoolSettings
from shmjet.pool.worker_handles import Task, WorkerHandle
from shmjet.pool.worker_pool import LOOK_NS, WorkerPool
from shmjet.ring.arena import Arena
from shmjet.ring.pickling import dumps_by_value

IDLE_NS: Final = 10 * 10**9
"""How long the collector sleeps while nothing runs: a worker that is killed while it rings could lose a bell."""
_MOST_FAILED_STARTS: Final = 3
"""Workers in a row that may die before they are ready; with an initializer only one, as the initializer is to blame."""

logger = logging.getLogger("concurrent.futures")


class TaskTimeout(TimeoutError):
    """A task ran for longer than `task_timeout`, and its worker was killed."""


class Engine:
    """A running pool.

    Args:
        cores: the core of each worker, None for a worker that is not pinned; as many as there may be workers.
        spin_ns: how long an idle worker polls before it sleeps.
        initializer, initargs: run in each worker first.
        most_tasks: tasks after which a worker is replaced; None: never.
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

        named = InitializerGlobals(initializer)
        prepared = None if initializer is None else b"".join(dumps_by_value((initializer, initargs, named.names)))
        authkey = bytes(multiprocessing.process.current_process().authkey)
        settings = pickle.dumps(PoolSettings(len(cores), spin_ns, prepared, authkey, most_tasks, list(sys.path)), 5)
        self.lock = threading.RLock()
        layout = Layout(len(cores))
        self._task_timeout_ns = None if task_timeout is None else int(task_timeout * 1e9)
        self._on_end = on_end
        self._arena = Arena.create(layout.size, label="pool")
        self._bell = Doorbell(self._arena.memory, 0)
        self._functions = Functions(named.rebound)
        self._closing = False
        self._ended = False
        self._heard = -1
        self._was_woken = False
        self._is_relaxed = False
        """Whether the collector sleeps without checks of the workers, because none had a task."""
        self._watched_from = 2 if task_timeout is None else 1
        """Tasks in flight from which on it has to check; a single task without a time limit delays no other."""
        dispatcher = self._dispatcher = Dispatcher(len(cores), self._start_worker, self.function_of)
        self._results = Results(dispatcher, self._not_up)
        self._logs_seen = 0
        self._thread = threading.Thread(target=self._collect_forever, name="shmjet-pool")
        most = _MOST_FAILED_STARTS if initializer is None else 1
        with contextlib.ExitStack() as undoing:
            undoing.callback(self._arena.close)
            try:
                ours, self._logs_of_workers = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                undoing.callback(self._logs_of_workers.close)
                undoing.callback(ours.close)
                self._logs = LogReceiver(ours, levels()[0])
                undoing.callback(self._logs.close)
                self._worker_pool = WorkerPool(
                    cores,
                    arena=self._arena,
                    layout=layout,
                    bell=self._bell,
                    settings=settings,
                    most_failed_starts=most,
                    dispatcher=dispatcher,
                    results=self._results,
                    ring=self._ring,
                    logs=self._logs_of_workers,
                )
                undoing.callback(self._worker_pool.shut_down)
                self._thread.start()
            except OSError as error:
                raise OSError(error.errno, f"no pool can be started: {lack_text(error)}") from error
            except RuntimeError as error:
                raise RuntimeError(f"no pool can be started: {lack_text(error)}") from error
            undoing.pop_all()

    @property
    def broken(self) -> str | None:
        """Why no task can run any more; None while tasks can run."""
        return "the pool has ended" if self._ended and self._worker_pool.broken is None else self._worker_pool.broken

    # -- what the executor calls -------------------------------------------------------------------------------------

    def submit(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TaskFuture:
        """Accept a call; returns its future. Raises BrokenProcessPool when no task can run any more."""
        task = Task(fn, args, kwargs)
        self.take(task)
        return task.future

    def take(self, task: Task) -> None:
        """Accept a task. Raises BrokenProcessPool when no task can run any more."""
        failed: Failed = []
        dispatcher = self._dispatcher
        with self.lock:
            if self._ended or self._worker_pool.broken is not None:
                raise BrokenProcessPool(self.broken)
            dispatcher.submit(task, failed)
            if self._is_relaxed and (dispatcher.unwatched >= self._watched_from or self._worker_pool.has_messages):
                self._is_relaxed = False
                self._ring()
        _fail_all(failed)

    def function_of(self, fn: Any) -> Any:
        """Return the `Function` of a callable; raises when it cannot be pickled."""
        with self.lock:
            function, forgotten = self._functions.find(fn)
            if forgotten:
                for worker in self._dispatcher.workers.values():
                    worker.forget(forgotten)
            return function

    def close(self, cancel: bool = False) -> None:
        """Let the collector end when all tasks have ended; with `cancel`, cancel the tasks that have not begun."""
        with self.lock:
            dropped = self._dispatcher.cancel() if cancel else []
            self._closing = True
            self._ring()
        for task in dropped:
            task.future.cancel()
            task.future.drop()

    def abandon(self) -> None:
        """Close without the lock: the garbage collector calls this, and any thread may hold it then."""
        self._closing = True
        self._ring()

    def join(self) -> None:
        """Wait until the collector has ended after `close`."""
        self._thread.join()

    def kill(self, future: Future[Any]) -> bool:
        """Kill the worker that runs a future's task; False when none does."""
        error = BrokenProcessPool("the task was killed by PoolExecutor.kill()")
        with self.lock:
            found = self._worker_with(future)
            if found is None:
                return False
            worker, number = found
            if worker.claims.running()[0] == number or not worker.claims.revoke(number):
                worker.kill_errors[number] = error
                worker.kill(because="a task that it ran was killed by PoolExecutor.kill()")
                return True
            task = worker.inflight.pop(number)  # it had not begun: its worker need not die for it
            self._dispatcher.subtract_load(worker, task)
            worker.suspect = worker.suspect or not worker.inflight  # so that the collector readmits it
            self._ring()
        fail(task, error)
        return True

    def _worker_with(self, future: Future[Any]) -> tuple[WorkerHandle, int] | None:
        for worker in self._dispatcher.workers.values():
            for number, task in worker.inflight.items():
                if task.future is future:
                    return worker, number
        return None

    def signal_workers(self, number: int) -> None:
        """Send a signal to all workers; a worker that dies of it is not replaced."""
        with self.lock:
            self._worker_pool.broken = self._worker_pool.broken or "The workers of the process pool were killed."
            for worker in self._dispatcher.workers.values():
                worker.kill(number)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the workers, without workers that are just being forked."""
        with self.lock:
            return tuple(worker.pid for worker in self._dispatcher.workers.values() if worker.pid > 0)

    @property
    def workers(self) -> int:
        """The number of workers, including workers that are just being forked."""
        return len(self._dispatcher.workers)

    @property
    def is_alive(self) -> bool:
        """Whether the collector has not ended."""
        return not self._ended

    def leave(self) -> None:
        """Forget the pool in a forked child: the memory stays mapped but is not touched.

        After the pool's end its descriptors are closed, and their numbers may have been reused.
        """
        if self._ended:
            return
        self._worker_pool.leave()
        self._logs.leave()
        self._logs_of_workers.close()
        os.close(self._arena.fd)

    def _ring(self) -> None:
        with contextlib.suppress(ValueError):  # it has just been closed: no thread sleeps on it
            self._bell.post()

    def _start_worker(self) -> WorkerHandle | None:
        return self._worker_pool.start_worker()

    def _not_up(self, text: str) -> None:
        logger.critical("Exception in initializer:\n%s", text)
        why = "A process in the process pool could not be initialized: its initializer raised an exception."
        self._worker_pool.mark_broken(why)

    # -- the collector -----------------------------------------------------------------------------------------------

    def _collect_forever(self) -> None:
        try:
            while self._collect():
                pass
        except BaseException as error:  # a fault of this pool's: its users must not wait for ever
            log_error("the thread of a pool has failed, and with it the pool")
            with self.lock:
                self._worker_pool.mark_broken(f"the pool's own thread has failed: {name_of(error)}: {text_of(error)}")
        finally:
            self._finish()

    def _collect(self) -> bool:
        """Read results, send tasks, then sleep; False when the pool has ended."""
        seen = self._bell.commands
        has_messages = seen != self._heard or not self._was_woken
        self._heard = seen
        done: Done = []
        failed: Failed = []
        dispatcher = self._dispatcher
        try:
            with self.lock:
                for worker in list(dispatcher.workers.values()):
                    if worker.results.has_data:
                        self._results.read(worker, done)
                if has_messages:
                    self._worker_pool.handle_messages(done, failed)
                dispatcher.dispatch(failed)
                timeout = self._check_workers()
                dispatcher.unwatched = 0
                self._is_relaxed = timeout == IDLE_NS
                over = self._closing and not dispatcher.is_busy
                pollers = [worker.poller for worker in dispatcher.workers.values()]
        finally:
            self._forward_logs()
            _resolve_all(done, failed)
        if over or (self._worker_pool.broken is not None and not dispatcher.workers):
            return False
        del done, failed  # nothing may live here while this thread sleeps
        self._was_woken = self._bell.wait(pollers, seen, 0, timeout)
        return True

    def _forward_logs(self) -> None:
        """Pass log records of workers to this process' handlers, before the results that follow them."""
        posted = self._bell.commands
        if posted != self._logs_seen:
            self._logs_seen = posted
            self._logs.drain()

    def _close_logs(self) -> None:
        self._logs_of_workers.close()
        self._logs.close()

    def _check_workers(self) -> int:
        """Look for tasks that run too long or wait for such a task; returns how long to sleep."""
        timeout = IDLE_NS
        limit = self._task_timeout_ns
        dispatcher = self._dispatcher
        now = clock_ns()
        for worker in dispatcher.workers.values():
            if not worker.pid:
                timeout = min(timeout, LOOK_NS)
            if limit is not None and (worker.inflight or not worker.up):
                timeout = min(timeout, self._kill_overdue(worker, limit))
            if not worker.inflight:
                if worker.suspect:
                    if dispatcher.readmit(worker):
                        return 0
                    timeout = min(timeout, LOOK_NS)
                continue
            timeout = min(timeout, LOOK_NS)
            if dispatcher.reclaim_stuck(worker, now):
                return 0
            if now - worker.still_since > LOOK_NS and not worker.runs_a_task:
                worker.still_since = now
                worker.bell.ring()  # for a wake-up that was lost
            if dispatcher.can_reclaim(worker):
                timeout = min(timeout, STUCK_NS)
        return timeout

    @staticmethod
    def _kill_overdue(worker: WorkerHandle, limit: int) -> int:
        """Kill a worker whose task or initializer has run for longer than the limit; returns when to look again."""
        number, started = worker.claims.running()
        left = started + limit - clock_ns() if number else limit
        if left > 0:
            return left
        too_long = f"ran for more than task_timeout={limit / 1e9:g} s"
        if number == INITIALIZER:
            worker.kill(because=f"its initializer {too_long}")
        elif number in worker.inflight and number not in worker.kill_errors:
            worker.kill_errors[number] = TaskTimeout(f"the task {too_long}")
            worker.kill(because=f"a task {too_long}")
        return LOOK_NS

    def _finish(self) -> None:
        """End the workers and the server, resolve the tasks left, and release all resources."""
        left: list[Task] = []
        try:
            with self.lock:
                why = self._worker_pool.broken or "the pool has ended"
                left = self._dispatcher.drop_all()
                try:
                    self._worker_pool.shut_down()
                finally:
                    self._dispatcher.clear()
                    self._ended = True
                    self._bell.close()
                    self._arena.close()
        finally:
            self._close_logs()
            _resolve_all([], [(task, BrokenProcessPool(why) if task.begin() else None) for task in left])
            blocks.trim()
            self._on_end()


def _fail_all(failed: Failed) -> None:
    """Give all these futures their errors; a `BaseException` of a callback is raised after the last."""
    raised: BaseException | None = None
    for task, error in failed:
        try:
            fail(task, error)
        except BaseException as found:
            raised = found
    if raised is not None:
        raise raised


def _resolve_all(done: Done, failed: Failed) -> None:
    """Resolve futures with the outcomes of their tasks. Errors of their callbacks have been logged, and stop here."""
    for task, kind, content in done:
        with contextlib.suppress(BaseException):
            resolve(task, kind, content)
    for task, error in failed:
        with contextlib.suppress(BaseException):
            fail(task, error)
