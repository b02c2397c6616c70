"""`RowGatherer`: rows (dicts or tuples) become batches, and each column of a batch is of one kind.

What a column is follows from the values of all rows of its batch: integers among floats are floats, true among integers
is 1, nulls have no kind. Nothing is rounded: where no kind holds all (text and numbers, 2**53 + 1 and 0.5), the batch
ends and another begins, so that no error depends on which rows happen to come together. With a schema each column is of
its kind, and what does not fit is an error. Must not know processors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import numpy as np

from shmjet._native._columns import longest_row, row_values
from shmjet.columns.promotion import converted, is_known, promoted
from shmjet.columns.schemas import Kind, fitted, nulls
from shmjet.data.batch import Batch
from shmjet.data.column import Values, as_column
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical

Column: TypeAlias = tuple[Values, Mask | None]
PlainColumn: TypeAlias = tuple[Physical, Mask | None]

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
        >>> [batch.to_dict() for batch in gatherer.full()], [batch.to_dict() for batch in gatherer.rest()]
        ([{'n': [1, 2], 'name': ['a', 'b']}], [{'n': [3], 'name': [None]}])
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
        self._schema: dict[str, Kind] = dict(schema or {})
        self._are_all = False  # the names are those of the first row, so no row may have others
        self._kinds: dict[str, Kind] = {}  # of the batch before
        self._rows: list[Any] = []  # fewer than are worth converting
        self._pieces: list[dict[str, Column]] = []
        self._gathered = 0
        self._full: list[Batch] = []

    def __len__(self) -> int:
        """Rows that wait for others."""
        return self._gathered + len(self._rows)

    def add(self, rows: list[Any]) -> None:
        """Take rows.

        Raises:
            BatchError: a row lacks a column, a value can be in no column, or does not fit the schema; the text names
                the column.
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

    def rest(self) -> list[Batch]:
        """Return the rows that wait as batches, mostly one; none when there are none. Raises BatchError as `add`."""
        rows, self._rows = self._rows, []
        if rows:
            self._convert(rows)
        if self._gathered:
            self._full.append(self._joined())
        return self.full()

    def _joined(self) -> Batch:
        """Return the pieces as one batch."""
        pieces, self._pieces, self._gathered = self._pieces, [], 0
        columns: dict[str, Values] = {}
        validity: dict[str, Mask] = {}
        for name in pieces[0]:
            parts = [piece[name] for piece in pieces]
            columns[name] = _concatenated(self._of_one_kind(name, parts))
            if any(mask is not None for _, mask in parts):
                masks = [np.ones(len(column), np.bool_) if mask is None else mask for column, mask in parts]
                validity[name] = np.concatenate(masks)
        return Batch(columns, validity)

    def _of_one_kind(self, name: str, parts: Sequence[Column]) -> list[Values]:
        """Return columns as what holds them all, and those of earlier batches too if it can be."""
        before = self._kinds.get(name)
        known = [column.dtype for column, mask in parts if is_known(column, mask)]
        kind = _holding(known)
        if kind is None:
            kind = before or parts[0][0].dtype
        wider = kind if before is None else _holding([kind, before]) or kind
        try:
            made = [converted(name, column, mask, wider) for column, mask in parts]
        except BatchError:
            made = [converted(name, column, mask, kind) for column, mask in parts]
        if known:
            self._kinds[name] = made[0].dtype
        return made

    def _convert(self, rows: list[Any]) -> None:
        """Make columns of some rows; where they do not fit those before, these are a batch."""
        if self._names is None:
            self._names = _names_of(rows[0])
            self._are_all = self._only is None
        longest = longest_row(rows)
        if longest is None:
            rows = _unnamed(rows, self._names)
        if self._are_all and (longest is None or longest > len(self._names)):
            check_no_more_columns(rows, self._names)
        while rows:
            piece, taken = self._piece(rows)
            if self._pieces and not self._fits(piece):
                self._full.append(self._joined())
            self._pieces.append(piece)
            self._gathered += taken
            rows = rows[taken:]
            if rows:
                self._full.append(self._joined())

    def _piece(self, rows: list[Any]) -> tuple[dict[str, Column], int]:
        """Return the columns of the first rows, as many as go into one batch, and their number."""
        try:
            return self._columns_of(rows), len(rows)
        except _Mixed:
            pass
        # Values that do not go together stay so however many more there are: look for the last place where all do.
        good, fitting, failing = self._columns_of(rows[:1]), 1, len(rows)
        while failing - fitting > 1:
            count = min(2 * fitting, (fitting + failing) // 2)
            try:
                good, fitting = self._columns_of(rows[:count]), count
            except _Mixed:
                failing = count
        return good, fitting

    def _columns_of(self, rows: list[Any]) -> dict[str, Column]:
        assert self._names is not None
        slow = _SlowRows(self._names, rows)
        columns: dict[str, Column] = {}
        for place, name in enumerate(self._names):
            if self._only is not None and name not in self._only:
                continue
            column, mask = plain_column(rows, name, place, len(self._names)) or self._column_of(
                name, slow.values(place)
            )
            kind = self._schema.get(name)
            if kind is not None:
                column = fitted(name, column, mask, kind) if mask is None or mask.any() else nulls(kind, len(column))
            columns[name] = column, mask
        return columns

    def _column_of(self, name: str, values: list[Any]) -> Column:
        """Return values that need Python as a column."""
        try:
            return as_column(name, values)
        except BatchError:
            single = [as_column(name, [value]) for value in values]  # what can be in no column is an error by itself
        kind = self._schema.get(name)
        if kind is None:
            raise _Mixed
        valid = np.array([value is not None for value in values], np.bool_)
        fit = [fitted(name, *each, kind) if ok else nulls(kind, 1) for each, ok in zip(single, valid, strict=True)]
        return _concatenated(fit), None if valid.all() else valid

    def _fits(self, piece: dict[str, Column]) -> bool:
        """Tell whether a piece goes into one batch with those before."""
        for name, (column, mask) in piece.items():
            parts = [*(each[name] for each in self._pieces), (column, mask)]
            if all(values.dtype == column.dtype for values, _ in parts):
                continue
            kinds = [values.dtype for values, valid in parts if is_known(values, valid)]
            kind = _holding(kinds)
            if kinds and kind is None:
                return False
            try:
                for values, valid in parts:
                    if kind is not None:
                        converted(name, values, valid, kind)
            except BatchError:
                return False
        return True


class _Mixed(Exception):
    """Values of a column have no kind in common."""


def _holding(kinds: Sequence[Kind]) -> Kind | None:
    """Return what holds values of all kinds so that they stay equal; None for no kinds, and where nothing does.

    Numbers go together. A date that became a time would be another value.
    """
    first: Kind | None = kinds[0] if kinds else None
    for kind in kinds:
        if first is not None and kind != first:
            is_number = (
                isinstance(kind, np.dtype) and isinstance(first, np.dtype) and {kind.kind, first.kind} <= set("biufc")
            )
            first = promoted(first, kind) if is_number else None
    return first


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


def plain_column(rows: list[Any], name: str, place: int, width: int) -> PlainColumn | None:
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
    column: Physical = words[:count]
    if data is not None:
        column = Text.trusted(words, np.frombuffer(data, np.uint8), kind == "y")
    elif kind == "f":
        column = words[:count].view(np.float64)
    elif kind == "b":
        column = words[:count].astype(np.bool_)
    return column, valid if has_nulls else None


def _concatenated(parts: list[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    return Text.concat(parts) if isinstance(parts[0], Text) else np.concatenate(parts)  # type: ignore[arg-type]


def check_no_more_columns(rows: Sequence[Any], names: Collection[str]) -> None:
    """Check that dicts have none but the columns of the first: which row comes first must not decide what is lost.

    Raises:
        BatchError: one has; the text names the column.
    """
    with suppress(TypeError):  # an item without a length is not a row: an error of its own, as a missing column is
        if max(map(len, rows), default=0) <= len(names):
            return
    for row in rows:
        more = [name for name in row if name not in names] if isinstance(row, Mapping) else ()
        if more:
            raise BatchError(
                f"a row has a value for column {more[0]!r}, which the first row lacks: {row!r:.80}; "
                "give all rows the same columns (None is a null), or name the columns that are wanted"
            )


def _unnamed(rows: list[Any], names: tuple[str, ...]) -> list[Any]:
    """Return rows with named tuples that have all columns as plain rows; those of other names go by place."""
    fields = {getattr(kind, "_fields", ()) for kind in set(map(type, rows))}
    if not any(set(names) <= set(each) for each in fields if each):
        return rows
    if len(fields) == 1 and fields.pop() == names:
        return [*map(tuple, rows)]
    return [row._asdict() if set(names) <= set(getattr(row, "_fields", ())) else row for row in rows]


def _names_of(row: Any) -> tuple[str, ...]:
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return tuple(row._fields)
    if not isinstance(row, Mapping):
        raise BatchError(
            f"rows that are not dicts need the names of the columns, got {type(row).__name__} {row!r:.80}; make dicts "
            "or named tuples of them, for to_batches() and for stages of columns, or give columns=[...]"
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
            raise BatchError(
                f"a row has {len(row)} values for {len(names)} columns {list(names)}: {row!r:.80}; make dicts or named "
                "tuples of rows"
            )
        return row
    raise BatchError(f"a row must be a dict or a tuple, got {type(row).__name__} {row!r:.80}")
