"""`BatchScatter`: deals the rows of batches to consumers by the hash of their key, and gathers them into full batches.

Each consumer has a builder, memory for a batch of its own, into which the kernel copies rows in order. So an exchange
with many consumers moves full batches instead of slivers, and a row is copied once. Nothing here knows lanes or when a
builder that is not full should leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from shmjet._native._columns import assign, scatter
from shmjet.data.batch import Batch, stored_column
from shmjet.data.column import Values
from shmjet.data.column_descriptors import descriptor
from shmjet.data.column_keys import key_columns
from shmjet.data.column_types import ColumnType, Kind
from shmjet.data.errors import BatchError
from shmjet.data.text import Mask, Text
from shmjet.data.typed_batches import lowered, raised

if TYPE_CHECKING:
    from shmjet._native._columns import Column, Memory

_WINDOW: Final = 1 << 16
"""Rows of a batch that are assigned to consumers at a time: it bounds that memory, which then stays in the cache."""

_LEAST_ROWS: Final = 8192
_MOST_ROWS: Final = 32_768 + 2_048
"""A little more than half of a batch of 65,536 rows, so that what two consumers get of one is a batch each."""
_SHARED_ROWS: Final = 131_072
"""Rows of a full builder lie between the first two: few consumers share the third, because each batch costs the same
on its way whatever it holds."""

_MOST_BYTES: Final = 1 << 20
"""A builder's size, unless one row is larger."""

_TEXT_BYTES: Final = 32
"""Room for the value of one row in a column of text, on average over a builder."""

_MOST_CONSUMERS: Final = 1 << 16
_MOST_PLACES: Final = (1 << 32) - 1


class _ColumnBuilders:
    """The builders of one column for all consumers: one memory, in which each consumer has its part."""

    __slots__ = ("_ends", "_is_bytes", "_memory", "_shape", "_valid", "_values")

    def __init__(self, dtype: np.dtype[Any] | str, consumers: int, capacity: int, stride: int) -> None:
        self._shape = consumers, stride
        self._valid: npt.NDArray[np.uint8] | None = None
        self._ends: npt.NDArray[np.int64] | None = None
        self._is_bytes = False
        if isinstance(dtype, str):
            self._is_bytes = dtype == "bytes"
            memory = np.empty((consumers, _TEXT_BYTES * capacity), np.uint8)
            self._ends = np.empty(self._shape, np.int64)
            self._values: npt.NDArray[Any] = memory
        else:
            memory = np.empty((consumers, stride * dtype.itemsize), np.uint8)
            self._values = memory.view(dtype)
        self._values = self._values.view()
        self._values.flags.writeable = False
        self._memory: Memory = memory, self._ends, None

    @property
    def memory(self) -> Memory:
        """What the kernel writes to."""
        return self._memory

    def expect_nulls(self) -> None:
        """Make a mask, true for all rows so far, unless there is one."""
        if self._valid is None:
            self._valid = np.ones(self._shape, np.uint8)
            self._memory = *self._memory[:2], self._valid

    def column_of(self, consumer: int, rows: int) -> Values:
        """Return a consumer's values, as a view."""
        if self._ends is None:
            return self._values[consumer, :rows]
        if not rows:
            self._ends[consumer, 0] = 0
        ends = self._ends[consumer, : rows + 1]
        return Text.trusted(ends, self._values[consumer, : ends[rows]], self._is_bytes)

    def mask_of(self, consumer: int, rows: int) -> Mask | None:
        """Return a consumer's mask, as a view; None when none of its rows is null."""
        if self._valid is None:
            return None
        mask = self._valid[consumer, :rows].view(np.bool_)
        if mask.all():
            return None
        mask.flags.writeable = False
        return mask


