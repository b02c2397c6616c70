"""Tables of single frames, for frames that get many rows at a time: a table by key costs half of one by frame and key.

What they give has the end of the frame as its first column, as what a table of many frames gives. Must not know when
frames close.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.aggregates import Aggregate
from shmjet.columns.typed_groups import TypedGroups
from shmjet.data.batch import Batch

FRAME: Final = "\0frame"
"""The column of partial states that has the end of their frame."""

LEAST_ROWS: Final = 8192
"""Rows that come together, at least, for which a frame gets a table of its own."""

_MOST_TABLES: Final = 64
_SPARE_BYTES: Final = 4 << 20
"""Of the memory of a table that is kept for the next frame, at most: to ask for it anew costs a third of its use."""
_MOST_PARTS: Final = 4
"""Frames into which a batch is cut, at most."""

Ends = npt.NDArray[np.int64]
Head: TypeAlias = Callable[[], Batch | None]


class FrameTables:
    """Groups by key, in a table for each frame.

    Args:
        keys: the key columns; without any there are no tables.
        aggregates: result → aggregate.
    """

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self._keys = tuple(keys)
        self._aggregates = dict(aggregates)
        self._tables: dict[int, TypedGroups] = {}
        self._spare: TypedGroups | None = None
        """An empty table of a frame that has closed."""

    def ends_to(self, last: int | None = None) -> list[int]:
        """Return the ends of the frames that there are, ascending; all, or those up to one."""
        return sorted(end for end in self._tables if last is None or end <= last)

    def apart(
        self, batch: Batch, ends: Ends, distinct: Sequence[int], elsewhere: Container[int], head: Head
    ) -> list[tuple[Batch, TypedGroups | None]]:
        """Return rows with the table that they go to; None: that of many frames.

        A frame gets a table with its first rows, if these are many, or never: all its rows are in one place. In a batch
        whose rows go on into one more frame, the first rows of this one are few, but as many as before will come.

        Args:
            batch: the rows.
            ends: of the frame of each.
            distinct: which there are.
            elsewhere: the ends of frames that have rows already.
            head: gives states without rows, for what is known of the columns; None: nothing is.
        """
        if len(distinct) <= _MOST_PARTS and batch.num_rows >= LEAST_ROWS and self._keys:
            parts = _parts(batch, ends, distinct)
            tables: list[TypedGroups | None] = []
            for end, part in parts:
                goes_on = end == distinct[-1] and bool(tables) and tables[-1] is not None
                rows = batch.num_rows if goes_on else part.num_rows
                tables.append(self._table_of(end, rows, elsewhere, head))
            if any(table is not None for table in tables):
                return [(part, table) for (_, part), table in zip(parts, tables, strict=True)]
            return [(batch, None)]
        own = [end for end in distinct if end in self._tables]
        if not own:
            return [(batch, None)]
        found: list[tuple[Batch, TypedGroups | None]]
        found = [(batch.filter(ends == end), self._tables[end]) for end in own]
        if len(own) < len(distinct):
            found.append((batch.filter(~np.isin(ends, own)), None))
        return found

    def _table_of(self, end: int, rows: int, elsewhere: Container[int], head: Head) -> TypedGroups | None:
        """Return the table of a frame, to which so many rows come; None where it has none and should not have one."""
        table = self._tables.get(end)
        if table is not None or rows < LEAST_ROWS or len(self._tables) == _MOST_TABLES or end in elsewhere:
            return table
        known = head()
        if known is None:
            return None
        made = TypedGroups(self._keys, self._aggregates) if self._spare is None else self._spare
        try:
            made.merge(known)
        except OSError:  # no memory or descriptor for one more
            return None
        self._spare = None
        self._tables[end] = made
        return made

    def states(self, end: int) -> Batch:
        """Return all states of a frame."""
        table = self._tables[end]
        return framed(table.states(0, max(len(table), 1))[0], end)

    def states_of(self, end: int, rows: int) -> Iterator[Batch]:
        """Give the states of a frame, some rows at a time."""
        table = self._tables[end]
        for at in range(0, len(table), rows):
            yield framed(table.states(at, rows)[0], end)

    def results_of(self, end: int, rows: int) -> Iterator[Batch]:
        """Give the results of a frame, some rows at a time."""
        table, position = self._tables[end], 0
        while position >= 0:
            found, position = table.results(position, rows)
            yield framed(found, end)

    def remove(self, end: int) -> Batch | None:
        """Forget a frame; returns its states without rows, for what it has learnt of the columns."""
        table = self._tables.pop(end)
        head = table.head()
        if self._spare is None and table.nbytes <= _SPARE_BYTES and table.empty():
            self._spare = table
        return None if head is None else framed(head, end)

    def captured(self) -> FrameTables:
        """Return the tables of this moment, whatever is added to these; see `TypedGroups.captured`."""
        made = FrameTables(self._keys, self._aggregates)
        made._tables = {end: table.captured() for end, table in self._tables.items()}
        return made

    def copy_steps(self) -> Iterator[None]:
        """See `TypedGroups.copy_steps`."""
        for table in self._tables.values():
            yield from table.copy_steps()


def framed(batch: Batch, end: int) -> Batch:
    """Return keys and states, or results, with the end of their frame in front."""
    columns, masks = batch.parts()
    made: dict[str, Any] = {FRAME: np.full(batch.num_rows, end, np.int64), **columns}
    return Batch.trusted(made, dict(masks), batch.num_rows)


def _parts(batch: Batch, ends: Ends, distinct: Sequence[int]) -> list[tuple[int, Batch]]:
    """Return the rows of each frame of a batch."""
    if len(distinct) == 1:
        return [(distinct[0], batch)]
    starts = np.flatnonzero(ends[1:] != ends[:-1]) + 1
    if len(starts) + 1 == len(distinct):
        bounds = [0, *starts.tolist(), len(ends)]
        return [(int(ends[at]), batch[at:stop]) for at, stop in pairwise(bounds)]
    return [(end, batch.filter(ends == end)) for end in distinct]
