"""The state of a hash join of batches in snapshots: the rows of its build side.

Where their edge is broadcast every processor has all rows, and the first one saves them for all; where the edges are
partitioned, rows go by partition in pieces; elsewhere by place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.processor import ProcessorContext
from shmjet.core.state_placement import placement_in, takes_place
from shmjet.processors.columns.saving import Entry, LastingPart, check_form, cut, row_partitions

if TYPE_CHECKING:
    from shmjet.columns.join import HashJoin
    from shmjet.data.batch import Batch

BUILD_EDGE: Final = 1
"""The ordinal of the build side."""

BUILT: Final = "built"
"""Under a `BroadcastKey` (this, index): whether a processor has had all of its build side."""

HEAD: Final = "columns"
"""Under a `BroadcastKey` (this, index): a batch without rows. All processors need the columns of all."""

ALL: Final = "all"
"""Under a `BroadcastKey` (this, index, number): rows that every processor has."""

STREAM: Final = "stream"
"""Under a `BroadcastKey` (this, index): what tells the columns of the stream, for right and outer joins."""

PLACE: Final = "rows"
"""Under a `BroadcastKey` (this, index, number): rows that have no partition."""


class BuildSideState:
    """Saves and restores the build side of one processor.

    Args:
        join: its table; it keeps its keys.
        keys: names of the key columns of the stream → those of the build side.
        context: of the processor.
    """

    def __init__(self, join: HashJoin, keys: Mapping[str, str], context: ProcessorContext) -> None:
        from shmjet.data.schema_heads import SchemaHeads

        self._join = join
        self._context = context
        self._is_broadcast = BUILD_EDGE in placement_in(context).broadcast
        self._partitions = row_partitions(context, tuple(keys.values()), keys)
        self._built: list[bool] = []
        self._heads = SchemaHeads()

    @property
    def was_built(self) -> bool:
        """Whether all processors had had all of their build sides."""
        return bool(self._built) and all(self._built)

    def entries(self, is_built: bool) -> Iterator[Entry | LastingPart | None]:
        """Give all entries of this moment step by step, whatever the join does meanwhile."""
        return self._entries(is_built, self._join.probe_head(), self._join.rows())

    def _entries(
        self, is_built: bool, stream: Batch | None, batches: Iterator[Batch]
    ) -> Iterator[Entry | LastingPart | None]:
        index = self._context.global_index
        yield BroadcastKey((BUILT, index)), is_built
        if stream is not None:
            yield BroadcastKey((STREAM, index)), stream
        if is_built and stream is None and not self._join.notes_matches:
            yield LastingPart(BUILT, lambda: self._rows(batches))
        else:
            yield from self._rows(batches)

    def _rows(self, batches: Iterator[Batch]) -> Iterator[Entry | None]:
        index = self._context.global_index
        head = next(batches, None)
        if head is None:
            return
        yield BroadcastKey((HEAD, index)), head
        if not self._is_broadcast and self._partitions is not None:
            for batch in batches:
                yield from self._by_partition(batch)
        elif index == 0 or not self._is_broadcast:
            number = 0
            for batch in batches:
                for piece in cut(batch):
                    yield BroadcastKey((ALL if self._is_broadcast else PLACE, index, number)), piece
                    number += 1

    def _by_partition(self, batch: Batch) -> Iterator[tuple[Any, Any] | None]:
        from shmjet.columns.partition_order import batch_pieces

        partitions = self._partitions
        assert partitions is not None
        for piece in batch_pieces(batch, partitions.of, partitions.placement.count):
            yield None if piece is None else (partitions.key_of(piece), (partitions.form, piece))

    def restore(self, key: Any, value: Any) -> None:
        """Take one entry of `entries` of any processor.

        Raises:
            ProcessorError: its rows may belong to other processors.
            BatchError: the rows have other columns than the build side of this job.
        """
        if not isinstance(key, BroadcastKey):
            form, batch = value
            check_form(self._context, "hash_join_batches", form, self._partitions)
            self._join.add(batch)
            return
        what, index, *_ = cast("tuple[Any, ...]", key.key)
        if what == BUILT:
            self._built.append(value)
        elif what == STREAM:
            self._join.add_probe_head(value)
        elif what == HEAD:
            if self._heads.before(value) is not None:
                self._join.add(value)
        elif (what == ALL or takes_place(self._context, index)) and value.num_rows:
            self._join.add(value)
