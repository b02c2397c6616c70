"""filter and flat_map with a state, and rolling aggregation: results for each item that depend on those before.

Must not know: how keys are routed. `map_stateful` is in `transforming`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.key_functions import KeyFn, keys_of, plain
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.processors.general.base import ExpandingProcessor, Supply, TransformingProcessor
from shmjet.processors.general.state_keys import restore_states, state_entries


class _States:
    """A state for each key, or one in all, and the calls of a function with them."""

    def __init__(self, create: Callable[[], Any], fn: Callable[..., Any], key_fn: KeyFn, keyed: bool) -> None:
        self._create = create
        self._fn = fn
        self._key_fn = key_fn
        self._keyed = keyed
        self._states: dict[Any, Any] = {}

    def called(self, items: list[Any]) -> Iterator[Any]:
        """Return what the function gives for each item, lazily."""
        fn, states, create = self._fn, self._states, self._create
        if not self._keyed:
            if not states:
                states[None] = create()
            state = states[None]
            for item in items:
                yield fn(state, item)
            return
        for key, item in zip(keys_of(self._key_fn, items), items, strict=True):
            try:
                state = states[key]
            except KeyError:
                state = states[key] = create()
            yield fn(state, key, item)

    def entries(self, context: ProcessorContext) -> Iterable[tuple[Any, Any]]:
        """Return the states as entries to be saved."""
        return state_entries(self._states, self._keyed, context)

    def restore(self, entries: list[tuple[Any, Any]], context: ProcessorContext) -> None:
        """Put saved states back."""
        restore_states(self._states, entries, self._keyed, context)


class FilterStatefulProcessor(TransformingProcessor):
    """Keeps the items for which a function of state and item is true."""

    state_kind = "map_stateful"

    def __init__(self, states: _States) -> None:
        self._states = states

    def transform(self, items: list[Any]) -> list[Any]:
        """Filter a list."""
        return [item for item, kept in zip(items, self._states.called(items), strict=True) if kept]

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the states."""
        return self._states.entries(self.context)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put states back."""
        self._states.restore(entries, self.context)


class FlatMapStatefulProcessor(ExpandingProcessor):
    """Emits all that a function of state and item returns."""

    state_kind = "map_stateful"

    def __init__(self, states: _States) -> None:
        self._states = states

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return all results, lazily."""
        for results in self._states.called(items):
            yield from results

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the states."""
        return self._states.entries(self.context)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put states back."""
        self._states.restore(entries, self.context)


class RollingAggregateProcessor(TransformingProcessor):
    """Emits the result so far after each item."""

    state_kind = "rolling_aggregate"

    def __init__(self, op: AggregateOperation[Any, Any, Any], key_fn: KeyFn, keyed: bool) -> None:
        self._op = op
        self._key_fn = key_fn
        self._keyed = keyed
        self._accumulators: dict[Any, Any] = {}

    def transform(self, items: list[Any]) -> list[Any]:
        """Fold a list, item by item."""
        results: list[Any] = []
        accumulators, accumulate, create = self._accumulators, self._op.accumulate, self._op.create
        export = self._op.exporter
        keyed = self._keyed
        for key, item in zip(keys_of(self._key_fn, items) if keyed else [None] * len(items), items, strict=True):
            if key not in accumulators:
                accumulators[key] = create()
            changed = accumulate(accumulators[key], item)
            if changed is not None:
                accumulators[key] = changed
            result = export(accumulators[key])
            if result is not None:
                results.append((key, result) if keyed else result)
        return results

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the accumulators."""
        return state_entries(self._accumulators, self._keyed, self.context)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put accumulators back."""
        restore_states(self._accumulators, entries, self._keyed, self.context)


def filter_stateful(
    create: Callable[[], Any], fn: Callable[..., Any], key_fn: KeyFn, keyed: bool
) -> Callable[[], Processor]:
    """Keep the items for which `fn(state, key, item)`, or without keys `fn(state, item)`, is true."""
    return Supply(_filtering, create, fn, plain(key_fn), keyed)


def flat_map_stateful(
    create: Callable[[], Any], fn: Callable[..., Any], key_fn: KeyFn, keyed: bool
) -> Callable[[], Processor]:
    """Emit all items of the iterable `fn(state, key, item)`, or without keys `fn(state, item)`."""
    return Supply(_expanding, create, fn, plain(key_fn), keyed)


def rolling_aggregate(op: AggregateOperation[Any, Any, Any], key_fn: KeyFn, keyed: bool) -> Callable[[], Processor]:
    """Emit the result of the operation so far after each item; with keys `(key, result)`.

    Example:
        >>> from shmjet.processors import summing
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(rolling_aggregate(summing(), None, False)).inputs([1, 2, 3]).expect([1, 3, 6])
    """
    return Supply(RollingAggregateProcessor, op, plain(key_fn), keyed)


def _filtering(*arguments: Any) -> Processor:
    return FilterStatefulProcessor(_States(*arguments))


def _expanding(*arguments: Any) -> Processor:
    return FlatMapStatefulProcessor(_States(*arguments))
