"""Spark's decimals as float64, if float64 represents every value exactly, and as `Decimal`.

Exactly means: the shortest text of the float is the decimal. Up to 15 digits that is always so. A batch has no column
of decimals, and a value that silently lost its last digits would be worse than an error.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.data.errors import BatchError

Unscaled: TypeAlias = tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]
"""The low and the high 64 bits of values times 10 to the power of their scale."""

_EXACT = 1 << 53
_EXACT_SCALE = 22
"""Powers of ten up to this one are float64 without rounding, so one correctly rounded division gives the nearest."""


def floats(unscaled: Unscaled, scale: int, mask: npt.NDArray[np.bool_] | None, column: str) -> npt.NDArray[np.float64]:
    """Return decimals as float64.

    Args:
        unscaled: the values.
        scale: digits behind the point.
        mask: False where the value is null, and does not matter.
        column: named in errors.

    Raises:
        BatchError: a value has no float64 that stands for it.
    """
    low, high = unscaled
    small = low.view(np.int64)
    fits = (high == small >> 63) & (small <= _EXACT) & (small >= -_EXACT)
    if mask is not None:
        fits |= ~mask
        small = np.where(mask, small, 0)
    if scale <= _EXACT_SCALE and fits.all():
        return small / 10.0**scale
    result = small / 10.0 ** min(scale, _EXACT_SCALE)
    doubtful = np.flatnonzero(~fits) if scale <= _EXACT_SCALE else np.arange(len(small))
    for row in doubtful.tolist():
        if mask is None or mask[row]:
            result[row] = to_float(_decimal(int(low[row]), int(high[row]), scale), column)
    return result


def to_float(value: Decimal, column: str) -> float:
    """Return the float that stands for a decimal. Raises BatchError when there is none; the text names the column."""
    found = float(value)
    if Decimal(repr(found)) != value:
        raise BatchError(
            f"column {column!r}: the decimal {value} has more digits than a float64 keeps; cast the column to double "
            "in Spark to have it rounded, or to string to keep every digit"
        )
    return found


def decimals(unscaled: Unscaled, scale: int) -> list[Any]:
    """Return the values as `Decimal`."""
    low, high = unscaled
    return [_decimal(a, b, scale) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _decimal(low: int, high: int, scale: int) -> Decimal:
    value = (high << 64) | low
    digits = tuple(map(int, str(abs(value))))
    return Decimal((int(value < 0), digits, -scale))
