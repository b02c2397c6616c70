"""`BatchBuilder`: many batches joined into one, some bytes at a time.

`Batch.concat` does the same in one go, which for a gigabyte takes half a second. Here the memory is set aside once,
when all batches are known, and filled in steps; a batch is let go as soon as it is copied. Must not know what for.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from shmjet.data.batch import Batch
from shmjet.data.column import Values
from shmjet.data.column_types import ColumnType, Kind, physical_kind
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_batches import lowered, raised


class BatchBuilder:
    """Batches of the same columns that become one.

    Example:
        >>> builder = BatchBuilder()
        >>> builder.add(Batch({"a": [1]})); builder.add(Batch({"a": [2]}))
        >>> while not builder.join(1 << 20): pass
        >>> builder.batch["a"].tolist()
        [1, 2]
    """

    def __init__(self) -> None:
        self.batch: Batch = Batch({})
        """What the batches became, when `join` has returned True."""
        self._parts: list[Batch] = []  # without types
        self._schema: dict[str, Kind] = {}
        self._types: dict[str, ColumnType] = {}
        self._next = 0
        self._row = 0
        self._columns: dict[str, npt.NDArray[Any]] = {}
        self._offsets: dict[str, npt.NDArray[np.int64]] = {}
        self._masks: dict[str, Mask] = {}

    @property
    def parts(self) -> int:
        """Batches added."""
        return len(self._parts)

    def add(self, batch: Batch) -> None:
        """Add one more batch; before the first `join`.

        Raises:
            BatchError: its columns differ from those of the first.
        """
        if self._parts and batch.schema != self._schema:
            raise BatchError(f"batches of different columns cannot be joined: {self._schema} and {batch.schema}")
        self._schema = batch.schema
        physical, self._types = lowered(batch)
        self._parts.append(physical)

    def join(self, nbytes: int) -> bool:
        """Copy about so many bytes, at least one batch. Returns True when all are one."""
        if len(self._parts) <= 1:
            if self._parts:
                self.batch = raised(self._parts.pop(), self._types)
            return True
        if not self._columns:
            self._set_aside()
        nothing = self._parts[self._next][:0]
        while nbytes > 0 and self._next < len(self._parts):
            part, self._parts[self._next] = self._parts[self._next], nothing
            self._copy(part)
            nbytes -= max(part.nbytes, 1)
            self._next += 1
        if self._next < len(self._parts):
            return False
        for array in (*self._columns.values(), *self._masks.values()):
            array.flags.writeable = False
        columns: dict[str, Values] = dict(self._columns)
        for name, offsets in self._offsets.items():
            columns[name] = Text.trusted(offsets, self._columns[name], nothing.schema[name] == "bytes")
        self.batch = raised(Batch.trusted(columns, self._masks, self._row), self._types)
        self._parts = []
        return True

    def _set_aside(self) -> None:
        rows = sum(part.num_rows for part in self._parts)
        for name, kind in self._parts[0].schema.items():
            if isinstance(kind, str):
                texts = (cast("Text", part.parts()[0][name]) for part in self._parts)
                size = sum(int(text.offsets[-1] - text.offsets[0]) for text in texts)
                self._columns[name] = np.empty(size, np.uint8)
                self._offsets[name] = np.zeros(rows + 1, np.int64)
            else:
                self._columns[name] = np.empty(rows, physical_kind(name, kind))
            # The mask of a batch without rows says something of its kind, not of the rows of the others.
            if any((part.num_rows or not rows) and name in part.parts()[1] for part in self._parts):
                self._masks[name] = np.ones(rows, np.bool_)

    def _copy(self, part: Batch) -> None:
        first, last = self._row, self._row + part.num_rows
        columns, masks = part.parts()
        for name, values in columns.items():
            target = self._columns[name]
            if isinstance(values, Text):
                offsets = self._offsets[name]
                at, begin = int(offsets[first]), int(values.offsets[0])
                size = int(values.offsets[-1]) - begin
                np.add(values.offsets[1:], at - begin, out=offsets[first + 1 : last + 1])
                target[at : at + size] = values.data[begin : begin + size]
            else:
                target[first:last] = values
            mask = masks.get(name)
            if mask is not None and name in self._masks:
                self._masks[name][first:last] = mask
        self._row = last
