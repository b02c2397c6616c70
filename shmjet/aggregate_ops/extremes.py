"""Items that stand out: `min_by`, `max_by`, `top_n`, `bottom_n`, and `pick_any`.

Must not know: what the items are. Orders are given as in Python, by a `key`; `functools.cmp_to_key` makes one of a
comparator. NaN is greater than every number for `min_by` and `max_by`, and comes last in `top_n` and `bottom_n`. Of
equal items the first to come is taken; across processors, which come in no order, that is any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest, nsmallest
from itertools import chain
from operator import gt, itemgetter, lt
from typing import Any, TypeVar

from shmjet.aggregate_ops.operation import AggregateOperation, optional_fn
from shmjet.aggregate_ops.tables import ABSENT, Least, Most
from shmjet.core.key_functions import GREATEST, LEAST, in_order, one_by_one, ranks_of

T = TypeVar("T")

Picked = tuple[Any, int]
"""The accumulator of `pick_any`: an item, and how many there were."""

_SLACK = 64
"""Items above n that an accumulator of `top_n` gathers, at least, before it is cut."""


def _nothing() -> None:
    return None


class _Plain:
    """The primitives of `min_by` and `max_by` without a key: the accumulator is the item."""

    def __init__(self, better: Callable[[Any, Any], Any], best: Callable[..., Any]) -> None:
        self._better = better
        self._best = best

    def one(self, found: Any, item: Any) -> Any:
        return item if found is None or self._better(*ranks_of(None, [item, found])) else None

    def whole(self, found: Any, items: list[Any]) -> Any:
        every = items if found is None else [found, *items]
        ranks = ranks_of(None, every)
        if ranks is every:
            return self._best(every, default=None)
        return self._best(every, key=one_by_one(ranks))

    def merge(self, found: Any, other: Any) -> Any:
        return None if other is None else self.one(found, other)


class _Ranked:
    """The same with a key: the accumulator is (key of the item, item)."""

    def __init__(self, better: Callable[[Any, Any], Any], best: Callable[..., Any], rank: Callable[[Any], Any]) -> None:
        self._better = better
        self._best = best
        self._rank = rank

    def one(self, found: tuple[Any, Any] | None, item: Any) -> tuple[Any, Any] | None:
        (rank,) = ranks_of(self._rank, [item])
        return (rank, item) if found is None or self._better(rank, found[0]) else None

    def whole(self, found: tuple[Any, Any] | None, items: list[Any]) -> tuple[Any, Any] | None:
        pairs: Iterable[Any] = zip(ranks_of(self._rank, items), items, strict=True)
        best: tuple[Any, Any] | None = self._best(
            pairs if found is None else chain((found,), pairs), key=itemgetter(0), default=None
        )
        return best

    def groups(self, table: Any, keys: Iterable[Any], items: list[Any]) -> None:
        get, better = table.get, self._better
        for key, rank, item in zip(keys, ranks_of(self._rank, items), items, strict=True):
            found = get(key)
            if found is None or better(rank, found[0]):
                table[key] = rank, item

    def merge(self, found: tuple[Any, Any] | None, other: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
        return other if other is not None and (found is None or self._better(other[0], found[0])) else None


def _item(found: tuple[Any, Any] | None) -> Any:
    return None if found is None else found[1]


def _put(table: Least | Most, keys: Iterable[Any], items: list[Any]) -> None:
    table.native.add(keys, items)


def _extreme(name: str, key: Any, better: Callable[[Any, Any], Any], best: Any) -> AggregateOperation[Any, Any, Any]:
    rank = optional_fn(name, "key", key)
    if rank is None:
        plain = _Plain(better, best)
        table = Least if better is lt else Most
        return AggregateOperation(
            _nothing,
            plain.one,
            plain.merge,
            table=table,
            accumulate_list=plain.whole,
            accumulate_groups=_put,
            combine_groups=table.add_pairs,
            accumulator=name,
        )
    ranked = _Ranked(better, best, rank)
    return AggregateOperation(
        _nothing,
        ranked.one,
        ranked.merge,
        export=_item,
        accumulate_list=ranked.whole,
        accumulate_groups=ranked.groups,
        accumulator=f"{name} with key",
    )


def min_by(key: Callable[[T], Any] | str | None = None) -> AggregateOperation[T, Any, Any]:
    """Find the least item.

    Args:
        key: what items are compared by, as for `min` (None: themselves). NaN is greater than every number.

    Returns:
        An operation whose result is an item; None for none, which a processor does not emit.

    Raises:
        TypeError: when `key` is neither None nor callable.

    Example:
        >>> min_by(len).aggregate(["bb", "a", "c"])
        'a'
    """
    return _extreme("min_by", key, lt, min)


def max_by(key: Callable[[T], Any] | str | None = None) -> AggregateOperation[T, Any, Any]:
    """Find the greatest item.

    Args:
        key: what items are compared by, as for `max` (None: themselves). NaN is greater than every number.

    Returns:
        An operation whose result is an item; None for none, which a processor does not emit.

    Raises:
        TypeError: when `key` is neither None nor callable.

    Example:
        >>> max_by(len).aggregate(["bb", "a", "cc"])
        'bb'
    """
    return _extreme("max_by", key, gt, max)


class _Best:
    """The primitives of `top_n` and `bottom_n`: the accumulator is a list that holds the n best, and may hold more."""

    def __init__(self, n: int, key: Callable[[Any], Any] | None, reverse: bool) -> None:
        self._n = n
        self._most = 2 * n + _SLACK
        self._key = key
        self._reverse = reverse

    def one(self, best: list[Any], item: Any) -> None:
        best.append(item)
        if len(best) >= self._most:
            self.cut(best)

    def whole(self, best: list[Any], items: list[Any]) -> list[Any]:
        best += items if len(items) <= self._n else self._selected(items)
        if len(best) >= self._most:
            self.cut(best)
        return best

    def cut(self, best: list[Any]) -> list[Any]:
        """Sort and leave the n best; of equal ones the first stay."""
        best[:] = self.export(best)
        return best

    def export(self, best: list[Any]) -> list[Any]:
        return in_order(self._key, best, self._reverse)[: self._n]

    def _selected(self, items: list[Any]) -> list[Any]:
        select = nlargest if self._reverse else nsmallest
        ranks = ranks_of(self._key, items, LEAST if self._reverse else GREATEST)
        if ranks is items:
            return select(self._n, items)
        return select(self._n, items, key=one_by_one(ranks))


def _several(name: str, n: int, key: Any, reverse: bool) -> AggregateOperation[Any, list[Any], list[Any]]:
    if type(n) is not int:
        raise TypeError(f"{name}: n must be an int, got {type(n).__name__}: {n!r}")
    if n < 1:
        raise ValueError(f"{name}: n must be at least 1, got {n}")
    kernels = _Best(n, optional_fn(name, "key", key), reverse)
    return AggregateOperation(
        list,
        kernels.one,
        kernels.whole,
        export=kernels.export,
        finish=kernels.cut,
        accumulate_list=kernels.whole,
        accumulator=name,
    )


def top_n(n: int, key: Callable[[T], Any] | str | None = None) -> AggregateOperation[T, list[T], list[T]]:
    """Find the n greatest items.

    Args:
        n: how many, at least 1.
        key: what items are compared by, or the name of a column of rows (None: themselves). NaN comes last.

    Returns:
        An operation whose result is a list of at most n items, the greatest first.

    Raises:
        ValueError: when n is less than 1. TypeError: when an argument has the wrong type.

    Example:
        >>> top_n(2).aggregate([3, 8, 5, 1])
        [8, 5]
    """
    return _several("top_n", n, key, True)


def bottom_n(n: int, key: Callable[[T], Any] | str | None = None) -> AggregateOperation[T, list[T], list[T]]:
    """Find the n least items.

    Args:
        n: how many, at least 1.
        key: what items are compared by, or the name of a column of rows (None: themselves). NaN comes last.

    Returns:
        An operation whose result is a list of at most n items, the least first.

    Raises:
        ValueError: when n is less than 1. TypeError: when an argument has the wrong type.

    Example:
        >>> bottom_n(2, abs).aggregate([3, -8, 5, -1])
        [-1, 3]
    """
    return _several("bottom_n", n, key, False)


def _none_picked() -> Picked:
    return None, 0


def _pick(picked: Picked, item: Any) -> Picked:
    return (picked[0] if picked[1] else item), picked[1] + 1


def _pick_list(picked: Picked, items: list[Any]) -> Picked:
    return (picked[0] if picked[1] or not items else items[0]), picked[1] + len(items)


def _pick_groups(table: Any, keys: Iterable[Any], items: list[Any]) -> None:
    get = table.get
    for key, item in zip(keys, items, strict=True):
        found = get(key, ABSENT)
        table[key] = (item, 1) if found is ABSENT else _pick(found, item)


def _picks(picked: Picked, other: Picked) -> Picked:
    return (picked[0] if picked[1] else other[0]), picked[1] + other[1]


def _unpick(picked: Picked, other: Picked) -> Picked:
    count = picked[1] - other[1]
    return (picked[0] if count else None), count


def _picked(picked: Picked) -> Any:
    return picked[0]


def pick_any() -> AggregateOperation[T, Picked, T | None]:
    """Take one of the items, whichever comes first.

    It counts them, so that it can be deducted: a window whose items have all gone has no item. Until then the result
    may be an item that has left the window.

    Returns:
        An operation whose result is an item; None for none, which a processor does not emit.

    Example:
        >>> pick_any().aggregate(["a", "b"])
        'a'
    """
    return AggregateOperation(
        _none_picked,
        _pick,
        _picks,
        _unpick,
        _picked,
        accumulate_list=_pick_list,
        accumulate_groups=_pick_groups,
        sees_empty=True,
        accumulator="pick_any",
    )


def _first_one(found: tuple[Any] | None, item: Any) -> tuple[Any] | None:
    return (item,) if found is None else None


def _first_groups(table: Any, keys: Iterable[Any], items: list[Any]) -> None:
    for key, item in zip(keys, items, strict=True):
        if table.get(key) is None:
            table[key] = (item,)


def _first_of(found: tuple[Any] | None, other: tuple[Any] | None) -> tuple[Any] | None:
    return other if found is None else None


def _first(found: tuple[Any] | None) -> Any:
    return None if found is None else found[0]


def first_item() -> AggregateOperation[T, Any, T | None]:
    """Take the first item, for `distinct` in windows: it has no `deduct`, so an item never stays after its window.

    Example:
        >>> first_item().aggregate(["a", "b"])
        'a'
    """
    return AggregateOperation(
        _nothing, _first_one, _first_of, None, _first, accumulate_groups=_first_groups, accumulator="first item"
    )
