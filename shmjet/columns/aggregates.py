"""The aggregates of a group: `sum_`, `count`, `min_`, `max_`, `mean`, `first`, `last`, `var`.

An `Aggregate` only says what is wanted; `shmjet.columns.groups` computes it. As in SQL, nulls are skipped, and the
result of a group without a non-null value is null, 0 for `count`. NaN is a value: it makes a sum NaN, and `min_` and
`max_` take it for greater than all numbers, as Spark does and numpy's sort; the same goes for NaT. Must not import
numpy, because a DAG that is only described needs none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Function: TypeAlias = Literal["sum", "count", "min", "max", "mean", "first", "last", "var"]

_FUNCTIONS: Final = ("sum", "count", "min", "max", "mean", "first", "last", "var")


@dataclass(frozen=True, slots=True, repr=False)
class Aggregate:
    """A function over one column of each group.

    Made by `sum_`, `count` and the others rather than by hand.

    Args:
        function: what to compute.
        column: the input column; None only for `count`, which then counts rows.
        ddof: for `var`, what is subtracted from the number of values in the divisor.
    """

    function: Function
    column: str | None
    ddof: int = 0

    def __post_init__(self) -> None:
        if self.function not in _FUNCTIONS:
            raise ValueError(f"an aggregate is one of {', '.join(_FUNCTIONS)}, got {self.function!r}")
        if self.column is None and self.function == "count":
            return
        if not isinstance(self.column, str) or not self.column:
            raise ValueError(f"{self.function} needs the name of a column, a non-empty str, got {self.column!r}")
        if not isinstance(self.ddof, int) or self.ddof < 0:
            raise ValueError(f"ddof must be an int of at least 0, got {self.ddof!r}")

    def __repr__(self) -> str:
        name = {"sum": "sum_", "min": "min_", "max": "max_"}.get(self.function, self.function)
        column = "" if self.column is None else repr(self.column)
        ddof = f", ddof={self.ddof}" if self.function == "var" and self.ddof != 1 else ""
        return f"{name}({column}{ddof})"


def sum_(column: str) -> Aggregate:
    """Sum of the non-null values: int64 for bool and integers, float64 (compensated, after Neumaier) for floats.

    A sum of integers that leaves int64 on the way is an error that names the column; it never wraps.

    Example:
        >>> sum_("price")
        sum_('price')
    """
    return Aggregate("sum", column)


def count(column: str | None = None) -> Aggregate:
    """Number of rows, or of non-null values of `column`, as int64.

    Example:
        >>> count(), count("price")
        (count(), count('price'))
    """
    return Aggregate("count", column)


def min_(column: str) -> Aggregate:
    """Least of the non-null numbers, dates or texts, in the column's dtype. Text compares by code points.

    Example:
        >>> min_("price")
        min_('price')
    """
    return Aggregate("min", column)


def max_(column: str) -> Aggregate:
    """Greatest of the non-null numbers, dates or texts, in the column's dtype. Text compares by code points.

    Example:
        >>> max_("price")
        max_('price')
    """
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """Mean of the non-null numbers of a column, as float64.

    Example:
        >>> mean("price")
        mean('price')
    """
    return Aggregate("mean", column)


def first(column: str) -> Aggregate:
    """First non-null value in order of arrival, in the column's dtype, which may be any.

    Example:
        >>> first("price")
        first('price')
    """
    return Aggregate("first", column)


def last(column: str) -> Aggregate:
    """Last non-null value in order of arrival, in the column's dtype, which may be any.

    Example:
        >>> last("price")
        last('price')
    """
    return Aggregate("last", column)


def var(column: str, ddof: int = 1) -> Aggregate:
    """Variance of a column's non-null numbers, as float64: squared deviations / (count - ddof), by Welford and Chan.

    Null for a group with no more than `ddof` values.

    Example:
        >>> var("price"), var("price", ddof=0)
        (var('price'), var('price', ddof=0))
    """
    return Aggregate("var", column, ddof)
