"""Operators of decimals, instants, categories and nested values against Python's `decimal` and `datetime`."""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import zoneinfo
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, Nullable, Text
from shmjet.data.column_types import CategoryType, DecimalType, ZonedType
from shmjet.data.decimals import stored_units
from shmjet.data.typed_column import TypedColumn

D = decimal.Decimal
MOST = 10**38 - 1
EXACT = decimal.Context(prec=200)
BERLIN, LIMA = zoneinfo.ZoneInfo("Europe/Berlin"), zoneinfo.ZoneInfo("America/Lima")

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@st.composite
def decimal_columns(draw: st.DrawFn, rows: int) -> tuple[TypedColumn, list[D]]:
    precision = draw(st.sampled_from([3, 9, 18, 19, 38]))
    kind = DecimalType(precision, draw(st.sampled_from([0, 1, 2, precision // 2, precision])))
    most = 10**precision - 1
    numbers = st.one_of(st.integers(-most, most), st.sampled_from([0, 1, -1, most, -most]), st.integers(-99, 99))
    units = draw(st.lists(numbers, min_size=rows, max_size=rows))
    column = TypedColumn(kind, stored_units(units, kind))
    return column, [D(unit).scaleb(-kind.scale, EXACT) for unit in units]


PAIRS = st.integers(1, 5).flatmap(lambda rows: st.tuples(decimal_columns(rows), decimal_columns(rows)))


def digits(value: D) -> int:
    return len(str(abs(int(value.scaleb(-value.as_tuple().exponent, EXACT)))))  # type: ignore[operator]


@given(PAIRS, st.sampled_from(sorted(ARITHMETIC)))
def test_arithmetic_is_that_of_decimals(pair: Any, symbol: str) -> None:
    (one, ones), (two, twos) = pair
    scales = one.dtype.scale, two.dtype.scale
    scale = sum(scales) if symbol == "*" else max(scales)
    expected = [ARITHMETIC[symbol](a, b) for a, b in zip(ones, twos, strict=True)]
    fits = scale <= 38 and all(abs(Fraction(value) * 10**scale) <= MOST for value in expected)
    if not fits:
        with pytest.raises(BatchError, match="digits"):
            OPERATORS[symbol](one, two)
        return
    result = OPERATORS[symbol](one, two)
    assert result.to_list() == expected
    assert result.dtype.scale == scale
    assert all(-value.as_tuple().exponent == scale for value in result.to_list())


@given(PAIRS, st.sampled_from(COMPARISONS))
def test_comparisons_of_other_scales_are_exact(pair: Any, compare: Any) -> None:
    (one, ones), (two, twos) = pair
    assert compare(one, two).tolist() == [compare(a, b) for a, b in zip(ones, twos, strict=True)]
    assert compare(one, one).tolist() == [compare(a, a) for a in ones]


def compared(compare: Any, one: Any, two: Any) -> bool:
    """Compare as IEEE 754 has it, where Python raises for the order of a Decimal and NaN."""
    return compare is operator.ne if one != one or two != two else compare(one, two)


SCALARS = st.one_of(
    st.integers(-MOST, MOST), st.integers(-5, 5), st.floats(), st.integers(-999, 999).map(lambda n: D(n) / 8)
)


@given(st.integers(0, 4).flatmap(decimal_columns), SCALARS, st.sampled_from(COMPARISONS))
@example((TypedColumn(DecimalType(1, 1), np.array([1])), [D("0.1")]), 0.1, operator.eq)
@example((TypedColumn(DecimalType(19, 0), stored_units([2**62], DecimalType(19, 0))), [D(2**62)]), 2.0**62, operator.eq)
@example(
    (TypedColumn(DecimalType(38, 0), stored_units([2**126], DecimalType(38, 0))), [D(2**126)]), 2.0**126, operator.le
)
def test_comparisons_with_scalars_are_exact(column: Any, scalar: Any, compare: Any) -> None:
    values, numbers = column
    assert compare(values, scalar).tolist() == [compared(compare, number, scalar) for number in numbers]


@given(st.integers(0, 4).flatmap(lambda rows: st.tuples(decimal_columns(rows), st.just(rows))), st.data())
def test_comparisons_with_floats_are_exact(column: Any, data: st.DataObject) -> None:
    (values, numbers), rows = column
    floats = data.draw(st.lists(st.floats(), min_size=rows, max_size=rows))
    near = [
        float(number) if number and data.draw(st.booleans()) else other
        for number, other in zip(numbers, floats, strict=True)
    ]
    for compare in COMPARISONS:
        expected = [compared(compare, number, value) for number, value in zip(numbers, near, strict=True)]
        assert compare(values, np.array(near, np.float64)).tolist() == expected
        assert compare(np.array(near, np.float64), values).tolist() == [
            compared(compare, value, number) for number, value in zip(numbers, near, strict=True)
        ]


@given(st.integers(0, 6).flatmap(decimal_columns), st.data())
def test_reductions_leave_nulls_out(column: Any, data: st.DataObject) -> None:
    values, numbers = column
    valid = data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers)))
    there = [number for number, known in zip(numbers, valid, strict=True) if known]
    nullable = Nullable(values, np.array(valid, np.bool_))
    assert nullable.count() == len(there)
    assert nullable.min() == (min(there) if there else None)
    assert nullable.max() == (max(there) if there else None)
    total = sum((Fraction(number) for number in there), Fraction())
    if abs(total) * 10**values.dtype.scale > MOST:
        with pytest.raises(BatchError, match="the sum of a column"):
            nullable.sum()
    else:
        assert Fraction(nullable.sum() or 0) == total
    mean = nullable.mean()
    assert mean == (float(total / len(there)) if there else None)
    assert mean is None or type(mean) is np.float64


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 1000])
def test_sums_leave_the_bits_of_a_value(sign: int, count: int) -> None:
    most = sign * (10**38 - 1)
    column = Batch({"a": [decimal.Decimal(most)] * count, "b": [decimal.Decimal(-most)] * count})
    kept = Nullable(column["a"], np.arange(count) == 0)
    assert kept.sum() == decimal.Decimal(most)
    assert column["a"].mean() == float(most)
    if count > 1:
        with pytest.raises(BatchError, match="more than 38 digits"):
            column["a"].sum()
    both = Batch.concat([Batch({"a": column["a"]}), Batch({"a": column["b"]})])
    assert both["a"].sum() == 0


