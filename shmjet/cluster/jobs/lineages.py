"""The lineages of a member's runs: of new runs, and of runs that go on."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

from shmjet.cluster.jobs.lineage import Lineage, check_restorable
from shmjet.cluster.jobs.snapshot_copies import SnapshotCopies
from shmjet.cluster.protocol import Submission
from shmjet.core import ConfigError, ShmjetError
from shmjet.snapshots.store import ExportedSnapshot, SnapshotStore


class Lineages:
    """See the module.

    Args:
        snapshots: of this member.
        copies: of them on other members; None where there are none.
    """

    def __init__(self, snapshots: SnapshotStore, copies: SnapshotCopies | None) -> None:
        self._snapshots = snapshots
        self._copies = copies

    def for_new_run(self, job: Submission) -> Lineage | None:
        """Return the lineage of a new run, which may begin from an exported snapshot; None without a guarantee.

        Raises:
            ConfigError: there is no such snapshot.
            PlanError: it has state of vertices that the job does not have.
            ShmjetError: they cannot be kept on disk: there is no room, say.
        """
        settings, initial = job.settings, None
        if settings.initial_snapshot is not None:
            initial = self._snapshots.find(settings.initial_snapshot)
            if initial is None:
                known = ", ".join(repr(other.name) for other in self._snapshots.exported()) or "there is none"
                text = f"JobConfig.initial_snapshot_name: there is no snapshot {settings.initial_snapshot!r}"
                raise ConfigError(f"{text}; exported ones: {known}")
            check_restorable(initial, job.shape, allow_dropped_state=settings.allow_dropped_state)
        if initial is None and not settings.has_guarantee:
            return None
        return self.new(job, initial)

    def new(self, job: Submission, initial: ExportedSnapshot | None = None) -> Lineage:
        """Return a new lineage of a run of a job. Raises ShmjetError when there is no room for it."""
        try:
            lineage = self.named(uuid4().hex, job)
            if initial is not None:
                lineage.begin_from(initial)
        except OSError as error:
            place = str(self._snapshots.root)
            raise ShmjetError(f"the snapshots of a job cannot be kept in {place!r}: {error}") from error
        return lineage

    def named(self, name: str, job: Submission) -> Lineage:
        """Return the lineage of that name. Raises OSError when there is no room for it."""
        return Lineage(name, self._snapshots, job.settings, self._copies)

    def remove_all_but(self, names: Collection[str]) -> None:
        """Remove the snapshots of all lineages but these."""
        for name in self._snapshots.lineages():
            if name not in names:
                self._snapshots.lineage(name).remove()
