"""Tests for manifests: written whole or not at all, and refused when anything in them has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet.snapshots.manifest import (
    DamagedSnapshotError,
    Manifest,
    Piece,
    ProcessorRecord,
    SavedVertex,
    read_manifest,
    write_manifest,
)


def some_manifest(snapshot_id: int = 3) -> Manifest:
    count = [
        ProcessorRecord(0, False, [Piece(5, "3-1-0.chunk", 16, 100, 7, 10), Piece(-1, "3-1-0.chunk", 116, 20, 8, 1)]),
        ProcessorRecord(1, True, [Piece(6, "2-1-1.chunk", 16, 50, 9, 4)]),
    ]
    vertices = [SavedVertex("source", 1, 271, [ProcessorRecord(0, False, [])]), SavedVertex("count", 2, 271, count)]
    return Manifest("lineage", snapshot_id, "job", None, 12.5, False, vertices)


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "3.manifest"
    write_manifest(path, some_manifest(), sync=True)
    assert read_manifest(path) == some_manifest()
    assert [entry.name for entry in tmp_path.iterdir()] == ["3.manifest"]


def test_manifest_counts_entries_bytes_and_files() -> None:
    manifest = some_manifest()
    assert (manifest.keys, manifest.size) == (15, 170)
    assert manifest.files() == {"3-1-0.chunk", "2-1-1.chunk"}
    assert manifest.vertices[0].size == 0


def test_manifest_replaces_one_of_the_same_name(tmp_path: Path) -> None:
    path = tmp_path / "a.manifest"
    write_manifest(path, some_manifest(1))
    write_manifest(path, some_manifest(2))
    assert read_manifest(path).snapshot_id == 2


def test_every_changed_or_missing_byte_of_a_manifest_is_found(tmp_path: Path) -> None:
    path = tmp_path / "3.manifest"
    write_manifest(path, some_manifest())
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(DamagedSnapshotError, match=r"damaged|torn|version"):
            read_manifest(path)
    for size in (0, 8, 23, 24, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(DamagedSnapshotError, match=r"damaged|torn|version"):
            read_manifest(path)


def test_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedSnapshotError, match="No such file"):
        read_manifest(tmp_path / "7.manifest")


def test_manifest_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "3.manifest").mkdir()
    with pytest.raises(OSError):
        write_manifest(tmp_path / "3.manifest", some_manifest())
    assert [entry.name for entry in tmp_path.iterdir()] == ["3.manifest"]
