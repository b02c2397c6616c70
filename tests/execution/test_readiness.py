"""Who starts when: the bytes in the arena, and workers that are driven by hand."""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any

import cloudpickle
import pytest

from shmjet import processors
from shmjet.core import DAG, JobConfig, Processor, ProcessorSupplier, between
from shmjet.execution.arena_format import format_arena
from shmjet.execution.code import code_of
from shmjet.execution.control import BLOCK_SIZE, WorkerControl, control_size
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.layout import ArenaLayout, lay_out
from shmjet.execution.messages import (
    Adopt,
    Cancel,
    Deploy,
    Ended,
    Failed,
    Finish,
    Finished,
    HandOver,
    Ready,
    Start,
    WorkerSettings,
)
from shmjet.execution.plan import describe, make_plan
from shmjet.execution.readiness import PREPARING, READY, STARTED, Readiness
from shmjet.execution.worker import Worker
from shmjet.ipc.channel import Channel
from tests.execution.vertices import Pass


class Endless(Processor):
    """A source that never ends."""

    def complete(self) -> bool:
        return False


class Unwilling(Processor):
    """Cannot be initialised."""

    def init(self, outbox: Any, context: Any) -> None:
        raise OSError("no")


class Closing(ProcessorSupplier):
    """Has something to close."""

    is_cooperative = True

    def get(self, count: int) -> list[Processor]:
        return [Processor() for _ in range(count)]

    def close(self, error: BaseException | None) -> None:
        """Nothing really."""


class ByHand(Channel):
    """A worker's channel: orders are put in, reports taken out."""

    def __init__(self) -> None:
        self.orders: deque[tuple[Any, list[int]]] = deque()
        self.reports: list[Any] = []

    def send(self, message: object, fds: Any = ()) -> None:
        self.reports.append(message)

    def poll(self) -> list[tuple[Any, list[int]]]:
        arrived = list(self.orders)
        self.orders.clear()
        return arrived


class Host:
    """Two workers in this process, and one execution for them."""

    def __init__(self, dag: DAG, stealing: bool = False) -> None:
        self.plan: JobPlan = make_plan(
            shape := describe(dag),
            worker_count=2,
            non_cooperative=set(),
            ring_memory=1 << 20,
            partition_count=271,
            stealing=stealing,
        )
        self.layout: ArenaLayout = lay_out(self.plan)
        self.arena = memoryview(mmap.mmap(-1, self.layout.size))
        format_arena(self.plan, self.layout, self.arena)
        self.readiness = Readiness(self.arena, self.layout)
        memory = memoryview(mmap.mmap(-1, control_size(2)))
        settings = WorkerSettings("", 2, "local", 0, 1, False, 271, 2 if stealing else None)
        self.channels = [ByHand(), ByHand()]
        self.blocks = [WorkerControl(memory, index * BLOCK_SIZE) for index in range(2)]
        self.workers = [
            Worker(
                index,
                self.channels[index],
                control_memory=memory,
                block=self.blocks[index],
                settings=settings,
                open_grid=dict,
            )
            for index in range(2)
        ]
        for worker in self.workers:
            worker.shared.adopt(1, self.arena)
        size = self.layout.size
        data, config = cloudpickle.dumps(code_of(dag, shape)), cloudpickle.dumps(JobConfig())
        self.deploy = Deploy(1, "job", None, data, self.plan, 1, size, size, True, config, {}, {}, [])

    def order(self, worker: int, *messages: Any) -> None:
        self.channels[worker].orders += [(message, []) for message in messages]
        self.workers[worker].handle_commands()

    def reports(self, worker: int) -> list[type]:
        """What a worker has said since this was last asked."""
        kinds = [type(report) for report in self.channels[worker].reports]
        self.channels[worker].reports.clear()
        return kinds

    def posted(self, worker: int) -> int:
        return self.blocks[worker].doorbell.commands

    def run(self, worker: int, rounds: int = 10) -> None:
        for _ in range(rounds):
            self.workers[worker].call_tasklets()

    @property
    def states(self) -> list[int]:
        return [self.readiness.state_of(0), self.readiness.state_of(1)]


def dag_of(source: Any, parallelism: int, sink: Any = Pass) -> DAG:
    dag = DAG()
    up = dag.new_vertex("source", source, parallelism)
    return dag.edge(between(up, dag.new_vertex("sink", sink, parallelism)).isolated())


def test_who_takes_no_part_counts_as_started() -> None:
    host = Host(dag_of(Processor, 1))
    assert host.states == [PREPARING, STARTED]
    assert not host.readiness.all_ready()
    host.readiness.note(0, READY)
    assert host.readiness.all_ready()
    assert host.readiness.waiting() == [0]


@pytest.mark.parametrize("source", [Processor, processors.read_items([])], ids=["bare", "with a position"])
def test_a_part_that_is_alone_starts_at_once_and_says_only_that_it_has_ended(source: Any) -> None:
    host = Host(dag_of(source, 1))
    host.order(0, host.deploy)
    assert host.states == [STARTED, STARTED]
    host.workers[0].announce_at_ns += 10**12
    host.run(0)
    assert host.channels[0].reports == [Ended(1, 0, True, False)]
    assert host.workers[0].deployments == {}