def test_sums_of_many_values_are_exact() -> None:
    kind = DecimalType(38, 2)
    column = TypedColumn(kind, stored_units([10**33 + 7] * 99_999, kind))
    assert column.sum() == D((10**33 + 7) * 99_999).scaleb(-2, EXACT)
    with pytest.raises(BatchError, match="has more than 38 digits"):
        TypedColumn(kind, stored_units([MOST] * 2, kind)).sum()


@given(st.integers(0, 5).flatmap(decimal_columns))
def test_floats_are_the_nearest(column: Any) -> None:
    values, numbers = column
    assert values.astype(float).tolist() == [float(number) for number in numbers]
    assert (values / 1).tolist() == [float(number) for number in numbers]


def test_division_and_floats_give_floats() -> None:
    batch = Batch({"a": [D("1.50"), None, D(3)], "b": [D(2), D(1), D(0)]})
    assert (batch["a"] / batch["b"]).to_list() == [0.75, None, math.inf]
    assert (batch["a"] * 0.5).to_list() == [0.75, None, 1.5]
    assert (1 / batch["b"]).tolist() == [0.5, 1.0, math.inf]


@given(PAIRS)
def test_floor_division_and_remainder_round_down(pair: Any) -> None:
    (one, ones), (two, twos) = pair
    try:
        whole, rest = one // two, one % two
    except BatchError:
        return
    for a, b, c, d in zip(ones, twos, whole.to_list(), rest.to_list(), strict=True):
        expected = None if not b else math.floor(Fraction(a) / Fraction(b))
        assert c == expected
        assert d is None if not b else Fraction(d) == Fraction(a) - expected * Fraction(b)


def test_integers_and_scalars_go_together_with_decimals() -> None:
    price = Batch({"p": [D("1.50"), None, D("20.00")]})["p"]
    assert (price * 2).to_list() == [D("3.00"), None, D("40.00")]
    assert (1 - price).to_list() == [D("-0.50"), None, D("-19.00")]
    assert (price + np.array([1, 2, 3])).to_list() == [D("2.50"), None, D("23.00")]
    assert (price * np.array([2**64 - 1] * 3, np.uint64)).to_list() == [
        D("27670116110564327422.50"),
        None,
        D("368934881474191032300.00"),
    ]
    assert (price + D("0.005")).to_list() == [D("1.505"), None, D("20.005")]
    assert (-price).to_list() == [D("-1.50"), None, D("-20.00")]
    assert abs(-price).to_list() == price.to_list()
    assert price.fill_null(0).to_list() == [D("1.50"), D("0.00"), D("20.00")]
    assert price.fill_null(D("0.001")).to_list() == [D("1.500"), D("0.001"), D("20.000")]
    assert price.fill_null(0.5).tolist() == [1.5, 0.5, 20.0]
    assert Nullable([None, None]).fill_null(D(1)).to_list() == [D(1), D(1)]
    assert price.drop_null().to_list() == [D("1.50"), D("20.00")]
    assert (price + None).to_list() == [None] * 3
    for wrong in (
        lambda: price + "x",
        lambda: price**2,
        lambda: price < "x",
        lambda: price + True,
        lambda: price & price,
    ):
        with pytest.raises((BatchError, TypeError)):
            wrong()


def test_what_leaves_38_digits_names_the_row() -> None:
    column = Batch({"a": [D(1), D("1e37")]})["a"]
    with pytest.raises(BatchError, match=r"in row 1 has more than 38 digits; cast one"):
        column * 10
    masked = Nullable(column, np.array([True, False]))
    assert (masked * 10).to_list() == [10, None]


