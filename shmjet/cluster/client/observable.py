"""`Observable`: the last items that jobs have written under a name, for any client, while the jobs run."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from uuid import UUID, uuid4

from shmjet.cluster.client.subscriptions import Ask, Destroyed, Event, Lost, Missed, Post, Subscription, Subscriptions
from shmjet.cluster.observable_messages import ConfigureObservable, DestroyObservable, JobEnd, Observed
from shmjet.core.checks import check_callable
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.execution.failure import to_exception
from shmjet.ipc.rate_limited_log import RateLimitedLog

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE_S = 2.0
"""How long the end of an instance waits for callbacks that are under way."""

logger = logging.getLogger("shmjet.client")


class Observable(Generic[T]):
    """What jobs write to `sinks.observable(name)`; made by `JetInstance.get_observable`.

    The cluster keeps the last items, 10,000 unless configured, with or without observers. Each iterator and each
    observer gets what is kept when it begins, and then all that comes, about a millisecond after it was written. If
    it is too slow it misses items: it goes on with the oldest items left, and a warning counts what it missed.
    At most 256 MiB of items are kept. They are lost with the member that keeps them, the oldest of the cluster: an
    observer's `on_error` gets a `MemberLostError`; an iteration goes on with a warning if a job writes on, and else
    raises it.

    Iterating ends with the job, and raises what it failed with (`CancelledError` when it was cancelled). Where several
    jobs write at the same time it ends with the last one. The end of a job is kept like an item: an iteration that
    begins later gives what is kept and ends, with the job that began last. Call `destroy` between two runs to have the
    items of the second one only.

    All methods may be called from any thread.

    Example:
        >>> prices = jet.get_observable("prices")                         # doctest: +SKIP
        >>> observer = prices.add_observer(print)                         # doctest: +SKIP
        >>> jet.new_job(pipeline).run()                                   # doctest: +SKIP
        >>> prices.remove_observer(observer)                              # doctest: +SKIP
    """

    def __init__(self, name: str, observers: Observers) -> None:
        self._name = name
        self._observers = observers

    @property
    def name(self) -> str:
        """The observable's name."""
        return self._name

    def __iter__(self) -> ObservableIterator[T]:
        """Iterate over what is kept and what comes, until the job ends; waits for items.

        Raises:
            JobFailedError, WorkerLostError, MemberLostError, CancelledError: how the job ended.
            ShmjetError: this instance was shut down.
        """
        return ObservableIterator(self._observers, self._observers.subscriptions.open(self._name))

    def add_observer(
        self,
        on_next: Callable[[T], Any],
        on_error: Callable[[BaseException], Any] | None = None,
        on_complete: Callable[[], Any] | None = None,
    ) -> UUID:
        """Have functions called for each item and for the end of each job, in their order.

        All observers of an instance are called in one thread, so they must not block for long. What they raise is
        logged, and they are called again for the next item.

        Args:
            on_next: `on_next(item)`.
            on_error: `on_error(error)`, when a job that wrote to the observable has failed or was cancelled, or items
                were lost with a member.
            on_complete: `on_complete()`, when such a job has completed.

        Returns:
            what `remove_observer` takes.

        Raises:
            TypeError: something cannot be called.
            ShmjetError: there is no member, or this instance was shut down.
        """
        for what, fn in (("on_next", on_next), ("on_error", on_error), ("on_complete", on_complete)):
            if fn is not None or what == "on_next":
                check_callable(f"add_observer: {what}", fn, TypeError)
        return self._observers.add(self._name, on_next, on_error, on_complete)

    def remove_observer(self, observer: UUID) -> None:
        """Call the functions of an observer no more; a call under way goes on.

        Args:
            observer: as returned by `add_observer`.

        Raises:
            ValueError: there is no such observer; it was removed before, or the observable was destroyed.
        """
        self._observers.remove(self._name, observer)

    def to_future(self, fn: Callable[[Iterable[T]], R]) -> Future[R]:
        """Have a function iterate in a thread of its own.

        Args:
            fn: `fn(items)`; what it returns is the future's result, and what it raises its exception. Iterating ends or
                raises as that of the observable does.

        Raises:
            TypeError: `fn` cannot be called.
            ShmjetError: there is no member, or this instance was shut down.

        Example:
            >>> total = jet.get_observable("prices").to_future(sum)       # doctest: +SKIP
            >>> jet.new_job(pipeline).run()                               # doctest: +SKIP
            >>> total.result()                                            # doctest: +SKIP
        """
        check_callable("to_future: fn", fn, TypeError)
        items = iter(self)
        future: Future[R] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                result = fn(items)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
            finally:
                items.close()

        self._observers.start_thread(run)
        return future

    def configure_capacity(self, capacity: int) -> Observable[T]:
        """Set how many items the cluster keeps; once, before a job or an observer uses the observable.

        Args:
            capacity: items, from 1 to 10,000,000.

        Returns:
            this observable.

        Raises:
            ConfigError: it is in use with another capacity, or the number is too large.
            TypeError, ValueError: the capacity is not an int, or below 1.
        """
        if not isinstance(capacity, int) or isinstance(capacity, bool):
            raise TypeError(f"configure_capacity: expected a number of items, got {capacity!r}")
        if not 1 <= capacity < 1 << 63:
            raise ValueError(f"configure_capacity: expected at least 1 item, got {capacity}")
        self._observers.ask(lambda number: ConfigureObservable(number, self._name, capacity))
        return self

    def destroy(self) -> None:
        """Remove what is kept, and its observers; iterating ends. A job that writes on makes the observable anew."""
        self._observers.ask(lambda number: DestroyObservable(number, self._name))

    def __repr__(self) -> str:
        return f"<Observable {self._name!r}>"


