"""Joins batches by key columns: one side is kept in a hash table, the other streams past it.

The table is `shmjet/_native/join.h`; here rows that match become batches. Must not know processors. Every method that
gives batches gives them in steps of bounded size, however many rows have the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from shmjet._native import _columns
from shmjet.columns.join_keys import Kinds, On, check_families, key_columns, key_names
from shmjet.columns.piling import Pile
from shmjet.columns.schemas import nulls, schema_of
from shmjet.columns.taking import Rows, take_rows, take_rows_or_nulls
from shmjet.ring.batch import Batch, stored_column
from shmjet.ring.errors import BatchError
from shmjet.ring.text import Mask

ADDED_ROWS: Final = 8192
"""Rows that are put into the table in a call of it: well under a millisecond."""

STEP_ROWS: Final = 1 << 16
"""Rows of a batch that a join gives, at most."""


class HashJoin:
    """A table of the rows of one side, the build side, by their key columns.

    Keys are equal as in Python: numbers by value (`1 == 1.0 == True`), dates (units from years to days) and times
    (hours to microseconds) whatever their unit; text never equals bytes, nor a date a time. Nulls and NaN equal
    nothing. The results have the probe side's columns and then those of the build side that are no keys.

    Args:
        build: a batch or several of the same columns. More may be added with `add` before the first join.
        on: the key columns: a name, several names, or a dict from names of the probe side to names of the build side.
        suffix: is put behind the name of a build column that the probe side has too; without one that is an error.
        schema: name → type of the build side's columns, as for `schema_of`; needed only if there may be no batch at
            all and `left` has to give its columns nevertheless.

    Raises:
        BatchError: a key column does not exist or cannot be a key, or the batches differ.

    Example:
        >>> cities = Batch({"city": ["Rome", "Oslo"], "country": ["it", "no"]})
        >>> join = HashJoin(cities, on="city")
        >>> visits = Batch({"city": ["Oslo", "Bonn"], "n": [1, 2]})
        >>> [batch.to_dict() for batch in join.left(visits)]
        [{'city': ['Oslo', 'Bonn'], 'n': [1, 2], 'country': ['no', None]}]
    """

    def __init__(
        self,
        build: Batch | Iterable[Batch] = (),
        *,
        on: On,
        suffix: str | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        self._probe_names, self._build_names = key_names(on)
        self._suffix = suffix
        self._table = _columns.JoinTable()
        self._pile = Pile()
        self._settled = False
        self._schema: Kinds | None = None
        self._checked: tuple[Kinds, dict[str, str]] | None = None
        self._out: tuple[Rows, Rows] | None = None
        if schema is not None:
            self.add(_empty(schema))
        for batch in (build,) if isinstance(build, Batch) else build:
            self.add(batch)

    @property
    def num_rows(self) -> int:
        """Rows of the build side."""
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of the table, without the batches."""
        return self._table.nbytes

    def add(self, batch: Batch) -> None:
        """Add rows to the build side.

        Raises:
            BatchError: its columns differ from those before, or a join has begun.
        """
        if self._settled:
            raise BatchError("a HashJoin takes no more rows once a join has begun; add all of the build side before")
        if self._schema is None:
            self._schema = batch.schema
        elif list(self._schema.items()) != list(batch.schema.items()):
            raise BatchError(f"the build side's batches differ in their columns: {self._schema} and {batch.schema}")
        for at in range(0, batch.num_rows, ADDED_ROWS):
            piece = batch[at : at + ADDED_ROWS]
            self._table.add(key_columns(piece, self._build_names))
        if not batch.num_rows:
            key_columns(batch, self._build_names)  # checks the names
        self._pile.add(batch.select(*(name for name in batch.names if name not in self._build_names)))

    def settle(self, nbytes: int) -> bool:
        """Get ready for joins, doing about `nbytes` bytes of the work; True when ready. A join does it all at once."""
        self._settled = True
        return self._pile.join(nbytes)

    def inner(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """Give the rows of `batch` with each row of the build side that has the same key.

        Args:
            batch: the probe side.
            rows: of a result, at most.

        Yields:
            Batches with rows in the order of `batch`, and for each of its rows in the order of the build side.

        Raises:
            BatchError: a key column does not exist or is of another kind, or both sides have a column of a name.
        """
        return self._joined(batch, False, rows)

    def left(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """As `inner`, but a row of `batch` without a match is there once, with nulls for the build side's columns."""
        return self._joined(batch, True, rows)

    def semi(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """Give the rows of `batch` whose key the build side has, each once, in batches of at most `rows`."""
        return self._filtered(batch, True, rows)

    def anti(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """Give the rows of `batch` whose key the build side does not have, in batches of at most `rows`."""
        return self._filtered(batch, False, rows)

    def contains(self, batch: Batch) -> Mask:
        """Return for each row of `batch` whether the build side has its key.

        Raises:
            BatchError: a key column does not exist or is of another kind than the build side's.
        """
        mask = np.zeros(batch.num_rows, np.bool_)
        self._check(batch)
        if self._schema is not None:
            self._table.contains(self._keys(batch), mask)
        return mask

    def _keys(self, batch: Batch) -> list[_columns.Column]:
        assert self._schema is not None
        return key_columns(batch, self._probe_names, [self._schema[name] for name in self._build_names])

    def _check(self, batch: Batch) -> dict[str, str]:
        """Return the names that the build side's columns get beside those of `batch`."""
        if self._checked is not None and self._checked[0] == batch.schema:
            return self._checked[1]
        for name in self._probe_names:
            stored_column(batch, name)
        names: dict[str, str] = {}
        if self._schema is not None:
            check_families(batch.schema, self._probe_names, self._schema, self._build_names)
            for name in self._schema:
                if name not in self._build_names:
                    names[name] = self._name(name, {*batch.names, *names.values()})
        self._checked = batch.schema, names
        return names

    def _name(self, name: str, taken: set[str]) -> str:
        if name not in taken:
            return name
        if self._suffix is None:
            raise BatchError(f"both sides of the join have a column {name!r}; rename one, or give suffix='_right'")
        if name + self._suffix in taken:
            raise BatchError(
                f"both sides of the join have a column {name!r}, and {name + self._suffix!r} exists too; "
                f"give another suffix than {self._suffix!r}"
            )
        return name + self._suffix

    def _joined(self, batch: Batch, outer: bool, rows: int) -> Iterator[Batch]:
        if not self._settled or self._pile.parts:
            while not self.settle(1 << 30):
                pass
        for at in range(0, batch.num_rows, STEP_ROWS):
            piece = batch[at : at + STEP_ROWS] if batch.num_rows > STEP_ROWS else batch
            names = self._check(piece)
            if self._schema is None:
                if outer:
                    yield from (piece[start : start + rows] for start in range(0, piece.num_rows, rows))
                continue
            keys = self._keys(piece)
            row, link = 0, -1
            while row < piece.num_rows:
                probe, build = self._buffers(rows)
                count, row, link = self._table.probe(keys, row, link, outer, probe[:rows], build[:rows])
                if count:
                    yield self._together(piece, probe[:count], build[:count], names, outer)

    def _together(self, batch: Batch, probe: Rows, build: Rows, names: dict[str, str], outer: bool) -> Batch:
        # Often every row has exactly one match: then they need not be copied.
        whole = len(probe) == batch.num_rows and bool((probe == np.arange(len(probe))).all())
        left = batch if whole else take_rows(batch, probe)
        right = take_rows_or_nulls(self._pile.batch, build) if outer else take_rows(self._pile.batch, build)
        columns, masks = left.parts()
        values, valid = right.parts()
        columns = columns | {names[name]: column for name, column in values.items()}
        masks = masks | {names[name]: mask for name, mask in valid.items()}
        return Batch.trusted(columns, masks, len(probe))

    def _filtered(self, batch: Batch, wanted: bool, rows: int) -> Iterator[Batch]:
        for at in range(0, batch.num_rows, rows):
            piece = batch[at : at + rows] if batch.num_rows > rows else batch
            chosen = np.flatnonzero(self.contains(piece) == wanted)
            if len(chosen) == piece.num_rows:
                yield piece
            elif len(chosen):
                yield take_rows(piece, chosen)

    def _buffers(self, rows: int) -> tuple[Rows, Rows]:
        if self._out is None or len(self._out[0]) < rows:
            self._out = np.empty(rows, np.int64), np.empty(rows, np.int64)
        return self._out


def _empty(schema: Mapping[str, Any]) -> Batch:
    return Batch({name: nulls(kind, 0) for name, kind in schema_of(schema).items()})
