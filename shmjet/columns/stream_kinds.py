"""The kinds of the columns of a stream of batches, widened batch by batch until they hold the values of all.

Must not know what the batches are for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from shmjet.columns.group_schema import promoted_key
from shmjet.columns.promotion import as_kinds, check_same_names, differing, is_known, promoted
from shmjet.columns.schemas import Kind, nulls
from shmjet.data.batch import Batch

_NOTHING: Final = np.zeros(0, np.bool_)
_NOTHING.flags.writeable = False


class StreamKinds:
    """Kinds by name, in the order of the first batch.

    Args:
        keys: columns of which dates and times stay apart, because they are never equal.
        may_differ: batches may have different columns; what one lacks is null there.

    Example:
        >>> kinds = StreamKinds()
        >>> for batch in (Batch({"a": [1], "b": [None]}), Batch({"a": [0.5], "b": ["x"]})): kinds.add(batch)
        >>> kinds.kinds
        {'a': dtype('float64'), 'b': 'text'}
    """

    def __init__(self, keys: Collection[str] = (), *, may_differ: bool = False) -> None:
        self.kinds: dict[str, Kind] = {}
        """Of what has come; empty before the first batch. Of a column of nulls alone that of the first batch."""
        self.known: set[str] = set()
        """Columns that have had a value."""
        self._keys = frozenset(keys)
        self._may_differ = may_differ
        self._is_uniform = True

    def add(self, batch: Batch) -> None:
        """Note the columns of a batch.

        Raises:
            BatchError: there are other columns than before, or one has no kind in common with what came before.
        """
        schema = batch.schema
        if schema == self.kinds and [*schema] == [*self.kinds]:
            if len(self.known) == len(schema):
                return
        elif self.kinds:
            self._is_uniform = False
        else:
            self.kinds = dict(schema)
        if self._may_differ:
            for name, new in schema.items():
                self.kinds.setdefault(name, new)
        else:
            check_same_names(self.kinds, schema)
        columns, masks = batch.parts()
        for name, values in columns.items():
            if not is_known(values, masks.get(name)):
                continue
            have: Kind = self.kinds[name]
            kind: Kind | None = values.dtype
            if name in self.known:
                kind = (promoted_key if name in self._keys else promoted)(have, values.dtype)
            if kind is None:
                raise differing(name, [have, values.dtype])
            self.kinds[name] = kind
            self.known.add(name)

    def copy(self) -> StreamKinds:
        """Return the kinds of this moment."""
        made = StreamKinds(self._keys, may_differ=self._may_differ)
        made.kinds, made.known = dict(self.kinds), set(self.known)
        made._is_uniform = self._is_uniform
        return made

    def head(self) -> Batch:
        """Return a batch without rows that tells the same as all that were added; a mask says that a kind is known."""
        columns = {name: nulls(kind, 0) for name, kind in self.kinds.items()}
        masks = dict.fromkeys((name for name in columns if name in self.known), _NOTHING)
        return Batch.trusted(columns, masks, 0)

    def of(self, batch: Batch) -> Batch:
        """Return a batch that was added with the columns' kinds. Raises BatchError for a value that is lost by it."""
        if self._is_uniform:
            return batch
        lacking = {name: kind for name, kind in self.kinds.items() if name not in batch.schema}
        if lacking:
            nothing = {name: nulls(kind, batch.num_rows) for name, kind in lacking.items()}
            batch = batch.with_columns(nothing, dict.fromkeys(lacking, np.zeros(batch.num_rows, np.bool_)))
        return as_kinds(batch, self.kinds)
