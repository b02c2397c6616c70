"""Runs a DAG in this process with snapshots: `LocalRun` with a coordinator that is as simple as one can be.

Orders reach the processes one after the other, some rounds apart, as messages do. A run can be stopped at any round, as
if its processes had been killed, and another one restored from the last manifest.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from shmjet.cluster.jobs.attempt_snapshots import early_vertices
from shmjet.core import DAG, JobConfig, ProcessingGuarantee
from shmjet.execution.deployment import Deployment
from shmjet.execution.messages import AtEnd, Resolve, Resolved, Save, Saved
from shmjet.execution.plan import describe
from shmjet.execution.tasklet import ProcessorTasklet
from shmjet.snapshots.manifest import Manifest, ProcessorRecord, SavedVertex, write_manifest
from tests.execution.harness import LocalRun

Place = tuple[int, int]


class Killed(Exception):
    """The run has been stopped as a kill would."""


class SnapshotRun(LocalRun):
    """A run that takes snapshots.

    Args:
        dag: what to run.
        folder: of chunk files and manifests.
        workers: number of workers.
        guarantee: of the job; without one snapshots are exports.
        rate: how often, per round, a snapshot begins while none is under way, 0 to 1.
        restore: begin from the last manifest in the folder, if there is one.
        kill_at: the round before which the run is stopped.
        terminal_at: the round from which the next snapshot is a terminal one.
        options: of `LocalRun`.
    """

    def __init__(
        self,
        dag: DAG,
        folder: Path,
        workers: int = 2,
        *,
        guarantee: ProcessingGuarantee = ProcessingGuarantee.EXACTLY_ONCE,
        rate: float = 0.05,
        restore: bool = False,
        kill_at: int | None = None,
        terminal_at: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        shape = describe(dag)
        self._early = {shape.vertices[v].name for v in early_vertices(shape)}
        found = sorted(folder.glob("*.manifest"), key=lambda path: int(path.stem))
        last = found[-1] if found and restore else None
        super().__init__(
            dag,
            workers,
            config=JobConfig(processing_guarantee=guarantee),
            manifest=str(last) if last else "",
            seed=seed,
            **options,
        )
        self._guarantees = guarantee is not ProcessingGuarantee.NONE
        self.snapshot_id = max((int(path.stem) for path in folder.glob("*.manifest")), default=0) + 100
        self.valid = 0
        self.errors: list[str] = []
        self.reports: list[Any] = []
        self._folder = folder
        self._rate = rate
        self._kill_at = kill_at
        self._terminal_at = terminal_at
        self._dice = random.Random(f"snapshots {seed}")
        self._orders: list[tuple[Deployment, Save | Resolve]] = []
        self._finished: dict[Place, Any] = {}
        self._saved: dict[Place, Any] = {}
        self._resolved: set[Place] = set()
        self._at_end: set[Place] = set()
        self._phase = 0
        self.terminal = False
        self.prepares = True
        self.failed = False

    def close(self) -> None:
        super().close()
        for deployment in self.deployments:
            if deployment.snapshots is not None:
                deployment.snapshots.close()

    @property
    def ended(self) -> bool:
        """Whether the job has come to its end, not to a terminal snapshot."""
        return not self._left() and not (self.terminal and self.valid and not self.failed)

    @property
    def places(self) -> set[Place]:
        """All processors."""
        return {(v, p) for v, vertex in enumerate(self.plan.vertices) for p in range(vertex.parallelism)}

    def between_rounds(self) -> bool:
        if self._kill_at is not None and self.rounds >= self._kill_at:
            raise Killed
        self._take_reports()
        if self._orders:
            if self._dice.random() < 0.5:
                return True
            deployment, order = self._orders.pop()
            deployment.order(order)
            self.wake(deployment)
            return True
        if self._phase == 0 and self._begins():
            terminal = self._terminal_at is not None and self.rounds >= self._terminal_at
            self.begin(terminal, prepares=terminal or self._guarantees)
            return True
        if self._phase == 1 and self.places == self._saved.keys() | self._finished.keys():
            self._resolve()
            return True
        live = {place for place, saved in self._saved.items() if not saved.finished}
        if self._phase == 2 and live <= self._resolved:
            self._phase = 0
            return True
        return False

    def _begins(self) -> bool:
        left = self._left()
        if not left or any(tasklet.context.vertex_name in self._early for tasklet in left):
            return False
        live = {(self._vertex_of(t), t.context.local_index) for t in left}
        return live <= self._at_end or self._dice.random() < self._rate

    def _vertex_of(self, tasklet: ProcessorTasklet) -> int:
        return next(v for v, vertex in enumerate(self.plan.vertices) if vertex.name == tasklet.context.vertex_name)

    def begin(self, terminal: bool = False, prepares: bool = True) -> None:
        """Begin a snapshot: orders go out from the next round on."""
        self.snapshot_id += 1
        self.terminal, self.prepares = terminal, prepares
        self._phase = 1
        self.failed = False
        self._saved, self._resolved = {}, set()
        self._order(Save(1, self.snapshot_id, terminal, prepares, str(self._folder)))

    def _order(self, order: Save | Resolve) -> None:
        self._orders = [(deployment, order) for deployment in self.deployments]
        self._dice.shuffle(self._orders)

    def _take_reports(self) -> None:
        for deployment in self.deployments:
            if deployment.snapshots is None:  # it has not been told to save yet
                assert not self._guarantees
                continue
            for report in deployment.snapshots.take_reports():
                self.reports.append(report)
                match report:
                    case Saved():
                        assert report.snapshot_id == self.snapshot_id
                        for saved in report.processors:
                            place = saved.vertex, saved.processor
                            assert place not in self._saved
                            self._saved[place] = saved
                        if report.error is not None:
                            self.errors.append(report.error)
                            self.failed = True
                    case Resolved():
                        assert report.snapshot_id == self.snapshot_id
                        assert not self._resolved & set(report.processors)
                        self._resolved |= set(report.processors)
                    case AtEnd():
                        self._at_end |= set(report.processors)

    def _resolve(self) -> None:
        self._phase = 2
        if not self.failed:
            self._write()
            self.valid += 1
            if self.prepares:
                self._finished |= {place: saved for place, saved in self._saved.items() if saved.finished}
        self._order(Resolve(1, self.snapshot_id, not self.failed))

    def _write(self) -> None:
        known = {**self._finished, **self._saved}
        vertices = []
        for v, vertex in enumerate(self.plan.vertices):
            saved = [known[v, p] for p in range(vertex.parallelism)]
            records = [ProcessorRecord(one.processor, one.finished, one.pieces, one.tells_rest) for one in saved]
            vertices.append(SavedVertex(vertex.name, vertex.parallelism, self.plan.partition_count, records))
        manifest = Manifest("lineage", self.snapshot_id, "job", None, 0.0, self.terminal, vertices)
        write_manifest(self._folder / f"{self.snapshot_id}.manifest", manifest)
