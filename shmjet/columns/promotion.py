"""Promotion of dtypes: batches of one stream may differ in the dtype of a column, and one dtype must hold all values.

The answer depends on which kinds there are, never on their order or on which batch came first: integers and floats are
float64, signed and unsigned integers the next larger ones, with uint64 always uint64, dates those of the finer unit. A
value that the common kind does not hold exactly is an error that names it, and so are kinds that have none in common. A
column that is null all through has no kind. Must not know what the columns are for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet.columns.schemas import Kind, nulls
from shmjet.columns.type_promotion import converted_type, promoted_type
from shmjet.data.batch import Batch
from shmjet.data.column import Values, not_exact
from shmjet.data.column_types import ColumnType, DecimalType
from shmjet.data.decimal_columns import to_floats
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn

INT64: Final = np.dtype(np.int64)
UINT64: Final = np.dtype(np.uint64)
FLOAT64: Final = np.dtype(np.float64)

_EXACT: Final = 1 << 53
"""Integers up to this one are floats, too."""


def promoted(one: Kind, other: Kind) -> Kind | None:
    """Return the kind that holds the values of two; None where there is none. Associative and commutative.

    Example:
        >>> promoted(np.dtype("int8"), np.dtype("uint64")), promoted(np.dtype("int8"), np.dtype("float32"))
        (dtype('uint64'), dtype('float64'))
        >>> promoted("text", np.dtype("U3")), promoted("text", INT64)
        ('text', None)
    """
    if one == other:
        return one
    if isinstance(one, ColumnType) or isinstance(other, ColumnType):
        return promoted_type(one, other)
    if isinstance(one, str) or isinstance(other, str):
        text, array = (one, other) if isinstance(one, str) else (other, one)
        return text if not isinstance(array, str) and array.kind == {"text": "U", "bytes": "S"}[str(text)] else None
    kinds = {one.kind, other.kind}
    if kinds <= set("biufc"):
        return _number(one, other)
    if len(kinds) > 1 or one.kind == "V":
        return None
    try:
        return np.result_type(one, other)
    except TypeError:
        return None  # months and days, say


def _number(one: np.dtype[Any], other: np.dtype[Any]) -> np.dtype[Any]:
    if {one.kind, other.kind} <= set("biu"):
        both = np.result_type(one, other)
        return both if both.kind in "biu" else UINT64
    # Any integers with floats are float64: were small ones float32, it would matter in which order three kinds come.
    return np.result_type(*(FLOAT64 if dtype.kind in "iu" else dtype for dtype in (one, other)))


def common_kind(name: str, kinds: Iterable[Kind]) -> Kind:
    """Return the kind that holds the values of all.

    Args:
        name: of the column, for the message.
        kinds: at least one.

    Raises:
        BatchError: there is none.
    """
    found = list(kinds)
    common: Kind | None = found[0]
    for kind in found[1:]:
        common = None if common is None else promoted(common, kind)
    if common is None:
        raise differing(name, found)
    return common


def differing(name: str, kinds: Iterable[Kind]) -> BatchError:
    """Return the error for a column whose kinds have none in common; it names two, whatever the order they came in."""
    listed = sorted({_family(kind) for kind in kinds}) or ["nothing"]
    return BatchError(
        f"column {name!r} has values of {listed[0]} and of {listed[-1]}, which no column holds together; "
        "convert them where they are made"
    )


def _family(kind: Kind) -> str:
    if not isinstance(kind, np.dtype):
        return str(kind)
    if kind.kind in "biufc":
        return "numbers"
    return {"U": "text", "S": "bytes"}.get(kind.kind, str(kind))


def is_known(values: Values, mask: Mask | None) -> bool:
    """Whether the content of a column shows its kind: it has a value other than null.

    Of a column without rows a mask says it: batches without rows that tell of those with rows have one.
    """
    if not len(values):
        return mask is not None
    return mask is None or bool(mask.any())


def converted(name: str, values: Values, mask: Mask | None, kind: Kind) -> Values:
    """Return a column as a kind that `promoted` gave for its own.

    Args:
        name: of the column, for the message.
        values: what is there.
        mask: False where it is null; what lies there need not fit.
        kind: what it has to be. A column of nulls alone, or without rows, may become any.

    Raises:
        BatchError: a value cannot be held exactly.

    Example:
        >>> converted("v", np.array([1, 2]), None, FLOAT64).tolist()
        [1.0, 2.0]
    """
    if values.dtype == kind:
        return values
    if not len(values) or (mask is not None and not mask.any()):
        return nulls(kind, len(values))
    if isinstance(values, TypedColumn) or isinstance(kind, ColumnType):
        if promoted(values.dtype, kind) != kind:
            raise differing(name, [values.dtype, kind])
        return converted_type(name, values, mask, kind)
    if isinstance(values, Text):
        raise differing(name, [values.dtype, kind])
    if isinstance(kind, str):
        return Text.of(values.tolist())
    if mask is not None:
        values = np.where(mask, values, np.zeros((), values.dtype))
    try:
        result: npt.NDArray[Any] = values.astype(kind)
    except OverflowError:  # of times in a finer unit; before numpy 2.5 they wrap around, and are found below
        raise not_exact(name, next(value for value in values if not _is_held(value, kind)), kind) from None
    if np.can_cast(values.dtype, kind, "safe") and not (values.dtype.itemsize == 8 and values.dtype.kind in "iumM"):
        return result
    back = result.astype(values.dtype) if kind.kind in "mM" else None
    wrong = _wrong(values, result) if back is None else (back != values) & ~(np.isnat(values) & np.isnat(result))
    if wrong.any():
        raise not_exact(name, values[wrong][0], kind)
    return result


def near(name: str, values: Values, mask: Mask | None, kind: Kind) -> Values:
    """As `converted`, but decimals become the nearest floats, whether or not these are equal to them."""
    if kind == FLOAT64 and isinstance(values, TypedColumn) and isinstance(values.dtype, DecimalType):
        return to_floats(values)
    return converted(name, values, mask, kind)


def _is_held(value: Any, kind: Any) -> bool:
    try:
        value.astype(kind)
    except OverflowError:
        return False
    return True


def _wrong(values: npt.NDArray[Any], result: npt.NDArray[Any]) -> Mask:
    """Tell which integers have changed."""
    if result.dtype.kind == "u":
        return np.asarray(values < 0)
    if result.dtype.kind in "fc" and values.dtype.kind in "iu" and result.real.dtype.itemsize <= 8:
        return np.asarray(float_parts(values)[1] != 0)
    return np.zeros(len(values), np.bool_)


def float_parts(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return numbers as the nearest floats, and what is left of integers that these do not hold.

    Example:
        >>> [part.tolist() for part in float_parts(np.array([3, 2**53 + 1]))]
        [[3.0, 9007199254740992.0], [0, 1]]
    """
    near = values.astype(np.float64)
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return near, np.zeros(len(values), np.int64)
    # In arithmetic modulo 2**64 the difference, which is small, is right even where the float is 2**64.
    is_small = np.abs(near) < _EXACT
    small = np.where(is_small, near, 0.0).astype(np.int64).view(np.uint64)
    half = np.where(is_small, 0.0, near * 0.5).astype(values.dtype).view(np.uint64)  # of an even number
    return near, (values.view(np.uint64) - small - (half << np.uint64(1))).view(np.int64)


def check_same_names(one: Mapping[str, Kind], other: Mapping[str, Kind]) -> None:
    """Check that two schemas have the same names. Raises BatchError."""
    if set(one) != set(other):
        first, second = sorted((sorted(one), sorted(other)))
        raise BatchError(f"batches of different columns cannot go together: {first} and {second}")


def as_kinds(batch: Batch, kinds: Mapping[str, Kind]) -> Batch:
    """Return a batch with its columns in the order of `kinds`, and converted to these. Raises as `converted`."""
    if batch.schema == kinds and list(batch.names) == list(kinds):
        return batch
    columns, masks = batch.parts()
    made = {name: converted(name, columns[name], masks.get(name), kind) for name, kind in kinds.items()}
    for values in made.values():
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
    return Batch.trusted(made, {name: masks[name] for name in made if name in masks}, batch.num_rows)
