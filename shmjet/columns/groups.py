"""`Groups`: batches go in, one row for each distinct key comes out. The face of the native group-by table.

The table is made when the first batch shows its dtypes. Where a later batch has a wider dtype the table usually takes
it as it is (it keeps 64-bit words); where it cannot (days, then seconds) it is made anew and its groups are moved over.
Must not know of processors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import GroupTable
from shmjet.columns.aggregates import Aggregate
from shmjet.columns.group_schema import (
    FLOAT64,
    Dtype,
    check_names,
    column_dtype,
    key_class,
    parts,
    state_column,
    state_dtype,
    state_name,
    table_class,
    widened,
    widened_key,
)
from shmjet.ring.batch import Batch, stored_column
from shmjet.ring.column import Values
from shmjet.ring.descriptors import descriptor
from shmjet.ring.errors import BatchError
from shmjet.ring.text import Mask, Text

if TYPE_CHECKING:
    from shmjet._native._columns import Column

_MOVED_AT_ONCE: Final = 1 << 16
"""Groups in a batch when a table is made anew."""


@final
class Groups:
    """Groups rows by key columns and keeps aggregates of each group.

    Nulls are keys of their own, and so is NaN; nulls in other columns are skipped. Groups are in the order in which
    their first rows came, and have fixed positions from 0 on, so that they can be read in steps, also between `add`s.

    Args:
        keys: the key columns; none at all makes one group of all rows.
        aggregates: result column → aggregate.

    Raises:
        BatchError: a result has the name of a key, or a name is there twice.

    Example:
        >>> from shmjet.columns.aggregates import count, sum_
        >>> groups = Groups(["city"], {"total": sum_("n"), "rows": count()})
        >>> groups.add(Batch({"city": ["Rome", "Oslo", "Rome"], "n": [1, 2, 3]}))
        >>> groups.results(0, 100)[0].to_dict()
        {'city': ['Rome', 'Oslo'], 'total': [4, 2], 'rows': [2, 1]}
    """

    __slots__ = ("_aggregates", "_key_dtypes", "_keys", "_settled", "_table", "_value_dtypes")

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._aggregates = dict(aggregates)
        check_names(self._keys, self._aggregates)
        self.clear()

    def clear(self) -> None:
        """Forget all groups and dtypes, and give the memory back."""
        self._table: GroupTable | None = None
        self._key_dtypes: list[Dtype] = []
        self._value_dtypes: list[Dtype] = []
        self._settled: set[int] = set()  # places among keys and aggregates that have had a value that is not null

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)

    @property
    def nbytes(self) -> int:
        """Bytes that the groups take."""
        return 0 if self._table is None else self._table.nbytes

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Add the rows of a batch.

        Raises:
            BatchError: a column is missing or its dtype fits neither the aggregate nor the batches before; a sum of
                integers left int64, after which only `clear` is left.
        """
        names = [*self._keys, *(aggregate.column for aggregate in self._aggregates.values())]
        self._update(batch, names, is_merge=False)

    def merge(self, states: Batch) -> None:
        """Merge partial states, which `states()` of Groups with the same keys and aggregates gave. Raises as `add`."""
        self._update(states, self._state_names(), is_merge=True)

    def _state_names(self) -> list[str | None]:
        return [*self._keys, *(state_column(result, each) for result, each in self._aggregates.items())]

    def _update(self, batch: Batch, names: Sequence[str | None], *, is_merge: bool) -> None:
        keys = len(self._keys)
        found: list[Dtype] = [column_dtype(batch, str(name)) for name in names[:keys]]
        for name, (result, aggregate) in zip(names[keys:], self._aggregates.items(), strict=True):
            dtype = np.dtype(np.int64) if name is None else column_dtype(batch, name)
            found.append(state_dtype(result, aggregate, dtype))
        if (len(self) == 0 and found != [*self._key_dtypes, *self._value_dtypes]) or self._table is None:
            self._make(found)
        if batch.num_rows == 0:
            return
        self._settle(batch, names, found)
        self._absorb(batch, names, is_merge=is_merge)

    def _absorb(self, batch: Batch, names: Sequence[str | None], *, is_merge: bool) -> None:
        keys, table, columns = len(self._keys), self._table, self._columns(batch, names, is_merge)
        assert table is not None
        try:
            (table.merge if is_merge else table.add)(columns[:keys], columns[keys:], batch.num_rows)  # type: ignore[arg-type]
        except OverflowError as overflow:
            result = list(self._aggregates)[overflow.args[0]]
            raise BatchError(
                f"the sum of column {self._aggregates[result].column!r} (result {result!r}) leaves 64 bits; "
                "make the column float64 if that is precise enough"
            ) from None

    def _make(self, dtypes: Sequence[Dtype]) -> None:
        keys = len(self._keys)
        letters = "".join(map(key_class, self._keys, dtypes))
        aggregates = zip(self._aggregates.values(), dtypes[keys:], strict=True)
        self._table = GroupTable(letters, [(each.function, table_class(each, dtype)) for each, dtype in aggregates])
        self._key_dtypes, self._value_dtypes = list(dtypes[:keys]), list(dtypes[keys:])

    def _settle(self, batch: Batch, names: Sequence[str | None], found: Sequence[Dtype]) -> None:
        """Widen the columns' dtypes as this batch asks for, and make the table anew where it cannot stay."""
        have = [*self._key_dtypes, *self._value_dtypes]
        wanted = list(have)
        for place, name in enumerate(names):
            mask = None if name is None else batch.validity(name)
            is_null = mask is not None and not mask.any()
            if not is_null and found[place] != have[place]:
                widen = widened_key if place < len(self._keys) else widened
                wider = widen(have[place], found[place]) if place in self._settled else found[place]
                if wider is None:
                    raise BatchError(f"column {name!r} changes its dtype: expected {have[place]}, found {found[place]}")
                wanted[place] = wider
            if not is_null:
                self._settled.add(place)
        if wanted == have:
            return
        if self._must_move(have, wanted):
            moved = list(self._chunks())
            self._make(wanted)
            for states in moved:
                self._absorb(states, self._state_names(), is_merge=True)
        keys = len(self._keys)
        self._key_dtypes, self._value_dtypes = wanted[:keys], wanted[keys:]

    def _must_move(self, have: Sequence[Dtype], wanted: Sequence[Dtype]) -> bool:
        for before, after in zip(have, wanted, strict=True):
            if before == after:
                continue
            kinds = {"t" if isinstance(dtype, str) else dtype.kind for dtype in (before, after)}
            is_unsigned = [not isinstance(dtype, str) and dtype == np.dtype(np.uint64) for dtype in (before, after)]
            if not (kinds <= set("biu") or kinds in ({"f"}, {"S"}, {"U"})) or is_unsigned[0] != is_unsigned[1]:
                return True
        return False

    def _chunks(self) -> Iterator[Batch]:
        position = 0
        while position >= 0 and len(self):
            states, position = self.states(position, _MOVED_AT_ONCE)
            yield states

    def _columns(self, batch: Batch, names: Sequence[str | None], is_merge: bool) -> list[Column | None]:
        keys = len(self._keys)
        columns: list[Column | None] = [
            _fitted(batch, str(name), dtype) for name, dtype in zip(names[:keys], self._key_dtypes, strict=True)
        ]
        for name, (result, aggregate), dtype in zip(
            names[keys:], self._aggregates.items(), self._value_dtypes, strict=True
        ):
            if is_merge:
                columns += [_part(batch, name, state_name(result, part), as_) for part, as_ in parts(aggregate, dtype)]
            elif name is None:
                columns.append(None)
            elif aggregate.function in ("count", "mean", "var", "sum"):
                columns.append(_fitted(batch, name, dtype if aggregate.function == "sum" else None))
            else:
                columns.append(_fitted(batch, name, dtype))
        return columns

    # -- out -----------------------------------------------------------------------------------------------------------

    def states(self, position: int, limit: int) -> tuple[Batch, int]:
        """Return the partial states of at most `limit` groups from `position` on, and the next position, -1 at the end.

        The batch has the key columns, then for each aggregate the columns of its state, named `result#part`.
        """
        return self._read(position, limit, self._state_columns)

    def results(self, position: int, limit: int) -> tuple[Batch, int]:
        """Return the finished rows of at most `limit` groups from `position` on, and the next position, -1 at the end.

        The batch has the key columns in their dtypes, then a column for each aggregate.
        """
        return self._read(position, limit, self._result_columns)

    def _read(self, position: int, limit: int, read: Callable[[_Page], None]) -> tuple[Batch, int]:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if not 0 <= position <= len(self):
            raise ValueError(f"position must be from 0 to {len(self)}, the number of groups, got {position}")
        if self._table is None:
            return Batch({}), -1
        page = _Page(self._table, position, min(limit, len(self) - position))
        for name, dtype in zip(self._keys, self._key_dtypes, strict=True):
            page.put(name, *page.field(dtype))
        read(page)
        following = position + page.rows
        return Batch.trusted(page.columns, page.validity, page.rows), following if following < len(self) else -1

    def _state_columns(self, page: _Page) -> None:
        for (result, aggregate), dtype in zip(self._aggregates.items(), self._value_dtypes, strict=True):
            for part, part_dtype in parts(aggregate, dtype):
                page.put(state_name(result, part), *page.field(part_dtype))

    def _result_columns(self, page: _Page) -> None:
        for (result, aggregate), dtype in zip(self._aggregates.items(), self._value_dtypes, strict=True):
            fields = [page.field(part_dtype) for _, part_dtype in parts(aggregate, dtype)]
            page.put(result, *_finished(aggregate, dtype, fields))

    # -- handing over --------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor of the memory that holds the groups, -1 when there is none yet.

        Another process that gets it, and `description`, has the groups by `attach` at once, whatever their size; this
        one must not use them any more.
        """
        return -1 if self._table is None else self._table.fileno()

    @property
    def description(self) -> tuple[Any, ...]:
        """What `attach` needs besides the descriptor; small and picklable."""
        return self._keys, self._aggregates, (*self._key_dtypes, *self._value_dtypes), frozenset(self._settled)

    @classmethod
    def attach(cls, fd: int, description: tuple[Any, ...]) -> Groups:
        """Return the groups that another process described. `fd` is duplicated; -1 stands for no groups yet.

        Raises:
            ValueError: the descriptor is not that of a table.
        """
        return cls._of(description, GroupTable.attach(fd) if fd >= 0 else None)

    @classmethod
    def _of(cls, description: tuple[Any, ...], table: GroupTable | None) -> Groups:
        keys, aggregates, dtypes, settled = description
        self = cls(keys, aggregates)
        if table is not None:
            self._table = table
            self._key_dtypes, self._value_dtypes = list(dtypes[: len(keys)]), list(dtypes[len(keys) :])
            self._settled = set(settled)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Groups._of, (self.description, self._table)

    def __repr__(self) -> str:
        aggregates = ", ".join(f"{result}={aggregate!r}" for result, aggregate in self._aggregates.items())
        return f"Groups({list(self._keys)}, {aggregates}; {len(self)} groups)"


class _Page:
    """Reads one field after the other of some groups, and collects columns."""

    def __init__(self, table: GroupTable, position: int, rows: int) -> None:
        self.rows = rows
        self.columns: dict[str, Values] = {}
        self.validity: dict[str, Mask] = {}
        self._table = table
        self._position = position
        self._field = 0

    def field(self, dtype: Dtype) -> tuple[Values, Mask | None]:
        """Return the next field of the table as a column of `dtype`."""
        field, self._field = self._field, self._field + 1
        where = field, self._position, self.rows
        valid = np.empty(self.rows, np.bool_)
        if isinstance(dtype, str) or dtype.kind in "SUVc" or dtype.itemsize > 8:
            offsets = np.empty(self.rows + 1, np.int64)
            has_nulls = self._table.read_offsets(*where, offsets, valid)
            if isinstance(dtype, str):
                data = np.empty(int(offsets[-1]), np.uint8)
                self._table.read_data(*where, data, 0)
                return Text.trusted(offsets, data, dtype == "bytes"), valid if has_nulls else None
            values: npt.NDArray[Any] = np.empty(self.rows, dtype)
            self._table.read_data(*where, values.view(np.uint8) if self.rows else values, dtype.itemsize)
            return values, valid if has_nulls else None
        words = np.empty(self.rows, FLOAT64 if dtype.kind == "f" else np.int64)
        has_nulls = self._table.read_words(*where, words, valid)
        values = words.view(dtype) if dtype.itemsize == 8 else words.astype(dtype)
        return values, valid if has_nulls else None

    def put(self, name: str, values: Values, valid: Mask | None) -> None:
        """Add a column to the batch."""
        for array in (values, valid):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        self.columns[name] = values
        if valid is not None:
            self.validity[name] = valid


def _fitted(batch: Batch, name: str, dtype: Dtype | None) -> Column:
    """Return a column for the table, which keeps it as `dtype` (None: as it is); numbers need no conversion."""
    values, valid = stored_column(batch, name)
    if dtype is None or values.dtype == dtype:
        return descriptor(values, valid)
    kind = "t" if isinstance(dtype, str) else dtype.kind
    found = "t" if isinstance(values, Text) else values.dtype.kind
    if valid is not None and not valid.any() and kind != found:  # all null: it does not matter what is under them
        empty = Text.of([""] * len(values)) if isinstance(dtype, str) else np.zeros(len(values), dtype)
        return descriptor(empty, valid)
    if kind in "mMcV" and not isinstance(dtype, str) and not isinstance(values, Text):
        values = values.astype(dtype)
    return descriptor(values, valid)


def _part(states: Batch, value: str | None, name: str, dtype: Dtype) -> Column:
    """Return a part of a state. A sum that is null all through may be that of another dtype, and lack a part."""
    if name not in states and value is not None:
        mask = states.validity(value)
        if mask is not None and not mask.any():
            return descriptor(np.zeros(states.num_rows), mask)
    column_dtype(states, name)
    return _fitted(states, name, dtype)


def _finished(
    aggregate: Aggregate, dtype: Dtype, fields: Sequence[tuple[Values, Mask | None]]
) -> tuple[Values, Mask | None]:
    """Return an aggregate's result of the parts of its state."""
    arrays: list[Any] = [values for values, _ in fields]
    if aggregate.function == "sum" and dtype == FLOAT64:
        return _compensated(*arrays), fields[0][1]
    if aggregate.function not in ("mean", "var"):
        return fields[0]
    with np.errstate(all="ignore"):
        if aggregate.function == "mean":
            count = arrays[2]
            values, valid = _compensated(*arrays[:2]) / count, count > 0
        else:
            count = arrays[0] - aggregate.ddof
            values, valid = arrays[2] / count, count > 0
    return np.where(valid, values, 0.0), None if valid.all() else valid


def _compensated(sums: npt.NDArray[np.float64], errors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Add the rounding errors; there are none, but NaNs, where a sum is infinite."""
    return sums + np.where(np.isfinite(sums), errors, 0.0)
