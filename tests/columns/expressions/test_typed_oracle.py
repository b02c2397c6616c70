"""Random expressions over decimals, times with a zone, categories and nested values, against plain Python, row by row.

Here a tree is built together with the function that computes it of a row, in Python's own `decimal` and `zoneinfo`.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, column, when
from shmjet.columns.expressions import Projection
from shmjet.columns.expressions.program import Program
from shmjet.columns.expressions.projection import computed_columns
from shmjet.core import Expression
from shmjet.data.nullable import Nullable
from tests.data.typed import decimals, instants
from tests.examples import examples

Row = dict[str, Any]
EXACT = decimal.Context(prec=200)


class Refused(Exception):
    """What a column raises a BatchError for."""


class Tree(NamedTuple):
    """An expression, what it is of a row, and of a decimal the digits after the point, of an instant the zone."""

    expression: Expression
    of: Callable[[Row], Any]
    scale: int = 0
    zone: datetime.tzinfo | None = None


DECIMALS = {"d": (18, 2), "e": (38, 10), "g": (9, 0), "h": (38, 38)}
ZONED = {"y": ("us", "Europe/Berlin"), "z": ("s", "America/New_York"), "w": ("ms", "Australia/Lord_Howe")}
SCHEMA: dict[str, Any] = {
    **{name: f"decimal({precision}, {scale})" for name, (precision, scale) in DECIMALS.items()},
    **{name: f"timestamp[{unit}, {zone}]" for name, (unit, zone) in ZONED.items()},
    "n": "int64",
    "u": "uint64",
    "f": "float64",
    "b": "bool",
    "s": str,
    "c": "category",
    "k": "category",
    "l": "list<float64>",
    "m": "list<float64>",
    "t": "struct<a: decimal(5, 1), b: text>",
}
words = st.sampled_from(["", "a", "b", "ab", "Ä", "ß", "zz", "日本", "a" * 300])
floats = st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 1.5, -2.25, 1e30, 5e-324, 2.0**63])
lists = st.lists(st.none() | floats, max_size=3)
integers = st.sampled_from([0, 1, -1, 7, (1 << 63) - 1, -(1 << 63)]) | st.integers(-999, 999)
structs = st.fixed_dictionaries({"a": st.none() | decimals(5, 1), "b": st.none() | words})
VALUES: dict[str, Any] = {
    **{name: decimals(*kind) for name, kind in DECIMALS.items()},
    "y": instants(ZONED["y"][1]),
    "z": instants(ZONED["z"][1]).map(lambda at: at.replace(microsecond=0)),
    "w": instants(ZONED["w"][1]).map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
    "n": integers,
    "u": st.sampled_from([0, 1, 1 << 63, (1 << 64) - 1]),
    "f": floats,
    "b": st.booleans(),
    "s": words,
    "c": words,
    "k": words,
    "l": lists,
    "m": lists,
    "t": structs,
}


@st.composite
def tables(draw: st.DrawFn, names: tuple[str, ...]) -> tuple[Batch, list[Row]]:
    rows = draw(st.integers(0, 6))
    columns = {}
    for name in names:
        values = VALUES[name] | st.none() if draw(st.booleans()) else VALUES[name]
        columns[name] = draw(st.lists(values, min_size=rows, max_size=rows))
    batch = Batch(columns, schema={name: SCHEMA[name] for name in names})
    return batch, [{name: columns[name][row] for name in names} for row in range(rows)]


def _strict(fn: Callable[..., Any], *of: Tree) -> Callable[[Row], Any]:
    """A function that is null where one of its operands is."""

    def apply(row: Row) -> Any:
        values = [each.of(row) for each in of]
        return None if any(value is None for value in values) else fn(*values)

    return apply


def _column(name: str, scale: int = 0) -> Tree:
    return Tree(column(name), lambda row: row[name], scale)


def _chosen(condition: Tree, one: Tree, two: Tree) -> Tree:
    expression = when(condition.expression).then(one.expression).otherwise(two.expression)
    scale = max(one.scale, two.scale)
    return Tree(
        expression,
        lambda row: _fitting(one.of(row) if condition.of(row) is True else two.of(row), scale, one.zone),
        scale,
        one.zone,
    )


def _filled(one: Tree, two: Tree) -> Tree:
    def apply(row: Row) -> Any:
        value = one.of(row)
        return _fitting(two.of(row) if value is None else value, scale, one.zone)

    scale = max(one.scale, two.scale)
    return Tree(one.expression.fill_null(two.expression), apply, scale, one.zone)


# -- decimals ----------------------------------------------------------------------------------------------------------


def _fitting(value: Any, scale: int, zone: datetime.tzinfo | None = None) -> Any:
    """A decimal with so many digits after the point, an instant in a zone. Raises Refused for more than 38 digits."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(zone)
    if not isinstance(value, decimal.Decimal):
        return value
    if abs(value.scaleb(scale, EXACT)) >= 10**38:
        raise Refused
    return value


