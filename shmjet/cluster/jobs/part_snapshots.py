"""A member's part in the snapshots of an attempt: orders to its processes, and reports in place of ended ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping

from shmjet.cluster.membership.peer_messages import PartSaved, ResolvePart, SavePart
from shmjet.cluster.processes.workers import Child
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.messages import Resolve, Save, SavedProcessor
from shmjet.snapshots.store import SnapshotStore


class PartSnapshots:
    """See the module.

    Args:
        attempt: its number.
        store: of this member's snapshots.
        unfinished: gives the processes with tasklets, and processes whose tasklets have ended as long as they have not
            let go, by their endpoints.
        report: sends a report to the coordinator.
        has_guarantee: whether the job has one; else it is saved only for exports, also when processors have ended.
    """

    def __init__(
        self,
        attempt: int,
        store: SnapshotStore,
        unfinished: Callable[[], Mapping[int, Child]],
        report: Callable[[object], None],
        *,
        has_guarantee: bool,
    ) -> None:
        self._attempt = attempt
        self._store = store
        self._unfinished = unfinished
        self._report = report
        self._has_guarantee = has_guarantee
        self._newest: list[Save | Resolve] = []

    @property
    def newest(self) -> Iterable[Save | Resolve]:
        """The orders about the newest snapshot, for processes that get a tasklet later."""
        return self._newest

    def save(self, order: SavePart, plan: JobPlan | None) -> None:
        """Have all processes save."""
        save = Save(self._attempt, order.snapshot_id, order.terminal, order.prepares, self._folder_of(order.lineage))
        self._tell_all(save)
        self._newest = [save]
        self.report_gone(plan)

    def resolve(self, order: ResolvePart) -> None:
        """Tell all processes how a snapshot has ended."""
        resolve = Resolve(self._attempt, order.snapshot_id, order.success)
        self._tell_all(resolve)
        self._newest.append(resolve)

    def report_gone(self, plan: JobPlan | None) -> None:
        """Report the processors of processes that have let go while a job without a guarantee is exported."""
        if self._has_guarantee or plan is None or len(self._newest) != 1:
            return
        there = set(self._unfinished())
        if plan.stealing:  # its workers stay to the end, and do not say whose tasklets have ended on them
            there.update(range(plan.worker_count))
        gone = [
            SavedProcessor(v, p, True, [], tells_rest=False)
            for v, vertex in enumerate(plan.vertices)
            for p, endpoint in enumerate(vertex.endpoints)
            if endpoint not in there
        ]
        if gone:
            self._report(PartSaved(self._attempt, self._newest[0].snapshot_id, gone))

    def _folder_of(self, lineage: str) -> str:
        """Return where processes make chunk files; if it cannot be made, they find that out and say so."""
        with contextlib.suppress(OSError):
            self._store.make(lineage)
        return str(self._store.root / lineage)

    def _tell_all(self, order: Save | Resolve) -> None:
        for child in self._unfinished().values():
            child.send(order)
