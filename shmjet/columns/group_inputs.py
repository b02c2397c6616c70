"""`GroupInputs`: what the columns of a batch are to a native table of groups. It decides, and keeps nothing.

A table is made for the forms of its columns. Here the forms of a batch, and forms that take two batches, are found; a
batch's columns are turned into what a table of given forms takes. Must not know what a table holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from shmjet._native._columns import GroupTable
from shmjet.columns.aggregates import Aggregate
from shmjet.columns.group_results import check_numbers
from shmjet.columns.group_schema import (
    AS,
    Dtype,
    StateForm,
    form_in_states,
    key_class,
    merged_key_form,
    mixed_keys,
    state_dtype,
    state_name,
    table_class,
    table_function,
)
from shmjet.columns.promotion import FLOAT64, INT64, UINT64, converted, differing, float_parts, is_known
from shmjet.data.batch import Batch
from shmjet.data.column import Values, physical
from shmjet.data.column_descriptors import descriptor
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask

if TYPE_CHECKING:
    from shmjet._native._columns import Column

MOST_COLUMNS: Final = 1024
"""Keys and aggregates, each, that a table of groups may have: `GROUP_MAX_KEYS` and `GROUP_MAX_AGGREGATES` of C."""

_COUNTED: Final = StateForm(INT64, True)

_WIDER: Final = ("ff", "SS", "UU")
"""Kinds of which a table takes all widths."""

_SUMS: Final = ("sum", "mean", "var", "std")


@final
class GroupInputs:
    """The columns that groups are made of.

    Args:
        keys: names of the key columns.
        aggregates: result column → aggregate, the aggregates that a table keeps.
    """

    __slots__ = ("_aggregates", "_keys")

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self._keys = keys
        self._aggregates = aggregates

    # -- forms ---------------------------------------------------------------------------------------------------------

    def forms(self, batch: Batch) -> list[StateForm]:
        """Return the form of each key, then of each aggregate's state, that the rows of a batch ask for.

        Raises:
            BatchError: a column is missing, or there is no such key or aggregate of its dtype.
        """
        found = [StateForm(*_key_in(batch, name)) for name in self._keys]
        for result, aggregate in self._aggregates.items():
            if aggregate.column is None:
                found.append(_COUNTED)
            else:
                dtype, known = _column_in(batch, aggregate.column)
                found.append(StateForm(state_dtype(result, aggregate, dtype), known))
        return found

    def forms_in_states(self, states: Batch, separator: str) -> list[StateForm]:
        """Return the forms that a batch of partial states has, in whose names there is this separator.

        Raises:
            BatchError: a column is missing.
        """
        columns = states.parts()[0]
        found = [
            StateForm(*_column_in(states, name), state_name(name, AS, separator) in columns) for name in self._keys
        ]
        return found + [form_in_states(states, result, each, separator) for result, each in self._aggregates.items()]

    def merged(self, kept: Sequence[StateForm], found: Sequence[StateForm]) -> list[StateForm]:
        """Return the forms that take what is kept and what comes now.

        Raises:
            BatchError: there is no such form of a column; the text names both dtypes.
        """
        return [
            self._merged_form(place, have, other) for place, (have, other) in enumerate(zip(kept, found, strict=True))
        ]

    def _merged_form(self, place: int, have: StateForm, other: StateForm) -> StateForm:
        if place < len(self._keys):
            if not have.is_known or not other.is_known:
                return other if other.is_known else have
            both = merged_key_form(have, other)
            name = self._keys[place]
        else:
            aggregate = list(self._aggregates.values())[place - len(self._keys)]
            both = have.merged(aggregate, other)
            name = str(aggregate.column)
        if both is None:
            raise differing(name, [have.dtype, other.dtype])
        return both

    # -- the table -----------------------------------------------------------------------------------------------------

    def table(self, kept: Sequence[StateForm]) -> GroupTable:
        """Return an empty table for these forms.

        Raises:
            BatchError: a group has too many columns.
        """
        aggregates = zip(self._aggregates.values(), kept[len(self._keys) :], strict=True)
        letters = "".join(key_class(name, key.dtype) for name, key in zip(self._keys, kept, strict=False))
        functions = [(table_function(each), table_class(each, value)) for each, value in aggregates]
        if len(letters) > MOST_COLUMNS or len(functions) > MOST_COLUMNS:
            raise BatchError(
                f"rows are grouped, or told apart, by at most {MOST_COLUMNS} columns, and groups have at most "
                f"{MOST_COLUMNS} aggregates, got {len(letters)} keys and {len(functions)} aggregates; take fewer, or "
                "group in several steps"
            )
        return GroupTable(letters, functions)

    def layout(self, kept: Sequence[StateForm]) -> list[Any]:
        """Return what has to stay the same for a table to stay: the words that it has for its columns."""
        keys = len(self._keys)
        layout: list[Any] = []
        for place, (aggregate, each) in enumerate(zip((*self._keys, *self._aggregates.values()), kept, strict=True)):
            dtype = each.dtype
            if isinstance(aggregate, Aggregate):
                letter = table_class(aggregate, each)
                is_same = aggregate.function in ("count", *_SUMS) or letter == "m"
            else:
                letter, is_same = key_class(str(aggregate), dtype), False
            if is_same or isinstance(dtype, str) or dtype.kind in "fS":
                layout.append(letter)
            elif dtype.kind in "biuU":
                layout.append((letter, dtype.kind == "U", place < keys and dtype == UINT64))
            else:
                layout.append((letter, dtype))
        return layout

    # -- what a table takes --------------------------------------------------------------------------------------------

    def key_columns(self, batch: Batch, kept: Sequence[StateForm]) -> list[Column]:
        """Return the keys of a batch as a table of these forms takes them.

        Raises:
            BatchError: a value cannot be held exactly.
        """
        columns, masks = batch.parts()
        found: list[Column] = []
        for name, form in zip(self._keys, kept, strict=False):
            try:
                found.append(_fitted(name, columns[name], masks.get(name), form.dtype))
            except BatchError:
                if form.is_mixed:  # there is no float that the text could speak of
                    raise mixed_keys(name) from None
                raise
        return found

    def value_columns(self, batch: Batch, kept: Sequence[StateForm]) -> list[Column | None]:
        """Return the values of a batch's rows as a table of these forms takes them; not where it `must_be_states`."""
        columns, masks = batch.parts()
        found: list[Column | None] = []
        for aggregate, form in zip(self._aggregates.values(), kept[len(self._keys) :], strict=True):
            name = aggregate.column
            if name is None:
                found.append(None)
                continue
            values, mask = columns[name], masks.get(name)
            if aggregate.function == "count":
                found.append(descriptor(values, mask))
            elif aggregate.function in _SUMS:
                assert isinstance(values, np.ndarray)
                if (form.dtype == FLOAT64) != (values.dtype.kind == "f"):  # small integers, or all null
                    values = values.astype(form.dtype) if form.dtype == FLOAT64 else np.zeros(len(values), form.dtype)
                found.append(descriptor(values, mask))
            else:
                found.append(_fitted(name, values, mask, form.dtype))
        return found

    def must_be_states(self, batch: Batch, kept: Sequence[StateForm]) -> bool:
        """Tell whether values have to be taken apart before the table takes them: integers where there are floats."""
        for aggregate, form in zip(self._aggregates.values(), kept[len(self._keys) :], strict=True):
            if form.is_mixed:
                return True
            if aggregate.function in _SUMS and form.dtype == FLOAT64:
                values: Any = batch.parts()[0][str(aggregate.column)]
                if values.dtype.kind in "iu" and values.dtype.itemsize == 8 and float_parts(values)[1].any():
                    return True
        return False


