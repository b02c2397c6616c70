"""`is_in`: whether a value is equal to one of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shmjet._native._columns import text_among
from shmjet.columns.expressions.operations import check_comparable
from shmjet.columns.expressions.vector import Vector
from shmjet.data import operators
from shmjet.data.column_descriptors import descriptor
from shmjet.data.text import Mask, Text


def prepared_membership(values: Sequence[Any]) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    """Return the function that tells what is equal to one of some values, none of which is null."""
    texts = {value for value in values if isinstance(value, str | bytes)}
    weak_integers = {value for value in values if type(value) is int}
    others = [value for value in values if not isinstance(value, str | bytes) and type(value) is not int]
    encoded = sorted(value.encode() if isinstance(value, str) else value for value in texts)
    listed = Text.of(encoded)

    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_))
        column = one.column(rows)
        for value in (*list(texts)[:1], *list(weak_integers)[:1], *others):
            check_comparable(Vector(column), Vector(value, is_scalar=True))
        found = np.zeros(rows, np.bool_)
        every = np.ones(rows, np.bool_)
        rest: list[Any] = list(others)
        if isinstance(column, Text):
            found = _texts_in(column, listed)
        elif isinstance(column, np.ndarray) and column.dtype.kind in "iu":
            info = np.iinfo(column.dtype)
            fitting = sorted(value for value in weak_integers if info.min <= value <= info.max)
            if fitting:
                found = np.isin(column, np.array(fitting, column.dtype))
        else:
            rest += [*weak_integers, *texts]
        for value in rest:
            found |= operators.compare("==", column, value, every)
        return Vector(found, one.valid)

    return apply


def _texts_in(column: Text, values: Text) -> Mask:
    found = np.empty(len(column), np.bool_)
    text_among(descriptor(column), descriptor(values), found)
    return found
