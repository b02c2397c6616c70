"""The jobs of `restart.py`: an endless source, state, and a note of when each attempt has its first new item.

A note is a file named by the number of the attempt, with the monotonic time in it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy

from shmjet import DAG, AbstractProcessor, Batch, BroadcastKey, Processor, between, column, processors
from shmjet.columns import count
from shmjet.processors.general.wrapping import WrappingProcessor

BATCH_ROWS = 8192


class Numbers(Processor):
    """Gives each number below `keys` once, in lists or batches, and then 0 every millisecond."""

    next_call = 0.001

    def __init__(self, keys: int, *, batches: bool) -> None:
        self._keys = keys
        self._batches = batches
        self._next = 0
        self._rest = range(0)

    def complete(self) -> bool:
        if not self._rest:
            many = self._next < self._keys
            start = self._next if many else 0
            size = min(BATCH_ROWS, self._keys - start) if many else 1
            self._rest = range(start, start + size)
            self._next += size
        if self._batches:
            if self.outbox.offer(Batch({"key": numpy.arange(self._rest.start, self._rest.stop)})):
                self._rest = range(0)
        else:
            self._rest = self._rest[self.outbox.offer_all(list(self._rest)) :]
        return False

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(BroadcastKey(0), self._next - len(self._rest))

    def restore_from_snapshot(self, inbox: Any) -> None:
        for _, self._next in inbox:
            pass
        inbox.clear()


class Counts(AbstractProcessor):
    """Counts each number in a dict of plain tuples, and passes it on."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}
        self._saving: Any = None

    def try_process_any(self, ordinal: int, item: int) -> bool:
        if not self.try_emit(item):
            return False
        times, total = self._counts.get(item, (0, 0))
        self._counts[item] = times + 1, total + item
        return True

    def save_to_snapshot(self) -> bool:
        self._saving = self._saving or iter(self._counts.items())
        if not self.outbox.offer_all_to_snapshot(self._saving):
            return False
        self._saving = None
        return True

    def restore_from_snapshot(self, inbox: Any) -> None:
        self._counts.update(inbox)
        inbox.clear()


class Notes:
    """Writes a note for the first item of an attempt, and a file `full` after so many."""

    def __init__(self, folder: Path, keys: int) -> None:
        self._folder = folder
        self._keys = keys
        self._seen = 0

    def take(self, attempt: int, items: int) -> None:
        """Take that so many items have gone through."""
        if not self._seen:
            place = self._folder / str(attempt)
            place.with_suffix(".part").write_text(repr(time.monotonic()))
            place.with_suffix(".part").rename(place)
        if self._seen < self._keys <= self._seen + items:
            (self._folder / "full").touch()
        self._seen += items


class Noted(AbstractProcessor):
    """A sink that writes notes."""

    def __init__(self, folder: Path, keys: int) -> None:
        self._notes = Notes(folder, keys)

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        self._notes.take(self.context.execution_id, 1)
        return True

    def save_to_snapshot(self) -> bool:
        return True


class NotedTable(WrappingProcessor):
    """Passes on to a native table, which emits at its end only, and notes what that has taken."""

    def __init__(self, wrapped: Processor, folder: Path, keys: int) -> None:
        super().__init__(wrapped)
        self._notes = Notes(folder, keys)

    def process(self, ordinal: int, inbox: Any) -> None:
        rows = sum(batch.num_rows for batch in inbox)
        super().process(ordinal, inbox)
        self._notes.take(self.context.execution_id, rows - sum(batch.num_rows for batch in inbox))


def empty_job(keys: int, folder: Path) -> DAG:
    """A source and a sink without state."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Numbers(keys, batches=False), 1)
    return dag.edge(between(source, dag.new_vertex("sink", lambda: Noted(folder, keys), 1)))


def dict_job(keys: int, folder: Path) -> DAG:
    """Numbers counted in a dict in front of the sink."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Numbers(keys, batches=False), 1)
    counts = dag.new_vertex("counts", Counts, 1)
    sink = dag.new_vertex("sink", lambda: Noted(folder, keys), 1)
    return dag.edge(between(source, counts).partitioned(_itself)).edge(between(counts, sink))


def native_job(keys: int, folder: Path) -> DAG:
    """Batches into the table of `group_by`."""
    dag = DAG()
    grouping = processors.group_by("key").agg(n=count())
    source = dag.new_vertex("source", lambda: Numbers(keys, batches=True), 1)
    groups = dag.new_vertex("groups", lambda: NotedTable(grouping(), folder, keys), 1)
    sink = dag.new_vertex("sink", processors.noop(), 1)
    return dag.edge(between(source, groups).partitioned(column("key"))).edge(between(groups, sink))


def _itself(item: int) -> int:
    return item


JOBS = {"restart_empty": empty_job, "restart_native": native_job, "restart_dicts": dict_job, "restart_count": dict_job}
"""By the names of the benches."""
