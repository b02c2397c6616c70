"""The rows of groups, for aggregates that need all values: quantiles, lists, distinct values, functions of users.

Columns of the rows are kept as they come, each row with the number of its group. They are sorted by group, by counting,
when they are read. Of distinct values a table of (group, value) pairs is kept instead. In states the values of a group
are the bytes of one value, so that states have one row for each group whatever they hold. Must not know what is made of
the rows, nor the table of the groups.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import bucket_rows
from shmjet.columns.group_page import Places, Positions
from shmjet.columns.promotion import is_known
from shmjet.columns.schemas import Kind, nulls
from shmjet.columns.stream_kinds import StreamKinds
from shmjet.columns.take import take_rows
from shmjet.data.batch import Batch, any_column
from shmjet.data.column import Values
from shmjet.data.column_types import ColumnType
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import Physical, TypedColumn

Sizes = npt.NDArray[np.int64]
"""How many rows each group has."""

StatePart = tuple[str, Values, Mask | None]
"""Part, values and mask of a column of states."""

GROUP: Final = "\0group"
"""The column of groups in a table of distinct values."""

_NOTHING: Final = np.zeros(0, np.bool_)
_NOTHING.flags.writeable = False


class RowStore(Protocol):
    """What keeps something of the rows of groups."""

    @property
    def nbytes(self) -> int:
        """Bytes kept."""

    @property
    def distinct(self) -> int:
        """How many distinct values of groups are kept; 0 if all rows are, or one of each group."""

    def add(self, numbers: Positions, batch: Batch) -> None:
        """Add rows with the numbers of their groups. Raises BatchError when a column is missing or does not fit."""

    def add_states(self, numbers: Positions, states: Batch, prefix: str) -> None:
        """Add what `state_parts` gave; the names of its columns begin with `prefix`."""

    def rows_of(self, places: Places, count: int) -> tuple[Batch, Sizes]:
        """Return the rows of some groups, one group after the other, in order of arrival, and how many each has."""

    def sizes_of(self, places: Places, count: int) -> Sizes:
        """Return how many rows each of some groups has."""

    def renumber(self, order: Positions) -> None:
        """Let the group whose number is the i-th of `order` have the number i."""

    def state_parts(self, places: Places, count: int) -> list[StatePart]:
        """Return what is kept of some groups as columns, a row for each group; without groups what tells the kinds."""

    def captured(self) -> RowStore:
        """Return what is kept at this moment, to be read only, whatever is added to this, after `copy_steps`."""

    def copy_steps(self) -> Iterator[None]:
        """As `Groups.copy_steps`."""


class PairTable(Protocol):
    """A table of distinct keys without aggregates: `Groups`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""

    def __len__(self) -> int: ...
    def clear(self) -> None:
        """Forget all keys."""

    def add(self, batch: Batch) -> None:
        """Add the keys of rows."""

    def head(self) -> Batch | None:
        """Return keys without rows, which tell the kinds."""

    def results(self, position: int, limit: int) -> tuple[Batch, int]:
        """Return some of the keys."""

    def captured(self) -> PairTable:
        """As `Groups.captured`."""

    def copy_steps(self) -> Iterator[None]:
        """As `Groups.copy_steps`."""


