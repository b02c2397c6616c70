"""`Vector`: an operand while an expression is computed: a column's values or one value for all rows, and nulls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shmjet.data.column import Values
from shmjet.data.operators import type_name
from shmjet.data.text import Mask, Text
from shmjet.data.typed_operators import as_column, is_typed


@dataclass(frozen=True, slots=True)
class Vector:
    """An operand in a block of rows.

    Args:
        values: a column of as many values as the block has rows; or, if `is_scalar`, one value for all of them.
        valid: False at nulls; None when nothing is null. What lies under a null has no meaning.
        is_scalar: `values` is one value, which is not None unless this is `NULL`.
        is_untyped: all are null, and of what type is not known: the literal None, and a column of nulls alone that was
            made of Python's None. It goes together with every type.
    """

    values: Any
    valid: Mask | None = None
    is_scalar: bool = False
    is_untyped: bool = False

    @property
    def type_name(self) -> str:
        """What a message calls the type."""
        return "null" if self.is_untyped else type_name(self.values)

    def mask(self, rows: int) -> Mask:
        """Return where it is not null."""
        return np.ones(rows, np.bool_) if self.valid is None else self.valid

    def column(self, rows: int) -> Values:
        """Return the values as a column of so many rows."""
        if not self.is_scalar:
            column: Values = self.values
            return column
        if self.values is None:
            return np.zeros(rows)
        if isinstance(self.values, str | bytes):
            piece = Text.of([self.values])
            return piece.take(np.zeros(rows, np.int64))
        if is_typed(self.values):
            return as_column(self.values, rows)
        return np.full(rows, self.values)


def null(rows: int) -> Vector:
    """Return the literal None."""
    return Vector(None, np.zeros(rows, np.bool_), is_scalar=True, is_untyped=True)


def nulls_like(values: Values, rows: int) -> Vector:
    """Return nulls of a type; `values` are of it, and need not be of so many rows."""
    return Vector(values.take(np.zeros(rows, np.int64)) if len(values) else values, np.zeros(rows, np.bool_))


def both(one: Mask | None, two: Mask | None) -> Mask | None:
    """Return where two operands are both not null."""
    if one is None or two is None:
        return one if two is None else two
    return one & two
