"""A client's readers of observables: what they have been sent, and the requests for more.

A reader asks for the next items when it takes the last ones, so it has at most two answers in memory, and misses what
the observable does not keep any longer. News arrive in the thread that reads what the member says; readers take them in
threads of their own. Must not know: what readers do with items.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import msgspec

from shmjet.cluster.observable_messages import (
    OLDEST,
    JobEnd,
    LeaveObservable,
    Observed,
    ObservedFrame,
    ReadObservable,
)
from shmjet.cluster.protocol import Refused
from shmjet.data import errors
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.ring import pickling

Ask = Callable[[Callable[[int], Any]], Any]
"""Sends a request, made from its number, and returns the reply."""
Post = Callable[[Callable[[int], Any]], "Future[Any]"]
"""Sends a request, made from its number; the future brings the reply."""


class Missed(msgspec.Struct, frozen=True):
    """So many items came and went while the reader was busy."""

    count: int


class Lost(msgspec.Struct, frozen=True):
    """What was kept is lost with the member that kept it; jobs write on."""

    text: str


class Destroyed:
    """The observable is gone."""


Event = list[Any] | JobEnd | Missed | Lost | Destroyed | ShmjetError
"""What a reader meets, in order: items, the end of a job, or why something is missing or nothing more comes."""


class Subscription:
    """One reader of an observable. `events` and `wait` are for one thread.

    Args:
        number: of the reader at its client.
        name: of the observable.
        post: leads to the member.
        told: called in the reader's thread of the connection when there is something to take.
    """

    def __init__(self, number: int, name: str, post: Post, told: Callable[[], None] | None = None) -> None:
        self.number = number
        self.name = name
        self._post = post
        self._told = told
        self._changed = threading.Condition()
        self._arrived: deque[tuple[ObservedFrame, int] | Event] = deque()
        """A frame comes with the number of its items to skip."""
        self._store = self._ring = 0
        self._next = OLDEST
        self._has_asked = True  # `Subscriptions.open` does
        self._is_over = False

    def request(self, number: int) -> ReadObservable:
        """Return the request for what comes next."""
        return ReadObservable(number, self.number, self.name, self._next, self._store, self._ring)

    # -- for its reader -------------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """Return what has come, and have more sent. Raises what items cannot be unpickled with."""
        with self._changed:
            arrived, self._arrived = self._arrived, deque()
        if arrived:
            self.ask()
        return [_items(*each) if isinstance(each, tuple) else each for each in arrived]

    def wait(self) -> None:
        """Wait until something has come."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived)

    def ask(self, *, again: bool = False) -> None:
        """Ask for what comes next, unless that has been done.

        Args:
            again: the request may have been lost, or the answer to it.
        """
        with self._changed:
            if self._is_over or (self._has_asked and not again) or (again and not self._has_asked):
                return
            self._has_asked = True
        try:
            self._post(self.request).add_done_callback(self._answered)
        except ShmjetError as error:
            self.fail(error)

    def _answered(self, reply: Future[Any]) -> None:
        error = reply.exception()
        if error is None and isinstance(reply.result(), Refused):
            refused: Refused = reply.result()
            error = getattr(errors, refused.error, ShmjetError)(refused.text)
        if isinstance(error, ShmjetError):
            self.fail(error)

    def leave(self) -> None:
        """Want nothing more."""
        with self._changed:
            self._is_over = True
            self._arrived.clear()
        with contextlib.suppress(ShmjetError):
            self._post(lambda number: LeaveObservable(number, self.number))

    # -- for the connection ---------------------------------------------------------------------------------------

    def fail(self, error: ShmjetError, *, is_over: bool = False) -> None:
        """Have the reader meet an error. With `is_over` nothing follows it."""
        with self._changed:
            if self._is_over:
                return
            self._is_over = is_over
            self._arrived.append(error)
            self._changed.notify_all()
        self._tell()

    def take(self, news: Observed) -> None:
        """Take what was sent; it may overlap with what has come before, as requests are repeated."""
        with self._changed:
            if self._is_over:
                return
            self._has_asked = False
            had = len(self._arrived)
            if not news.store:
                self._is_over = True
                self._arrived.append(Destroyed())
            else:
                self._append(news)
            has_more = len(self._arrived) > had
            self._changed.notify_all()
        if has_more:
            self._tell()
        else:
            self.ask()

    def _append(self, news: Observed) -> None:
        if self._store not in (0, news.store):
            text = f"the member that kept observable {self.name!r} is gone, and what it had of it"
            self._arrived.append(Lost(text) if news.is_written else MemberLostError(text))
            self._next = OLDEST
        self._store, self._ring = news.store, news.ring
        first, skip = news.sequence, news.skip
        if self._next == OLDEST:
            self._next = first + skip
        elif first + skip > self._next:
            self._arrived.append(Missed(first + skip - self._next))
        for frame in news.frames:
            skip = max(skip, self._next - first, 0)
            first += frame.count
            if skip < frame.count:
                self._next = first
                self._arrived.append((frame, skip) if frame.end is None else frame.end)
            skip = 0

    def _tell(self) -> None:
        if self._told is not None:
            self._told()


def _items(frame: ObservedFrame, skip: int) -> list[Any]:
    items: list[Any] = pickling.loads(frame.items)
    return items[skip:] if skip else items


class Subscriptions:
    """All readers of a client.

    Args:
        ask: leads to the member, and waits for the answer.
        post: leads to the member.
    """

    def __init__(self, ask: Ask, post: Post) -> None:
        self._ask = ask
        self._post = post
        self._numbers = itertools.count(1)
        self._all: weakref.WeakValueDictionary[int, Subscription] = weakref.WeakValueDictionary()
        self._forgotten: deque[int] = deque()
        """Readers that ended without a word, mostly in the garbage collector, where nothing can be sent."""
        self._lock = threading.Lock()
        self._closed: ShmjetError | None = None

    def open(self, name: str, told: Callable[[], None] | None = None) -> Subscription:
        """Return a new reader of an observable, which gets what is kept of it and all that comes.

        It is forgotten when nothing refers to it.

        Args:
            name: of the observable.
            told: called whenever there is something to take, in a thread that must not be held up.

        Raises:
            ShmjetError: there is no member, or this instance has been shut down.
        """
        with self._lock:
            if self._closed is not None:
                raise self._closed
            subscription = Subscription(next(self._numbers), name, self._post, told)
            self._all[subscription.number] = subscription
        weakref.finalize(subscription, self._forgotten.append, subscription.number).atexit = False
        while self._forgotten:
            with contextlib.suppress(IndexError):  # another thread had it
                self._post(partial(LeaveObservable, subscription=self._forgotten.popleft()))
        self._ask(subscription.request)
        return subscription

    def take(self, news: Observed) -> None:
        """Hand what was sent to its reader."""
        subscription = self._all.get(news.subscription)
        if subscription is not None:
            subscription.take(news)

    def again(self) -> None:
        """Repeat the requests that have not been answered: they, or their answers, may be lost."""
        for subscription in list(self._all.values()):
            subscription.ask(again=True)

    def close(self, error: ShmjetError) -> None:
        """Have all readers meet an error, and take no others. Called again, this changes nothing."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = error
        for subscription in list(self._all.values()):
            subscription.fail(error, is_over=True)
