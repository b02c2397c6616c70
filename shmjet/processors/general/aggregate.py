"""Aggregation of a whole stream into one result, in one stage or in two.

Must not know: keys. After Jet's `aggregateP`, `accumulateP`, `combineP`: two stages are `accumulate` in parallel, then
`combine` with one processor behind an all-to-one edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shmjet.aggregate_ops import AggregateOperation
from shmjet.core.processor import Processor
from shmjet.processors.general.base import BulkProcessor, Supply


class AggregateProcessor(BulkProcessor):
    """Folds everything into one accumulator.

    Args:
        op: the operation.
        combines: the items are accumulators of an earlier stage.
        finishes: the result is emitted, not the accumulator.
    """

    def __init__(self, op: AggregateOperation[Any, Any, Any], combines: bool, finishes: bool) -> None:
        self._op = op
        self._combines = combines
        self._finishes = finishes
        self._accumulator = op.create()

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Fold a list."""
        if self._combines:
            self._accumulator = self._op.merge(self._accumulator, items)
        else:
            self._accumulator = self._op.fold(self._accumulator, items, ordinal)

    def results(self) -> Iterable[Any]:
        """Return the one result, unless it is None, or another processor has it."""
        if not self.context.receives:
            return ()
        finisher = self._op.finisher if self._finishes else None
        result = self._accumulator if finisher is None else finisher(self._accumulator)
        return () if result is None else (result,)


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
    return Supply(AggregateProcessor, checked_operation("aggregate", op, False), combines=False, finishes=True)


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
    return Supply(AggregateProcessor, checked_operation("accumulate", op, True), combines=False, finishes=False)


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
    return Supply(AggregateProcessor, checked_operation("combine", op, True), combines=True, finishes=True)
