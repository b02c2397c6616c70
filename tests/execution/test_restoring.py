"""Pieces of one processor's entries come back to it alone; where partitions have other owners they go by key."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shmjet._native import Codec
from shmjet.columns import Batch
from shmjet.core import BroadcastKey, Inbox
from shmjet.core.keys import partition_id
from shmjet.core.saving import are_own
from shmjet.core.state_placement import OwnRows
from shmjet.execution.restoring import Restoring
from shmjet.execution.snapshot_writer import ProcessorEntries, SnapshotWriter
from shmjet.execution.state_partitions import StatePartitions
from shmjet.snapshots.chunk import ChunkReader
from shmjet.snapshots.manifest import (
    OWNED,
    DamagedSnapshotError,
    Manifest,
    Piece,
    ProcessorRecord,
    SavedVertex,
    write_manifest,
)

STATE = [(f"key {number}", (number, float(number))) for number in range(9000)]


def plan_of(parallelism: int, partition_count: int = 271, *, members: int = 1) -> Any:
    """A plan of one vertex without edges, whose partitions are dealt out in turn; on the last of some members."""
    vertex = SimpleNamespace(name="v", parallelism=parallelism // members, inbound=0)
    slot = SimpleNamespace(index=members - 1, count=members)
    return SimpleNamespace(partition_count=partition_count, vertices=[vertex], edges=[], slot=slot)


def owner_of(key: str, parallelism: int, partition_count: int = 271) -> int:
    return partition_id(key, partition_count) % parallelism


def save(folder: Path, finished: frozenset[int] = frozenset(), *, mixed: bool = False) -> list[Piece]:
    """Let three processors save the state, each what it owns, or what comes in turn; return the pieces."""
    writer, pieces, records = SnapshotWriter(str(folder), "a.chunk", Codec()), [], []
    for processor in range(3):
        own = [entry for entry in STATE if owner_of(entry[0], 3) == processor]
        entries = ProcessorEntries(writer, StatePartitions(plan_of(3), [], 0), processor)
        share = STATE[processor::3] if mixed else own
        for at in range(0, len(share), 700):
            entries.add(share[at : at + 700])
            assert entries.write_full(lambda: False)
        assert entries.flush(lambda: False)
        pieces += entries.pieces
        records.append(ProcessorRecord(processor, processor in finished, entries.pieces))
    writer.close()
    write_manifest(folder / "m", Manifest("l", 1, "j", None, 0.0, False, [SavedVertex("v", 3, 271, records)]))
    return pieces


def restored(folder: Path, processor: int, plan: Any) -> list[Any]:
    """What a processor gets in a process of its own."""
    restoring = Restoring(str(folder / "m"), plan, [], lambda v: StatePartitions(plan, [], v), Codec())
    share = restoring.share((0, processor))
    found = [*share.final, *(entry for entries in share.lists for entry in entries)]
    restoring.close()
    return found


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("parallelism", "partition_count"), [(3, 271), (1, 271), (2, 271), (5, 271), (3, 100)])
def test_each_processor_gets_the_entries_of_its_partitions(
    tmp_path: Path, parallelism: int, partition_count: int, mixed: bool
) -> None:
    pieces = save(tmp_path, mixed=mixed)
    assert {piece.partition for piece in pieces} == {OWNED, OWNED - 1, OWNED - 2}
    for processor in range(parallelism):
        found = restored(tmp_path, processor, plan_of(parallelism, partition_count))
        expected = [entry for entry in STATE if owner_of(entry[0], parallelism, partition_count) == processor]
        assert sorted(found) == sorted(expected)


def test_a_piece_of_one_processor_is_read_by_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[Piece] = Counter()
    entries_of = ChunkReader.entries

    def counted(reader: ChunkReader, piece: Piece) -> list[Any]:
        read[piece] += 1
        return entries_of(reader, piece)

    monkeypatch.setattr(ChunkReader, "entries", counted)
    pieces = save(tmp_path)
    for processor in range(3):
        restored(tmp_path, processor, plan_of(3))
    assert read == Counter(pieces)


def open_files(folder: Path) -> set[str]:
    """The files of a folder that this process has open."""
    links = [Path(entry) for entry in os.scandir("/proc/self/fd")]
    return {os.readlink(link) for link in links if link.is_symlink() and Path(os.readlink(link)).parent == folder}


def test_files_are_closed_when_all_processors_have_their_shares(tmp_path: Path) -> None:
    save(tmp_path)
    plan = plan_of(3)
    restoring = Restoring(str(tmp_path / "m"), plan, [], lambda v: StatePartitions(plan, [], v), Codec())
    for processor in range(3):
        restoring.expect((0, processor))
    for processor in range(3):
        assert list(restoring.share((0, processor)).lists)
        assert open_files(tmp_path) == (set() if processor == 2 else {str(tmp_path / "a.chunk")})


def test_a_processor_gets_back_what_it_has_saved_for_one_that_had_ended(tmp_path: Path) -> None:
    save(tmp_path, frozenset({1}), mixed=True)
    for processor in (0, 2):
        found = [entry for entry in restored(tmp_path, processor, plan_of(3)) if owner_of(entry[0], 3) == 1]
        own = [entry for entry in STATE[processor::3] if owner_of(entry[0], 3) == 1]
        assert sorted(found) == sorted(own)


def save_rows(folder: Path, finished: frozenset[int] = frozenset()) -> None:
    """Let three processors save rows that are numbers of partitions, each its own."""
    writer, records = SnapshotWriter(str(folder), "a.chunk", Codec()), []
    for processor in range(3):
        entries = ProcessorEntries(writer, StatePartitions(plan_of(3), [], 0), processor)
        numbers = Batch({"n": range(processor, 271, 3)})
        entries.add([(BroadcastKey(("head", processor)), processor), (OwnRows(0), numbers[:50])])
        entries.add([(OwnRows(1), numbers[50:])])
        assert entries.flush(lambda: False)
        records.append(ProcessorRecord(processor, processor in finished, entries.pieces))
    writer.close()
    write_manifest(folder / "m", Manifest("l", 1, "j", None, 0.0, False, [SavedVertex("v", 3, 271, records)]))


def taken(entries: list[Any]) -> list[int]:
    """The rows that a processor takes of what comes back."""
    rows = [(key, n) for key, batch in entries if isinstance(key, OwnRows) for n in batch["n"].tolist()]
    return sorted(n for key, n in rows if key.taken is None or key.taken[n])


def test_rows_come_back_to_their_processor_alone_while_partitions_have_the_same_owners(tmp_path: Path) -> None:
    save_rows(tmp_path)
    for processor in range(3):
        found = restored(tmp_path, processor, plan_of(3))
        assert [key.taken for key, _ in found if isinstance(key, OwnRows)] == [None, None]
        assert taken(found) == list(range(processor, 271, 3))
        assert sum(isinstance(key, BroadcastKey) for key, _ in found) == 3


@pytest.mark.parametrize("parallelism", [1, 2, 4, 7])
def test_rows_are_dealt_by_partition_to_another_number_of_processors(tmp_path: Path, parallelism: int) -> None:
    save_rows(tmp_path)
    for processor in range(parallelism):
        assert taken(restored(tmp_path, processor, plan_of(parallelism))) == list(range(processor, 271, parallelism))


def test_rows_of_a_processor_that_has_ended_stay_with_the_one_that_saved_them(tmp_path: Path) -> None:
    writer = SnapshotWriter(str(tmp_path), "a.chunk", Codec())
    other = StatePartitions(plan_of(2), [], 0)
    records = []
    for processor in range(3):  # saved for other owners, so that all read all
        entries = ProcessorEntries(writer, other, processor)
        entries.add([(OwnRows(0), Batch({"n": range(processor, 271, 3) if processor else range(271)}))])
        assert entries.flush(lambda: False)
        pieces = entries.pieces if processor != 1 else []
        records.append(ProcessorRecord(processor, processor == 1, pieces, processor != 1))
    writer.close()
    write_manifest(tmp_path / "m", Manifest("l", 1, "j", None, 0.0, False, [SavedVertex("v", 3, 271, records)]))
    assert taken(restored(tmp_path, 0, plan_of(3))) == [n for n in range(271) if n % 3 != 2]
    assert taken(restored(tmp_path, 2, plan_of(3))) == sorted([*range(2, 271, 3), *range(2, 271, 3)])


@pytest.mark.parametrize("parallelism", [3, 2])
def test_entries_of_a_partition_are_told_apart_by_who_has_saved_them(tmp_path: Path, parallelism: int) -> None:
    writer = SnapshotWriter(str(tmp_path), "a.chunk", Codec())
    records = []
    for processor in range(3):
        entries = ProcessorEntries(writer, StatePartitions(plan_of(3), [], 0), processor)
        entries.add_lasting("part", STATE[processor])  # its owner may be another one
        assert entries.flush(lambda: False)
        records.append(ProcessorRecord(processor, False, entries.pieces))
    writer.close()
    write_manifest(tmp_path / "m", Manifest("l", 1, "j", None, 0.0, False, [SavedVertex("v", 3, 271, records)]))
    plan = plan_of(parallelism)
    restoring = Restoring(str(tmp_path / "m"), plan, [], lambda v: StatePartitions(plan, [], v), Codec())
    found, inbox = {}, Inbox()
    for processor in range(parallelism):
        for some in restoring.share((0, processor)).lists:
            inbox.fill(some)
            found[processor, inbox.peek()] = are_own(inbox)
            inbox.clear()
    restoring.close()
    owners = [owner_of(entry[0], parallelism) for entry in STATE[:3]]
    assert found == {(owner, STATE[by]): owner == by for by, owner in enumerate(owners)}
    assert set(found.values()) == {False, True}


def test_small_pieces_of_its_own_partitions_come_to_a_processor_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, plan = SnapshotWriter(str(tmp_path), "a.chunk", Codec()), plan_of(1)
    entries = ProcessorEntries(writer, StatePartitions(plan, [], 0), 0)
    for key, _ in STATE[:200]:
        entries.add_lasting("part", (key, bytes(5000)))
    assert entries.flush(lambda: False)
    writer.close()
    records = [ProcessorRecord(0, False, entries.pieces)]
    write_manifest(tmp_path / "m", Manifest("l", 1, "j", None, 0.0, False, [SavedVertex("v", 1, 271, records)]))
    heads, head = Counter[Piece](), ChunkReader.head
    monkeypatch.setattr(ChunkReader, "head", lambda reader, piece: heads.update([piece]) or head(reader, piece))
    restoring = Restoring(str(tmp_path / "m"), plan, [], lambda v: StatePartitions(plan, [], v), Codec())
    found = list(restoring.share((0, 0)).lists)
    restoring.close()
    assert sorted(key for some in found for key, _ in some) == sorted(key for key, _ in STATE[:200])
    assert 4 <= len(found) <= 5
    assert heads == Counter(entries.pieces)


@pytest.mark.parametrize("size", [1000, 2 << 20])
def test_a_small_piece_of_objects_is_read_before_anything_runs(tmp_path: Path, size: int) -> None:
    writer = SnapshotWriter(str(tmp_path), "a.chunk", Codec())
    piece = writer.write([("key", {bytes(size)})], OWNED)
    writer.close()
    assert piece is not None
    with (tmp_path / "a.chunk").open("r+b") as file:
        file.seek(-100, os.SEEK_END)
        file.write(b"x")
    vertices = [SavedVertex("v", 1, 271, [ProcessorRecord(0, False, [piece])])]
    write_manifest(tmp_path / "m", Manifest("l", 1, "j", None, 0.0, False, vertices))
    plan = plan_of(1)
    restoring = Restoring(str(tmp_path / "m"), plan, [], lambda v: StatePartitions(plan, [], v), Codec())
    with pytest.raises(DamagedSnapshotError) if size < 1 << 20 else contextlib.nullcontext():
        restoring.check(0)
    restoring.close()


def test_processors_that_had_all_ended_are_dealt_to_another_number(tmp_path: Path) -> None:
    save(tmp_path, frozenset({0, 1, 2}))
    for processor in range(2):
        expected = [entry for entry in STATE if owner_of(entry[0], 2) == processor]
        assert sorted(restored(tmp_path, processor, plan_of(2))) == sorted(expected)


@pytest.mark.parametrize(("members", "others_end", "runs"), [(2, False, True), (2, True, False), (1, False, False)])
def test_one_of_a_source_that_has_had_nothing_to_do_runs_again_while_others_go_on(
    tmp_path: Path, members: int, others_end: bool, runs: bool
) -> None:
    writer = SnapshotWriter(str(tmp_path), "a.chunk", Codec())
    entries = ProcessorEntries(writer, StatePartitions(plan_of(2), [], 0), 0)
    mine = next(entry for entry in STATE if owner_of(entry[0], 2) == 1)
    entries.add([(BroadcastKey("position"), 7), mine])
    assert entries.flush(lambda: False)
    writer.close()
    records = [ProcessorRecord(0, others_end, entries.pieces), ProcessorRecord(1, True, [])]
    write_manifest(tmp_path / "m", Manifest("l", 1, "j", None, 0.0, False, [SavedVertex("v", 2, 271, records)]))
    plan = plan_of(2, members=members)
    restoring = Restoring(str(tmp_path / "m"), plan, [], lambda v: StatePartitions(plan_of(2), [], v), Codec())
    share = restoring.share((0, 2 - members))
    found = [entry for entries in share.lists for entry in entries]
    restoring.close()
    assert share.is_finished is not runs
    assert found == ([(BroadcastKey("position"), 7), mine] if runs else [])


@pytest.mark.parametrize(("has_saved", "runs"), [(False, True), (True, False)])
def test_what_was_fed_by_one_that_has_had_nothing_to_do_runs_again(tmp_path: Path, has_saved: bool, runs: bool) -> None:
    ended = [Piece(-1, "a.chunk", 16, 40, 7, 1)] if has_saved else []
    source = [ProcessorRecord(0, False, []), ProcessorRecord(1, True, ended)]
    fed = [ProcessorRecord(0, False, []), ProcessorRecord(1, True, [], False)]
    vertices = [SavedVertex("source", 2, 271, source), SavedVertex("fed", 2, 271, fed)]
    write_manifest(tmp_path / "m", Manifest("l", 1, "j", None, 0.0, False, vertices))
    plan = plan_of(2, members=2)
    plan.vertices = [SimpleNamespace(name=name, parallelism=1, inbound=i) for i, name in enumerate(("source", "fed"))]
    plan.edges = [SimpleNamespace(source=0, destination=1)]
    restoring = Restoring(str(tmp_path / "m"), plan, [], lambda v: StatePartitions(plan_of(2), [], 0), Codec())
    assert restoring.share((1, 0)).is_finished is not runs
    restoring.close()
