"""The router of a partitioned edge: each item, and each row of a batch, to the consumer that owns its key's partition.

Items are split by one C call. The rows of a batch are scattered into a batch for each consumer, which leaves when it is
full, when something has to come behind it, when its producer has nothing to do, or when it has waited for long, so that
an exchange between many processors still moves full batches.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from shmjet._native import clock_ns, index_of_special, split
from shmjet.core import BatchError, ColumnKey, PartitionError
from shmjet.core.key_functions import mapped
from shmjet.core.keys import canonical_bytes
from shmjet.data.columnar import Columnar
from shmjet.data.errors import locate
from shmjet.execution.routers import Shares, replaced
from shmjet.ring.lane import LaneWriter

if TYPE_CHECKING:
    from shmjet.data.batch import Batch
    from shmjet.data.schema_heads import SchemaHeads
    from shmjet.ring.scatter import BatchScatter


class PartitionedRouter:
    """Each item to the consumer that owns its key's partition.

    Args:
        lanes: by consumer.
        key_fn: the edge's key function, or None for the item itself; a `ColumnKey` for rows of batches.
        partitioner: a custom `(key, partition_count) -> partition`, or None for murmur3 of the canonical bytes.
        table: partition -> consumer, as 16-bit integers.
        edge: how the edge is called in errors.
        tells_schemas: every consumer is told which columns the batches have, by batches without rows.
        row_delay_ns: nanoseconds for which rows are kept back, at most, while more come.
    """

    __slots__ = (
        "_edge",
        "_head",
        "_heads",
        "_key_fn",
        "_lanes",
        "_partitioner",
        "_row_delay_ns",
        "_rows",
        "_runs",
        "_shares",
        "_table",
        "_tells_schemas",
        "turn",
    )

    def __init__(
        self,
        lanes: Sequence[LaneWriter],
        key_fn: Callable[[Any], Any] | None,
        partitioner: Callable[[Any, int], int] | None,
        table: array[int],
        edge: str,
        tells_schemas: bool = False,
        *,
        row_delay_ns: int,
    ) -> None:
        self._row_delay_ns = row_delay_ns
        self._heads: SchemaHeads | None = None
        self._head: Batch | None = None
        self._tells_schemas = tells_schemas
        self._lanes = list(lanes)
        self._key_fn = key_fn
        self._partitioner = partitioner
        self._table = table
        self._edge = edge
        self._runs: deque[list[Any]] = deque()
        self._shares = Shares()
        self._rows: RowExchange | None = None
        self.turn = 0

    @property
    def moved(self) -> int:
        return self._shares.moved + (0 if self._rows is None else self._rows.moved)

    @property
    def has_buffered_rows(self) -> bool:
        return self._rows is not None and self._rows.has_buffered_rows

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        self._lanes = replaced(self._lanes, old, new)
        self._shares.replace(old, new)
        if self._rows is not None:
            self._rows.replace(old, new)

    def start(self, items: list[Any]) -> None:
        at = index_of_special(items, 0, Columnar)
        if at < 0:
            self._runs.append(items)
            return
        start = 0
        while at >= 0:
            if at > start:
                self._runs.append(items[start:at])
            self._runs.append([items[at]])
            start = at + 1
            at = index_of_special(items, start, Columnar)
        if start < len(items):
            self._runs.append(items[start:])

    def flush(self) -> bool:
        try:
            return self._flush()
        except BatchError as error:
            locate(error, f"edge {self._edge}")
            raise

    def _flush(self) -> bool:
        while True:
            if not self._shares.flush() or (self._rows is not None and not self._rows.flush()):
                return False
            if not self._runs:
                return True
            run = self._runs[0]
            by_row = isinstance(run[0], Columnar) and isinstance(self._key_fn, ColumnKey)
            if by_row and self._tells_schemas and not self._tell_schema(run[0]):
                return False
            if by_row and self._partitioner is None:
                self._row_exchange(self._key_fn).start(run[0])
            elif self._rows is not None and not self._rows.flush_buffered():
                return False  # what came before it must not be overtaken
            elif by_row:
                self._split_batch(run[0])
            else:
                self._split(run)
            self._runs.popleft()

    def flush_buffered(self) -> bool:
        return self._rows is None or self._rows.flush_buffered()

    def _tell_schema(self, batch: Batch) -> bool:
        """Tell all consumers of the columns of a batch, if they are new; True when that is done."""
        if self._heads is None:
            from shmjet.data.schema_heads import SchemaHeads  # only here, as it needs numpy

            self._heads = SchemaHeads()
        if self._head is None:
            self._head = self._heads.before(batch)
        if self._head is None:
            return True
        if not self.flush_buffered():
            return False  # a lane may have a part of a batch
        for lane in self._lanes:
            self._shares.put(lane, [self._head])
        self._head = None
        return self._shares.flush()

    def _row_exchange(self, key: Any) -> RowExchange:
        if self._rows is None:
            self._rows = RowExchange(self._lanes, self._table, key.names, self._row_delay_ns)
        return self._rows

    def _split(self, items: list[Any]) -> None:
        if self._key_fn is None and isinstance(items[0], Columnar):
            raise PartitionError(
                f"edge {self._edge}: a Batch cannot be a key; use partitioned(column('name')) to send each row "
                "to the owner of its key, or give a key_fn that takes the whole batch"
            )
        keys = items if self._key_fn is None else mapped(self._key_fn, items)
        if self._partitioner is None:
            shares = split(items, keys, len(self._table), self._table, len(self._lanes), canonical_bytes)
        else:
            shares = self._split_by(self._partitioner, items, keys)
        for lane, share in zip(self._lanes, shares, strict=True):
            if share:
                self._shares.put(lane, share)

    def _split_batch(self, batch: Batch) -> None:
        """Split the rows of a batch by a custom partitioner, which is asked for each of them."""
        assert isinstance(self._key_fn, ColumnKey)
        assert self._partitioner is not None
        names = self._key_fn.names
        keys = batch.values(names[0]) if len(names) == 1 else list(batch.select(names).tuples())
        shares = self._split_by(self._partitioner, list(range(batch.num_rows)), keys)
        for lane, rows in zip(self._lanes, shares, strict=True):
            if rows:
                self._shares.put(lane, [batch.take(rows)])

    def _split_by(
        self, partitioner: Callable[[Any, int], int], items: list[Any], keys: list[Any]
    ) -> list[list[Any] | None]:
        shares: list[list[Any] | None] = [None] * len(self._lanes)
        count = len(self._table)
        for item, key in zip(items, keys, strict=True):
            partition = partitioner(key, count)
            if not isinstance(partition, int) or not 0 <= partition < count:
                raise PartitionError(
                    f"edge {self._edge}: the partitioner gave {partition!r} for key {key!r}; "
                    f"it has to give an int from 0 to {count - 1}"
                )
            consumer = self._table[partition]
            share = shares[consumer]
            if share is None:
                shares[consumer] = [item]
            else:
                share.append(item)
        return shares


class RowExchange:
    """Rows of batches, each to the lane of the consumer that owns its key.

    Args:
        lanes: by consumer.
        table: partition -> consumer.
        names: of the columns that are the key.
        delay_ns: nanoseconds for which rows are kept back, at most, while more come.
    """

    __slots__ = (
        "_batch",
        "_delay_ns",
        "_lanes",
        "_names",
        "_offers",
        "_row",
        "_scatter",
        "_since_ns",
        "_table",
        "moved",
    )

    def __init__(self, lanes: Sequence[LaneWriter], table: array[int], names: tuple[str, ...], delay_ns: int) -> None:
        self._lanes = list(lanes)
        self._delay_ns = delay_ns
        self._table = table
        self._names = names
        self._scatter: BatchScatter | None = None
        self._batch: Batch | None = None
        self._row = 0
        self._offers: dict[int, Batch] = {}
        self._since_ns = 0
        self.moved = 0

    @property
    def has_buffered_rows(self) -> bool:
        """Whether there are rows that have not left."""
        return self._scatter is not None and self._scatter.gathered > 0

    def replace(self, old: LaneWriter, new: LaneWriter) -> None:
        """Go on with another lane to the same consumer."""
        self._lanes = replaced(self._lanes, old, new)

    def start(self, batch: Batch) -> None:
        """Take the next batch; called only when `flush` has returned True for the one before."""
        self._batch = batch
        self._row = 0

    def flush(self) -> bool:
        """Scatter the batch, push what is full; True when the next batch may come."""
        batch = self._batch
        if batch is None:
            return True
        if self._offers and not self._push(list(self._offers)):
            return False  # no row may be added to what a lane has been offered
        scatter = self._scatter
        if scatter is None:
            from shmjet.ring.scatter import BatchScatter  # only here, as it needs numpy

            scatter = self._scatter = BatchScatter(self._table, len(self._lanes), self._names)
        if not scatter.fits(batch) and not self.flush_buffered():
            return False
        if not scatter.gathered:
            self._since_ns = clock_ns()
        while True:
            self._row = scatter.put(batch, self._row)
            if self._row == batch.num_rows:
                break
            if not self._push(scatter.full):
                return False
        self._batch = None
        self.moved += 1
        if clock_ns() - self._since_ns > self._delay_ns:
            self._push(scatter.pending)
            self._since_ns = clock_ns()
        return True

    def flush_buffered(self) -> bool:
        """Push all rows; True when none is left."""
        return self._scatter is None or self._push(self._scatter.pending)

    def _push(self, consumers: list[int]) -> bool:
        """Push what has been gathered for some consumers; True when it has all left."""
        scatter = self._scatter
        assert scatter is not None
        complete = True
        for consumer in consumers:
            lane = self._lanes[consumer]
            offer = self._offers.get(consumer)
            if offer is None:
                # A ring lane has its own copy when it has accepted; a local lane hands over the object itself.
                offer = scatter.batch_of(consumer)
                self._offers[consumer] = offer.copy() if lane.is_local else offer
                offer = self._offers[consumer]
            if lane.push([offer]):
                del self._offers[consumer]
                scatter.reset(consumer)
                self.moved += 1
            else:
                complete = False
        return complete
