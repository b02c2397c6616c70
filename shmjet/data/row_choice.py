"""Which rows a user chooses, by a mask or by their numbers: what is neither is an error, and a null chooses nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from shmjet.data.errors import BatchError
from shmjet.data.masked import is_masked_array


def is_mask(index: Any) -> bool:
    """Whether an index of rows is a mask: a column of bools, or a list of bools and None."""
    if isinstance(index, list | tuple):
        return bool(index) and all(value is None or isinstance(value, bool | np.bool_) for value in index)
    return getattr(index, "dtype", None) == np.bool_


def true_rows(mask: Any, rows: int) -> npt.NDArray[np.intp]:
    """Return the numbers of the rows where a mask is true, and neither null nor masked.

    Args:
        mask: array, masked array or `Nullable` of bools, or a list of bools and None.
        rows: its length.

    Raises:
        BatchError: it is none of these, or of another length.
    """
    if isinstance(mask, list | tuple) and (is_mask(mask) or not mask):
        mask = np.array([value is not None and bool(value) for value in mask], np.bool_)
    elif hasattr(mask, "to_masked"):  # a Nullable
        mask = mask.to_masked()
    chosen = np.ma.getdata(mask) if is_masked_array(mask) else np.asarray(mask)
    if chosen.dtype != np.bool_ or chosen.shape != (rows,):
        raise BatchError(
            f"a mask for {rows} rows must be a bool array of that length, got {chosen.dtype} of shape {chosen.shape}"
        )
    if is_masked_array(mask):
        chosen = chosen & ~np.ma.getmaskarray(mask)
    return np.flatnonzero(chosen)


def checked_rows(indices: Any, rows: int) -> npt.NDArray[np.intp]:
    """Return the numbers of rows that a user gave, negative ones as they are.

    Args:
        indices: array of integers, or a sequence of them.
        rows: how many there are.

    Raises:
        BatchError: they are not integers, some are null, or there are several dimensions.
        IndexError: one is `rows` or more, or below `-rows`.
    """
    if hasattr(indices, "to_masked"):  # a Nullable
        indices = indices.to_masked()
    if is_masked_array(indices):
        if np.ma.is_masked(indices):
            raise BatchError("numbers of rows must not be null; use drop_null() on them first")
        indices = np.ma.getdata(indices)
    numbers = indices if isinstance(indices, np.ndarray) else _numbers(indices, rows)
    if numbers.ndim == 1 and not len(numbers):
        return np.zeros(0, np.intp)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        hint = "; filter() takes a mask" if numbers.dtype.kind == "b" else ""
        raise BatchError(
            f"numbers of rows must be a one-dimensional array of integers, got {numbers.dtype} of shape "
            f"{numbers.shape}{hint}"
        )
    _check_range(int(numbers.min()), int(numbers.max()), rows)
    return np.ascontiguousarray(numbers, np.intp)


def _numbers(indices: Any, rows: int) -> npt.NDArray[Any]:
    """Return a sequence as an array; integers never become floats."""
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, indices.step)
    if isinstance(indices, str | bytes) or not isinstance(indices, Iterable):
        return np.array(indices)
    listed = list(indices)
    if any(isinstance(value, bool | np.bool_) for value in listed):  # numpy would take True for 1 among integers
        return np.ones(len(listed), np.bool_)
    if listed and all(isinstance(value, int | np.integer) for value in listed):
        _check_range(min(listed), max(listed), rows)
        return np.array(listed, np.intp)
    try:
        return np.array(listed)
    except ValueError:  # sequences of different lengths
        return np.array([listed], object)


def _check_range(least: int, most: int, rows: int) -> None:
    if most >= rows or least < -rows:
        raise IndexError(f"row {most if most >= rows else least} is out of range: there are {rows}")
