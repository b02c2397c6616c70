"""The fields of some groups of a native table, read one after the other into columns. Must not know what they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shmjet.columns.group_schema import Dtype
from shmjet.columns.promotion import FLOAT64
from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.text import Mask, Text

if TYPE_CHECKING:
    from shmjet._native._columns import GroupTable

Positions: TypeAlias = npt.NDArray[np.uint32]

Places: TypeAlias = int | Positions


class GroupPage:
    """Reads one field after the other of some groups, and collects columns.

    Args:
        table: where the groups are.
        places: of the groups in the table: that of the first of them, or an array with those of all.
        rows: how many.
    """

    def __init__(self, table: GroupTable, places: Places, rows: int) -> None:
        self.rows = rows
        """Groups."""
        self.places = places
        """Where they are."""
        self.columns: dict[str, Values] = {}
        """What `put` has collected, by name."""
        self.validity: dict[str, Mask] = {}
        """The masks of columns with nulls."""
        self._table = table
        self._field = 0

    def field(self, dtype: Dtype) -> tuple[Values, Mask | None]:
        """Return the next field of the table as a column of `dtype`."""
        field, self._field = self._field, self._field + 1
        where = field, self.places, self.rows
        valid = np.empty(self.rows, np.bool_)
        if isinstance(dtype, str) or dtype.kind in "SUVc" or dtype.itemsize > 8:
            offsets = np.empty(self.rows + 1, np.int64)
            has_nulls = self._table.read_offsets(*where, offsets, valid)
            if isinstance(dtype, str):
                data = np.empty(int(offsets[-1]), np.uint8)
                self._table.read_data(*where, data, 0)
                return Text.trusted(offsets, data, dtype == "bytes"), valid if has_nulls else None
            values: npt.NDArray[Any] = np.empty(self.rows, dtype)
            self._table.read_data(*where, values.view(np.uint8) if self.rows else values, dtype.itemsize)
            return values, valid if has_nulls else None
        words = np.empty(self.rows, FLOAT64 if dtype.kind == "f" else np.int64)
        has_nulls = self._table.read_words(*where, words, valid)
        values = words.view(dtype) if dtype.itemsize == 8 else words.astype(dtype)
        return values, valid if has_nulls else None

    def put(self, name: str, values: Values, valid: Mask | None) -> None:
        """Add a column to the batch."""
        for array in (values, valid):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False
        self.columns[name] = values
        if valid is not None:
            self.validity[name] = valid

    def batch(self) -> Batch:
        """Return what has been collected."""
        return Batch.trusted(self.columns, self.validity, self.rows)
