"""The lineage of a run: its snapshots, from which its attempts go on, one after the other."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from shmjet.cluster.lifecycle_messages import LastSnapshot, RunSettings, SnapshotRow, VertexState
from shmjet.core import PlanError
from shmjet.core.processor import NO_STATE
from shmjet.execution.job_plan import JobShape
from shmjet.snapshots.chunk import check_pieces
from shmjet.snapshots.manifest import ENGINE, DamagedSnapshotError, Manifest, read_manifest
from shmjet.snapshots.store import ExportedSnapshot, LineageStore, SnapshotStore

LOST_ALL = "no snapshot of the job is left that can be read, see the log; resume() begins anew, without its state"
"""Why a job is suspended of which all snapshots are damaged."""

logger = logging.getLogger("shmjet.member")


class Lineage:
    """The snapshots of one run.

    Args:
        name: unique for ever.
        store: of all snapshots of this member.
        settings: of the job.

    Raises:
        OSError: there is no room for its folder.
    """

    def __init__(self, name: str, store: SnapshotStore, settings: RunSettings) -> None:
        self.name = name
        self.settings = settings
        self.last: LastSnapshot | None = None
        """The last valid snapshot that was taken; None when there is none."""
        self.on_valid: Callable[[], None] = _nothing
        """Called when `last` is a new one."""
        self._all = store
        self._store: LineageStore = store.lineage(name)
        self._number = self._store.newest_id
        self._relied_on_one = bool(self._store.valid())

    @property
    def folder(self) -> str:
        """Where processes make chunk files."""
        return str(self._store.folder)

    @property
    def takes_snapshots(self) -> bool:
        """Whether the job has a guarantee; else its attempts go on from the initial snapshot at most."""
        return self.settings.has_guarantee

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
        self._store.begin_from(snapshot)
        self._relied_on_one = True

    # -- snapshots ----------------------------------------------------------------------------------------------

    def write(self, manifest: Manifest, name: str | None, *, prepared: bool) -> None:
        """Make a snapshot valid; it does no harm in another thread.

        Args:
            manifest: of the snapshot.
            name: under which it is exported; None when it is not.
            prepared: whether attempts may go on from it, if the job has a guarantee.

        Raises:
            OSError: there is no room, or a chunk file is not there.
        """
        if name is not None:
            self._all.keep(manifest, self._store.folder, name)
        if prepared and self.takes_snapshots:
            self._store.write(manifest)

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

    @property
    def has_lost_all(self) -> bool:
        """Whether there were snapshots and all of them have turned out to be damaged, so that its state is gone."""
        return self._relied_on_one and not self._store.valid()

    def begin_anew(self) -> None:
        """Take that all snapshots are lost, and that the next attempt begins without one."""
        self._relied_on_one = False

    def restored_from(self) -> str:
        """Return the path of the manifest from which the next attempt goes on; empty when there is none."""
        for number in self._store.valid():
            path = self._store.path_of(number)
            try:
                read_manifest(path)
            except DamagedSnapshotError as error:
                logger.error("snapshot %d cannot be used: %s", number, error)
                self._store.distrust(number)
            else:
                return str(path)
        return ""

    def check(self) -> None:
        """Compare snapshots with their checksums, the newest first, until one is whole; damaged ones are given up."""
        for number in self._store.valid():
            try:
                manifest = read_manifest(self._store.path_of(number))
                check_pieces(self._store.folder, (piece for vertex in manifest.vertices for piece in vertex.pieces()))
            except DamagedSnapshotError as error:
                logger.error("snapshot %d cannot be used: %s", number, error)
                self._store.distrust(number)
            else:
                return

    def distrust_newest(self) -> None:
        """Take that a piece of the newest snapshot is damaged: the next attempt goes on from the one before it."""
        for number in self._store.valid()[:1]:
            self._store.distrust(number)

    def export(self, name: str) -> ExportedSnapshot | None:
        """Give the last valid snapshot a name; None when there is none.

        Raises:
            OSError: there is no room.
            DamagedSnapshotError: its manifest is damaged.
        """
        path = self.restored_from()
        return self._all.export(self._store.path_of(self._store.valid()[0]), name) if path else None

    def exported(self, name: str) -> ExportedSnapshot | None:
        """Return the exported snapshot of a name."""
        return self._all.find(name)

    def remove(self) -> None:
        """Remove all of them; exported ones stay."""
        self._store.remove()


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
