"""The join of two streams: items with equal keys whose times are at most so far apart.

Each side keeps its rows for as long as a match may come: until the watermark, which is the lower one of the two sides,
is more than `within` beyond them. So one side may run ahead, at the price of memory. An item below the watermark is
late, as a match of its may have gone: it is dropped and counted.

Rows without a match come out with their own times, which lie below the watermark by then. Joins that emit them
therefore pass each watermark on minus `within`, in whose time such a row is not late; an inner join passes it on as it
is. Must not know: how keys are routed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Any, Literal, get_args

from shmjet._native import unify_nans
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.durations import Duration, milliseconds
from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import NAN, OTHER_NAN, KeyFn, keys_of, plain
from shmjet.core.processor import Processor
from shmjet.data.errors import ConfigError, ProcessorError
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors.general.base import ExpandingProcessor, Supply
from shmjet.processors.general.failures import OnError
from shmjet.processors.time.join_side import IS_MATCHED, ITEM, ORDER, TIME, JoinSide

How = Literal["inner", "left", "right", "outer"]

_FIRST = -(1 << 63)
_END = 1 << 63
_WATERMARK_KEY = BroadcastKey("watermark")
_NANS = NAN, OTHER_NAN
"""What stands for NaN in the keys of each side: two objects, so that they match nothing."""


class StreamJoinProcessor(ExpandingProcessor):
    """Joins timed items of edge 0 (left) with those of edge 1 (right).

    Args:
        keys: key functions of the sides.
        fn: makes a result of left and right item, either of which may be None in outer joins.
        within: how far apart the times may be, in milliseconds.
        how: which rows come out without a match.
        on_error: what is done with a pair whose function raises, or an item whose key function does.
    """

    state_kind = "stream_join"

    entries_at_once = 16

    def __init__(
        self,
        keys: tuple[KeyFn, KeyFn],
        fn: Callable[[Any, Any], Any] | None,
        within: int,
        how: How,
        on_error: OnError | None = None,
    ) -> None:
        self._keys = keys
        self._fn = fn
        self._within = within
        self._sides = JoinSide(within, how in ("left", "outer")), JoinSide(within, how in ("right", "outer"))
        self._delay = 0 if how == "inner" else within
        self._watermark = _FIRST
        self._order = 0
        self._late = 0
        self._on_error = on_error
        self.failure_policies = (on_error,)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Join items with those of the other side, and count late ones."""
        super().process(ordinal, inbox)
        self.late_events_dropped = self._late

    def expand(self, ordinal: int, items: list[Any]) -> Iterator[Any]:
        """Join a list, lazily."""
        if ordinal > 1:
            raise ProcessorError(f"a join of streams has two inputs, but items arrived on edge {ordinal}")
        own, other = self._sides[ordinal], self._sides[1 - ordinal]
        within, watermark, between, add = self._within, self._watermark, other.between, own.add
        is_left, flagged, keeps = ordinal == 0, other.keeps_unmatched, own.keeps_unmatched
        joined = self._fn if self._fn is not None and self._on_error is None else self._joined
        for key, pair in self._with_keys(ordinal, items):
            time, item = pair
            if time < watermark:
                self._late += 1
                continue
            rows = () if key is None else between(key, time - within, time + within)
            if key is not None or keeps:
                self._order += 1
                add(key, pair, self._order, bool(rows))
            for row in rows:
                if flagged:
                    row[IS_MATCHED] = True
                match = row[ITEM]
                result = joined(item, match) if is_left else joined(match, item)
                if result is not None:
                    yield max(time, row[TIME]), result

    def _joined(self, left: Any, right: Any) -> Any:
        """Return what the function makes of a pair, None for nothing."""
        if self._fn is None:
            return left, right
        if self._on_error is None:
            return self._fn(left, right)
        try:
            return self._fn(left, right)
        except Exception as error:
            assert self.guard is not None
            self.guard.failed(self._on_error, (left, right), error)
            return None

    def _with_keys(self, ordinal: int, items: list[Any]) -> Iterable[tuple[Any, Any]]:
        """Return items with their keys; the policy takes care of items whose key function raises."""
        key_fn, nan, on_error = self._keys[ordinal], _NANS[ordinal], self._on_error
        if on_error is None:
            return zip(keys_of(key_fn, [item for _, item in items], nan), items, strict=True)
        keyed: list[tuple[Any, Any]] = []
        for pair in items:
            try:
                keyed.append((keys_of(key_fn, [pair[1]], nan)[0], pair))
            except Exception as error:
                assert self.guard is not None
                self.guard.failed(on_error, pair[1], error)
        return keyed

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Emit the rows that can have no match any more, and pass the watermark on, minus `within` if there are any."""
        if watermark == IDLE:
            return super().try_process_watermark(watermark)
        time = self._watermark = watermark.timestamp
        limit = time - self._within
        left, right = self._sides
        is_due = self.is_sweeping or left.may_expire(limit) or right.may_expire(limit)
        if is_due and not self.sweep(lambda: self._unmatched(limit)):
            return False
        left.forget(limit)
        right.forget(limit)
        return time - self._delay < _FIRST or super().try_process_watermark(Watermark(time - self._delay))

    def complete(self) -> bool:
        """Emit the rows that have had no match."""
        return self.sweep(lambda: self._unmatched(_END))

    def _unmatched(self, limit: int) -> Iterator[Any]:
        """Yield the results of rows before a time that have had no match, by time; None where there is no result."""
        left, right = (side.expired(limit) for side in self._sides)
        for row, is_left in merge(_of_side(left, True), _of_side(right, False), key=_time_and_order):
            row[IS_MATCHED] = True  # what is saved from now on has come out
            result = self._joined(row[ITEM], None) if is_left else self._joined(None, row[ITEM])
            yield None if result is None else (row[TIME], result)

    def saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return the rows by key, some at a time, and the watermark."""
        for ordinal, side in enumerate(self._sides):
            for key, rows in side.chunks():
                yield key, (ordinal, rows)
        yield _WATERMARK_KEY, self._watermark

    _restored: list[Any] | None = None
    _restored_watermark: int | None = None

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Collect saved rows."""
        if self._restored is None:
            self._restored = []
        for key, value in entries:
            if key == _WATERMARK_KEY:
                before = self._restored_watermark
                self._restored_watermark = value if before is None else min(value, before)
            else:
                ordinal, rows = value
                key = unify_nans([key], _NANS[ordinal])[0]
                self._restored += [(ordinal, key, *row) for row in rows]

    def finish_snapshot_restore(self) -> bool:
        """Add the rows, in the order in which they came.

        A side whose rows need no match does not know which ones have had one. In a join that has become an outer one
        they all count as matched: a row is rather left out than given as one without a match though it had one.
        """
        for ordinal, key, pair, _, *known in sorted(self._restored or (), key=_saved_order):
            self._order += 1
            self._sides[ordinal].add(key, pair, self._order, *(known or (True,)))
        if self._restored_watermark is not None:
            self._watermark = self._restored_watermark
        self._restored = self._restored_watermark = None
        return True


def _of_side(rows: Iterable[Any], is_left: bool) -> Iterator[tuple[Any, bool]]:
    """Yield each row with the side that it is of."""
    for row in rows:
        yield row, is_left


def _time_and_order(row: tuple[Any, bool]) -> tuple[int, int]:
    return row[0][TIME], row[0][ORDER]


def _saved_order(row: tuple[Any, ...]) -> int:
    order: int = row[3]
    return order


def stream_join(
    left_key: KeyFn,
    right_key: KeyFn,
    fn: Callable[[Any, Any], Any] | None = None,
    *,
    within: Duration,
    how: How = "inner",
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Join the timed items of edges 0 and 1 that have equal keys and times at most `within` apart.

    Both edges are partitioned by the key. A result has the later time of the two; every pair that matches gives one.
    Rows without a match come when the watermark is more than `within` beyond them, with their own times. An item below
    the watermark is late: it is dropped and counted (`late_events_dropped`). None and NaN match nothing.

    Args:
        left_key, right_key: key of an item of each side; None: the item itself.
        fn: `fn(left, right)`; a result of None is left out. Without it, the tuple of both.
        within: seconds or a `timedelta`; may be 0.
        how: "inner", or whose rows come out without a match, with None in the place of the other: "left", "right" or
            "outer". These delay watermarks by `within`.
        on_error: what is done with a pair `(left, right)` whose function raises, or an item whose key function does;
            None: the job fails.

    Raises:
        TypeError: a function cannot be called, or `within` is not a duration.
        ConfigError: `within` is negative, or `how` is another word.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> join = stream_join(str.lower, None, within=0.005)
        >>> verify_processor(join).inputs([(10, "A")], [(15, "a"), (16, "a")]).expect([(15, ("A", "a"))])
    """
    if how not in get_args(How):
        raise ConfigError(f"join: how must be one of {', '.join(map(repr, get_args(How)))}, got {how!r}")
    if fn is not None and not callable(fn):
        raise TypeError(f"join: expected a function of left and right item, got {type(fn).__name__}: {fn!r}")
    within_ms = milliseconds("join: within", within, least=0)
    return Supply(StreamJoinProcessor, (plain(left_key), plain(right_key)), fn, within_ms, how, on_error)
