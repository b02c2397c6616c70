"""The jobs of `recovery.py`: keyed state on all members, and sinks that note when items come.

A sink notes in a file of its own, named by the number of the attempt and something unique: how many items it has had,
and when the first and the last of them came, on the monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from shmjet import DAG, AbstractProcessor, BroadcastKey, Processor, between, processors

NOTE = struct.Struct("<qdd")
"""Items, time of the first, time of the last. The peer's program writes the same."""
AT_ONCE = 1024


class Numbers(Processor):
    """Gives each number below `keys` once, and then one every millisecond, in turn; with `count`, so many and no more.

    Each processor gives its own, and goes on where it was, or where another one of the same number was.
    """

    def __init__(self, keys: int, count: int = 0) -> None:
        self._keys = keys
        self._count = count
        self._next = 0
        self._rest: list[int] = []

    def complete(self) -> bool:
        if not self._rest:
            if self._count and self._next >= self._count:
                return True
            is_filling = self._count or self._next < self._keys
            self.next_call = None if is_filling else 0.001
            size = min(AT_ONCE, (self._count or self._keys) - self._next) if is_filling else 1
            self._rest = [number % self._keys for number in range(self._next, self._next + size)]
            self._next += size
        self._rest = self._rest[self.outbox.offer_all(self._rest) :]
        return False

    def save_to_snapshot(self) -> bool:
        position = self._next - len(self._rest)
        return self.outbox.offer_to_snapshot(BroadcastKey(self.context.global_index), position)

    def restore_from_snapshot(self, inbox: Any) -> None:
        for key, position in inbox:
            if key.key == self.context.global_index:
                self._next = position
        inbox.clear()


class Noted(AbstractProcessor):
    """A sink that notes what comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._note: mmap.mmap | None = None
        self._first = 0.0
        self._count = 0

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        now = time.monotonic()
        if self._note is None:
            self._first = now
            path = self._folder / f"{self.context.execution_id}.{uuid.uuid4().hex}"
            with path.open("w+b") as file:
                os.truncate(file.fileno(), NOTE.size)
                self._note = mmap.mmap(file.fileno(), NOTE.size)
        self._count += 1
        NOTE.pack_into(self._note, 0, self._count, self._first, now)
        return True

    def save_to_snapshot(self) -> bool:
        return True


@dataclass(frozen=True)
class Attempt:
    """What the sinks of one attempt have noted.

    Args:
        items: that have come.
        first: when the first one came, in seconds.
        last: when the last one came.
    """

    items: int
    first: float
    last: float


def attempts(folder: Path) -> dict[str, Attempt]:
    """Return what was noted, by the names of attempts."""
    found: dict[str, Attempt] = {}
    for path in folder.iterdir():
        data = path.read_bytes()
        if len(data) == NOTE.size:
            count, first, last = NOTE.unpack(data)
            if count:
                name = path.name.partition(".")[0]
                known = found.get(name, Attempt(0, first, last))
                found[name] = Attempt(known.items + count, min(known.first, first), max(known.last, last))
    return found


def counting(keys: int, value_bytes: int, folder: Path) -> DAG:
    """An endless job that keeps `value_bytes` bytes for each key, on all members."""
    dag = DAG()
    source = dag.new_vertex("numbers", partial(Numbers, keys), 1)
    state = dag.new_vertex("state", processors.map_stateful(partial(_new_state, value_bytes), _counted, _itself), 1)
    sink = dag.new_vertex("sink", partial(Noted, folder), 1)
    dag.edge(between(source, state).partitioned(_itself).distributed())
    return dag.edge(between(state, sink))


def bounded(keys: int, count: int) -> DAG:
    """The same with so many numbers of each source, and without notes."""
    dag = DAG()
    source = dag.new_vertex("numbers", partial(Numbers, keys, count), 1)
    state = dag.new_vertex("state", processors.map_stateful(partial(_new_state, 8), _counted, _itself), 1)
    dag.edge(between(source, state).partitioned(_itself).distributed())
    return dag.edge(between(state, dag.new_vertex("sink", processors.noop(), 1)))


def _new_state(value_bytes: int) -> list[Any]:
    return [0, os.urandom(value_bytes)]


def _counted(state: list[Any], key: int, item: int) -> int:
    state[0] += 1
    return item


def _itself(item: int) -> int:
    return item
