"""Python values and columns of batches as the arrays that a file of columns takes, each checked against its column.

Lists, maps and structs become the arrays of their parts, and lengths. Must not know files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.row_gatherer import plain_column
from shmjet.data.column_types import CategoryType, DecimalType, ListType, StructType, ZonedType
from shmjet.data.decimal_columns import rescaled
from shmjet.data.errors import BatchError
from shmjet.data.operators import MONTH_UNITS
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn
from shmjet.spark.back.rows import CONTAINERS
from shmjet.spark.back.schemas import Column
from shmjet.spark.back.value_conversion import CONVERTERS, FLOATS, LARGEST_EXACT, MOMENTS, NUMBERS, misfit, plain
from shmjet.spark.schema import NESTED


@dataclass(frozen=True)
class Nested:
    """The values of a nested column.

    Args:
        lengths: of the lists or maps, 0 where there is none; None for structs.
        parts: the elements of all lists, one after the other; keys and values of all maps; or the fields of the structs
            that there are, which leaves out nulls.
    """

    lengths: npt.NDArray[np.int64] | None
    parts: tuple[Fitted, ...]


Values: TypeAlias = npt.NDArray[Any] | Text | Nested
Fitted: TypeAlias = tuple[Values, Mask | None]
"""Values, and a mask of the values that are not null; a value under a null has no meaning."""

WIDE = np.dtype((np.void, 16))
"""A decimal of more than 18 digits: its unscaled value, big-endian."""

_PLAIN_KINDS: dict[str, tuple[str, ...]] = {
    "f": ("float32", "float64"),
    "b": ("bool",),
    "t": ("text",),
    "y": ("bytes",),
    "i": NUMBERS,
}


def dtype_of(column: Column) -> np.dtype[Any]:
    """Return the dtype of a column's fitted values; that of text is bytes."""
    if column.kind in NUMBERS or column.kind == "bool":
        return np.dtype(column.kind)
    if column.kind == "date":
        return np.dtype(np.int32)
    if column.kind == "decimal":
        return np.dtype(np.int32) if column.precision <= 9 else np.dtype(np.int64) if column.precision <= 18 else WIDE
    return np.dtype(np.uint8) if column.kind in ("text", "bytes") else np.dtype(np.int64)


# -- rows --------------------------------------------------------------------------------------------------------------


def fitted_rows(column: Column, rows: list[Any], place: int, width: int) -> Fitted:
    """Return a column of rows that are all dicts or all tuples.

    Args:
        rows: dicts, or tuples of `width` values.
        place: of the column in tuples.

    Raises:
        BatchError: a value does not fit; the text names column and value.
    """
    if column.kind not in NESTED:
        quick = plain_column(rows, column.name, place, width)
        if quick is not None:
            values, mask = quick
            kind = ("y" if values.is_bytes else "t") if isinstance(values, Text) else values.dtype.kind
            if column.kind in _PLAIN_KINDS[kind]:
                return _checked_nulls(column, _narrowed(column, values, mask), mask)
    return fitted_values(column, [row[column.name] if isinstance(row, dict) else row[place] for row in rows])


def fitted_values(column: Column, values: Sequence[Any]) -> Fitted:
    """Return a column of values, one by one.

    Raises:
        BatchError: one does not fit; the text names column and value.
    """
    mask = np.fromiter((value is not None for value in values), np.bool_, len(values))
    nulls = None if mask.all() else mask
    if column.kind in NESTED:
        return _checked_nulls(column, _nested(column, values), nulls)
    convert = CONVERTERS[column.kind]
    found = [None if value is None else convert(column, plain(value)) for value in values]
    if column.kind in ("text", "bytes"):
        return _checked_nulls(column, _text(column, found), nulls)
    dtype = dtype_of(column)
    filled: list[Any] = [(b"\0" * 16 if dtype == WIDE else 0) if value is None else value for value in found]
    if dtype == WIDE:
        return _checked_nulls(column, np.frombuffer(b"".join(filled), WIDE), nulls)
    return _checked_nulls(column, np.array(filled, dtype), nulls)


