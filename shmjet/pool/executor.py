"""`PoolExecutor`, the public class of a pool. `engine` does the work."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from shmjet.pool.placement import choose_cores, give_back

if TYPE_CHECKING:
    from shmjet.pool.engine import Engine

T = TypeVar("T")

_SPIN_NS: Final = 50_000
_executors: weakref.WeakSet[PoolExecutor] = weakref.WeakSet()
_keys = itertools.count()
_running: dict[int, Any] = {}
"""Engines that have not ended: the interpreter waits for them when it exits."""
_is_exiting = False


class PoolExecutor(Executor):
    """A pool of worker processes with the meaning of `concurrent.futures.ProcessPoolExecutor`, over shared memory.

    Workers are forked from a fresh interpreter when there is work for them, each pinned to a core; functions are sent
    to each once, by value when they have no importable name (so there is no need for an `if __name__ == "__main__"`);
    arrays travel through shared memory and arrive writable. A worker that dies fails the tasks that it ran with
    `BrokenProcessPool`, and no others; the next task gets a new worker.

    Args:
        max_workers: most worker processes; by default one for each core that this process may use.
        initializer: called first in each worker, with `initargs`. When it raises, the pool is broken for good.
        initargs: its arguments.
        mp_context: accepted from code written for `ProcessPoolExecutor`, and ignored.
        max_tasks_per_child: tasks after which a worker is replaced by a new one; None: never.
        task_timeout: seconds that one task may run; then its worker is killed and the future raises `TimeoutError`. The
            initializer has as long; then the pool is broken.
        cores: the core of each worker; by default chosen as for an instance, away from those of this process' other
            pools.

    Raises:
        ValueError: `max_workers` or `max_tasks_per_child` is below 1, `task_timeout` not above 0.
        TypeError: `initializer` is not callable.
        ConfigError: this process may not use one of `cores`.

    Example:
        >>> with PoolExecutor(2) as pool:
        ...     pool.submit(pow, 2, 8).result(), list(pool.map(abs, [-1, 2]))
        (256, [1, 2])
    """

    def __init__(
        self,
        max_workers: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        mp_context: Any = None,
        max_tasks_per_child: int | None = None,
        task_timeout: float | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        if max_workers is not None and max_workers <= 0:
            raise ValueError(f"max_workers must be greater than 0, got {max_workers}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, got {initializer!r}")
        if max_tasks_per_child is not None:
            if not isinstance(max_tasks_per_child, int):
                raise TypeError(f"max_tasks_per_child must be an integer, got {max_tasks_per_child!r}")
            if max_tasks_per_child <= 0:
                raise ValueError(f"max_tasks_per_child must be >= 1, got {max_tasks_per_child}")
        if task_timeout is not None and task_timeout <= 0:
            raise ValueError(f"task_timeout must be above 0 s, got {task_timeout}")
        self._cores, self._can_spin = choose_cores(max_workers, cores)
        self._initializer = initializer
        self._initargs = initargs
        self._max_tasks_per_child = max_tasks_per_child
        self._task_timeout = task_timeout
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._abandoning: weakref.finalize[[Engine], PoolExecutor] | None = None
        self._is_shut_down = False
        _executors.add(self)

    @property
    def max_workers(self) -> int:
        """Most worker processes that there will be."""
        return len(self._cores)

    _max_workers = max_workers
    """How dask asks for it."""

    @property
    def is_usable(self) -> bool:
        """Whether it still takes tasks."""
        engine = self._engine
        return not self._is_shut_down and (engine is None or engine.broken is None)

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """The process ids of the current workers, without workers that are just being started."""
        engine = self._engine
        return () if engine is None else engine.pids

    # -- tasks -------------------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a worker call `fn(*args, **kwargs)`; returns the future of its result.

        Raises:
            BrokenProcessPool: workers cannot be started.
            RuntimeError: the pool has been shut down.

        Example:
            >>> with PoolExecutor(1) as pool:
            ...     pool.submit(divmod, 7, 2).result()
            (3, 1)
        """
        engine = self._engine
        if engine is None or self._is_shut_down or _is_exiting:
            engine = self._running_engine()
        return engine.submit(fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Call `fn` with the items of the iterables, as `map` does, in the workers; results come in order.

        Items are taken from the iterables as results are taken from the iterator, a bounded number ahead: they may be
        endless. Dropping the iterator cancels what has not begun.

        Args:
            fn: called with one item of each iterable.
            iterables: one or several; the shortest ends the map.
            timeout: seconds from this call within which each result must be there.
            chunksize: items that travel together; by default chosen by measuring, for about 4 ms of work.
            buffersize: items that may be ahead of the iterator; by default a few chunks for each worker.

        Raises:
            ValueError: `chunksize` or `buffersize` is below 1.
            TimeoutError: from the iterator, when a result is late.
        """
        from shmjet.pool.chunked_map import ordered

        return ordered(self._running_engine(), fn, iterables, timeout, chunksize, buffersize, self.max_workers)

    def imap_unordered(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Do as `map` does, but give each result as soon as it is there, in any order.

        Args:
            fn, iterables, timeout, chunksize, buffersize: as for `map`.

        Raises:
            ValueError: `chunksize` or `buffersize` is below 1.
            TimeoutError: from the iterator, when a result is late.

        Example:
            >>> with PoolExecutor(2) as pool:
            ...     sorted(pool.imap_unordered(abs, [-1, 2]))
            [1, 2]
        """
        from shmjet.pool.chunked_map import unordered

        return unordered(self._running_engine(), fn, iterables, timeout, chunksize, buffersize, self.max_workers)

    def kill(self, future: Future[Any]) -> bool:
        """Kill the worker that runs a task, which then raises `BrokenProcessPool`; other tasks are not affected.

        Args:
            future: what `submit` returned.

        Returns False when the task is not with a worker: it has ended, or waits, and can be cancelled.
        """
        engine = self._engine
        return engine is not None and engine.kill(future)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a PoolExecutor cannot be sent to a worker, nor a function that refers to one; make another one inside the "
            "task, or submit what the task finds from here"
        )

    def __repr__(self) -> str:
        if self._is_shut_down:
            state = "shut down"
        elif not self.is_usable:
            state = "broken"
        else:
            state = f"{0 if self._engine is None else self._engine.workers} started"
        return f"<PoolExecutor of {self.max_workers} workers, {state}>"

    # -- the end -----------------------------------------------------------------------------------------------------

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; end the workers when all tasks have ended.

        Args:
            wait: return only then.
            cancel_futures: cancel the tasks that have not begun.
        """
        with self._lock:
            self._is_shut_down = True
            engine, abandoning = self._engine, self._abandoning
        if engine is not None:
            engine.close(cancel_futures)
            if abandoning is not None:
                abandoning.detach()  # it would hold the functions, and so perhaps this pool, for ever
            if wait:
                engine.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        """Do as `shutdown()`; after Ctrl-C end the workers, whatever they do, as `terminate_workers()` does."""
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.terminate_workers()
        self.shutdown()

    def kill_workers(self) -> None:
        """Kill all workers and shut down without waiting for anything; running tasks raise `BrokenProcessPool`."""
        self._signal_workers(signal.SIGKILL)

    def terminate_workers(self) -> None:
        """Do as `kill_workers` does with SIGTERM, which a task may handle."""
        self._signal_workers(signal.SIGTERM)

    def _signal_workers(self, number: int) -> None:
        engine = self._engine
        self.shutdown(wait=False, cancel_futures=True)
        if engine is not None:
            engine.signal_workers(number)

    def _running_engine(self) -> Engine:
        """Return the engine, started if it is not."""
        engine = self._engine
        if engine is not None and not self._is_shut_down and not _is_exiting:
            return engine
        with self._lock:
            if self._is_shut_down:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if _is_exiting:
                raise RuntimeError("cannot schedule new futures after interpreter shutdown")
            if self._engine is None:
                self._engine = self._start()
            return self._engine

    def _start(self) -> Engine:
        from shmjet.pool.engine import Engine

        cores = self._cores
        key = next(_keys)

        def ended() -> None:
            _running.pop(key, None)
            give_back(cores)

        engine = Engine(
            cores,
            _SPIN_NS if self._can_spin else 0,
            self._initializer,
            self._initargs,
            self._max_tasks_per_child,
            self._task_timeout,
            ended,
        )
        _running[key] = engine
        self._abandoning = weakref.finalize(self, Engine.abandon, engine)
        self._abandoning.atexit = False
        return engine

    def _after_fork(self) -> None:
        """Be a pool that has not started, in a child that the user has forked."""
        engine, self._engine = self._engine, None
        self._lock = threading.Lock()
        if engine is not None:
            _left.append(engine)  # kept: its memory may not be unmapped, its objects not be finalized here
            engine.leave()


_left: list[Any] = []


def _at_exit() -> None:
    """Wait for all tasks of all pools, as `concurrent.futures` does, before the interpreter ends.

    Where Ctrl-C has ended the program, which `sys.last_value` tells outside interactive sessions, it ends them.
    """
    global _is_exiting
    _is_exiting = True
    engines = list(_running.values())
    interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt) and not hasattr(sys, "ps1")
    for engine in engines:
        engine.abandon()
        if interrupted:
            engine.close(cancel=True)
            engine.signal_workers(signal.SIGTERM)
    for engine in engines:
        engine.join()


def _after_fork_in_child() -> None:
    _running.clear()
    for executor in list(_executors):
        executor._after_fork()


threading._register_atexit(_at_exit)  # type: ignore[attr-defined]
os.register_at_fork(after_in_child=_after_fork_in_child)
