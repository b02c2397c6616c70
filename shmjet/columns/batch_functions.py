"""Conversion between batches and the dicts of columns that users' functions take and give. Must not know processors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn


def to_columns(batch: Batch) -> dict[str, Any]:
    """Return a batch as a dict of what `batch[name]` is.

    Example:
        >>> to_columns(Batch({"v": [1, None], "n": [1, 2]}))
        {'v': Nullable([1, None], 2 int64 values, 1 null), 'n': array([1, 2])}
    """
    return dict(batch.items())


def _advice(result: Any) -> str:
    if hasattr(result, "__arrow_c_stream__"):
        return ", of which Batch.from_arrow(...) makes a Batch"
    if isinstance(result, np.ndarray | Text | Nullable | TypedColumn):
        return ", a column without a name (return {'name': column})"
    return ""


def to_batch(result: Any) -> Batch:
    """Return what a function made of a batch as a batch.

    Raises:
        BatchError: it is neither a batch nor a dict of columns that fit; the text names the column.
    """
    if isinstance(result, Batch):
        return result
    if not isinstance(result, Mapping):
        raise BatchError(
            f"map_batches: the function must return a Batch, a dict of arrays, None, or a list or generator of these, "
            f"got {type(result).__name__} {result!r:.80}{_advice(result)}"
        )
    return Batch(result)
