"""Gathers rows (dicts or tuples) into batches whose columns keep one dtype from the first batch to the last.

A batch made of a few rows shows what these rows hold: a column of 1, 2, 3 is int64 and would be float64 a batch later.
So the first values that are no nulls decide what a column is, or a schema does, and later values are fitted to it:
widened where nothing is lost (an int among floats), refused where something would be (a float among ints). Must not
know processors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import NoneType
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet._native._columns import row_values
from shmjet.columns.schemas import Kind, fitted, nulls
from shmjet.ring.batch import Batch
from shmjet.ring.column import Values, as_column
from shmjet.ring.errors import BatchError
from shmjet.ring.text import Mask, Text

Column: TypeAlias = tuple[Values, Mask | None]

MOST_AT_ONCE: Final = 8192
"""Rows that become columns at once, so that no step takes long."""

LEAST_AT_ONCE: Final = 512
"""Rows that are worth it. They are not left for a whole batch: while they are fresh they are in the cache."""


class RowGatherer:
    """Takes rows and gives batches of equal columns.

    Args:
        size: rows of a batch, at least 1.
        columns: names of the columns; the order of the values of tuples. None takes those of `schema`, else those of
            the first row, which is a dict then.
        schema: name → kind, for some or all columns (`shmjet.columns.schemas.schema_of`).
        only: the columns that are wanted; None wants all.

    Example:
        >>> gatherer = RowGatherer(2, ["n", "name"])
        >>> gatherer.add([(1, "a"), (2, "b"), (3, None)])
        >>> [batch.to_dict() for batch in gatherer.full()], gatherer.rest().to_dict(), len(gatherer)
        ([{'n': [1, 2], 'name': ['a', 'b']}], {'n': [3], 'name': [None]}, 0)
    """

    def __init__(
        self,
        size: int,
        columns: Sequence[str] | None = None,
        schema: Mapping[str, Kind] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        self._size = size
        self._only = only
        self._names = tuple(columns) if columns is not None else tuple(schema) if schema else None
        self._kinds: dict[str, Kind] = dict(schema or {})
        self._only_nulls: dict[str, int] = {}
        self._rows: list[Any] = []  # fewer than are worth converting
        self._pieces: dict[str, list[Column]] = {}
        self._gathered = 0
        self._full: list[Batch] = []

    def __len__(self) -> int:
        """Rows that wait for others."""
        return self._gathered + len(self._rows)

    def add(self, rows: list[Any]) -> None:
        """Take rows.

        Raises:
            BatchError: a row or a value does not fit; the text names the column.
        """
        rows = self._rows + rows if self._rows else rows
        at = 0
        while True:
            left = self._size - self._gathered
            count = min(MOST_AT_ONCE, left, len(rows) - at)
            if count < min(LEAST_AT_ONCE, left):
                break
            self._convert(rows[at : at + count] if at or count < len(rows) else rows)
            at += count
            if self._gathered == self._size:
                self._full.append(self._joined())
        self._rows = rows[at:]

    def full(self) -> list[Batch]:
        """Return the batches that have become full since the last call."""
        full, self._full = self._full, []
        return full

    def rest(self) -> Batch:
        """Return the rows that wait as a batch; there is at least one.

        Raises:
            BatchError: as `add`.
        """
        rows, self._rows = self._rows, []
        if rows:
            self._convert(rows)
        return self._joined()

    def _joined(self) -> Batch:
        """Return the pieces as one batch."""
        pieces, self._pieces, self._gathered = self._pieces, {}, 0
        columns: dict[str, Values] = {}
        validity: dict[str, Mask] = {}
        for name, parts in pieces.items():
            columns[name] = _concatenated([column for column, _ in parts])
            if any(mask is not None for _, mask in parts):
                masks = [np.ones(len(column), np.bool_) if mask is None else mask for column, mask in parts]
                validity[name] = np.concatenate(masks)
        return Batch(columns, validity)

    def _convert(self, rows: list[Any]) -> None:
        """Make columns of some rows."""
        if self._names is None:
            self._names = _names_of(rows[0])
        slow = _SlowRows(self._names, rows)
        for place, name in enumerate(self._names):
            if self._only is not None and name not in self._only:
                continue
            column, mask = plain_column(rows, name, place, len(self._names)) or column_of(name, slow.values(place))
            self._pieces.setdefault(name, []).append((self._fitted(name, column, mask), mask))
        self._gathered += len(rows)

    def _fitted(self, name: str, column: Values, mask: Mask | None) -> Values:
        """Return a column as what its name stands for, which the first column of the name decides."""
        kind = self._kinds.get(name)
        if kind is not None:
            if mask is not None and not mask.any():
                return nulls(kind, len(column))
            seen = self._only_nulls.get(name)
            note = "" if seen is None else f"; all of the first {seen} rows were null, which says nothing of the type"
            return fitted(name, column, mask, kind, note)
        self._kinds[name] = column.dtype
        if mask is not None and not mask.any():
            self._only_nulls[name] = len(column)
        return column


class _SlowRows:
    """Rows of any kind, made tuples when that is first needed."""

    def __init__(self, names: tuple[str, ...], rows: list[Any]) -> None:
        self._names = names
        self._rows = rows
        self._tuples: list[Sequence[Any]] | None = None

    def values(self, place: int) -> list[Any]:
        """Return the values of a column. Raises BatchError when a row is none, lacks a column or has another length."""
        if self._tuples is None:
            self._tuples = [_row(self._names, row) for row in self._rows]
        return [row[place] for row in self._tuples]


def plain_column(rows: list[Any], name: str, place: int, width: int) -> Column | None:
    """Return a column of rows whose values are of one exact builtin type or None, at the speed of C.

    Args:
        rows: dicts, or tuples of `width` values.
        name: of the value in dicts.
        place: of the value in tuples.

    Returns:
        None when rows or values are not like that, or all are None.
    """
    count = len(rows)
    words, valid = np.empty(count + 1, np.int64), np.empty(count, np.bool_)
    found = row_values(rows, name if rows and type(rows[0]) is dict else place, width, words, valid)
    if found is None:
        return None
    kind, has_nulls, data = found
    column: Values = words[:count]
    if data is not None:
        column = Text.trusted(words, np.frombuffer(data, np.uint8), kind == "y")
    elif kind == "f":
        column = words[:count].view(np.float64)
    elif kind == "b":
        column = words[:count].astype(np.bool_)
    return column, valid if has_nulls else None


def column_of(name: str, values: list[Any]) -> Column:
    """Return a list of values as a column and its mask, as `Batch` makes it; integers never become floats.

    Raises:
        BatchError: the values have no common kind; the text names the column.
    """
    kinds = set(map(type, values))
    if int in kinds and kinds <= {int, NoneType}:
        numbers = [value for value in values if value is not None]
        least, most = min(numbers), max(numbers)
        if least < -(1 << 63) or most >= (1 << 64 if least >= 0 else 1 << 63):
            raise BatchError(
                f"column {name!r} has integers from {least} to {most}, which no type of 64 bits holds; "
                "send floats or text"
            )
    return as_column(name, values)


def _concatenated(parts: list[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    return Text.concat(parts) if isinstance(parts[0], Text) else np.concatenate(parts)  # type: ignore[arg-type]


def _names_of(row: Any) -> tuple[str, ...]:
    if not isinstance(row, Mapping):
        raise BatchError(
            f"the names of the columns are needed for rows that are no dicts, got {type(row).__name__} {row!r:.80}; "
            "give columns=[...]"
        )
    return tuple(row)


def _row(names: Sequence[str], row: Any) -> Sequence[Any]:
    """Return one row of any kind as its values in order."""
    if isinstance(row, Mapping):
        for name in names:
            if name not in row:
                raise BatchError(f"a row has no value for column {name!r}: {row!r:.80}")
        return [row[name] for name in names]
    if isinstance(row, Sequence) and not isinstance(row, str | bytes | bytearray):
        if len(row) != len(names):
            raise BatchError(f"a row has {len(row)} values for {len(names)} columns {list(names)}: {row!r:.80}")
        return row
    raise BatchError(f"a row must be a dict or a tuple, got {type(row).__name__} {row!r:.80}")
