"""Choosing between values row by row: `when(...).then(...).otherwise(...)` and `fill_null`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shmjet.columns.expressions.vector import Vector, null
from shmjet.data import operators
from shmjet.data.column_types import CategoryType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn
from shmjet.data.typed_operators import blanked

Choice = tuple[Mask, Vector]
"""Rows, and the values that they take."""


def taken(condition: Vector, rows: int) -> Mask:
    """Return where a condition is true, and not null.

    Raises:
        BatchError: it is not of bools.
    """
    if condition.is_untyped:
        return np.zeros(rows, np.bool_)
    values = condition.column(rows)
    if values.dtype != np.bool_:
        raise BatchError(f"when() takes a condition of bools, got {condition.type_name}")
    found: Mask = np.asarray(values)
    return found if condition.valid is None else found & condition.valid


def filled(column: Vector, filling: Vector, rows: int, missing: Mask) -> Vector:
    """Return a column with other values where it is null and a value is `missing`."""
    if column.is_untyped and not (_may_be_floats(column) and operators.kind_of(filling.values) in "iuf"):
        return filling if not filling.is_scalar else Vector(filling.column(rows), filling.valid)
    there = column.mask(rows)
    return when([(there, column)], filling, rows, missing)


def when(choices: Sequence[Choice], other: Vector, rows: int, left: Mask) -> Vector:
    """Return the values of the choice that each row has taken, those of `other` where it has taken none.

    Values that no row takes are not looked at: there the common type need not hold them.

    Args:
        choices: rows, which no other choice has, and values.
        other: the values of the remaining rows.
        rows: how many there are.
        left: the rows that take `other` and count.

    Raises:
        BatchError: their types do not go together, or a literal does not fit the type of the others.
    """
    typed = [vector for _, vector in choices if not vector.is_untyped]
    if not other.is_untyped:
        typed.append(other)
    if not typed:
        untyped = next((vector for vector in (*(v for _, v in choices), other) if vector.values is not None), None)
        return null(rows) if untyped is None else untyped
    valid = _validity(choices, other, rows)
    if any(_is_category(vector) for vector in typed):
        return _categories(choices, other, typed, rows, left)
    if any(isinstance(vector.values, Text | str | bytes) for vector in typed):
        return Vector(_texts(choices, other, typed, rows), valid)
    if all(isinstance(vector.values, np.ndarray | np.generic | int | float | complex) for vector in typed):
        return Vector(_numbers(choices, other, typed, rows, left), valid)
    parts = [(taking, vector) for taking, vector in (*choices, (left, other)) if not vector.is_untyped]
    parts.sort(key=lambda part: part[1].is_scalar)  # types of columns: decimals, times with a zone
    result: Any = _looked_at(*parts[0]).column(rows)
    for taking, vector in parts[1:]:
        if vector.is_scalar:
            result = operators.choose(~taking, result, vector.values)
        else:
            result = operators.choose(taking, _looked_at(taking, vector).values, result)
    return Vector(_in_first_zone(result, typed), valid)


def _in_first_zone(result: Any, typed: Sequence[Vector]) -> Any:
    """Return instants in the zone of the first column of values."""
    zones = [each.values.dtype.zone for each in typed if isinstance(getattr(each.values, "dtype", None), ZonedType)]
    if not zones or not isinstance(result, TypedColumn) or not isinstance(result.dtype, ZonedType):
        return result
    return TypedColumn.trusted(ZonedType(result.dtype.unit, zones[0]), result.stored)


def _is_category(vector: Vector) -> bool:
    return isinstance(vector.values, TypedColumn) and vector.values.dtype == CategoryType()


def _categories(choices: Sequence[Choice], other: Vector, typed: Sequence[Vector], rows: int, left: Mask) -> Vector:
    """Return categories, which are text; among columns of text they are text."""
    if not all(_is_category(vector) or isinstance(vector.values, Text | str) for vector in typed):
        raise _mixed(typed)
    chosen = when([(rows_taken, _as_text(vector)) for rows_taken, vector in choices], _as_text(other), rows, left)
    if any(isinstance(vector.values, Text) for vector in typed):
        return chosen
    text: Any = chosen.column(rows)
    return Vector(TypedColumn.trusted(CategoryType(), text), chosen.valid)


def _as_text(vector: Vector) -> Vector:
    return replace(vector, values=vector.values.stored) if _is_category(vector) else vector


def _looked_at(taking: Mask, vector: Vector) -> Vector:
    """Return a vector with zeros where no row takes its value."""
    if vector.is_scalar:
        return vector
    counts = taking if vector.valid is None else taking & vector.valid
    return replace(vector, values=blanked(vector.values, counts))


def _validity(choices: Sequence[Choice], other: Vector, rows: int) -> Mask | None:
    if other.valid is None and all(vector.valid is None for _, vector in choices):
        return None
    valid = other.mask(rows).copy()
    for rows_taken, vector in choices:
        valid[rows_taken] = True if vector.valid is None else vector.valid[rows_taken]
    return valid


def _numbers(choices: Sequence[Choice], other: Vector, typed: Sequence[Vector], rows: int, left: Mask) -> Any:
    kinds = {operators.kind_of(vector.values) for vector in typed}
    if len(kinds) > 1 and not kinds <= set("biufc"):
        raise _mixed(typed)
    try:
        dtype = np.result_type(*(vector.values if vector.is_scalar else vector.values.dtype for vector in typed))
        if dtype.kind in "iu" and any(map(_may_be_floats, (other, *(vector for _, vector in choices)))):
            dtype = np.dtype(np.float64)
        result = np.zeros(rows, dtype)
        for taking, vector in [(left, other), *choices]:
            if not vector.is_untyped:
                value = np.asarray(vector.values, dtype) if vector.is_scalar else _as_type(taking, vector, dtype)
                np.copyto(result, value, where=taking)
    except (OverflowError, TypeError) as error:
        raise BatchError(f"{_names(typed)} do not go together in one column: {error}") from None
    return result


def _may_be_floats(vector: Vector) -> bool:
    """Tell whether it is a column of nulls of float64: one of None alone, which has no type, or one of floats."""
    return vector.is_untyped and vector.values is not None


def _as_type(taking: Mask, vector: Vector, dtype: np.dtype[Any]) -> Any:
    if dtype.kind not in "mM" or vector.values.dtype == dtype:
        return vector.values
    return operators.to_unit(_looked_at(taking, vector).values, dtype, "when")


def _texts(choices: Sequence[Choice], other: Vector, typed: Sequence[Vector], rows: int) -> Text:
    if len({_text_kind(vector) for vector in typed}) > 1:
        raise _mixed(typed)
    pieces: list[Text] = []
    index = np.zeros(rows, np.int64)
    start = 0
    numbers = np.arange(rows)
    for rows_taken, vector in [(np.ones(rows, np.bool_), other), *choices]:
        if vector.is_untyped:
            continue
        piece = vector.values if isinstance(vector.values, Text) else Text.of([vector.values])
        np.copyto(index, start + numbers if len(piece) == rows and not vector.is_scalar else start, where=rows_taken)
        pieces.append(piece)
        start += len(piece)
    return Text.concat(pieces).take(index) if start else pieces[0]


def _text_kind(vector: Vector) -> str:
    kind = operators.kind_of(vector.values)
    return kind if isinstance(vector.values, Text | str | bytes) else f"other {kind}"


def _names(vectors: Sequence[Vector]) -> str:
    return " and ".join(dict.fromkeys(vector.type_name for vector in vectors))


def _mixed(vectors: Sequence[Vector]) -> BatchError:
    return BatchError(f"{_names(vectors)} do not go together in one column; cast some of them")
