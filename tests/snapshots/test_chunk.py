"""Tests for chunk files: every entry comes back as it was, and nothing damaged is ever read."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet._native import Codec
from shmjet.columns import Batch
from shmjet.core import BroadcastKey
from shmjet.snapshots.chunk import SCHEME_DEFAULT, ChunkReader, ChunkWriter, EntryError, check_pieces
from shmjet.snapshots.manifest import BROADCAST, SEVERAL, DamagedSnapshotError, Piece


@dataclass
class Account:
    owner: str
    total: float


PLAIN = [(f"key {i}", (i, i / 2)) for i in range(1000)]
MIXED = [("a", [1, 2, {3}]), (("a", 1), Account("x", 2.5)), (None, None), (4, b"x" * 5000)]


@pytest.fixture
def reader(tmp_path: Path) -> Any:
    reader = ChunkReader(tmp_path, Codec())
    yield reader
    reader.close()


def write_pieces(path: Path, *lists: list[Any]) -> list[Piece]:
    writer = ChunkWriter(path, Codec())
    try:
        return [writer.write(entries, i, 271, SCHEME_DEFAULT) for i, entries in enumerate(lists)]
    finally:
        writer.close()


def test_entries_come_back_as_they_were(tmp_path: Path, reader: ChunkReader) -> None:
    pieces = write_pieces(tmp_path / "1.chunk", PLAIN, MIXED, [(BroadcastKey("at"), 7)])
    assert [reader.entries(piece) for piece in pieces] == [PLAIN, MIXED, [(BroadcastKey("at"), 7)]]
    assert [piece.entries for piece in pieces] == [1000, 4, 1]
    assert sum(piece.size for piece in pieces) + 16 == (tmp_path / "1.chunk").stat().st_size
    check_pieces(tmp_path, pieces)


def test_large_arrays_come_back_writable(tmp_path: Path, reader: ChunkReader) -> None:
    (piece,) = write_pieces(tmp_path / "1.chunk", [("sums", np.arange(100_000))])
    ((_, value),) = reader.entries(piece)
    value += 1
    assert value[-1] == 100_000


def test_columns_are_not_searched_for_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    column = np.frombuffer(b"_make_skeleton_class" * 100, np.uint8)
    (piece,) = write_pieces(tmp_path / "1.chunk", [("a", Batch({"n": column}))])
    monkeypatch.setattr("shmjet.snapshots.chunk.NewerClasses", None)
    reader = ChunkReader(tmp_path, Codec(), {("a_script", "Total"): object})
    ((_, batch),) = reader.entries(piece)
    reader.close()
    assert batch["n"].tolist() == column.tolist()


def test_pieces_are_read_one_after_the_other_whatever_their_size(tmp_path: Path) -> None:
    sizes = [10, 400_000, 3_000_000, 20, 900_000]
    pieces = write_pieces(tmp_path / "1.chunk", *([("a", np.arange(size, dtype=np.uint8))] for size in sizes))
    reader = ChunkReader(tmp_path, Codec())
    found = [reader.entries(piece)[0][1] for piece in pieces]
    reader.close()
    assert all((array == np.arange(size, dtype=np.uint8)).all() for array, size in zip(found, sizes, strict=True))


def test_piece_says_of_which_partitions_it_is(tmp_path: Path, reader: ChunkReader) -> None:
    writer = ChunkWriter(tmp_path / "1.chunk", Codec())
    own, all_of_them = writer.write(PLAIN, 9, 271, SCHEME_DEFAULT), writer.write(PLAIN, BROADCAST)
    several = writer.write(PLAIN, SEVERAL)
    writer.close()
    assert reader.head(own)[:3] == (9, 271, 1000)
    assert reader.head(own).scheme == SCHEME_DEFAULT
    assert [reader.head(piece)[:2] for piece in (all_of_them, several)] == [(-1, 0), (-3, 0)]


def test_no_file_is_made_before_the_first_piece(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path / "1.chunk", Codec())
    writer.sync()
    writer.close()
    assert not list(tmp_path.iterdir())


def test_every_changed_byte_of_a_piece_is_found(tmp_path: Path) -> None:
    path = tmp_path / "1.chunk"
    (piece,) = write_pieces(path, [("a", 1), ("b", 2)])
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        if 12 <= at < 16:  # unused
            continue
        with pytest.raises(DamagedSnapshotError, match=r"1\.chunk"):
            check_pieces(tmp_path, [piece])


def test_torn_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "1.chunk"
    first, second = write_pieces(path, PLAIN, PLAIN)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    check_pieces(tmp_path, [first])
    with pytest.raises(DamagedSnapshotError, match="the file has"):
        check_pieces(tmp_path, [second])
    path.write_bytes(data[:10])
    with pytest.raises(DamagedSnapshotError, match="torn"):
        check_pieces(tmp_path, [first])
    path.unlink()
    with pytest.raises(DamagedSnapshotError, match="No such file"):
        check_pieces(tmp_path, [first])


def test_entry_that_cannot_be_pickled_is_named_by_its_key(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path / "1.chunk", Codec())
    with pytest.raises(EntryError, match=r"key 'lock'.*generator"):
        writer.write([("a", 1), ("lock", (i for i in range(3)))], 0)
    writer.close()


def test_file_that_cannot_take_a_piece_is_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.chunk"
    writer = ChunkWriter(path, Codec())
    first = writer.write(PLAIN, 0)
    writev = os.writev

    def full(fd: int, parts: Any) -> int:
        if len(parts) > 1:
            return writev(fd, [bytes(parts[0])[:5]])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(OSError, match="No space"):
        writer.write(PLAIN, 1)
    monkeypatch.undo()
    third = writer.write(PLAIN[:10], 2)
    writer.close()
    check_pieces(tmp_path, [first, third])
    assert third.offset == first.offset + first.size


class _Opaque:
    """Pickles, and cannot be made again."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("no number",)


def test_a_value_that_cannot_be_read_back_is_refused_when_it_is_saved(tmp_path: Path) -> None:
    writer = ChunkWriter(tmp_path / "1.chunk", Codec())
    with pytest.raises(EntryError, match=r"key 'k' could not be restored: its value, a _Opaque.*ValueError"):
        writer.write([("k", _Opaque())], 0)
    assert not (tmp_path / "1.chunk").exists()
    writer.close()
