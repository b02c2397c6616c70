"""The join of two streams of batches by key and time. What `stream_join` is for items, with columns.

Joins that emit rows without a match pass each watermark on minus `within`, as `stream_join` does.
Must not know how keys are routed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Final, cast

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.core.state_placement import takes_place
from shmjet.data.errors import ProcessorError
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors.columns.saving import CapturedState, Entry, LastingPart, check_form, cut, row_partitions
from shmjet.processors.general.base import ExpandingProcessor, Supply, require_batches
from shmjet.processors.time.window_processor import NEVER

if TYPE_CHECKING:
    from shmjet.columns.stream_join import StreamJoin
    from shmjet.columns.stream_join_columns import How, JoinColumns
    from shmjet.data.batch import Batch

_WATERMARK: Final = BroadcastKey("watermark")
_END: Final = 1 << 65
"""Beyond all times, however far apart rows may be."""
_HEAD: Final = "columns"
"""Under a `BroadcastKey` (this, index, side, 0): the columns of a side, for processors without rows of it."""
_PLACE: Final = "rows"
"""Under a `BroadcastKey` (this, index, side, number): rows that have no partition."""


class ColumnStreamJoinProcessor(ExpandingProcessor):
    """Joins batches of edge 0 (left) with those of edge 1 (right).

    Args:
        columns: by which they are joined.
        within: how far apart the times may be, in milliseconds.
        how: which rows come out without a match.
    """

    state_kind = "column_stream_join"
    takes_schemas = True
    _captures = True

    def __init__(self, columns: JoinColumns, within: int, how: How = "inner") -> None:
        self._columns = columns
        self._within = within
        self._how: How = how
        self._delay = 0 if how == "inner" else within
        self._watermark = NEVER
        self._saving = CapturedState()
        self._restored: list[int] = []

    def start(self, context: ProcessorContext) -> None:
        """Make the tables."""
        from shmjet.columns.stream_join import StreamJoin

        self._join: StreamJoin = StreamJoin(self._columns, self._within, self._how)
        keys, others = self._columns.left_keys, self._columns.right_keys
        renamed = dict(zip(keys, others, strict=True))
        self._partitions = row_partitions(context, keys, {}), row_partitions(context, others, renamed)

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Join batches with those of the other side, and count late rows."""
        super().process(ordinal, inbox)
        self.late_events_dropped = self._join.late

    def expand(self, ordinal: int, items: list[Any]) -> Iterator[Any]:
        """Join a list, lazily."""
        if ordinal > 1:
            raise ProcessorError(f"a join of streams has two inputs, but items arrived on edge {ordinal}")
        require_batches("join(other, on=..., within=...)", items)
        for batch in items:
            yield from self._join.add(ordinal, batch, self._watermark)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Emit the rows that have had no match and can have none any more, forget them, and pass the watermark on."""
        if watermark == IDLE:
            return super().try_process_watermark(watermark)
        time = self._watermark = max(self._watermark, watermark.timestamp)
        is_due = self.is_sweeping or self._join.may_expire(time)
        if is_due and not self.sweep(lambda: self._join.unmatched(time)):
            return False
        self._join.forget(time)
        passed = watermark.timestamp - self._delay
        return passed < NEVER or super().try_process_watermark(Watermark(passed))

    def complete(self) -> bool:
        """Emit the rows that have had no match."""
        if self._how == "inner":
            return super().complete()
        return self.sweep(lambda: self._join.unmatched(_END))

    # -- state ---------------------------------------------------------------------------------------------------------

    def _capture(self) -> bool:
        if self.is_sweeping and not self._emitted_drawn():
            return False
        sides = [(self._join.head(side), self._join.rows(side)) for side in (0, 1)]
        self._saving.take(self.outbox, self._entries(self._watermark, sides))
        return True

    def save_to_snapshot(self) -> bool:
        """Save the rows of both sides by partition, and the watermark."""
        return self._saving.save(self._capture)

    def _entries(
        self, watermark: int, sides: Sequence[tuple[Batch | None, Iterator[tuple[int | None, Batch]]]]
    ) -> Iterator[Any]:
        yield _WATERMARK, watermark
        for side, (head, runs) in enumerate(sides):
            if head is not None:
                yield BroadcastKey((_HEAD, self.context.global_index, side, 0)), head
            for place, (number, batch) in enumerate(runs):
                if number is None:
                    yield from self._entries_of(side, -1 - place, batch)
                else:
                    yield LastingPart((side, number), partial(self._entries_of, side, number, batch))

    def _entries_of(self, side: int, number: int, batch: Batch) -> Iterator[Entry | None]:
        from shmjet.columns.partition_order import batch_pieces

        index, partitions = self.context.global_index, self._partitions[side]
        if partitions is None:
            for place, piece in enumerate(cut(batch)):
                yield BroadcastKey((_PLACE, index, side, (number, place))), piece
            return
        for found in batch_pieces(batch, partitions.of, partitions.placement.count):
            yield None if found is None else (partitions.key_of(found), (side, partitions.form, found))

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Add saved rows, for as long as a call should take."""
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while inbox:
            key, value = inbox.poll()
            if key == _WATERMARK:
                self._restored.append(value)
            elif isinstance(key, BroadcastKey):
                what, index, side, _ = cast("tuple[Any, ...]", key.key)
                if what == _HEAD:
                    self._join.tell(side, value)
                elif takes_place(self.context, index):
                    self._join.put_back(side, value)
            else:
                side, form, batch = value
                check_form(self.context, "join", form, self._partitions[side])
                self._join.put_back(side, batch)
            if monotonic_ns() >= deadline:
                return

    def finish_snapshot_restore(self) -> bool:
        """Set the watermark, to the least that was saved."""
        self._watermark = min(self._restored, default=NEVER)
        self._restored = []
        return True


def join_streams_of_columns(columns: JoinColumns, within: int, how: How = "inner") -> Callable[[], Processor]:
    """Return the supplier; both edges into it are partitioned by the keys, `within` is in milliseconds."""
    supply = Supply(ColumnStreamJoinProcessor, columns, within, how)
    pairs = (one if one == two else f"{one} = {two}" for one, two in zip(*columns.keys, strict=True))
    supply.state_kind += f" on {', '.join(pairs)}"
    return supply
