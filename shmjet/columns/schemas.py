"""Schemas: the type of each column of a stream of batches, and the conversion of a column to its type.

A kind is a numpy dtype of fixed width, or `"text"` or `"bytes"` for columns of variable length; users may say `int`,
`float`, `bool`, `str` and `bytes` for it. Fitting widens and never loses: what does not fit is an error that names the
column. (Numbers among floats are rounded as floats are.) Must not know where columns come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.data.column import Values
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text

Kind: TypeAlias = np.dtype[Any] | str
"""A numpy dtype, `"text"` or `"bytes"`."""

_TEXTS: Final[dict[Any, str]] = {str: "text", "text": "text", "str": "text", bytes: "bytes", "bytes": "bytes"}


def kind_of(name: str, given: Any) -> Kind:
    """Return what a user's word for a column's type means.

    Args:
        name: of the column, for the message.
        given: anything that `numpy.dtype` takes, `str` or `"text"`, `bytes` or `"bytes"`.

    Raises:
        BatchError: it is not a type, or it is a type of objects.

    Example:
        >>> kind_of("a", int), kind_of("a", str), kind_of("a", "float32")
        (dtype('int64'), 'text', dtype('float32'))
    """
    try:
        if given in _TEXTS:
            return _TEXTS[given]
    except TypeError:  # cannot be hashed: a list that describes a structured dtype
        pass
    try:
        dtype = np.dtype(given)
    except TypeError:
        raise BatchError(
            f"schema: column {name!r} must be a numpy dtype, int, float, bool, str or bytes, got {given!r}"
        ) from None
    if dtype.kind in "SU" and dtype.itemsize == 0:
        return "text" if dtype.kind == "U" else "bytes"
    if given is None or dtype.hasobject or dtype.itemsize == 0:
        raise BatchError(f"schema: column {name!r} must have values of a fixed width or text, got {given!r}")
    native: np.dtype[Any] = dtype.newbyteorder("=")
    return native


def schema_of(given: Mapping[str, Any]) -> dict[str, Kind]:
    """Return a user's schema with kinds for its words.

    Raises:
        BatchError: it is not a mapping, or the type of a column is not a type.
    """
    if not isinstance(given, Mapping):
        raise BatchError(f"a schema is a dict of names and dtypes, got {type(given).__name__}")
    return {name: kind_of(name, kind) for name, kind in given.items()}


def nulls(kind: Kind, count: int) -> Values:
    """Return what lies under `count` nulls of a column.

    Example:
        >>> nulls("text", 2), nulls(np.dtype("int16"), 2)
        (Text(['', ''], 2 text values), array([0, 0], dtype=int16))
    """
    if isinstance(kind, str):
        return Text.trusted(np.zeros(count + 1, np.int64), np.zeros(0, np.uint8), kind == "bytes")
    return np.zeros(count, kind)


def fitted(name: str, column: Values, mask: Mask | None, kind: Kind) -> Values:
    """Return a column as the kind it has to be.

    Numbers are widened (bool to int, int to float), and become narrower within their family (int64 to int8, float64 to
    float32) when every value is in its range; text becomes fixed-width text that is long enough. Nothing else changes.

    Args:
        name: of the column, for messages.
        column: what is there.
        mask: False where it is null; values there need not fit.
        kind: what it has to be.

    Raises:
        BatchError: a value would be lost or changed.

    Example:
        >>> fitted("v", np.array([1, 2]), None, np.dtype(float)).tolist()
        [1.0, 2.0]
    """
    if column.dtype == kind:
        return column
    if isinstance(column, Text):
        if isinstance(kind, np.dtype) and kind.kind == ("S" if column.is_bytes else "U"):
            return _fixed_text(name, column, kind)
    elif isinstance(kind, np.dtype):
        result = _cast(column, mask, kind)
        if result is not None:
            return result
    raise BatchError(
        f"column {name!r} has to be {kind}, found {_found(column, mask)}; "
        f"give the column a type that fits all, such as schema={{{name!r}: {_wider(column, kind)}}}"
    )


def _cast(array: npt.NDArray[Any], mask: Mask | None, kind: np.dtype[Any]) -> npt.NDArray[Any] | None:
    if np.can_cast(array.dtype, kind, "safe"):
        return array.astype(kind)
    family = array.dtype.kind + kind.kind
    if mask is not None:
        array = np.where(mask, array, np.zeros((), array.dtype))
    if family in ("ff", "cc"):
        with np.errstate(over="ignore"):
            result = array.astype(kind)
        return result if np.array_equal(np.isfinite(result), np.isfinite(array)) else None
    if family in ("uf", "if"):  # to float32 or float16, which round as they do with other floats
        with np.errstate(over="ignore"):
            result = array.astype(kind)
        return result if np.isfinite(result).all() else None
    if family in ("ii", "iu", "ui", "uu", "MM", "mm"):
        result = array.astype(kind)
        same = (result.astype(array.dtype) == array) | _is_nat(array)
        if family in ("iu", "ui"):
            same &= (result < 0) == (array < 0)
        return result if same.all() else None
    return None


def _is_nat(array: npt.NDArray[Any]) -> Mask:
    return np.isnat(array) if array.dtype.kind in "mM" else np.zeros(len(array), np.bool_)


def _fixed_text(name: str, column: Text, kind: np.dtype[Any]) -> npt.NDArray[Any]:
    values = column.tolist()
    width = kind.itemsize // (1 if column.is_bytes else 4)
    longest = max(values, key=len, default=b"" if column.is_bytes else "")
    if len(longest) > width:
        raise BatchError(f"column {name!r} has to be {kind}, found {longest!r:.80} of {len(longest)} characters")
    return np.array(values, kind)


def _found(column: Values, mask: Mask | None) -> str:
    if isinstance(column, Text):
        return column.dtype
    values = column if mask is None else column[mask]
    if column.dtype.kind in "iuf" and len(values):
        return f"{column.dtype} with values from {values.min()} to {values.max()}"
    return str(column.dtype)


def _wider(column: Values, kind: Kind) -> str:
    if isinstance(column, Text) or isinstance(kind, str):
        return "str"
    return "float" if column.dtype.kind in "iuf" and kind.kind in "biuf" else repr(str(column.dtype))
