"""`DistinctRows`: which rows of batches have keys that have not been met before.

The keys are those of a `Groups` table, which keeps for each the number of its first row. Must not know processors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from shmjet.columns.aggregates import min_
from shmjet.columns.take import take_rows
from shmjet.columns.typed_groups import TypedGroups
from shmjet.data.batch import Batch, any_column
from shmjet.data.column_keys import hash_rows

_NUMBER: Final = "\0number"
"""Of a row among all that have come; and of the first one of each key."""

_READ_ROWS: Final = 1 << 16


class DistinctRows:
    """Gives of each batch the rows whose keys are new.

    Args:
        names: of the key columns; none: all columns of the first batch.
        hash_name: name of a column that the rows do not have.
        adds_hash: it is added to results, with a hash of the row; else it is taken off.

    Example:
        >>> rows = DistinctRows(["k"])
        >>> [rows.fresh(Batch({"k": keys})).to_dict() for keys in ([1, 2, 1], [2, 3])]
        [{'k': [1, 2]}, {'k': [3]}]
    """

    def __init__(self, names: Sequence[str], hash_name: str | None = None, *, adds_hash: bool = False) -> None:
        self._given = tuple(names)
        self._hash = hash_name
        self._adds_hash = adds_hash
        self.keys: tuple[str, ...] = self._given
        """The key columns; empty before the first batch if all columns are."""
        self.groups: TypedGroups | None = TypedGroups(self.keys, {_NUMBER: min_(_NUMBER)}) if self.keys else None
        """The keys that have been met; None before the first batch if all columns are the key."""
        self._count = 0

    def clear(self) -> None:
        """Forget the keys."""
        if self.groups is not None:
            self.groups.clear()

    def begin(self, keys: Sequence[str]) -> TypedGroups:
        """Take the names of the key columns, before saved `groups` are restored."""
        return self._begin(keys) if self.groups is None else self.groups

    def _begin(self, names: Sequence[str]) -> TypedGroups:
        self.keys = tuple(names)
        self.groups = TypedGroups(self.keys, {_NUMBER: min_(_NUMBER)})
        return self.groups

    def fresh(self, batch: Batch) -> Batch:
        """Return the rows of a batch whose keys have not been met before, each key once.

        Raises:
            BatchError: a key column is missing, or is of a kind that cannot be a key.
        """
        if self._hash is not None and not self._adds_hash:
            batch = batch.select(*(name for name in batch.names if name != self._hash))
        groups = self.begin(batch.names)
        for name in self.keys:
            any_column(batch, name)
        numbers = np.arange(self._count, self._count + batch.num_rows)
        known = len(groups)
        keyed = batch.select(*self.keys)
        columns, masks = keyed.parts()
        groups.add(Batch.trusted({**columns, _NUMBER: numbers}, dict(masks), batch.num_rows))
        if len(groups) - known < batch.num_rows:
            batch = take_rows(batch, self._first_rows(groups, known))
        self._count += len(numbers)
        return self._hashed(batch)

    def unlooked(self, batch: Batch) -> Batch:
        """Return all rows of a batch as `fresh` would if no key had been met before; nothing is noted."""
        self.begin(batch.names)
        return self._hashed(batch)

    def __len__(self) -> int:
        return 0 if self.groups is None else len(self.groups)

    def _hashed(self, batch: Batch) -> Batch:
        if self._hash is None or not self._adds_hash:
            return batch
        hashes = hash_rows(batch, self.keys).astype(np.int64)
        columns, masks = batch.parts()
        return Batch.trusted({**columns, self._hash: hashes}, dict(masks), batch.num_rows)

    def _first_rows(self, groups: TypedGroups, known: int) -> Any:
        """Return the numbers of the rows that began new groups."""
        found = [np.zeros(0, np.int64)]
        position = known
        while 0 <= position < len(groups):
            states, position = groups.states(position, _READ_ROWS)
            name = next(name for name in states.names if name.startswith(_NUMBER))
            found.append(states.parts()[0][name])  # type: ignore[arg-type]
        return np.concatenate(found) - self._count
