"""The aggregates of a group: sums, counts, means, variances, quantiles, extreme rows, lists and functions of users.

An `Aggregate` only says what is wanted; `shmjet.columns.groups` computes it. As in SQL, nulls are skipped, and the
result of a group without a non-null value is null, 0 for `count` and `n_unique`. NaN is a value: it makes a sum NaN,
and `min_` and `max_` take it for greater than all numbers, as Spark does and numpy's sort; the same goes for NaT. Must
not import numpy, because a DAG that is only described needs none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

from shmjet.core.column_key import ColumnKey
from shmjet.core.expressions import Expression

if TYPE_CHECKING:
    from shmjet.data.batch import Batch

Function: TypeAlias = (
    Literal["sum", "count", "min", "max", "mean", "first", "last", "var", "std", "quantile", "n_unique", "list"]
    | Literal["min_by", "max_by", "custom"]
)

_FUNCTIONS: Final = (
    *("sum", "count", "min", "max", "mean", "first", "last", "var", "std", "quantile", "n_unique", "list"),
    *("min_by", "max_by", "custom"),
)

Input: TypeAlias = str | Expression
"""What an aggregate is over: a column, by its name or as `column("name")`, or an expression of columns."""

_NAMES: Final = {"sum": "sum_", "min": "min_", "max": "max_", "list": "list_"}

KEEPS_ROWS: Final = frozenset(("quantile", "n_unique", "list", "min_by", "max_by", "custom"))
"""Functions that need the values of all rows of a group, the distinct ones, or a row itself."""

_BY: Final = frozenset(("min_by", "max_by"))


@dataclass(frozen=True, slots=True, repr=False)
class Aggregate:
    """A function over one column of each group.

    Made by `sum_`, `count` and the others rather than by hand.

    Args:
        function: what to compute.
        column: the input column; None for `custom`, and for `count`, which then counts rows.
        ddof: for `var` and `std`, what is subtracted from the number of values in the divisor.
        q: for `quantile`, from 0 to 1.
        fn: for `custom`, what is called with the rows of a group.
        by: for `min_by` and `max_by`, the column that tells which row is meant.
        is_wide: for `sum` of integers: 128 bits, as 16 bytes; for the engine.
        expression: what gives the column, which is then called as the expression is written; None for a column that is
            there.
        by_expression: the same for `by`.
        order: a column that `first` and `last` go by, and equals of `min_by` and `max_by`, instead of the order of
            arrival; for the engine.

    Example:
        >>> sum_("price").column, count().column is None
        ('price', True)
    """

    function: Function
    column: str | None
    ddof: int = 0
    q: float = field(default=0.5, kw_only=True)
    fn: Callable[[Batch], Any] | None = field(default=None, kw_only=True)
    is_wide: bool = field(default=False, kw_only=True)
    expression: Expression | None = field(default=None, kw_only=True, compare=False)
    by: str | None = field(default=None, kw_only=True)
    by_expression: Expression | None = field(default=None, kw_only=True, compare=False)
    order: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.function not in _FUNCTIONS:
            raise ValueError(f"an aggregate is one of {', '.join(_FUNCTIONS)}, got {self.function!r}")
        if not isinstance(self.q, int | float) or isinstance(self.q, bool) or not 0 <= self.q <= 1:
            raise ValueError(f"q must be a number from 0 to 1, got {self.q!r}")
        if self.function == "custom" and not callable(self.fn):
            raise TypeError(f"custom needs a function that takes a Batch, got {type(self.fn).__name__}")
        if self.column is None and self.function in ("count", "custom"):
            return
        if not isinstance(self.column, str) or not self.column:
            raise ValueError(f"{self.function} needs the name of a column, a non-empty str, got {self.column!r}")
        if self.function in _BY and (not isinstance(self.by, str) or not self.by):
            raise ValueError(f"{self.function} needs the name of a column to go by, a non-empty str, got {self.by!r}")
        if not isinstance(self.ddof, int) or self.ddof < 0:
            raise ValueError(f"ddof must be an int of at least 0, got {self.ddof!r}")

    def _refused(self, other: Any = None) -> NoReturn:
        raise TypeError(
            f"{self!r} is one column of the result of agg(), and no expression: give it a name there, and compute with "
            "that in with_columns(name=column(...) / column(...)) after agg()"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = __floordiv__ = __mod__ = _refused

    def __repr__(self) -> str:
        if self.fn is not None:
            return f"custom({getattr(self.fn, '__qualname__', self.fn)})"
        column = "" if self.column is None else repr(self.column) if self.expression is None else self.column
        if self.function == "quantile":
            return f"median({column})" if self.q == 0.5 else f"quantile({column}, {self.q})"
        if self.by is not None:
            column = f"{column}, {repr(self.by) if self.by_expression is None else self.by}"
        ddof = f", ddof={self.ddof}" if self.function in ("var", "std") and self.ddof != 1 else ""
        return f"{_NAMES.get(self.function, self.function)}({column}{ddof})"

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        made = self.expressions
        found: list[str] = []
        for name in (self.column, self.by):
            if name is not None:
                found += made[name].names if name in made else (name,)
        return tuple(dict.fromkeys(found))

    @property
    def expressions(self) -> dict[str, Expression]:
        """Name of a column that has to be computed → what gives it."""
        given = ((self.column, self.expression), (self.by, self.by_expression))
        return {str(name): expression for name, expression in given if expression is not None}

    @property
    def keeps_rows(self) -> bool:
        """Whether it needs the values of all rows of a group, the distinct ones, or a row itself."""
        return self.function in KEEPS_ROWS or self.order is not None

    @property
    def moves_rows(self) -> bool:
        """Whether the rows themselves go to the owner of their key: no stage before it can make less of them."""
        return self.function in ("quantile", "list", "custom")

    @property
    def kept_rows(self) -> tuple[str, str | None]:
        """What tells the rows that it needs: equal for aggregates that share them."""
        others = [name for name in (self.by, self.order) if name is not None]
        return self.function, "\0".join((str(self.column), *others)) if others else self.column


def _aggregate(
    function: Function, given: Input | None, *, ddof: int = 0, q: float = 0.5, by: Input | None = None
) -> Aggregate:
    column, expression = _taken_apart(given)
    by_column, by_expression = _taken_apart(by)
    return Aggregate(function, column, ddof, q=q, expression=expression, by=by_column, by_expression=by_expression)


def _taken_apart(given: Input | None) -> tuple[Any, Expression | None]:
    """Return the name of a column, and what computes it if it is not there."""
    if isinstance(given, ColumnKey) and len(given.names) == 1:
        return given.names[0], None
    if isinstance(given, Expression) and not isinstance(given, ColumnKey):
        return repr(given), given
    return given, None


def sum_(column: Input) -> Aggregate:
    """Sum of the non-null values: int64 for bool and integers, float64 (compensated, after Neumaier) for floats.

    A sum of integers that leaves int64 on the way is an error that names the column; it never wraps.

    Example:
        >>> sum_("price")
        sum_('price')
    """
    return _aggregate("sum", column)


def count(column: Input | None = None) -> Aggregate:
    """Number of rows, or of non-null values of `column`, as int64.

    Example:
        >>> count(), count("price")
        (count(), count('price'))
    """
    return _aggregate("count", column)


def min_(column: Input) -> Aggregate:
    """Least of the non-null numbers, dates or texts, in the column's dtype. Text compares by code points.

    Example:
        >>> min_("price")
        min_('price')
    """
    return _aggregate("min", column)


def max_(column: Input) -> Aggregate:
    """Greatest of the non-null numbers, dates or texts, in the column's dtype. Text compares by code points.

    Example:
        >>> max_("price")
        max_('price')
    """
    return _aggregate("max", column)


def min_by(column: Input, by: Input) -> Aggregate:
    """The value of a column in the row in which another is least: the first of such rows.

    Rows in which `by` is null are skipped; where it is NaN in all others, NaN counts. The value may be null.

    Args:
        column: whose value is wanted.
        by: what is compared: numbers, dates, text, decimals or categories.

    Example:
        >>> min_by("carrier", "dep_delay")
        min_by('carrier', 'dep_delay')
    """
    return _aggregate("min_by", column, by=by)


def max_by(column: Input, by: Input) -> Aggregate:
    """The value of a column in the row in which another is greatest: the first of such rows.

    Rows in which `by` is null are skipped; NaN is greater than all numbers. The value may be null.

    Args:
        column: whose value is wanted.
        by: what is compared: numbers, dates, text, decimals or categories.

    Example:
        >>> max_by("auction", "price")
        max_by('auction', 'price')
    """
    return _aggregate("max_by", column, by=by)


def mean(column: Input) -> Aggregate:
    """Mean of the non-null numbers of a column, as float64.

    Example:
        >>> mean("price")
        mean('price')
    """
    return _aggregate("mean", column)


def first(column: Input) -> Aggregate:
    """First non-null value in order of arrival, in the column's dtype, which may be any.

    Example:
        >>> first("price")
        first('price')
    """
    return _aggregate("first", column)


def last(column: Input) -> Aggregate:
    """Last non-null value in order of arrival, in the column's dtype, which may be any.

    Example:
        >>> last("price")
        last('price')
    """
    return _aggregate("last", column)


def var(column: Input, ddof: int = 1) -> Aggregate:
    """Variance of a column's non-null numbers, as float64: squared deviations / (count - ddof), by Welford and Chan.

    Null for a group with no more than `ddof` values.

    Example:
        >>> var("price"), var("price", ddof=0)
        (var('price'), var('price', ddof=0))
    """
    return _aggregate("var", column, ddof=ddof)


def std(column: Input, ddof: int = 1) -> Aggregate:
    """Standard deviation of a column's non-null numbers, as float64: the square root of `var`.

    Null for a group with no more than `ddof` values.

    Example:
        >>> std("price"), std("price", ddof=0)
        (std('price'), std('price', ddof=0))
    """
    return _aggregate("std", column, ddof=ddof)


def quantile(column: Input, q: float) -> Aggregate:
    """Quantile of a column's non-null numbers, as float64, between two values by linear interpolation.

    NaN counts as greater than all numbers. The values of all rows are kept until the results are made.

    Args:
        column: of bool, integers or floats.
        q: from 0, the least value, to 1, the greatest.

    Example:
        >>> quantile("price", 0.9)
        quantile('price', 0.9)
    """
    return _aggregate("quantile", column, q=q)


def median(column: Input) -> Aggregate:
    """Median of a column's non-null numbers, as float64: `quantile` with 0.5.

    Example:
        >>> median("price")
        median('price')
    """
    return _aggregate("quantile", column, q=0.5)


def n_unique(column: Input) -> Aggregate:
    """Number of distinct non-null values, as int64. NaN counts once, and -0.0 is 0.0.

    Example:
        >>> n_unique("user")
        n_unique('user')
    """
    return _aggregate("n_unique", column)


def list_(column: Input) -> Aggregate:
    """All values of a column as one list, nulls among them, in order of arrival.

    The values of all rows are kept until the results are made.

    Example:
        >>> list_("price")
        list_('price')
    """
    return _aggregate("list", column)


def custom(fn: Callable[[Batch], Any]) -> Aggregate:
    """Whatever a function returns for the rows of a group: one value, None for null.

    It is called once for each group, with a `Batch` of all columns, so it costs microseconds a group where the other
    aggregates cost nanoseconds a row. The rows are kept until the results are made.

    Args:
        fn: what takes the batch. It has to be picklable, as the functions of a job are.

    Example:
        >>> def spread(rows): return rows["price"].max() - rows["price"].min()
        >>> custom(spread)
        custom(spread)
    """
    return Aggregate("custom", None, fn=fn)
