"""A plan's latency policy: how it is chosen, and that tasklets, routers, processors and the collector keep to it."""

from __future__ import annotations

import gc
from array import array
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from shmjet.core import DAG, Processor, ProcessorMetaSupplier, between, column
from shmjet.core.latency_policy import LOW_LATENCY, THROUGHPUT, LatencyPolicy, policy_in
from shmjet.data.batch import Batch
from shmjet.execution import partitioned_router
from shmjet.execution.garbage_collection import Collector
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.outbound_edge import make_router
from shmjet.execution.plan import describe, make_plan, policy_of
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit


class Endless(Processor):
    """A source that never completes by itself; nothing in the package is one yet."""

    is_endless = True

    def complete(self) -> bool:
        return True


class Numbers(Emit):
    """Emits some thousand numbers."""

    def __init__(self) -> None:
        super().__init__(lambda index, count: range(5000))


class Tells(Endless):
    """Puts the policy that it finds into a list."""

    def complete(self) -> bool:
        assert self.context.grid is not None
        self.context.grid.get_list("policies").append(policy_in(self.context))
        return True


def dag_of(*suppliers: Any) -> DAG:
    dag = DAG()
    vertices = [dag.new_vertex(f"v{index}", supplier, 1) for index, supplier in enumerate(suppliers)]
    for one, next_one in pairwise(vertices):
        dag.edge(between(one, next_one))
    return dag


def plan_of(dag: DAG) -> JobPlan:
    return make_plan(describe(dag), worker_count=2, non_cooperative=set(), ring_memory=64 << 20, partition_count=271)


@pytest.mark.parametrize("source", [Processor, lambda: Processor(), ProcessorMetaSupplier.of(Processor, 1)])
def test_a_job_whose_sources_end_has_the_throughput_policy(source: Any) -> None:
    dag = dag_of(source, Collect)
    assert policy_of(describe(dag)) is THROUGHPUT
    assert plan_of(dag).latency is THROUGHPUT


def test_a_job_with_an_endless_source_has_the_low_latency_policy() -> None:
    dag = dag_of(Endless, Collect)
    assert policy_of(describe(dag)) is LOW_LATENCY
    assert plan_of(dag).latency is LOW_LATENCY


@pytest.mark.parametrize("is_endless", [False, True])
def test_a_target_overrules_the_sources_and_lies_between_the_policies(is_endless: bool) -> None:
    dag = dag_of(type("Source", (Endless,), {"is_endless": is_endless}), Collect)
    chosen = [policy_of(describe(dag), target) for target in (0.001, 0.01, 0.02, 1.0)]
    assert chosen[0] is LOW_LATENCY
    assert chosen[-1] is THROUGHPUT
    for less, more in pairwise(chosen):
        assert less != more
        assert all(a <= b for a, b in zip(less, more, strict=True))
    assert [policy.full_collection_share for policy in chosen[:3]] == [0, 0, 0]
    plan = make_plan(
        describe(dag),
        worker_count=1,
        non_cooperative=set(),
        ring_memory=1 << 20,
        partition_count=271,
        latency_target=0.02,
    )
    assert plan.latency == chosen[2]


def test_the_policy_travels_with_the_plan() -> None:
    plan = plan_of(dag_of(Endless, Collect))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=JobPlan) == plan


@pytest.mark.parametrize(("is_endless", "policy"), [(True, LOW_LATENCY), (False, THROUGHPUT)])
def test_a_processor_finds_the_policy_of_its_plan(is_endless: bool, policy: LatencyPolicy) -> None:
    run = LocalRun(dag_of(type("Source", (Tells,), {"is_endless": is_endless}), Collect), 1).run()
    assert run.grid.get_list("policies") == [policy]


@pytest.mark.parametrize("is_endless", [False, True])
def test_a_call_takes_as_long_as_the_policy_says(is_endless: bool) -> None:
    policy, cost = LOW_LATENCY if is_endless else THROUGHPUT, 40_000
    run = LocalRun(dag_of(type("Source", (Numbers,), {"is_endless": is_endless}), Collect), 1)
    sink = run.deployments[0].tasklets[1]
    sizes: list[int] = []
    now = 0

    def spend(ordinal: int, inbox: Any) -> None:
        nonlocal now
        sizes.append(len(inbox))
        now += len(inbox.take()) * cost

    for each in run.deployments[0].tasklets:  # the source, too: a slow one gives few items to a call
        each.clock = lambda: now
    sink.processor.process = spend  # type: ignore[method-assign]
    run.run()
    assert sum(sizes) == 5000
    assert 0.9 * policy.call_ns <= max(sizes) * cost <= 1.35 * policy.call_ns


class Rows:
    """A local lane with room for everything; remembers how many rows have come."""

    is_local = True

    def __init__(self) -> None:
        self.count = 0

    def push(self, batches: list[Batch], start: int = 0) -> int:
        self.count += sum(batch.num_rows for batch in batches)
        return len(batches)


@pytest.mark.parametrize("policy", [THROUGHPUT, LOW_LATENCY])
def test_rows_are_kept_back_no_longer_than_the_policy_allows(
    monkeypatch: pytest.MonkeyPatch, policy: LatencyPolicy
) -> None:
    now = 10**12
    monkeypatch.setattr(partitioned_router, "clock_ns", lambda: now)
    lanes = [Rows(), Rows()]
    router = make_router(
        "partitioned",
        lanes,  # type: ignore[arg-type]
        producers=1,
        workers=2,
        key_fn=column("n"),
        partitioner=None,
        table=array("H", [partition % 2 for partition in range(16)]),
        target_partition=0,
        edge="edge",
        policy=policy,
    )
    for waited, arrived in ((0, 0), (policy.row_delay_ns, 0), (1, 30), (5, 30), (policy.row_delay_ns, 30), (1, 60)):
        now += waited
        router.start([Batch({"n": list(range(10))})])
        assert router.flush()
        assert sum(lane.count for lane in lanes) == arrived


def test_the_collector_leaves_old_objects_alone_while_a_job_wants_low_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(gc, "get_count", lambda: (10**6, 0, 0))
    monkeypatch.setattr(gc, "collect", lambda generation: looked.append(generation) or 0)
    collector = Collector()
    for _ in range(200):
        collector.collect(10**18)
    assert looked.count(1) == 8
    assert looked.count(2) == 2, "throughput: once in a hundred"
    looked.clear()
    collector.policy = LOW_LATENCY
    for _ in range(1000):
        collector.collect(10**18)
    assert set(looked) == {0, 1}


def test_objects_of_a_job_with_low_latency_are_looked_at_rarely_where_none_is_garbage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, found = 0, 0
    looked: list[int] = []

    def collect(generation: int) -> int:
        looked.append(generation)
        return found

    def looks_after(objects: int) -> bool:
        nonlocal made
        made, before = objects, len(looked)
        collector.collect(10**18)
        return len(looked) > before

    monkeypatch.setattr(gc, "get_count", lambda: (made, 0, 0))
    monkeypatch.setattr(gc, "collect", collect)
    collector = Collector()
    collector.policy = LOW_LATENCY
    often, rarely = LOW_LATENCY.young_objects, THROUGHPUT.young_objects
    assert not looks_after(often)
    assert looks_after(often + 1), "nothing is known yet"
    assert not looks_after(rarely)
    found = rarely // 50
    assert looks_after(rarely + 1)
    assert looks_after(often + 1), "there was some"
    found = 0
    assert looks_after(often + 1)
    looked.clear()
    assert all(looks_after(rarely + 1) for _ in range(20))
    assert looked.count(1) == 4, "the middle generation is looked at after as many objects as before"
