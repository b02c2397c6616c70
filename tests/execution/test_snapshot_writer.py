"""Entries on their way into pieces: those with columns are written before all of them have been offered."""

from __future__ import annotations

from typing import Any

import numpy as np

from shmjet import Batch
from shmjet.core import BroadcastKey
from shmjet.execution.snapshot_writer import ProcessorEntries, column_bytes
from shmjet.snapshots.manifest import BROADCAST, SEVERAL, Piece


class Written:
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, list[Any]]] = []

    def write(self, entries: list[Any], partition: int, *_: Any) -> Piece | None:
        self.pieces.append((partition, [key for key, _ in entries]))
        return None


class ByKey:
    """The key is the partition."""

    count, scheme = 9, 0

    def split(self, entries: list[Any]) -> list[list[Any] | None]:
        return [[entry for entry in entries if entry[0] == partition] or None for partition in range(self.count)]


def rows(count: int) -> Batch:
    return Batch({"v": np.zeros(count)})


def entries_of(*calls: list[Any]) -> Written:
    """Offer entries in some calls, and return what is written before the end."""
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey())  # type: ignore[arg-type]
    for call in calls:
        entries.add(call)
        assert entries.write_full(lambda: False)
    before = list(written.pieces)
    assert entries.flush(lambda: False)
    assert sorted(str(key) for _, keys in written.pieces for key in keys) == sorted(
        str(key) for call in calls for key, _ in call
    )
    written.pieces = before
    return written


def test_pieces_with_columns_are_written_as_they_come() -> None:
    large = rows(20_000)
    calls = [[(1, ("form", large, None)), (1, ("form", large, None))], [(2, (large,)), (3, (large,))]]
    assert entries_of(*calls).pieces == [(1, [1, 1]), (2, [2]), (3, [3])]


def test_broadcast_columns_are_written_as_they_come_in_order() -> None:
    keys = [BroadcastKey((0, number)) for number in range(6)]
    calls = [[(key, rows(20_000)) for key in keys[at : at + 2]] for at in (0, 2, 4)]
    assert entries_of(*calls).pieces == [(BROADCAST, keys[0:2]), (BROADCAST, keys[2:4]), (BROADCAST, keys[4:6])]


def test_small_state_waits_for_the_end() -> None:
    assert entries_of([(1, rows(10)), (2, (rows(10),))], [(3, 5)]).pieces == []
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey())  # type: ignore[arg-type]
    entries.add([(1, rows(10)), (2, 7)])
    assert entries.flush(lambda: False)
    assert [partition for partition, _ in written.pieces] == [SEVERAL]


def test_only_the_last_entry_says_whether_there_are_columns() -> None:
    assert column_bytes([]) == 0
    assert column_bytes([(1, rows(100)), (2, 3)]) == 0
    assert column_bytes([(1, (2, rows(100))), (2, rows(100))]) == 1600
