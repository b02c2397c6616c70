"""A folder of snapshots: those of each lineage, of which the last two valid ones are kept, and exported ones by name.

`<root>/<lineage>/<n>.manifest` lies with its chunk files, whose names begin with the number of the snapshot for which
they were made. An exported snapshot lies in a folder of its own, `<root>/exported/<name>/<version>/`, and shares chunk
files with its lineage by hard links. Nothing here is ever changed: files are made, linked and removed. Must not know
jobs, nor who writes chunk files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from shmjet.snapshots.manifest import DamagedSnapshotError, Manifest, read_manifest, sync_folder, write_manifest

KEPT: Final = 2
"""Valid snapshots of a lineage that are kept."""
_MANIFEST = ".manifest"
_CHUNK = ".chunk"
_EXPORTED = "exported"
_EXPORTED_MANIFEST = f"snapshot{_MANIFEST}"
_UNFINISHED = "."


@dataclass(frozen=True, kw_only=True)
class ExportedSnapshot:
    """A snapshot with a name.

    Args:
        name: what it is called.
        path: of its manifest.
        manifest: what it holds.
    """

    name: str
    path: Path
    manifest: Manifest


class LineageStore:
    """The snapshots of one lineage.

    Args:
        folder: where they are; it is made if it is not there.
        sync: whether what is written has to reach the disk before it counts.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, *, sync: bool = False) -> None:
        self.folder = folder
        self._sync = sync
        self._files: dict[int, frozenset[str]] = {}
        """The chunk files that each manifest names, as far as it was read."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if sync:
            sync_folder(folder.parent)

    @property
    def newest_id(self) -> int:
        """The highest number for which there is a manifest or a chunk file, 0 if there is none."""
        return max((number for name in self._names() if (number := _number_of(name)) is not None), default=0)

    def path_of(self, number: int) -> Path:
        """Return where the manifest of a snapshot is, or would be."""
        return self.folder / f"{number}{_MANIFEST}"

    def write(self, manifest: Manifest) -> Path:
        """Make a snapshot valid: write its manifest, and remove what is not needed any more.

        Args:
            manifest: it names chunk files that are here already.

        Returns:
            where the manifest is.

        Raises:
            OSError: a chunk file is not there, or something cannot be written; the snapshot does not exist then.
        """
        number, files = manifest.snapshot_id, manifest.files()
        if self._sync:
            for name in files:
                if _number_of(name) == number:
                    _sync_file(self.folder / name)
        path = self.path_of(number)
        write_manifest(path, manifest, sync=self._sync)
        self._files[number] = frozenset(files)
        self.prune(number)
        return path

    def valid(self) -> list[int]:
        """Return the numbers of the snapshots with a manifest, the newest first."""
        return sorted(
            (number for name in self._names() if (number := _manifest_number(name)) is not None), reverse=True
        )

    def distrust(self, number: int) -> None:
        """Remove a snapshot that has turned out to be damaged."""
        self.path_of(number).unlink(missing_ok=True)
        self._files.pop(number, None)

    def prune(self, up_to: int) -> None:
        """Remove what no longer counts: all manifests but the newest, and chunk files that none of those names.

        Args:
            up_to: chunk files of later snapshots than this one are left alone: they are being written.
        """
        numbers = self.valid()
        needed: set[str] = set()
        for number in numbers[:KEPT]:
            try:
                needed |= self._files_of(number)
            except DamagedSnapshotError:
                return  # it may need any of them
        for number in numbers[KEPT:]:
            self.distrust(number)
        for name in self._names():
            made_for = _number_of(name)
            if name.endswith(_CHUNK) and name not in needed and made_for is not None and made_for <= up_to:
                (self.folder / name).unlink(missing_ok=True)

    def begin_from(self, snapshot: ExportedSnapshot) -> Path:
        """Take an exported snapshot as number 0 of this lineage, which no longer needs the exported one then.

        Returns:
            where its manifest is here.

        Raises:
            OSError: a file cannot be linked.
        """
        names = {name: f"0-{place}{_CHUNK}" for place, name in enumerate(sorted(snapshot.manifest.files()))}
        for theirs, ours in names.items():
            _link(snapshot.path.parent / theirs, self.folder / ours)
        path = self.path_of(0)
        write_manifest(path, _renamed(snapshot.manifest, names), sync=self._sync)
        return path

    def remove(self) -> None:
        """Remove all snapshots of this lineage."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []

    def _files_of(self, number: int) -> frozenset[str]:
        files = self._files.get(number)
        if files is None:
            files = self._files[number] = frozenset(read_manifest(self.path_of(number)).files())
        return files


