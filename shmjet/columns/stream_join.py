"""The join of two streams of batches: rows with equal keys whose times are close. Must not know processors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from shmjet.columns.group_page import Positions
from shmjet.columns.schemas import UNTYPED, Kind, nulls
from shmjet.columns.stream_join_columns import How, JoinColumns
from shmjet.columns.stream_rows import MATCHED, Pairs, Stamps, StreamRows
from shmjet.columns.take import take_rows
from shmjet.columns.typed_groups import TypedGroups
from shmjet.core.event_timestamps import column_timestamps
from shmjet.data.batch import Batch, any_column
from shmjet.data.errors import BatchError
from shmjet.data.typed_column import TypedColumn

LEAST_DEAD: Final = 1 << 16
"""Keys without rows, at least, for which keys get other numbers."""


class StreamJoin:
    """Two streams of rows by key and time.

    Args:
        columns: by which they are joined.
        within: how far apart the times may be, in milliseconds.
        how: which rows come out without a match.

    Example:
        >>> join = StreamJoin(JoinColumns(("k",), ("id",), "ts", "at"), 5)
        >>> list(join.add(0, Batch({"ts": [10], "k": [1]}), 0))
        []
        >>> [found.to_dict() for found in join.add(1, Batch({"at": [12, 16], "id": [1, 1], "v": ["a", "b"]}), 0)]
        [{'ts': [12], 'k': [1], 'at': [12], 'v': ['a']}]
    """

    def __init__(self, columns: JoinColumns, within: int, how: How = "inner") -> None:
        self._columns = columns
        self._numbers = TypedGroups(columns.left_keys, {})
        self._sides = StreamRows(within, how in ("left", "outer")), StreamRows(within, how in ("right", "outer"))
        self._names: dict[tuple[tuple[str, ...], tuple[str, ...]], dict[str, str]] = {}
        self._within = within
        self._never_kept = 0
        self._look_at = LEAST_DEAD // 2
        """How many rows are to be gone before it is looked again which keys have none."""
        self.late = 0
        """Rows that were below the time given with them."""

    @property
    def num_keys(self) -> int:
        """Keys that are known, those without rows included, until there are many."""
        return len(self._numbers)

    def add(self, side: int, batch: Batch, lowest: int) -> Iterator[Batch]:
        """Add rows, and give what they make with those of the other side, lazily.

        Args:
            side: 0 for left, 1 for right.
            batch: rows with their timestamps.
            lowest: rows before this time are late: they are counted, and match nothing.

        Raises:
            BatchError: a column is missing, cannot be a key, or has another type than that of the other side.
        """
        stamps = column_timestamps(batch, self._columns.times[side])
        if not batch.num_rows:  # it tells the columns
            self._sides[side].add(batch, self._keyed(batch, self._columns.keys[side])[0], stamps)
            return iter(())
        if int(stamps.min()) < lowest:
            on_time = np.flatnonzero(stamps >= lowest)
            self.late += batch.num_rows - len(on_time)
            if not len(on_time):
                return iter(())
            batch, stamps = take_rows(batch, on_time), stamps[on_time]
        numbers, known = self._keyed(batch, self._columns.keys[side])
        own, other = self._sides[side], self._sides[1 - side]
        if own.keeps_unmatched:
            matched = np.zeros(batch.num_rows, np.bool_)
            sought = slice(None) if known is None else known
            matched[sought] = other.have_near(numbers[sought], stamps[sought])
            own.add(batch, numbers, stamps, matched)
        if known is not None:
            if not own.keeps_unmatched:
                self._never_kept += batch.num_rows - len(known)
            if not len(known):
                return iter(())
            batch, numbers, stamps = take_rows(batch, known), numbers[known], stamps[known]
        if not own.keeps_unmatched:
            own.add(batch, numbers, stamps)
        return self._results(side, batch, stamps, other.near(numbers, stamps))

    def _keyed(self, batch: Batch, names: Sequence[str]) -> tuple[Positions, Any]:
        """Return the number of each row's key, and which rows have a key that may match; None for all."""
        made: dict[str, Any] = {}
        masks: dict[str, Any] = {}
        known = np.ones(batch.num_rows, np.bool_)
        for name, shown in zip(names, self._columns.left_keys, strict=True):
            made[shown], mask = any_column(batch, name)
            if mask is not None:
                masks[shown] = mask
                if len(mask):
                    known &= mask
            values = made[shown]
            if isinstance(values, np.ndarray) and values.dtype.kind in "fmM":
                known &= values == values
        numbers = np.zeros(batch.num_rows, np.uint32)
        self._numbers.add(Batch.trusted(made, masks, batch.num_rows), numbers)
        return numbers, None if known.all() else np.flatnonzero(known)

    def _results(self, side: int, batch: Batch, stamps: Stamps, found: Iterator[Pairs]) -> Iterator[Batch]:
        for given, run, rows in found:
            mine, its = take_rows(batch, given), take_rows(run.rows, rows)
            times = stamps[given], run.stamps[rows]
            yield self._beside(mine, its, *times) if side == 0 else self._beside(its, mine, *times[::-1])

    def _beside(self, left: Batch, right: Batch, left_times: Stamps, right_times: Stamps) -> Batch:
        columns, masks = left.parts()
        values, valid = right.parts()
        names = self._renamed(left.names, right.names)
        made = dict(columns) | {shown: values[name] for name, shown in names.items()}
        time = self._columns.left_time
        made[time] = _later(left, time, left_times, right_times)
        masks = {name: mask for name, mask in masks.items() if name != time}
        masks |= {shown: valid[name] for name, shown in names.items() if name in valid}
        return Batch.trusted(made, masks, left.num_rows)

    def may_expire(self, watermark: int) -> bool:
        """Say whether `unmatched` may give something."""
        limit = watermark - self._within
        return any(side.may_expire(limit) for side in self._sides)

    def unmatched(self, watermark: int) -> Iterator[Batch]:
        """Give the rows without a match that no row from a time on can match, each once, lazily; before `forget`.

        Columns of the other side are null, but for the keys; where that has had no batch yet, only the sought columns
        are there.
        """
        limit = watermark - self._within
        for batch, _ in self._sides[0].unmatched(limit):
            yield self._left_alone(batch)
        for batch, stamps in self._sides[1].unmatched(limit):
            yield self._right_alone(batch, stamps)

    def _left_alone(self, left: Batch) -> Batch:
        kinds = self._sides[1].kinds
        columns, masks = left.parts()
        made, valid = dict(columns), dict(masks)
        for name, shown in self._renamed(left.names, tuple(kinds)).items():
            made[shown], valid[shown] = _nulls(kinds[name], left.num_rows)
        if not kinds:
            self._add_sought(made, valid, left.num_rows)
        return Batch.trusted(made, valid, left.num_rows)

    def _add_sought(self, made: dict[str, Any], valid: dict[str, Any], count: int) -> None:
        """Add the columns that later stages read, as nulls of no type."""
        for name in sorted(self._columns.sought - made.keys()):
            made[name], valid[name] = _nulls(UNTYPED, count)

    def _right_alone(self, right: Batch, stamps: Stamps) -> Batch:
        columns, masks = right.parts()
        keys = dict(zip(self._columns.left_keys, self._columns.right_keys, strict=True))
        time = self._columns.left_time
        known = self._sides[0].kinds
        suffix, sought = self._columns.suffix, self._columns.sought
        hidden = [name for name in right.names if suffix and name + suffix in sought and name not in keys.values()]
        kinds: Mapping[str, Kind | None] = known or dict.fromkeys((time, *keys, *hidden))
        made: dict[str, Any] = {}
        valid: dict[str, Any] = {}
        for name, kind in kinds.items():
            if name == time:
                made[name] = _times(stamps, kind)
            elif name in keys:
                made[name] = columns[keys[name]]
                if keys[name] in masks:
                    valid[name] = masks[keys[name]]
            else:
                made[name], valid[name] = _nulls(UNTYPED if kind is None else kind, right.num_rows)
        for name, shown in self._renamed(tuple(kinds), right.names).items():
            made[shown] = columns[name]
            if name in masks:
                valid[shown] = masks[name]
        if not known:
            self._add_sought(made, valid, right.num_rows)
        return Batch.trusted(made, valid, right.num_rows)

    def _renamed(self, left: tuple[str, ...], right: tuple[str, ...]) -> Mapping[str, str]:
        """Return what the columns of the right side are called in results."""
        known = self._names.get((left, right))
        if known is not None:
            return known
        names: dict[str, str] = {}
        taken = set(left)
        for name in right:
            if name in self._columns.right_keys or name in self._columns.left_out:
                continue
            shown = name if name not in taken else name + (self._columns.suffix or "")
            if shown in taken:
                raise BatchError(f"both sides of the join have a column {shown!r}; rename one, or give suffix='_right'")
            taken.add(shown)
            names[name] = shown
        self._names[left, right] = names
        return names

    def forget(self, watermark: int) -> None:
        """Let the rows go that no row from a time on can match."""
        for side in self._sides:
            side.forget(watermark - self._within)
        keys = self.num_keys
        gone = self._never_kept + sum(side.forgotten for side in self._sides)
        if keys < LEAST_DEAD or gone < self._look_at:
            return
        used = self._sides[0].used(keys) | self._sides[1].used(keys)
        kept = np.flatnonzero(used)
        # Each key that comes to be without rows takes a row with it, at least.
        missing = 2 * len(kept) + LEAST_DEAD - keys
        if missing > 0:
            self._look_at = gone + max(missing // 2, LEAST_DEAD // 4)
            return
        self._look_at = gone + (len(kept) + LEAST_DEAD) // 2
        head, states = self._numbers.head(), self._numbers.states_at(kept.astype(np.uint32))
        self._numbers.clear()
        for part in (head, states if len(kept) else None):
            if part is not None:
                self._numbers.merge(part)
        places = np.zeros(keys, np.uint32)
        places[kept] = np.arange(len(kept), dtype=np.uint32)
        for side in self._sides:
            side.renumber(places)

    def rows(self, side: int) -> Iterator[tuple[int | None, Batch]]:
        """Give the rows of a side that are kept at the moment of the call, as `StreamRows.batches`."""
        return self._sides[side].batches()

    def head(self, side: int) -> Batch | None:
        """Return a batch without rows that tells the columns of a side; None before its first batch."""
        return self._sides[side].head()

    def tell(self, side: int, head: Batch) -> None:
        """Note the columns of a side, by what `head` gave."""
        self._sides[side].tell(head)

    def put_back(self, side: int, batch: Batch) -> None:
        """Add rows that `rows` gave, without looking for pairs."""
        own = self._sides[side]
        matched = np.zeros(0, np.bool_)
        if MATCHED in batch.names:
            columns, masks = batch.parts()
            matched = np.array(columns[MATCHED], np.bool_)
            kept = {name: values for name, values in columns.items() if name != MATCHED}
            batch = Batch.trusted(kept, masks, batch.num_rows)
        elif own.keeps_unmatched:
            matched = np.ones(batch.num_rows, np.bool_)  # of an inner join, which did not know
        numbers, known = self._keyed(batch, self._columns.keys[side])
        stamps = column_timestamps(batch, self._columns.times[side])
        if own.keeps_unmatched or known is None:
            own.add(batch, numbers, stamps, matched if own.keeps_unmatched else matched[:0])
        else:
            own.add(take_rows(batch, known), numbers[known], stamps[known])


def _nulls(kind: Any, count: int) -> tuple[Any, Any]:
    """Return a column of nulls and its mask."""
    return nulls(kind, count), np.zeros(count, np.bool_)


def _times(stamps: Stamps, kind: Any) -> Any:
    """Return times as a column of times of a kind."""
    stored = getattr(kind, "stored", kind)
    is_numbers = stored is None or np.dtype(stored).kind == "i"
    found: Any = stamps.copy() if is_numbers else stamps.view("M8[ms]").astype(stored)
    found.flags.writeable = False
    return found if kind is None or stored is kind else TypedColumn.trusted(kind, found)


def _later(left: Batch, name: str, left_times: Stamps, right_times: Stamps) -> Any:
    """Return the left column of times with the later one of both."""
    column, _ = any_column(left, name)
    values: Any = column.stored if isinstance(column, TypedColumn) else column
    if values.dtype.kind == "i":
        found: Any = np.maximum(left_times, right_times)
    else:
        found = np.where(right_times > left_times, right_times.view("M8[ms]").astype(values.dtype), values)
    found.flags.writeable = False
    return TypedColumn.trusted(column.dtype, found) if isinstance(column, TypedColumn) else found
