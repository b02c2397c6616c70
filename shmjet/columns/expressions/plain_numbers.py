"""Operators on plain numbers, with as few passes over them as there can be.

Each function gives what `shmjet.data.operators` gives, or None where the case is not one of these: types that are not
numbers, a division of integers, a result that leaves its type. The caller goes there then, for the result or the error.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import checked_arithmetic
from shmjet.data.text import Mask

Array = npt.NDArray[Any]

_CHECKED: Final = {"+": np.add, "-": np.subtract, "*": np.multiply}
_FLOATING: Final = {**_CHECKED, "/": np.true_divide}
_COMPARED: Final = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
_LOGICAL: Final = {"&": np.logical_and, "|": np.logical_or, "^": np.logical_xor}


def plain_arithmetic(symbol: str, one: Any, two: Any) -> Array | None:
    """Return what an arithmetic operator gives of numbers, at least one operand an array; None where it may raise."""
    if symbol not in _FLOATING or not (_is_number(one) and _is_number(two)):
        return None
    try:
        dtype = np.result_type(_typed(one), _typed(two))
    except (TypeError, OverflowError):
        return None
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            result: Array = _FLOATING[symbol](one, two)
        return result
    if dtype.kind not in "iu" or symbol == "/":
        return None
    try:
        a, b = np.asarray(one, dtype), np.asarray(two, dtype)
    except OverflowError:
        return None
    result = np.empty(max(a.size, b.size) if a.ndim and b.ndim else a.size if a.ndim else b.size, dtype)
    if not len(result):
        return result
    left = checked_arithmetic(symbol, dtype.kind, dtype.itemsize, _contiguous(a), _contiguous(b), result)
    return None if left else result


def plain_comparison(symbol: str, one: Any, two: Any) -> Mask | None:
    """Return what a comparison gives of numbers or of dates of one unit; None for others."""
    if _is_number(one) and _is_number(two):
        pass
    elif not (_is_date(one) and _is_date(two) and one.dtype == two.dtype):
        return None
    with np.errstate(all="ignore"):
        found: Mask = _COMPARED[symbol](one, two)
    return found


def plain_logic(symbol: str, one: Any, two: Any) -> Mask | None:
    """Return `& | ^` of columns of bools without nulls; None for others."""
    for each in (one, two):
        if not isinstance(each, np.ndarray) or each.dtype != np.bool_:
            return None
    found: Mask = _LOGICAL[symbol](one, two)
    return found


def _is_number(operand: Any) -> bool:
    if isinstance(operand, np.ndarray | np.generic):
        return operand.dtype.kind in "iuf"
    return type(operand) in (int, float)


def _is_date(operand: Any) -> bool:
    return isinstance(operand, np.ndarray | np.datetime64) and operand.dtype.kind == "M"


def _typed(operand: Any) -> Any:
    return operand.dtype if isinstance(operand, np.ndarray) else operand


def _contiguous(array: Array) -> Array:
    return np.ascontiguousarray(array)
