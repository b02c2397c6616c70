"""map, filter and flat_map with a state, and rolling aggregation: results for each item that depend on those before.

Must not know: how keys are routed. After Jet's `TransformStatefulP`. States that expire are in `expiring_states`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.durations import Duration, milliseconds
from shmjet.core.key_functions import KeyFn, keys_of, plain
from shmjet.core.processor import Processor
from shmjet.processors.general.aggregate import naming_keys, saving_accumulators
from shmjet.processors.general.base import Supply
from shmjet.processors.general.expiring_states import RollingFn, expiring_processor
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
from shmjet.processors.general.state_keys import restore_states, state_entries


class _Whole:
    def __reduce__(self) -> str:
        return "WHOLE"  # the one of this module, wherever it is unpickled

    def __repr__(self) -> str:
        return "one state for all items"


WHOLE: Final[Any] = _Whole()
"""In the place of a key function: there is one state for all items of a processor. None is the item itself."""


class StateCalls(Calls):
    """Calls a function with the state of the item's key, or with the one state.

    Args:
        create: makes a state.
        fn: `fn(state, key, item)`, without keys `fn(state, item)`.
        key_fn: key of an item.
        keyed: there are keys.
    """

    def __init__(self, create: Callable[[], Any], fn: Callable[..., Any], key_fn: KeyFn, keyed: bool) -> None:
        self._create = create
        self._fn = fn
        self._key_fn = key_fn
        self.keyed = keyed
        self.states: dict[Any, Any] = {}

    def one(self, item: Any, stamp: int | None) -> Any:
        """Call the function for one item."""
        return self.values([item], None)[0]

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Call the function for a list, in order."""
        if not self.keyed:
            fn, state = self._fn, self._whole()
            return [fn(state, item) for item in items]
        return self._called(keys_of(self._key_fn, items), items, None)

    def guarded_values(self, items: list[Any], stamps: list[int] | None, failed: Failed) -> list[Any]:
        """Call the function for a list, with a policy for its errors."""
        if not self.keyed:
            return super().guarded_values(items, stamps, failed)
        return self._called(guarded_keys(self._key_fn, items, failed), items, failed)

    def _whole(self) -> Any:
        states = self.states
        if not states:
            states[None] = self._create()
        return states[None]

    def _called(self, keys: list[Any], items: list[Any], failed: Failed | None) -> list[Any]:
        fn, states, create = self._fn, self.states, self._create
        output: list[Any] = []
        for key, item in zip(keys, items, strict=True):
            if key is NO_KEY:
                output.append(self.nothing)
                continue
            try:
                state = states.get(key, NO_KEY)
                if state is NO_KEY:
                    state = states[key] = create()
                output.append(fn(state, key, item))
            except Exception as error:
                if failed is None:
                    raise
                output.append(failed(item, error))
        return output


class RollingCalls(Calls):
    """Folds each item into the accumulator of its key and gives the result so far.

    Args:
        op: the operation.
        key_fn: key of an item.
        keyed: there are keys, and results are `(key, result)`.
    """

    def __init__(self, op: AggregateOperation[Any, Any, Any], key_fn: KeyFn, keyed: bool) -> None:
        self._op = op
        self._key_fn = key_fn
        self.keyed = keyed
        self.states: dict[Any, Any] = {}

    def one(self, item: Any, stamp: int | None) -> Any:
        """Fold one item."""
        return self.values([item], None)[0]

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Fold a list, item by item."""
        results: list[Any] = []
        accumulators, accumulate, create = self.states, self._op.accumulate, self._op.create
        export = self._op.exporter
        keyed = self.keyed
        for key, item in zip(keys_of(self._key_fn, items) if keyed else [None] * len(items), items, strict=True):
            if key not in accumulators:
                accumulators[key] = create()
            changed = accumulate(accumulators[key], item)
            if changed is not None:
                accumulators[key] = changed
            result = export(accumulators[key])
            results.append((key, result) if keyed and result is not None else result)
        return results


class _KeptStates(CallsProcessor[StateCalls | RollingCalls]):
    """Saves a dict of states by key, or the one state under a key of the processor's own."""

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the states."""
        return state_entries(self.calls.states, self.calls.keyed, self.context)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put states back."""
        restore_states(self.calls.states, entries, self.calls.keyed, self.context)


