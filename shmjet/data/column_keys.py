"""Hashes of keys that are columns: equal to those of the same keys as Python objects.

The bytes that are hashed are those of docs/formats/keys.md, and the values are the ones of `Batch.values`. The kernels
do everything; here a key is taken apart for them: what the unit of a date means, which fields a structured column has.
Must not know who owns a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import hash_columns
from shmjet.data.batch import Batch, any_column
from shmjet.data.column import Values
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_types import ColumnType, DecimalType, ZonedType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn
from shmjet.data.typed_keys import key_values

if TYPE_CHECKING:
    from shmjet._native._columns import Column, DateForm, KeyForm

Hashes: TypeAlias = npt.NDArray[np.uint32]

_MICROSECONDS: Final = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_DAY: Final = 86_400_000_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
"""Of `datetime.date`, counted from 1970."""
_LONGEST: Final = 999_999_999
"""Days of the longest `datetime.timedelta`."""
_ORDINAL_OF_1970: Final = 719_163
_DATE_KINDS: Final = {"d": "dates", "T": "times", "p": "durations"}
_ALWAYS_INTEGER: Final = ("i", 1, 1, 0, 1, 0)
_ALWAYS_NULL: Final = ("N", 1, 1, 0, 1, 0)


class KeyColumns(NamedTuple):
    """The columns of a key as the kernels take them."""

    columns: tuple[Column, ...]
    forms: tuple[KeyForm, ...] | None
    """None where every column says by itself what its values are."""


def key_columns(batch: Batch, names: Sequence[str]) -> KeyColumns:
    """Return the columns of a key. Several names make a composite key, the tuple of the columns' values.

    Raises:
        BatchError: there is no such column, or its values cannot be keys; the text names column and dtype.
    """
    if not names:
        raise BatchError(f"a key needs at least one column; there are {list(batch.names)}")
    columns: list[Column] = []
    forms: list[KeyForm] = []
    for name in names:
        _take_apart(name, *any_column(batch, name), columns, forms)
    return KeyColumns(tuple(columns), tuple(forms) if any(form is not None for form in forms) else None)


def hash_rows(batch: Batch, names: Sequence[str]) -> Hashes:
    """Return each row's key hash: unsigned murmur3_32, seed 0, of the key's canonical bytes.

    Args:
        batch: where the columns are.
        names: the columns of the key; several make a tuple of their values.

    Raises:
        BatchError: as `key_columns`.

    Example:
        >>> from shmjet._native import murmur3_32
        >>> from shmjet.core.keys import canonical_bytes
        >>> int(hash_rows(Batch({"user": [7, 8]}), ["user"])[0]) == murmur3_32(canonical_bytes(7))
        True
    """
    columns, forms = key_columns(batch, names)
    hashes = np.empty(batch.num_rows, np.uint32)
    hash_columns(columns, hashes, forms)
    return hashes


def _take_apart(name: str, values: Values, valid: Mask | None, columns: list[Column], forms: list[KeyForm]) -> None:
    """Append a column, behind a structured one its fields."""
    if isinstance(values, TypedColumn):
        columns.append(descriptor(key_values(values), valid))
        forms.append(_typed_form(values.dtype))
        return
    form: KeyForm = None
    if not isinstance(values, Text):
        dtype = values.dtype
        if dtype.kind in "mM":
            form = _date_form(dtype)
        elif dtype.kind == "V" and dtype.names is not None:
            columns.append(descriptor(values, valid))
            forms.append(len(dtype.names))
            for field in dtype.names:
                _take_apart(f"{name}.{field}", _field(name, values, field), None, columns, forms)
            return
        elif dtype.kind == "f" and dtype.itemsize > 8:  # its keys are those of the nearest 64-bit floats
            with np.errstate(over="ignore"):
                values = values.astype(np.float64)
        elif dtype.kind not in "biufSUV":
            raise BatchError(f"column {name!r} of dtype {dtype} cannot be a key: {dtype.name} values have no key bytes")
    columns.append(descriptor(values, valid))
    forms.append(form)


def _typed_form(kind: ColumnType) -> KeyForm:
    """Say what the stored values of a type are as keys; categories are text, and nested values bytes."""
    if isinstance(kind, DecimalType):
        return "D", kind.scale
    if not isinstance(kind, ZonedType):
        return None
    if kind.unit == "ns":  # where it is whole microseconds, Python has it
        return "Z", 1, -(1 << 63) + 1, (1 << 63) - 1, -1000, 0
    return "Z", *_date_form(np.dtype(f"M8[{kind.unit}]"))[1:]


def _field(name: str, values: npt.NDArray[Any], field: str) -> npt.NDArray[Any]:
    column = values[field]
    if column.ndim != 1:
        raise BatchError(f"column {name!r} of dtype {values.dtype} cannot be a key: its field {field!r} is an array")
    native = np.ascontiguousarray(column)
    return native.astype(native.dtype.newbyteorder("="), copy=False)


def date_kind(dtype: np.dtype[Any]) -> str:
    """Tell which columns of dates, times or durations have keys in common: those for which this is the same.

    In Python no date equals a time, whatever numpy thinks; and what is too fine for Python has integers for keys.

    Example:
        >>> [date_kind(np.dtype(f"M8[{unit}]")) for unit in ("Y", "D", "s", "us", "ns")]
        ['dates', 'dates', 'times', 'times', 'datetime64[ns]']
    """
    return _DATE_KINDS.get(_date_form(dtype)[0], str(dtype))


def _date_form(dtype: np.dtype[Any]) -> DateForm:
    """Say which of a column's integers `tolist` makes dates or durations, and which; the rest stay integers."""
    unit, count = np.datetime_data(dtype)
    if dtype.kind == "M":
        if unit == "generic":
            return _ALWAYS_NULL
        if unit in "YM":
            months = 12 if unit == "Y" else 1
            return "d", count, -1969 * 12 // months, 8030 * 12 // months - 1, 0, months
        if unit in "WD":
            return "d", (7 if unit == "W" else 1) * count, _FIRST_DAY, _LAST_DAY, 1, _ORDINAL_OF_1970
        if unit in _MICROSECONDS:
            scale = _MICROSECONDS[unit]
            return "T", count, _FIRST_DAY * _DAY // scale, (_LAST_DAY + 1) * _DAY // scale - 1, scale, 0
        return _ALWAYS_INTEGER
    if unit in "WD":
        days = (7 if unit == "W" else 1) * count
        return "p", days, -_LONGEST, _LONGEST, _DAY, 0
    if unit in _MICROSECONDS:
        scale = _MICROSECONDS[unit]
        least, most = -_LONGEST * _DAY // scale, (_LONGEST + 1) * _DAY // scale - 1
        return "p", count, max(least, -(1 << 63)), min(most, (1 << 63) - 1), scale, 0
    return _ALWAYS_INTEGER