def _checked_nulls(column: Column, values: Values, mask: Mask | None) -> Fitted:
    if mask is not None and not column.nullable:
        raise BatchError(f"{column.label} ({column.sql} not null) does not take None")
    return values, mask


def _text(column: Column, values: list[Any]) -> Text:
    empty: Any = b"" if column.kind == "bytes" else ""
    try:
        return Text.of([empty if value is None else value for value in values])
    except BatchError as error:
        raise BatchError(f"{column.label} ({column.sql}): {error}") from None


# -- nested values -----------------------------------------------------------------------------------------------------


def _nested(column: Column, values: Sequence[Any]) -> Nested:
    """Return lists, maps or structs as their parts."""
    fits = CONTAINERS[column.kind]
    for kind in set(map(type, values)) - {NoneType}:
        if not issubclass(kind, fits) and not (column.kind == "struct" and _has_attributes(kind)):
            raise misfit(column, next(value for value in values if type(value) is kind))
    if column.kind == "struct":
        structs = [value for value in values if value is not None]
        cells = zip(*(_cells(column, value) for value in structs), strict=True) if structs else [()] * len(column.parts)
        return Nested(None, tuple(map(_part, column.parts, map(list, cells))))
    containers: list[Any] = [_listed(column, value) for value in values]
    lengths = np.fromiter(map(len, containers), np.int64, len(containers))
    parts = [list(chain.from_iterable(containers))]
    if column.kind == "map":
        parts.append(list(chain.from_iterable(value.values() for value in containers if value)))
    return Nested(lengths, tuple(map(_part, column.parts, parts)))


def _part(column: Column, values: list[Any]) -> Fitted:
    """Return a part of nested values."""
    return fitted_rows(column, list(zip(values)), 0, 1)


def _listed(column: Column, value: Any) -> Any:
    """Return what a list or map holds, as Python values."""
    if value is None:
        return ()
    if isinstance(value, np.ndarray):
        if not value.ndim:
            raise misfit(column, value, "an array without dimensions is not a list")
        return value.tolist()
    return value


