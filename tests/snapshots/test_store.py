"""What a folder of snapshots keeps, what it removes, and what it makes of names."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shmjet.snapshots.manifest import DamagedSnapshotError, Manifest, Piece, ProcessorRecord, SavedVertex, read_manifest
from shmjet.snapshots.store import LineageStore, SnapshotStore


def manifest(number: int, *files: str, created: float = 1.0) -> Manifest:
    pieces = [Piece(0, file, 16, 40, 7, 2) for file in files]
    vertex = SavedVertex("count", 1, 271, [ProcessorRecord(0, False, pieces)])
    return Manifest("lineage", number, "job", "a job", created, False, [vertex])


def chunk(folder: Path, name: str, text: str = "") -> str:
    (folder / name).write_text(text or name)
    return name


def snapshot(lineage: LineageStore, number: int, *older: str) -> Path:
    return lineage.write(manifest(number, chunk(lineage.folder, f"{number}-7-0.chunk"), *older))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("sync", [False, True])
def test_the_last_two_valid_snapshots_are_kept(tmp_path: Path, sync: bool) -> None:
    lineage = SnapshotStore(tmp_path / "snapshots", sync=sync).lineage("l")
    assert lineage.newest_id == 0
    assert lineage.valid() == []
    for number in (1, 2, 3):
        path = snapshot(lineage, number)
        assert path == lineage.path_of(number)
        assert read_manifest(path).snapshot_id == number
    assert lineage.valid() == [3, 2]
    assert names(lineage.folder) == ["2-7-0.chunk", "2.manifest", "3-7-0.chunk", "3.manifest"]
    lineage.remove()
    assert not lineage.folder.exists()
    assert lineage.valid() == []


def test_a_chunk_file_stays_as_long_as_a_manifest_names_it(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    snapshot(lineage, 1)
    for number in (2, 3, 4):
        snapshot(lineage, number, "1-7-0.chunk")
    assert "1-7-0.chunk" in names(lineage.folder)
    assert "2-7-0.chunk" not in names(lineage.folder)
    snapshot(lineage, 5)
    snapshot(lineage, 6)
    assert names(lineage.folder) == ["5-7-0.chunk", "5.manifest", "6-7-0.chunk", "6.manifest"]


def test_what_a_failed_snapshot_has_made_is_removed_and_what_is_being_made_is_not(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    snapshot(lineage, 1)
    chunk(lineage.folder, "2-7-0.chunk")
    chunk(lineage.folder, "3-7-0.chunk")
    assert lineage.newest_id == 3
    lineage.prune(2)
    assert names(lineage.folder) == ["1-7-0.chunk", "1.manifest", "3-7-0.chunk"]


def test_numbers_are_no_texts(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    for number in (9, 10, 11):
        snapshot(lineage, number)
    assert lineage.valid() == [11, 10]


def test_a_damaged_snapshot_can_be_given_up_for_the_one_before(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    snapshot(lineage, 1)
    snapshot(lineage, 2)
    lineage.distrust(2)
    assert lineage.valid() == [1]
    lineage.prune(2)
    assert names(lineage.folder) == ["1-7-0.chunk", "1.manifest"]


def test_nothing_is_removed_while_a_manifest_cannot_be_read(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    for number in (1, 2):
        snapshot(lineage, number)
    lineage.path_of(2).write_bytes(b"torn")
    before = names(lineage.folder)
    SnapshotStore(tmp_path).lineage("l").prune(9)
    assert names(lineage.folder) == before


def test_an_exported_snapshot_outlives_its_lineage(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    lineage = store.lineage("l")
    exported = store.export(snapshot(lineage, 1), "before the upgrade")
    lineage.remove()
    found = store.find("before the upgrade")
    assert found == exported
    assert (found.path.parent / "1-7-0.chunk").read_text() == "1-7-0.chunk"
    assert store.lineages() == []
    assert store.find("another") is None


def test_an_exported_snapshot_replaces_one_of_its_name(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    lineage = store.lineage("l")
    store.export(snapshot(lineage, 1), "x")
    store.export(snapshot(lineage, 2), "x")
    found = store.find("x")
    assert found is not None
    assert found.manifest.snapshot_id == 2
    assert len(names(tmp_path / "exported" / "x")) == 1
    assert store.lineages() == ["l"]


def test_an_export_that_fails_leaves_the_older_one(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    lineage = store.lineage("l")
    store.export(snapshot(lineage, 1), "x")
    path = snapshot(lineage, 2)
    (lineage.folder / "2-7-0.chunk").unlink()
    with pytest.raises(OSError):
        store.export(path, "x")
    with pytest.raises(OSError):
        store.export(path, "y")
    found = store.find("x")
    assert found is not None
    assert found.manifest.snapshot_id == 1
    assert names(tmp_path / "exported") == ["x"]


def test_a_snapshot_that_is_replaced_while_it_is_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(tmp_path)
    lineage = store.lineage("l")
    store.export(snapshot(lineage, 1), "x")
    replacing = [snapshot(lineage, 2)]

    def read(path: Path) -> Manifest:
        if replacing:
            store.export(replacing.pop(), "x")
        return read_manifest(path)

    monkeypatch.setattr("shmjet.snapshots.store.read_manifest", read)
    (found,) = store.exported()
    assert found.manifest.snapshot_id == 2
    found.path.write_bytes(b"torn")
    with pytest.raises(DamagedSnapshotError, match="torn"):
        store.find("x")


@pytest.mark.parametrize("older", [False, True])
def test_what_is_being_exported_is_not_removed(tmp_path: Path, older: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(tmp_path)
    lineage = store.lineage("l")
    path = snapshot(lineage, 1)
    if older:
        store.export(path, "x")
    link = os.link

    def destroy_meanwhile(source: Path, target: Path) -> None:
        assert store.destroy("x")
        assert store.find("x") is None
        link(source, target)

    monkeypatch.setattr("shmjet.snapshots.store.os.link", destroy_meanwhile)
    exported = store.export(path, "x")
    assert store.find("x") == exported
    assert store.destroy("x")
    assert names(tmp_path / "exported") == []


def test_exported_snapshots_are_listed_the_oldest_first(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SnapshotStore(tmp_path)
    assert store.exported() == []
    lineage = store.lineage("l")
    for name, created in (("b", 2.0), ("a", 3.0), ("c", 1.0), ("torn", 4.0)):
        file = chunk(lineage.folder, "1-7-0.chunk")
        store.keep(manifest(1, file, created=created), lineage.folder, name)
    torn = store.find("torn")
    assert torn is not None
    torn.path.write_bytes(b"torn")
    for _ in range(2):
        assert [snapshot.name for snapshot in store.exported()] == ["c", "b", "a"]
    assert [record.getMessage()[:45] for record in caplog.records] == ["the exported snapshot 'torn' cannot be used: "]
    with pytest.raises(DamagedSnapshotError):
        store.find("torn")
    assert store.destroy("b")
    assert not store.destroy("b")
    assert [snapshot.name for snapshot in store.exported()] == ["c", "a"]


def test_a_lineage_that_begins_from_an_exported_snapshot_does_not_need_it(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    first = store.lineage("first")
    exported = store.export(snapshot(first, 5, chunk(first.folder, "4-7-1.chunk")), "x")
    second = store.lineage("second")
    path = second.begin_from(exported)
    store.destroy("x")
    first.remove()
    taken = read_manifest(path)
    assert second.valid() == [0]
    assert second.newest_id == 0
    assert sorted((second.folder / name).read_text() for name in taken.files()) == ["4-7-1.chunk", "5-7-0.chunk"]
    snapshot(second, 1)
    snapshot(second, 2)
    assert names(second.folder) == ["1-7-0.chunk", "1.manifest", "2-7-0.chunk", "2.manifest"]


def test_a_manifest_under_the_number_of_another_snapshot_is_damaged(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    first, second = snapshot(lineage, 1), snapshot(lineage, 2)
    first.rename(tmp_path / "other")
    second.rename(first)
    (tmp_path / "other").rename(second)
    for number in (1, 2):
        with pytest.raises(DamagedSnapshotError, match=rf"{number}\.manifest' is that of snapshot {3 - number}"):
            lineage.read(number)


def test_a_folder_in_place_of_a_file_of_a_snapshot_is_removed_with_it(tmp_path: Path) -> None:
    lineage = SnapshotStore(tmp_path).lineage("l")
    for number in (1, 2):
        snapshot(lineage, number)
    for name in ("1-7-0.chunk", "1.manifest"):
        (lineage.folder / name).unlink()
        (lineage.folder / name).mkdir()
    snapshot(lineage, 3)
    assert names(lineage.folder) == ["2-7-0.chunk", "2.manifest", "3-7-0.chunk", "3.manifest"]
    lineage.path_of(3).unlink()
    lineage.path_of(3).mkdir()
    with pytest.raises(DamagedSnapshotError, match=r"3\.manifest' cannot be read: Is a directory"):
        lineage.read(3)
    lineage.distrust(3)
    assert lineage.valid() == [2]


def test_a_file_in_place_of_the_folder_of_snapshots_is_named(tmp_path: Path) -> None:
    (tmp_path / "snapshots").touch()
    with pytest.raises(NotADirectoryError, match=str(tmp_path / "snapshots")):
        SnapshotStore(tmp_path / "snapshots").lineages()


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[OSError]:
    """The first of these is raised wherever a file is to be removed."""
    errors: list[OSError] = []
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if errors:
            raise errors[0]
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    return errors


def test_what_cannot_be_removed_stays_and_is_logged_once(
    tmp_path: Path, refusing: list[OSError], caplog: pytest.LogCaptureFixture
) -> None:
    lineage = LineageStore(tmp_path)
    snapshot(lineage, 1)
    refusing.append(OSError(errno.EIO, "the disk is broken"))
    for number in (2, 3, 4):
        snapshot(lineage, number)
    assert lineage.valid() == [4, 3]
    assert names(tmp_path) == [f"{number}{end}" for number in (1, 2, 3, 4) for end in ("-7-0.chunk", ".manifest")]
    assert [record.getMessage().count("the disk is broken") for record in caplog.records] == [1] * 4
    refusing.clear()
    snapshot(lineage, 5)
    assert names(tmp_path) == ["4-7-0.chunk", "4.manifest", "5-7-0.chunk", "5.manifest"]
    assert lineage.valid() == [5, 4]


def test_a_damaged_snapshot_that_cannot_be_removed_does_not_count(tmp_path: Path, refusing: list[OSError]) -> None:
    lineage = LineageStore(tmp_path)
    snapshot(lineage, 1)
    snapshot(lineage, 2)
    refusing.append(PermissionError(errno.EPERM, "immutable"))
    lineage.distrust(2)
    assert lineage.valid() == [1]
    assert lineage.newest_id == 2


def test_a_folder_that_cannot_be_read_has_no_snapshots(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lineage = LineageStore(tmp_path / "l")
    snapshot(lineage, 1)
    (tmp_path / "l").rename(tmp_path / "away")
    (tmp_path / "l").symlink_to(tmp_path / "l")
    assert lineage.valid() == []
    lineage.prune(1)
    assert [record.getMessage().count("cannot be read") for record in caplog.records] == [1]
    (tmp_path / "l").unlink()
    (tmp_path / "away").rename(tmp_path / "l")
    assert lineage.valid() == [1]


def test_a_manifest_whose_name_may_not_reach_the_disk_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineage = LineageStore(tmp_path, sync=True)
    snapshot(lineage, 1)

    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, "not synced", str(folder))

    with monkeypatch.context() as patched:
        patched.setattr("shmjet.snapshots.manifest.sync_folder", fail)
        with pytest.raises(OSError, match="not synced"):
            snapshot(lineage, 2)
    assert lineage.valid() == [1]