def _divided(one: decimal.Decimal, two: decimal.Decimal, remainder: bool, scale: int) -> Any:
    if two == 0:
        return None
    if max(abs(one), abs(two)).scaleb(scale) >= 1 << 127:  # both are brought to one scale first
        raise Refused
    whole = math.floor(fractions.Fraction(one) / fractions.Fraction(two))
    if not remainder:
        return _fitting(decimal.Decimal(whole), 0)
    return _fitting(EXACT.subtract(one, EXACT.multiply(decimal.Decimal(whole), two)), scale)


def _rounded(value: decimal.Decimal, precision: int, scale: int) -> decimal.Decimal:
    rounded = value.quantize(
        decimal.Decimal(1).scaleb(-scale), context=decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)
    )
    if abs(rounded.scaleb(scale, EXACT)) >= 10**precision:
        raise Refused
    return rounded


@st.composite
def numbers(draw: st.DrawFn, depth: int) -> Tree:
    """A decimal."""
    how = draw(st.integers(0, 8)) if depth else 0
    if how <= 1:
        name = draw(st.sampled_from(sorted(DECIMALS)))
        return _column(name, DECIMALS[name][1])
    one = draw(numbers(depth - 1))
    if how == 2:
        sign = draw(st.sampled_from([operator.neg, operator.abs]))
        return Tree(sign(one.expression), _strict(lambda value: -value if sign(1) < 0 else abs(value), one), one.scale)
    if how == 3:
        precision, scale = draw(st.sampled_from([(38, 0), (18, 2), (38, 20), (5, 1)]))
        expression = one.expression.cast(f"decimal({precision}, {scale})")
        return Tree(expression, _strict(lambda value: _rounded(value, precision, scale), one), scale)
    if how == 4:
        return _chosen(draw(conditions(depth - 1)), one, draw(numbers(depth - 1)))
    two = draw(numbers(depth - 1) | exact_values())
    if how == 5:
        return _filled(one, two)
    if draw(st.booleans()):
        one, two = two, one
    if how == 6:
        remainder, scale = draw(st.booleans()), max(one.scale, two.scale)
        expression = one.expression % two.expression if remainder else one.expression // two.expression
        apply = _strict(lambda a, b: _divided(a, b, remainder, scale), one, two)
        return Tree(expression, apply, scale if remainder else 0)
    symbols = ["add", "subtract", "multiply"] if one.scale + two.scale <= 38 else ["add", "subtract"]
    symbol = draw(st.sampled_from(symbols))
    scale = one.scale + two.scale if symbol == "multiply" else max(one.scale, two.scale)
    infix = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}[symbol]
    apply = _strict(lambda a, b: _fitting(getattr(EXACT, symbol)(a, b), scale), one, two)
    return Tree(infix(one.expression, two.expression), apply, scale)


@st.composite
def exact_values(draw: st.DrawFn) -> Any:
    """A number that a decimal may meet: a literal, or a column of integers."""
    if draw(st.booleans()):
        return _column(name := draw(st.sampled_from(["n", "u"])))._replace(
            of=lambda row: None if row[name] is None else decimal.Decimal(row[name])
        )
    scale = draw(st.sampled_from([0, 0, 1, 5, 38]))
    value = draw(st.integers(-999, 999).map(lambda units: decimal.Decimal(units).scaleb(-scale)))
    given_value = int(value) if scale == 0 and draw(st.booleans()) else value
    return Tree(given_value, lambda row: value, scale)  # type: ignore[arg-type]