class ObservableIterator(Iterator[T]):
    """An iterator over the items of an observable, for one thread; see `Observable`.

    Args:
        observers: of the instance.
        subscription: from where items come.
    """

    def __init__(self, observers: Observers, subscription: Subscription) -> None:
        self._observers = observers
        self._subscription = subscription
        self._items: deque[T] = deque()
        self._events: deque[Event] = deque()
        self._has_ended = False
        self.missed = 0
        """Items that came and went before they were asked for."""

    def __iter__(self) -> ObservableIterator[T]:
        return self

    def __next__(self) -> T:
        """Return the next item; waits for it."""
        while not self._items:
            if self._has_ended:
                raise StopIteration
            if not self._events:
                self._subscription.wait()
                self._events.extend(self._subscription.events())
            while self._events and not self._items and not self._has_ended:
                self._meet(self._events.popleft())
        return self._items.popleft()

    def _meet(self, event: Event) -> None:
        match event:
            case list():
                self._items.extend(event)
            case Missed():
                self.missed += event.count
                self._observers.warn_of(self._subscription.name, event)
            case Lost():
                logger.warning("%s; items that had not been read are missing", event.text)
            case JobEnd() if event.is_old or (event.others and event.failure is None and not event.cancelled):
                pass  # another job writes, or has written
            case JobEnd() if event.failure is None and not event.cancelled:
                self.close()
            case JobEnd():
                self.close()
                raise self._observers.error_of(event)
            case Destroyed():
                self.close()
            case ShmjetError():
                self.close()
                raise event

    def close(self) -> None:
        """End it; what has been fetched is dropped."""
        if not self._has_ended:
            self._has_ended = True
            self._items.clear()
            self._subscription.leave()


class _Observer:
    """The functions of one observer."""

    def __init__(self, on_next: Any, on_error: Any, on_complete: Any) -> None:
        self.on_next = on_next
        self.on_error = on_error
        self.on_complete = on_complete
        self.is_removed = False
        self.subscription: Subscription | None = None


class Bell:
    """An observable of one item, by which processors anywhere tell a client that they have something for it.

    Args:
        observers: of the instance.
        name: of the observable.
        told: called in a thread that must not be held up, whenever it has been rung.
    """

    def __init__(self, observers: Observers, name: str, told: Callable[[], None]) -> None:
        self._observers = observers
        self._name = name
        self._told = told
        self._subscription: Subscription | None = None
        observers.ask(lambda number: ConfigureObservable(number, name, 1))
        self._subscription = observers.subscriptions.open(name, self._rung)
        self._rung()  # it may have been meanwhile

    def _rung(self) -> None:
        if self._subscription is not None and self._subscription.events():
            self._told()

    def close(self) -> None:
        """Remove it; does not wait."""
        if self._subscription is not None:
            self._subscription.leave()
            with contextlib.suppress(ShmjetError):
                self._observers.post(lambda number: DestroyObservable(number, self._name))