class StatefulProcessor(_KeptStates, OneCallProcessor[StateCalls | RollingCalls]):
    """map and filter with a state, and rolling aggregation."""


class StatefulExpandingProcessor(_KeptStates, ManyCallProcessor[StateCalls | RollingCalls]):
    """flat_map with a state."""


def _processor(
    kind: Kind,
    calls: type[StateCalls | RollingCalls],
    arguments: tuple[Any, ...],
    timed: bool,
    on_error: OnError | None,
) -> Processor:
    made = StatefulExpandingProcessor if kind == "flat_map" else StatefulProcessor
    return made(calls(*arguments), kind, timed, on_error)


def _supply(processor: Callable[..., Any], state_kind: str, keyed: bool, *arguments: Any) -> Supply:
    supply = Supply(processor, *arguments)
    supply.state_kind = state_kind
    return naming_keys(supply, keyed)


def _checked(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(fn):
        raise TypeError(f"{name}: expected a function, got {type(fn).__name__}: {fn!r}")
    return fn


def _stateful(
    name: str,
    kind: Kind,
    create: Callable[[], Any],
    fn: Callable[..., Any],
    key_fn: Any,
    ttl: Duration | None,
    on_evict: Callable[..., Any] | None,
    timestamp_fn: Callable[[Any], Any] | None,
    timed: bool,
    on_error: OnError | None,
) -> Supply:
    """Return the supplier of `map_stateful` and its siblings."""
    keyed = key_fn is not WHOLE
    arguments = _checked(name, create), _checked(name, fn), plain(key_fn) if keyed else None, keyed
    if on_evict is not None:
        _checked(f"{name}: on_evict", on_evict)
    if ttl is None and on_evict is None:
        return _supply(_processor, "map_stateful", keyed, kind, StateCalls, arguments, timed, on_error)
    expiry = _expiry(name, ttl, timestamp_fn, timed)
    supply_of = expiring_processor, "map_stateful_ttl", keyed, kind
    return _supply(*supply_of, (*arguments, *expiry, on_evict), timed, timestamp_fn, on_error)


def _expiry(name: str, ttl: Duration | None, timestamp_fn: Any, timed: bool) -> tuple[int | None]:
    """Check what says when states expire, and return it.

    Raises:
        TypeError: items have no event time, or `timestamp_fn` cannot be called.
    """
    if timestamp_fn is not None:
        _checked(f"{name}: timestamp_fn", timestamp_fn)
    elif ttl is not None and not timed:
        raise TypeError(f"{name}: states expire in event time; with ttl= also give timestamp_fn=")
    return (None if ttl is None else milliseconds(f"{name}: ttl", ttl),)


def map_stateful(
    create: Callable[[], Any],
    fn: Callable[..., Any],
    key_fn: KeyFn = WHOLE,
    *,
    ttl: Duration | None = None,
    on_evict: Callable[[Any, Any, int], Any] | None = None,
    timestamp_fn: Callable[[Any], Any] | None = None,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Map with a state: one for each key, or one for each processor. It lives as long as the job, or `ttl`.

    With `ttl`, when a watermark comes, the states expire whose latest item is older than it by more than `ttl`, the
    least recently touched first; and an item that is older than the watermark is late: it is dropped and counted
    (`late_events_dropped`). When the input has ended, all states expire, and the watermark is 2**63 - 1.

    Args:
        create: makes a new, mutable state.
        fn: `fn(state, key, item)` when a `key_fn` is given, else `fn(state, item)`; it may change the state, and what
            it returns is emitted, unless it is None.
        key_fn: key of an item (None: the item itself). The inbound edge should be partitioned by the same key.
        ttl: how long a state lives without an item, in event time: seconds or a `timedelta`, from a millisecond on;
            None: for ever.
        on_evict: `on_evict(state, key, watermark_ms)`, called when a state expires; what it returns is emitted, unless
            it is None. The key is None without a `key_fn`. Without `ttl` it is called at the end of the input.
        timestamp_fn: event time of an item: milliseconds, an aware `datetime` or a `datetime64`; needed with `ttl`.
        timed: items are pairs `(timestamp, item)`, as behind `insert_watermarks` in a pipeline; all functions see the
            item, and results are pairs with its timestamp, those of `on_evict` with the watermark's.
        on_error: what is done with an item whose function raises; None: the job fails.

    Raises:
        TypeError: a function cannot be called, or `ttl` is given where items have no event time.
        ConfigError: `ttl` is below a millisecond.

    Example:
        >>> def number(state, item):
        ...     state.append(item)
        ...     return len(state), item
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(map_stateful(list, number)).inputs(["a", "b"]).expect([(1, "a"), (2, "b")])
    """
    arguments = ttl, on_evict, timestamp_fn, timed, on_error
    return _stateful("map_stateful", "map", create, fn, key_fn, *arguments)


def filter_stateful(
    create: Callable[[], Any],
    fn: Callable[..., Any],
    key_fn: KeyFn = WHOLE,
    *,
    ttl: Duration | None = None,
    on_evict: Callable[[Any, Any, int], Any] | None = None,
    timestamp_fn: Callable[[Any], Any] | None = None,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Keep the items for which `fn(state, key, item)`, or without keys `fn(state, item)`, is true.

    Arguments and errors are those of `map_stateful`.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> def is_new(seen, item):
        ...     return item not in seen and not seen.add(item)
        >>> verify_processor(filter_stateful(set, is_new)).inputs("aba").expect("ab")
    """
    arguments = ttl, on_evict, timestamp_fn, timed, on_error
    return _stateful("filter_stateful", "filter", create, fn, key_fn, *arguments)


def flat_map_stateful(
    create: Callable[[], Any],
    fn: Callable[..., Any],
    key_fn: KeyFn = WHOLE,
    *,
    ttl: Duration | None = None,
    on_evict: Callable[[Any, Any, int], Any] | None = None,
    timestamp_fn: Callable[[Any], Any] | None = None,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Emit all items of the iterable `fn(state, key, item)`, or without keys `fn(state, item)`.

    Arguments and errors are those of `map_stateful`. Results are drawn lazily. With `on_error`, results that were drawn
    before the function raised stay.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> def twice_from_now(state, item):
        ...     state.append(item)
        ...     return [item] * len(state)
        >>> verify_processor(flat_map_stateful(list, twice_from_now)).inputs("ab").expect("abb")
    """
    arguments = ttl, on_evict, timestamp_fn, timed, on_error
    return _stateful("flat_map_stateful", "flat_map", create, fn, key_fn, *arguments)


def rolling_aggregate(
    op: AggregateOperation[Any, Any, Any],
    key_fn: KeyFn = WHOLE,
    *,
    ttl: Duration | None = None,
    timestamp_fn: Callable[[Any], Any] | None = None,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Emit the result of the operation so far after each item; with keys `(key, result)`.

    Args:
        op: the operation.
        key_fn, ttl, timestamp_fn, timed, on_error: as of `map_stateful`; an accumulator that expires is dropped.

    Example:
        >>> from shmjet.processors import summing
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(rolling_aggregate(summing())).inputs([1, 2, 3]).expect([1, 3, 6])
    """
    keyed = key_fn is not WHOLE
    key_fn = plain(key_fn) if keyed else None
    if ttl is None:
        arguments = op, key_fn, keyed
        rolled = _supply(_processor, "rolling_aggregate", keyed, "map", RollingCalls, arguments, timed, on_error)
        return saving_accumulators(rolled, op)
    rolling = RollingFn(op, keyed)
    expiry = _expiry("rolling_aggregate", ttl, timestamp_fn, timed)
    supply_of = expiring_processor, "rolling_aggregate_ttl", keyed, "map"
    calls = rolling.create, rolling, key_fn, keyed, *expiry, None
    return saving_accumulators(_supply(*supply_of, calls, timed, timestamp_fn, on_error), op)
