"""Keeping the rows of a batch that a mask chooses."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import keep_rows
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
        self._mask = np.ascontiguousarray(mask)
        self._kept = kept
        self._rows: npt.NDArray[np.intp] | None = None

    def kept(self, column: Any) -> Any:
        """Return the rows of a column of any kind that stay."""
        if (
            not isinstance(column, np.ndarray)
            or column.dtype.kind not in "biufmM"
            or column.dtype.itemsize not in _WIDTHS
        ):
            if self._rows is None:
                self._rows = np.flatnonzero(self._mask)
            return column.take(self._rows)
        width = column.dtype.itemsize
        result = np.empty(min(self._kept + 1, len(column)), column.dtype)
        keep_rows(column.view(f"u{width}"), width, self._mask, result.view(f"u{width}"))
        chosen = result[: self._kept]
        chosen.flags.writeable = False
        return chosen
