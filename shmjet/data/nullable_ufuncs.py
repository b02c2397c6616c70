"""What numpy's own functions do with a `Nullable`: keep its nulls, or refuse.

Functions that have an operator are that operator. Other functions of single elements get the values without nulls.
Everything else (reductions along axes, sorting, `where`, ...) would have to decide what a null means, and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from shmjet.data.errors import BatchError
from shmjet.data.masked import is_masked_array, masked_value
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text

_OPERATORS: Final[dict[np.ufunc, tuple[str, str]]] = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.true_divide: ("__truediv__", "__rtruediv__"),
    np.floor_divide: ("__floordiv__", "__rfloordiv__"),
    np.remainder: ("__mod__", "__rmod__"),
    np.power: ("__pow__", "__rpow__"),
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
    np.bitwise_and: ("__and__", "__and__"),
    np.bitwise_or: ("__or__", "__or__"),
    np.bitwise_xor: ("__xor__", "__xor__"),
    np.invert: ("__invert__", ""),
    np.negative: ("__neg__", ""),
    np.absolute: ("__abs__", ""),
}
"""The method of a `Nullable` on the left, and of one on the right."""

_LOGICAL: Final[dict[np.ufunc, np.ufunc]] = {
    np.logical_and: np.bitwise_and,
    np.logical_or: np.bitwise_or,
    np.logical_xor: np.bitwise_xor,
    np.logical_not: np.invert,
}
_OF_TWO: Final = frozenset(
    (np.maximum, np.minimum, np.fmax, np.fmin, np.hypot, np.arctan2, np.copysign, np.logaddexp, np.logaddexp2)
)
_WRAPPING: Final = frozenset((np.square, np.reciprocal))
"""Functions of one argument that are wrong for some integers."""

_REDUCTIONS: Final[dict[Callable[..., Any], Callable[[Nullable], Any]]] = {
    np.sum: Nullable.sum,
    np.mean: Nullable.mean,
    np.min: Nullable.min,
    np.amin: Nullable.min,
    np.max: Nullable.max,
    np.amax: Nullable.max,
}


def refusal(called: str) -> TypeError:
    """Return the error for a function that does not know nulls."""
    return TypeError(f"{called} does not know nulls; use fill_null(value), drop_null() or to_masked() first")


def apply(function: np.ufunc, inputs: Sequence[Any]) -> Any:
    """Return what a function of single elements makes of its arguments, of which one is a `Nullable`.

    Raises:
        TypeError: it is not known to keep nulls, or does not work on such values.
        BatchError: as the operators of `Nullable`.
    """
    if function in _LOGICAL:
        if any(getattr(each, "dtype", np.bool_) != np.bool_ for each in inputs):
            raise TypeError(f"numpy.{function.__name__} takes columns of bool here; compare numbers first")
        function = _LOGICAL[function]
    if function in _OPERATORS:
        left, right = _OPERATORS[function]
        first, *others = inputs
        if isinstance(first, Nullable):
            return getattr(first, left)(*others)
        return getattr(others[0], right)(first)
    if function.nin == 1 and function.nout == 1:
        return _of_one(function, inputs[0])
    if function in _OF_TWO:
        return _of_two(function, *inputs)
    raise refusal(f"numpy.{function.__name__}")


def _of_one(function: np.ufunc, column: Nullable) -> Nullable:
    values, valid = column.parts()
    if not isinstance(values, np.ndarray) or (values.dtype.kind in "iu" and function in _WRAPPING):
        raise TypeError(f"numpy.{function.__name__} does not work on a column of {column.dtype}")
    return _spread(function(column.drop_null()), valid)


def _of_two(function: np.ufunc, one: Any, two: Any) -> Nullable:
    """Call a function with the rows in which neither argument is null."""
    masks = [mask for each in (one, two) if (mask := _validity(each)) is not None]
    if len({len(mask) for mask in masks}) > 1:
        raise BatchError(f"columns of {len(masks[0])} and {len(masks[1])} rows do not go together")
    valid = np.logical_and.reduce(masks)
    columns = [_values(each, np.flatnonzero(valid)) for each in (one, two)]
    if len({np.asarray(each).dtype.kind in "mM" for each in columns}) > 1:
        raise TypeError(f"numpy.{function.__name__} does not work on dates and numbers")
    return _spread(function(*columns), valid)


def _validity(operand: Any) -> Any:
    """Return where an operand is not null; None for a scalar."""
    if isinstance(operand, Nullable):
        return operand.validity
    if not isinstance(operand, np.ndarray) or not operand.ndim:
        return None
    return ~np.ma.getmaskarray(operand) if is_masked_array(operand) else np.ones(operand.shape, np.bool_)


def _values(operand: Any, rows: Any) -> Any:
    if isinstance(operand, Nullable):
        operand = operand.parts()[0]
    elif operand is None or operand is masked_value():
        raise TypeError("numpy's functions do not take None; use fill_null(value) on the column")
    if isinstance(operand, Text):
        raise TypeError("numpy's functions do not work on a column of text")
    if not isinstance(operand, np.ndarray) or not operand.ndim:
        return operand
    return (np.ma.getdata(operand) if is_masked_array(operand) else operand).take(rows)


def _spread(found: Any, valid: Any) -> Nullable:
    values = np.zeros(len(valid), found.dtype)
    values[valid] = found
    return Nullable.trusted(values, valid)


def call(function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return what one of numpy's reductions makes of a `Nullable`. Raises TypeError for every other function."""
    reduce = _REDUCTIONS.get(function)
    if reduce is None or len(arguments) != 1 or options or not isinstance(arguments[0], Nullable):
        raise refusal(f"numpy.{function.__name__}")
    return reduce(arguments[0])
