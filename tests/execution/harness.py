"""Runs a DAG in this process, deterministically: each worker is a `Deployment` on one arena, rounds go by hand.

Lanes within a worker are local, lanes between workers are real rings; with `force_rings` all of them are. A worker
calls the tasklets that a real one would call, and falls asleep like it: it goes on only when its doorbell has rung. So
a wake-up that gets lost is a deadlock here.
"""

from __future__ import annotations

import mmap
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

import cloudpickle
import msgspec

from shmjet._native import Doorbell
from shmjet.core import DAG, JobConfig
from shmjet.data.marks import Barrier
from shmjet.execution.adaptive_limit import NO_CALL_NS
from shmjet.execution.arena_format import format_arena
from shmjet.execution.code import code_of
from shmjet.execution.control import BLOCK_SIZE, WORDS, control_size
from shmjet.execution.deployment import Deployment
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.kept_services import KeptServices
from shmjet.execution.layout import ArenaLayout, lay_out, slab_size
from shmjet.execution.messages import Adopt, Deploy
from shmjet.execution.plan import describe, make_plan
from shmjet.execution.runnable import any_polls, due, earliest
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.tasklet import ProcessorTasklet, State
from tests.waiting import until

_SLEEPING = 128
"""Where in a doorbell stands whether its owner sleeps (`docs/formats/ring.md`)."""
_MOST_IDLE = 100
"""Rounds in which no item moves, though a process polls, before the next ones are pauses apart."""


class Sleeper:
    """The sleep of one process: the two halves of `Doorbell.wait` without the waiting.

    Args:
        memory: in which its doorbell lies.
        offset: of the doorbell.
    """

    def __init__(self, memory: memoryview, offset: int) -> None:
        self._bell = Doorbell(memory, offset)
        self._word = memory[offset + _SLEEPING : offset + _SLEEPING + 4].cast("I")
        self._sleeps = False

    def sleep(self, tasklets: list[ProcessorTasklet]) -> None:
        """Fall asleep, unless one of the tasklets is ready."""
        if not any(tasklet.poller.ready() for tasklet in tasklets):
            self._word[0] = 1
            self._sleeps = True

    def wake(self) -> None:
        """Wake up whether the bell has rung or not."""
        self._word[0] = 0
        self._sleeps = False

    @property
    def sleeps(self) -> bool:
        """Whether it has fallen asleep and its bell has not rung since."""
        self._sleeps = self._sleeps and self._bell.sleeping
        return self._sleeps

    def close(self) -> None:
        """Let go of the memory."""
        self._bell.close()
        self._word.release()


