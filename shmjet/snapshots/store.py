"""A folder of snapshots: those of each lineage, of which the last two valid ones are kept, and exported ones by name.

`<root>/<lineage>/<n>.manifest` lies with its chunk files, whose names begin with the number of the snapshot for which
they were made. An exported snapshot lies in a folder of its own, `<root>/exported/<name>/<version>/`, and shares chunk
files with its lineage by hard links. Nothing here is ever changed: files are made, linked and removed. Must not know
jobs, nor who writes chunk files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from shmjet.host.folders import remove_file, remove_folder, sync_file, sync_folder
from shmjet.snapshots.manifest import DamagedSnapshotError, Manifest, read_manifest, write_manifest

logger = logging.getLogger("shmjet.snapshots")

KEPT: Final = 2
"""Valid snapshots of a lineage that are kept."""
_MANIFEST = ".manifest"
_CHUNK = ".chunk"
_EXPORTED = "exported"
EXPORTED_MANIFEST: Final = f"snapshot{_MANIFEST}"
"""The name of the manifest of an exported snapshot in its folder."""
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
        before_valid: brings to disk what a snapshot stands on, before it counts; raises OSError if it cannot.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, *, sync: bool = False, before_valid: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self._before_valid = before_valid
        self._sync = sync
        self._files: dict[int, frozenset[str]] = {}
        """The chunk files that each manifest names, as far as it was read."""
        self._distrusted: set[int] = set()
        """Snapshots that do not count, although their manifests cannot be removed."""
        self._is_readable = True
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

    def read(self, number: int) -> Manifest:
        """Return the manifest of a snapshot. Number 0 is of another lineage, see `begin_from`.

        Raises:
            DamagedSnapshotError: it is missing or damaged, or is that of another snapshot.
        """
        path = self.path_of(number)
        manifest = read_manifest(path)
        if number and manifest.snapshot_id != number:
            raise DamagedSnapshotError(
                f"the manifest {str(path)!r} is that of snapshot {manifest.snapshot_id}: the files were mixed up"
            )
        return manifest

    def write(self, manifest: Manifest, files: Collection[str] | None = None) -> Path:
        """Make a snapshot valid: write its manifest, and remove what is not needed any more.

        Args:
            manifest: of the snapshot.
            files: those of its chunk files that are here, as others are on other members; None: all are here.

        Returns:
            where the manifest is.

        Raises:
            OSError: a chunk file is not there, or something cannot be written; the snapshot does not exist then.
        """
        self._before_valid()
        number = manifest.snapshot_id
        if self._sync:
            for name in manifest.files() if files is None else files:
                if _number_of(name) == number:
                    sync_file(self.folder / name)
        path = self.path_of(number)
        write_manifest(path, manifest, sync=self._sync)
        self._files[number] = frozenset(manifest.files())
        self.prune(number)
        return path

    def write_ahead(self, number: int, files: Collection[str], data: bytes) -> Path:
        """Write a manifest that another member has made under another name; renamed to `path_of`, it is valid.

        Args:
            number: of the snapshot.
            files: that it names; files that are not here are on other members.
            data: the manifest.

        Returns:
            what is to be renamed.

        Raises:
            OSError: something cannot be written.
        """
        if self._sync:
            for name in files:
                if _number_of(name) == number and (self.folder / name).exists():
                    sync_file(self.folder / name)
        temporary = self.folder / f"{_UNFINISHED}{number}{_MANIFEST}"
        temporary.write_bytes(data)
        if self._sync:
            sync_file(temporary)
        self._files[number] = frozenset(files)
        return temporary

    def settle(self, number: int) -> None:
        """Take that what `write_ahead` has written was renamed, and remove what is not needed any more."""
        if self._sync:
            sync_folder(self.folder)
        self.prune(number)

    def valid(self) -> list[int]:
        """Return the numbers of the snapshots with a manifest, the newest first."""
        numbers = {number for name in self._names() if (number := _manifest_number(name)) is not None}
        return sorted(numbers - self._distrusted, reverse=True)

    def distrust(self, number: int) -> None:
        """Remove a snapshot that has turned out to be damaged; it does not count any more, even if its files stay."""
        if remove_file(self.path_of(number), "the manifest of a snapshot that does not count any more"):
            self._distrusted.discard(number)
        else:
            self._distrusted.add(number)
        self._files.pop(number, None)

    def prune(self, up_to: int) -> None:
        """Remove what no longer counts: all manifests but the newest, and chunk files that none of those names.

        What cannot be removed stays, and is logged.

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
        for number in [*numbers[KEPT:], *self._distrusted]:
            self.distrust(number)
        for name in self._names():
            made_for = _number_of(name)
            if name.endswith(_CHUNK) and name not in needed and made_for is not None and made_for <= up_to:
                remove_file(self.folder / name, "a file of snapshots that is not needed any more")

    def begin_from(self, snapshot: ExportedSnapshot, *, shared: bool = False) -> Path:
        """Take an exported snapshot as number 0 of this lineage, which no longer needs the exported one then.

        Args:
            snapshot: to begin from.
            shared: whether some of its files may be on other members only.

        Returns:
            where its manifest is here.

        Raises:
            OSError: a file cannot be linked.
        """
        names = {name: f"0-{place}{_CHUNK}" for place, name in enumerate(sorted(snapshot.manifest.files()))}
        for theirs, ours in names.items():
            if not shared or (snapshot.path.parent / theirs).exists():
                _link(snapshot.path.parent / theirs, self.folder / ours)
        path = self.path_of(0)
        write_manifest(path, _renamed(snapshot.manifest, names), sync=self._sync)
        return path

    def remove(self) -> None:
        """Remove all snapshots of this lineage."""
        remove_folder(self.folder)

    def _names(self) -> list[str]:
        """Return the names of all files; none when the folder is gone, or cannot be read, which is logged."""
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            if self._is_readable:
                self._is_readable = False
                logger.error("the snapshots in %s cannot be read: %s", self.folder, error)
            return []
        self._is_readable = True
        return names

    def _files_of(self, number: int) -> frozenset[str]:
        files = self._files.get(number)
        if files is None:
            files = self._files[number] = frozenset(self.read(number).files())
        return files


