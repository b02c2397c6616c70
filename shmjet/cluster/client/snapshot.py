"""`Snapshot`: an exported snapshot as a client sees it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from shmjet.cluster.lifecycle_messages import SnapshotRow


class VertexSnapshot(NamedTuple):
    """What a snapshot holds of one vertex.

    Example:
        >>> VertexSnapshot(keys=2, size=40).size
        40
    """

    keys: int
    """Entries."""
    size: int
    """Bytes."""


class Snapshot:
    """The saved state of a job, under a name: what another job can start from (`JobConfig.initial_snapshot_name`).

    `Job.export_snapshot` makes one, `JetInstance.snapshots` lists all. It stays until it is destroyed, whatever becomes
    of the job.

    Example:
        >>> snapshot = job.export_snapshot("before the upgrade")                         # doctest: +SKIP
        >>> snapshot.keys, sorted(snapshot.vertices)                                     # doctest: +SKIP
        (1200, ['count', 'read'])
        >>> snapshot.destroy()                                                           # doctest: +SKIP
    """

    def __init__(self, row: SnapshotRow, destroy: Callable[[str], None]) -> None:
        self._row = row
        self._destroy = destroy

    @property
    def name(self) -> str:
        """Its name."""
        return self._row.name

    @property
    def job_name(self) -> str | None:
        """The name of the job whose state it is."""
        return self._row.job_name

    @property
    def created(self) -> float:
        """When it was taken, in seconds since 1970."""
        return self._row.created

    @property
    def size(self) -> int:
        """Bytes of the state of all vertices."""
        return self._row.size

    @property
    def keys(self) -> int:
        """Entries of all vertices."""
        return self._row.keys

    @property
    def vertices(self) -> Mapping[str, VertexSnapshot]:
        """What it holds of each vertex, by the vertex's name."""
        return MappingProxyType({name: VertexSnapshot(v.keys, v.size) for name, v in self._row.vertices.items()})

    def destroy(self) -> None:
        """Remove it; does nothing when it is gone already.

        Raises:
            MemberLostError: no member can be reached.
        """
        self._destroy(self.name)

    def __repr__(self) -> str:
        at = datetime.datetime.fromtimestamp(self.created).isoformat(" ", "seconds")
        of = f" of {self.job_name!r}" if self.job_name else ""
        return f"<Snapshot {self.name!r}{of}, {self.keys} keys, {self.size} bytes, {at}>"
