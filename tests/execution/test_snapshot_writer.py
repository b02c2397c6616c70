"""Entries on their way into pieces: those with columns are written before all of them have been offered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from shmjet import Batch
from shmjet._native import Codec
from shmjet.core import BroadcastKey
from shmjet.execution.snapshot_writer import ProcessorEntries, SnapshotWriter, column_bytes
from shmjet.snapshots.chunk import SCHEME_DEFAULT
from shmjet.snapshots.manifest import BROADCAST, OWNED, SEVERAL, Piece


class Written:
    """A writer that keeps what it gets."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, list[Any]]] = []

    error: str | None = None

    def write(self, entries: list[Any], partition: int, *_: Any, most: int | None = None) -> Piece | None:
        size = 24 + sum(len(value) if isinstance(value, bytes) else 8 for _, value in entries)
        if most is not None and size > most:
            return None
        self.pieces.append((partition, [key for key, _ in entries]))
        return Piece(partition, "", 0, size, 0, len(entries))


class ByKey:
    """The key is the partition."""

    first, count, scheme, checksum = 0, 9, SCHEME_DEFAULT, 77

    def split(self, entries: list[Any]) -> list[list[Any] | None]:
        return [[entry for entry in entries if entry[0] == partition] or None for partition in range(self.count)]

    def split_by_owner(self, entries: list[Any]) -> list[list[Any] | None] | None:
        """Keys up to 4 are of processor 0, the others of processor 1."""
        if any(isinstance(key, BroadcastKey) for key, _ in entries):
            return None
        low, high = ([entry for entry in entries if (entry[0] > 4) == is_high] for is_high in (False, True))
        return [low or None, high or None]


def rows(count: int) -> Batch:
    return Batch({"v": np.zeros(count)})


def entries_of(*calls: list[Any]) -> Written:
    """Offer entries in some calls, and return what is written before the end."""
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey(), 0)  # type: ignore[arg-type]
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
    calls: list[list[Any]] = [[(1, ("form", large, None)), (1, ("form", large, None))], [(2, (large,)), (3, (large,))]]
    assert entries_of(*calls).pieces == [(1, [1, 1]), (2, [2]), (3, [3])]


def test_broadcast_columns_are_written_as_they_come_in_order() -> None:
    keys = [BroadcastKey((0, number)) for number in range(6)]
    calls = [[(key, rows(20_000)) for key in keys[at : at + 2]] for at in (0, 2, 4)]
    assert entries_of(*calls).pieces == [(BROADCAST, keys[0:2]), (BROADCAST, keys[2:4]), (BROADCAST, keys[4:6])]


def test_small_state_waits_for_the_end() -> None:
    assert entries_of([(1, rows(10)), (2, (rows(10),))], [(3, 5)]).pieces == []
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey(), 0)  # type: ignore[arg-type]
    entries.add([(1, rows(10)), (7, 7)])
    assert entries.flush(lambda: False)
    assert [partition for partition, _ in written.pieces] == [SEVERAL]


def test_only_the_last_entry_says_whether_there_are_columns() -> None:
    assert column_bytes([]) == 0
    assert column_bytes([(1, rows(100)), (2, 3)]) == 0
    assert column_bytes([(1, (2, rows(100))), (2, rows(100))]) == 1600


def test_few_entries_of_one_processor_make_one_piece_of_it() -> None:
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey(), 0)  # type: ignore[arg-type]
    entries.add([(7, 1), (5, 2)])
    assert entries.flush(lambda: False)
    assert written.pieces == [(OWNED - 1, [7, 5])]


def test_many_entries_make_pieces_of_about_the_same_bytes_before_all_have_been_offered() -> None:
    written = entries_of([(1, 0)] * 2300, [(5, 0)] * 3)
    assert [(partition, len(keys)) for partition, keys in written.pieces] == [(OWNED, 256)]
    written = entries_of([(1, 0)] * 2400, [(5, 0)] * 3)
    assert [(partition, len(keys)) for partition, keys in written.pieces] == [(OWNED, 256), (OWNED, 2048)]


def test_large_entries_do_not_wait_for_many() -> None:
    large = bytes(10_000)
    written = entries_of(*[[(1, large)] * 64 for _ in range(8)])
    assert [(partition, len(keys)) for partition, keys in written.pieces] == [(OWNED, 256), *[(1, 26)] * 9]


def test_few_large_entries_make_several_pieces() -> None:
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey(), 0)  # type: ignore[arg-type]
    entries.add([(key % 9, bytes(100_000)) for key in range(40)])
    assert entries.flush(lambda: False)
    assert sum(len(keys) for _, keys in written.pieces) == 40
    assert max(len(keys) for _, keys in written.pieces) <= 16


def test_a_large_entry_by_itself_is_encoded_once(tmp_path: Path) -> None:
    pickled: list[Any] = []

    class Large:
        def __reduce__(self) -> Any:
            pickled.append(self)
            return bytes, (1 << 20,)

    writer = SnapshotWriter(str(tmp_path), "1.chunk", Codec())
    for _ in range(2):  # with the first one it is found out whether it can be read back
        entries: Any = ProcessorEntries(writer, ByKey(), 0)  # type: ignore[arg-type]
        entries.add([(7, Large())])
        pickled.clear()
        assert entries.flush(lambda: False)
        assert len(entries.pieces) == 1
    writer.close()
    assert len(pickled) == 1


def test_large_entries_go_by_partition_once_a_piece_has_shown_that_they_are_large() -> None:
    written = Written()
    entries: Any = ProcessorEntries(written, ByKey(), 0)  # type: ignore[arg-type]
    for _ in range(40):
        entries.add([(key, bytes(50_000)) for key in range(9)])
        assert entries.write_full(lambda: False)
    assert entries.flush(lambda: False)
    first, *others = written.pieces
    assert first[0] <= OWNED
    assert sum(len(keys) for _, keys in others) == 9 * 40 - len(first[1])
    assert all(set(keys) == {partition} for partition, keys in others if partition >= 0)
    assert sum(len(keys) for partition, keys in others if partition <= OWNED) < 40