def test_a_part_that_goes_on_says_a_little_later_that_it_was_ready() -> None:
    host = Host(dag_of(Endless, 1))
    host.order(0, host.deploy)
    worker = host.workers[0]
    worker.announce_at_ns += 10**12
    host.run(0)
    assert host.reports(0) == []
    worker.announce_at_ns = 0
    host.run(0)
    assert host.reports(0) == [Ready]


def test_a_part_says_before_it_sleeps_that_it_was_ready() -> None:
    host = Host(dag_of(Endless, 1))
    host.order(0, host.deploy)
    host.workers[0].announce_at_ns += 10**12
    host.blocks[0].doorbell.post()
    host.workers[0].wait_for_work(0)
    assert host.reports(0) == [Ready]


def test_the_last_to_be_ready_starts_and_wakes_the_others() -> None:
    host = Host(dag_of(Endless, 2))
    host.order(0, host.deploy)
    assert host.reports(0) == [Ready]
    assert host.states == [READY, PREPARING]
    host.run(0)
    assert host.workers[0].tasklets == []
    host.order(1, host.deploy)
    assert (host.states, host.posted(0), host.posted(1)) == ([READY, STARTED], 1, 0)
    host.order(0)  # what a posted doorbell makes it do
    assert host.states == [STARTED, STARTED]
    assert len(host.workers[0].tasklets) == len(host.workers[1].tasklets) == 2


def test_an_order_to_start_that_comes_twice_changes_nothing() -> None:
    host = Host(dag_of(Endless, 2))
    host.order(0, host.deploy, Start(1))
    host.order(0, Start(1))
    host.order(1, host.deploy, Start(1))
    assert [len(worker.tasklets) for worker in host.workers] == [2, 2]


def test_two_that_miss_each_other_start_when_the_member_says_so() -> None:
    host = Host(dag_of(Endless, 2))
    host.order(0, host.deploy)
    host.readiness.note(0, PREPARING)  # as worker 1 may see it, while the store is under way
    host.order(1, host.deploy)
    host.readiness.note(0, READY)
    assert [host.reports(0), host.reports(1)] == [[Ready], [Ready]]
    host.order(0, Start(1))
    host.order(1, Start(1))
    assert host.states == [STARTED, STARTED]


@pytest.mark.parametrize("first", [0, 1])
def test_nobody_starts_when_one_cannot_be_initialised(first: int) -> None:
    class OneUnwilling(ProcessorSupplier):
        is_cooperative = True

        def get(self, count: int) -> list[Processor]:
            return [Endless(), Unwilling()]

    host = Host(dag_of(OneUnwilling(), 2))
    for worker in (first, 1 - first):
        host.order(worker, host.deploy)
    assert host.states == [READY, PREPARING]
    assert (host.reports(0), host.reports(1)) == ([Ready], [Failed, Ended])
    host.order(0, Cancel(1))
    host.order(0)
    assert host.reports(0) == [Ended]
    assert host.workers[0].tasklets == []


def test_a_tasklet_that_comes_before_the_order_to_start_starts_the_rest() -> None:
    dag = DAG()
    source = dag.new_vertex("source", Endless, 2)
    middle = dag.new_vertex("middle", Pass, 2)
    dag.edge(between(source, middle)).edge(between(middle, dag.new_vertex("sink", Pass, 2)))
    host = Host(dag, stealing=True)
    host.order(1, host.deploy)
    host.order(0, host.deploy)
    assert host.states == [STARTED, READY]
    host.run(0, 3)  # what init() left in the outboxes has to leave first
    tasklet = next(t for t, _ in host.workers[0].tasklets if t.context.vertex_name == "middle")
    handed = host.workers[0].deployments[1].hand_over(tasklet, 1)
    assert handed is not None
    message: HandOver = handed[0]
    host.order(1, Adopt(1, message.vertex, message.processor, message.state, message.size, 0), Start(1))
    assert host.states == [STARTED, STARTED]
    assert len(host.workers[1].tasklets) == 4
    assert host.workers[1].deployments[1].running == 4


def test_a_source_with_a_position_is_there_for_exports_until_all_parts_have_ended() -> None:
    host = Host(dag_of(processors.read_items([]), 2))
    for worker in (1, 0):
        host.order(worker, host.deploy)
    host.order(1, Start(1))
    host.run(0)
    assert isinstance(host.channels[0].reports[-1], Ended)
    assert not host.channels[0].reports[-1].finished
    host.order(0, Finish(1, None))
    assert host.reports(0)[-1] is Finished
    assert host.workers[0].deployments == {}


def test_suppliers_to_close_make_a_worker_wait_for_the_last_word() -> None:
    host = Host(dag_of(Closing(), 1))
    host.order(0, host.deploy)
    host.workers[0].announce_at_ns += 10**12
    host.run(0)
    assert host.channels[0].reports == [Ended(1, 0, False, False)]
    host.order(0, Finish(1, None))
    assert host.reports(0) == [Ended, Finished]
    assert host.workers[0].deployments == {}
