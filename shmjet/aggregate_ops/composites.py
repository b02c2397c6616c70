"""Several operations as one: over the same items (`all_of`), and each over an input of its own (co-aggregation).

Must not know: which operations they are. The accumulator is the tuple of the parts' accumulators; `combine` and
`deduct` are there if all parts have them. After Jet's `allOf2/3`, `aggregateOperation2/3` and their builders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from shmjet.aggregate_ops.operation import AggregateOperation, checked_fn, single_op
from shmjet.aggregate_ops.tables import ABSENT, KeyedTable, put_pairs

R = TypeVar("R")
R0 = TypeVar("R0")
R1 = TypeVar("R1")
R2 = TypeVar("R2")

Op = AggregateOperation[Any, Any, Any]


class PartsTable(KeyedTable):
    """A table for each part; an accumulator is the tuple of those of one key, fresh ones where a part has none."""

    __slots__ = ("creates", "tables")

    def __init__(self, creates: tuple[Callable[[], Any], ...], tables: tuple[Any, ...]) -> None:
        self.creates = creates
        self.tables = tables

    def __len__(self) -> int:
        return sum(1 for _ in self._keys())

    def _keys(self) -> Iterator[Any]:
        """Return each key once, those of the first part first."""
        for i, table in enumerate(self.tables):
            gets = [other.get for other in self.tables[:i]]
            for key, _ in table.items():
                if all(get(key, ABSENT) is ABSENT for get in gets):
                    yield key

    def items(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """Return the (key, accumulators) pairs."""
        for key in self._keys():
            yield key, self._at(key)

    def _at(self, key: Any) -> tuple[Any, ...]:
        found = [table.get(key, ABSENT) for table in self.tables]
        return tuple([create() if each is ABSENT else each for each, create in zip(found, self.creates, strict=True)])

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the accumulators of a key."""
        if all(table.get(key, ABSENT) is ABSENT for table in self.tables):
            return default
        return self._at(key)

    def touch(self, keys: Iterable[Any]) -> None:
        """Give each key an accumulator in the first part."""
        first = self.tables[0]
        if isinstance(first, KeyedTable):
            first.touch(keys)
            return
        for key in keys:
            if key not in first:
                first[key] = self.creates[0]()

    def put(self, pairs: list[tuple[Any, tuple[Any, ...]]]) -> None:
        """Enter each part's accumulators into its table."""
        for i, table in enumerate(self.tables):
            put_pairs(table, [(key, parts[i]) for key, parts in pairs])