class BatchScatter:
    """Gathers rows for each consumer of a partitioned edge.

    A row goes to the consumer `table[hash(key) % len(table)]`; rows of one consumer keep their order. A builder is full
    when it has `rows` rows, fewer where a row is wide, or when the next row's text does not fit into what is left of
    its memory; a row whose text is larger than that is a batch by itself.

    The builders take at most about a MiB for each consumer (`rows` times the width of a row where that is less, one row
    where a row is wider), and large text waiting alone its own size. The memory is reserved with the first batch, and
    again when the schema changes; the operating system provides a page when a row first reaches it.

    Args:
        table: partition → consumer.
        consumers: how many there are, at most 65,536.
        keys: the columns of the key; several make a composite key, the tuple of their values.
        rows: of a full builder; None: 8,192, and up to 34,816 where the consumers are few.

    Raises:
        BatchError: the table is empty or names a consumer that does not exist, there is no key, `rows` is below 1.

    Example:
        >>> scatter = BatchScatter([0, 1, 0, 1], 2, ("user",))
        >>> batch = Batch({"user": [1, 2, 3, 1], "n": [10, 20, 30, 40]})
        >>> scatter.put(batch, 0), scatter.gathered, scatter.full
        (4, 4, [])
        >>> sorted(row for consumer in scatter.pending for row in scatter.batch_of(consumer).tuples())
        [(1, 10), (1, 40), (2, 20), (3, 30)]
    """

    def __init__(
        self, table: Sequence[int] | Any, consumers: int, keys: tuple[str, ...], rows: int | None = None
    ) -> None:
        if rows is None:
            rows = min(max(_SHARED_ROWS // max(consumers, 1), _LEAST_ROWS), _MOST_ROWS)
        if not 1 <= consumers <= _MOST_CONSUMERS or rows < 1 or not keys:
            raise BatchError(
                f"rows go to 1 to {_MOST_CONSUMERS} consumers, by at least one key column, in batches of at least one "
                f"row; got {consumers} consumers, the keys {keys!r} and {rows} rows"
            )
        self._table = np.array(table, np.int32)
        if self._table.ndim != 1 or not len(self._table) or not 0 <= self._table.min() <= self._table.max() < consumers:
            raise BatchError(f"the table must give each partition one of {consumers} consumers, got {table!r:.200}")
        self.consumers = consumers
        self._keys = tuple(keys)
        self._rows = rows
        self.capacity = self._stride = 0
        self._schema: list[tuple[str, Kind]] = []
        self._types: dict[str, ColumnType] = {}
        self._builders: dict[str, _ColumnBuilders] = {}
        self._filled = np.zeros(consumers, np.int64)
        self._gathered = 0
        self._blocked: set[int] = set()
        self._alone: dict[int, Batch] = {}
        self._assigned = np.empty(0, np.uint16)
        # What is being put: rows `_first` up to `_end` of `_source` have been assigned to consumers.
        self._source: Batch | None = None
        self._first = self._end = 0
        self._columns: tuple[Column, ...] = ()
        self._memories: tuple[Memory, ...] = ()

    def fits(self, batch: Batch) -> bool:
        """Whether `batch` may be put: nothing is gathered, or rows of the same columns in the same order."""
        return not self._gathered or list(batch.schema.items()) == self._schema

    def put(self, batch: Batch, start: int) -> int:
        """Gather rows from `start` on, until the builder of the next row's consumer is full or the batch has ended.

        Returns:
            The next row; `batch.num_rows` when all are in. Then nothing refers to the batch any more.

        Raises:
            BatchError: a key column does not exist or cannot be a key, or the columns are not those of the rows that
                are gathered already (`fits`).
        """
        rows = batch.num_rows
        while start < rows:
            if batch is not self._source or not self._first <= start < self._end:
                self._open(batch, start)
            row = self._first + scatter(
                self._columns,
                self._assigned,
                start - self._first,
                self._memories,
                self._filled,
                self.capacity,
                self._stride,
            )
            self._gathered += row - start
            start = row
            if row < self._end:
                if not self._put_alone(batch, row):
                    return row
                start += 1
        self._close()
        return rows

    def _open(self, batch: Batch, start: int) -> None:
        """Assign the rows from `start` to consumers, as many as make a window."""
        self._close()
        schema = list(batch.schema.items())
        if schema != self._schema:
            if self._gathered:
                raise BatchError(
                    f"rows of the columns {dict(schema)} cannot be gathered with {self._gathered} rows of "
                    f"{dict(self._schema)}"
                )
            key_columns(batch, self._keys)
            self._build(schema)
        whole = start == 0 and batch.num_rows <= _WINDOW
        window = batch if whole else batch[start : start + _WINDOW]
        columns, forms = key_columns(window, self._keys)
        if len(self._assigned) < window.num_rows:
            self._assigned = np.empty(window.num_rows, np.uint16)
        assign(columns, self._table, self._assigned, None, forms)
        physical, _ = lowered(window)
        described = []
        for name, builders in self._builders.items():
            values, valid = stored_column(physical, name)
            if valid is not None:
                builders.expect_nulls()
            described.append(descriptor(values, valid))
        self._columns = tuple(described)
        self._memories = tuple([builders.memory for builders in self._builders.values()])
        self._source, self._first, self._end = batch, start, start + window.num_rows

    def _close(self) -> None:
        self._source, self._columns, self._first, self._end = None, (), 0, 0

    def _build(self, schema: list[tuple[str, Kind]]) -> None:
        kinds = [(name, kind.stored if isinstance(kind, ColumnType) else kind) for name, kind in schema]
        self._types = {name: kind for name, kind in schema if isinstance(kind, ColumnType)}
        # A mask may appear with any batch, so each column counts a byte more.
        width = sum(8 + _TEXT_BYTES + 1 if isinstance(dtype, str) else dtype.itemsize + 1 for _, dtype in kinds)
        most = min(self._rows, _MOST_BYTES // width, _MOST_PLACES // self.consumers - 128)
        self.capacity = capacity = max(most, 1)
        # Were the parts a power of two apart, the consumers' rows would meet in the same few sets of the cache.
        self._stride = capacity + (72 if capacity >= 1024 else 1)
        self._builders = {}  # first, so that the memory is free again
        self._builders = {name: _ColumnBuilders(dtype, self.consumers, capacity, self._stride) for name, dtype in kinds}
        self._schema = schema

    def _put_alone(self, batch: Batch, row: int) -> bool:
        """Take the row that did not go in as a batch of its own, if an empty builder is too small for it."""
        consumer = int(self._assigned[row - self._first])
        if self._filled[consumer]:
            self._blocked.add(consumer)
            return False
        self._alone[consumer] = batch.take([row])
        self._filled[consumer] = self.capacity  # for the kernel it is full
        self._gathered += 1
        return True

    @property
    def full(self) -> list[int]:
        """The consumers whose builders can take no more, in ascending order."""
        capacity = self.capacity or 1
        return [c for c, rows in enumerate(self._filled.tolist()) if rows >= capacity or c in self._blocked]

    @property
    def pending(self) -> list[int]:
        """The consumers that have rows, in ascending order."""
        return [consumer for consumer, rows in enumerate(self._filled.tolist()) if rows]

    @property
    def gathered(self) -> int:
        """Rows in all builders."""
        return self._gathered

    def batch_of(self, consumer: int) -> Batch:
        """Return the rows gathered for a consumer: views, which show other rows after its `reset`."""
        alone = self._alone.get(consumer)
        if alone is not None:
            return alone
        rows = int(self._filled[consumer])
        columns: dict[str, Values] = {}
        validity: dict[str, Mask] = {}
        for name, builders in self._builders.items():
            columns[name] = builders.column_of(consumer, rows)
            mask = builders.mask_of(consumer, rows)
            if mask is not None:
                validity[name] = mask
        return raised(Batch.trusted(columns, validity, rows), self._types)

    def reset(self, consumer: int) -> None:
        """Empty a consumer's builder."""
        alone = self._alone.pop(consumer, None)
        self._gathered -= int(self._filled[consumer]) if alone is None else 1
        self._filled[consumer] = 0
        self._blocked.discard(consumer)
