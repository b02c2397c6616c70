"""Where rings lie: the computed places are what a walk over all lanes gives, and none overlap."""

from __future__ import annotations

import mmap
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import RING_HEADER, Codec, Doorbell, RingProducer, ring_format, ring_totals
from shmjet.core import DAG, Processor, between
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.layout import lay_out
from shmjet.execution.plan import describe, make_plan
from shmjet.execution.plan_lanes import lane_pairs, needs_ring, starts_as_ring
from shmjet.execution.ring_places import (
    ENOUGH_RING,
    MAX_RING,
    MIN_RING,
    PLENTY,
    SPARE_RING,
    Run,
    local_capacity,
    ring_capacity,
)


def plan_of(edges: list[tuple[int, int, str]], workers: int, memory: int = 64 << 20, **arguments: Any) -> JobPlan:
    """A plan of pairs of vertices: parallelism of both, and the routing between them."""
    dag = DAG()
    for number, (up, down, route) in enumerate(edges):
        ends = dag.new_vertex(f"up{number}", Processor, up), dag.new_vertex(f"down{number}", Processor, down)
        edge = between(*ends)
        getattr(edge, route)()
        dag.edge(edge)
    return make_plan(
        describe(dag),
        **{"worker_count": workers, "non_cooperative": set(), "partition_count": 7, "ring_memory": memory, **arguments},
    )


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from(["unicast", "isolated", "broadcast"])),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(0, 5), max_size=2),
)
def test_computed_places_are_those_of_a_walk_over_all_lanes(
    edges: list[tuple[int, int, str]], workers: int, stealing: bool, force_rings: bool, blocking: set[int]
) -> None:
    blocking = {v for v in blocking if v < 2 * len(edges)}
    plan = plan_of(edges, workers, stealing=stealing, force_rings=force_rings, non_cooperative=blocking)
    rings = lay_out(plan).rings
    expected = [
        (e, p, c)
        for e, edge in enumerate(plan.edges)
        for p, c in lane_pairs(plan, edge)
        if needs_ring(plan, edge, p, c)
    ]
    assert list(rings) == expected
    assert len(rings) == len(expected)
    capacity = local_capacity(plan.ring_memory, len(expected))
    at = min(rings.values(), default=0)
    runs = [(run, number) for run in rings.runs() for number in range(run.count)]
    for lane, (run, number) in zip(expected, runs, strict=True):
        own = capacity if starts_as_ring(plan, plan.edges[lane[0]], *lane[1:]) else min(capacity, SPARE_RING)
        assert (rings[lane], rings.capacity(lane)) == (at, own)
        assert (run.start + number * (RING_HEADER + run.capacity), run.capacity) == (at, own)
        assert (run.edge, run.queue_size) == (lane[0], plan.edges[lane[0]].queue_size)
        at += RING_HEADER + own
    assert not expected or rings.end == at
    for lane in [(0, -1, 0), (0, 0, -1), (0, 99, 0), (0, 0, 99), (9, 0, 0), (-1, 0, 0)]:
        assert lane not in rings


def test_many_workers_have_few_runs() -> None:
    runs = list(lay_out(plan_of([(192, 192, "unicast")], 192, 256 << 20)).rings.runs())
    assert sum(run.count for run in runs) == 192 * 191
    assert len(runs) < 3 * 192
    assert isinstance(runs[0], Run)


def test_nothing_in_an_arena_overlaps() -> None:
    plan = plan_of([(64, 64, "unicast")], 2, memory=16 << 20, non_cooperative={0})
    layout = lay_out(plan)
    ends = {at: at + RING_HEADER + layout.rings.capacity(key) for key, at in layout.rings.items()}
    offsets = sorted(ends)
    assert all(ends[a] <= b for a, b in pairwise(offsets))
    assert ends[offsets[-1]] <= layout.size
    assert max(layout.counters.values()) < offsets[0]
    assert len(layout.carriers) == 64
    assert len(layout.rings) == 64 * 64


def test_ring_memory_is_an_upper_bound_down_to_the_smallest_ring() -> None:
    for count in (1, 3, 10, 1000):
        capacity = ring_capacity(8 << 20, count)
        assert capacity & (capacity - 1) == 0
        assert capacity == MIN_RING or count * (capacity + RING_HEADER) <= 8 << 20
    assert ring_capacity(1 << 40, 1) == MAX_RING
    assert ring_capacity(1, 1000) == MIN_RING


def test_rings_of_one_member_are_no_larger_than_they_need_to_be() -> None:
    assert local_capacity(1 << 30, 4) == MAX_RING
    assert local_capacity(1 << 30, 16 * 16 * 4) == ENOUGH_RING
    assert 64 * local_capacity(1 << 30, 64) <= PLENTY
    assert local_capacity(8 << 20, 64 * 64) == MIN_RING


def test_ring_totals_add_up_rings_side_by_side() -> None:
    memory = memoryview(mmap.mmap(-1, 4 * (RING_HEADER + 4096)))
    ring_format(memory, 0, 4096, 16, 3)
    for number in (0, 2):
        producer = RingProducer(memory, number * (RING_HEADER + 4096), Doorbell(memoryview(mmap.mmap(-1, 4096)), 0))
        assert producer.push(Codec(), [1, 2], 0, 2) == 2
    items, written = ring_totals(memory, 0, 4096, 3)
    assert items == 4
    assert written == sum(ring_totals(memory, number * (RING_HEADER + 4096), 4096, 1)[1] for number in (0, 2)) > 0
    with pytest.raises(ValueError, match="no such rings"):
        ring_totals(memory, 0, 4096, 4)  # the fourth was never formatted
    with pytest.raises(ValueError, match="no such rings"):
        ring_totals(memory, 64, 4096, 4)  # not all of them are there
    for count in (0, -1, 1 << 60):
        with pytest.raises(ValueError, match="count must be"):
            ring_totals(memory, 0, 4096, count)
