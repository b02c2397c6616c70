"""Aggregate operations: how a stream of items is folded into an accumulator and that into a result.

Must not know: processors, keys' partitions, windows. After Jet's `AggregateOperation`: primitives `create`,
`accumulate`, `combine`, `deduct`, `export`, `finish`. Beside them an operation may bring kernels that fold whole
lists: Python's price is per call, so counting a list of a thousand words is one call and not a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import add, sub
from typing import Any, Generic, TypeVar

from shmjet._native import Tally
from shmjet.processors.keying import plain

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

_ABSENT: Any = object()
_CHUNK = 4096


@dataclass(frozen=True, eq=False)
class AggregateOperation(Generic[T, A, R]):
    """The primitives of one aggregation.

    `accumulate`, `combine` and `deduct` return the new accumulator, or None when they changed the first argument in
    place: `lambda total, x: total + x` and `list.append` both do.

    Args:
        create: makes a fresh accumulator.
        accumulate: `(accumulator, item) -> accumulator | None`.
        combine: `(accumulator, other accumulator) -> accumulator | None`; the other one is left alone. None: the
            operation can only be done in one stage.
        deduct: the reverse of `combine`; sliding windows use it. The accumulator must then support `==`.
        export: accumulator -> result, without touching the accumulator. Default: the accumulator itself.
        finish: accumulator -> result, which may consume the accumulator. Default: `export`.
        table: makes the table in which keyed processors keep accumulators by key: a dict, or, when the operation
            brings `accumulate_groups` and `combine_groups`, anything that these two take and that has `items`.
        accumulate_list: `(accumulator, items) -> accumulator`, the same as `accumulate` on each item.
        accumulate_groups: `(table, keys, items) -> None`, the same as `accumulate` on each item of its key's
            accumulator; `keys` is an iterable as long as `items`.
        combine_groups: `(table, pairs) -> None` for (key, accumulator) pairs.

    Example:
        >>> largest = AggregateOperation(create=lambda: 0, accumulate=max, combine=max)
        >>> largest.fold(largest.create(), [3, 8, 5])
        8
    """

    create: Callable[[], A]
    accumulate: Callable[[A, T], A | None]
    combine: Callable[[A, A], A | None] | None = None
    deduct: Callable[[A, A], A | None] | None = None
    export: Callable[[A], R] | None = None
    finish: Callable[[A], R] | None = None
    table: Callable[[], Any] = field(default=dict, kw_only=True)
    accumulate_list: Callable[[A, list[T]], A] | None = field(default=None, kw_only=True)
    accumulate_groups: Callable[[dict[Any, A], Iterable[Any], list[T]], None] | None = field(default=None, kw_only=True)
    combine_groups: Callable[[dict[Any, A], list[tuple[Any, A]]], None] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("create", "accumulate"):
            if not callable(getattr(self, name)):
                raise TypeError(f"AggregateOperation: {name} must be callable, got {getattr(self, name)!r}")
        for name in ("combine", "deduct", "export", "finish"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise TypeError(f"AggregateOperation: {name} must be callable or None, got {value!r}")

    @property
    def finisher(self) -> Callable[[A], R] | None:
        """The function from accumulator to final result; None when the result is the accumulator."""
        return self.finish or self.export

    def combiner(self) -> Callable[[A, A], A | None]:
        """Return `combine`.

        Raises:
            ValueError: when the operation has none, so that it cannot be done in two stages.
        """
        if self.combine is None:
            raise ValueError("this aggregate operation has no combine function: aggregate in one stage (aggregate...)")
        return self.combine

    def fold(self, accumulator: A, items: list[T]) -> A:
        """Accumulate a list and return the accumulator."""
        if self.accumulate_list is not None:
            return self.accumulate_list(accumulator, items)
        accumulate = self.accumulate
        for item in items:
            changed = accumulate(accumulator, item)
            if changed is not None:
                accumulator = changed
        return accumulator

    def merge(self, accumulator: A, others: Iterable[A]) -> A:
        """Combine accumulators into the first one and return it."""
        combine = self.combiner()
        for other in others:
            changed = combine(accumulator, other)
            if changed is not None:
                accumulator = changed
        return accumulator

    def fold_groups(self, table: dict[Any, A], keys: Iterable[Any], items: list[T]) -> None:
        """Accumulate each item into the accumulator of its key."""
        if self.accumulate_groups is not None:
            self.accumulate_groups(table, keys, items)
            return
        get, create, accumulate = table.get, self.create, self.accumulate
        for key, item in zip(keys, items, strict=True):
            accumulator = get(key, _ABSENT)
            if accumulator is _ABSENT:
                accumulator = table[key] = create()
            changed = accumulate(accumulator, item)
            if changed is not None:
                table[key] = changed

    def merge_groups(self, table: dict[Any, A], pairs: list[tuple[Any, A]]) -> None:
        """Combine (key, accumulator) pairs into the table."""
        if self.combine_groups is not None:
            self.combine_groups(table, pairs)
            return
        get, create, combine = table.get, self.create, self.combiner()
        for key, other in pairs:
            accumulator = get(key, _ABSENT)
            if accumulator is _ABSENT:
                # a fresh one, not `other`: what came over a local lane belongs to its sender
                accumulator = table[key] = create()
            changed = combine(accumulator, other)
            if changed is not None:
                table[key] = changed


def _count_one(count: int, _item: Any) -> int:
    return count + 1


def _count_list(count: int, items: list[Any]) -> int:
    return count + len(items)


class Counts:
    """The table of `counting`: as much of a dict as the processors need, on a native table with the counts inside."""

    __slots__ = ("tally",)

    def __init__(self, pairs: Iterable[tuple[Any, int]] = ()) -> None:
        self.tally = Tally()
        self.tally.add_pairs(list(pairs))

    def __len__(self) -> int:
        return len(self.tally)

    def items(self) -> Iterator[tuple[Any, int]]:
        """Return the (key, count) pairs in the order in which their keys came."""
        return chain.from_iterable(self._chunks())

    def _chunks(self) -> Iterator[list[tuple[Any, int]]]:
        position = 0
        while position >= 0:
            pairs, position = self.tally.chunk(position, _CHUNK)
            yield pairs

    def __reduce__(self) -> tuple[Any, ...]:
        return Counts, (list(self.items()),)


def _count_groups(table: Any, keys: Iterable[Any], _items: list[Any]) -> None:
    table.tally.add(keys)


def _add_counts(table: Any, pairs: list[tuple[Any, int]]) -> None:
    taken = table.tally.add_pairs(pairs)
    if taken < len(pairs):
        raise TypeError(f"counting: expected (key, count) pairs with an int of 64 bits, got {pairs[taken]!r}")


def _add_groups(table: dict[Any, Any], pairs: list[tuple[Any, Any]]) -> None:
    get = table.get
    for key, value in pairs:
        table[key] = get(key, 0) + value


def counting() -> AggregateOperation[Any, int, int]:
    """Count the items.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> from shmjet import processors
        >>> verify_processor(processors.aggregate(counting())).inputs(["a", "b"]).expect([2])
    """
    return AggregateOperation(
        int,
        _count_one,
        add,
        sub,
        table=Counts,
        accumulate_list=_count_list,
        accumulate_groups=_count_groups,
        combine_groups=_add_counts,
    )


class _Summing:
    """The kernels of `summing`; a class, so that they pickle."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self._fn = fn

    def one(self, total: Any, item: Any) -> Any:
        return total + (item if self._fn is None else self._fn(item))

    def whole(self, total: Any, items: list[Any]) -> Any:
        return reduce(add, items if self._fn is None else map(self._fn, items), total)

    def groups(self, table: dict[Any, Any], keys: Iterable[Any], items: list[Any]) -> None:
        get = table.get
        for key, value in zip(keys, items if self._fn is None else map(self._fn, items), strict=True):
            table[key] = get(key, 0) + value


def summing(fn: Callable[[Any], Any] | None = None) -> AggregateOperation[Any, Any, Any]:
    """Add up the items, or `fn(item)` of each; 0 for none.

    Args:
        fn: number of an item; default: the item is the number.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> from shmjet import processors
        >>> verify_processor(processors.aggregate(summing(len))).inputs(["ab", "c"]).expect([3])
    """
    kernels = _Summing(plain(fn))
    return AggregateOperation(
        int,
        kernels.one,
        add,
        sub,
        accumulate_list=kernels.whole,
        accumulate_groups=kernels.groups,
        combine_groups=_add_groups,
    )