AT = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)


def test_instants_compare_by_the_instant() -> None:
    early, late = AT, AT.replace(fold=1)
    berlin = Batch({"at": [early, None, late]})["at"]
    lima = Batch({"at": [late.astimezone(LIMA)] * 3})["at"]
    assert (berlin < lima).to_list() == [True, None, False]
    assert (lima == berlin).to_list() == [False, None, True]
    assert (berlin == late).to_list() == [False, None, True]
    assert (berlin >= early.astimezone(LIMA)).to_list() == [True, None, True]
    assert [berlin.min(), berlin.max()] == [early, late]
    assert [berlin.min().utcoffset(), berlin.max().utcoffset()] == [
        datetime.timedelta(hours=2),
        datetime.timedelta(hours=1),
    ]
    finer = TypedColumn(
        ZonedType("ns", "UTC"), np.array([late.astimezone(datetime.UTC).replace(tzinfo=None)] * 3, "M8[ns]")
    )
    assert (berlin == finer).to_list() == [False, None, True]


def test_instants_and_spans_of_time() -> None:
    berlin = Batch({"at": [AT, None]})["at"]
    later = berlin + datetime.timedelta(hours=1)
    assert later.to_list() == [AT.replace(fold=1), None]
    assert str(later.dtype) == "timestamp[us, Europe/Berlin]"
    assert (later - berlin).to_list() == [datetime.timedelta(hours=1), None]
    assert (later - AT).dtype == np.dtype("m8[us]")
    assert (np.timedelta64(1, "ns") + berlin).dtype == ZonedType("ns", "Europe/Berlin")
    assert berlin.fill_null(AT.astimezone(LIMA)).to_list() == [AT, AT]
    for wrong in (
        lambda: berlin + berlin,
        lambda: berlin * 2,
        lambda: berlin < datetime.datetime(2024, 1, 1),
        lambda: berlin == np.datetime64("2024-01-01"),
        lambda: berlin + np.timedelta64(1, "M"),
        lambda: berlin < 5,
        lambda: Batch({"a": [datetime.datetime(2024, 1, 1), None]})["a"] < AT,
        lambda: berlin.sum(),
    ):
        with pytest.raises(BatchError):
            wrong()


def test_categories_are_text() -> None:
    kind = Nullable(TypedColumn(CategoryType(), Text.of(["b", "", "a", "ä"])), [True, False, True, True])
    assert (kind == "a").to_list() == [False, None, True, False]
    assert (kind > "a").to_list() == [True, None, False, True]
    assert (kind == Text.of(["b", "b", "b", "b"])).to_list() == [True, None, False, False]
    assert (kind == kind).to_list() == [True, None, True, True]
    assert (kind.min(), kind.max()) == ("a", "ä")
    assert (kind + "x").to_list() == ["bx", None, "ax", "äx"]
    filled = kind.fill_null("zz")
    assert filled.to_list() == ["b", "zz", "a", "ä"]
    assert filled.dtype == CategoryType()
    for wrong in (lambda: kind == 1, lambda: kind - "x", lambda: kind.sum(), lambda: kind.mean(), lambda: kind == b"a"):
        with pytest.raises(BatchError):
            wrong()


def test_nested_values_are_equal_or_not() -> None:
    batch = Batch({"a": [[1, None], [], None, [2]], "b": [[1, None], [0], [1], None]})
    assert (batch["a"] == batch["b"]).to_list() == [True, False, None, None]
    assert (batch["a"] != batch["b"]).to_list() == [False, True, None, None]
    assert batch["a"].is_null().tolist() == [False, False, True, False]
    for wrong in (
        lambda: batch["a"] < batch["b"],
        lambda: batch["a"] + batch["b"],
        lambda: batch["a"].min(),
        lambda: batch["a"].sum(),
        lambda: batch["a"] == Batch({"c": [["x"]] * 4})["c"],
    ):
        with pytest.raises(BatchError):
            wrong()


def test_columns_without_nulls_have_bare_results() -> None:
    price = Batch({"p": [D("1.50"), D("20.00")]})["p"]
    assert isinstance(price > 2, np.ndarray)
    assert isinstance(price + 1, TypedColumn)
    assert isinstance(price / 2, np.ndarray)
    assert isinstance(price + Nullable([1, None]), Nullable)
    assert isinstance(np.array([1, 2]) * price, TypedColumn)
    assert (price // 0).to_list() == [None, None]
    assert np.asarray(price).tolist() == [D("1.50"), D("20.00")]
    assert price.to_masked().tolist() == [D("1.50"), D("20.00")]
    assert [price.count(), price.is_null().tolist(), price.fill_null(0) is price] == [2, [False, False], True]
    with pytest.raises(TypeError, match="1 null"):
        np.asarray(Nullable(price, [True, False]))
    with pytest.raises(ValueError, match="neither true nor false"):
        bool(price)
