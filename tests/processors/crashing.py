"""Plays the engine for one vertex whose job is killed and restored repeatedly, by a seeded schedule.

What it promises processors is what the engine promises: all entries of a valid snapshot come back, those under a
`BroadcastKey` to all; processors that had ended stay ended if their number is the same; phase two of a snapshot comes
only when all have prepared, and is not repeated by the engine after a crash; sinks are not completed before a snapshot
with all their input has been committed.
"""

from __future__ import annotations

import gc
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.context import MetaSupplierContext, ProcessorContext, SupplierContext
from shmjet.core.inbox import Inbox
from shmjet.core.job import JobConfig, ProcessingGuarantee
from shmjet.core.outbox import Outbox
from shmjet.core.processor import CommittingSupplier, Processor, ProcessorMetaSupplier
from shmjet.core.saving import saves_at_end

Entries = list[tuple[Any, Any]]

EXACTLY_ONCE = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)


class Attempt:
    """The processors of a vertex from their start to their end or death."""

    def __init__(
        self,
        supplier: Any,
        count: int,
        *,
        config: JobConfig = EXACTLY_ONCE,
        grid: Any = None,
        room: Callable[[], int] = lambda: 8,
        job_id: str = "job",
    ) -> None:
        common: dict[str, Any] = {
            "vertex_name": "v",
            "local_parallelism": count,
            "total_parallelism": count,
            "grid": grid,
            "job_config": config,
            "job_id": job_id,
        }
        self.meta = ProcessorMetaSupplier.of(supplier)
        self.meta.init(MetaSupplierContext(**common))
        given = self.meta.get(["here"])
        self.supplier = given["here"] if not callable(given) else given("here")
        self.supplier.init(SupplierContext(**common))
        self.processors: list[Processor] = list(self.supplier.get(count))
        self.outboxes = [Outbox([room()]) for _ in range(count)]
        self.outputs: list[list[Any]] = [[] for _ in range(count)]
        self.ended: dict[int, Entries] = {}
        for index, processor in enumerate(self.processors):
            processor.init(self.outboxes[index], ProcessorContext(**common, local_index=index, global_index=index))

    @property
    def live(self) -> list[int]:
        """Indexes of the processors that have not ended."""
        return [index for index in range(len(self.processors)) if index not in self.ended]

    def restore(self, snapshot: Snapshot) -> None:
        """Give the entries back; processors that had ended do not begin."""
        if snapshot.count == len(self.processors):
            self.ended = {index: snapshot.entries[index] for index in snapshot.ended}
        for index in self.live:
            inbox = Inbox()
            inbox.fill([entry for entries in snapshot.entries.values() for entry in entries])
            while inbox:
                self.processors[index].restore_from_snapshot(inbox)
            self._until_true(index, self.processors[index].finish_snapshot_restore)

    def call(self, index: int, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Make one call and take what it emitted."""
        self.outboxes[index].begin_callback()
        answer = callback(*arguments)
        bucket = self.outboxes[index].buckets[0]
        self.outputs[index] += bucket
        bucket.clear()
        return answer

    def complete(self, index: int) -> None:
        """Call `complete` once; at the end take the state of a source at its end."""
        processor = self.processors[index]
        if self.call(index, processor.complete):
            self.ended[index] = self.save(index) if saves_at_end(processor) else []

    def save(self, index: int) -> Entries:
        """Save one processor."""
        entries: Entries = []
        through = False
        while not through:
            self.outboxes[index].begin_saving()
            through = self.processors[index].save_to_snapshot()
            bucket = self.outboxes[index].buckets[0]
            self.outputs[index] += bucket
            bucket.clear()
            entries += self.outboxes[index].end_saving(through)
        assert all(isinstance(key, BroadcastKey) for key, _ in entries), "other keys would need partitions here"
        return entries

    def prepare(self, index: int) -> None:
        """Prepare the transaction of one processor."""
        self._until_true(index, self.processors[index].snapshot_commit_prepare)

    def finish(self, index: int, success: bool = True) -> None:
        """Tell one processor how a snapshot has ended."""
        self._until_true(index, lambda: self.processors[index].snapshot_commit_finish(success))

    def end(self, error: BaseException | None = None) -> None:
        """Close everything; without an error commit first what waits for the end of the job."""
        for processor in self.processors:
            processor.close()
        if error is None:
            if isinstance(self.supplier, CommittingSupplier):
                self.supplier.commit()
            self.meta.commit()
        self.supplier.close(error)
        self.meta.close(error)

    def _until_true(self, index: int, callback: Callable[[], Any]) -> None:
        for _ in range(100_000):
            if self.call(index, callback):
                return
        raise AssertionError(f"{callback} was not through")


class Snapshot:
    """What one snapshot knows."""

    def __init__(self, entries: dict[int, Entries], ended: Sequence[int], count: int) -> None:
        self.entries = entries
        self.ended = tuple(ended)
        self.count = count


def _taken(attempt: Attempt, chance: random.Random) -> tuple[Snapshot, list[list[Any]]]:
    """Save the processors of a source one after the other while they go on; return what counts of their output."""
    entries: dict[int, Entries] = {}
    ended: list[int] = []
    counted: list[list[Any]] = [[] for _ in attempt.processors]
    for index in chance.sample(range(len(counted)), len(counted)):
        if index in attempt.ended:
            ended.append(index)
            entries[index] = attempt.ended[index]
        else:
            entries[index] = attempt.save(index)
        counted[index] = list(attempt.outputs[index])
        if attempt.live and chance.random() < 0.5:
            attempt.complete(chance.choice(attempt.live))
    return Snapshot(entries, ended, len(counted)), counted


def run_source(
    supplier: Callable[[], Any],
    seed: int,
    *,
    counts: Sequence[int] = (1, 2, 3),
    kills: int = 4,
    grid: Any = None,
    config: JobConfig = EXACTLY_ONCE,
) -> list[list[Any]]:
    """Run a source to its end through kills; return what its processors emitted that counts, a list for each of them.

    Args:
        supplier: makes the supplier of an attempt.
        seed: of the schedule.
        counts: numbers of processors to choose from.
        kills: how many there are at most.
    """
    chance = random.Random(seed)
    snapshot: Snapshot | None = None
    counted: list[list[Any]] = []
    while True:
        count = chance.choice(counts)
        attempt = Attempt(supplier(), count, grid=grid, config=config, room=lambda: chance.choice([1, 3, 50]))
        before = list(counted)
        if snapshot is not None:
            attempt.restore(snapshot)
        while attempt.live:
            step = chance.random()
            if step < 0.12:
                snapshot, now = _taken(attempt, chance)
                counted = [*before, *now]
            elif step < 0.16 and kills:
                kills -= 1
                break
            else:
                attempt.complete(chance.choice(attempt.live))
        else:
            attempt.end()
            return [*before, *attempt.outputs]
        attempt.end(RuntimeError("killed"))  # a source leaves nothing that a kill would leave otherwise


class Killed(Exception):
    """The attempt was killed here."""


def run_sink(
    supplier: Callable[[], Any],
    items: Sequence[Any],
    seed: int,
    *,
    counts: Sequence[int] = (1, 2, 3),
    kills: int = 5,
    grid: Any = None,
    config: JobConfig = EXACTLY_ONCE,
    failures: float = 0.2,
) -> None:
    """Run a sink to the end of its job through kills at any step of any snapshot.

    Args:
        supplier: makes the supplier of an attempt.
        items: of the job's source, which goes on at the position of the snapshot.
        seed: of the schedule.
        counts: numbers of processors to choose from.
        kills: how many there are at most.
        failures: share of snapshots that cannot be saved.
    """
    chance = random.Random(seed)
    snapshot, position = None, 0
    left = kills

    def step() -> None:
        nonlocal left
        if left and chance.random() < 0.06:
            left -= 1
            raise Killed

    while True:
        attempt = Attempt(supplier(), chance.choice(counts), grid=grid, config=config)
        at, number, saved = position, 0, snapshot
        indexes = range(len(attempt.processors))
        try:
            if snapshot is not None:
                attempt.restore(snapshot)
            at_end = False
            while not at_end:
                step()
                at_end = at >= len(items)
                if at_end or chance.random() < 0.3:
                    saved, success = _snapshot_of_sink(attempt, chance, step, chance.random() >= failures or at_end)
                    if success:
                        snapshot, position = saved, at
                        for index in chance.sample(indexes, len(indexes)):
                            step()
                            if not at_end:
                                at += _feed(attempt, index, items[at : at + chance.randrange(3)])
                            attempt.finish(index)
                else:
                    at += _feed(attempt, number % len(indexes), items[at : at + chance.randrange(1, 20)])
                    number += 1
            for index in indexes:
                step()
                while index in attempt.live:
                    attempt.complete(index)
            attempt.end()
            return
        except Killed:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                for processor in attempt.processors:
                    processor.__dict__.clear()  # nothing of it is called any more, and its descriptors are closed
                gc.collect()
            attempt.meta.close(RuntimeError("killed"))


def _snapshot_of_sink(
    attempt: Attempt, chance: random.Random, step: Callable[[], None], success: bool
) -> tuple[Snapshot, bool]:
    entries: dict[int, Entries] = {}
    indexes = range(len(attempt.processors))
    for index in chance.sample(indexes, len(indexes)):
        step()
        entries[index] = attempt.save(index)
        step()
        attempt.prepare(index)
    if not success:
        for index in indexes:
            attempt.finish(index, False)
    return Snapshot(entries, (), len(indexes)), success


def _feed(attempt: Attempt, index: int, items: Sequence[Any]) -> int:
    """Give items to a processor, and return how many they were."""
    inbox = Inbox()
    inbox.fill(list(items))
    while inbox:
        attempt.call(index, attempt.processors[index].process, 0, inbox)
    return len(items)
