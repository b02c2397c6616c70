"""What a stream with event time must give, in plain Python: one event after the other, everything kept, nothing clever.

Written from the rules (Jet's `EventTimeMapper`, `SlidingWindowP`, `SessionWindowP`, the join of streams in the API
page), not from the processors. Two steps:

    events = Source(lag=2_000, stride=1_000).play(items)        # what a source makes of items: Event, Event, ...
    windows = sliding(events, size=5_000, slide=1_000)          # what stages make of events: Found(results, late)

`Event.watermark` is the last watermark in front of the event, None before the first. Tests that have several inputs, or
marks of their own, make events by hand. Results are lists of bare items by (start, end, key), which a test folds as its
operation does; the order of results is not said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Key = Callable[[Any], Any]
Windows = dict[tuple[int, int, Any], list[Any]]
"""Items, in order of arrival, by (start, end, key); the key is None without a key function."""


class Event(NamedTuple):
    """An event where it comes in."""

    timestamp: int
    item: Any
    watermark: int | None = None


class Found(NamedTuple):
    """What a stage makes of events."""

    results: Any
    late: list[Any]


# -- sources ---------------------------------------------------------------------------------------------------------


@dataclass
class _Partition:
    heard: int
    top: int | None = None
    mark: int | None = None


@dataclass
class Source:
    """The watermarks of one source processor, by Jet's rules, an event at a time.

    Args:
        lag, stride, idle_timeout: milliseconds; None: no partition is ever idle.
        partitions: how many there are.

    Example:
        >>> Source(lag=1, stride=10).play([18, 15, 25])
        [Event(timestamp=18, item=18, watermark=10), Event(timestamp=15, item=15, watermark=10), \
Event(timestamp=25, item=25, watermark=20)]
    """

    lag: int = 0
    stride: int = 1
    idle_timeout: int | None = None
    partitions: int = 1
    sent: list[Any] = field(default_factory=list)
    """All that was sent: ("watermark", timestamp), ("event", item) and ("idle",)."""

    def __post_init__(self) -> None:
        self._partitions = [_Partition(0) for _ in range(self.partitions)]
        self._last: int | None = None
        self._top: int | None = None
        self._all_idle = False

    def play(self, items: Iterable[Any], timestamp: Callable[[Any], int] = int, partition: int = 0) -> list[Event]:
        """Return the events of items that come one by one, at the time 0."""
        return [self.event(timestamp(item), item, partition, 0) for item in items]

    def event(self, timestamp: int, item: Any, partition: int, now: int) -> Event:
        """Take an event at a time in milliseconds."""
        one = self._partitions[partition]
        one.top = timestamp if one.top is None else max(one.top, timestamp)
        one.heard = now
        self._all_idle = False
        self._send(now, timestamp)
        self.sent.append(("event", item))
        return Event(timestamp, item, self._last)

    def silence(self, now: int) -> None:
        """Note that there is no event at a time in milliseconds."""
        self._send(now, None)

    def add(self, now: int) -> None:
        """Add a partition."""
        self._partitions.append(_Partition(now))

    def remove(self, partition: int, now: int) -> None:
        """Remove a partition."""
        del self._partitions[partition]
        self._send(now, None)

    def _send(self, now: int, most: int | None) -> None:
        active = [one for one in self._partitions if self.idle_timeout is None or now - one.heard < self.idle_timeout]
        for one in active:
            if one.top is not None:
                one.mark = one.top - self.lag
                self._top = one.mark if self._top is None else max(self._top, one.mark)
        if active:
            marks = [one.mark for one in active]
            due = None if None in marks else min(mark for mark in marks if mark is not None)
            becomes_idle = False
        else:
            due, becomes_idle = self._top, not self._all_idle
        if due is not None:
            due = due if most is None else min(due, most)
            due -= due % self.stride
            if self._last is None or due > self._last:
                self._last = due
                self.sent.append(("watermark", due))
        if becomes_idle:
            self.sent.append(("idle",))
        self._all_idle = not active


# -- windows ---------------------------------------------------------------------------------------------------------


def sliding(events: Iterable[Event], size: int, slide: int | None = None, key: Key | None = None) -> Found:
    """Return the windows `[start, end)` of size `size` that begin every `slide` (by default `size`), and late items.

    An item is late as soon as its frame, which is the slide that it is in, has ended, even if it belongs to windows
    that have not been emitted; then it is in none.

    Example:
        >>> sliding([Event(1, "a"), Event(12, "b", 10), Event(9, "c", 10)], size=20, slide=10)
        Found(results={(-10, 10, None): ['a'], (0, 20, None): ['a', 'b'], (10, 30, None): ['b']}, late=['c'])
    """
    slide = size if slide is None else slide
    results: Windows = {}
    late = []
    for timestamp, item, watermark in events:
        if watermark is not None and timestamp // slide < watermark // slide:
            late.append(item)
            continue
        end = timestamp // slide * slide + slide
        while end - size <= timestamp:
            results.setdefault((end - size, end, key(item) if key else None), []).append(item)
            end += slide
    return Found(results, late)


def emitted_by(watermark: int, results: Windows) -> Windows:
    """Return those sliding windows that have been emitted when a watermark has come."""
    return {where: items for where, items in results.items() if where[1] <= watermark}


def sessions(events: Iterable[Event], gap: int, key: Key | None = None) -> Found:
    """Return the sessions `[first, last + gap)` of each key, and late items.

    Items are in one session when their intervals `[t, t + gap)` overlap; touching is not enough. A session closes when
    a watermark is above its end. An item is late when it is below the watermark.

    Example:
        >>> sessions([Event(1, "a"), Event(11, "b"), Event(20, "c", 11), Event(30, "d", 12), Event(5, "e", 12)], gap=10)
        Found(results={(1, 11, None): ['a'], (11, 30, None): ['b', 'c'], (30, 40, None): ['d']}, late=['e'])
    """
    closed: Windows = {}
    open_ones: list[tuple[Any, list[tuple[int, Any]]]] = []
    late = []

    def close(below: int | None) -> None:
        for session in open_ones[:]:
            stamps = [timestamp for timestamp, _ in session[1]]
            if below is None or max(stamps) + gap < below:
                open_ones.remove(session)
                closed[min(stamps), max(stamps) + gap, session[0]] = [item for _, item in session[1]]

    for timestamp, item, watermark in events:
        if watermark is not None:
            close(watermark)
            if timestamp < watermark:
                late.append(item)
                continue
        of, members = (key(item) if key else None), [(timestamp, item)]
        for session in open_ones[:]:
            stamps = [stamp for stamp, _ in session[1]]
            if session[0] == of and min(stamps) < timestamp + gap and timestamp < max(stamps) + gap:
                open_ones.remove(session)
                members = session[1] + members
        open_ones.append((of, members))
    close(None)
    return Found(closed, late)


# -- states and joins ------------------------------------------------------------------------------------------------


def states(events: Iterable[Event], ttl: int, key: Key | None = None) -> Found:
    """Return the lives of states: (key, items that met the same state), in the order in which they begin; late items.

    A state goes when a watermark is more than `ttl` above its latest item; an item below the watermark is late.

    Example:
        >>> states([Event(1, "a"), Event(9, "b", 6), Event(30, "c", 20), Event(3, "d", 20)], ttl=5)
        Found(results=[(None, ['a', 'b']), (None, ['c'])], late=['d'])
    """
    lives: list[tuple[Any, list[Any]]] = []
    live: dict[Any, tuple[int, list[Any]]] = {}
    late = []
    for timestamp, item, watermark in events:
        if watermark is not None:
            live = {of: one for of, one in live.items() if one[0] >= watermark - ttl}
            if timestamp < watermark:
                late.append(item)
                continue
        of = key(item) if key else None
        touched, items = live.get(of, (timestamp, []))
        if not items:
            lives.append((of, items))
        items.append(item)
        live[of] = max(touched, timestamp), items
    return Found(lives, late)


def joined(
    left: Iterable[Event],
    right: Iterable[Event],
    within: int,
    key: Key,
    right_key: Key | None = None,
    how: str = "inner",
) -> Found:
    """Return the pairs (timestamp, left item, right item) of a join of streams, and late items.

    Two items match when their keys are equal and their times at most `within` apart; the later time is the result's.
    An item that is below the watermark is late; `Event.watermark` is here that of both inputs. In outer joins, items
    without a match come with None and their own time.

    Example:
        >>> joined([Event(5, "a1")], [Event(7, "a2"), Event(9, "a3")], within=2, key=lambda item: item[0], how="outer")
        Found(results=[(7, 'a1', 'a2'), (9, None, 'a3')], late=[])
    """
    sides = [list(left), list(right)]
    late = [e.item for side in sides for e in side if e.watermark is not None and e.timestamp < e.watermark]
    lefts, rights = ([e for e in side if e.watermark is None or e.timestamp >= e.watermark] for side in sides)
    key_of_right = right_key or key
    pairs = [
        (a, b)
        for a in lefts
        for b in rights
        if key(a.item) == key_of_right(b.item) and abs(a.timestamp - b.timestamp) <= within
    ]
    results = [(max(a.timestamp, b.timestamp), a.item, b.item) for a, b in pairs]
    if how in ("left", "outer"):
        results += [(a.timestamp, a.item, None) for a in lefts if not any(a is one for one, _ in pairs)]
    if how in ("right", "outer"):
        results += [(b.timestamp, None, b.item) for b in rights if not any(b is one for _, one in pairs)]
    return Found(results, late)
