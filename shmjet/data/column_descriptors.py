"""How a column is handed to the kernels of `shmjet._native._columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from shmjet._native._columns import Column
from shmjet.data.batch import Batch, stored_column
from shmjet.data.column import Values
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_column import TypedColumn


def descriptor(values: Values, valid: Mask | None = None) -> Column:
    """Return the tuple that a kernel takes for a column, with its validity mask if it has one.

    Raises:
        BatchError: it has a type that kernels do not know.
    """
    if isinstance(values, TypedColumn):
        raise BatchError(f"a column of {values.dtype} is not possible here; cast it, or leave it out")
    if isinstance(values, Text):
        return "y" if values.is_bytes else "t", 0, len(values), values.data, values.offsets, valid
    data: npt.NDArray[Any] = values
    if values.dtype.kind in "mMV":  # numpy exports no buffer of dates, be they fields of a structure
        data = values.view(np.uint8)
    return values.dtype.kind, values.dtype.itemsize, len(values), data, None, valid


def descriptors(batch: Batch, names: tuple[str, ...]) -> tuple[Column, ...]:
    """Return the tuples for several columns of a batch. Raises BatchError when one does not exist."""
    return tuple(descriptor(*stored_column(batch, name)) for name in names)
