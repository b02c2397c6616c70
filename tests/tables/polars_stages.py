"""Stages of columns on polars: the same methods, carried out by lazy frames.

A program written in stages runs on either, so that polars says what it should answer. Where polars has another meaning
than shmjet promises, the promised one is spelled out: comparisons of NaN follow IEEE 754, NaN matches nothing in joins,
sorts put NaN and then null last in both directions, and `min` and `max` take NaN for the greatest number. With
`plain=True` none of that is added: polars at its own speed, for data without NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars

from shmjet.columns.aggregates import Aggregate
from shmjet.core.expressions import Call, Expression, Literal

_INFIX: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_TYPES = {"int64": polars.Int64, "float64": polars.Float64, "int": polars.Int64, "float": polars.Float64}


class PolarsStage:
    """A lazy frame with the methods of a stage of batches.

    Args:
        frame: the rows.
        plain: leave NaN to polars.
    """

    def __init__(self, frame: polars.LazyFrame, plain: bool = False) -> None:
        self.frame, self.plain = frame, plain

    def then(self, frame: polars.LazyFrame) -> PolarsStage:
        return PolarsStage(frame, self.plain)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self.frame.collect_schema().names()

    def floats(self) -> frozenset[str]:
        if self.plain:
            return frozenset()
        return frozenset(name for name, dtype in self.frame.collect_schema().items() if dtype.is_float())

    def expression(self, given: Any) -> polars.Expr:
        """Return an expression of shmjet, or a value, as one of polars."""
        if not isinstance(given, Expression):
            return polars.lit(given)
        return self._translated(given)

    def is_float(self, expression: Expression) -> bool:
        if self.plain or not expression.names:
            return False
        return self.frame.select(self._translated(expression).alias("x")).collect_schema()["x"].is_float()

    def _translated(self, expression: Expression) -> polars.Expr:
        if isinstance(expression, Literal):
            value = expression.value
            return polars.lit(value.item() if hasattr(value, "item") else value)
        if not isinstance(expression, Call):
            return polars.col(expression.names[0])
        of = [self._translated(each) for each in expression.of]
        name, options = expression.function, dict(expression.options)
        if name in _COMPARISONS:
            found = _INFIX[name](*of)
            for each in expression.of:
                if self.is_float(each):
                    nan = self._translated(each).is_nan()
                    found = found | nan if name == "!=" else found & ~nan
            return found
        if name == "/" and not self.plain:
            of = [each.cast(polars.Float64) for each in of]
        if name in _INFIX:
            return _INFIX[name](*of)
        if name == "when":
            *pairs, last = of
            chain: Any = polars
            for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
                chain = chain.when(condition).then(value)
            return chain.otherwise(last)
        if name == "cast":
            return of[0].cast(_TYPES[str(getattr(options["type"], "__name__", options["type"]))])
        if name == "is_in":
            return of[0].is_in(list(options["values"]))
        return self._function(name, of, options)

    def _function(self, name: str, of: list[polars.Expr], options: dict[str, Any]) -> polars.Expr:
        value, *others = of
        functions: dict[str, Callable[[], polars.Expr]] = {
            "~": lambda: ~value,
            "neg": lambda: -value,
            "abs": lambda: value.abs(),
            "is_null": lambda: value.is_null(),
            "is_not_null": lambda: value.is_not_null(),
            "fill_null": lambda: value.fill_null(*others),
            "str.contains": lambda: value.str.contains(options["pattern"], literal=options["literal"]),
            "str.starts_with": lambda: value.str.starts_with(options["prefix"]),
            "str.ends_with": lambda: value.str.ends_with(options["suffix"]),
            "str.lower": lambda: value.str.to_lowercase(),
            "str.upper": lambda: value.str.to_uppercase(),
            "str.len_chars": lambda: value.str.len_chars().cast(polars.Int64),
            "str.slice": lambda: value.str.slice(options["start"], options.get("length")),
            "dt.year": lambda: value.dt.year().cast(polars.Int64),
            "dt.month": lambda: value.dt.month().cast(polars.Int64),
            "dt.day": lambda: value.dt.day().cast(polars.Int64),
            "dt.hour": lambda: value.dt.hour().cast(polars.Int64),
            "dt.date": lambda: value.dt.date(),
            "dt.weekday": lambda: value.dt.weekday().cast(polars.Int64),
        }
        return functions[name]()

    # -- stages --------------------------------------------------------------------------------------------------------

    def select(self, *given: Any, **named: Any) -> PolarsStage:
        """Only some columns."""
        chosen = [
            self.expression(each).alias(each.output_name) if isinstance(each, Expression) else polars.col(each)
            for each in given
        ]
        chosen += [self._column(name, each) for name, each in named.items()]
        return self.then(self.frame.select(chosen))

    def with_columns(self, **named: Any) -> PolarsStage:
        """Further columns, or others in their places."""
        return self.then(self.frame.with_columns([self._column(name, each) for name, each in named.items()]))

    def _column(self, name: str, given: Any) -> polars.Expr:
        return self.expression(given).alias(name)

    def filter(self, expression: Expression) -> PolarsStage:
        """The rows where something is true."""
        return self.then(self.frame.filter(self.expression(expression)))

    def join(
        self,
        other: PolarsStage,
        on: str | Sequence[str] | None = None,
        *,
        left_on: str | Sequence[str] | None = None,
        right_on: str | Sequence[str] | None = None,
        how: str = "inner",
    ) -> PolarsStage:
        """Rows with equal keys."""
        left, right = _listed(on or left_on), _listed(on or right_on)
        kind: Any = {"outer": "full"}.get(how, how)
        if self.plain or not (self.floats() & set(left) or other.floats() & set(right)):
            if how == "right":
                swapped = other.frame.join(self.frame, left_on=right, right_on=left, how="left", coalesce=True)
                names = dict(zip(right, left, strict=True))
                columns = [*self.names, *(n for n in other.names if n not in right)]
                return self.then(swapped.rename(names).select(columns))
            joined = self.frame.join(
                other.frame, left_on=left, right_on=right, how=kind, coalesce=True if how in _WIDE else None
            )
            return self.then(joined)
        return self._joined_by_floats(other, left, right, how)

    def _joined_by_floats(self, other: PolarsStage, left: list[str], right: list[str], how: str) -> PolarsStage:
        """Join by hidden keys without NaN, so that rows that match nothing keep theirs."""

        def hidden(stage: PolarsStage, names: list[str]) -> polars.LazyFrame:
            keys = []
            for at, name in enumerate(names):
                key = polars.col(name)
                if name in stage.floats():
                    key = polars.when(key.is_nan()).then(None).otherwise(key + 0.0)
                keys.append(key.alias(f"__key_{at}"))
            return stage.frame.with_columns(keys)

        hidden_keys = [f"__key_{at}" for at in range(len(left))]
        renamed = {name: f"__right_{name}" for name in right}
        two = hidden(other, right).rename(renamed)
        kind: Any = {"outer": "full"}.get(how, how)
        if how == "right":
            joined = two.join(hidden(self, left), on=hidden_keys, how="left")
        else:
            joined = hidden(self, left).join(two, on=hidden_keys, how=kind, coalesce=True if how in _WIDE else None)
        rest = [name for name in other.names if name not in right]
        if how in ("semi", "anti"):
            return self.then(joined.select(self.names))
        if how in ("right", "outer"):
            joined = joined.with_columns(
                polars.coalesce(name, f"__right_{theirs}").alias(name) for name, theirs in zip(left, right, strict=True)
            )
        return self.then(joined.select(*self.names, *rest))

    def sort(self, *names: str, descending: bool | Sequence[bool] = False, nulls_first: bool = False) -> PolarsStage:
        """All rows in order."""
        ways = [descending] * len(names) if isinstance(descending, bool) else list(descending)
        keys: list[polars.Expr] = []
        flags: list[bool] = []
        floats = self.floats()
        for name, way in zip(names, ways, strict=True):
            key = polars.col(name)
            keys.append(key.is_null())
            flags.append(nulls_first)
            if name in floats:
                keys.append(key.is_nan().fill_null(False))  # last, also where nulls are first
                flags.append(False)
                key = polars.when(key.is_nan()).then(None).otherwise(key)
            keys.append(key)
            flags.append(way)
        if self.plain:
            return self.then(self.frame.sort(list(names), descending=ways, nulls_last=True))
        return self.then(self.frame.sort(keys, descending=flags, nulls_last=True, maintain_order=True))

    def distinct(self, *names: str) -> PolarsStage:
        """One row for each key."""
        return self.then(self.frame.unique(list(names) or None))

    def top(self, n: int, by: str) -> PolarsStage:
        """The first rows of the descending sort."""
        return self.then(self.sort(by, descending=True).frame.head(n))

    def union(self, *others: PolarsStage) -> PolarsStage:
        """The rows of all."""
        return self.then(polars.concat([self.frame, *(other.frame.select(self.names) for other in others)]))

    def group_by(self, *names: str) -> _Groups:
        """Groups of equal keys."""
        return _Groups(self, names)


_WIDE = ("left", "outer")


class _Groups:
    def __init__(self, stage: PolarsStage, names: tuple[str, ...]) -> None:
        self._stage, self._names = stage, names

    def agg(self, **aggregates: Aggregate) -> PolarsStage:
        """One row for each group."""
        stage = self._stage
        reduced = [self._reduced(each).alias(name) for name, each in aggregates.items()]
        if self._names:
            return stage.then(stage.frame.group_by(list(self._names)).agg(reduced))
        return stage.then(
            stage.frame.select(polars.len().alias("__n"), *reduced).filter(polars.col("__n") > 0).drop("__n")
        )

    def _reduced(self, aggregate: Aggregate) -> polars.Expr:
        stage, name = self._stage, aggregate.function
        given: Any = getattr(aggregate, "expression", None)
        if name == "count" and given is None and not aggregate.column:
            return polars.len().cast(polars.Int64)
        value = stage.expression(given) if given is not None else polars.col(str(aggregate.column))
        is_float = stage.is_float(given) if given is not None else aggregate.column in stage.floats()
        if name in ("min", "max") and is_float:
            return _with_nan(value, name)
        kinds: dict[str, Callable[[], polars.Expr]] = {
            "sum": lambda: polars.when(value.count() > 0).then(value.sum()),
            "count": lambda: value.count().cast(polars.Int64),
            "mean": value.mean,
            "min": value.min,
            "max": value.max,
            "n_unique": lambda: value.drop_nulls().n_unique().cast(polars.Int64),
            "median": value.median,
            "quantile": lambda: value.quantile(aggregate.q, "linear"),
            "std": value.std,
        }
        return kinds[name]()


def _with_nan(value: polars.Expr, name: str) -> polars.Expr:
    """Return a minimum or maximum for which NaN is the greatest number."""
    if name == "max":
        return polars.when(value.is_nan().any()).then(float("nan")).otherwise(value.max())
    numbers = polars.when(value.is_nan()).then(None).otherwise(value)
    return polars.when(numbers.count() > 0).then(numbers.min()).otherwise(value.max())


def _listed(names: str | Iterable[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())
