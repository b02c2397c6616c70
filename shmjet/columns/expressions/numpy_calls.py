"""numpy's functions of one number in expressions: nulls stay null, and numpy's warnings are not shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shmjet.columns.expressions.vector import Vector, null
from shmjet.core.expressions.numpy_functions import KEEPING, PREFIX
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask

_TESTS = frozenset(("isnan", "isinf", "isfinite"))


def prepared_numpy(function: str) -> Callable[[Sequence[Vector], int, Mask | None], Vector]:
    """Return what computes a function, by its name in expressions, such as "numpy.log"."""
    name = function.removeprefix(PREFIX)
    compute: Callable[..., np.ndarray] = getattr(np, name)

    def apply(operands: Sequence[Vector], rows: int, active: Mask | None) -> Vector:
        (one,) = operands
        if one.is_untyped:
            return Vector(np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)) if name in _TESTS else null(rows)
        values = one.column(rows)
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "iuf":
            raise BatchError(f"{function} takes numbers, not {one.type_name}; cast them to float first")
        if values.dtype.kind in "iu" and name not in KEEPING:
            values = values.astype(np.float64)
        with np.errstate(all="ignore"):
            return Vector(compute(values), one.valid)

    return apply
