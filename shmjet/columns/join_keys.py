"""Key columns of a join: conversion that makes those of two batches comparable.

Values are equal as in Python: numbers by value whatever their dtypes, text with text, bytes with bytes, dates with
dates and times with times of any unit. Columns that could never be equal, such as text and numbers, are refused,
because such a join is always a mistake; so are dates and times, which numpy would compare, because a partitioned edge
brings only keys that are equal in Python to the same processor. Must not know tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.type_promotion import rescaled
from shmjet.data.batch import Batch, any_column
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_keys import date_kind
from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, Kind, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn
from shmjet.data.typed_keys import key_values

if TYPE_CHECKING:
    from shmjet._native._columns import Column

On: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""Names of key columns: of both sides, or probe side → build side."""

Kinds: TypeAlias = Mapping[str, Kind]
"""A batch's schema."""

_FAMILIES: Final = {
    **dict.fromkeys("biufc", "numbers"),
    **dict.fromkeys(("text", "U"), "text"),
    **dict.fromkeys(("bytes", "S"), "bytes"),
    "V": "raw bytes",
}


def key_names(on: On) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns of the probe side and those of the build side.

    Raises:
        BatchError: there is none, or one is named twice.
    """
    pairs = list(on.items()) if isinstance(on, Mapping) else [(n, n) for n in ([on] if isinstance(on, str) else on)]
    if not pairs or not all(isinstance(name, str) for pair in pairs for name in pair):
        raise BatchError(f"on= must name one or several columns, or map those of one side to the other's, got {on!r}")
    probe, build = tuple(p for p, _ in pairs), tuple(b for _, b in pairs)
    if len(set(probe)) < len(probe) or len(set(build)) < len(build):
        raise BatchError(f"on= names a column twice: {on!r}")
    return probe, build


def check_families(probe: Kinds, probe_names: Sequence[str], build: Kinds, build_names: Sequence[str]) -> None:
    """Check that key columns of two schemas can be equal.

    Raises:
        BatchError: a pair cannot; the text names both columns and dtypes.
    """
    for mine, theirs in zip(probe_names, build_names, strict=True):
        if _family(probe[mine]) != _family(build[theirs]):
            raise BatchError(
                f"column {mine!r} of dtype {probe[mine]} never equals column {theirs!r} of dtype {build[theirs]} "
                "of the build side; convert one of them"
            )


def key_columns(batch: Batch, names: Sequence[str], like: Sequence[Kind] | None = None) -> list[Column]:
    """Return what a `JoinTable` takes for the key columns of a batch.

    Args:
        batch: one side.
        names: its key columns.
        like: dtypes of the other side's, whose dates and time spans these are brought to the unit of.

    Raises:
        BatchError: a column does not exist, or its dtype cannot be a key.
    """
    found: list[Column] = []
    for place, name in enumerate(names):
        other = None if like is None else like[place]
        values, valid = any_column(batch, name)
        if isinstance(values, TypedColumn):
            values, valid = _untyped(values, valid, other)
        elif isinstance(other, ZonedType):
            other = other.stored
        found += _columns_of(name, values, valid, other)
    return found


def _family(kind: Kind) -> Any:
    if isinstance(kind, DecimalType):
        return "decimals"
    if isinstance(kind, ZonedType):
        return "instants"
    if isinstance(kind, CategoryType):
        return "text"
    if isinstance(kind, str | ColumnType):
        return kind
    if kind.names is not None:
        return tuple((_family(kind[name].base), kind[name].shape) for name in kind.names)
    if kind.kind in "mM":
        return date_kind(kind)
    return _FAMILIES[kind.kind]


def _columns_of(name: str, values: Physical, valid: Mask | None, like: Kind | None) -> list[Column]:
    if isinstance(values, Text):
        return [descriptor(values, valid)]
    if values.dtype.names is not None:
        found: list[Column] = []
        for field in values.dtype.names:
            part = values[field]
            other = like[field].base if isinstance(like, np.dtype) and like.names is not None else None
            flat = part.reshape(len(part), int(np.prod(part.shape[1:]))) if part.ndim > 1 else part[:, None]
            for place in range(flat.shape[1]):
                found += _columns_of(f"{name}.{field}", np.ascontiguousarray(flat[:, place]), valid, other)
        return found
    kind = values.dtype.kind
    if kind == "U":
        return [descriptor(Text.of(values.tolist()), valid)]
    if values.dtype == np.float16:
        return [descriptor(values.astype(np.float32), valid)]
    if kind in "fc" and values.dtype.itemsize > (8 if kind == "f" else 16):
        raise BatchError(f"column {name!r} of dtype {values.dtype} cannot be a key; make it float64 or complex128")
    if kind in "mM" and isinstance(like, np.dtype) and values.dtype != like:
        values, valid = _to_unit(values, valid, like)
    return [descriptor(values, valid)]


def _untyped(column: TypedColumn, valid: Mask | None, like: Kind | None) -> tuple[Physical, Mask | None]:
    """Return a column as the physical values that equal those of the other side, where the values do."""
    own = column.dtype
    if isinstance(own, DecimalType) and isinstance(like, DecimalType) and like != own:
        assert isinstance(column.stored, np.ndarray)
        stored, fits = rescaled(column.stored, own, like)
        return stored, fits if valid is None else fits & valid
    if isinstance(own, ZonedType) and isinstance(like, ZonedType) and like.unit != own.unit:
        assert isinstance(column.stored, np.ndarray)
        return _to_unit(column.stored, valid, np.dtype(like.stored))
    return key_values(column), valid


def _to_unit(values: npt.NDArray[Any], valid: Mask | None, unit: np.dtype[Any]) -> tuple[npt.NDArray[Any], Mask]:
    """Return dates in another unit; a date that this unit cannot express equals nothing, and counts as null."""
    try:
        cast = values.astype(unit)
        same: Mask = cast.astype(values.dtype) == values
    except OverflowError:  # some are out of the unit's range: one by one then
        cast = np.full(len(values), "NaT", unit)
        same = np.zeros(len(values), np.bool_)
        for row, value in enumerate(values):
            try:
                cast[row] = value.astype(unit)
            except OverflowError:
                continue
            same[row] = cast[row].astype(values.dtype) == value
    return cast, same if valid is None else same & valid
