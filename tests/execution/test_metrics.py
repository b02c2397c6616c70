"""What metrics say about bytes that moved and about waiting for room."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest

from shmjet.core import DAG, EdgeConfig, Inbox, Processor, Watermark, between
from shmjet.core.event_time_mapper import PartitionFacts
from shmjet.data.batch import Batch
from shmjet.data.marks import IDLE
from shmjet.execution import control
from shmjet.execution.collect import Reading
from shmjet.execution.control import WorkerControl
from shmjet.execution.counters import ProcessorCounters, blank_block
from shmjet.execution.metrics import InboundTime, Metrics, ProcessorMetrics, SourcePartitions, VertexMetrics
from shmjet.processors.checks.logging_wrappers import Peeked, PeekProcessor
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit, Pass

PAYLOADS = [os.urandom(500) for _ in range(200)]


def copies(queue_size: int, **options: Any) -> LocalRun:
    """Move `PAYLOADS` from one processor to one other through a lane of that many items."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda index, total: PAYLOADS), 1)
    config = EdgeConfig(queue_size=queue_size, high_water_mark=max(queue_size, 200))
    dag.edge(between(source, dag.new_vertex("sink", Collect, 1)).configure(config))
    run = LocalRun(dag, 1, **options).run()
    assert [item for _, _, item in run.grid.get_list("out")] == PAYLOADS
    return run


def metrics_of(run: LocalRun) -> Metrics:
    return Reading.take(run.plan, run.layout, run.arena, run.control, [None]).metrics(0, None)


def test_ring_bytes_are_what_went_through_rings() -> None:
    run = copies(1000, force_rings=True)
    (edge,) = metrics_of(run).edges
    net = sum(map(len, PAYLOADS))
    assert net < edge.ring_bytes < 1.1 * net
    assert edge.queues_size == 0


def test_a_local_lane_moves_no_bytes() -> None:
    run = copies(1000)
    (edge,) = metrics_of(run).edges
    assert (edge.received_count, edge.ring_bytes) == (len(PAYLOADS), 0)


@pytest.mark.parametrize("force_rings", [False, True])
def test_a_full_lane_is_counted_once_for_each_wait(force_rings: bool) -> None:
    roomy, tight = copies(1000, force_rings=force_rings), copies(8, force_rings=force_rings)
    of = [metrics_of(run).vertices["source"] for run in (roomy, tight)]
    assert of[0].blocked_count == 0
    assert 0 < of[1].blocked_count <= of[1].processors[0].calls


def test_a_worker_says_how_often_it_slept_and_was_stolen_from() -> None:
    run = copies(1000)
    block = WorkerControl(run.control, 0)
    for word, value in {control.ROUNDS: 7, control.SLEEPS: 3, control.STOLEN: 2, control.SLAB_BYTES: 9}.items():
        block.words[word] = value
    (metrics,) = metrics_of(run).workers
    assert (metrics.rounds, metrics.sleeps, metrics.stolen, metrics.slab_bytes, metrics.core) == (7, 3, 2, 9, None)


def test_batches_in_slabs_are_counted_once_however_many_read_them() -> None:
    batch = Batch({"n": np.arange(50_000)})
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda index, total: [batch] if index == 0 else []), 2)
    dag.edge(between(source, dag.new_vertex("sink", Collect, 2)).broadcast())
    run = LocalRun(dag, 2).run()
    assert sum(item.num_rows for _, _, item in run.grid.get_list("out")) == 2 * batch.num_rows
    first, second = (deployment.new_slab_bytes() for deployment in run.deployments)
    assert batch.nbytes <= first < 1.1 * batch.nbytes
    assert second == 0
    assert run.deployments[0].new_slab_bytes() == 0


def test_waiting_for_room_is_timed_per_edge() -> None:
    roomy, tight = metrics_of(copies(1000)), metrics_of(copies(8))
    assert roomy.edges[0].waited_ns == 0
    assert tight.edges[0].waited_ns > 0


def test_a_wait_that_is_not_over_counts_up_to_now() -> None:
    counters = ProcessorCounters(memoryview(bytearray(blank_block(0, 2))), 0, 0, 2)
    counters.note_waiting(1, 1000)
    assert (counters.waited_ns(1, 1700), counters.waited_ns(0, 1700)) == (700, 0)
    counters.note_room(1, 1800)
    assert counters.waited_ns(1, 9999) == 800
    counters.note_waiting(1, 10_000)
    assert counters.waited_ns(1, 10_005) == 805
    counters.release()


