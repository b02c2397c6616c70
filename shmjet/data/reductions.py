"""Sums, means and extremes of columns without their nulls; None where there is no value, and no sum wraps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.data import typed_reductions
from shmjet.data.column import Values
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn

_LOW: Final = (1 << 32) - 1


def _present(values: Physical, valid: Mask) -> Physical:
    return values if valid.all() else values.take(np.flatnonzero(valid))


def sum_of(values: Values, valid: Mask) -> Any:
    """Return the sum: of integers and bools an int64 or uint64, of floats one of their type, of spans a span.

    Raises:
        BatchError: it leaves 64 bits, or the values cannot be added.
    """
    if isinstance(values, TypedColumn):
        return typed_reductions.sum_of(values, valid)
    there = _present(values, valid)
    if not isinstance(there, np.ndarray) or there.dtype.kind not in "biufcm":
        raise BatchError(f"a column of {values.dtype} has no sum")
    if not len(there):
        return None
    if there.dtype.kind in "fc":
        with np.errstate(all="ignore"):
            return there.sum()
    if there.dtype.kind == "m":
        return there.sum() if np.isnat(there).any() else np.timedelta64(_fitting(there, np.int64), _unit(there))
    kind = np.uint64 if there.dtype.kind == "u" else np.int64
    return kind(_fitting(there, kind))


def mean_of(values: Values, valid: Mask) -> Any:
    """Return the mean: of numbers and bools a float64, of spans a span. Raises BatchError when there is none."""
    if isinstance(values, TypedColumn):
        return typed_reductions.mean_of(values, valid)
    there = _present(values, valid)
    if not isinstance(there, np.ndarray) or there.dtype.kind not in "biufcm":
        raise BatchError(f"a column of {values.dtype} has no mean")
    if not len(there):
        return None
    if there.dtype.kind in "biu":
        return np.float64(_exact(there) / len(there))
    if there.dtype.kind == "m":
        return there[np.isnat(there)][0] if np.isnat(there).any() else _mean_span(there)
    with np.errstate(all="ignore"):
        return there.mean(dtype=np.result_type(there.dtype, np.float64))


def least_of(values: Values, valid: Mask) -> Any:
    """Return the least value; NaN and NaT only if there is no other. Raises BatchError when there is no order."""
    return _extreme(values, valid, min, np.fmin)


def greatest_of(values: Values, valid: Mask) -> Any:
    """Return the greatest value; NaN and NaT where there are any. Raises BatchError when there is no order."""
    return _extreme(values, valid, max, np.maximum)


def _extreme(values: Values, valid: Mask, of_list: Callable[[Any], Any], of_array: np.ufunc) -> Any:
    if isinstance(values, TypedColumn):
        return typed_reductions.extreme_of(values, valid, of_list is max)
    there = _present(values, valid)
    if isinstance(there, np.ndarray) and there.dtype.kind == "V":
        raise BatchError(f"a column of {values.dtype} has no order")
    if not len(there):
        return None
    if isinstance(there, Text) or there.dtype.kind in "SU":
        return of_list(there.tolist())
    return of_array.reduce(there)


def _exact(there: npt.NDArray[Any]) -> int:
    """Return the sum of integers, as large as it may be."""
    if there.dtype.itemsize < 8:
        return int(there.sum(dtype=np.uint64 if there.dtype.kind == "u" else np.int64))
    numbers = there.view(np.int64) if there.dtype.kind == "m" else there
    high, low = numbers >> 32, numbers & _LOW
    return (int(high.sum()) << 32) + int(low.sum())


def _fitting(there: npt.NDArray[Any], kind: type[np.integer[Any]]) -> int:
    total, info = _exact(there), np.iinfo(kind)
    if not info.min <= total <= info.max or (there.dtype.kind == "m" and total == info.min):
        raise BatchError(f"the sum of a column of {there.dtype} is {total}, which does not fit into {info.dtype}")
    return total


def _unit(there: npt.NDArray[Any]) -> Any:
    return np.datetime_data(there.dtype)


def _mean_span(there: npt.NDArray[Any]) -> np.timedelta64:
    mean = abs(total := _exact(there)) // len(there)
    return np.timedelta64(mean if total >= 0 else -mean, _unit(there))
