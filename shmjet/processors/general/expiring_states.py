"""States that expire in event time: what `map_stateful` and its siblings do with `ttl` and `on_evict`.

A watermark evicts what has expired before it is passed on. After Jet's `TransformStatefulP`, whose numbers these are: a
state expires when its last item is older than the watermark minus the time to live, an item below the watermark is
late, and at the end everything expires with the highest watermark. Must not know: how keys are routed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from operator import attrgetter
from typing import Any

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.durations import timestamp_of
from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import KeyFn, keys_of
from shmjet.core.processor import Processor
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.item_calls import (
    NO_KEY,
    Calls,
    CallsProcessor,
    Failed,
    Kind,
    ManyCallProcessor,
    OneCallProcessor,
    guarded_keys,
)
from shmjet.processors.general.state_expiry import Cell, ExpiryQueue
from shmjet.processors.general.state_keys import restore_states, state_entries

LAST_WATERMARK = (1 << 63) - 1
"""What `on_evict` gets for a watermark when the input has ended."""

NO_WATERMARK = -(1 << 63)
_WATERMARK_KEY = BroadcastKey("watermark")


class ExpiringCalls(Calls):
    """Calls a function with the state of the item's key, and evicts states.

    Args:
        create: makes a state.
        fn: `fn(state, key, item)`, without keys `fn(state, item)`.
        key_fn: key of an item.
        keyed: there are keys.
        ttl: how long a state lives, in milliseconds; None: until the end.
        on_evict: `on_evict(state, key, watermark)`; None: states are dropped.
    """

    def __init__(
        self,
        create: Callable[[], Any],
        fn: Callable[..., Any],
        key_fn: KeyFn,
        keyed: bool,
        ttl: int | None,
        on_evict: Callable[[Any, Any, int], Any] | None,
    ) -> None:
        self._create = create
        self._fn = fn if keyed else _WithoutKey(fn)
        self._key_fn = key_fn
        self.keyed = keyed
        self.ttl = ttl
        self.on_evict = on_evict
        self.cells: dict[Any, Cell] = {}
        self.watermark = NO_WATERMARK
        self.late = 0
        self._queue = None if ttl is None else ExpiryQueue(ttl)
        self._order = 0

    def one(self, item: Any, stamp: int | None) -> Any:
        """Call the function for one item."""
        return self.values([item], None if stamp is None else [stamp])[0]

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Call the function for a list, in order; leave out what is late."""
        keys = keys_of(self._key_fn, items) if self.keyed else repeat(None)
        return self._called(keys, items, stamps, None)

    def guarded_values(self, items: list[Any], stamps: list[int] | None, failed: Failed) -> list[Any]:
        """Call the function for a list, with a policy for its errors."""
        keys = guarded_keys(self._key_fn, items, failed) if self.keyed else repeat(None)
        return self._called(keys, items, stamps, failed)

    def _called(
        self, keys: Iterable[Any], items: list[Any], stamps: list[int] | None, failed: Failed | None
    ) -> list[Any]:
        fn, get, nothing = self._fn, self.cells.get, self.nothing
        lowest = NO_WATERMARK if self.ttl is None else self.watermark
        output: list[Any] = []
        for key, item, stamp in zip(keys, items, repeat(0) if stamps is None else stamps):  # noqa: B905
            if stamp < lowest or key is NO_KEY:
                self.late += key is not NO_KEY
                output.append(nothing)
                continue
            try:
                cell = get(key)
                if cell is None:
                    cell = self._added(key, self._create(), stamp)
                elif stamp > cell.touched:
                    cell.touched = stamp
                self._order = cell.order = self._order + 1
                output.append(fn(cell.state, key, item))
            except Exception as error:
                if failed is None:
                    raise
                output.append(failed(item, error))
        return output

    def _added(self, key: Any, state: Any, touched: int) -> Cell:
        self._order += 1
        cell = self.cells[key] = Cell(key, state, touched, self._order)
        if self._queue is not None:
            self._queue.add(cell)
        return cell

    def evicted(self, watermark: int) -> Iterator[tuple[Cell, Any]]:
        """Yield the states that have expired, each with what `on_evict` says; they are gone when they are drawn.

        Args:
            watermark: `LAST_WATERMARK` evicts all.
        """
        cells, on_evict = self.cells, self.on_evict
        is_last = watermark == LAST_WATERMARK
        if self._queue is None:
            expired: Iterable[Cell] = sorted(cells.values(), key=attrgetter("touched", "order")) if is_last else ()
        else:
            assert self.ttl is not None
            expired = self._queue.expired(LAST_WATERMARK + 1 if is_last else watermark - self.ttl)
        for cell in expired:
            del cells[cell.key]
            yield cell, None if on_evict is None else on_evict(cell.state, cell.key, watermark)

    def may_evict(self, watermark: int) -> bool:
        """Say whether `evicted` may yield something."""
        return self._queue is not None and self.ttl is not None and self._queue.may_expire(watermark - self.ttl)

    def take_back(self, saved: dict[Any, tuple[Any, int, int]]) -> None:
        """Put saved states back, in the order in which they were touched."""
        for key, (state, touched, _) in sorted(saved.items(), key=_touched_and_order):
            self._added(key, state, touched)