def test_queues_hold_items_in_local_lanes_and_rings_alike() -> None:
    for force_rings in (False, True):
        dag = DAG()
        source = dag.new_vertex("source", lambda: Emit(lambda index, total: range(100)), 1)
        dag.edge(between(source, dag.new_vertex("sink", Collect, 1)))
        run = LocalRun(dag, 1, force_rings=force_rings)
        first = next(t for t in run.deployments[0].tasklets if t.context.vertex_name == "source")
        while not first.done:
            first.call()
        (edge,) = metrics_of(run).edges
        assert (edge.queues_size, edge.queues_capacity) == (100, 1024)
        run.run()
        (edge,) = metrics_of(run).edges
        assert (edge.queues_size, edge.received_count) == (0, 100)


def test_a_vertex_is_as_far_as_the_slowest_of_its_processors() -> None:
    def of(*marks: int | None) -> VertexMetrics:
        found = [ProcessorMetrics(i, 0, 1, 1, 1, 1, 0, 5, wm, wm, wm, 0) for i, wm in enumerate(marks)]
        return VertexMetrics("v", found)

    vertex = of(30, 20)
    assert (vertex.top_observed_wm, vertex.coalesced_wm, vertex.last_forwarded_wm) == (30, 20, 20)
    assert (vertex.last_forwarded_wm_latency(120.0), vertex.busy_ns, vertex.received_batches) == (100.0, 10, 2)
    silent = of(30, None)
    assert (silent.top_observed_wm, silent.coalesced_wm, silent.last_forwarded_wm_latency(1.0)) == (30, None, None)


def test_metrics_are_shown_in_a_line() -> None:
    assert repr(metrics_of(copies(1000))) == "<Metrics source: 0 in, 200 out, sink: 200 in, 0 out>"


class Timed(Emit):
    """A source with two partitions, of which one is silent on processor 1."""

    def time_facts(self) -> list[PartitionFacts]:
        silent = self.context.global_index == 1
        return [PartitionFacts(0, 90, None, 5), PartitionFacts(1, None if silent else 95, None, 0 if silent else 5)]


def test_time_is_in_the_metrics_of_each_processor_and_each_of_its_edges() -> None:
    dag = DAG()
    marks = [[1, Watermark(5), Watermark(9)], [1, Watermark(3), IDLE], [Watermark(4), 6]]
    source = dag.new_vertex("source", lambda: Timed(lambda index, total: marks[index]), 3)
    passed = dag.new_vertex("pass", Pass, 1)
    dag.edge(between(source, passed))
    dag.edge(between(passed, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 1)
    run.step(3)
    found = metrics_of(run).vertices
    run.run()
    sources = found["source"].processors
    assert [(p.last_forwarded_wm, p.is_idle) for p in sources] == [(9, False), (3, True), (4, False)]
    assert [p.partitions for p in sources] == [
        SourcePartitions(2, 0, 0, 90, 5),
        SourcePartitions(2, 0, 1, None, 0),
        SourcePartitions(2, 0, 0, 90, 5),
    ]
    (middle,) = found["pass"].processors
    (edge,) = middle.time_by_ordinal
    assert (middle.top_observed_wm, middle.coalesced_wm, middle.last_forwarded_wm) == (9, 4, 4)
    assert middle.wm_changed_at is not None
    assert abs(time.time() - middle.wm_changed_at) < 60
    if edge.is_done:  # the last lane to end raises no watermark
        assert edge in (InboundTime(4, -1, None, False, True), InboundTime(9, -1, None, False, True))
    else:
        assert edge == InboundTime(4, 2, 4, False, False)
    end = metrics_of(run).vertices["pass"].processors[0]
    assert end.time_by_ordinal == [InboundTime(end.coalesced_wm, -1, None, False, True)]
    assert found["sink"].processors[0].partitions is None


class Sieve(Processor):
    """Counts texts, as a processor counts what it drops."""

    late_events_dropped = failed_items_skipped = 0

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for item in inbox.take():
            self.late_events_dropped += item == "late"
            self.failed_items_skipped += item == "bad"


@pytest.mark.parametrize("make", [Sieve, lambda: PeekProcessor(Sieve(), str, Peeked.INPUT)])
def test_what_a_processor_counts_itself_is_in_the_metrics_of_its_vertex(make: Any) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda index, total: ["late", "late", "bad", "fine"]), 2)
    dag.edge(between(source, dag.new_vertex("sieve", make, 2)))
    vertices = metrics_of(LocalRun(dag, 2).run()).vertices
    assert (vertices["sieve"].late_events_dropped, vertices["sieve"].failed_items_skipped) == (4, 2)
    assert (vertices["source"].late_events_dropped, vertices["source"].failed_items_skipped) == (0, 0)