# -- times with a zone -------------------------------------------------------------------------------------------------


@st.composite
def moments(draw: st.DrawFn, depth: int) -> Tree:
    """A time with a zone."""
    how = draw(st.integers(0, 5)) if depth else 0
    if how <= 1:
        name = draw(st.sampled_from(sorted(ZONED)))
        return _column(name)._replace(zone=ZoneInfo(ZONED[name][1]))
    one = draw(moments(depth - 1))
    if how == 2:
        zone = ZoneInfo(draw(st.sampled_from(["Europe/Berlin", "Asia/Kathmandu"])))
        expression = one.expression.cast(f"timestamp[us, {zone}]")
        return Tree(expression, _strict(lambda at: at.astimezone(zone), one), zone=zone)
    if how == 3:
        span = datetime.timedelta(seconds=draw(st.integers(-100_000, 100_000)))
        return Tree(
            one.expression + span,
            _strict(lambda at: (at.astimezone(datetime.UTC) + span).astimezone(at.tzinfo), one),
            zone=one.zone,
        )
    two = draw(moments(depth - 1))
    if how == 4:
        return _chosen(draw(conditions(depth - 1)), one, two)
    return _filled(one, two)


# -- the rest ----------------------------------------------------------------------------------------------------------


@st.composite
def texts(draw: st.DrawFn, depth: int) -> Tree:
    """Text or a category."""
    how = draw(st.integers(0, 5)) if depth else 0
    if how <= 1:
        return _column(draw(st.sampled_from("sck")))
    one = draw(texts(depth - 1))
    if how == 2:
        return Tree(one.expression.str.upper(), _strict(str.upper, one))
    if how == 3:
        return Tree(one.expression.cast(draw(st.sampled_from([str, "category"]))), one.of)
    word = draw(words)
    two = draw(st.just(Tree(word, lambda row: word)) | texts(depth - 1))  # type: ignore[arg-type]
    return _chosen(draw(conditions(depth - 1)), one, two) if how == 4 else _filled(one, two)


@st.composite
def nested(draw: st.DrawFn, depth: int) -> Tree:
    """A list."""
    if not depth or draw(st.booleans()):
        return _column(draw(st.sampled_from("lm")))
    one, two = draw(nested(depth - 1)), draw(nested(depth - 1))
    return _chosen(draw(conditions(depth - 1)), one, two) if draw(st.booleans()) else _filled(one, two)


def _same_nested(one: Any, two: Any) -> bool:
    """Whether nested values are equal: IEEE 754 for floats, as alone."""
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_same_nested, one, two))
    if isinstance(one, dict):
        return all(_same_nested(one[name], two[name]) for name in one)
    if isinstance(one, float) and isinstance(two, float) and one != one:
        return two != two
    return bool(one == two)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> Tree:
    """A bool."""
    how = draw(st.integers(0, 8)) if depth else 0
    if how == 0:
        return _column("b")
    if how == 1:
        one = draw(st.one_of(numbers(depth - 1), moments(depth - 1), texts(depth - 1), nested(depth - 1)))
        return Tree(one.expression.is_null(), lambda row: one.of(row) is None)
    if how == 2:
        one, two = draw(nested(depth - 1)), draw(nested(depth - 1))
        return Tree(one.expression == two.expression, _strict(_same_nested, one, two))
    if how == 3:
        one, listed = draw(texts(depth - 1)), draw(st.lists(words, max_size=3))
        return Tree(one.expression.is_in(listed), _strict(lambda value: value in listed, one))
    if how == 4:
        one, some = draw(numbers(depth - 1)), draw(st.lists(exact_values().filter(_is_literal), max_size=3))
        found = [each.of({}) for each in some]
        return Tree(
            one.expression.is_in([each.expression for each in some]), _strict(lambda value: value in found, one)
        )
    compare = _COMPARISONS[draw(st.sampled_from(sorted(_COMPARISONS)))]
    if how == 5:
        one, two = draw(numbers(depth - 1)), draw(numbers(depth - 1) | exact_values() | st.just(_column("f")))
        return Tree(compare(one.expression, two.expression), _strict(lambda a, b: _compared(compare, a, b), one, two))
    if how == 6:
        one, two = draw(texts(depth - 1)), draw(texts(depth - 1))
        return Tree(compare(one.expression, two.expression), _strict(compare, one, two))
    one, two = draw(moments(depth - 1)), draw(moments(depth - 1))
    return Tree(compare(one.expression, two.expression), _strict(lambda a, b: compare(_utc(a), _utc(b)), one, two))


