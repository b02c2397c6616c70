"""Items as rows: dicts, tuples, dataclasses, named tuples, single values, entries of maps, and batches of columns.

Must not know types of columns, nested ones apart, or files.
"""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.spark.back.schemas import Column

CONTAINERS: dict[str, tuple[type, ...]] = {
    "list": (list, tuple, array.array, np.ndarray),
    "map": (Mapping,),
    "struct": (tuple, list, Mapping),
}
"""What the values of nested columns are; those of structs may be dataclasses as well."""

Rows = list[Any]
"""Rows that are all dicts, or all tuples."""


def uniform(items: Sequence[Any], names: Sequence[str]) -> Iterator[Rows | Batch]:
    """Return items as lists of rows of one form, in order.

    Args:
        items: rows of any form.
        names: of the columns; a row that is not a container is the value of the only column.

    Raises:
        BatchError: an item is not a row of these columns; the text shows it.

    Example:
        >>> list(uniform([{"a": 1}, {"a": 2}, (3,), 4], ["a"]))
        [[{'a': 1}, {'a': 2}], [(3,), (4,)]]
    """
    for form, some in groupby(items, _form):
        if form is Batch:
            yield from some
        elif form is dict:
            rows = list(some)
            for row in rows:
                _check_names(row, names)
            yield [row if type(row) is dict else dict(row) for row in rows]
        else:
            convert = tuples(names)
            yield [row if type(row) is tuple and len(row) == len(names) else convert(row) for row in some]


def _form(item: Any) -> type:
    kind = type(item)
    if kind is tuple:
        return tuple
    if kind is dict or isinstance(item, Mapping):
        return dict
    return Batch if kind is Batch else tuple


def _check_names(row: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if name not in row:
            raise BatchError(f"column {name!r}: a row has no value for it: {row!r:.80}")


def tuples(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that makes a tuple of values from a row that is not a mapping."""
    values_of = attrgetter(*names) if len(names) > 1 else None

    def convert(row: Any) -> tuple[Any, ...]:
        if isinstance(row, tuple | list):
            if len(row) != len(names):
                raise BatchError(f"a row has {len(row)} values for the columns {list(names)}: {row!r:.80}")
            return tuple(row)
        if dataclasses.is_dataclass(row) or hasattr(row, "__struct_fields__"):
            try:
                return values_of(row) if values_of is not None else (getattr(row, names[0]),)
            except AttributeError as error:
                raise BatchError(f"a row has no value for a column: {error}: {row!r:.80}") from None
        if len(names) == 1:
            return (row,)
        raise BatchError(
            f"a row of the columns {list(names)} is a dict, a tuple, a dataclass or a Batch, got "
            f"{type(row).__name__}: {row!r:.80}"
        )

    return convert


def of_entry(columns: Sequence[Column]) -> Callable[[tuple[Any, Any]], Any]:
    """Return a function that makes a row of an entry of a map: the key, then the value or what the value is made of.

    Example:
        >>> to_row = of_entry([Column("user", "int64"), Column("n", "int64"), Column("day", "text")])
        >>> to_row((7, {"day": "Mon", "n": 1})), to_row((7, (1, "Mon")))
        ((7, 1, 'Mon'), (7, 1, 'Mon'))
        >>> of_entry([Column("word", "text"), Column("n", "int64")])(("a", 2))
        ('a', 2)
        >>> of_entry([Column("word", "text"), Column("at", "list")])(("a", [2, 5]))
        ('a', [2, 5])
    """
    rest = tuple(column.name for column in columns[1:])
    whole = CONTAINERS.get(columns[1].kind) if len(rest) == 1 else None
    values_of = tuples(rest) if rest else None

    def convert(entry: tuple[Any, Any]) -> Any:
        key, value = entry
        if values_of is None:
            return (key,)
        if whole is not None:
            return key, _unwrapped(value, rest[0], whole)
        if isinstance(value, Mapping):
            _check_names(value, rest)
            return (key, *(value[name] for name in rest))
        return (key, *values_of(value))

    return convert


def _unwrapped(value: Any, name: str, whole: tuple[type, ...]) -> Any:
    """Return what goes into the only column for values: it may come by itself, or as a row of one value."""
    inner: Any = value
    if isinstance(value, Mapping) and list(value) == [name]:
        inner = value[name]
    elif isinstance(value, tuple) and len(value) == 1:
        inner = value[0]
    return inner if inner is None or isinstance(inner, whole) or dataclasses.is_dataclass(inner) else value
