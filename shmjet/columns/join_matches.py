"""Which rows of the build side of a join have met rows of the other side, for right and outer joins.

A byte for each row, set when a pair of rows is given, and what is known of the other side's columns: the rows that met
nothing are given in the end, with nulls in those. Marks travel with saved rows as a column of their own. Must not know
the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from shmjet.columns.group_schema import promoted_key
from shmjet.columns.promotion import converted, differing
from shmjet.columns.schemas import Kind, nulls, schema_of
from shmjet.columns.stream_kinds import StreamKinds
from shmjet.columns.take import Rows
from shmjet.data.batch import Batch, stored_column
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask

MARKS: Final = "\x00matched"
"""The column of marks in saved rows; no column of a build side may have this name."""


class BuildMatches:
    """The marks of the rows of a build side, in the order in which they were added.

    Args:
        probe_keys, build_keys: names of the key columns of both sides.
        probe_schema: name → type of the probe side's columns, where no batch may tell them.
    """

    def __init__(
        self, probe_keys: Sequence[str], build_keys: Sequence[str], probe_schema: Mapping[str, Any] | None
    ) -> None:
        self._probe_keys = tuple(probe_keys)
        self._build_keys = tuple(build_keys)
        self._probe = StreamKinds(probe_keys)
        self._added: list[Mask] = []
        self._marks: Mask | None = None
        if probe_schema is not None:
            kinds = schema_of(probe_schema)
            missing = [name for name in probe_keys if name not in kinds]
            if missing:
                raise BatchError(f"the schema of the stream lacks the key column {missing[0]!r}; it has {list(kinds)}")
            known = dict.fromkeys(kinds, np.zeros(0, np.bool_))
            self._probe.add(Batch.trusted({name: nulls(kind, 0) for name, kind in kinds.items()}, known, 0))

    # -- rows of the build side ----------------------------------------------------------------------------------------

    def taken_off(self, batch: Batch) -> tuple[Batch, Mask | None]:
        """Return saved rows without their marks, and these; None for rows that are new."""
        if MARKS not in batch:
            return batch, None
        marks, _ = stored_column(batch, MARKS)
        return batch.select(*(name for name in batch.names if name != MARKS)), np.asarray(marks, np.bool_)

    def put_on(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Give the batches that were added, or what they became, with the marks of the moment of the call."""
        marks = self.marks.copy()
        marks.flags.writeable = False
        return self._marked(batches, marks)

    @staticmethod
    def _marked(batches: Iterable[Batch], marks: Mask) -> Iterator[Batch]:
        at = 0
        for batch in batches:
            columns, masks = batch.parts()
            own = marks[at : at + batch.num_rows]
            yield Batch.trusted({**columns, MARKS: own}, dict(masks), batch.num_rows)
            at += batch.num_rows

    def add(self, marks: Mask | None, rows: int) -> None:
        """Note so many rows, and which of them have met others before."""
        self._added.append(np.zeros(rows, np.bool_) if marks is None else marks)
        self._marks = None

    @property
    def marks(self) -> Mask:
        """A byte for each row; True where it has met one."""
        if self._marks is None:
            self._marks = np.concatenate([np.zeros(0, np.bool_), *self._added])
            self._added = [self._marks]
        return self._marks

    def note(self, build: Rows, may_miss: bool) -> None:
        """Mark rows by their numbers, of which some may be -1."""
        self.marks[build[build >= 0] if may_miss else build] = True

    def unmet(self, rows: int) -> Iterator[Rows]:
        """Give the numbers of rows without a mark, at most `rows` at a time, and mark them."""
        marks = self.marks
        step = max(rows, 1 << 16)
        for at in range(0, len(marks), step):
            found = np.flatnonzero(~marks[at : at + step]) + at
            for start in range(0, len(found), rows):
                some = found[start : start + rows]
                marks[some] = True
                yield some

    # -- the probe side ------------------------------------------------------------------------------------------------

    def add_probe(self, batch: Batch) -> None:
        """Note the columns of a batch of the probe side. Raises BatchError when they differ from those before."""
        self._probe.add(batch)

    def head(self) -> Batch | None:
        """Return a batch without rows that tells what the probe side has been; None before its first batch."""
        return self._probe.head() if self._probe.kinds else None

    @property
    def probe_names(self) -> tuple[str, ...]:
        """The columns of the probe side; its keys where no batch has told more."""
        return tuple(self._probe.kinds) or self._probe_keys

    def with_common_keys(self, batch: Batch, build: StreamKinds) -> Batch:
        """Return a batch of the probe side with keys of the kinds that hold those of both sides."""
        columns, masks = batch.parts()
        made = dict(columns)
        for name, other in zip(self._probe_keys, self._build_keys, strict=True):
            kind = self._common(name, other, build)
            made[name] = converted(name, columns[name], masks.get(name), kind)
            if made[name] is not columns[name] and isinstance(array := made[name], np.ndarray):
                array.flags.writeable = False
        return Batch.trusted(made, masks, batch.num_rows)

    def probe_columns(self, keys: Batch, build: StreamKinds) -> Batch:
        """Return the probe side's columns for rows of the build side: their keys, and nulls.

        Args:
            keys: the key columns of these rows.
            build: the kinds of the build side.
        """
        rows = keys.num_rows
        nothing = np.zeros(rows, np.bool_)
        nothing.flags.writeable = False
        own, valid = keys.parts()
        others = dict(zip(self._probe_keys, self._build_keys, strict=True))
        columns, masks = {}, {}
        for name in self.probe_names:
            if name in others:
                other = others[name]
                mask = valid.get(other)
                columns[name] = converted(name, own[other], mask, self._common(name, other, build))
                if mask is not None:
                    masks[name] = mask
            else:
                columns[name] = nulls(self._probe.kinds[name], rows)
                masks[name] = nothing
            if isinstance(array := columns[name], np.ndarray):
                array.flags.writeable = False
        return Batch.trusted(columns, masks, rows)

    def _common(self, name: str, other: str, build: StreamKinds) -> Kind:
        kinds: dict[str, Kind] = self._probe.kinds
        if other not in build.known:
            return kinds.get(name, build.kinds[other])
        if name not in self._probe.known:
            return build.kinds[other]
        common = promoted_key(kinds[name], build.kinds[other])
        if common is None:
            raise differing(name, [kinds[name], build.kinds[other]])
        return common
