"""`map` over a pool: items in chunks whose size follows from their cost, a bounded number ahead of the results taken.

The first chunks have one item. The time and the bytes of an item decide how many make up `_CHUNK_NS` of work; a chunk
has at most four times as many items as the one before it, and never so many that the end of the input would be left to
one worker. Only the thread that takes results reads the iterables.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, Final

from shmjet.pool.engine import Engine
from shmjet.pool.future import TaskFuture
from shmjet.pool.results import PartialChunk
from shmjet.pool.worker_handles import Task

_CHUNK_NS: Final = 4e6
_LEAST_NS: Final = 3e5
"""Less work than this is not split for the sake of balance: a chunk by itself costs about 50 microseconds."""
_CHUNK_BYTES: Final = 256 << 10
_MOST_ITEMS: Final = 16384
_FASTER: Final = 4
"""A chunk may be larger than the one before it by this factor."""
_FIRST_KNOWN: Final = 256
"""Most items of the first chunk when the cost of the function is known."""
_AHEAD: Final = 4
"""Chunks per worker that are ahead of the iterator."""
_AT_ONCE: Final = 1024
"""Iterables of at most so many items are taken at once: all of them run even if the caller never reads the results."""


class _Chunker:
    """Cuts the input into chunks and submits as many of them as may be ahead."""

    def __init__(
        self,
        engine: Engine,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        chunksize: int | None,
        buffersize: int | None,
        workers: int,
    ) -> None:
        if chunksize is not None and chunksize < 1:
            raise ValueError(f"chunksize must be >= 1, got {chunksize}")
        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize must be None or >= 1, got {buffersize}")
        sizes = [len(iterable) for iterable in iterables if isinstance(iterable, Sized)]
        self._left = min(sizes) if len(sizes) == len(iterables) and sizes else None
        self._engine = engine
        self._fn = fn
        self._function = engine.function_of(fn)
        self._range = iterables[0] if len(iterables) == 1 and isinstance(iterables[0], range) else None
        self._items = [iter(iterable) for iterable in iterables]
        self._chunksize = chunksize
        self._buffersize = buffersize
        self._workers = workers
        self._last = 1 if self._function.estimate is None else _FIRST_KNOWN // _FASTER
        self._is_over = not iterables
        self._ahead_items = 0
        self._ahead = 0
        self.takes_all = buffersize is None and self._left is not None and self._left <= _AT_ONCE

    def fill(self) -> Iterator[TaskFuture]:
        """Submit chunks until enough are ahead; yields their futures."""
        while not self._is_over and (self.takes_all or self._may_go_on()):
            size = self._next_size()
            columns = self._cut(size)
            count = len(columns[0])
            if count < size:
                self._is_over = True
                if not count:
                    return
            task = Task(self._fn, (), {})
            task.columns, task.items = columns, count
            self._ahead += 1
            self._ahead_items += count
            task.future.items = count
            self._engine.take(task)
            yield task.future

    def took(self, future: TaskFuture) -> None:
        """Count a chunk as no longer ahead."""
        self._ahead -= 1
        self._ahead_items -= future.items

    def _may_go_on(self) -> bool:
        if self._buffersize is not None:
            return self._ahead_items < self._buffersize
        return self._ahead < _AHEAD * self._workers

    def _cut(self, size: int) -> tuple[Sequence[Any], ...]:
        if self._range is not None:  # travels as it is: the worker makes the numbers
            cut, self._range = self._range[:size], self._range[size:]
            return (cut,)
        if len(self._items) == 1:
            return (list(itertools.islice(self._items[0], size)),)
        rows = list(itertools.islice(zip(*self._items, strict=False), size))
        return tuple(map(list, zip(*rows, strict=True))) if rows else ([],)

    def _next_size(self) -> int:
        size = self._chunksize
        if size is None:
            size = self._measured_size()
            if self._left is not None:
                fair = self._left // (_AHEAD * self._workers)
                size = max(1, min(size, max(fair, self._items_in(_LEAST_NS))))
            self._last = size
        if self._buffersize is not None:
            size = max(1, min(size, self._buffersize - self._ahead_items))
        if self._left is not None:
            self._left -= size
        return size

    def _measured_size(self) -> int:
        size = min(self._items_in(_CHUNK_NS), _FASTER * self._last, _MOST_ITEMS)
        if self._function.item_bytes:
            size = min(size, int(_CHUNK_BYTES / self._function.item_bytes))
        return max(1, size)

    def _items_in(self, nanoseconds: float) -> int:
        """Return how many items take this long; 1 when that is not known."""
        item_ns = self._function.estimate
        return 1 if item_ns is None else int(nanoseconds / max(item_ns, 100.0))


def _results(future: TaskFuture, deadline: float | None) -> tuple[list[Any], BaseException | None]:
    """Return a chunk's results, and what it raised after them."""
    found = future.result(None if deadline is None else deadline - time.monotonic())
    return (found.results, found.error) if isinstance(found, PartialChunk) else (found, None)