class _Parts:
    """The primitives of a composed operation."""

    def __init__(self, ops: tuple[Op, ...], finish: Callable[[tuple[Any, ...]], Any] | None) -> None:
        self._ops = ops
        self._finish = finish

    def create(self) -> tuple[Any, ...]:
        return tuple([op.create() for op in self._ops])

    def table(self) -> PartsTable:
        return PartsTable(tuple([op.create for op in self._ops]), tuple([op.table() for op in self._ops]))

    def export(self, parts: tuple[Any, ...]) -> Any:
        results = tuple([op.exporter(part) for op, part in zip(self._ops, parts, strict=True)])
        return results if self._finish is None else self._finish(results)

    def finish(self, parts: tuple[Any, ...]) -> Any:
        results = tuple(
            [part if op.finisher is None else op.finisher(part) for op, part in zip(self._ops, parts, strict=True)]
        )
        return results if self._finish is None else self._finish(results)

    def merge(self, parts: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([_changed(op.combine, a, b) for op, a, b in zip(self._ops, parts, other, strict=True)])

    def deduct(self, parts: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple([_changed(op.deduct, a, b) for op, a, b in zip(self._ops, parts, other, strict=True)])

    def merge_groups(self, table: PartsTable, pairs: list[tuple[Any, tuple[Any, ...]]]) -> None:
        for i, op in enumerate(self._ops):
            op.merge_groups(table.tables[i], [(key, parts[i]) for key, parts in pairs])

    # over the same items

    def one(self, parts: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
        return tuple([_changed(op.accumulate, part, item) for op, part in zip(self._ops, parts, strict=True)])

    def whole(self, parts: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
        return tuple([op.fold(part, items) for op, part in zip(self._ops, parts, strict=True)])

    def groups(self, table: PartsTable, keys: Iterable[Any], items: list[Any]) -> None:
        keys = keys if isinstance(keys, list) else list(keys)
        for op, part in zip(self._ops, table.tables, strict=True):
            op.fold_groups(part, keys, items)

    # each over an input of its own

    def one_of(self, i: int, parts: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
        return (*parts[:i], _changed(self._ops[i].accumulate, parts[i], item), *parts[i + 1 :])

    def whole_of(self, i: int, parts: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
        return (*parts[:i], self._ops[i].fold(parts[i], items), *parts[i + 1 :])

    def groups_of(self, i: int, table: PartsTable, keys: Iterable[Any], items: list[Any]) -> None:
        self._ops[i].fold_groups(table.tables[i], keys, items)


def _changed(fn: Callable[[Any, Any], Any] | None, value: Any, other: Any) -> Any:
    assert fn is not None
    changed = fn(value, other)
    return value if changed is None else changed


def _composed(ops: tuple[Op, ...], finish: Callable[[tuple[Any, ...]], Any] | None, co_aggregates: bool) -> Op:
    parts = _Parts(ops, finish)
    inputs = range(len(ops))
    groups: Any = tuple([partial(parts.groups_of, i) for i in inputs]) if co_aggregates else parts.groups
    combines = all(op.combine is not None for op in ops)
    # A table for each part pays where a part has a kernel for groups and a table that can be looked into.
    tables = any(op.accumulate_groups is not None for op in ops) and all(_is_open(op) for op in ops)
    return AggregateOperation(
        parts.create,
        tuple([partial(parts.one_of, i) for i in inputs]) if co_aggregates else parts.one,
        parts.merge if combines else None,
        parts.deduct if all(op.deduct is not None for op in ops) else None,
        parts.export,
        parts.finish,
        table=parts.table if tables else dict,
        accumulate_list=tuple([partial(parts.whole_of, i) for i in inputs]) if co_aggregates else parts.whole,
        accumulate_groups=groups if tables else None,
        combine_groups=parts.merge_groups if tables and combines else None,
        sees_empty=(any(op.sees_empty for op in ops) and not co_aggregates) or all(op.sees_empty for op in ops),
        accumulator=f"({', '.join(op.accumulator for op in ops)})" if all(op.accumulator for op in ops) else "",
    )


def _is_open(op: Op) -> bool:
    return op.table is dict or isinstance(op.table(), KeyedTable)


class _Spread:
    """`fn(*results)`, picklable when `fn` is."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def of(self, results: tuple[Any, ...]) -> Any:
        return self._fn(*results)


def _spread(name: str, finish: Callable[..., Any] | None) -> Callable[[tuple[Any, ...]], Any] | None:
    return None if finish is None else _Spread(checked_fn(name, "finish", finish)).of


def all_of(*ops: Any, finish: Callable[..., Any] | None = None) -> AggregateOperation[Any, Any, Any]:
    """Do several aggregations over the same items in one pass.

    Args:
        ops: two or more operations; a function behind them is taken as `finish`.
        finish: `(result of the first, result of the second, ...) -> result`; default: the tuple of them.

    Returns:
        An operation that has `combine` (`deduct`) if all of `ops` have.

    Raises:
        TypeError: when an argument has the wrong type. ValueError: for fewer than two operations.

    Example:
        >>> from shmjet.aggregate_ops import averaging, counting, min_by
        >>> all_of(counting(), averaging(), min_by()).aggregate([4, 2])
        (2, 3.0, 2)
    """
    if finish is None and ops and callable(ops[-1]):
        *ops, finish = ops  # type: ignore[assignment]
    checked = tuple([single_op("all_of", op) for op in ops])
    if len(checked) < 2:
        raise ValueError(f"all_of: expected at least two operations, got {len(checked)}")
    return _composed(checked, _spread("all_of", finish), False)


def co_aggregating(*ops: AggregateOperation[Any, Any, Any], finish: Callable[..., Any] | None = None) -> Op:
    """Aggregate any number of inputs together: the items of input i by the i-th operation.

    Args:
        ops: one operation for each input.
        finish: `(result of the first, result of the second, ...) -> result`; default: the tuple of them.

    Returns:
        An operation with as many inputs, for processors with as many inbound edges.

    Raises:
        TypeError: when an argument has the wrong type. ValueError: without operations, or when one has several inputs.

    Example:
        >>> from shmjet.aggregate_ops import counting, summing
        >>> co_aggregating(counting(), summing()).aggregate(["a", "b"], [3, 4])
        (2, 7)
    """
    return _co_aggregating("co_aggregating", ops, finish)


def _co_aggregating(name: str, ops: tuple[Any, ...], finish: Callable[..., Any] | None) -> Op:
    if not ops:
        raise ValueError(f"{name}: expected an operation for each input, got none")
    return _composed(tuple([single_op(name, op) for op in ops]), _spread(name, finish), True)


def aggregate_operation2(
    op0: AggregateOperation[Any, Any, R0],
    op1: AggregateOperation[Any, Any, R1],
    finish: Callable[[R0, R1], Any] | None = None,
) -> AggregateOperation[Any, Any, Any]:
    """Aggregate two inputs together: items of input 0 by one operation, those of input 1 by another.

    Args:
        op0: the operation on the first input.
        op1: the operation on the second.
        finish: `(result of op0, result of op1) -> result`; default: the tuple of both.

    Returns:
        An operation with two inputs, for processors with two inbound edges.

    Raises:
        TypeError: when an argument has the wrong type. ValueError: when an operation has several inputs.

    Example:
        >>> from shmjet.aggregate_ops import counting, summing
        >>> aggregate_operation2(counting(), summing()).aggregate(["a", "b"], [3, 4])
        (2, 7)
    """
    return _co_aggregating("aggregate_operation2", (op0, op1), finish)


def aggregate_operation3(
    op0: AggregateOperation[Any, Any, R0],
    op1: AggregateOperation[Any, Any, R1],
    op2: AggregateOperation[Any, Any, R2],
    finish: Callable[[R0, R1, R2], Any] | None = None,
) -> AggregateOperation[Any, Any, Any]:
    """Aggregate three inputs together; as `aggregate_operation2`.

    Args:
        op0, op1, op2: the operations, each with one input; input i is aggregated by op i.
        finish: `finish(result0, result1, result2)`; by default the tuple of all.

    Raises:
        TypeError: when an argument is not an operation, or `finish` is not callable. ValueError: when an operation has
            several inputs.

    Example:
        >>> from shmjet.aggregate_ops import counting
        >>> op = aggregate_operation3(counting(), counting(), counting(), lambda a, b, c: a * b * c)
        >>> op.aggregate("a", "bc", "def")
        6
    """
    return _co_aggregating("aggregate_operation3", (op0, op1, op2), finish)


@dataclass(frozen=True)
class Tag(Generic[R]):
    """The place of one operation's result among several; what a builder's `add` returned.

    Args:
        index: the place, from 0.

    Example:
        >>> ItemsByTag((3, "x"))[Tag(0)]
        3
    """

    index: int


class ItemsByTag(Mapping[Tag[Any], Any]):
    """The results of the operations that were added to a builder, by the tags that `add` returned.

    Example:
        >>> results = ItemsByTag((3, "x"))
        >>> results[Tag(1)], len(results)
        ('x', 2)
    """

    __slots__ = ("_values",)

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values

    def __getitem__(self, tag: Tag[R]) -> R:
        if not isinstance(tag, Tag) or not 0 <= tag.index < len(self._values):
            raise KeyError(tag)
        found: R = self._values[tag.index]
        return found

    def __iter__(self) -> Iterator[Tag[Any]]:
        return map(Tag, range(len(self._values)))

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self._values)

    def __repr__(self) -> str:
        return f"ItemsByTag({self._values!r})"


class _Tagged:
    """`fn(ItemsByTag(results))`."""

    def __init__(self, fn: Callable[[ItemsByTag], Any] | None) -> None:
        self._fn = fn

    def of(self, results: tuple[Any, ...]) -> Any:
        tagged = ItemsByTag(results)
        return tagged if self._fn is None else self._fn(tagged)


class OperationBuilder:
    """Puts any number of operations together; made by `all_of_builder` and `co_aggregate_operation_builder`.

    Example:
        >>> from shmjet.aggregate_ops import all_of_builder, counting
        >>> all_of_builder().add(counting())
        Tag(index=0)
    """

    def __init__(self, name: str, co_aggregates: bool) -> None:
        self._name = name
        self._co_aggregates = co_aggregates
        self._ops: list[Op] = []

    def add(self, op: AggregateOperation[Any, Any, R]) -> Tag[R]:
        """Add an operation; the n-th one added to a co-aggregation is that of input n.

        Args:
            op: with one input.

        Returns:
            The tag of its result.

        Raises:
            TypeError: when it is not an operation. ValueError: when it has several inputs.
        """
        self._ops.append(single_op(self._name, op))
        return Tag(len(self._ops) - 1)

    def build(self, finish: Callable[[ItemsByTag], Any] | None = None) -> AggregateOperation[Any, Any, Any]:
        """Return the operation.

        Args:
            finish: `ItemsByTag -> result`; default: the `ItemsByTag`.

        Raises:
            ValueError: when no operation was added. TypeError: when `finish` is not callable.
        """
        if not self._ops:
            raise ValueError(f"{self._name}: add() at least one operation before build()")
        if finish is not None:
            checked_fn(self._name, "finish", finish)
        return _composed(tuple(self._ops), _Tagged(finish).of, self._co_aggregates)


def all_of_builder() -> OperationBuilder:
    """Return a builder of `all_of` for any number of operations, whose results have tags.

    Example:
        >>> from shmjet.aggregate_ops import counting, summing
        >>> builder = all_of_builder()
        >>> n, total = builder.add(counting()), builder.add(summing())
        >>> builder.build(lambda results: results[total] / results[n]).aggregate([1, 2])
        1.5
    """
    return OperationBuilder("all_of_builder", False)


def co_aggregate_operation_builder() -> OperationBuilder:
    """Return a builder of an operation over any number of inputs, whose results have tags.

    Example:
        >>> from shmjet.aggregate_ops import counting, to_list
        >>> builder = co_aggregate_operation_builder()
        >>> clicks, buys = builder.add(counting()), builder.add(to_list())
        >>> op = builder.build(lambda results: (results[clicks], results[buys]))
        >>> op.inputs, op.aggregate("abc", [5])
        (2, (3, [5]))
    """
    return OperationBuilder("co_aggregate_operation_builder", True)
