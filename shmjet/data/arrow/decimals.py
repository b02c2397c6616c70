"""Decimals of Arrow, of 32 to 256 bits, and those of columns: 64 bits for up to 18 digits, else 128.

All are little-endian two's complement, and count units of the last digit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data.arrow.buffers import fixed
from shmjet.data.arrow.fields import Field
from shmjet.data.column_types import WIDE, DecimalType
from shmjet.data.decimals import stored_units, units_of
from shmjet.data.text import Mask

if TYPE_CHECKING:
    from shmjet._native._arrow import Array

_INT64: Final = np.dtype(np.int64)
_LOW: Final = (1 << 64) - 1


def read_decimals(
    field: Field, array: Array, start: int, count: int, mask: Mask | None, kind: DecimalType
) -> npt.NDArray[Any]:
    """Return decimals as a column of `kind` stores them.

    Raises:
        BatchError: a value has more digits than the type.
    """
    assert field.decimal is not None
    precision, scale, bits = field.decimal
    if bits <= 64:
        units = fixed(field, array, 1, start, count, np.dtype(f"i{bits // 8}")).astype(np.int64, copy=False)
        halves = None
    else:
        limbs = fixed(field, array, 1, start, count, np.dtype(f"V{bits // 8}"))
        halves = _halves(field, limbs, mask)
        units = None
    if scale < 0:
        return _without_scale(field, units if units is not None else halves, mask, kind, -scale)
    if units is None:
        assert halves is not None
        if kind.stored == WIDE:
            _check_wide(field, halves, mask, kind)
            return halves.view(WIDE)
        units = halves.view(np.int64)[::2].copy()
        _check(field, halves.view(np.int64)[1::2] != units >> 63, mask, kind)
    bound = 10 ** min(precision, 18)
    _check(field, (units >= bound) | (units <= -bound), mask, kind)
    return units if kind.stored != WIDE else widened(units).view(WIDE)


def widened(units: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return integers of 64 bits as such of 128, each two of 64."""
    halves = np.empty(2 * len(units), np.int64)
    halves[::2] = units
    np.right_shift(units, 63, out=halves[1::2])
    return halves


def _halves(field: Field, limbs: npt.NDArray[Any], mask: Mask | None) -> npt.NDArray[Any]:
    """Return integers of 128 or 256 bits as such of 128."""
    if limbs.dtype == WIDE:
        return limbs
    quarters = limbs.view(np.int64).reshape(-1, 4)
    sign = quarters[:, 1] >> 63
    wrong = (quarters[:, 2] != sign) | (quarters[:, 3] != sign)
    _check(field, wrong, mask, None)
    return np.ascontiguousarray(quarters[:, :2]).reshape(-1).view(WIDE)


def _check_wide(field: Field, halves: npt.NDArray[Any], mask: Mask | None, kind: DecimalType) -> None:
    low, high = halves.view(np.uint64)[::2], halves.view(np.int64)[1::2]
    bound = 10**kind.precision
    most, least = bound >> 64, -bound >> 64
    wrong = (high > most) | (high < least)
    wrong |= (high == most) & (low >= np.uint64(bound & _LOW))
    wrong |= (high == least) & (low <= np.uint64(-bound & _LOW))
    _check(field, wrong, mask, kind)


def _check(field: Field, wrong: Mask, mask: Mask | None, kind: DecimalType | None) -> None:
    if mask is not None:
        wrong = wrong & mask
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise field.error(f"the value in row {row} has more digits than {kind or 'a decimal may have, which is 38'}")


def _without_scale(field: Field, stored: Any, mask: Mask | None, kind: DecimalType, power: int) -> npt.NDArray[Any]:
    """Return counts of 10, 100 ... as integers."""
    units = [unit * 10**power for unit in units_of(stored)]
    if mask is not None:
        units = [unit if there else 0 for unit, there in zip(units, mask.tolist(), strict=True)]
    bound = 10**kind.precision
    _check(field, np.array([abs(unit) >= bound for unit in units], np.bool_), mask, kind)
    return stored_units(units, kind)
