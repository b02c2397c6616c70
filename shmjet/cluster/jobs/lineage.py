"""The lineage of a run: its snapshots, from which its attempts go on, one after the other."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from shmjet.cluster.jobs.copies import holders_of
from shmjet.cluster.jobs.snapshot_copies import Export, SnapshotCopies
from shmjet.cluster.lifecycle_messages import LastSnapshot, RunSettings, SnapshotRow, VertexState
from shmjet.core import PlanError
from shmjet.core.processor import NO_STATE
from shmjet.execution.job_plan import JobShape
from shmjet.snapshots.chunk import check_pieces
from shmjet.snapshots.manifest import ENGINE, DamagedSnapshotError, Manifest, read_manifest
from shmjet.snapshots.store import ExportedSnapshot, LineageStore, SnapshotStore, exported_folder, new_version

LOST_ALL = (
    "no snapshot of the job is left that can be read, see the log; resume() begins anew, without its state, unless one "
    "can be read again"
)
"""Why a job is suspended of which all snapshots are damaged."""

ELSEWHERE = (
    "some of the job's state is on members that have not joined yet; resume() goes on from its snapshot when they have"
)
"""Why a job waits whose member was started again before other members that have chunk files of it."""

logger = logging.getLogger("shmjet.member")


class Lineage:
    """The snapshots of one run.

    Args:
        name: unique for ever.
        store: of all snapshots of this member.
        settings: of the job.
        copies: on other members; None where there are none.

    Raises:
        OSError: there is no room for its folder.
    """

    def __init__(
        self, name: str, store: SnapshotStore, settings: RunSettings, copies: SnapshotCopies | None = None
    ) -> None:
        self.name = name
        self.settings = settings
        self.last: LastSnapshot | None = None
        """The last valid snapshot that was taken; None when there is none."""
        self.on_valid: Callable[[], None] = _nothing
        """Called when `last` is a new one."""
        self._all = store
        self._copies = copies
        self._writing: asyncio.Task[None] | None = None
        self._begun_from = ""
        self._store: LineageStore = store.lineage(name)
        self._number = self._store.newest_id
        self._relied_on_one = bool(self._store.valid())

    @property
    def takes_snapshots(self) -> bool:
        """Whether the job has a guarantee; else its attempts go on from the initial snapshot at most."""
        return self.settings.has_guarantee

    @property
    def is_shared(self) -> bool:
        """Whether there are other members, which have to have its snapshots, too."""
        return self._copies is not None and bool(self._copies.others)

    @property
    def writes_to_disk(self) -> bool:
        """Whether writing a snapshot may take long."""
        return self._all.sync

    def next_number(self) -> int:
        """Return the number of the next snapshot."""
        self._number += 1
        return self._number

    def begin_from(self, snapshot: ExportedSnapshot) -> None:
        """Go on from an exported snapshot. Raises OSError when its files cannot be linked."""
        self._store.begin_from(snapshot, shared=self.is_shared)
        self._begun_from = exported_folder(snapshot.name, snapshot.path.parent.name)
        self._relied_on_one = True

    # -- snapshots ----------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Whether a snapshot is being made valid, which `find` waits for."""
        return self._writing is not None and not self._writing.done()

    def writes(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Make a snapshot valid, in a task: the next attempt waits for its end, so that it knows the newest one."""
        self._writing = asyncio.get_running_loop().create_task(work)
        return self._writing

    async def copy(
        self,
        manifest: Manifest,
        holders: Mapping[str, Sequence[str]],
        name: str | None,
        *,
        prepared: bool,
        least_s: float,
    ) -> str | None:
        """Have a snapshot on all other members, as `write` has it here afterwards.

        Args:
            manifest: of the snapshot.
            holders: who has each of its chunk files.
            name: under which it is exported; None when it is not.
            prepared: whether attempts may go on from it, if the job has a guarantee.
            least_s: how long this may take, if the state is small.

        Returns:
            the version under which it is exported.

        Raises:
            OSError, ShmjetError: it is not on all of them.
        """
        assert self._copies is not None
        export = None if name is None else Export(name=name, version=new_version())
        counts = prepared and self.takes_snapshots
        try:
            await self._copies.keep_on_others(
                self.name, manifest, holders, counts=counts, export=export, least_s=least_s
            )
        except BaseException:
            if export is not None:  # what others have exported already goes, and the version before it stays
                self._copies.forget(exported_folder(export.name), but=self._all.newest_version(export.name))
            raise
        return None if export is None else export.version

    def write(self, manifest: Manifest, name: str | None, *, prepared: bool, version: str | None = None) -> None:
        """Make a snapshot valid; it does no harm in another thread.

        Args:
            manifest: of the snapshot.
            name: under which it is exported; None when it is not.
            prepared: whether attempts may go on from it, if the job has a guarantee.
            version: of the exported one, if others have it already.

        Raises:
            OSError: there is no room, or a chunk file is not there.
        """
        if name is not None:
            here = None if version is None else self._here(manifest)
            self._all.keep(manifest, self._store.folder, name, version=version, files=here)
        if prepared and self.takes_snapshots:
            self._store.write(manifest, self._here(manifest) if self.is_shared else None)

    def _here(self, manifest: Manifest) -> set[str]:
        return manifest.files() & set(self._all.names(self.name))

    def exported_everywhere(self, name: str, version: str) -> None:
        """Take that a version of an exported snapshot is on all members: older ones go."""
        assert self._copies is not None
        self._all.keep_only(name, version)
        self._copies.forget(exported_folder(name), but=version)

    def succeeded(self, manifest: Manifest, started_at: float) -> None:
        """Take that a snapshot is valid from which attempts may go on, or with which a job without a guarantee ends.

        Args:
            manifest: of the snapshot.
            started_at: when it was ordered, in seconds since the epoch.
        """
        self._relied_on_one = self._relied_on_one or self.takes_snapshots
        self.last = LastSnapshot(
            manifest.snapshot_id,
            started_at,
            max(0.0, time.time() - started_at),
            manifest.size,
            manifest.keys,
            {vertex.name: VertexState(vertex.keys, vertex.size) for vertex in manifest.vertices},
        )
        self.on_valid()

    def failed(self, number: int) -> None:
        """Remove what a failed snapshot, or an exported one, has left."""
        self._store.prune(number)
        if self._copies is not None:
            self._copies.forget(self.name, number)

    @property
    def has_lost_all(self) -> bool:
        """Whether there were snapshots and all of them have turned out to be damaged, so that its state is gone."""
        return self._relied_on_one and not self._store.valid()

    def begin_anew(self) -> None:
        """Take that all snapshots are lost, and that the next attempt begins without one."""
        self._relied_on_one = False

    async def find(self) -> dict[str, dict[str, list[str]]]:
        """Look which members have the chunk files of the newest snapshot; distrust snapshots that lack some.

        Returns:
            for each member the files that it lacks, with the members that have them.

        Raises:
            OSError: a member has not said what it has.
        """
        if self._writing is not None:
            await asyncio.wait({self._writing})
        if self._copies is None or not self.is_shared or not self._store.valid():
            return {}
        begins = self._store.valid() == [0]
        held = await self._copies.held(self.name, self._begun_from if begins else "")
        while (number := self.newest()) >= 0:
            files = self._store.read(number).files()
            lost = files.difference(*held.values())
            if not lost:
                holders = holders_of(files, held)
                return {member: {file: holders[file] for file in files - theirs} for member, theirs in held.items()}
            logger.error("snapshot %d cannot be used: no member has its chunk file %s", number, ", ".join(sorted(lost)))
            self._store.distrust(number)
        return {}

    def newest(self) -> int:
        """Return the number of the snapshot from which the next attempt goes on; -1 when there is none."""
        return self._store.valid()[0] if self.restored_from() else -1

    def restored_from(self) -> str:
        """Return the path of the manifest from which the next attempt goes on; empty when there is none."""
        for number in self._store.valid():
            path = self._store.path_of(number)
            try:
                self._store.read(number)
            except DamagedSnapshotError as error:
                logger.error("snapshot %d cannot be used: %s", number, error)
                self._store.distrust(number)
            else:
                return str(path)
        return ""

    def check(self) -> None:
        """Compare snapshots with their checksums, the newest first, until one is whole; damaged ones are given up.

        Chunk files that may be on other members need not be here.
        """
        is_shared = self._copies is not None
        here = set(self._all.names(self.name))
        for number in self._store.valid():
            try:
                manifest = self._store.read(number)
                pieces = (piece for vertex in manifest.vertices for piece in vertex.pieces())
                check_pieces(self._store.folder, (piece for piece in pieces if not is_shared or piece.file in here))
            except DamagedSnapshotError as error:
                logger.error("snapshot %d cannot be used: %s", number, error)
                self._store.distrust(number)
            else:
                return

    def absent(self) -> list[str]:
        """Return the chunk files of the newest snapshot that are not on this member."""
        path = self.restored_from()
        return sorted(read_manifest(path).files() - set(self._all.names(self.name))) if path else []

    def distrust_newest(self) -> None:
        """Take that a piece of the newest snapshot is damaged: the next attempt goes on from the one before it."""
        for number in self._store.valid()[:1]:
            self._store.distrust(number)

    async def export(self, name: str, least_s: float, token: str = "") -> bool:
        """Give the last valid snapshot a name, on all members; False when there is none.

        Args:
            name: a checked name.
            least_s: how long this may take, if the state is small.
            token: of the request for it.

        Raises:
            OSError: there is no room.
            ShmjetError: its manifest is damaged, or it cannot be had on all members.
        """
        path = await asyncio.to_thread(self.restored_from)  # it may lie on a disk
        if not path:
            return False
        found, version = await asyncio.to_thread(read_manifest, path), None
        manifest = msgspec.structs.replace(found, token=token)
        if self._copies is not None and self.is_shared:
            held = await self._copies.held(self.name)
            holders = holders_of(manifest.files(), held)
            version = await self.copy(manifest, holders, name, prepared=False, least_s=least_s)
        await asyncio.to_thread(self.write, manifest, name, prepared=False, version=version)
        if version is not None:
            self.exported_everywhere(name, version)
        return True

    def exported(self, name: str) -> ExportedSnapshot | None:
        """Return the exported snapshot of a name."""
        return self._all.find(name)

    def remove(self) -> None:
        """Remove all of them, when what is being written is; exported ones stay."""
        if self._writing is not None and not self._writing.done():
            self._writing.add_done_callback(lambda _: self.remove())
            return
        self._store.remove()
        if self._copies is not None:
            self._copies.forget(self.name)


def _nothing() -> None:
    """Stand for what is called when a snapshot is valid."""


def check_restorable(snapshot: ExportedSnapshot, shape: JobShape, *, allow_dropped_state: bool) -> None:
    """Check that a job has all vertices of which a snapshot holds state, and that they keep the same kind of state.

    Raises:
        PlanError: it lacks one, and `allow_dropped_state` is not set, or one is of another kind; the text names the
            vertex.
    """
    kinds = {vertex.name: vertex.state_kind for vertex in shape.vertices}
    saved = [vertex for vertex in snapshot.manifest.vertices if vertex.keys]
    for vertex in saved:
        kind = kinds.get(vertex.name, "")
        entries = sum(piece.entries for piece in vertex.pieces() if piece.partition != ENGINE)
        if kind and entries and kind != vertex.kind and (vertex.kind or kind == NO_STATE):
            saver = f"that {vertex.kind} has saved" if vertex.kind else f"({entries} entries)"
            raise PlanError(
                f"snapshot {snapshot.name!r} has state of {vertex.name!r} {saver}; in the job it is {kind}, which "
                "cannot go on from it; give the stage another name (set_name), and set JobConfig.allow_dropped_state"
            )
    missing = [vertex for vertex in saved if vertex.name not in kinds]
    if missing and not allow_dropped_state:
        lost = ", ".join(f"{vertex.name!r} ({vertex.keys} entries)" for vertex in missing)
        raise PlanError(
            f"snapshot {snapshot.name!r} has state of {lost}, but the job has no vertex of that name; name its stage "
            "so (set_name), or set JobConfig.allow_dropped_state"
        )


def snapshot_row(snapshot: ExportedSnapshot) -> SnapshotRow:
    """Describe an exported snapshot to a client."""
    manifest = snapshot.manifest
    return SnapshotRow(
        snapshot.name,
        manifest.job_name,
        manifest.created,
        manifest.size,
        manifest.keys,
        {vertex.name: VertexState(vertex.keys, vertex.size) for vertex in manifest.vertices},
    )
