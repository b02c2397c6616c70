"""Rows (dicts, tuples, dataclasses) as CSV text, read back equal by `sources.csv` with a schema of their types.

For items what `csv_sink` is for batches, with the same rules for quotes and nulls. Plain rows are left to the kernels
(`plain_rows`), all others are written value by value. Must not know: files.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shmjet.processors.files.plain_rows import written_rows

_MOST_MISSES = 4
"""Lists of rows in succession that were not plain, after which no other is tried."""


class RowEncoder:
    """Turns the rows of one file into text.

    Args:
        delimiter, quote: one character each; None: nothing can be quoted.
        header: write the names of the columns first, where there are any.
        null: stands for None.
        columns: names of the columns, in order; None: those of the first row.

    Example:
        >>> RowEncoder(",", '"', True, "", None).encode([{"a": 1, "b": None}, {"a": 2.5, "b": "x,y"}])
        'a,b\\n1,\\n2.5,"x,y"\\n'
    """

    def __init__(
        self, delimiter: str, quote: str | None, header: bool, null: str, columns: Sequence[str] | None
    ) -> None:
        self._delimiter = delimiter
        self._quote = quote
        self._header = header
        self._null = null
        self._special = re.compile(f"[{re.escape(delimiter + (quote or ''))}\r\n]")
        self._names = None if columns is None else tuple(columns)
        self._width = -1
        self._began = False
        self._misses = 0

    def encode(self, rows: Sequence[Any]) -> str:
        """Return the records of rows, the first time behind the header.

        Raises:
            TypeError, ValueError: a row is none, or has other columns than the first; it is shown.
        """
        header = "" if self._began else self._begin(rows[0])
        self._began = True
        records = self._written(rows)
        if records is not None:
            return header + records
        columns = map(self._column, zip(*map(self._values, rows), strict=True))
        fields = list(map(self._delimiter.join, zip(*columns, strict=True)))
        return f"{header}{_lines(fields)}" if self._width else f"{header}{_lines([''] * len(rows))}"

    def _written(self, rows: Sequence[Any]) -> str | None:
        """Return the records as the kernels for columns write them; None for rows that are not plain enough."""
        if self._misses == _MOST_MISSES:
            return None
        written = written_rows(rows, self._names, self._width, self._delimiter, self._quote, self._null)
        self._misses = self._misses + 1 if written is None else 0
        return written

    def _begin(self, row: Any) -> str:
        if self._names is None:
            self._names = _names_of(row)
        if self._names is None:
            self._width = len(self._values(row))
            return ""
        self._width = len(self._names)
        if not self._header:
            return ""
        return _lines([self._delimiter.join([self._field(name) for name in self._names])])

    def _values(self, row: Any) -> Sequence[Any]:
        names = self._names
        if isinstance(row, Mapping):
            if names is not None and len(row) == self._width:
                try:
                    return [row[name] for name in names]
                except KeyError:
                    pass
            wanted = "tuples came first" if names is None else f"the columns are {list(names)}"
            raise ValueError(f"a row of CSV has other columns than the file: {wanted}, the row is {row!r:.200}")
        if isinstance(row, list | tuple):
            values: Sequence[Any] = row
        elif dataclasses.is_dataclass(row) and not isinstance(row, type):
            values = [getattr(row, field.name) for field in dataclasses.fields(row)]
        else:
            raise TypeError(
                f"a row of CSV must be a dict, a tuple, a dataclass or a Batch, got {type(row).__name__}: {row!r:.200}"
            )
        if self._width >= 0 and len(values) != self._width:
            raise ValueError(f"a row of CSV has {len(values)} values, but the file has {self._width}: {row!r:.200}")
        return values

    def _column(self, values: tuple[Any, ...]) -> Sequence[str]:
        """Return the text of the values of one column; those of one plain type are looked at together."""
        kinds = set(map(type, values))
        if len(kinds) == 1:
            (kind,) = kinds
            strings: Sequence[str] = ()
            if kind in _TEXTS:  # no delimiter or quote can be in a number
                strings = list(map(_TEXTS[kind], values))
            elif kind is str and all(values):
                joined = "".join(values)
                if not self._special.search(joined) and "\ufeff" not in joined:
                    strings = values
            if strings and not (self._null and self._null in strings):
                return strings
        return [self._field(value) for value in values]

    def _field(self, value: Any) -> str:
        if value is None:
            return self._null
        if isinstance(value, str):
            text, plain = value, bool(value) and value != self._null
        else:
            text, plain = _text_of(value), True
            if text == self._null:
                raise ValueError(
                    f"the value {value!r} is written as {text!r}, which stands for None; choose another null"
                )
        if plain and not self._special.search(text) and not text.startswith("\ufeff"):
            return text
        if self._quote is None:
            raise ValueError(f"the value {value!r:.80} cannot be written without quotes")
        return self._quote + text.replace(self._quote, 2 * self._quote) + self._quote


def _names_of(row: Any) -> tuple[str, ...] | None:
    if isinstance(row, Mapping):
        names: tuple[Any, ...] = tuple(row)
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"the columns of CSV have names, got {name!r} in {row!r:.200}")
        return names
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return tuple(row._fields)
    if dataclasses.is_dataclass(row):
        return tuple(field.name for field in dataclasses.fields(row))
    return None


def _lines(records: Sequence[str]) -> str:
    return "\n".join(records) + "\n"


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return _TEXTS.get(type(value), str)(value)


_TEXTS: dict[type, Callable[[Any], str]] = {float: repr, int: str}
