"""Sums, means and extremes of a `TypedColumn` without its nulls."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmjet.data import decimal_columns
from shmjet.data.column_types import DecimalType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn


def sum_of(column: TypedColumn, valid: Mask) -> Any:
    """Return the sum of decimals, a Decimal. Raises BatchError for other types, and over 38 digits."""
    if not isinstance(column.dtype, DecimalType):
        raise BatchError(f"a column of {column.dtype} has no sum")
    return decimal_columns.sum_of(column, valid)


def mean_of(column: TypedColumn, valid: Mask) -> Any:
    """Return the mean of decimals, a float64. Raises BatchError for other types."""
    if not isinstance(column.dtype, DecimalType):
        raise BatchError(f"a column of {column.dtype} has no mean")
    return decimal_columns.mean_of(column, valid)


def extreme_of(column: TypedColumn, valid: Mask, is_greatest: bool) -> Any:
    """Return the least or greatest value as Python's own. Raises BatchError for nested types, which have no order."""
    if column.dtype.is_nested:
        raise BatchError(f"a column of {column.dtype} has no order")
    if isinstance(column.dtype, DecimalType):
        return decimal_columns.extreme_of(column, valid, is_greatest)
    there = column if valid.all() else column.take(np.flatnonzero(valid))
    if not len(there):
        return None
    if isinstance(there.stored, Text):
        return (max if is_greatest else min)(there.to_list())
    ticks = there.stored.view(np.int64)
    is_nat = np.isnat(there.stored)
    if is_nat.any() and (is_greatest or is_nat.all()):
        return None  # NaT is the greatest, and Python has none
    rows = np.flatnonzero(~is_nat)
    row = rows[int((np.argmax if is_greatest else np.argmin)(ticks[rows]))]
    return there[int(row)]
