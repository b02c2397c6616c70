"""`HashJoin`: a join of batches by key columns. One side is kept in a hash table, the other streams past it.

The table is `shmjet/_native/columns/join.h`; here rows that match become batches. Must not know processors. Every
method that gives batches gives them in steps of bounded size, however many rows have the same key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import numpy as np

from shmjet._native import _columns
from shmjet.columns.batch_builder import BatchBuilder
from shmjet.columns.join_keys import Kinds, On, check_families, key_columns, key_names
from shmjet.columns.join_matches import BuildMatches
from shmjet.columns.promotion import check_same_names, is_known
from shmjet.columns.schemas import UNTYPED, Kind, fitted, nulls, schema_of
from shmjet.columns.stream_kinds import StreamKinds
from shmjet.columns.take import Rows, take_rows, take_rows_or_nulls
from shmjet.data.batch import Batch, any_column
from shmjet.data.errors import BatchError
from shmjet.data.schema_heads import known_columns
from shmjet.data.text import Mask

ADDED_ROWS: Final = 8192
"""Rows that are put into the table in a call of it: well under a millisecond."""

STEP_ROWS: Final = 1 << 16
"""Rows of a batch that a join gives, at most."""


class HashJoin:
    """A table of the rows of one side, the build side, by their key columns.

    Keys are equal as in Python: numbers by value (`1 == 1.0 == True`), dates (units from years to days) and times
    (hours to microseconds) whatever their unit; text never equals bytes, nor a date a time. Nulls and NaN equal
    nothing. The results have the probe side's columns and then the columns of the build side other than its keys.

    Args:
        build: a batch or several of the same columns, in any order. More may be added with `add` before the first join.
        on: the key columns: a name, several names, or a dict from names of the probe side to names of the build side.
        suffix: is appended to the name of a build column that the probe side has too, which is an error by default.
        schema: name → type of the build side's columns, as for `schema_of`; needed only if there may be no batch at
            all and `left` has to give its columns nevertheless.
        keeps_keys: keep the build side's key columns, which only `rows` needs.
        probe_schema: as `schema`, for the probe side's columns; needed only for `unmatched`, if there may be no batch
            of that side at all.
        notes_matches: note which rows of the build side have met rows of the other one. `right`, `outer` and
            `unmatched` need it.

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
        keeps_keys: bool = False,
        probe_schema: Mapping[str, Any] | None = None,
        notes_matches: bool = False,
    ) -> None:
        self._keeps_keys = keeps_keys or notes_matches
        self._payload = Batch({})
        self._probe_names, self._build_names = key_names(on)
        self._suffix = suffix
        self._table = _columns.JoinTable()
        self._builder = BatchBuilder()
        self._parts: list[Batch] = []
        self._row_count = 0
        self._begun = self._is_built = False
        self._surveyed = 0
        self._kinds = StreamKinds(self._build_names)
        self._given = None if schema is None else schema_of(schema)
        self._checked: tuple[Kinds, frozenset[str]] | None = None
        self._named: tuple[tuple[str, ...], dict[str, str]] | None = None
        self._out: tuple[Rows, Rows] | None = None
        self._matches: BuildMatches | None = None
        self._sought: frozenset[str] = frozenset()
        if notes_matches:
            self._matches = BuildMatches(self._probe_names, self._build_names, probe_schema)
        if self._given is not None:
            self.add(_empty(self._given))
        for batch in (build,) if isinstance(build, Batch) else build:
            self.add(batch)

    @property
    def notes_matches(self) -> bool:
        """Whether it notes which rows of the build side have met others."""
        return self._matches is not None

    def seek(self, names: Iterable[str]) -> None:
        """Say which columns are read of results: of a side that has had no batch at all they are nulls of no type."""
        self._sought = frozenset(names)

    @property
    def num_rows(self) -> int:
        """Rows of the build side."""
        return self._row_count

    @property
    def nbytes(self) -> int:
        """Bytes of the table, without the batches."""
        return self._table.nbytes

    def add(self, batch: Batch) -> None:
        """Add rows to the build side. Dtypes may differ from batch to batch; results have dtypes that hold all values.

        Raises:
            BatchError: it has other columns than those before or than the schema, or a join has begun.
        """
        if self._begun:
            raise BatchError("a HashJoin takes no more rows once a join has begun; add all of the build side before")
        matched = None
        if self._matches is not None:
            batch, matched = self._matches.taken_off(batch)
        if self._given is not None:
            check_same_names(self._given, batch.schema)
            columns, masks = batch.parts()
            made = {
                name: fitted(name, columns[name], masks.get(name), kind)
                if is_known(columns[name], masks.get(name))
                else nulls(kind, batch.num_rows)
                for name, kind in self._given.items()
            }
            known = {name: masks[name] for name in made if name in masks} if batch.num_rows else _all_known(made)
            batch = Batch.trusted(made, known, batch.num_rows)
        key_columns(batch[:0], self._build_names)  # checks names and dtypes
        self._kinds.add(batch)
        self._row_count += batch.num_rows
        if self._matches is not None:
            self._matches.add(matched, batch.num_rows)
            self._parts.append(batch)
            return
        # A null equals nothing: of rows whose key is null all through, nothing but the columns is of interest.
        unknown = set(self._build_names) - known_columns(batch)
        self._parts.append(batch[:0] if unknown else batch)

    def build(self, nbytes: int) -> bool:
        """Get ready for joins, doing about `nbytes` bytes of the work; True when ready. A join does it all at once."""
        if not self._begun:
            self._begun = True
            self._parts.reverse()
        is_matchable = self._kinds.known.issuperset(self._build_names)
        while is_matchable and self._surveyed < len(self._parts) and nbytes > 0:
            keys = self._kinds.of(self._parts[self._surveyed]).select(*self._build_names)
            nbytes -= max(keys.nbytes, 1)
            for at in range(0, keys.num_rows, STEP_ROWS):
                self._table.survey(key_columns(keys[at : at + STEP_ROWS], self._build_names))
            self._surveyed += 1
        while self._parts and nbytes > 0:
            batch = self._kinds.of(self._parts.pop())
            nbytes -= max(batch.nbytes, 1)
            for at in range(0, batch.num_rows if is_matchable else 0, ADDED_ROWS):
                self._table.add(key_columns(batch[at : at + ADDED_ROWS], self._build_names))
            self._builder.add(batch if self._keeps_keys else self._without_keys(batch))
        self._is_built = not self._parts and nbytes > 0 and self._builder.join(nbytes)
        if self._is_built:
            self._payload = self._without_keys(self._builder.batch) if self._keeps_keys else self._builder.batch
        return self._is_built

    def _without_keys(self, batch: Batch) -> Batch:
        return batch.select(*(name for name in batch.names if name not in self._build_names))

    @property
    def is_built(self) -> bool:
        """Whether it is ready for joins, so that it takes no more rows."""
        return self._is_built

    def rows(self) -> Iterator[Batch]:
        """Give batches that make an equal table when they are added to another one. The table must have `keeps_keys`.

        They are those of the moment of the call, whatever is added or met before they are drawn. The first has no rows
        and tells the columns. Rows that can match nothing may be missing.
        """
        if not self._kinds.kinds:
            return iter(())
        whole = self._is_built
        parts = [self._builder.batch] if whole else [part for part in self._parts if part.num_rows]
        return chain((self._kinds.head(),), parts if self._matches is None else self._matches.put_on(parts))

    def probe_head(self) -> Batch | None:
        """Return a batch without rows that tells what the probe side has been, for `add_probe_head` of another join."""
        return None if self._matches is None else self._matches.head()

    def add_probe_head(self, head: Batch) -> None:
        """Note the columns of the probe side: those of any of its batches, or of what `probe_head` gave."""
        if self._matches is not None:
            self._matches.add_probe(head)

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
        return self._joined(batch, False, False, rows)

    def left(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """As `inner`, but a row of `batch` without a match is there once, with nulls for the build side's columns."""
        return self._joined(batch, True, False, rows)

    def right(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """As `inner`; keys have the kind that holds those of both sides. `unmatched` gives the rest in the end."""
        return self._joined(batch, False, True, rows)

    def outer(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """As `left`; keys have the kind that holds those of both sides. `unmatched` gives the rest in the end."""
        return self._joined(batch, True, True, rows)

    def unmatched(self, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """Give the rows of the build side that no batch has met, with nulls for the probe side's columns but its keys.

        What has been given counts as met, so that the rest comes when it is called again. It needs `notes_matches`.

        Args:
            rows: of a result, at most.

        Yields:
            Batches with the columns of `right` and `outer`, in the order of the build side.

        Raises:
            BatchError: both sides have a column of a name, or keys of both are in no kind.
        """
        self._build_all()
        if self._matches is None or not self._kinds.kinds:
            return
        probe = self._matches.probe_names
        if is_silent := self._matches.head() is None:
            hidden = (name for name in self._kinds.kinds if self._suffix and name + self._suffix in self._sought)
            probe = (*probe, *(name for name in hidden if name not in (*probe, *self._build_names)))
        names = self._payload_names(probe)
        for places in self._matches.unmet(rows):
            keys = take_rows(self._builder.batch, places).select(*self._build_names)
            right = take_rows(self._payload, places)
            made = _beside(self._matches.probe_columns(keys, self._kinds), right, names)
            yield self._with_sought(made) if is_silent else made

    def semi(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """Give the rows of `batch` whose key the build side has, each once, in batches of at most `rows`."""
        return self._filtered(batch, True, rows)

    def anti(self, batch: Batch, rows: int = STEP_ROWS) -> Iterator[Batch]:
        """Give the rows of `batch` whose key the build side does not have, in batches of at most `rows`."""
        return self._filtered(batch, False, rows)

    def head(self, batch: Batch, how: str) -> Batch:
        """Return the columns of the results for a batch, without rows; masks say of which columns there are values.

        Args:
            batch: of the probe side.
            how: the name of the method that makes the results.

        Raises:
            BatchError: as that method.
        """
        self._build_all()
        columns, _ = batch.parts()
        known = known_columns(batch)
        nothing = np.zeros(0, np.bool_)
        masks = {name: nothing for name in columns if name in known}
        left = Batch.trusted({name: values[:0] for name, values in columns.items()}, masks, 0)
        self._check(left)
        if how in ("semi", "anti"):
            return left
        if not self._kinds.kinds:
            return self._with_sought(left)
        if self._matches is not None:
            self._matches.add_probe(left)
            left = self._matches.with_common_keys(left, self._kinds)
            also = dict(zip(self._probe_names, self._build_names, strict=True))
            more = {name: nothing for name, other in also.items() if other in self._kinds.known}
            left = Batch.trusted(left.parts()[0], masks | more, 0)
        names = self._payload_names(left.names)
        return _beside(left, self._kinds.head().select(*names), names)

    def contains(self, batch: Batch) -> Mask:
        """Return for each row of `batch` whether the build side has its key.

        Raises:
            BatchError: a key column does not exist or is of another kind than the build side's.
        """
        mask = np.zeros(batch.num_rows, np.bool_)
        self._build_all()
        self._check(batch)
        if self._kinds.kinds:
            self._table.contains(self._keys(batch), mask)
        return mask

    def _build_all(self) -> None:
        while not self._is_built:
            self.build(1 << 30)

    def _keys(self, batch: Batch) -> list[_columns.Column]:
        kinds = [self._kinds.kinds[name] for name in self._build_names]
        known = known_columns(batch)
        if not known.issuperset(self._probe_names):  # columns of nulls may be of any kind
            columns, masks = batch.parts()
            empty = {
                name: nulls(kind, batch.num_rows)
                for name, kind in zip(self._probe_names, kinds, strict=True)
                if name not in known
            }
            batch = Batch.trusted({**columns, **empty}, masks, batch.num_rows)
        return key_columns(batch, self._probe_names, kinds)

    def _check(self, batch: Batch) -> None:
        """Check that the keys of a batch can be equal to those of the build side."""
        known = known_columns(batch)
        if self._checked is not None and self._checked[0] == batch.schema and self._checked[1] == known:
            return
        for name in self._probe_names:
            any_column(batch, name)
        pairs = zip(self._probe_names, self._build_names, strict=True)
        comparable = [(one, two) for one, two in pairs if one in known and two in self._kinds.known]
        check_families(batch.schema, [one for one, _ in comparable], self._kinds.kinds, [two for _, two in comparable])
        self._checked = batch.schema, known

    def _payload_names(self, probe: Iterable[str]) -> dict[str, str]:
        """Return the names that the build side's columns get in results, next to these columns of the probe side."""
        probe = tuple(probe)
        if self._named is not None and self._named[0] == probe and self._begun:
            return self._named[1]
        taken, names = {*probe}, dict[str, str]()
        for name in self._kinds.kinds:
            if name not in self._build_names:
                names[name] = self._name(name, taken)
                taken.add(names[name])
        self._named = probe, names
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

    def _joined(self, batch: Batch, outer: bool, notes: bool, rows: int) -> Iterator[Batch]:
        self._build_all()
        matches = self._matches if notes else None
        if notes and matches is None:
            raise BatchError("right() and outer() need a HashJoin(..., notes_matches=True)")
        if matches is not None:
            matches.add_probe(batch)
        for at in range(0, batch.num_rows, STEP_ROWS):
            piece = batch[at : at + STEP_ROWS] if batch.num_rows > STEP_ROWS else batch
            self._check(piece)
            names = self._payload_names(piece.names)
            if not self._kinds.kinds:
                if outer:
                    piece = self._with_sought(piece)
                    yield from (piece[start : start + rows] for start in range(0, piece.num_rows, rows))
                continue
            keys = self._keys(piece)
            if matches is not None:
                piece = matches.with_common_keys(piece, self._kinds)
            row, link = 0, -1
            while row < piece.num_rows:
                probe, build = self._buffers(rows)
                first = row
                count, row, link, is_run = self._table.probe(keys, row, link, outer, probe[:rows], build[:rows])
                if count:
                    if matches is not None:
                        matches.note(build[:count], outer)
                    # Often every row has exactly one match: then they need not be copied.
                    left = _slice(piece, first, row) if is_run else take_rows(piece, probe[:count])
                    yield self._together(left, build[:count], names, outer)

    def _with_sought(self, batch: Batch) -> Batch:
        """Return results with the columns that are read of a side without any batch."""
        missing = sorted(self._sought.difference(batch.names))
        if not missing:
            return batch
        nothing = np.zeros(batch.num_rows, np.bool_)
        nothing.flags.writeable = False
        columns, masks = batch.parts()
        columns = columns | {name: nulls(UNTYPED, batch.num_rows) for name in missing}
        masks = masks | (dict.fromkeys(missing, nothing) if batch.num_rows else {})
        return Batch.trusted(columns, masks, batch.num_rows)

    def _together(self, left: Batch, build: Rows, names: dict[str, str], outer: bool) -> Batch:
        right = take_rows_or_nulls(self._payload, build) if outer else take_rows(self._payload, build)
        return _beside(left, right, names)

    def _filtered(self, batch: Batch, wanted: bool, rows: int) -> Iterator[Batch]:
        for at in range(0, batch.num_rows, rows):
            piece = batch[at : at + rows] if batch.num_rows > rows else batch
            found = self.contains(piece)
            chosen = (found if wanted else ~found).nonzero()[0]
            if len(chosen) == piece.num_rows:
                yield piece
            elif len(chosen):
                yield take_rows(piece, chosen)

    def _buffers(self, rows: int) -> tuple[Rows, Rows]:
        if self._out is None or len(self._out[0]) < rows:
            self._out = np.empty(rows, np.int64), np.empty(rows, np.int64)
        return self._out


def _slice(batch: Batch, first: int, last: int) -> Batch:
    return batch if last - first == batch.num_rows else batch[first:last]


def _beside(left: Batch, right: Batch, names: Mapping[str, str]) -> Batch:
    """Return two batches of one length as one, with other names for the columns of the second."""
    columns, masks = left.parts()
    values, valid = right.parts()
    columns = columns | {names[name]: column for name, column in values.items()}
    masks = masks | {names[name]: mask for name, mask in valid.items()}
    return Batch.trusted(columns, masks, left.num_rows)


def _empty(schema: Mapping[str, Kind]) -> Batch:
    return Batch({name: nulls(kind, 0) for name, kind in schema.items()})


def _all_known(columns: Mapping[str, Any]) -> dict[str, Mask]:
    return {name: np.zeros(0, np.bool_) for name in columns}
