"""What metrics say about bytes that moved and about waiting for room."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from shmjet.core import DAG, EdgeConfig, between
from shmjet.execution import control
from shmjet.execution.collect import Reading
from shmjet.execution.control import WorkerControl
from shmjet.execution.metrics import Metrics
from shmjet.ring.batch import Batch
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit

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