class LocalRun:
    """One execution, all of its workers in this process.

    Args:
        dag: what to run; it is pickled for every worker as in the real engine.
        workers: number of workers.
        force_rings: let no lane be local.
        seed: when given, workers and tasklets take their turns in a random order.
        stealing: how often, per round, a random tasklet is handed over to another worker, 0 to 1; needs a seed.
        barriers: how often, per round, all sources emit a barrier, 0 to 1; needs a seed.
        call_all: call every tasklet in every round, whether there is a reason or not.
        config: of the job.
        manifest: path of the snapshot to restore.
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
        call_all: bool = False,
        config: JobConfig | None = None,
        manifest: str = "",
    ) -> None:
        shape = describe(dag)
        self.plan: JobPlan = make_plan(
            shape,
            worker_count=workers,
            non_cooperative={v for v, vertex in enumerate(shape.vertices) if vertex.cooperative is False},
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
        data, packed = cloudpickle.dumps(code_of(dag, shape)), cloudpickle.dumps(config or JobConfig())
        self.grid = MemoryGrid()
        self.deployments = []
        try:
            for worker in range(self.plan.process_count):
                message = Deploy(1, "job", None, data, self.plan, 1, size, reserved, True, packed, {}, {}, [])
                message = msgspec.structs.replace(message, manifest=manifest)
                deployment = Deployment(
                    message,
                    worker,
                    lambda: self.grid,
                    services=KeptServices(Interrupts(memoryview(bytearray(WORDS * 8)).cast("q"))).begin("job", 1),
                )
                shared = SharedMemory(self.control)
                shared.adopt(1, self.arena, fd)
                deployment.create(shared, ())
                deployment.init()
                self.deployments.append(deployment)
        except BaseException:  # no caller gets this object, so none closes it
            os.close(fd)
            raise
        bells = [(self.control, worker * BLOCK_SIZE) for worker in range(workers)]
        bells += [(self.arena, offset) for offset in self.layout.carriers]
        self._sleepers = [Sleeper(memory, offset) for memory, offset in bells]
        self._call_all = call_all
        self._random = random.Random(seed) if seed is not None else None
        self._stealing = stealing
        self._barriers = barriers
        self._barrier_id = 0
        self.barriers_passed: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.rounds = 0
        self.steals = 0
        self.refusals = 0

    def run(self, most_rounds: int = 1_000_000) -> LocalRun:
        """Let all workers have their rounds until their tasklets are done; fails when none can go on."""
        try:
            return self._run(most_rounds)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the memory; `run` does it itself."""
        os.close(self._fd)
        for sleeper in self._sleepers:
            sleeper.close()

    def _run(self, most_rounds: int) -> LocalRun:
        idle = 0
        while left := self._left():
            self.rounds += 1
            assert self.rounds < most_rounds, "the job does not come to an end"
            if self._random is not None:
                if self._random.random() < self._barriers:
                    self._emit_barrier(left)
                if self._random.random() < self._stealing:
                    self._steal(self._random)
                    self.between_rounds()
                    continue
            progress = self._round_of_all(left) if self._call_all else self._round()
            told = self.between_rounds()
            idle = 0 if progress or told or self._wait_for_timer(left) else idle + 1
            assert told or self._call_all or self._anyone_awake(), self._deadlock()
            if idle >= _MOST_IDLE:  # a thread of a processor has to run first
                idle = 0
                try:
                    until(self._goes_on)
                except AssertionError:
                    raise AssertionError(self._deadlock()) from None
        for deployment in self.deployments:
            deployment.close_processors(Interrupts(memoryview(bytearray(WORDS * 8)).cast("q")))
        return self

    def step(self, rounds: int = 1) -> None:
        """Let all workers have some rounds."""
        for _ in range(rounds):
            self._round()

    def between_rounds(self) -> bool:
        """Called after each round; True when it has given some process something to do."""
        return False

    def wake(self, deployment: Deployment) -> None:
        """Have a process go on, as a command does."""
        self._sleepers[self.deployments.index(deployment)].wake()

    def _wait_for_timer(self, tasklets: list[ProcessorTasklet]) -> bool:
        """Wait until the first timer of a tasklet runs out; False when none is set."""
        if all(tasklet.due_ns in (0, NO_CALL_NS) for tasklet in tasklets):
            return False
        first = min(tasklet.due_ns for tasklet in tasklets if tasklet.due_ns)
        until(lambda: time.perf_counter_ns() >= first, float("inf"))
        return True

    def _goes_on(self) -> bool:
        """Have another round; say whether an item moved in it, or nothing is left."""
        self.rounds += 1
        left = self._left()
        moved = self._round_of_all(left) if self._call_all else self._round()
        return self.between_rounds() or moved or not left

    def _deadlock(self) -> str:
        return f"deadlock: {[(t.context.vertex_name, t.state.name) for t in self._left()]}"

    def _left(self) -> list[ProcessorTasklet]:
        return [tasklet for deployment in self.deployments for tasklet in deployment.tasklets if not tasklet.done]

    def _round_of_all(self, tasklets: list[ProcessorTasklet]) -> bool:
        if self._random is not None:
            self._random.shuffle(tasklets)
        return self._call_each(tasklets)

    def _round(self) -> bool:
        """Give each process that is awake a round, as `Worker` has them."""
        processes = list(zip(self.deployments, self._sleepers, strict=True))
        if self._random is not None:
            self._random.shuffle(processes)
        progress = False
        for deployment, sleeper in processes:
            tasklets = [tasklet for tasklet in deployment.tasklets if not tasklet.done]
            hosted = [(tasklet, deployment) for tasklet in tasklets]
            if not tasklets or (sleeper.sleeps and not any_polls(hosted) and not earliest(hosted)):
                continue
            sleeper.wake()
            if self._random is not None:
                self._random.shuffle(hosted)
            if self._call_each(tasklet for tasklet, _ in due(hosted)):
                progress = True
            else:
                sleeper.sleep(tasklets)
        return progress

    def _call_each(self, tasklets: Iterable[ProcessorTasklet]) -> bool:
        calls = [self._call(tasklet) for tasklet in tasklets]
        return any(calls)

    def _anyone_awake(self) -> bool:
        """Say whether a process with something left to do goes on by itself: it is awake, or its time-out wakes it."""
        for deployment, sleeper in zip(self.deployments, self._sleepers, strict=True):
            hosted = [(tasklet, deployment) for tasklet in deployment.tasklets if not tasklet.done]
            if hosted and (not sleeper.sleeps or any_polls(hosted) or 0 < earliest(hosted) < NO_CALL_NS):
                return True
        return not self._left()

    def _call(self, tasklet: ProcessorTasklet) -> bool:
        before = tasklet.last_barrier
        if self._barriers and tasklet.snapshots is None:  # no one orders it to save
            tasklet.steps[State.EMIT_BARRIER] = partial(_pass_barrier, tasklet)
        progress = tasklet.call()
        if tasklet.last_barrier != before:
            context = tasklet.context
            self.barriers_passed[context.vertex_name, context.local_index].append(tasklet.last_barrier)
        return progress

    def _emit_barrier(self, tasklets: list[ProcessorTasklet]) -> None:
        """Let all sources that still run emit the same barrier."""
        self._barrier_id += 1
        for tasklet in tasklets:
            if not tasklet.intake.edges and tasklet.state is not State.EMIT_DONE_ITEM:
                tasklet.emit_mark(Barrier(self._barrier_id))
                tasklet.runnable = True
        for sleeper in self._sleepers:
            sleeper.wake()

    def _steal(self, rng: random.Random) -> None:
        """Let a random worker take a random tasklet from another one."""
        workers = self.deployments[: self.plan.worker_count]
        victims = [d for d in workers if any(not t.done and t.intake.edges and t.output.edges for t in d.tasklets)]
        if not victims:
            return
        victim = rng.choice(victims)
        thief = rng.choice([deployment for deployment in workers if deployment is not victim])
        for deployment in (victim, thief):  # it is given in a round, and taken upon a command
            self._sleepers[self.deployments.index(deployment)].wake()
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


def _pass_barrier(tasklet: ProcessorTasklet) -> None:
    assert tasklet.intake.barrier is not None
    tasklet.pass_barrier(tasklet.intake.barrier)
    tasklet.state = State.PROCESS_WATERMARK


class MemoryGrid:
    """Lists that live in this process, for processors that collect what they get."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}

    def get_list(self, name: str) -> list[Any]:
        return self.lists.setdefault(name, [])

    def get_map(self, name: str) -> dict[Any, Any]:
        raise AssertionError("no maps here")
