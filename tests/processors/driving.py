"""A driver that plays the engine for one processor, with an outbox as narrow as a test wants it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.job import JobConfig
from shmjet.core.keys import partition_id
from shmjet.core.latency_policy import THROUGHPUT, LatencyPolicy, set_policy
from shmjet.core.outbox import Outbox
from shmjet.core.processor import Processor, ProcessorMetaSupplier
from shmjet.core.state_placement import StatePlacement, hand_in_placement


def processors_of(supplier: Any, count: int = 1) -> list[Processor]:
    """Make the processors of a vertex on one member; the meta-supplier stays open."""
    meta = ProcessorMetaSupplier.of(supplier)
    meta.init(MetaSupplierContext(vertex_name="v", local_parallelism=count, total_parallelism=count))
    given = meta.get(["here"])
    supplier = given["here"] if not callable(given) else given("here")
    return list(supplier.get(count))


def restored(
    supplier: Any,
    entries: list[tuple[Any, Any]],
    count: int,
    to_one: int | None = None,
    placement: StatePlacement | None = None,
) -> list[Driver]:
    """Return processors that go on from entries of a vertex: each has the entries that the engine gives it.

    Args:
        supplier: of the vertex.
        entries: of all processors.
        count: processors that there are now.
        to_one: the processor to which all edges lead, where they do.
        placement: what processors are told of their edges.
    """
    drivers = [
        Driver(processor, index=i, count=count, placement=placement)
        for i, processor in enumerate(processors_of(supplier, count))
    ]
    for i, driver in enumerate(drivers):
        driver.restore(
            [
                (key, value)
                for key, value in entries
                if isinstance(key, BroadcastKey) or i == (partition_id(key) % count if to_one is None else to_one)
            ]
        )
    return drivers


class Driver:
    """Calls a processor as the engine does and collects what it emits."""

    def __init__(
        self,
        processor: Processor,
        *,
        room: int = 2048,
        index: int = 0,
        count: int = 1,
        grid: Any = None,
        config: JobConfig | None = None,
        policy: LatencyPolicy = THROUGHPUT,
        placement: StatePlacement | None = None,
    ):
        self.processor = processor
        self.outbox = Outbox([room])
        self.output: list[Any] = []
        self.calls = 0
        context = ProcessorContext(
            vertex_name="v",
            local_index=index,
            global_index=index,
            local_parallelism=count,
            total_parallelism=count,
            grid=grid,
            job_config=config or JobConfig(),
        )
        set_policy(context, policy)
        if placement is not None:
            hand_in_placement(context, lambda: placement)
        processor.init(self.outbox, context)

    def call(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Make one call and drain the outbox."""
        self.calls += 1
        self.outbox.begin_callback()
        result = callback(*args)
        self.output += self.outbox.buckets[0]
        self.outbox.buckets[0].clear()
        return result

    def until_true(self, callback: Callable[..., Any], *args: Any, limit: int = 100_000) -> None:
        """Call until the answer is True."""
        for _ in range(limit):
            if self.call(callback, *args):
                return
        raise AssertionError(f"{callback} was not through after {limit} calls")

    def feed(self, items: Iterable[Any], ordinal: int = 0) -> Driver:
        """Give a batch."""
        inbox = Inbox()
        self.until_true(self.processor.try_process)
        inbox.fill(list(items))
        while inbox:
            self.call(self.processor.process, ordinal, inbox)
        return self

    def save(self, limit: int = 100_000) -> list[tuple[Any, Any]]:
        """Save the processor's state and return copies of its entries."""
        entries: list[tuple[Any, Any]] = []
        for _ in range(limit):
            self.outbox.begin_saving()
            answer = self.processor.save_to_snapshot()
            fresh = self.outbox.end_saving(answer)
            self.output += self.outbox.buckets[0]
            self.outbox.buckets[0].clear()
            entries += pickle.loads(pickle.dumps(fresh))
            if answer:
                return entries
        raise AssertionError(f"save_to_snapshot() was not through after {limit} calls")

    def restore(self, entries: list[tuple[Any, Any]]) -> Driver:
        """Give entries back, some at a time."""
        inbox = Inbox()
        for start in range(0, len(entries), 3):
            inbox.fill(entries[start : start + 3])
            while inbox:
                self.call(self.processor.restore_from_snapshot, inbox)
        self.until_true(self.processor.finish_snapshot_restore)
        return self

    def complete(self, edges: Sequence[int] = (0,)) -> list[Any]:
        """End the edges and the processor; return all output."""
        for ordinal in edges:
            self.until_true(self.processor.complete_edge, ordinal)
        self.until_true(self.processor.complete)
        self.processor.close()
        return self.output