def check_quantiles(batch: Batch, aggregates: Mapping[str, Aggregate]) -> None:
    """Raise BatchError when quantiles are asked of a column that has no numbers."""
    for result, aggregate in aggregates.items():
        if aggregate.function == "quantile":
            dtype, known = _column_in(batch, str(aggregate.column))
            if known:
                check_numbers(result, aggregate, dtype)


def _column_in(batch: Batch, name: str) -> tuple[Dtype, bool]:
    """Return a column's dtype, and whether values have shown it. Raises BatchError when there is no such column."""
    columns, masks = batch.parts()
    if name not in columns:
        raise BatchError(f"expected a column {name!r}, found {[name for name in columns if name[:1] != chr(0)]}")
    return physical(name, columns[name]).dtype, is_known(columns[name], masks.get(name))


def _key_in(batch: Batch, name: str) -> tuple[Dtype, bool]:
    dtype, known = _column_in(batch, name)
    key_class(name, dtype)
    return dtype, known


def _fitted(name: str, values: Values, mask: Mask | None, dtype: Dtype) -> Column:
    """Return a column for the table, which keeps it as `dtype`; the table itself widens numbers of one class."""
    if values.dtype != dtype and not isinstance(dtype, str) and isinstance(values, np.ndarray):
        is_wider = values.dtype.kind + dtype.kind in _WIDER or (
            values.dtype.kind in "biu" and dtype == INT64 and values.dtype != UINT64
        )
        if is_wider:
            return descriptor(values, mask)
    return descriptor(converted(name, values, mask, dtype), mask)
