"""Columns of Python's own values that numpy has no dtype for: Decimal, datetime with a zone, lists and dicts."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from shmjet.data.column_types import Kind
from shmjet.data.decimals import stored_decimals, type_of_values
from shmjet.data.errors import BatchError
from shmjet.data.instants import stored_instants, type_of_instants
from shmjet.data.nested_values import encoded, nested_type
from shmjet.data.typed_column import TypedColumn, nulls

if TYPE_CHECKING:
    from shmjet.data.column import Values

InnerColumn = Callable[[str, list[Any]], "Values"]
"""Returns a column of values inside lists or dicts, none of which is None."""


def is_typed_value(value: Any) -> bool:
    """Whether only a `TypedColumn` has such values."""
    if isinstance(value, datetime.datetime):
        return value.tzinfo is not None
    return isinstance(value, decimal.Decimal | list | Mapping)


def typed_sequence(name: str, values: list[Any], present: list[Any], inner: InnerColumn) -> TypedColumn:
    """Return a column of values of which at least one is of such a type.

    Args:
        name: of the column, for messages.
        values: all, None for nulls.
        present: the values other than None.
        inner: makes columns of what is in lists and dicts.

    Raises:
        BatchError: values of different kinds are mixed, or there is no type that holds all.
    """
    try:
        if all(isinstance(value, list | Mapping) for value in present):
            return _nested(name, values, present, inner)
        if all(isinstance(value, datetime.datetime) for value in present):
            return _instants(name, values, present)
        if all(isinstance(value, decimal.Decimal) or type(value) is int for value in present):
            kind = type_of_values(present)
            return TypedColumn.trusted(kind, stored_decimals([0 if v is None else v for v in values], kind))
    except BatchError as error:
        if str(error).startswith("column "):
            raise
        raise BatchError(f"column {name!r}: {error}") from None
    found = sorted({type(value).__name__ for value in present})
    raise BatchError(f"column {name!r} mixes {', '.join(found)}; a column has values of one kind")


def _instants(name: str, values: list[Any], present: list[Any]) -> TypedColumn:
    if any(value.tzinfo is None for value in present):
        raise BatchError(f"column {name!r} mixes datetimes with a time zone and without; give all of them one, or none")
    kind = type_of_instants(present)
    return TypedColumn.trusted(kind, stored_instants([present[0] if v is None else v for v in values], kind))


def _nested(name: str, values: list[Any], present: list[Any], inner: InnerColumn) -> TypedColumn:
    def kind_of_values(some: list[Any]) -> Kind:
        return inner(name, some).dtype

    def stored(some: list[Any], kind: Kind) -> Any:
        column = inner(name, some) if some else nulls(kind, 0)
        return column.stored if isinstance(column, TypedColumn) else column

    kind = nested_type(present, kind_of_values)
    return TypedColumn.trusted(kind, encoded(values, kind, stored))
