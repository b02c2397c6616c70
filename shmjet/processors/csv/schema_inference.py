"""Inference of the schema of a CSV file from its beginning: a convenience; give a schema for anything that lasts.

Each column gets the first type of a list that all its values in the sample have, as the kernel itself reads them; so a
type is never guessed that the sample does not have. A later value that does not fit is an error like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from shmjet._native._columns import csv_parse, csv_split
from shmjet.data.errors import BatchError
from shmjet.processors.columns.column_memory import ColumnsMemory
from shmjet.processors.csv.batch_reader import BOM, Layout, read_layout
from shmjet.processors.csv.csv_format import CsvFormat, column_type
from shmjet.processors.csv.parse_errors import BAD_TEXT, TOO_LARGE
from shmjet.processors.files.file_window import FileWindow

SAMPLE_ROWS: Final = 1000
"""Records that are looked at, at most."""

SAMPLE_BYTES: Final = 1 << 20
"""Bytes that are looked at, at most."""

CANDIDATES: Final = (
    *("int64", "float64", "bool", "datetime64[D]", "datetime64[s]", "datetime64[ms]", "datetime64[us]"),
    *("datetime64[ns]", "text"),
)
"""Types in the order in which they are tried; an integer that is too large for the first makes a column text."""

_BAD = 4


def infer_schema(files: Iterable[tuple[str, int]], csv: CsvFormat) -> CsvFormat:
    """Return the format with a schema made from the first file that is not empty; as it is where all are.

    A file with nothing but a byte order mark is empty.

    Args:
        files: (path, size in bytes).
        csv: a format without a schema.

    Raises:
        BatchError: no file has a record, though some have blank lines; the header has a name twice or lacks a column
            that is to be read.
    """
    window = FileWindow(SAMPLE_BYTES)
    are_empty = True
    try:
        for path, size in files:
            if size:
                window.open(path, size)
                if size == len(BOM) and _after_mark(window, csv) == size:
                    continue
                are_empty = False
                layout = _layout(window, path, csv)
                if layout.names:
                    return _with_schema(csv, layout, _types(window, layout, csv), path)
    finally:
        window.close()
    if are_empty:
        return csv
    raise BatchError("there is no CSV file with a header to infer a schema from; give schema={name: type, ...}")


def _after_mark(window: FileWindow, csv: CsvFormat) -> int:
    """Return where the first record of a file begins: after a byte order mark, if there is one."""
    size, _ = window.fill(0)
    return len(BOM) if csv.encoding == "utf-8" and size >= len(BOM) and window.buffer.startswith(BOM) else 0


def _layout(window: FileWindow, path: str, csv: CsvFormat) -> Layout:
    if csv.header:
        return read_layout(window, path, replace(csv, columns=csv.columns or ()), csv.columns or ())
    size, at_end = window.fill(0)
    start = _after_mark(window, csv)
    found = csv_split(window.buffer, start, size, csv.delimiter, csv.quote, at_end)
    if found is None:
        raise BatchError(f"{path}, line 1: a record of more than {SAMPLE_BYTES >> 20} MiB to infer a schema from")
    return Layout([f"column_{place}" for place in range(1, len(found[0]) + 1)], start, ())


def _with_schema(csv: CsvFormat, layout: Layout, types: list[str | None], path: str) -> CsvFormat:
    for place, name in enumerate(layout.names):
        is_wanted = csv.columns is None or name in csv.columns
        if is_wanted and (not name or name in layout.names[:place]):
            what = "an empty name" if not name else f"the column {name!r} more than once"
            raise BatchError(
                f"{path}, line 1: the header has {what}; without a schema each column that is read needs a name of its "
                "own; choose others with columns=[...]"
            )
    found = {name: type_ for name, type_ in zip(layout.names, types, strict=True) if name}
    schema = {name: type_ or CANDIDATES[-1] for name, type_ in found.items()}
    for name in csv.columns or ():
        if name not in schema:
            raise BatchError(f"columns names {name!r}, which {path} does not have; it has {list(schema)}")
    return replace(csv, schema=schema, untyped=frozenset(name for name, type_ in found.items() if type_ is None))


def _types(window: FileWindow, layout: Layout, csv: CsvFormat) -> list[str | None]:
    """Return the type of each field: try, and go on to the next type of the field that was refused.

    It is None where there is no value.
    """
    size, at_end = window.fill(0)
    places = tuple(map(str, range(len(layout.names))))
    chosen = [0] * len(places)
    while True:
        types = {name: column_type(name, CANDIDATES[at]) for name, at in zip(places, chosen, strict=True)}
        memory = ColumnsMemory(types, SAMPLE_ROWS, csv.encoding, "replace")
        at = layout.start
        while True:
            status, at, memory.rows, _, bad = csv_parse(
                *(window.buffer, at, size, csv.delimiter, csv.quote, at_end, size, memory.descriptors(places)),
                *(csv.nulls, csv.allowed, True, memory.rows, SAMPLE_ROWS),
            )
            _, field, _, begin, end, reason = bad
            if status == 3:
                memory.grow(places[field], end - begin)
            elif status != _BAD or reason < BAD_TEXT:
                break
        if status != _BAD:
            break
        chosen[field] = len(CANDIDATES) - 1 if reason == TOO_LARGE and chosen[field] == 0 else chosen[field] + 1
    batch = memory.take()
    masks = [batch.validity(name) for name in places]
    has_values = [batch.num_rows > 0 and (mask is None or bool(mask.any())) for mask in masks]
    return [CANDIDATES[at] if there else None for at, there in zip(chosen, has_values, strict=True)]
