"""A job whose counts tell whether its state was exact: numbered items, counts by key, one file with the result."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from shmjet import DAG, Processor, between
from shmjet.core import BroadcastKey, Inbox, Outbox, ProcessorContext

KEYS = 10
SHARDS = 6


class Numbers(Processor):
    """Emits 0 .. count - 1, a few every millisecond, and waits at the end for a file; it saves its position."""

    _saves_at_end = True

    def __init__(self, count: int, gate: Path | None) -> None:
        self._count, self._gate, self._next = count, gate, 0

    def complete(self) -> bool:
        until = min(self._next + 20, self._count)
        while self._next < until:
            if not self.outbox.offer(self._next):
                return False
            self._next += 1
        self.next_call = 0.001
        return self._next == self._count and (self._gate is None or self._gate.exists())

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(BroadcastKey(self.context.global_index), self._next)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        for key, value in inbox:
            if key.key == self.context.global_index:
                self._next = value
        inbox.clear()


class Shards(Processor):
    """Emits 0 .. count - 1 for each of `SHARDS` shards, however many processors share them, and waits for a file."""

    _saves_at_end = True

    def __init__(self, count: int, gate: Path | None) -> None:
        self._count, self._gate = count, gate
        self._next: dict[int, int] = {}

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        mine = range(context.global_index, SHARDS, context.total_parallelism)
        self._next = dict.fromkeys(mine, 0)

    def complete(self) -> bool:
        for shard, position in self._next.items():
            until = min(position + 10, self._count)
            while self._next[shard] < until:
                if not self.outbox.offer(self._next[shard]):
                    return False
                self._next[shard] += 1
        self.next_call = 0.001
        is_done = all(position == self._count for position in self._next.values())
        return is_done and (self._gate is None or self._gate.exists())

    def save_to_snapshot(self) -> bool:
        return all(self.outbox.offer_to_snapshot(BroadcastKey(shard), at) for shard, at in self._next.items())

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        for key, value in inbox:
            if key.key in self._next:
                self._next[key.key] = value
        inbox.clear()


class Counts(Processor):
    """Counts items by key and emits the counts at the end."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._unsaved: list[tuple[int, int]] | None = None

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for item in inbox:
            self._counts[item % KEYS] = self._counts.get(item % KEYS, 0) + 1
        inbox.clear()

    def complete(self) -> bool:
        while self._counts:
            key, count = next(iter(self._counts.items()))
            if not self.outbox.offer((key, count)):
                return False
            del self._counts[key]
        return True

    def save_to_snapshot(self) -> bool:
        if self._unsaved is None:
            self._unsaved = list(self._counts.items())
        while self._unsaved:
            if not self.outbox.offer_to_snapshot(*self._unsaved[-1]):
                return False
            self._unsaved.pop()
        self._unsaved = None
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        self._counts.update(inbox)
        inbox.clear()


class Result(Processor):
    """Keeps the counts that it gets, and writes them to a file when all are there, if there are any."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._got: dict[int, int] = {}

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self._got.update(inbox)
        inbox.clear()

    def complete(self) -> bool:
        if not self._got:
            return True
        temporary = self._file.with_suffix(".part")
        temporary.write_text(json.dumps(sorted(self._got.items())))
        os.replace(temporary, self._file)
        return True

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("got", self._got)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        for _, got in inbox:
            self._got.update(got)
        inbox.clear()


def counting(
    file: Path,
    count: int,
    *,
    gate: Path | None = None,
    sources: int = 2,
    counts: int = 2,
    spreads: bool = False,
    source: type[Numbers] | type[Shards] = Numbers,
    result: type[Result] = Result,
) -> DAG:
    """Return a job that counts the numbers of some sources by key.

    Args:
        file: gets the result.
        count: how many numbers each source emits.
        gate: its sources end when this file is there.
        sources: how many there are.
        counts: how many processors count.
        spreads: over all members, on each of which there are so many processors.
        source: of the numbers.
        result: writes the file.
    """
    dag = DAG()
    numbers = dag.new_vertex("numbers", lambda: source(count, gate), sources)
    counter = dag.new_vertex("counts", Counts, counts)
    results = dag.new_vertex("result", lambda: result(file), 1)
    to_counter, to_result = between(numbers, counter).partitioned(lambda item: item % KEYS), between(counter, results)
    if spreads:
        to_counter, to_result = to_counter.distributed(), to_result.distributed().all_to_one()
    return dag.edge(to_counter).edge(to_result)


def exact(count: int, sources: int = 2) -> list[Any]:
    """Return what the file has to hold."""
    return [[key, sources * count // KEYS] for key in range(KEYS)]
