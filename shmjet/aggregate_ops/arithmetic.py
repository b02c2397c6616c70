"""Counting and arithmetic: `counting`, `summing`, `averaging`, `linear_trend`.

Must not know: tables' insides. Numbers are Python's: ints of any size, floats, `Decimal`, `Fraction`. Sums are made by
plain addition from left to right, starting with the int 0, as `functools.reduce(operator.add, items, 0)` does; so the
sum of floats depends on their order, and that of ints does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import inf, isfinite, nan
from operator import add, sub
from typing import Any, TypeVar

from shmjet._native import add_up
from shmjet.aggregate_ops.operation import AggregateOperation, optional_fn, value_fn
from shmjet.aggregate_ops.tables import Counts, Means, Sums
from shmjet.core.key_functions import mapped

T = TypeVar("T")

Mean = tuple[Any, int]
"""The accumulator of `averaging`: the sum and the number of items."""

Trend = tuple[int, Any, Any, Any, Any]
"""The accumulator of `linear_trend`: the number of points, and the sums of x, y, xy and xx."""


def _count_one(count: int, _item: Any) -> int:
    return count + 1


def _count_list(count: int, items: list[Any]) -> int:
    return count + len(items)


def _count_groups(table: Counts, keys: Iterable[Any], _items: list[Any]) -> None:
    table.native.add(keys)


def counting() -> AggregateOperation[Any, int, int]:
    """Count the items.

    Returns:
        An operation whose result is an int.

    Example:
        >>> counting().aggregate(["a", "b"])
        2
    """
    return AggregateOperation(
        int,
        _count_one,
        add,
        sub,
        table=Counts,
        accumulate_list=_count_list,
        accumulate_groups=_count_groups,
        combine_groups=Counts.add_pairs,
        sees_empty=True,
        accumulator="count",
    )


class _Summing:
    """The primitives of `summing`; a class, so that they pickle."""

    def __init__(self, fn: Callable[[Any], Any] | None) -> None:
        self._fn = fn

    def one(self, total: Any, item: Any) -> Any:
        return total + (item if self._fn is None else self._fn(item))

    def whole(self, total: Any, items: list[Any]) -> Any:
        return add_up(total, items if self._fn is None else mapped(self._fn, items))

    def groups(self, table: Sums | Means, keys: Iterable[Any], items: list[Any]) -> None:
        table.native.add(keys, items if self._fn is None else mapped(self._fn, items))


def summing(fn: Callable[[T], Any] | str | None = None) -> AggregateOperation[T, Any, Any]:
    """Add up the items, or `fn(item)` of each; the int 0 for none.

    Args:
        fn: number of an item, or the name of a column of rows; default: the item is the number.

    Returns:
        An operation whose result is a number: exact for ints of any size, with one rounding for each float.

    Raises:
        TypeError: when `fn` is neither None nor callable.

    Example:
        >>> summing(len).aggregate(["ab", "c"])
        3
    """
    kernels = _Summing(optional_fn("summing", "fn", fn))
    return AggregateOperation(
        int,
        kernels.one,
        add,
        sub,
        accumulate_list=kernels.whole,
        table=Sums,
        accumulate_groups=kernels.groups,
        combine_groups=Sums.add_pairs,
        accumulator="sum",
    )


class _Averaging(_Summing):
    """The primitives of `averaging`."""

    def one(self, mean: Mean, item: Any) -> Mean:
        return super().one(mean[0], item), mean[1] + 1

    def whole(self, mean: Mean, items: list[Any]) -> Mean:
        return super().whole(mean[0], items), mean[1] + len(items)


def _no_mean() -> Mean:
    return 0, 0


def _add_means(mean: Mean, other: Mean) -> Mean:
    return mean[0] + other[0], mean[1] + other[1]


def _deduct_means(mean: Mean, other: Mean) -> Mean:
    return mean[0] - other[0], mean[1] - other[1]


def _mean(mean: Mean) -> Any:
    return mean[0] / mean[1] if mean[1] else nan


def averaging(fn: Callable[[T], Any] | str | None = None) -> AggregateOperation[T, Mean, Any]:
    """Take the arithmetic mean of the items, or of `fn(item)` of each.

    Args:
        fn: number of an item, or the name of a column of rows; default: the item is the number.

    Returns:
        An operation whose result is sum / count (a float for ints and floats), and NaN for no items. The sum of ints
        is exact, so their mean is rounded once.

    Raises:
        TypeError: when `fn` is neither None nor callable.

    Example:
        >>> averaging().aggregate([1, 2, 6])
        3.0
    """
    kernels = _Averaging(optional_fn("averaging", "fn", fn))
    return AggregateOperation(
        _no_mean,
        kernels.one,
        _add_means,
        _deduct_means,
        _mean,
        table=Means,
        accumulate_list=kernels.whole,
        accumulate_groups=kernels.groups,
        combine_groups=Means.add_pairs,
        sees_empty=True,
        accumulator="sum and count",
    )


class _Line:
    """The primitives of `linear_trend`."""

    def __init__(self, x_fn: Callable[[Any], Any], y_fn: Callable[[Any], Any]) -> None:
        self._x_fn = x_fn
        self._y_fn = y_fn

    def one(self, trend: Trend, item: Any) -> Trend:
        x, y = _exact(self._x_fn(item)), _exact(self._y_fn(item))
        count, xs, ys, xys, xxs = trend
        return count + 1, xs + x, ys + y, xys + x * y, xxs + x * x


def _exact(number: Any) -> Any:
    """Return the fraction that a float is: the sums below differ by little where points lie close together."""
    return Fraction(number) if isinstance(number, float) and isfinite(number) else number


def _no_trend() -> Trend:
    return 0, 0, 0, 0, 0


def _add_trends(trend: Trend, other: Trend) -> Trend:
    count, *sums = map(add, trend, other)
    return (count, *sums)


def _deduct_trends(trend: Trend, other: Trend) -> Trend:
    count, *sums = map(sub, trend, other)
    return (count, *sums)


def _slope(trend: Trend) -> float:
    count, xs, ys, xys, xxs = trend
    spread = count * xxs - xs * xs
    rise = count * xys - xs * ys
    if not spread or any(isinstance(each, float) for each in (rise, spread)):  # a float: something was not finite
        return nan
    slope = Fraction(rise) / Fraction(spread)
    try:
        return float(slope)
    except OverflowError:
        return inf if slope > 0 else -inf


def linear_trend(x_fn: Callable[[T], Any] | str, y_fn: Callable[[T], Any] | str) -> AggregateOperation[T, Trend, float]:
    """Find the slope of the straight line that lies closest to the points (x, y): ordinary least squares.

    Sums are exact (floats are taken as the fractions they are), so that neither a large common offset, as that of
    timestamps, nor the order of the items matters. A float costs some microseconds.

    Args:
        x_fn: int or float of an item, or the name of a column of rows, for example its time.
        y_fn: int or float of an item, for example its price.

    Returns:
        An operation whose result is the change of y per unit of x, a float; NaN for points that share one x, for
        fewer than two, and when a coordinate was not finite.

    Raises:
        TypeError: when a function is not callable.

    Example:
        >>> from operator import itemgetter
        >>> linear_trend(itemgetter(0), itemgetter(1)).aggregate([(1, 10), (2, 12), (3, 14)])
        2.0
    """
    kernels = _Line(value_fn("linear_trend", "x_fn", x_fn), value_fn("linear_trend", "y_fn", y_fn))
    return AggregateOperation(
        _no_trend, kernels.one, _add_trends, _deduct_trends, _slope, sees_empty=True, accumulator="sums of a trend"
    )
