"""Keeping the rows of a batch that a mask chooses."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import keep_rows
from shmjet.data.batch import Batch
from shmjet.data.text import Mask

_WIDTHS: Final = (1, 2, 4, 8)


class RowChooser:
    """Columns with only the rows of a mask.

    Args:
        mask: the rows.
        kept: how many they are.

    Example:
        >>> RowChooser(np.array([True, False, True]), 2).kept(np.array([5, 6, 7])).tolist()
        [5, 7]
    """

    def __init__(self, mask: Mask, kept: int) -> None:
        self.mask = np.ascontiguousarray(mask)
        self.rows = kept
        self._places: npt.NDArray[np.intp] | None = None

    def batch(self, batch: Batch, names: Collection[str] | None = None) -> Batch:
        """Return these rows of some columns of a batch, by default of all."""
        columns, validity = batch.parts()
        names = columns if names is None else names
        return Batch.trusted(
            {name: self.kept(column) for name, column in columns.items() if name in names},
            {name: self.kept(valid) for name, valid in validity.items() if name in names},
            self.rows if columns else 0,
        )

    def kept(self, column: Any) -> Any:
        """Return the rows of a column of any kind that stay."""
        if (
            not isinstance(column, np.ndarray)
            or column.dtype.kind not in "biufmM"
            or column.dtype.itemsize not in _WIDTHS
        ):
            if self._places is None:
                self._places = np.flatnonzero(self.mask)
            return column.take(self._places)
        width = column.dtype.itemsize
        result = np.empty(min(self.rows + 1, len(column)), column.dtype)
        keep_rows(column.view(f"u{width}"), width, self.mask, result.view(f"u{width}"))
        chosen = result[: self.rows]
        chosen.flags.writeable = False
        return chosen