def _touched_and_order(entry: tuple[Any, tuple[Any, int, int]]) -> tuple[int, int]:
    return entry[1][1], entry[1][2]


class _WithoutKey:
    """Calls a function without the key."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, state: Any, _: Any, item: Any) -> Any:
        return self._fn(state, item)


class RollingFn:
    """Rolling aggregation as a function of state, key and item; the state is a list with the accumulator.

    Args:
        op: the operation.
        keyed: results are `(key, result)`, and the function is called with a key.
    """

    def __init__(self, op: AggregateOperation[Any, Any, Any], keyed: bool) -> None:
        self._op = op
        self._keyed = keyed

    def create(self) -> list[Any]:
        """Return a state."""
        return [self._op.create()]

    def __call__(self, state: list[Any], *key_and_item: Any) -> Any:
        changed = self._op.accumulate(state[0], key_and_item[-1])
        if changed is not None:
            state[0] = changed
        result = self._op.exporter(state[0])
        return (key_and_item[0], result) if self._keyed and result is not None else result


class _Expiring(CallsProcessor[ExpiringCalls]):
    """Evicts at watermarks and at the end; saves states with the time of their last item."""

    timestamp_fn: Callable[[Any], Any] | None = None

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Process items, and count late ones."""
        super().process(ordinal, inbox)
        self.late_events_dropped = self.calls.late

    def stamps_of(self, items: list[Any]) -> list[int] | None:
        """Return the timestamps of items, by the function where there is one."""
        timestamp_fn = self.timestamp_fn
        if timestamp_fn is None or self.timed:
            return super().stamps_of(items)
        return [timestamp_of(timestamp_fn(item)) for item in items]

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Evict what has expired, then pass the watermark on."""
        if watermark != IDLE:
            self.calls.watermark = watermark.timestamp
            if (self.is_sweeping or self.calls.may_evict(watermark.timestamp)) and not self._evict(watermark.timestamp):
                return False
        return super().try_process_watermark(watermark)

    def complete(self) -> bool:
        """Evict everything."""
        return self.calls.on_evict is None or self._evict(LAST_WATERMARK)

    def _evict(self, watermark: int) -> bool:
        return self.sweep(lambda: self._evicted(watermark))

    def _evicted(self, watermark: int) -> Iterator[Any]:
        for cell, result in self.calls.evicted(watermark):
            yield (self._time_of(cell, watermark), result) if self.timed and result is not None else result

    def _time_of(self, cell: Cell, watermark: int) -> int:
        """Return the event time of what `on_evict` gave: that of the watermark, at the end that of the last one."""
        if watermark != LAST_WATERMARK:
            return watermark
        return cell.touched if self.calls.watermark == NO_WATERMARK else self.calls.watermark

    def saved_entries(self) -> Iterator[tuple[Any, Any]]:
        """Return the states with the times of their last items, and the watermark."""
        cells = self.calls.cells
        saved = ((key, (cell.state, cell.touched, cell.order)) for key, cell in cells.items())
        yield from saved if self.calls.keyed else state_entries(dict(saved), False, self.context)
        yield _WATERMARK_KEY, self.calls.watermark

    _saved: dict[Any, tuple[Any, int, int]] | None = None
    _saved_watermark: int | None = None

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Collect saved states."""
        if self._saved is None:
            self._saved = {}
        marks = [value for key, value in entries if key == _WATERMARK_KEY]
        if self._saved_watermark is not None:
            marks.append(self._saved_watermark)
        self._saved_watermark = min(marks, default=None)
        own = [entry for entry in entries if not isinstance(entry[0], BroadcastKey)]
        restore_states(self._saved, own, self.calls.keyed, self.context)

    def finish_snapshot_restore(self) -> bool:
        """Put the states back."""
        if self._saved is not None:
            self.calls.take_back(self._saved)
        if self._saved_watermark is not None:
            self.calls.watermark = self._saved_watermark
        self._saved = self._saved_watermark = None
        return True


class ExpiringProcessor(_Expiring, OneCallProcessor[ExpiringCalls]):
    """map and filter with states that expire, and rolling aggregation."""


class ExpiringExpandingProcessor(_Expiring, ManyCallProcessor[ExpiringCalls]):
    """flat_map with states that expire."""


def expiring_processor(
    kind: Kind,
    arguments: tuple[Any, ...],
    timed: bool,
    timestamp_fn: Callable[[Any], Any] | None,
    on_error: OnError | None,
) -> Processor:
    """Return the processor for a kind; `arguments` are those of `ExpiringCalls`."""
    made = ExpiringExpandingProcessor if kind == "flat_map" else ExpiringProcessor
    processor: _Expiring = made(ExpiringCalls(*arguments), kind, timed, on_error)
    processor.timestamp_fn = timestamp_fn
    return processor
