"""Heads: batches without rows that tell all consumers the columns, also consumers that get none of the rows.

On a partitioned edge a processor sees the rows of its keys only, perhaps none at all; what its results look like must
not depend on that. A column of a head has a mask, without values, where the batches that it tells of have had a value
that is not null: of a column of nulls alone the dtype says nothing. Must not know lanes.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from shmjet.data.batch import Batch
from shmjet.data.text import Mask

_MOST: Final = 64
"""Schemas that are remembered; where more come, some are told of again."""

_NOTHING: Final = np.zeros(0, np.bool_)
_NOTHING.flags.writeable = False


def known_columns(batch: Batch) -> frozenset[str]:
    """Return the names of the columns that have a value, or of which a head says so."""
    columns, masks = batch.parts()
    if not batch.num_rows:
        return frozenset(masks)
    if not masks:
        return frozenset(columns)
    return frozenset(name for name in columns if name not in masks or masks[name].any())


class SchemaHeads:
    """Tells which batches of a stream need a head before them.

    Example:
        >>> heads = SchemaHeads()
        >>> head = heads.before(Batch({"a": [1, 2]}))
        >>> head.num_rows, head.schema, heads.before(Batch({"a": [3]}))
        (0, {'a': dtype('int64')}, None)
    """

    def __init__(self) -> None:
        self._told: dict[tuple[Any, ...], frozenset[str]] = {}

    def before(self, batch: Batch) -> Batch | None:
        """Return the head that a batch needs; None when all has been told."""
        schema = tuple(batch.schema.items())
        told = self._told.get(schema)
        if told is not None and len(told) == len(schema):
            return None
        known = known_columns(batch)
        if told is not None and known <= told:
            return None
        if len(self._told) >= _MOST:
            self._told.clear()
        known |= told or frozenset()
        self._told[schema] = known
        masks: dict[str, Mask] = dict.fromkeys(known, _NOTHING)
        return Batch.trusted({name: column[:0] for name, column in batch.parts()[0].items()}, masks, 0)
