"""Pieces to which the next snapshot refers: by token, and as long as most of their file is in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet._native import Codec
from shmjet.core import BroadcastKey
from shmjet.execution.lasting_pieces import NOTHING
from shmjet.execution.snapshot_writer import ProcessorEntries, SnapshotWriter
from shmjet.execution.state_partitions import StatePartitions
from shmjet.snapshots.chunk import ChunkReader
from tests.execution.test_restoring import plan_of


class Snapshots:
    """Snapshots of one processor, whose parts are values by token."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = 0
        self.valid = NOTHING

    def save(self, parts: dict[str, int], *, is_valid: bool = True, others: int = 0) -> list[str]:
        """Save; return the tokens of what was written. What is read back is the same."""
        self.number += 1
        writer = SnapshotWriter(str(self.folder), f"{self.number}-x.chunk", Codec())
        entries = ProcessorEntries(writer, StatePartitions(plan_of(3), [], 0), 0, self.valid)
        written = []
        for token, value in parts.items():
            if not entries.refer((token, value)):
                entries.add_lasting((token, value), (BroadcastKey(token) if value % 2 else token, value))
                written.append(token)
        entries.add([(f"other {n}", n) for n in range(others)])
        assert entries.flush(lambda: False)
        writer.close()
        reader = ChunkReader(self.folder, Codec())
        read = [entry for piece in entries.pieces for entry in reader.entries(piece)]
        reader.close()
        found = {(key.key if isinstance(key, BroadcastKey) else key): value for key, value in read}
        assert found == parts | {f"other {n}": n for n in range(others)}
        assert len(read) == len(found)
        if is_valid:
            self.valid = entries.lasting()
        return written


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path)


def test_what_did_not_change_is_not_written_again(snapshots: Snapshots) -> None:
    assert snapshots.save({"a": 1, "b": 2, "c": 3}, others=3) == ["a", "b", "c"]
    assert snapshots.save({"a": 1, "b": 4, "c": 3}, others=2) == ["b"]
    assert snapshots.save({"a": 1, "b": 4, "c": 3}) == []
    assert not list(snapshots.folder.glob("3-*"))


def test_a_snapshot_that_is_not_valid_is_not_referred_to(snapshots: Snapshots) -> None:
    snapshots.save({"a": 1, "b": 2, "c": 3})
    assert snapshots.save({"a": 5, "b": 2, "c": 3}, is_valid=False) == ["a"]
    assert snapshots.save({"a": 5, "b": 2, "c": 3}) == ["a"]
    assert snapshots.save({"a": 5, "b": 2, "c": 3}) == []


def test_a_file_of_which_less_than_half_is_in_use_is_written_anew(snapshots: Snapshots) -> None:
    tokens = [f"t{n}" for n in range(9)]
    snapshots.save(dict.fromkeys(tokens, 1))
    assert snapshots.save(dict.fromkeys(tokens, 1) | dict.fromkeys(tokens[:4], 3)) == tokens[:4]
    assert snapshots.save(dict.fromkeys(tokens, 1) | dict.fromkeys(tokens[:6], 3)) == tokens[4:6]
    # three of nine are left in the first file
    assert snapshots.save(dict.fromkeys(tokens, 1) | dict.fromkeys(tokens[:6], 3)) == tokens[6:]
    assert snapshots.save(dict.fromkeys(tokens, 1) | dict.fromkeys(tokens[:6], 3)) == []