class Observers:
    """The observers of an instance: one thread calls them all.

    Args:
        ask: leads to the member, and waits for the answer.
        post: leads to the member.
        address: of the member, for errors.
    """

    def __init__(self, ask: Ask, post: Post, address: Callable[[], str]) -> None:
        self.ask = ask
        self.post = post
        self.subscriptions = Subscriptions(ask, post)
        self._address = address
        self._lock = threading.Lock()
        self._observers: dict[tuple[str, UUID], _Observer] = {}
        self._told: SimpleQueue[_Observer | None] = SimpleQueue()
        self._threads: set[threading.Thread] = set()
        self._caller: threading.Thread | None = None
        self._is_closed = False
        self._log = RateLimitedLog(logger)

    def add(self, name: str, on_next: Any, on_error: Any, on_complete: Any) -> UUID:
        """Add an observer; see `Observable.add_observer`."""
        observer, key = _Observer(on_next, on_error, on_complete), uuid4()
        observer.subscription = self.subscriptions.open(name, lambda: self._told.put(observer))
        with self._lock:
            if self._is_closed:
                return key
            self._observers[name, key] = observer
            start = self._caller is None
            if start:
                self._caller = threading.Thread(target=self._call_all, name="shmjet-observers", daemon=True)
        if start and self._caller is not None:
            self._caller.start()
        return key

    def remove(self, name: str, key: UUID) -> None:
        """Remove an observer. Raises ValueError where there is none."""
        with self._lock:
            observer = self._observers.pop((name, key), None)
        if observer is None:
            raise ValueError(f"observable {name!r} has no observer {key}")
        self._leave(observer)

    def start_thread(self, run: Callable[[], None]) -> None:
        """Run something that iterates in a thread."""

        def run_and_forget() -> None:
            try:
                run()
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run_and_forget, name="shmjet-observable", daemon=True)
        with self._lock:
            thread.start()
            self._threads.add(thread)

    def take(self, news: Observed) -> None:
        """Take what the member has sent."""
        self.subscriptions.take(news)

    def warn_of(self, name: str, missed: Missed) -> None:
        """Log that an observer was too slow."""
        text = "observable %r: an observer was too slow and missed %d items; see Observable.configure_capacity"
        self._log.warning(text, name, missed.count)

    def error_of(self, end: JobEnd) -> BaseException:
        """Return what a job has failed with."""
        if end.failure is None:
            return CancelledError(f"job {end.job!r} was cancelled")
        return to_exception(end.failure, member=self._address(), job=repr(end.job))

    def close(self, error: ShmjetError) -> None:
        """End all iterators with an error, and call no observer any more; may be called twice."""
        with self._lock:
            self._is_closed = True
            self._observers.clear()
            threads = {*self._threads, *([] if self._caller is None else [self._caller])}
        self.subscriptions.close(error)
        self._told.put(None)
        for thread in threads - {threading.current_thread()}:
            thread.join(_PATIENCE_S)

    # -- the thread of the observers ------------------------------------------------------------------------------

    def _call_all(self) -> None:
        while (observer := self._told.get()) is not None and not self._is_closed:
            try:
                events = observer.subscription.events() if observer.subscription is not None else []
            except Exception:
                logger.exception("items of an observable cannot be unpickled; an observer misses them")
                continue
            for event in events:
                if observer.is_removed or self._is_closed:
                    break
                self._call(observer, event)
            observer = events = event = None  # type: ignore[assignment]  # it may sleep for long

    def _call(self, observer: _Observer, event: Event) -> None:
        assert observer.subscription is not None
        name = observer.subscription.name
        match event:
            case list():
                for item in event:
                    if observer.is_removed or self._is_closed:
                        return
                    self._call_one(name, observer.on_next, item)
            case Missed():
                self.warn_of(name, event)
            case Lost():
                self._call_one(name, observer.on_error, MemberLostError(event.text))
            case JobEnd() if event.failure is None and not event.cancelled:
                self._call_one(name, observer.on_complete)
            case JobEnd():
                self._call_one(name, observer.on_error, self.error_of(event))
            case Destroyed():
                with self._lock:
                    for key in [key for key, known in self._observers.items() if known is observer]:
                        del self._observers[key]
                self._leave(observer)
            case ShmjetError():
                self._call_one(name, observer.on_error, event)

    def _call_one(self, name: str, fn: Callable[..., Any] | None, *arguments: Any) -> None:
        if fn is None:
            return
        try:
            fn(*arguments)
        except Exception as error:
            text = "observable %r: an observer (%s) raised %s: %s; it is called again for the next item"
            self._log.warning(text, name, getattr(fn, "__qualname__", fn), type(error).__name__, error)

    def _leave(self, observer: _Observer) -> None:
        observer.is_removed = True
        if observer.subscription is not None:
            observer.subscription.leave()
