"""The snapshots of one execution in one process: gives its tasklets their steps, their share of what is restored, and
the orders. Jobs without a guarantee that start afresh have none of it before they are exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from shmjet._native import Codec
from shmjet.core import JobConfig, ProcessingGuarantee
from shmjet.execution.code import EdgeCode
from shmjet.execution.messages import AtEnd, Deploy, Resolve, Resolved, Save, Saved
from shmjet.execution.restoring import Restoring
from shmjet.execution.snapshot_orders import Place, SnapshotOrders
from shmjet.execution.snapshot_steps import SnapshotSteps
from shmjet.execution.state_partitions import StatePartitions
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.ring.class_versions import ClassName


class DeploymentSnapshots:
    """What one process does for snapshots of one execution.

    Args:
        deploy: the member's order.
        endpoint: this process' number in the plan.
        edges: the code of the edges, in the plan's order.
        config: of the job.
        codec: of this process.
        classes: of the job, by module and name, that it brings by value.
    """

    def __init__(
        self,
        deploy: Deploy,
        endpoint: int,
        edges: Sequence[EdgeCode],
        config: JobConfig,
        codec: Codec,
        classes: Mapping[ClassName, type],
    ) -> None:
        self._plan = deploy.plan
        self._edges = edges
        self._guarantees = config.processing_guarantee is not ProcessingGuarantee.NONE
        self._partitions: dict[int, StatePartitions] = {}
        slot = deploy.plan.slot
        process = f"{slot.index}.{endpoint}" if slot.count > 1 else f"{endpoint}"
        self._orders = SnapshotOrders(deploy.execution_id, process, codec)
        self._restoring: Restoring | None = None
        if deploy.manifest:
            self._restoring = Restoring(deploy.manifest, deploy.plan, edges, self._partitions_of, codec, classes)

    @staticmethod
    def are_needed(deploy: Deploy, config: JobConfig) -> bool:
        """Say whether tasklets of an execution save or restore anything."""
        return bool(deploy.manifest) or config.processing_guarantee is not ProcessingGuarantee.NONE

    def check(self, v: int) -> None:
        """Look whether the saved state of a vertex can be restored here, as far as a look at some of it tells.

        Raises:
            ProcessorError: an entry cannot be unpickled.
            DamagedSnapshotError: a piece is torn, damaged or missing.
        """
        if self._restoring is not None:
            self._restoring.check(v)

    def attach(self, place: Place, tasklet: ProcessorTasklet, *, moved: bool) -> None:
        """Let a tasklet take part.

        Args:
            place: of the processor.
            tasklet: new, before its first call.
            moved: it comes from another worker, and is not to restore anything.
        """
        vertex = self._plan.vertices[place[0]]
        share = None
        if self._restoring is not None and not moved:
            self._restoring.expect(place)
            share = partial(self._restoring.share, place)
        is_sink = vertex.inbound > 0 and vertex.outbound == 0
        tasklet.take_snapshots(
            SnapshotSteps(
                tasklet,
                self._orders,
                place,
                self._partitions_of(place[0]),
                share=share,
                waits_at_end=is_sink and self._guarantees,
            )
        )

    def attach_late(self, places: Mapping[int, Place], tasklets: Sequence[ProcessorTasklet]) -> None:
        """Let tasklets take part that run without: those of a job without a guarantee when it is exported.

        Args:
            places: of their processors, by their identity.
            tasklets: all of this process, also ended ones.
        """
        for tasklet in tasklets:
            self.attach(places[id(tasklet)], tasklet, moved=True)
            assert tasklet.snapshots is not None
            tasklet.snapshots.join_late()

    def _partitions_of(self, v: int) -> StatePartitions:
        if v not in self._partitions:
            self._partitions[v] = StatePartitions(self._plan, self._edges, v)
        return self._partitions[v]

    def begin(self, save: Save, tasklets: Sequence[ProcessorTasklet]) -> None:
        """Begin phase one of a snapshot."""
        self._orders.begin(save)
        _notice(tasklets)

    def finish(self, resolve: Resolve, tasklets: Sequence[ProcessorTasklet]) -> None:
        """Begin phase two of a snapshot."""
        self._orders.finish(resolve)
        _notice(tasklets)

    def take_reports(self) -> list[Saved | Resolved | AtEnd]:
        """Return what is to be told to the member since this was last asked."""
        return self._orders.take_reports()

    def close(self) -> None:
        """Close all files; idempotent."""
        self._orders.close()
        if self._restoring is not None:
            self._restoring.close()


def _notice(tasklets: Sequence[ProcessorTasklet]) -> None:
    for tasklet in tasklets:
        if tasklet.snapshots is not None and not tasklet.done:
            tasklet.snapshots.notice()
