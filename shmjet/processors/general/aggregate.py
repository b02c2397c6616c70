"""Aggregation of a whole stream into one result, in one stage or in two.

Must not know: keys. After Jet's `aggregateP`, `accumulateP`, `combineP`: two stages are `accumulate` in parallel, then
`combine` with one processor behind an all-to-one edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.processor import Processor
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.state_keys import own_key, with_own_nan


class AggregateProcessor(BulkProcessor):
    """Folds everything into one accumulator.

    Args:
        op: the operation.
        combines: the items are accumulators of an earlier stage.
        finishes: the result is emitted, not the accumulator.
    """

    state_kind = "aggregate"

    def __init__(self, op: AggregateOperation[Any, Any, Any], combines: bool, finishes: bool) -> None:
        self._op = op
        self._combines = combines
        self._finishes = finishes
        self._accumulator = op.create()
        self._is_touched = False
        self._emitted_count = 0
        self._has_emitted = False  # before a restore
        self._others: list[Any] = []
        """Restored accumulators that cannot be combined: those of an operation in one stage on several processors."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Fold a list."""
        self._is_touched = True
        if self._combines:
            self._accumulator = self._op.merge(self._accumulator, items)
        else:
            self._accumulator = self._op.fold(self._accumulator, items, ordinal)

    def results(self) -> Iterable[Any]:
        """Return the one result, unless it is None, or another processor has it, or it has been emitted."""
        if not self.context.receives or (self._has_emitted and not self._is_touched):
            return ()
        return self._emitted()

    def _emitted(self) -> Iterator[Any]:
        """Yield the results, one for each accumulator, and note how many have been made."""
        finisher = self._op.finisher if self._finishes else None
        for accumulator in [self._accumulator, *self._others]:
            self._emitted_count += 1
            result = accumulator if finisher is None else finisher(accumulator)
            if result is not None:
                yield result

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the accumulators whose results have not been emitted, and whether some have been."""
        left = [self._accumulator, *self._others][self._emitted_count :] if self._is_touched else []
        has_emitted = self._has_emitted or self._emitted_count > 0
        return [(own_key(self.context), (has_emitted, left))] if left or has_emitted else []

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Combine accumulators."""
        accumulators: list[Any] = []
        for _, (has_emitted, left) in entries:
            self._has_emitted |= has_emitted
            accumulators += map(with_own_nan, left)
        if accumulators and not self._is_touched:
            self._is_touched = True
            self._accumulator = accumulators.pop(0)
        if self._op.combine is None:
            self._others += accumulators
        else:
            self._accumulator = self._op.merge(self._accumulator, accumulators)


def checked_operation(
    name: str, op: AggregateOperation[Any, Any, Any], combines: bool
) -> AggregateOperation[Any, Any, Any]:
    """Return `op` when it is an operation, and one with `combine` if it is used in a pair of stages.

    Raises:
        TypeError, ValueError: otherwise.
    """
    if not isinstance(op, AggregateOperation):
        raise TypeError(f"{name}: expected an AggregateOperation, got {type(op).__name__}: {op!r}")
    if combines:
        op.combiner()
    return op


def saving_accumulators(supply: Supply, op: AggregateOperation[Any, Any, Any]) -> Supply:
    """Let the kind of saved state name the accumulators: another operation would take them for its own."""
    if op.accumulator:
        supply.state_kind += f" of {op.accumulator}"
    return supply


def naming_keys(supply: Supply, keyed: bool) -> Supply:
    """Let the kind of saved state say that it has no keys: else that of a processor would be taken for a key's."""
    if not keyed:
        supply.state_kind += " without keys"
    return supply


def aggregate(op: AggregateOperation[Any, Any, Any]) -> Callable[[], Processor]:
    """Aggregate all items that reach the processor and emit one result at the end (none when it is None).

    Use it behind an all-to-one edge, which is distributed where there are several members: the result is that of the
    one processor to which the edge leads.

    Args:
        op: the operation, for example `aggregate_ops.counting()`. One with several inputs (`aggregate_operation2`)
            takes those of input i from inbound edge i; one with a single input takes all edges alike.

    Raises:
        TypeError: when `op` is not an `AggregateOperation`.

    Example:
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(aggregate(counting())).inputs("abc").expect([3])
    """
    checked = checked_operation("aggregate", op, False)
    return saving_accumulators(Supply(AggregateProcessor, checked, combines=False, finishes=True), checked)


def accumulate(op: AggregateOperation[Any, Any, Any]) -> Callable[[], Processor]:
    """First stage of two: emit the accumulator at the end, for `combine` with the same operation.

    Raises:
        TypeError: when `op` is not an `AggregateOperation`.
        ValueError: when `op` has no `combine` function.

    Example:
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(accumulate(counting())).inputs("ab").expect([2])
    """
    checked = checked_operation("accumulate", op, True)
    return saving_accumulators(Supply(AggregateProcessor, checked, combines=False, finishes=False), checked)


def combine(op: AggregateOperation[Any, Any, Any]) -> Callable[[], Processor]:
    """Second stage of two: combine the accumulators that `accumulate` emitted and emit the result.

    Raises:
        TypeError: when `op` is not an `AggregateOperation`.
        ValueError: when `op` has no `combine` function.

    Example:
        >>> from shmjet.processors import counting
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(combine(counting())).inputs([2, 5]).expect([7])
    """
    checked = checked_operation("combine", op, True)
    return saving_accumulators(Supply(AggregateProcessor, checked, combines=True, finishes=True), checked)
