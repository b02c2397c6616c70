"""Aggregation per key, in one stage or in two; results are (key, result) tuples.

Must not know: how keys are routed; the edges into these processors are partitioned by the same key. After Jet's
`aggregateByKeyP`, `accumulateByKeyP`, `combineByKeyP`. All groups are kept in one table, a dict or the operation's
own, and emitted at the end, resumably and without a second copy of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from shmjet._native import unify_nans
from shmjet.aggregate_ops import AggregateOperation
from shmjet.aggregate_ops.tables import NativeTable, put_pairs
from shmjet.core.key_functions import NAN, KeyFn, keys_of, named_unhashable, plain
from shmjet.core.processor import Processor
from shmjet.processors.general.aggregate import checked_operation, saving_accumulators
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.state_keys import put_back, with_one_nan


class KeyFns:
    """One key function for all inbound edges, or one for each ordinal.

    Args:
        key_fns: a callable or None (for all ordinals), or a sequence of these (one per ordinal).

    Raises:
        TypeError, ValueError: for anything else, or an empty sequence.
    """

    __slots__ = ("_all", "_each")

    def __init__(self, key_fns: KeyFn | Sequence[KeyFn]) -> None:
        self._all: KeyFn = None
        self._each: tuple[KeyFn, ...] | None = None
        if isinstance(key_fns, Sequence):
            if not key_fns:
                raise ValueError(f"key_fns: expected one key function per inbound edge, got {key_fns!r}")
            self._each = tuple(plain(key_fn) for key_fn in key_fns)
        else:
            self._all = plain(key_fns)

    def at(self, ordinal: int) -> KeyFn:
        """Return the function for an inbound edge, None meaning the item itself.

        Raises:
            ValueError: when there are functions for fewer edges.
        """
        if self._each is None:
            return self._all
        if ordinal >= len(self._each):
            raise ValueError(f"key_fns has {len(self._each)} functions, but items arrived on edge {ordinal}")
        return self._each[ordinal]


class KeyedAggregateProcessor(BulkProcessor):
    """Folds items into an accumulator per key.

    Args:
        key_fns: key functions by inbound ordinal.
        op: the operation.
        finishes: results are emitted, not accumulators.
    """

    state_kind = "aggregate_by_key"

    def __init__(self, key_fns: KeyFns, op: AggregateOperation[Any, Any, Any], finishes: bool) -> None:
        self._key_fns = key_fns
        self._op = op
        self._finisher = op.finisher if finishes else None
        self._table: Any = op.table()

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Fold a list."""
        keys = keys_of(self._key_fns.at(ordinal), items)
        try:
            self._op.fold_groups(self._table, keys, items, ordinal)
        except TypeError as error:
            raise named_unhashable(error, keys) from error.__cause__

    def results(self) -> Iterable[Any]:
        """Return (key, result) for every key."""
        entries: Iterable[Any] = self._table.items()
        finisher = self._finisher
        return entries if finisher is None else ((key, finisher(value)) for key, value in entries)

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the accumulators whose results have not been emitted, by key."""
        emitted = self.emission.drawn
        if isinstance(self._table, NativeTable):
            return self._table.items(emitted)
        return islice(self._table.items(), emitted, None)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put accumulators into the table; those of one key come together here if their edge was not partitioned."""
        entries = with_one_nan(entries)
        op, table = self._op, self._table
        if type(table) is not dict and op.combine is None:
            put_pairs(table, entries)
        elif type(table) is not dict:
            op.merge_groups(table, entries)
        elif op.combine is None:
            put_back(table, entries, self.context, "partition the edge by the key that the items are grouped by")
        else:
            met = [entry for entry in entries if table.setdefault(*entry) is not entry[1]]
            if met:
                op.merge_groups(table, met)


class CombineByKeyProcessor(KeyedAggregateProcessor):
    """Folds (key, accumulator) pairs of an earlier stage into an accumulator per key."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Fold a list of pairs."""
        self._op.merge_groups(self._table, unify_nans(items, NAN))


def _key_fns(name: str, key_fns: KeyFn | Sequence[KeyFn], op: AggregateOperation[Any, Any, Any]) -> KeyFns:
    checked = KeyFns(key_fns)
    if isinstance(key_fns, Sequence) and len(key_fns) < op.inputs:
        raise ValueError(f"{name}: the operation has {op.inputs} inputs, but there are {len(key_fns)} key functions")
    return checked


def aggregate_by_key(
    key_fns: KeyFn | Sequence[KeyFn], op: AggregateOperation[Any, Any, Any]
) -> Callable[[], Processor]:
    """Aggregate the items of each key and emit (key, result) at the end.

    Args:
        key_fns: key of an item (None: the item itself); or a sequence of such functions, one per inbound edge.
        op: the operation. One with several inputs takes those of input i from inbound edge i, and a key that only some
            of them have gets a result too; one with a single input takes all edges alike.

    Raises:
        TypeError: when an argument has the wrong type. ValueError: `op` has more inputs than there are functions.

    Example:
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(aggregate_by_key(None, counting())).inputs("aba").expect([("a", 2), ("b", 1)])
    """
    checked = checked_operation("aggregate_by_key", op, False)
    supply = Supply(KeyedAggregateProcessor, _key_fns("aggregate_by_key", key_fns, op), checked, finishes=True)
    return saving_accumulators(supply, checked)


def accumulate_by_key(
    key_fns: KeyFn | Sequence[KeyFn], op: AggregateOperation[Any, Any, Any]
) -> Callable[[], Processor]:
    """First stage of two: emit (key, accumulator) at the end, for `combine_by_key` with the same operation.

    The edge into it may be local and unpartitioned: fewer items then cross to another core, one per key and processor.

    Args:
        key_fns: as for `aggregate_by_key`.
        op: an operation with `combine`.

    Raises:
        TypeError: when an argument has the wrong type.
        ValueError: when `op` has no `combine` function, or more inputs than there are functions.

    Example:
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(accumulate_by_key(str.lower, counting())).inputs("aBA").expect([("a", 2), ("b", 1)])
    """
    checked = checked_operation("accumulate_by_key", op, True)
    supply = Supply(KeyedAggregateProcessor, _key_fns("accumulate_by_key", key_fns, op), checked, finishes=False)
    return saving_accumulators(supply, checked)


def combine_by_key(op: AggregateOperation[Any, Any, Any]) -> Callable[[], Processor]:
    """Second stage of two: combine (key, accumulator) pairs and emit (key, result) at the end.

    The edge into it is partitioned by the pair's key: `.partitioned(operator.itemgetter(0))`.

    Raises:
        TypeError: when `op` is not an `AggregateOperation`.
        ValueError: when `op` has no `combine` function.

    Example:
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(combine_by_key(counting())).inputs([("a", 2), ("a", 1)]).expect([("a", 3)])
    """
    checked = checked_operation("combine_by_key", op, True)
    return saving_accumulators(Supply(CombineByKeyProcessor, KeyFns(None), checked, finishes=True), checked)
