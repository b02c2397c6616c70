"""Selection of a batch's rows by their numbers, of which some may stand for no row.

Must not know why rows are taken.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import take_numbers
from shmjet.columns.schemas import nulls
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.text import Mask

Rows: TypeAlias = npt.NDArray[np.int64]

_FAR_BYTES: Final = 2 << 20
_MANY_ROWS: Final = 2048
"""From these on rows are asked for ahead: of what lies in a core's caches, and of few, numpy takes them faster."""


def take_rows(batch: Batch, rows: Rows) -> Batch:
    """Return the rows of a batch with these numbers, in that order: `Batch.take` without masks that hide nothing.

    Args:
        batch: any.
        rows: each from 0 to `batch.num_rows - 1`.

    Raises:
        IndexError: a number is too large.
    """
    stored, masks = batch.parts()
    columns: dict[str, Values] = {name: _frozen(_taken(values, rows)) for name, values in stored.items()}
    validity: dict[str, Mask] = {}
    for name, mask in masks.items():
        if not (taken := _taken(mask, rows)).all():
            validity[name] = _frozen(taken)
    return Batch.trusted(columns, validity, len(rows) if columns else 0)


def take_rows_or_nulls(batch: Batch, rows: Rows) -> Batch:
    """As `take_rows`, with rows of nulls where the number is -1; then the batch may have no rows at all."""
    missing = rows < 0
    if not missing.any():
        return take_rows(batch, rows)
    present = ~missing
    stored, masks = batch.parts()
    if not batch.num_rows:
        columns = {name: _frozen(nulls(values.dtype, len(rows))) for name, values in stored.items()}
        return Batch.trusted(columns, {name: _frozen(present) for name in columns}, len(rows) if columns else 0)
    places = np.where(missing, 0, rows)
    columns = {name: _frozen(_taken(values, places)) for name, values in stored.items()}
    validity: dict[str, Mask] = {}
    for name in columns:
        mask = masks.get(name)
        validity[name] = _frozen(present if mask is None else present & _taken(mask, places))
    return Batch.trusted(columns, validity, len(rows) if columns else 0)


def _taken(values: Any, rows: Rows) -> Any:
    """Return values of any kind at some rows: `values.take(rows)`, where many rows that lie far apart cost less."""
    if (
        len(rows) < _MANY_ROWS
        or not isinstance(values, np.ndarray)
        or values.nbytes < _FAR_BYTES
        or values.dtype.kind not in "biufmM"
        or values.dtype.itemsize not in (4, 8)
        or not (values.flags.c_contiguous and values.flags.aligned)
        or rows.dtype != np.int64
        or not rows.flags.c_contiguous
    ):
        return values.take(rows)
    width = values.dtype.itemsize
    result = np.empty(len(rows), values.dtype)
    take_numbers(values.view(f"u{width}"), width, rows, result.view(f"u{width}"))
    return result


def _frozen(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        values.flags.writeable = False
    return values
