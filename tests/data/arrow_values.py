"""Columns of all types for the tests of Arrow: strategies for hypothesis, and what compares plain values."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, ListType, StructType, ZonedType
from shmjet.data.decimals import stored_decimals
from shmjet.data.nested_values import encoded
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn

INT64 = np.dtype(np.int64)


def address(values: Any) -> int:
    """Where the memory of an array begins."""
    return int(values.__array_interface__["data"][0])


def stored(batch: Batch, name: str) -> Any:
    """The values of a column without their mask."""
    values: Values = batch.parts()[0][name]
    return values.stored if isinstance(values, TypedColumn) else values


def same(one: Any, other: Any) -> bool:
    """Whether two plain values are equal; NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return bool(one == other)


NUMBERS = {
    "i1": st.integers(-(1 << 7), (1 << 7) - 1),
    "u1": st.integers(0, (1 << 8) - 1),
    "i2": st.integers(-(1 << 15), (1 << 15) - 1),
    "u2": st.integers(0, (1 << 16) - 1),
    "i4": st.integers(-(1 << 31), (1 << 31) - 1),
    "u4": st.integers(0, (1 << 32) - 1),
    "i8": st.integers(-(1 << 63), (1 << 63) - 1),
    "u8": st.integers(0, (1 << 64) - 1),
    "f4": st.floats(width=32),
    "f8": st.floats(),
    "?": st.booleans(),
}
TIMES = ("M8[D]", "M8[s]", "M8[ms]", "M8[us]", "M8[ns]", "m8[s]", "m8[ms]", "m8[us]", "m8[ns]")
TYPED = (DecimalType(9, 2), DecimalType(18, 0), DecimalType(38, 10), ZonedType("us", "Europe/Berlin"), CategoryType())
NESTED = (
    ListType(INT64),
    ListType(ListType("text")),
    StructType((("a", INT64), ("b", "text"))),
    ListType(StructType((("x", np.dtype(np.float64)), ("y", ListType(np.dtype(np.bool_)))))),
    StructType((("d", DecimalType(30, 3)), ("t", ZonedType("ms", "UTC")))),
)


@st.composite
def times(draw: st.DrawFn, dtype: str) -> Any:
    """A date or span of time; not NaT, which is a null to others."""
    bits = 31 if dtype == "M8[D]" else 63
    return np.array([draw(st.integers(-(1 << bits) + 1, (1 << bits) - 1))]).view(dtype)[0]


def plain(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a kind, as Python has them."""
    if isinstance(kind, DecimalType):
        most = 10**kind.precision - 1
        return st.integers(-most, most).map(
            lambda units: decimal.Decimal(units).scaleb(-kind.scale, decimal.Context(prec=60))
        )
    if isinstance(kind, ZonedType):
        first, last = datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29)  # so in UTC as well
        return st.datetimes(first, last, timezones=st.just(kind.tzinfo)).map(
            lambda at: at.replace(
                microsecond=at.microsecond // 1000 * 1000 if kind.unit == "ms" else at.microsecond, fold=0
            )
        )
    if isinstance(kind, ListType):
        return st.lists(st.none() | plain(kind.item), max_size=4)
    if isinstance(kind, StructType):
        return st.fixed_dictionaries({name: st.none() | plain(inner) for name, inner in kind.fields})
    if kind == "bytes":
        return st.binary(max_size=20)
    if kind == "text" or isinstance(kind, CategoryType):
        return st.text(max_size=20)
    return {"b": st.booleans(), "i": NUMBERS["i8"], "f": st.floats(allow_nan=True)}[kind.kind]


def physical(listed: list[Any], kind: Any) -> Any:
    """Values, none of which is null, as a column stores them."""
    if isinstance(kind, DecimalType):
        return stored_decimals(listed, kind)
    if isinstance(kind, ZonedType):
        return np.array([stored_instant(value) for value in listed], "M8[us]").astype(kind.stored)
    if isinstance(kind, ListType | StructType):
        return encoded(listed, kind, physical)
    if kind == "bytes":
        return Text.of(listed or [b""])[: len(listed)]
    if kind == "text" or isinstance(kind, CategoryType):
        return Text.of(listed)
    return np.array(listed, kind)


def stored_instant(value: Any) -> np.datetime64:
    return np.datetime64(value.astimezone(datetime.UTC).replace(tzinfo=None), "us")


def column_of(listed: list[Any], kind: Any) -> Any:
    """Values as a column."""
    stored = physical(listed, kind)
    return TypedColumn(kind, stored) if isinstance(kind, ColumnType) else stored


@st.composite
def batches(draw: st.DrawFn, kinds: tuple[Any, ...], most_rows: int = 30) -> Batch:
    """A batch of columns of these kinds, some with nulls."""
    rows = draw(st.integers(0, most_rows))
    columns: dict[str, Any] = {}
    for place, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))):
        some = st.lists
        if isinstance(kind, str) and kind in NUMBERS:
            values: Any = np.array(draw(some(NUMBERS[kind], min_size=rows, max_size=rows)), kind)
        elif isinstance(kind, str) and kind in TIMES:
            values = np.array(draw(some(times(kind), min_size=rows, max_size=rows)), kind)
        else:
            listed = draw(some(plain(kind), min_size=rows, max_size=rows))
            values = column_of(listed, kind)
        columns[f"c{place}"] = values
        if draw(st.booleans()):
            mask = np.array(draw(some(st.booleans(), min_size=rows, max_size=rows)), np.bool_)
            columns[f"c{place}"] = Nullable(values, mask)
    return Batch(columns)


ALL = (*NUMBERS, *TIMES, "text", "bytes", *TYPED, *NESTED)
