"""Nested columns as Parquet has them: the values of each leaf in a row, with levels that say how they were nested.

The definition level of an entry counts how many of the optional and repeated parts on the way to the leaf are there;
the repetition level says which of the lists on the way goes on, 0 for a new row. The scheme is Dremel's
(https://research.google/pubs/pub36632). Must not know files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.data.text import Mask, Text
from shmjet.spark.back.column_conversion import Fitted, Nested
from shmjet.spark.back.schemas import Column

Levels: TypeAlias = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Leaf:
    """A column without parts, and where in the file's schema it is.

    Args:
        column: of which the pages are.
        path: names from the top to it, those of the groups between included.
        definition, repetition: its highest levels.
    """

    column: Column
    path: tuple[str, ...]
    definition: int
    repetition: int


@dataclass(frozen=True)
class Entries:
    """What a leaf has for some rows.

    Args:
        values: the values that are not null.
        definition, repetition: levels of all entries, None where all have the highest and 0, respectively.
        count: of the entries.
    """

    values: npt.NDArray[Any] | Text
    definition: Levels | None
    repetition: Levels | None
    count: int


def leaves_of(columns: Sequence[Column]) -> tuple[Leaf, ...]:
    """Return the leaves of columns, in the order of their pages.

    Example:
        >>> tags = Column("tags", "list", parts=(Column("element", "text"),))
        >>> [(leaf.path, leaf.definition, leaf.repetition) for leaf in leaves_of([tags])]
        [(('tags', 'list', 'element'), 3, 1)]
    """
    return tuple(leaf for column in columns for leaf in _leaves(column, Leaf(column, (), 0, 0), True))


GROUPS = {"list": "list", "map": "key_value"}
"""What the repeated groups of lists and maps are called."""


def _leaves(column: Column, above: Leaf, optional: bool) -> Iterator[Leaf]:
    here = Leaf(column, (*above.path, column.name), above.definition + optional, above.repetition)
    if not column.parts:
        yield here
        return
    if column.kind in GROUPS:
        path = (*here.path, GROUPS[column.kind])
        here = replace(here, path=path, definition=here.definition + 1, repetition=here.repetition + 1)
    for part in column.parts:
        yield from _leaves(part, here, is_optional(column, part))


def is_optional(column: Column, part: Column) -> bool:
    """Whether a part may be null in the file: all but the keys of maps."""
    return column.kind != "map" or part is not column.parts[0]


def shredded(column: Column, fitted: Fitted, start: int, stop: int) -> list[Entries]:
    """Return what the leaves of a column have for the rows from `start` to `stop`, in the order of `leaves_of`."""
    values, mask = fitted
    if not isinstance(values, Nested):
        values, mask = values[start:stop], None if mask is None else mask[start:stop]
        if mask is None or mask.all():
            return [Entries(values, None, None, stop - start)]
        return [Entries(values[mask], mask.view(np.uint8), None, stop - start)]
    rows = np.arange(start, stop)
    levels = np.zeros(len(rows), np.uint8)
    return list(_entries(column, fitted, _Walk(rows, levels, levels, 0), True))


@dataclass(frozen=True)
class _Walk:
    """Where entries are on the way down.

    Args:
        index: of each entry in the values that come next, -1 where the entry has ended above.
        definition, repetition: levels so far.
        lists: how many there were on the way.
    """

    index: npt.NDArray[np.int64]
    definition: Levels
    repetition: Levels
    lists: int


def _entries(column: Column, fitted: Fitted, walk: _Walk, optional: bool) -> Iterator[Entries]:
    values, mask = fitted
    if optional:
        walk = _past_nulls(walk, mask)
    if not isinstance(values, Nested):
        repetition = walk.repetition if walk.lists else None
        yield Entries(values[walk.index[walk.index >= 0]], walk.definition, repetition, len(walk.index))
        return
    if values.lengths is not None:
        walk = _into_lists(walk, values.lengths)
    elif mask is not None:  # the fields of structs leave out nulls
        rank = np.cumsum(mask) - 1
        walk = replace(walk, index=np.where(walk.index >= 0, rank[walk.index], -1))
    for part, of_part in zip(column.parts, values.parts, strict=True):
        yield from _entries(part, of_part, walk, is_optional(column, part))


def _past_nulls(walk: _Walk, mask: Mask | None) -> _Walk:
    """End the entries that are null, and raise the level of the others."""
    there = walk.index >= 0
    if mask is not None:
        there[there] = mask[walk.index[there]]
    return replace(walk, index=np.where(there, walk.index, -1), definition=walk.definition + there)


def _into_lists(walk: _Walk, lengths: npt.NDArray[np.int64]) -> _Walk:
    """Make an entry of each element; a list that is empty, or ended above, keeps its one entry, which ends here."""
    there = walk.index >= 0
    counts, begins = np.zeros((2, len(there)), np.int64)
    counts[there] = lengths[walk.index[there]]
    begins[there] = (np.cumsum(lengths) - lengths)[walk.index[there]]
    entries = np.maximum(counts, 1)
    firsts = np.cumsum(entries) - entries
    total = int(entries.sum())
    within = np.arange(total) - np.repeat(firsts, entries)
    filled = counts > 0
    repetition = np.full(total, walk.lists + 1, np.uint8)
    repetition[firsts] = walk.repetition
    return _Walk(
        np.where(np.repeat(filled, entries), np.repeat(begins, entries) + within, -1),
        np.repeat(walk.definition + filled, entries),
        repetition,
        walk.lists + 1,
    )
