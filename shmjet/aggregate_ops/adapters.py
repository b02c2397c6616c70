"""Operations around another: `mapping`, `filtering`, `flat_mapping`, `grouping_by`; of plain functions: `reducing`.

Must not know: which operation is inside. An operation around another has `combine` and `deduct` if the inner one has,
and its kernels where it has kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, compress
from operator import itemgetter
from types import NoneType
from typing import Any, TypeVar

from shmjet._native import index_of_special, unify_nans
from shmjet.aggregate_ops.arithmetic import counting
from shmjet.aggregate_ops.collectors import to_list
from shmjet.aggregate_ops.composites import all_of
from shmjet.aggregate_ops.operation import AggregateOperation, checked_fn, optional_fn, single_op
from shmjet.aggregate_ops.tables import ABSENT
from shmjet.core.key_functions import NAN, keys_of, mapped, selected

T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
R = TypeVar("R")
K = TypeVar("K")

Op = AggregateOperation[Any, Any, Any]


def _around(downstream: Op, one: Any, whole: Any, groups: Any) -> Op:
    """Return an operation with other accumulate primitives and else the same."""
    return downstream._changed(accumulate=one, accumulate_list=whole, accumulate_groups=groups, sees_empty=False)


class _Mapping:
    """The accumulate primitives of `mapping`."""

    def __init__(self, fn: Callable[[Any], Any], downstream: Op) -> None:
        self._fn = fn
        self._op = downstream

    def one(self, accumulator: Any, item: Any) -> Any:
        value = self._fn(item)
        return None if value is None else self._op.accumulate(accumulator, value)

    def whole(self, accumulator: Any, items: list[Any]) -> Any:
        values = mapped(self._fn, items)
        if index_of_special(values, 0, NoneType) >= 0:
            values = [value for value in values if value is not None]
        return self._op.fold(accumulator, values)

    def groups(self, table: Any, keys: Iterable[Any], items: list[Any]) -> None:
        values = mapped(self._fn, items)
        if index_of_special(values, 0, NoneType) >= 0:
            _fold_some(self._op, table, keys, values, [value is not None for value in values])
        else:
            self._op.fold_groups(table, keys, values)


def _fold_some(op: Op, table: Any, keys: Iterable[Any], items: list[Any], wanted: list[Any]) -> None:
    """Accumulate the items that are wanted; the keys of the others get an accumulator too."""
    keys = list(keys)
    op.touch(table, keys)
    op.fold_groups(table, list(compress(keys, wanted)), list(compress(items, wanted)))


def mapping(fn: Callable[[T], U | None], downstream: AggregateOperation[U, A, R]) -> AggregateOperation[T, A, R]:
    """Aggregate what a function makes of the items.

    Args:
        fn: item -> what is aggregated instead; None leaves the item out.
        downstream: the operation on the results.

    Returns:
        An operation with the result of `downstream`.

    Raises:
        TypeError: when an argument has the wrong type.

    Example:
        >>> from shmjet.aggregate_ops import to_set
        >>> sorted(mapping(str.lower, to_set()).aggregate("aAb"))
        ['a', 'b']
    """
    op = single_op("mapping", downstream)
    kernels = _Mapping(checked_fn("mapping", "fn", fn), op)
    return _around(op, kernels.one, kernels.whole, kernels.groups)


class _Filtering:
    """The accumulate primitives of `filtering`."""

    def __init__(self, predicate: Callable[[Any], Any], downstream: Op) -> None:
        self._predicate = predicate
        self._op = downstream

    def one(self, accumulator: Any, item: Any) -> Any:
        return self._op.accumulate(accumulator, item) if self._predicate(item) else None

    def whole(self, accumulator: Any, items: list[Any]) -> Any:
        return self._op.fold(accumulator, selected(self._predicate, items))

    def groups(self, table: Any, keys: Iterable[Any], items: list[Any]) -> None:
        _fold_some(self._op, table, keys, items, mapped(self._predicate, items))


def filtering(predicate: Callable[[T], Any], downstream: AggregateOperation[T, A, R]) -> AggregateOperation[T, A, R]:
    """Aggregate only the items for which a predicate is true. A key whose items are all left out has a result too.

    Args:
        predicate: item -> whether it counts.
        downstream: the operation on these items.

    Returns:
        An operation with the result of `downstream`.

    Raises:
        TypeError: when an argument has the wrong type.

    Example:
        >>> from shmjet.aggregate_ops import counting
        >>> filtering(str.isupper, counting()).aggregate("aAB")
        2
    """
    op = single_op("filtering", downstream)
    kernels = _Filtering(checked_fn("filtering", "predicate", predicate), op)
    return _around(op, kernels.one, kernels.whole, kernels.groups)


class _FlatMapping:
    """The accumulate primitives of `flat_mapping`."""

    def __init__(self, fn: Callable[[Any], Iterable[Any]], downstream: Op) -> None:
        self._fn = fn
        self._op = downstream

    def one(self, accumulator: Any, item: Any) -> Any:
        return self._op.fold(accumulator, list(self._fn(item)))

    def whole(self, accumulator: Any, items: list[Any]) -> Any:
        return self._op.fold(accumulator, list(chain.from_iterable(self._fn(item) for item in items)))

    def groups(self, table: Any, keys: Iterable[Any], items: list[Any]) -> None:
        all_keys: list[Any] = []
        values: list[Any] = []
        barren: list[Any] = []
        for key, item in zip(keys, items, strict=True):
            before = len(values)
            values += self._fn(item)
            if len(values) == before:
                barren.append(key)
            else:
                all_keys += [key] * (len(values) - before)
        self._op.fold_groups(table, all_keys, values)
        if barren:
            self._op.touch(table, barren)


def flat_mapping(
    fn: Callable[[T], Iterable[U]], downstream: AggregateOperation[U, A, R]
) -> AggregateOperation[T, A, R]:
    """Aggregate everything that a function makes of the items.

    Args:
        fn: item -> iterable of what is aggregated instead.
        downstream: the operation on these.

    Returns:
        An operation with the result of `downstream`.

    Raises:
        TypeError: when an argument has the wrong type.

    Example:
        >>> from shmjet.aggregate_ops import counting
        >>> flat_mapping(str.split, counting()).aggregate(["to be", "or"])
        3
    """
    op = single_op("flat_mapping", downstream)
    kernels = _FlatMapping(checked_fn("flat_mapping", "fn", fn), op)
    return _around(op, kernels.one, kernels.whole, kernels.groups)


class _Grouping:
    """The primitives of `grouping_by`: the accumulator is a dict of the inner operation's accumulators."""

    def __init__(self, key_fn: Callable[[Any], Any] | None, downstream: Op) -> None:
        self._key_fn = key_fn
        self._op = downstream

    def one(self, groups: dict[Any, Any], item: Any) -> None:
        self.whole(groups, [item])

    def whole(self, groups: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
        self._op.fold_groups(groups, keys_of(self._key_fn, items), items)
        return groups

    def merge(self, groups: dict[Any, Any], other: dict[Any, Any]) -> None:
        self._op.merge_groups(groups, unify_nans(list(other.items()), NAN))

    def deduct(self, groups: dict[Any, Any], other: dict[Any, Any]) -> None:
        deduct, empty = self._op.deduct, self._op.create()
        assert deduct is not None
        for key, gone in other.items():
            left = groups.get(key, ABSENT)
            if left is ABSENT:
                left = self._op.create()
            changed = deduct(left, gone)
            groups[key] = left if changed is None else changed
            if groups[key] == empty:
                del groups[key]

    def export(self, groups: dict[Any, Any]) -> dict[Any, Any]:
        exporter = self._op.exporter
        return {key: exporter(value) for key, value in groups.items()}

    def finish(self, groups: dict[Any, Any]) -> dict[Any, Any]:
        finisher = self._op.finisher
        return groups if finisher is None else {key: finisher(value) for key, value in groups.items()}


def grouping_by(
    key_fn: Callable[[T], K] | str | None, downstream: AggregateOperation[T, Any, R] | None = None
) -> AggregateOperation[T, dict[K, Any], dict[K, R]]:
    """Aggregate the items of each key, within one result.

    Args:
        key_fn: key of an item (None: the item itself).
        downstream: the operation on the items of a key; default: `to_list()`.

    Returns:
        An operation whose result is a dict from key to the result of `downstream`.

    Raises:
        TypeError: when an argument has the wrong type.

    Example:
        >>> from shmjet.aggregate_ops import counting
        >>> grouping_by(len, counting()).aggregate(["a", "bb", "c"])
        {1: 2, 2: 1}
    """
    op: Op = to_list() if downstream is None else single_op("grouping_by", downstream)
    if op.deduct is not None and not op.sees_empty:
        # a key goes when the last of its items does, not when its sum happens to be 0
        op = all_of(op, counting()).and_then(itemgetter(0))
    kernels = _Grouping(optional_fn("grouping_by", "key_fn", key_fn), op)
    return AggregateOperation(
        dict,
        kernels.one,
        None if op.combine is None else kernels.merge,
        None if op.deduct is None else kernels.deduct,
        kernels.export,
        kernels.finish,
        accumulate_list=kernels.whole,
        accumulator=f"dict of {op.accumulator}" if op.accumulator else "",
    )


class _Identity:
    """The create primitive of `reducing`."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def create(self) -> Any:
        return self._value


class _Reducing:
    """The accumulate primitive of `reducing`."""

    def __init__(self, fn: Callable[[Any], Any] | None, combine: Callable[[Any, Any], Any]) -> None:
        self._fn = fn
        self._combine = combine

    def one(self, value: Any, item: Any) -> Any:
        return self._combine(value, item if self._fn is None else self._fn(item))


def reducing(
    identity: A,
    fn: Callable[[T], A] | None,
    combine: Callable[[A, A], A],
    deduct: Callable[[A, A], A] | None = None,
) -> AggregateOperation[T, A, A]:
    """Reduce the items to one value, of immutable values.

    Args:
        identity: the value for no items; combined with another value it gives the other.
        fn: item -> value (None: the item is the value).
        combine: `(value, value) -> value`, associative.
        deduct: `(value, value) -> value`, the reverse of `combine`; sliding windows are faster with it.

    Returns:
        An operation whose result is a value.

    Raises:
        TypeError: when a function is not callable, or `identity` is a list, dict, set or bytearray.

    Example:
        >>> from operator import floordiv, mul
        >>> reducing(1, None, mul, floordiv).aggregate([2, 3, 7])
        42
    """
    if isinstance(identity, (list, dict, set, bytearray)):
        raise TypeError(
            f"reducing: identity must be an immutable value, got a {type(identity).__name__}, which all keys would "
            "share; use to_list(), to_set(), to_dict() or an AggregateOperation"
        )
    checked_fn("reducing", "combine", combine)
    kernel = _Reducing(optional_fn("reducing", "fn", fn), combine)
    deducting = None if deduct is None else checked_fn("reducing", "deduct", deduct)
    return AggregateOperation(_Identity(identity).create, kernel.one, combine, deducting)
