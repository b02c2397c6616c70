"""Between a batch and what users' functions take and give: dicts of arrays.

Nulls survive where the arrays can carry them: numpy's masked arrays do; any other column keeps its mask while it is
passed on as the very object that it was. Must not know processors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shmjet.ring.batch import Batch
from shmjet.ring.errors import BatchError
from shmjet.ring.text import Text


def to_arrays(batch: Batch) -> dict[str, Any]:
    """Return a batch as a dict: arrays, masked where a column has nulls, and `Text`.

    Example:
        >>> to_arrays(Batch({"v": [1, None], "n": [1, 2]}))
        {'v': masked_array(data=[1, --],
                     mask=[False,  True],
               fill_value=999999), 'n': array([1, 2])}
    """
    arrays: dict[str, Any] = {}
    for name, column in batch.items():
        valid = batch.validity(name)
        if valid is not None and not isinstance(column, Text):
            arrays[name] = np.ma.MaskedArray(column, ~valid)
        else:
            arrays[name] = column
    return arrays


def to_batch(result: Any, source: Batch) -> Batch:
    """Return what a function made of `source` as a batch.

    Raises:
        BatchError: it is neither a batch nor a dict of columns that fit; the text names the column.
    """
    if isinstance(result, Batch):
        return result
    if not isinstance(result, Mapping):
        raise BatchError(
            f"map_batches: the function must return a Batch, a dict of arrays, None, or a list or generator of these, "
            f"got {type(result).__name__} {result!r:.80}"
        )
    validity = {name: mask for name, column in result.items() if (mask := _mask_of(column, source)) is not None}
    return Batch(result, validity)


def _mask_of(column: Any, source: Batch) -> Any:
    """Return the mask of a column that is one of the source's own, under whatever name."""
    if isinstance(column, np.ma.MaskedArray):
        return None
    for name, own in source.items():
        if own is column:
            return source.validity(name)
    return None