def _compared(compare: Callable[[Any, Any], Any], one: decimal.Decimal, two: Any) -> Any:
    return compare is operator.ne if two != two else compare(one, two)  # Python refuses to order NaN and decimals


def _is_literal(tree: Tree) -> bool:
    return not isinstance(tree.expression, Expression)


def _utc(at: datetime.datetime) -> datetime.datetime:
    return at.astimezone(datetime.UTC)


@st.composite
def others(draw: st.DrawFn, depth: int) -> Tree:
    """What is made of typed columns, and is of another type."""
    how = draw(st.integers(0, 4))
    if how == 0:
        one = draw(moments(depth))
        part = draw(st.sampled_from(["year", "month", "day", "hour", "minute", "second"]))
        return Tree(getattr(one.expression.dt, part)(), _strict(lambda at: getattr(at, part), one))
    if how == 1:
        one = draw(texts(depth))
        return Tree(one.expression.str.len_chars(), _strict(len, one))
    one = draw(numbers(depth))
    if how == 2:
        return Tree(one.expression.cast(int), _strict(_integer, one))
    if how == 3:
        return Tree(one.expression.cast(float), _strict(float, one))
    return Tree(one.expression.cast(str), _strict(lambda value: format(_shown(value, one.scale), "f"), one))


def _integer(value: decimal.Decimal) -> int:
    if not -(1 << 63) <= int(value) < 1 << 63:
        raise Refused
    return int(value)


def _shown(value: decimal.Decimal, scale: int) -> decimal.Decimal:
    return abs(value.quantize(decimal.Decimal(1).scaleb(-scale), context=EXACT)).copy_sign(value if value else 1)


TREES = st.one_of(numbers(3), moments(3), texts(3), nested(2), conditions(3), others(2))


@examples(150)
@given(st.data(), TREES)
def test_an_expression_gives_what_python_gives(data: Any, tree: Tree) -> None:
    check(tree, *data.draw(tables(tree.expression.names)))


def check(tree: Tree, batch: Batch, rows: list[Row]) -> None:
    """Assert that columns give what rows give, an error included, however the rows are cut into blocks."""
    refused = False
    expected = []
    with decimal.localcontext(EXACT):
        for row in rows:
            try:
                expected.append(tree.of(row))
            except Refused:
                refused = True
    for block_rows in (1, 3, 100):
        try:
            ((values, valid),) = computed_columns(Program([tree.expression]), batch, block_rows)
        except BatchError as error:
            found_error: BatchError | None = error
        else:
            found_error = None
        if found_error is not None:
            assert refused, (tree.expression, rows, found_error)
            continue
        assert not refused, (tree.expression, rows)
        found: Any = (values if valid is None else Nullable(values, valid)).tolist() if rows else []
        for row, one, two in zip(rows, found, expected, strict=True):
            assert _same(one, two), (tree.expression, row, one, two)
        result = Projection({"result": tree.expression}, keep=False)
        assert result.schema(batch.schema) == result.apply(batch).schema


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, datetime.datetime) and isinstance(two, datetime.datetime):
        return _utc(one) == _utc(two)
    if isinstance(one, float) and isinstance(two, float):
        return one == two or (one != one and two != two)
    return (one is None) == (two is None) and type(one) is type(two) and (_same_nested(one, two) if one else one == two)