class SnapshotStore:
    """All snapshots of a member.

    Args:
        root: folder of them; it is made when it is needed.
        sync, before_valid: as of `LineageStore`.
    """

    def __init__(self, root: Path, *, sync: bool = False, before_valid: Callable[[], None] = lambda: None) -> None:
        self.root = root
        self.sync = sync
        self._making: set[Path] = set()
        """Folders of exported snapshots that are being written."""
        self._damaged: set[str] = set()
        """Exported snapshots of which the log has said that they cannot be used."""
        self._before_valid = before_valid

    def sync_maps(self) -> None:
        """Bring to disk what snapshots stand on. Raises OSError if that cannot be done."""
        self._before_valid()

    def lineage(self, name: str) -> LineageStore:
        """Return the snapshots of a lineage. Raises OSError when its folder cannot be made."""
        return LineageStore(self.root / name, sync=self.sync, before_valid=self._before_valid)

    def file(self, folder: str, name: str) -> Path:
        """Return where a file is, or would be.

        Args:
            folder: a lineage, or `exported/<name>/<version>`.
            name: of the file.

        Raises:
            ValueError: that leads somewhere else.
        """
        parts = (*folder.split("/"), name)
        if len(parts) not in (2, 4) or any(part in ("", ".", "..") or "/" in part for part in parts):
            raise ValueError(f"snapshots have no file {folder!r}/{name!r}")
        return self.root.joinpath(*parts)

    def folder_of(self, path: Path) -> str:
        """Return the folder, as `file` takes it, in which a file is."""
        return path.parent.relative_to(self.root).as_posix()

    def names(self, folder: str) -> list[str]:
        """Return the names of all chunk files and manifests in a folder."""
        there = _listed(self.file(folder, EXPORTED_MANIFEST).parent)
        return [name for name in there if name.endswith((_CHUNK, _MANIFEST)) and not name.startswith(_UNFINISHED)]

    def link_initial(self, exported: str, lineage: str) -> None:
        """Take what is here of an exported snapshot into a lineage that begins from it.

        Args:
            exported: folder of that snapshot.
            lineage: name of that.

        Raises:
            DamagedSnapshotError: its manifest is missing or damaged.
            OSError: a file cannot be linked.
        """
        path = self.file(exported, EXPORTED_MANIFEST)
        snapshot = ExportedSnapshot(name=exported_name(exported) or "", path=path, manifest=read_manifest(path))
        self.lineage(lineage).begin_from(snapshot, shared=True)

    def make(self, folder: str) -> Path:
        """Return a folder, which is made if it is not there. Raises OSError when it cannot be made."""
        path = self.file(folder, EXPORTED_MANIFEST).parent
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def lineages(self) -> list[str]:
        """Return the names of all lineages here. Raises NotADirectoryError where a file is in place of the folder."""
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

    def keep(
        self,
        manifest: Manifest,
        folder: Path,
        name: str,
        *,
        version: str | None = None,
        files: Collection[str] | None = None,
    ) -> ExportedSnapshot:
        """Give a snapshot a name whose chunk files are in a folder, and which need not have a manifest there.

        Args:
            manifest: of the snapshot.
            folder: of the chunk files.
            name: a checked name (`shmjet.core.checks.check_snapshot_name`).
            version: the greatest of a name counts; None for a new one, which takes the place of all others.
            files: those of its chunk files that are here; None for all.

        Raises:
            OSError: it cannot be written; an older one of that name is as before.
        """
        self._before_valid()
        home = self._home(name)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        replaces = version is None
        version = version or new_version()
        making = home / f"{_UNFINISHED}{version}"
        self._making.add(making)
        try:
            making.mkdir(mode=0o700, parents=True)  # its parent, too, if `destroy` has just removed that
            for file in manifest.files() if files is None else files:
                if self.sync:
                    sync_file(folder / file)
                _link(folder / file, making / file)
            write_manifest(making / EXPORTED_MANIFEST, manifest, sync=self.sync)
            os.rename(making, home / version)
        except OSError:
            remove_folder(making)
            with contextlib.suppress(OSError):
                home.rmdir()  # unless there is an older one
            raise
        finally:
            self._making.discard(making)
        if self.sync:
            sync_folder(home)
            sync_folder(home.parent)
        if replaces:
            self.keep_only(name, version)
        return ExportedSnapshot(name=name, path=home / version / EXPORTED_MANIFEST, manifest=manifest)

    def newest_version(self, name: str) -> str:
        """Return the version of an exported snapshot that counts; empty when there is none."""
        versions = [version for version in _listed(self._home(name)) if not version.startswith(_UNFINISHED)]
        return max(versions, default="")

    def keep_only(self, name: str, version: str) -> None:
        """Remove all versions of an exported snapshot but one."""
        home = self._home(name)
        for other in _listed(home):
            if other != version and home / other not in self._making:
                remove_folder(home / other)

    def find(self, name: str) -> ExportedSnapshot | None:
        """Return the exported snapshot of a name; None when there is none.

        Raises:
            DamagedSnapshotError: there is one, and its manifest is damaged.
        """
        while version := self.newest_version(name):
            path = self._home(name) / version / EXPORTED_MANIFEST
            try:
                return ExportedSnapshot(name=name, path=path, manifest=read_manifest(path))
            except DamagedSnapshotError:
                if self.newest_version(name) == version:
                    raise
                # It was replaced or destroyed before it was read.
        return None

    def exported(self) -> list[ExportedSnapshot]:
        """Return all exported snapshots with a readable manifest, the oldest first; others are logged, once."""
        found = []
        for name in _listed(self.root / _EXPORTED):
            try:
                snapshot = self.find(name)
            except DamagedSnapshotError as error:
                if name not in self._damaged:
                    self._damaged.add(name)
                    logger.error("the exported snapshot %r cannot be used: %s", name, error)
                continue
            self._damaged.discard(name)
            if snapshot is not None:
                found.append(snapshot)
        return sorted(found, key=lambda snapshot: (snapshot.manifest.created, snapshot.name))

    def destroy(self, name: str) -> bool:
        """Remove an exported snapshot, but not one of its name that is being written; says whether there was one."""
        home = self._home(name)
        existed = home.exists()
        self.keep_only(name, "")
        with contextlib.suppress(OSError):
            home.rmdir()  # unless one is being written
        return existed

    def _home(self, name: str) -> Path:
        return self.root / _EXPORTED / name


def new_version() -> str:
    """Return the version of a snapshot that is exported now."""
    return f"{time.time_ns():020d}"


def exported_folder(name: str, version: str = "") -> str:
    """Return the folder of an exported snapshot, or that of all of its versions."""
    return f"{_EXPORTED}/{name}/{version}" if version else f"{_EXPORTED}/{name}"


def exported_name(folder: str) -> str | None:
    """Return the name of the exported snapshot that has a folder; None for one of a lineage."""
    parts = folder.split("/")
    return parts[1] if len(parts) > 1 and parts[0] == _EXPORTED else None


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
        import shutil  # as of `remove_folder`

        shutil.copyfile(source, target)


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