def _has_attributes(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or hasattr(kind, "__struct_fields__")


def _cells(column: Column, value: Any) -> tuple[Any, ...]:
    """Return the fields of a struct; a dict may omit nullable fields, as in Spark's `createDataFrame`."""
    if isinstance(value, Mapping):
        return tuple(value.get(part.name) for part in column.parts)
    if isinstance(value, tuple | list):
        if len(value) != len(column.parts):
            raise misfit(column, value, f"it has {len(value)} values for {len(column.parts)} fields")
        return tuple(value)
    missing = [part.name for part in column.parts if not hasattr(value, part.name)]
    if missing:
        raise misfit(column, value, f"it has no {missing[0]!r}")
    return tuple(getattr(value, part.name) for part in column.parts)


# -- columns of batches ------------------------------------------------------------------------------------------------


def fitted_column(column: Column, values: npt.NDArray[Any] | Text | TypedColumn, mask: Mask | None) -> Fitted:
    """Return a column of a batch.

    Raises:
        BatchError: its dtype or a value does not fit; the text names the column and the first such value.
    """
    if isinstance(values, TypedColumn):
        return _fitted_typed(column, values, mask)
    if isinstance(values, Text):
        if column.kind != ("bytes" if values.is_bytes else "text"):
            raise BatchError(f"{column.label} ({column.sql}) does not take a column of {values.dtype}")
        return _checked_nulls(column, values, mask)
    kind = values.dtype.kind
    if column.kind in NUMBERS and kind in "iuf":
        return _checked_nulls(column, _narrowed(column, values, mask), mask)
    if column.kind == "bool" and kind == "b":
        return _checked_nulls(column, values, mask)
    if kind == "M" and column.kind in ("date", *MOMENTS):
        return _dates(column, values, mask)
    if kind == "m" and column.kind == "duration" and np.datetime_data(values.dtype)[0] not in MONTH_UNITS:
        return _dates(column, values, mask)
    if column.kind in ("text", "bytes") and kind == ("U" if column.kind == "text" else "S"):
        return _checked_nulls(column, Text.of(values.tolist()), mask)
    if column.kind == "decimal" and kind in "iuf":
        listed = values.tolist()
        present = [value if mask is None or mask[row] else None for row, value in enumerate(listed)]
        return fitted_values(column, present)
    raise BatchError(f"{column.label} ({column.sql}) does not take a column of dtype {values.dtype}")


def _fitted_typed(column: Column, values: TypedColumn, mask: Mask | None) -> Fitted:
    """Return decimals, instants with a zone, categories, lists or structs."""
    stored = values.stored
    match values.dtype:
        case DecimalType() if column.kind == "decimal":
            return _decimals(column, values, mask)
        case ZonedType() if column.kind == "timestamp":
            assert isinstance(stored, np.ndarray)
            return _dates(column, stored, mask)
        case CategoryType():
            return fitted_column(column, stored, mask)
        case DecimalType() | ListType() | StructType() if column.kind in (*NESTED, *FLOATS):
            listed = values.to_list()
            return fitted_values(column, [v if mask is None or mask[row] else None for row, v in enumerate(listed)])
    raise BatchError(f"{column.label} ({column.sql}) does not take a column of {values.dtype}")


def _decimals(column: Column, values: TypedColumn, mask: Mask | None) -> Fitted:
    there = np.ones(len(values), np.bool_) if mask is None else mask
    try:
        units = rescaled(values, DecimalType(column.precision, column.scale), there).stored
    except BatchError as error:
        raise BatchError(f"{column.label} ({column.sql}): {error}") from None
    assert isinstance(units, np.ndarray)
    dtype = dtype_of(column)
    if dtype == WIDE:  # in the other order of bytes
        found = np.ascontiguousarray(units.view(np.uint8).reshape(-1, 16)[:, ::-1]).reshape(-1).view(WIDE)
    else:
        found = units.astype(dtype)
    return _checked_nulls(column, found, mask)


def _dates(column: Column, values: npt.NDArray[Any], mask: Mask | None) -> Fitted:
    there = ~np.isnat(values)
    if not there.all():
        mask = there if mask is None else mask & there
    unit, dtype = ("D", np.dtype(np.int32)) if column.kind == "date" else ("us", np.dtype(np.int64))
    found = values.astype(f"{values.dtype.kind}8[{unit}]")
    exact = found.astype(values.dtype) == values
    wrong = ~exact & there if mask is None else ~exact & mask
    if wrong.any():
        raise misfit(column, values[wrong][0], "it is finer than the column")
    numbers = found.view(np.int64)
    if mask is not None:
        numbers = np.where(mask, numbers, 0)
    if dtype == np.int32 and len(numbers) and not -(1 << 31) <= numbers.min() <= numbers.max() < 1 << 31:
        raise misfit(column, values[0], "out of range")
    return _checked_nulls(column, numbers.astype(dtype), mask)


def _narrowed(column: Column, values: npt.NDArray[Any] | Text, mask: Mask | None) -> npt.NDArray[Any] | Text:
    """Return numbers with the column's dtype."""
    if isinstance(values, Text) or values.dtype.kind == "b":
        return values
    dtype = np.dtype(column.kind)
    if values.dtype == dtype:
        return values
    if dtype.kind == "i" and values.dtype.kind == "f":
        raise misfit(column, values[0] if len(values) else 0.0)
    there = values if mask is None else np.where(mask, values, np.zeros((), values.dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        found = there.astype(dtype)
    if dtype.kind == "f" and values.dtype.kind == "f":
        wrong = np.isinf(found) & ~np.isinf(there)
    elif dtype.kind == "f":
        wrong = (there > LARGEST_EXACT[column.kind]) | (there < -LARGEST_EXACT[column.kind])
        for row in np.flatnonzero(wrong).tolist():
            wrong[row] = int(found[row]) != int(there[row])
    else:
        wrong = (found.astype(values.dtype) != there) | ((found < 0) != (there < 0))
    if wrong.any():
        raise misfit(
            column, there[wrong][0].item(), "out of range" if dtype.kind == "i" else "no float is exactly that"
        )
    return found
