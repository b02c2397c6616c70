"""What rows show of their columns' types, where no schema is given: words of Spark's SQL.

As with Spark's own `createDataFrame`: lists become arrays, dicts maps, tuples and dataclasses structs, and what is
empty or None in one row may show its type in another. Must not know files.
"""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from shmjet.data.column_types import CategoryType, ColumnType, DecimalType, Kind, ListType, StructType, ZonedType
from shmjet.data.errors import ConfigError
from shmjet.data.operators import DATE_UNITS, MONTH_UNITS
from shmjet.spark.back.schemas import SQL, WORDS

_WIDER = {"uint8": "smallint", "uint16": "int", "uint32": "bigint", "uint64": "decimal(20,0)", "float16": "float"}
"""Types that hold all values of what Spark has no type for."""


@dataclass(frozen=True)
class _Shape:
    """What some values show: a word of SQL; or a container, and what is in it.

    Args:
        word: of SQL, or `array`, `map`, `struct`.
        parts: by name: the element, key and value, or the fields; None while unknown.
    """

    word: str
    parts: tuple[tuple[str, _Shape | None], ...] = ()

    def merged(self, other: _Shape) -> _Shape:
        """Return this shape with what only the other one shows; where they differ, this one counts."""
        if self.word != other.word or not self.parts:
            return self
        mine, others = dict(self.parts), dict(other.parts)
        names = [*mine, *(name for name in others if name not in mine)]
        return _Shape(self.word, tuple((name, _merged(mine.get(name), others.get(name))) for name in names))

    def sql(self) -> str | None:
        """Return the type as SQL, None when a part of it is unknown."""
        if not self.parts:
            return self.word
        words = [(name, None if part is None else part.sql()) for name, part in self.parts]
        if any(word is None for _, word in words):
            return None
        if self.word == "struct":
            return f"struct<{', '.join(f'{quoted(name)}: {word}' for name, word in words)}>"
        return f"{self.word}<{', '.join(str(word) for _, word in words)}>"


def quoted(name: str) -> str:
    """Return a name as SQL takes any.

    Example:
        >>> quoted("a b")
        '`a b`'
    """
    return "`" + name.replace("`", "``") + "`"


def fields_of(item: Any) -> dict[str, Any] | None:
    """Return the fields of a row or struct that is not a dict, by name; None for other values.

    Example:
        >>> fields_of((1, "a")), fields_of(5)
        ({'_1': 1, '_2': 'a'}, None)
    """
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return {field.name: getattr(item, field.name) for field in dataclasses.fields(item)}
    if hasattr(item, "__struct_fields__"):
        return {name: getattr(item, name) for name in item.__struct_fields__}
    if isinstance(item, tuple):
        names = getattr(item, "__fields__", None) or getattr(item, "_fields", None)  # Spark's rows, and named tuples
        return dict(zip(names or [f"_{place}" for place in range(1, len(item) + 1)], item, strict=True))
    return None


def word_for(values: Iterable[Any]) -> str | None:
    """Return the SQL type of values: of the first that is not None, or that shows its whole type.

    Returns:
        None when the type, or a part of it, does not show.

    Raises:
        ConfigError: there is no type for a value.

    Example:
        >>> word_for([None, 3]), word_for(["a"]), word_for([None])
        ('bigint', 'string', None)
        >>> word_for([[], [(1, None)], [(2, {"a": 0.5})]])
        'array<struct<`_1`: bigint, `_2`: map<string, double>>>'
    """
    found: _Shape | None = None
    for value in values:
        if value is not None and (found is None or found.parts):
            found = _merged(found, _shape(value))
    return None if found is None else found.sql()


def _merged(one: _Shape | None, other: _Shape | None) -> _Shape | None:
    return one.merged(other) if one is not None and other is not None else one or other


def _all(values: Iterable[Any]) -> _Shape | None:
    return reduce(_merged, map(_shape, values), None)


def _shape_of_kind(kind: Kind) -> _Shape:
    """Return the shape of a column's values."""
    match kind:
        case DecimalType():
            return _Shape(f"decimal({kind.precision},{kind.scale})")
        case ZonedType():
            return _Shape(WORDS["timestamp"])
        case CategoryType():
            return _Shape(WORDS["text"])
        case ListType():
            return _Shape("array", (("element", _shape_of_kind(kind.item)),))
        case StructType():
            return _Shape("struct", tuple((name, _shape_of_kind(each)) for name, each in kind.fields))
        case np.dtype():
            return _Shape(_scalar(np.zeros((), kind)[()]))
    return _Shape(WORDS[str(kind)])


def _shape(value: Any) -> _Shape | None:
    if value is None:
        return None
    if isinstance(value, ColumnType):  # of a batch
        return _shape_of_kind(value)
    if isinstance(value, np.ndarray) and value.ndim:
        element: _Shape | None = _shape(np.zeros((), value.dtype)[()])
        for _ in range(value.ndim):
            element = _Shape("array", (("element", element),))
        return element
    if isinstance(value, list | array.array):
        return _Shape("array", (("element", _all(value)),))
    if isinstance(value, Mapping):
        return _Shape("map", (("key", _all(value)), ("value", _all(value.values()))))
    fields = fields_of(value)
    if fields:
        return _Shape("struct", tuple((name, _shape(part)) for name, part in fields.items()))
    return _Shape(_scalar(value))


def _scalar(value: Any) -> str:
    dtype = str(getattr(value, "dtype", ""))
    if dtype in _WIDER or dtype in SQL:
        return _WIDER.get(dtype) or SQL[dtype]
    unit = np.datetime_data(value.dtype)[0] if dtype.startswith(("datetime64", "timedelta64")) else ""
    if dtype.startswith("datetime64"):
        return "date" if unit in DATE_UNITS else "timestamp"
    if unit and unit not in MONTH_UNITS:
        return WORDS["duration"]
    for kind in () if unit else type(value).__mro__:
        if kind in WORDS:
            return WORDS[kind]
    raise ConfigError(
        f"{value!r:.60} of type {type(value).__name__} has no type in Spark's columns; give a schema, and make such "
        "values text, numbers, dates or bytes first"
    )