class KeptRows:
    """Some columns of the rows of groups.

    Args:
        names: of one column; None: all that there are, but for hidden ones. What a batch lacks is null in its rows.
        drops_nulls: rows with a null are left out; there is one column then.
    """

    def __init__(self, names: Sequence[str] | None, *, drops_nulls: bool = False) -> None:
        self._names = None if names is None else tuple(names)
        self._drops_nulls = drops_nulls
        self._kinds = StreamKinds(may_differ=names is None)
        self._chunks: list[tuple[Positions, Batch]] = []
        self._starts: Sizes | None = None  # of each group in the one chunk, where rows are sorted; and the end
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return self._bytes

    @property
    def kinds(self) -> StreamKinds:
        """The kinds of the columns."""
        return self._kinds

    @property
    def distinct(self) -> int:
        """As `RowStore.distinct`."""
        return 0

    def add(self, numbers: Positions, batch: Batch) -> None:
        """As `RowStore.add`."""
        if self._names is not None:
            for name in self._names:
                any_column(batch, name)
            batch = batch.select(*self._names)
        elif any(name.startswith("\0") for name in batch.names):
            batch = batch.select(*(name for name in batch.names if not name.startswith("\0")))
        if not batch.names:
            raise BatchError("a batch without columns has no rows to keep")
        self._kinds.add(batch)
        if self._drops_nulls:
            (mask,) = batch.parts()[1].values() or (None,)
            if mask is not None:
                rows = np.flatnonzero(mask)
                numbers, batch = numbers[rows], take_rows(batch, rows)
        self._starts = None  # a batch without rows may tell of another kind
        if batch.num_rows:
            self._chunks.append((numbers, batch))
            self._bytes += batch.nbytes + numbers.nbytes

    def rows_of(self, places: Places, count: int) -> tuple[Batch, Sizes]:
        """As `RowStore.rows_of`."""
        starts, batch = self._sorted(places, count)
        if isinstance(places, int):
            bounds = starts[places : places + count + 1]
            return batch[int(bounds[0]) : int(bounds[-1])], np.diff(bounds)
        sizes = starts[1:][places] - starts[places]
        ends = np.cumsum(sizes)
        rows = np.repeat(starts[places] - ends + sizes, sizes) + np.arange(int(ends[-1]) if count else 0)
        return take_rows(batch, rows), sizes

    def sizes_of(self, places: Places, count: int) -> Sizes:
        """As `RowStore.sizes_of`."""
        starts, _ = self._sorted(places, count)
        if isinstance(places, int):
            return np.diff(starts[places : places + count + 1])
        found: Sizes = starts[1:][places] - starts[places]
        return found

    def renumber(self, order: Positions) -> None:
        """As `RowStore.renumber`."""
        new = np.empty(len(order), np.uint32)
        new[order] = np.arange(len(order), dtype=np.uint32)
        self._chunks = [(new[numbers], batch) for numbers, batch in self._chunks]
        self._starts = None

    def captured(self) -> RowStore:
        """As `RowStore.captured`: batches never change, so that a list of them is all that is copied."""
        made = copy.copy(self)
        made._kinds, made._chunks = self._kinds.copy(), list(self._chunks)
        return made

    def copy_steps(self) -> Iterator[None]:
        """As `Groups.copy_steps`: there is nothing to copy."""
        return iter(())

    def _sorted(self, places: Places, count: int) -> tuple[Sizes, Batch]:
        """Return where the rows of each group start, with an end, and all rows sorted by group."""
        groups = places + count if isinstance(places, int) else int(places.max(initial=0)) + 1
        if self._starts is None:
            self._sort()
        assert self._starts is not None
        if len(self._starts) <= groups:  # the last groups have no rows
            more = np.full(groups + 1 - len(self._starts), self._starts[-1])
            self._starts = np.concatenate([self._starts, more])
        return self._starts, self._chunks[0][1] if self._chunks else self._kinds.head()

    def _sort(self) -> None:
        numbers = np.concatenate([np.zeros(0, np.uint32), *(numbers for numbers, _ in self._chunks)])
        self._starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(numbers))])
        if not self._chunks:
            return
        batch = Batch.concat([self._kinds.of(each) for _, each in self._chunks])
        if (numbers[1:] < numbers[:-1]).any():
            order = np.empty(len(numbers), np.uint32)
            bucket_rows(numbers, 0, len(numbers), self._starts[:-1].astype(np.uint32), order)
            numbers, batch = numbers[order], take_rows(batch, order.astype(np.int64))
        self._chunks = [(numbers, batch)]

    # -- states --------------------------------------------------------------------------------------------------------

    def state_parts(self, places: Places, count: int) -> list[StatePart]:
        """As `RowStore.state_parts`."""
        if not self._kinds.kinds:
            return []
        batch, sizes = self.rows_of(places, count)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        columns, masks = batch.parts()
        parts: list[StatePart] = []
        for name, kind in self._kinds.kinds.items():
            values, key = _stored(columns[name]), name.encode().hex()
            if isinstance(values, Text):
                values = values.compact()
                lengths = np.diff(values.offsets)
                parts.append((f"values{key}", Text.trusted(values.offsets[bounds], values.data, True), None))
                parts.append((f"lengths{key}", _bytes_of(lengths, bounds), None))
            else:
                parts.append((f"values{key}", _bytes_of(values, bounds), None))
            if not self._drops_nulls:
                mask = masks.get(name, np.zeros(0, np.bool_))
                parts.append((f"valid{key}", _bytes_of(mask, bounds if name in masks else 0 * bounds), None))
            known = name in self._kinds.known
            shown = _NOTHING if known and not count else None if known or not count else np.zeros(count, np.bool_)
            parts.append((f"as{key}", nulls(kind, count), shown))
        return parts

    def add_states(self, numbers: Positions, states: Batch, prefix: str) -> None:
        """As `RowStore.add_states`."""
        columns, masks = states.parts()
        kinds: dict[str, Kind] = {}
        keys: dict[str, str] = {}
        known: dict[str, Mask] = {}
        for part in columns:
            if part.startswith(f"{prefix}as"):
                key = part.removeprefix(f"{prefix}as")
                name = self._names[0] if self._names and len(self._names) == 1 else bytes.fromhex(key).decode()
                kinds[name], keys[name] = columns[part].dtype, key
                if is_known(columns[part], masks.get(part)):
                    known[name] = _NOTHING
        if not kinds:
            return
        self._kinds.add(Batch.trusted({name: nulls(kind, 0) for name, kind in kinds.items()}, known, 0))
        self._starts = None
        made: dict[str, Any] = {}
        valid: dict[str, Mask] = {}
        sizes: Sizes = np.zeros(0, np.int64)
        for name, kind in kinds.items():
            key = keys[name]
            raw = _raw(columns[f"{prefix}values{key}"])
            physical = kind.stored if isinstance(kind, ColumnType) else kind
            if isinstance(physical, str):
                lengths = _raw(columns[f"{prefix}lengths{key}"])
                sizes = np.diff(lengths.offsets) // 8
                offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(_array(lengths, np.dtype(np.int64)))])
                made[name] = Text.trusted(offsets, raw.data, physical == "bytes")
            else:
                made[name] = _array(raw, physical)
                sizes = np.diff(raw.offsets) // physical.itemsize
            if isinstance(kind, ColumnType):
                made[name] = TypedColumn.trusted(kind, made[name])
            if not self._drops_nulls:
                mask = _raw(columns[f"{prefix}valid{key}"])
                if len(mask.data):
                    valid[name] = _array(mask, np.dtype(np.bool_))
        rows = int(sizes.sum())
        if rows:
            self.add(np.repeat(numbers, sizes), Batch.trusted(made, valid, rows))


