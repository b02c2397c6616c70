"""Several members in this process, connected over loopback TCP: real links, stepped by hand, and a thin coordinator."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from shmjet.core import DAG, JobConfig
from shmjet.data.marks import Barrier
from shmjet.execution.arena_format import format_arena
from shmjet.execution.code import code_of
from shmjet.execution.control import WORDS, control_size, link_offset
from shmjet.execution.deployment import Deployment
from shmjet.execution.interrupts import Interrupts
from shmjet.execution.job_plan import JobShape, MemberSlot
from shmjet.execution.kept_services import KeptServices
from shmjet.execution.layout import lay_out, slab_size
from shmjet.execution.messages import Adopt, Deploy
from shmjet.execution.plan import describe, make_plan
from shmjet.execution.runnable import due
from shmjet.execution.shared_memory import SharedMemory
from shmjet.execution.tasklet import State
from shmjet.ipc.channel import Channel
from shmjet.net.link import Link
from shmjet.net.messages import (
    CloseExecution,
    Connect,
    Event,
    ExecutionClosed,
    ExecutionOpened,
    GetStats,
    Listen,
    Listening,
    OpenExecution,
    Order,
    PeerUp,
    Secret,
    Setup,
    Stats,
)
from shmjet.ring.arena import Arena
from tests.execution.harness import MemoryGrid

SECRET = b"a secret of this test"
PERIOD_NS = 100_000_000


class LinkedMember:
    """A link without a process of its own, and the member's end of its channel.

    Args:
        number: decides the uuid: members are ordered by it.
        workers: that the control segment has blocks for.
        settings: fields of `Setup` that differ from those of the tests.
    """

    def __init__(self, number: int, workers: int = 2, **settings: Any) -> None:
        ours, theirs = socket.socketpair()
        self.uuid = f"{number + 1:032x}"
        self.workers = workers
        self.control = Arena.create(control_size(workers), label="control")
        self.eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        fields: dict[str, Any] = {
            "uuid": self.uuid,
            "cluster": "test",
            "secret": Secret(SECRET),
            "flow_period_ns": PERIOD_NS,
            "doorbell_size": self.control.size,
            "doorbell_offset": link_offset(workers),
        }
        setup = Setup(**{**fields, **settings})
        self.link = Link(Channel(theirs, Order), setup, [os.dup(self.control.fd), os.dup(self.eventfd)])
        self._channel = Channel(ours, Event)
        self.events: list[Any] = []
        self.fds: list[int] = []
        self.address = ""

    def order(self, order: object, fds: tuple[int, ...] = ()) -> None:
        """Tell the link something."""
        self._channel.queue(order, fds)
        self._channel.flush()

    def turn(self, longest_ns: int = 0) -> None:
        """Let the link do one turn of its loop, and take what it says."""
        self._channel.flush()
        self.link.turn(longest_ns)
        for event, fds in self._channel.poll():
            self.events.append(event)
            self.fds += fds

    def take(self, kind: type[Any]) -> Any:
        """Return the first event of a kind and forget it; None when there is none."""
        for i, event in enumerate(self.events):
            if isinstance(event, kind):
                return self.events.pop(i)
        return None

    def close(self) -> None:
        """Close the link and everything else."""
        self.link.close()
        self._channel.close()
        os.close(self.eventfd)
        for fd in self.fds:
            os.close(fd)
        self.control.close()


def await_(members: list[LinkedMember], condition: Callable[[], Any], what: str = "it did not happen") -> Any:
    """Turn all members until the condition is true; returns what it gave."""
    deadline = time.monotonic() + 60
    while not (result := condition()):
        assert time.monotonic() < deadline, what
        for member in members:
            member.turn(1_000_000)
    return result


@contextlib.contextmanager
def linked(count: int, workers: int = 2, **settings: Any) -> Iterator[list[LinkedMember]]:
    """Members that listen, and are connected each with each other."""
    members = [LinkedMember(i, workers, **settings) for i in range(count)]
    try:
        for member in members:
            member.order(Listen("127.0.0.1:0"))
            member.address = await_([member], lambda m=member: m.take(Listening)).address
        for i, member in enumerate(members):
            for other in members[i + 1 :]:
                member.order(Connect(other.address))
                await_(members, lambda m=member: m.take(PeerUp))
                await_(members, lambda o=other: o.take(PeerUp))
        yield members
    finally:
        for member in members:
            member.close()


class MemberRun:
    """One execution on one of the members: its arena and deployments."""

    def __init__(self, member: LinkedMember, dag: DAG, shape: JobShape, slot: MemberSlot, **options: Any) -> None:
        self.member = member
        self.execution = 7
        self.plan = make_plan(
            shape,
            worker_count=member.workers,
            non_cooperative=set(),
            ring_memory=options.get("ring_memory", 64 << 20),
            partition_count=271,
            force_rings=options.get("force_rings", False),
            stealing=options.get("seed") is not None,
            slot=slot,
        )
        self.layout = lay_out(self.plan)
        later = slab_size(self.plan) * self.plan.endpoint_count
        self.arena = Arena.create(self.layout.size, label="job", later=later)
        format_arena(self.plan, self.layout, self.arena.memory)
        data, config = cloudpickle.dumps(code_of(dag, shape)), cloudpickle.dumps(JobConfig())
        self.grid = MemoryGrid()
        self.deployments = []
        for worker in range(member.workers):
            message = Deploy(
                self.execution,
                "job",
                None,
                data,
                self.plan,
                1,
                self.arena.size,
                self.arena.reserved,
                True,
                config,
                {},
                {},
                [],
            )
            deployment = Deployment(
                message,
                worker,
                lambda: self.grid,
                services=KeptServices(Interrupts(memoryview(bytearray(WORDS * 8)).cast("q"))).begin("job", 1),
            )
            shared = SharedMemory(member.control.memory, member.eventfd)
            shared.adopt(1, self.arena.memory, self.arena.fd)
            deployment.create(shared, ())
            deployment.init()
            self.deployments.append(deployment)
        order = OpenExecution(
            self.execution, self.plan, self.arena.size, self.arena.reserved, options.get("flow_control", True)
        )
        member.order(order, (self.arena.fd,))

    @property
    def tasklets(self) -> list[Any]:
        """The tasklets that have not ended."""
        return [t for deployment in self.deployments for t in deployment.tasklets if not t.done]

    def close(self) -> None:
        """Let go of everything."""
        for deployment in self.deployments:
            deployment.close_processors(Interrupts(memoryview(bytearray(WORDS * 8)).cast("q")))
            deployment.release()
        self.deployments.clear()
        self.arena.close()


class ClusterRun:
    """One execution on all members.

    Args:
        members: connected with each other.
        dag: what to run.
        options: `default_parallelism`, `ring_memory`, `force_rings`, `flow_control`, `owners`, `paused` (called with a
            tasklet; True keeps it from being called in this round), `seed` (lets random tasklets move between the
            workers of a member, and all sources emit barriers now and then).
    """

    def __init__(self, members: list[LinkedMember], dag: DAG, **options: Any) -> None:
        self.members = members
        self._paused = options.get("paused", lambda _: False)
        seed = options.get("seed")
        self._random = None if seed is None else random.Random(seed)
        self.barrier_id = 0
        """Of the last barrier that the sources emitted."""
        self.barriers: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.steals = 0
        shape = describe(dag)
        owners = options.get("owners") or [p % len(members) for p in range(271)]
        self.runs = []
        for i, member in enumerate(members):
            slot = MemberSlot(
                i,
                [m.uuid for m in members],
                [m.address for m in members],
                owners,
                options.get("default_parallelism", 2),
                options.get("ring_memory", 64 << 20),
            )
            self.runs.append(MemberRun(member, dag, shape, slot, **options))
        for member in members:
            opened = await_(members, lambda m=member: m.take(ExecutionOpened))
            assert opened.error is None, opened.error

    def step(self) -> bool:
        """Call every tasklet that has a reason, and turn every link; True when any tasklet moved something."""
        if self._random is not None:
            self._disturb(self._random)
        hosted = [(tasklet, run) for run in self.runs for tasklet in run.tasklets if not self._paused(tasklet)]
        progress = [self._call(tasklet) for tasklet, _ in due(hosted)]
        for member in self.members:
            member.turn(0 if any(progress) else 1_000_000)
        return any(progress)

    def _call(self, tasklet: Any) -> bool:
        """Call a tasklet; a barrier that it waits at goes on as if it had saved, since no one orders a save here."""
        before = tasklet.last_barrier
        progress: bool = tasklet.call()
        if tasklet.state is State.EMIT_BARRIER:
            tasklet.pass_barrier(tasklet.intake.barrier)
            tasklet.state = State.PROCESS_WATERMARK
            tasklet.runnable = progress = True
        if tasklet.last_barrier != before:
            self.barriers[tasklet.context.vertex_name, tasklet.context.global_index].append(tasklet.last_barrier)
        return progress

    def _disturb(self, rng: random.Random) -> None:
        """Move a tasklet to another worker of its member, or have all sources that still run emit a barrier."""
        if self.barrier_id == 0 or rng.random() < 0.1:
            sources = [t for run in self.runs for t in run.tasklets if not t.intake.edges]
            if sources and all(t.state is not State.EMIT_DONE_ITEM for t in sources):
                self.barrier_id += 1
                for tasklet in sources:
                    tasklet.emit_mark(Barrier(self.barrier_id))
                    tasklet.runnable = True
        for run in self.runs:
            victim, thief = rng.sample(run.deployments, 2)
            candidates = [t for t in victim.tasklets if not t.done and t.intake.edges and t.output.edges]
            handed = victim.hand_over(rng.choice(candidates), run.deployments.index(thief)) if candidates else None
            if handed is not None:
                message, fds = handed
                adopt = Adopt(
                    run.execution, message.vertex, message.processor, message.state, message.size, message.tables
                )
                thief.adopt(adopt, fds)
                self.steals += 1

    def run(self) -> ClusterRun:
        """Go on until all tasklets have ended."""
        deadline = time.monotonic() + 60
        while any(run.tasklets for run in self.runs):
            self.step()
            states = [
                (t.context.vertex_name, t.context.global_index, t.state.name) for r in self.runs for t in r.tasklets
            ]
            assert time.monotonic() < deadline, f"the job does not come to an end: {states}"
        return self

    def collected(self, name: str = "out") -> list[list[tuple[int, int, Any]]]:
        """Return what `Collect` has put into a list, by member."""
        return [run.grid.lists.get(name, []) for run in self.runs]

    def stats(self, member: int) -> Stats:
        """Return what a link has counted."""
        self.members[member].order(GetStats(1))
        found: Stats = await_(self.members, lambda: self.members[member].take(Stats))
        return found

    def close(self) -> None:
        """Have the links let go, then everything else."""
        for member in self.members:
            member.order(CloseExecution(7))
        for member in self.members:
            await_(self.members, lambda m=member: m.take(ExecutionClosed))
        for run in self.runs:
            run.close()


@contextlib.contextmanager
def running(members: list[LinkedMember], dag: DAG, **options: Any) -> Iterator[ClusterRun]:
    """An execution that is closed at the end."""
    run = ClusterRun(members, dag, **options)
    try:
        yield run
    finally:
        run.close()
