"""`Groups`: batches go in, one row for each distinct key comes out. The interface of the native group-by table.

The table is made when the first batch shows its dtypes. Where a later batch has a wider dtype the table usually takes
it as it is (it keeps 64-bit words); where it cannot (integers, then floats) it is made anew and its groups are moved
over. Results are the same whichever came first. Must not know of processors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import GroupTable
from shmjet.columns.aggregates import Aggregate
from shmjet.columns.expressions.number_program import Call
from shmjet.columns.expressions.projection import Projection
from shmjet.columns.extreme_rows import ExtremeRows
from shmjet.columns.group_inputs import GroupInputs, check_quantiles
from shmjet.columns.group_page import GroupPage, Places, Positions
from shmjet.columns.group_results import RowResults
from shmjet.columns.group_rows import GROUP, DistinctValues, KeptRows, PairTable, RowStore
from shmjet.columns.group_schema import (
    AS,
    StateForm,
    check_names,
    parts,
    state_name,
    state_separator,
    with_mixed_keys,
)
from shmjet.columns.group_states import Part, finished, states_as, states_of_rows
from shmjet.columns.promotion import UINT64
from shmjet.data.batch import Batch
from shmjet.data.column import not_exact
from shmjet.data.column_descriptors import descriptor

_MOVED_AT_ONCE: Final = 1 << 16
"""Groups in a batch when a table is made anew."""

_COPIED_AT_ONCE: Final = 64
"""Blocks of 4 KiB that are copied in a step."""

ANY_NUMBER: Final = (1 << 64) - 1
"""Groups that `note_updates` notes, where none are too many."""

_NOTHING: Final = np.zeros(0, np.bool_)
_NOTHING.flags.writeable = False

_SERIALS = itertools.count()


@final
class Groups:
    """Groups rows by key columns and keeps aggregates of each group.

    Nulls are keys of their own, and so is NaN; nulls in other columns are skipped. Groups are in the order in which
    their first rows came, and have fixed positions from 0 on, so that they can be read in steps, also between `add`s.

    Args:
        keys: the key columns; none at all makes one group of all rows.
        aggregates: result column → aggregate.
        pairs: makes the tables of distinct values from the names of their keys.

    Raises:
        BatchError: a result has the name of a key, or a name is there twice.

    Example:
        >>> from shmjet.columns.aggregates import count, sum_
        >>> groups = Groups(["city"], {"total": sum_("n"), "rows": count()})
        >>> groups.add(Batch({"city": ["Rome", "Oslo", "Rome"], "n": [1, 2, 3]}))
        >>> groups.results(0, 100)[0].to_dict()
        {'city': ['Rome', 'Oslo'], 'total': [4, 2], 'rows': [2, 1]}
    """

    __slots__ = (
        *("_aggregates", "_all", "_columns", "_found", "_kept", "_keys", "_made", "_order", "_pairs", "_separator"),
        *("_stores", "_table", "serial"),
    )

    def __init__(
        self,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        pairs: Callable[[Sequence[str]], PairTable] | None = None,
    ) -> None:
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._all = dict(aggregates)
        self._pairs = pairs or _pairs
        check_names(self._keys, self._all)
        self._aggregates = {result: each for result, each in self._all.items() if not each.keeps_rows}
        made = {name: one for each in self._all.values() for name, one in each.expressions.items()}
        self._made = Projection(made, keep=True) if made else None
        self._columns = GroupInputs(self._keys, self._aggregates)
        self._separator = state_separator(self._keys)
        self.clear()

    def clear(self) -> None:
        """Forget all groups and dtypes, and give the memory back."""
        self._table: GroupTable | None = None
        self.serial = next(_SERIALS)
        """Another number whenever groups get other positions."""
        self._found: list[StateForm] = []
        self._kept: list[StateForm] = []
        self._order: Positions | None = None
        self._stores: dict[tuple[str, str | None], tuple[str, RowStore]] = {}  # with the first result of each
        for result, aggregate in self._all.items():
            if aggregate.keeps_rows and aggregate.kept_rows not in self._stores:
                self._stores[aggregate.kept_rows] = result, self._store(aggregate)

    def empty(self) -> bool:
        """Forget all groups, but keep the memory and the dtypes for others.

        Returns:
            False: it could not, because groups keep rows, or are still looked at by a capture; they are as they were.
        """
        if self._stores or self._table is None or not self._table.empty():
            return False
        self.serial = next(_SERIALS)
        self._order = None
        return True

    def _store(self, aggregate: Aggregate) -> RowStore:
        name = aggregate.column
        if aggregate.function == "n_unique":
            return DistinctValues(str(name), self._pairs((GROUP, str(name))))
        if aggregate.by is not None or aggregate.order is not None:
            return _extreme_rows(aggregate)
        return KeptRows(None if name is None else [name], drops_nulls=aggregate.function == "quantile")

    def __len__(self) -> int:
        return 0 if self._table is None else len(self._table)

    @property
    def entries(self) -> int:
        """How many groups there are, or distinct values of groups where these are more: what the rows have become."""
        return max((len(self), *(store.distinct for _, store in self._stores.values())))

    @property
    def nbytes(self) -> int:
        """Bytes that the groups take."""
        table = 0 if self._table is None else self._table.nbytes
        return table + sum(store.nbytes for _, store in self._stores.values())

    # -- in ------------------------------------------------------------------------------------------------------------

    def add(self, batch: Batch, given: Batch | None = None, numbers: Positions | None = None) -> None:
        """Add the rows of a batch.

        Args:
            batch: the rows.
            given: what functions of users get of the same rows; by default the batch.
            numbers: gets the position of the group of each row; groups must not have been arranged.

        Raises:
            BatchError: a column is missing, or its dtype fits neither the aggregate nor the batches before; then only
                `clear` is left.
        """
        given = batch if given is None else given
        if self._made is not None:
            batch = self._made.apply(batch)
        found = self._columns.forms(batch)
        check_quantiles(batch, self._all)
        self._widen(found)
        self._make_room(batch, found)
        if numbers is None:
            numbers = np.empty(batch.num_rows if self._stores else 0, np.uint32)
        self._add_rows(batch, numbers)
        for (_, column), (_, store) in self._stores.items():
            store.add(numbers, given if column is None else batch)

    @property
    def takes_computed(self) -> bool:
        """Whether `add_computed` may be called: all rows are one group, which is there, and no values are kept."""
        return self._table is not None and not self._keys and not self._stores and len(self._table) == 1

    def add_computed(self, call: Call, forms: list[StateForm], registers: bytes, condition: Call | None = None) -> bool:
        """Add values as they are computed, when it `takes_computed`.

        Args:
            call: the program, whose results stay in registers, and its columns.
            forms: of each aggregate's state, which the values ask for.
            registers: of each aggregate, as `GroupTable.add_computed` takes them.
            condition: gives the rows that are added as bools without nulls; None: the rows that `call` computes are.

        Returns:
            False: nothing was added: a value has left its type, or the batches before had other types.
        """
        if forms != self._found or forms != self._kept:
            return False
        assert self._table is not None
        program = call.program
        chosen: Any = call.chosen
        if condition is not None:
            by = condition.program
            chosen = by.code, condition.columns, by.values, by.places[0][0]
        return not self._table.add_computed(program.code, call.columns, program.values, registers, call.rows, chosen)

    def _add_rows(self, batch: Batch, numbers: Positions) -> None:
        if not batch.num_rows:
            return
        if self._columns.must_be_states(batch, self._kept):
            columns = [
                states_of_rows(batch, aggregate, kept)
                for aggregate, kept in zip(self._aggregates.values(), self._kept[len(self._keys) :], strict=True)
            ]
            self._merge(batch, columns, numbers)
            return
        assert self._table is not None
        out = (numbers,) if len(numbers) else ()
        keys, values = self._columns.key_columns(batch, self._kept), self._columns.value_columns(batch, self._kept)
        self._table.add(keys, values, batch.num_rows, *out)

    def merge(self, states: Batch, are_new: bool = False) -> None:
        """Merge partial states, which `states()` or `head()` of Groups with the same keys and aggregates gave.

        Args:
            states: of groups.
            are_new: none of the groups is there, nor twice among these; it is not checked.

        Raises:
            BatchError: as `add`.
        """
        found = self._columns.forms_in_states(states, self._separator)
        self._widen(found)
        self._make_room(states, found)
        numbers = np.empty(states.num_rows if self._stores else 0, np.uint32)
        if states.num_rows:
            self._merge_states(states, found, numbers, are_new)
        for result, store in self._stores.values():
            store.add_states(numbers, states, state_name(result, "", self._separator))

    def _merge_states(
        self, states: Batch, found: Sequence[StateForm], numbers: Positions, are_new: bool = False
    ) -> None:
        keys = len(self._keys)
        aggregates = zip(self._aggregates.items(), found[keys:], self._kept[keys:], strict=True)
        columns = [
            states_as(states, result, each, has, kept, self._separator) for (result, each), has, kept in aggregates
        ]
        self._merge(states, columns, numbers, are_new)

    def _merge(
        self, batch: Batch, columns: Iterable[Sequence[Part]], numbers: Positions, are_new: bool = False
    ) -> None:
        assert self._table is not None
        parts = [descriptor(values, valid) for state in columns for values, valid in state]
        out = (numbers,) if len(numbers) else ()
        merge = self._table.load if are_new else self._table.merge
        merge(self._columns.key_columns(batch, self._kept), parts, batch.num_rows, *out)

    def _widen(self, found: list[StateForm]) -> None:
        """Note the dtypes of a batch, and make the table anew where it cannot hold what comes now."""
        if found == self._found and self._table is not None:
            return
        kept = self._columns.merged(self._kept, found) if self._kept else found
        if self._table is None or self._columns.layout(kept) != self._columns.layout(self._kept):
            moved, before = list(self._chunks()), self._kept
            kept = with_mixed_keys(self._keys, kept, moved)
            self._table = self._columns.table(kept)
            self._kept = kept
            self.serial = next(_SERIALS)
            if self._order is not None:  # they are moved in order
                rest = np.arange(len(self._order), sum(states.num_rows for states in moved), dtype=np.uint32)
                for _, store in self._stores.values():
                    store.renumber(np.concatenate([self._order, rest]))
                self._order = None
            for states in moved:
                self._merge_states(states, before, np.empty(0, np.uint32))
        self._kept, self._found = kept, found

    def _make_room(self, batch: Batch, found: Sequence[StateForm]) -> None:
        """Keep keys of a batch as floats where it has negative integers, and others have been 2**63 or more."""
        mixed = with_mixed_keys(self._keys, self._kept, [batch])
        if mixed != self._kept:
            keys = len(self._keys)
            self._widen([*mixed[:keys], *found[keys:]])

    def _chunks(self) -> Iterator[Batch]:
        position = 0
        while position >= 0 and len(self):
            states, position = self._read(position, _MOVED_AT_ONCE, self._table_columns, self._mark)
            yield states

    # -- out -----------------------------------------------------------------------------------------------------------

    def head(self) -> Batch | None:
        """Return states without rows, which say what all others are; None before the first `add`.

        A column has a mask, without rows too, where values have shown what it is. To merge the states of several
        Groups, merge all their heads before you read results, which then have one schema.
        """
        if self._table is None:
            return None
        page = GroupPage(self._table, 0, 0)
        for name, kept in zip(self._keys, self._kept, strict=False):
            page.put(name, page.field(kept.dtype)[0], _NOTHING if kept.is_known else None)
            self._mark(page, name, kept)
        self._state_columns(page)
        return Batch.trusted(page.columns, page.validity, 0)

    def states(self, position: int, limit: int) -> tuple[Batch, int]:
        """Return the partial states of at most `limit` groups from `position` on, and the next position, -1 at the end.

        The batch has the key columns, then for each aggregate the columns of its state, named `result#part`.
        """
        return self._read(position, limit, self._state_columns, self._mark)

    def results(self, position: int, limit: int) -> tuple[Batch, int]:
        """Return the finished rows of at most `limit` groups from `position` on, and the next position, -1 at the end.

        The batch has the key columns in their dtypes, then a column for each aggregate.

        Raises:
            BatchError: the sum of integers leaves its dtype, or the dtype of its column cannot hold a value.
        """
        return self._read(position, limit, self._result_columns, self._unmixed)

    def _read(
        self,
        position: int,
        limit: int,
        read: Callable[[GroupPage], None],
        look_at_key: Callable[[GroupPage, str, StateForm], None],
    ) -> tuple[Batch, int]:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        if not 0 <= position <= len(self):
            raise ValueError(f"position must be from 0 to {len(self)}, the number of groups, got {position}")
        if self._table is None:
            return Batch({}), -1
        count = min(limit, len(self) - position)
        following = position + count
        batch = self._read_at(self._places(position, count), count, read, look_at_key)
        return batch, following if following < len(self) else -1

    def _read_at(
        self,
        places: Places,
        count: int,
        read: Callable[[GroupPage], None],
        look_at_key: Callable[[GroupPage, str, StateForm], None],
    ) -> Batch:
        assert self._table is not None
        page = GroupPage(self._table, places, count)
        for name, kept in zip(self._keys, self._kept, strict=False):
            page.put(name, *page.field(kept.dtype))
            look_at_key(page, name, kept)
        read(page)
        return page.batch()

    def _places(self, position: int, count: int) -> Places:
        """Return where in the table the groups from a position on are."""
        if self._order is None or position >= len(self._order):
            return position
        rest = np.arange(len(self._order), position + count, dtype=np.uint32)
        return (
            np.concatenate([self._order[position : position + count], rest])
            if len(rest)
            else self._order[position : position + count]
        )

    def _mark(self, page: GroupPage, name: str, kept: StateForm) -> None:
        """Say in states that a key is kept as floats although there has been no float."""
        if kept.is_mixed:
            page.put(state_name(name, AS, self._separator), np.zeros(page.rows, UINT64), None)

    @staticmethod
    def _unmixed(page: GroupPage, name: str, kept: StateForm) -> None:
        """Make results of a key that is kept as floats although there has been no float integers again.

        Raises:
            BatchError: one is negative. Only the processor that has a negative key raises it.
        """
        if kept.is_mixed:
            values: Any = page.columns[name]
            if (values < 0).any():
                raise not_exact(name, int(values.min()), UINT64)
            page.put(name, values.astype(UINT64), page.validity.get(name))

    def _state_columns(self, page: GroupPage) -> None:
        self._table_columns(page)
        for result, store in self._stores.values():
            for part, values, valid in store.state_parts(page.places, page.rows):
                page.put(state_name(result, part, self._separator), values, valid)

    def _table_columns(self, page: GroupPage) -> None:
        for (result, aggregate), kept in zip(self._aggregates.items(), self._kept[len(self._keys) :], strict=True):
            for place, (part, dtype) in enumerate(parts(aggregate, kept)):
                values, valid = page.field(dtype)
                if not page.rows:
                    valid = _NOTHING if place == 0 and kept.is_known else None
                elif place == 0 and not kept.is_known and aggregate.function != "count":
                    valid = np.zeros(page.rows, np.bool_)
                page.put(state_name(result, part, self._separator), values, valid)
            if kept.is_mixed:
                page.put(state_name(result, AS, self._separator), np.zeros(page.rows, kept.dtype), None)

    def _result_columns(self, page: GroupPage) -> None:
        kept = iter(self._kept[len(self._keys) :])
        rows = RowResults(page.places, page.rows)
        for result, aggregate in self._all.items():
            if aggregate.keeps_rows:
                page.put(result, *rows.of(result, aggregate, self._stores[aggregate.kept_rows][1]))
            else:
                form = next(kept)
                fields = [page.field(dtype) for _, dtype in parts(aggregate, form)]
                page.put(result, *finished(result, aggregate, form, fields))

    # -- saving --------------------------------------------------------------------------------------------------------

    def key_columns(self, position: int, limit: int) -> Batch:
        """Return the keys of at most `limit` groups from `position` on, without their states."""
        count = min(limit, len(self) - position)
        return self._read_at(self._places(position, count), count, lambda _: None, lambda *_: None)

    def states_at(self, positions: Positions) -> Batch:
        """Return partial states as `states` does, of the groups at some positions, in any order."""
        return self._read_at(self._arranged(positions), len(positions), self._state_columns, self._mark)

    def results_at(self, positions: Positions) -> Batch:
        """Return finished rows as `results` does, of the groups at some positions, in any order."""
        return self._read_at(self._arranged(positions), len(positions), self._result_columns, self._unmixed)

    def key_words(self, place: int, position: int) -> npt.NDArray[np.int64]:
        """Return one of the keys, of integers without nulls, of all groups from a position on.

        Args:
            place: of the key among the keys.
            position: of the first group, in order of arrival.
        """
        count = len(self) - position
        words, valid = np.empty(count, np.int64), np.empty(count, np.bool_)
        if self._table is not None:
            self._table.read_words(place, position, count, words, valid)
        return words

    def _arranged(self, positions: Positions) -> Positions:
        order = self._order
        if order is None:
            return positions
        known = np.minimum(positions, np.uint32(len(order) - 1))
        return np.where(positions < len(order), order[known], positions)

    def arrange(self, order: Positions | None) -> None:
        """Give the groups that there are other positions; later ones follow them.

        Args:
            order: for each position, from 0 on, the number of the group that was merged or added at that place; None
                for that of arrival.
        """
        self._order = order
        self.serial = next(_SERIALS)

    def captured(self) -> Groups:
        """Return the groups of this moment, to be read only, whatever is added to these.

        They are read when `copy_steps` has come to its end.
        """
        table = None if self._table is None else self._table.capture()
        stores = {key: (result, store.captured()) for key, (result, store) in self._stores.items()}
        made = self._of((self._keys, self._all, self._kept, self._order, stores, self._pairs), table)
        made._stores = stores
        return made

    def note_updates(self, most: int = ANY_NUMBER) -> None:
        """Begin to note which groups get rows, until they are more than `most`."""
        if self._table is not None:
            self._table.note_updates(most)

    def take_updates(self) -> npt.NDArray[np.bool_] | None:
        """Tell of each group, by position, whether it has got rows since `note_updates`, and stop noting.

        None: that is not known: it was not noted, or too many did, or the groups have moved to another table.
        """
        found = None if self._table is None else self._table.take_updates()
        if found is None:
            return None
        flags = np.frombuffer(found, np.bool_)
        return flags if self._order is None else flags[self._places(0, len(flags))]

    def copy_steps(self) -> Iterator[None]:
        """Copy captured groups; each item drawn is a step of some 50 microseconds."""
        while self._table is not None and self._table.copy_on(_COPIED_AT_ONCE):
            yield None
        for _, store in self._stores.values():
            yield from store.copy_steps()

    # -- handing over --------------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor of the memory that holds the groups, -1 when there is none yet.

        Another process that gets it, and `description`, has the groups by `attach` at once, whatever their size; this
        one must not use them any more.
        """
        return -1 if self._table is None else self._table.fileno()

    @property
    def description(self) -> tuple[Any, ...]:
        """What `attach` needs with the descriptor; picklable, and small unless groups are arranged or keep rows."""
        return self._keys, self._all, tuple(self._kept), self._order, self._stores, self._pairs

    @classmethod
    def attach(cls, fd: int, description: tuple[Any, ...]) -> Groups:
        """Return the groups that another process described. `fd` is duplicated; -1 stands for no groups yet.

        Raises:
            ValueError: the descriptor is not that of a table.
        """
        return cls._of(description, GroupTable.attach(fd) if fd >= 0 else None)

    @classmethod
    def _of(cls, description: tuple[Any, ...], table: GroupTable | None) -> Groups:
        keys, aggregates, kept, order, stores, pairs = description
        self = cls(keys, aggregates, pairs)
        if table is not None:
            self._table = table
            self._kept = list(kept)
            self._order = order
            self._stores = stores
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Groups._of, (self.description, self._table)

    def __repr__(self) -> str:
        aggregates = ", ".join(f"{result}={aggregate!r}" for result, aggregate in self._all.items())
        return f"Groups({list(self._keys)}, {aggregates}; {len(self)} groups)"


def _pairs(names: Sequence[str]) -> PairTable:
    return Groups(names, {})


def _extreme_rows(aggregate: Aggregate) -> ExtremeRows:
    name, by, order = str(aggregate.column), aggregate.by, aggregate.order
    if by is not None:
        return ExtremeRows(name, by, takes_greatest=aggregate.function == "max_by", known=by, order=order)
    is_last = aggregate.function == "last"
    return ExtremeRows(name, str(order), takes_greatest=is_last, known=name, takes_last=is_last)
