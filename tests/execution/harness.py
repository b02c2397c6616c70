"""Runs a DAG in this process, deterministically: each worker is a `Deployment` on one arena, rounds go by hand.

Lanes within a worker are local, lanes between workers are real rings; with `force_rings` all of them are.
"""

from __future__ import annotations

import mmap
import os
import random
from collections import defaultdict
from typing import Any

import cloudpickle

from shmjet.core import DAG, JobConfig
from shmjet.execution.code import code_of
from shmjet.execution.control import WORDS, control_size
from shmjet.execution.deployment import Deployment
from shmjet.execution.formatting import format_arena
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.layout import ArenaLayout, lay_out, slab_size
from shmjet.execution.messages import Adopt, Deploy, JobPlan
from shmjet.execution.plan import describe, make_plan
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.tasklet import ProcessorTasklet, State
from shmjet.ring.marks import Barrier


class LocalRun:
    """One execution, all of its workers in this process.

    Args:
        dag: what to run; it is pickled for every worker as in the real engine.
        workers: number of workers.
        force_rings: let no lane be local.
        seed: when given, workers and tasklets take their turns in a random order.
        stealing: how often, per round, a random tasklet is handed over to another worker, 0 to 1; needs a seed.
        barriers: how often, per round, all sources emit a barrier, 0 to 1; needs a seed.
    """

    def __init__(
        self,
        dag: DAG,
        workers: int = 2,
        *,
        force_rings: bool = False,
        seed: int | None = None,
        stealing: float = 0,
        barriers: float = 0,
    ) -> None:
        self.plan: JobPlan = make_plan(
            shape := describe(dag),
            worker_count=workers,
            non_cooperative=set(),
            ring_memory=64 << 20,
            partition_count=271,
            force_rings=force_rings,
            stealing=stealing > 0,
        )
        self.layout: ArenaLayout = lay_out(self.plan)
        reserved = -(-self.layout.size // mmap.PAGESIZE) * mmap.PAGESIZE
        size = reserved + slab_size(self.plan) * (self.plan.worker_count + self.plan.carrier_count)
        fd = os.memfd_create("shmjet-test")
        os.ftruncate(fd, size)
        self.arena = memoryview(mmap.mmap(fd, size))
        self._fd = fd
        self.control = memoryview(mmap.mmap(-1, control_size(workers)))
        format_arena(self.plan, self.layout, self.arena)
        data, config = cloudpickle.dumps(code_of(dag, shape)), cloudpickle.dumps(JobConfig())
        self.grid = MemoryGrid()
        self.deployments = []
        for worker in range(workers):
            message = Deploy(1, "job", None, data, self.plan, 1, size, reserved, True, config, {}, {}, [])
            deployment = Deployment(message, worker, lambda: self.grid)
            shared = SharedMemory(self.control)
            shared._mapped[1] = self.arena
            shared._fds[1] = fd
            deployment.create(shared, ())
            deployment.init()
            self.deployments.append(deployment)
        self._random = random.Random(seed) if seed is not None else None
        self._stealing = stealing
        self._barriers = barriers
        self._barrier_id = 0
        self.barriers_passed: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.rounds = 0
        self.steals = 0
        self.refusals = 0

    def run(self, most_rounds: int = 1_000_000) -> LocalRun:
        """Call all tasklets in turn until they are done; fails when a round moves nothing for long."""
        try:
            return self._run(most_rounds)
        finally:
            os.close(self._fd)

    def _run(self, most_rounds: int) -> LocalRun:
        idle = 0
        while tasklets := [t for deployment in self.deployments for t in deployment.tasklets if not t.done]:
            self.rounds += 1
            assert self.rounds < most_rounds, "the job does not come to an end"
            if self._random is not None:
                if self._random.random() < self._barriers:
                    self._emit_barrier(tasklets)
                if self._random.random() < self._stealing:
                    self._steal(self._random)
                    continue
                self._random.shuffle(tasklets)
            progress = [self._call(tasklet) for tasklet in tasklets]
            idle = 0 if any(progress) else idle + 1
            assert idle < 100, f"deadlock: {[(t.context.vertex_name, t.state.name) for t in tasklets]}"
        for deployment in self.deployments:
            deployment.close_processors(Interrupts(memoryview(bytearray(WORDS * 8)).cast("q")))
        return self

    def _call(self, tasklet: ProcessorTasklet) -> bool:
        before = tasklet.last_barrier
        progress = tasklet.call()
        if tasklet.last_barrier != before:
            context = tasklet.context
            self.barriers_passed[context.vertex_name, context.local_index].append(tasklet.last_barrier)
        return progress

    def _emit_barrier(self, tasklets: list[ProcessorTasklet]) -> None:
        """Let all sources that still run emit the same barrier."""
        self._barrier_id += 1
        for tasklet in tasklets:
            if not tasklet._edges and tasklet.state is not State.EMIT_DONE_ITEM:
                tasklet._emit_mark(Barrier(self._barrier_id))

    def _steal(self, rng: random.Random) -> None:
        """Let a random worker take a random tasklet from another one."""
        victim, thief = rng.sample(self.deployments, 2)
        candidates = [tasklet for tasklet in victim.tasklets if not tasklet.done]
        if not candidates:
            return
        handed = victim.hand_over(rng.choice(candidates), self.deployments.index(thief))
        if handed is None:
            self.refusals += 1
            return
        message, fds = handed
        adopt = Adopt(1, message.vertex, message.processor, message.state, message.size, message.tables)
        thief.adopt(adopt, fds)
        self.steals += 1


class MemoryGrid:
    """Lists that live in this process, for processors that collect what they get."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}

    def get_list(self, name: str) -> list[Any]:
        return self.lists.setdefault(name, [])

    def get_map(self, name: str) -> dict[Any, Any]:
        raise AssertionError("no maps here")
