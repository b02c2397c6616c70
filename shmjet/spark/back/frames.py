"""`to_dataframe`: what is in a map or a list as a DataFrame.

The rows are written into column files once, and Spark reads these as often as it likes: its tasks may be done again,
and the instance may end, without anything being asked twice.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from shmjet.cluster.folder import InstanceFolder
from shmjet.data.batch import Batch
from shmjet.data.errors import ConfigError
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from shmjet.grid import IMap
from shmjet.spark.back.areas import new_area
from shmjet.spark.back.files import ColumnFile, file_name
from shmjet.spark.back.rows import of_entry
from shmjet.spark.back.schemas import columns_of, struct_of
from shmjet.spark.back.type_inference import fields_of, word_for

LOOKED_AT = 1000
"""Rows from which a schema is made where none is given."""

_AT_ONCE = 4096
_lock = threading.Lock()
_areas: list[InstanceFolder] = []


def to_dataframe(
    spark: Any, map_or_list: Any, schema: Any = None, *, folder: str | os.PathLike[str] | None = None
) -> Any:
    """Return what is in a map, a list or any iterable as a DataFrame.

    An entry of a map is a row of its key and its value, or of the key and what the value is made of, when that is a
    tuple, a dict or a dataclass. An item of a list is a row: a dict, a tuple, a dataclass, a single value, or a `Batch`
    of rows. Inside rows, lists are arrays, dicts maps, tuples and dataclasses structs. What comes later into the map or
    list is not in the DataFrame.

    The rows lie in column files, in shared memory where there is room, until `free_dataframes` or the end of this
    process.

    Args:
        spark: a `SparkSession`.
        map_or_list: an `IMap`, an `IList`, or another mapping or iterable.
        schema: a `StructType`, DDL (`"word string, n bigint"`) or a dict of names and types; None: what the first
            1,000 rows show, columns without names being `key`, `value`, `value_1` ... of a map, `_1`, `_2` ... of
            tuples.
        folder: a folder shared by all hosts, for the files, when Spark's executors run on other hosts.

    Raises:
        BatchError: a value does not fit its column; the text names column, value and partition.
        ConfigError: the schema is none, or cannot be made of the rows.

    Example:
        >>> df = to_dataframe(spark, jet.get_map("counts"), "word string, n bigint")      # doctest: +SKIP
        >>> df.orderBy("n").show()                                                        # doctest: +SKIP
    """
    struct, rows = _struct_and_rows(spark, map_or_list, schema)
    area = new_area(spark, folder)
    try:
        _write(rows, struct, area)
    except OSError as error:
        if error.errno != errno.ENOSPC or folder is not None or isinstance(map_or_list, Iterator):
            raise
        area = new_area(spark, tempfile.gettempdir())  # shared memory is full
        _write(_struct_and_rows(spark, map_or_list, struct)[1], struct, area)
    with _lock:
        _areas.append(area)
    return spark.read.schema(struct).parquet(str(area.path / "*.parquet"))


def _write(rows: Iterable[Any], struct: Any, area: InstanceFolder) -> None:
    """Write rows into the file of an area, which is removed when that fails."""
    try:
        file = ColumnFile(os.path.join(area.path, file_name("", 0, "0")), columns_of(struct), 0)
        with contextlib.closing(file):
            flow = iter(rows)
            while some := list(islice(flow, _AT_ONCE)):
                file.add(some)
            file.finish()
    except BaseException:
        area.remove()
        raise


def free_dataframes() -> None:
    """Remove the files behind all DataFrames that `to_dataframe` has made in this process; they cannot be read then."""
    with _lock:
        areas, _areas[:] = list(_areas), []
    for area in areas:
        area.remove()


def _struct_and_rows(spark: Any, given: Any, schema: Any) -> tuple[Any, Iterable[Any]]:
    """Return the Spark schema, and the rows."""
    if isinstance(given, IMap | Mapping):
        entries: Iterable[Any] = given.items()
        if schema is None:
            first, entries = _first(entries)
            schema = _inferred([_flat(entry) for entry in first])
        struct = struct_of(spark, schema)
        return struct, map(of_entry(columns_of(struct)), entries)
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"to_dataframe: expected a map, a list or rows, got {type(given).__name__}: {given!r:.80}")
    items: Iterable[Any] = given
    if schema is None:
        first, items = _first(items)
        schema = _inferred([_named(item) for item in first])
    return struct_of(spark, schema), items


def _first(items: Iterable[Any]) -> tuple[list[Any], Iterator[Any]]:
    flow = iter(items)
    first = list(islice(flow, LOOKED_AT))
    return first, chain(first, flow)


def _flat(entry: tuple[Any, Any]) -> dict[str, Any]:
    """Return an entry of a map as a row with names."""
    key, value = entry
    named = {"value": value} if isinstance(value, list) else _named(value)
    return {"key": key, **{f"value{name}" if name.startswith("_") else name: each for name, each in named.items()}}


def _named(item: Any) -> dict[str, Any]:
    """Return an item as a row with names; of a batch, the first row that shows all types."""
    if isinstance(item, Batch):
        return {name: _sample(column) for name, column in item.parts()[0].items()}
    if isinstance(item, Mapping):
        return dict(item)
    return fields_of(tuple(item) if isinstance(item, list) else item) or {"value": item}


def _sample(column: Any) -> Any:
    if isinstance(column, TypedColumn):
        return column.dtype
    if isinstance(column, Text):
        return b"" if column.is_bytes else ""
    return np.zeros((), column.dtype)[()]


def _inferred(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return names and SQL types of rows."""
    if not rows:
        raise ConfigError(
            "to_dataframe: there are no rows to make a schema of; give one, such as 'word string, n bigint'"
        )
    schema = {}
    for name in rows[0]:
        word = word_for(row.get(name) for row in rows)
        if word is None:
            raise ConfigError(
                f"to_dataframe: column {name!r} is None in the first {len(rows)} rows, or what is in it is empty or "
                "None; give a schema"
            )
        schema[name] = word
    return schema
