"""Plays the engine for processors that are saved, lost and restored: entries go to the owners of their keys.

Partitions are those of `StatePlacement`, dealt out to the processors in turn; entries are pickled on the way.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from shmjet.core import BroadcastKey, Processor
from shmjet.core.context import ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.job import JobConfig, ProcessingGuarantee
from shmjet.core.keys import partition_id
from shmjet.core.outbox import Outbox
from shmjet.core.saving import capture, captures
from shmjet.core.state_placement import OwnRows, StatePlacement, hand_in_placement
from shmjet.data.errors import BatchError
from shmjet.data.marks import Watermark

from .driving import processors_of

Entries = list[tuple[Any, Any]]


def clock(calls: int) -> Callable[[], bool]:
    """Return what says at each so many-th call that the time is over."""
    count = iter(range(1, 1 << 30))
    return lambda: next(count) % calls == 0


class Stage:
    """All processors of a vertex.

    Args:
        supplier: of the processors.
        count: how many.
        placement: what the engine tells them; by default nothing.
        room: of their outboxes.
        overdue_after: looks at the clock until the time of a call of `save_to_snapshot` is over.
    """

    def __init__(
        self,
        supplier: Any,
        count: int = 1,
        placement: StatePlacement | None = None,
        room: int = 2048,
        overdue_after: int = 1 << 30,
        receives: Sequence[bool] = (),
    ) -> None:
        self.partitions = 271 if placement is None else placement.count
        self.placement = placement
        self.supplier = supplier
        self.output: list[Any] = []
        self.processors: list[Processor] = processors_of(supplier, count)
        self.outboxes = [Outbox([room]) for _ in self.processors]
        self.ended: set[int] = set()
        self._fed: dict[int, tuple[int, list[Any]]] = {}
        for index, (processor, outbox) in enumerate(zip(self.processors, self.outboxes, strict=True)):
            outbox.overdue = clock(overdue_after)
            context = ProcessorContext(
                vertex_name="v",
                local_index=index,
                global_index=index,
                local_parallelism=count,
                total_parallelism=count,
                receives=receives[index] if receives else True,
                job_config=JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE),
            )
            if placement is not None:
                hand_in_placement(context, lambda: placement)
            processor.init(outbox, context)

    def call(self, index: int, callback: Callable[..., Any], *args: Any) -> Any:
        """Make one call and drain the outbox."""
        outbox = self.outboxes[index]
        outbox.begin_callback()
        answer = callback(*args)
        self.output += outbox.buckets[0]
        outbox.buckets[0].clear()
        return answer

    def feed(self, index: int, items: Iterable[Any], ordinal: int = 0) -> None:
        """Give a processor items."""
        inbox = Inbox()
        self._fed[index] = ordinal, list(items)
        inbox.fill(list(items))
        while inbox:
            self.call(index, self.processors[index].process, ordinal, inbox)

    def end_edge(self, ordinal: int) -> None:
        """End an edge of all processors."""
        for index, processor in enumerate(self.processors):
            while not self.call(index, processor.complete_edge, ordinal):
                pass

    def complete(self, calls: int = 1 << 30) -> list[Any]:
        """Complete the processors one after the other, with so many calls in all; return all output."""
        for index, processor in enumerate(self.processors):
            while calls and not self.call(index, processor.complete):
                calls -= 1
        return self.output

    def save(self) -> Entries:
        """Save all processors."""
        entries: Entries = []
        for index, processor in enumerate(self.processors):
            outbox, is_complete = self.outboxes[index], False
            while not is_complete:
                outbox.begin_saving()
                is_complete = processor.save_to_snapshot()
                self.output += outbox.buckets[0]
                outbox.buckets[0].clear()
                entries += outbox.end_saving(is_complete)
        return entries

    def save_meanwhile(self) -> Entries:
        """Save all processors. Where state is captured, a processor goes on before it is saved; that output is lost."""
        entries: Entries = []
        for index, processor in enumerate(self.processors):
            is_captured = captures(processor)
            while is_captured and not self.call(index, capture, processor):
                pass
            output = list(self.output) if is_captured else self.output
            going_on = self._going_on(index) if is_captured else iter(())
            outbox, is_complete = self.outboxes[index], False
            while not is_complete:
                with suppress(BatchError):
                    next(going_on, None)
                outbox.begin_saving()
                is_complete = processor.save_to_snapshot()
                self.output += outbox.buckets[0]
                outbox.buckets[0].clear()
                entries += outbox.end_saving(is_complete)
            self.output[:] = output
        return entries

    def _going_on(self, index: int) -> Iterator[None]:
        """Give a processor its last items again, step by step, then a late watermark, and complete it."""
        processor = self.processors[index]
        ordinal, items = self._fed.get(index, (0, []))
        if not getattr(processor, "_finishing", False):
            for _ in range(2):
                self.feed(index, items, ordinal)
                yield
            while not self.call(index, processor.try_process_watermark, Watermark(1 << 40)):
                yield
        while not self.call(index, processor.complete):
            yield

    def restored(self, count: int = 0, placement: StatePlacement | None = None, **options: Any) -> Stage:
        """Save all processors, lose them, and return others with their state and their output."""
        entries = self.save_meanwhile()
        other = Stage(self.supplier, count or len(self.processors), placement or self.placement, **options)
        other.restore(pickle.loads(pickle.dumps(entries)))
        other.output += self.output
        self.close()
        return other

    def restore(self, entries: Entries) -> None:
        """Give entries to their owners."""
        for index, processor in enumerate(self.processors):
            inbox = Inbox()
            inbox.fill(list(self._own(index, entries)))
            while inbox:
                processor.restore_from_snapshot(inbox)
            while not processor.finish_snapshot_restore():
                pass

    def _own(self, index: int, entries: Entries) -> Iterator[tuple[Any, Any]]:
        partitioner = self.placement and self.placement.partitioner
        for key, value in entries:
            if isinstance(key, BroadcastKey):
                yield key, value
                continue
            if isinstance(key, OwnRows):
                taken = bytes(partition % len(self.processors) == index for partition in range(self.partitions))
                yield OwnRows(key.number, taken), value
                continue
            partition = partitioner(key, self.partitions) if partitioner else partition_id(key, self.partitions)
            if partition % len(self.processors) == index:
                yield key, value

    def close(self) -> None:
        """Close all processors."""
        for processor in self.processors:
            processor.close()
