"""Runs a DAG in this process, deterministically: each worker is a `Deployment` on one arena, rounds go by hand.

Lanes within a worker are local, lanes between workers are real rings; with `force_rings` all of them are.
"""

from __future__ import annotations

import mmap
import random
from typing import Any

import cloudpickle

from shmjet._native import ring_format
from shmjet.core import DAG, JobConfig
from shmjet.execution.control import control_size
from shmjet.execution.counters import ProcessorCounters
from shmjet.execution.deployment import Deployment, SharedMemory
from shmjet.execution.layout import ArenaLayout, lay_out
from shmjet.execution.messages import Deploy, JobPlan
from shmjet.execution.plan import describe, make_plan


class LocalRun:
    """One execution, all of its workers in this process.

    Args:
        dag: what to run; it is pickled for every worker as in the real engine.
        workers: number of workers.
        force_rings: let no lane be local.
        seed: when given, workers and tasklets take their turns in a random order.
    """

    def __init__(self, dag: DAG, workers: int = 2, *, force_rings: bool = False, seed: int | None = None) -> None:
        self.plan: JobPlan = make_plan(
            describe(dag),
            worker_count=workers,
            non_cooperative=set(),
            ring_memory=64 << 20,
            partition_count=271,
            force_rings=force_rings,
        )
        self.layout: ArenaLayout = lay_out(self.plan)
        self.arena = memoryview(mmap.mmap(-1, self.layout.size))
        control = memoryview(mmap.mmap(-1, control_size(workers)))
        for (v, _), at in self.layout.counters.items():
            vertex = self.plan.vertices[v]
            ProcessorCounters(self.arena, at, vertex.inbound, vertex.outbound).reset()
        for (e, _, _), at in self.layout.rings.items():
            ring_format(self.arena, at, self.layout.ring_capacity, self.plan.edges[e].queue_size)
        data, config = cloudpickle.dumps(dag), cloudpickle.dumps(JobConfig())
        self.grid = MemoryGrid()
        self.deployments = []
        for worker in range(workers):
            message = Deploy(1, "job", None, data, self.plan, 1, self.layout.size, True, config, {}, {}, [])
            deployment = Deployment(message, worker, lambda: self.grid)
            shared = SharedMemory(control)
            shared._mapped[1] = self.arena
            deployment.create(shared, ())
            deployment.init()
            self.deployments.append(deployment)
        self._random = random.Random(seed) if seed is not None else None
        self.rounds = 0

    def run(self, most_rounds: int = 100_000) -> LocalRun:
        """Call all tasklets in turn until they are done; fails when a round moves nothing for long."""
        tasklets = [tasklet for deployment in self.deployments for tasklet in deployment.tasklets]
        idle = 0
        while tasklets:
            self.rounds += 1
            assert self.rounds < most_rounds, "the job does not come to an end"
            if self._random is not None:
                self._random.shuffle(tasklets)
            progress = [tasklet.call() for tasklet in tasklets]
            idle = 0 if any(progress) else idle + 1
            assert idle < 100, f"deadlock: {[(t.context.vertex_name, t.state.name) for t in tasklets]}"
            tasklets = [tasklet for tasklet in tasklets if not tasklet.done]
        for deployment in self.deployments:
            deployment.close_processors()
        return self


class MemoryGrid:
    """Lists that live in this process, for processors that collect what they get."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}

    def get_list(self, name: str) -> list[Any]:
        return self.lists.setdefault(name, [])

    def get_map(self, name: str) -> dict[Any, Any]:
        raise AssertionError("no maps here")