def _items_of(future: TaskFuture, chunk: list[Any]) -> Iterable[Any]:
    """Return an iterable over a chunk's results; it keeps no reference to a result that it has returned.

    Results that came as columns are small and have no weak references; they stay until the chunk ends.
    """
    if future.has_columns:
        return chunk
    chunk.reverse()
    return itertools.starmap(chunk.pop, itertools.repeat((), len(chunk)))


class _Flat(itertools.chain[Any]):
    """The items of the lists that a generator yields, iterated in C; closing or dropping it ends the generator."""

    _lists: Iterator[Iterable[Any]]

    @classmethod
    def of(cls, lists: Iterator[Iterable[Any]]) -> _Flat:
        """Return an iterator over the items of `lists`."""
        flat: _Flat = cls.from_iterable(lists)  # type: ignore[assignment]
        flat._lists = lists
        return flat

    def close(self) -> None:
        """End the iterator, and cancel the tasks that have not begun."""
        self._lists.close()  # type: ignore[attr-defined]


def ordered(
    engine: Engine,
    fn: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    timeout: float | None,
    chunksize: int | None,
    buffersize: int | None,
    workers: int,
) -> Iterator[Any]:
    """Return the results in the order of the items; the first chunks have been submitted when this returns."""
    deadline = None if timeout is None else time.monotonic() + timeout
    chunker = _Chunker(engine, fn, iterables, chunksize, buffersize, workers)
    futures = deque(chunker.fill())

    def results() -> Iterator[Iterable[Any]]:
        try:
            while futures:
                chunk, error = _results(futures[0], deadline)
                future = futures.popleft()
                chunker.took(future)
                futures.extend(chunker.fill())
                yield _items_of(future, chunk)
                del future, chunk
                if error is not None:
                    raise error
        finally:
            _cancel(futures)

    return _Flat.of(results())


def unordered(
    engine: Engine,
    fn: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    timeout: float | None,
    chunksize: int | None,
    buffersize: int | None,
    workers: int,
) -> Iterator[Any]:
    """Return the results as they come; the first chunks have been submitted when this returns."""
    deadline = None if timeout is None else time.monotonic() + timeout
    chunker = _Chunker(engine, fn, iterables, chunksize, buffersize, workers)
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    waiting: set[TaskFuture] = set()

    def submit() -> None:
        for future in chunker.fill():
            waiting.add(future)
            future.add_done_callback(ready.put)

    submit()

    def results() -> Iterator[Iterable[Any]]:
        try:
            while waiting:
                try:
                    future = ready.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
                except queue.Empty:
                    raise TimeoutError from None
                waiting.discard(future)
                chunker.took(future)
                chunk, error = _results(future, None)
                submit()
                yield _items_of(future, chunk)
                del future, chunk
                if error is not None:
                    raise error
        finally:
            _cancel(waiting)

    return _Flat.of(results())


def _cancel(futures: Iterable[TaskFuture]) -> None:
    for future in futures:
        future.cancel()