class DistinctValues:
    """The distinct values of a column in each group.

    Args:
        name: of the column.
        pairs: an empty table with the keys `GROUP` and `name` and no aggregates.
    """

    def __init__(self, name: str, pairs: PairTable) -> None:
        self._name = name
        self._pairs = pairs
        self._read: KeptRows | None = None
        self._counts: Sizes | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._pairs.nbytes

    @property
    def distinct(self) -> int:
        """As `RowStore.distinct`."""
        return len(self._pairs)

    def add(self, numbers: Positions, batch: Batch) -> None:
        """As `RowStore.add`."""
        values, mask = any_column(batch, self._name)
        self._read = self._counts = None
        self._add(numbers, values, mask)

    def _add(self, numbers: Positions, values: Values, mask: Mask | None) -> None:
        if mask is not None and len(mask) and not mask.all():
            rows = np.flatnonzero(mask)
            numbers, values, mask = numbers[rows], values.take(rows), None
        valid = {} if mask is None else {GROUP: mask, self._name: mask}
        self._pairs.add(Batch.trusted({GROUP: numbers, self._name: values}, valid, len(numbers)))

    def sizes_of(self, places: Places, count: int) -> Sizes:
        """As `RowStore.sizes_of`."""
        groups = places + count if isinstance(places, int) else int(places.max(initial=0)) + 1
        if self._counts is None or len(self._counts) < groups:
            numbers: Any = np.zeros(0, np.uint32)
            if len(self._pairs):
                pairs, _ = self._pairs.results(0, len(self._pairs))
                numbers = pairs.parts()[0][GROUP]
            self._counts = np.bincount(numbers, minlength=groups)
        found: Sizes = self._counts[places : places + count] if isinstance(places, int) else self._counts[places]
        return found

    def rows_of(self, places: Places, count: int) -> tuple[Batch, Sizes]:
        """As `RowStore.rows_of`."""
        return self._rows().rows_of(places, count)

    def renumber(self, order: Positions) -> None:
        """As `RowStore.renumber`."""
        rows, sizes = self.rows_of(order, len(order))
        self._pairs.clear()
        self._read = self._counts = None
        self._add(np.repeat(np.arange(len(order), dtype=np.uint32), sizes), *any_column(rows, self._name))

    def captured(self) -> RowStore:
        """As `RowStore.captured`."""
        return DistinctValues(self._name, self._pairs.captured())

    def copy_steps(self) -> Iterator[None]:
        """As `Groups.copy_steps`."""
        return self._pairs.copy_steps()

    def _rows(self) -> KeptRows:
        """Return the pairs as rows of groups."""
        if self._read is None:
            self._read = KeptRows([self._name], drops_nulls=True)
            head = self._pairs.head()
            if head is not None:
                columns, masks = head.parts()
                mask = {name: masks[name] for name in masks if name != GROUP}
                self._read.kinds.add(Batch.trusted({self._name: columns[self._name]}, mask, 0))
            if len(self._pairs):
                pairs, _ = self._pairs.results(0, len(self._pairs))
                found, _ = pairs.parts()
                numbers: Any = found[GROUP]
                self._read.add(numbers, Batch.trusted({self._name: found[self._name]}, {}, pairs.num_rows))
        return self._read

    def state_parts(self, places: Places, count: int) -> list[StatePart]:
        """As `RowStore.state_parts`."""
        return self._rows().state_parts(places, count)

    def add_states(self, numbers: Positions, states: Batch, prefix: str) -> None:
        """As `RowStore.add_states`."""
        given = KeptRows([self._name], drops_nulls=True)
        given.add_states(np.arange(len(numbers), dtype=np.uint32), states, prefix)
        if not given.kinds.kinds:
            return
        self._read = self._counts = None
        rows, sizes = given.rows_of(0, len(numbers))
        values, mask = any_column(given.kinds.head() if not rows.num_rows else rows, self._name)
        self._add(np.repeat(numbers, sizes), values, mask)


def _stored(values: Values) -> Physical:
    return values.stored if isinstance(values, TypedColumn) else values


def _bytes_of(values: Values, bounds: Sizes) -> Text:
    """Return the bytes of runs of values, each as one value."""
    assert isinstance(values, np.ndarray)
    raw = np.ascontiguousarray(values).view(np.uint8) if len(values) else np.zeros(0, np.uint8)
    return Text.trusted(bounds * values.dtype.itemsize, raw, True)


def _raw(column: Values) -> Text:
    assert isinstance(column, Text)
    return column.compact()


def _array(raw: Text, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    values = np.frombuffer(raw.data.tobytes(), dtype)
    values.flags.writeable = False
    return values