class SnapshotStore:
    """All snapshots of a member.

    Args:
        root: folder of them; it is made when it is needed.
        sync: whether what is written has to reach the disk before it counts.
    """

    def __init__(self, root: Path, *, sync: bool = False) -> None:
        self.root = root
        self.sync = sync

    def lineage(self, name: str) -> LineageStore:
        """Return the snapshots of a lineage. Raises OSError when its folder cannot be made."""
        return LineageStore(self.root / name, sync=self.sync)

    def lineages(self) -> list[str]:
        """Return the names of all lineages here."""
        try:
            return sorted(name for name in os.listdir(self.root) if name != _EXPORTED)
        except FileNotFoundError:
            return []

    # -- exported snapshots -------------------------------------------------------------------------------------

    def export(self, manifest_path: Path, name: str) -> ExportedSnapshot:
        """Give a snapshot a name; it then stays until it is destroyed, and replaces an older one of that name.

        Args:
            manifest_path: of the snapshot; its chunk files lie in the same folder.
            name: a checked name (`shmjet.core.checks.check_snapshot_name`).

        Raises:
            DamagedSnapshotError: its manifest cannot be read.
            OSError: it cannot be written.
        """
        return self.keep(read_manifest(manifest_path), manifest_path.parent, name)

    def keep(self, manifest: Manifest, folder: Path, name: str) -> ExportedSnapshot:
        """Give a snapshot a name whose chunk files are in a folder, and which need not have a manifest there.

        Raises:
            OSError: it cannot be written; an older one of that name is as before.
        """
        home = self._home(name)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        version = f"{time.time_ns():020d}"
        making = home / f"{_UNFINISHED}{version}"
        making.mkdir(mode=0o700)
        try:
            for file in manifest.files():
                if self.sync:
                    _sync_file(folder / file)
                _link(folder / file, making / file)
            write_manifest(making / _EXPORTED_MANIFEST, manifest, sync=self.sync)
            os.rename(making, home / version)
        except OSError:
            shutil.rmtree(making, ignore_errors=True)
            with contextlib.suppress(OSError):
                home.rmdir()  # unless there is an older one
            raise
        if self.sync:
            sync_folder(home)
            sync_folder(home.parent)
        for other in _listed(home):
            if other != version:
                shutil.rmtree(home / other, ignore_errors=True)
        return ExportedSnapshot(name=name, path=home / version / _EXPORTED_MANIFEST, manifest=manifest)

    def find(self, name: str) -> ExportedSnapshot | None:
        """Return the exported snapshot of a name; None when there is none.

        Raises:
            DamagedSnapshotError: there is one, and its manifest is damaged.
        """
        home = self._home(name)
        versions = [version for version in _listed(home) if not version.startswith(_UNFINISHED)]
        if not versions:
            return None
        path = home / max(versions) / _EXPORTED_MANIFEST
        return ExportedSnapshot(name=name, path=path, manifest=read_manifest(path))

    def exported(self) -> list[ExportedSnapshot]:
        """Return all exported snapshots with a readable manifest, the oldest first."""
        found = []
        for name in _listed(self.root / _EXPORTED):
            with contextlib.suppress(DamagedSnapshotError):
                snapshot = self.find(name)
                if snapshot is not None:
                    found.append(snapshot)
        return sorted(found, key=lambda snapshot: (snapshot.manifest.created, snapshot.name))

    def destroy(self, name: str) -> bool:
        """Remove an exported snapshot; says whether there was one."""
        home = self._home(name)
        existed = home.exists()
        shutil.rmtree(home, ignore_errors=True)
        return existed

    def _home(self, name: str) -> Path:
        return self.root / _EXPORTED / name


def _number_of(name: str) -> int | None:
    """Return the number of the snapshot for which a file was made; None when it is another kind of file."""
    head = name.partition("-")[0] if name.endswith(_CHUNK) else name.removesuffix(_MANIFEST)
    return int(head) if head.isascii() and head.isdigit() else None


def _manifest_number(name: str) -> int | None:
    return _number_of(name) if name.endswith(_MANIFEST) else None


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _link(source: Path, target: Path) -> None:
    """Let a file have another name, or copy it where it cannot have one."""
    try:
        os.link(source, target)
    except FileExistsError:
        os.unlink(target)
        os.link(source, target)
    except PermissionError:  # a file system without hard links
        shutil.copyfile(source, target)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _renamed(manifest: Manifest, names: dict[str, str]) -> Manifest:
    """Return a manifest whose chunk files have other names."""
    replace = msgspec.structs.replace
    return replace(
        manifest,
        vertices=[
            replace(
                vertex,
                processors=[
                    replace(record, pieces=[replace(piece, file=names[piece.file]) for piece in record.pieces])
                    for record in vertex.processors
                ],
            )
            for vertex in manifest.vertices
        ],
    )
