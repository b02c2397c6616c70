"""What processors are told about the edges into their vertex, for the partitions of their state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shmjet import DAG, between, column, columns, from_
from shmjet.core import Processor
from shmjet.core.context import ProcessorContext
from shmjet.core.keys import PartitionCount
from shmjet.core.state_placement import StatePlacement, placement_in, takes_place
from shmjet.processors import map_, read_items

from .snapshot_runs import SnapshotRun
from .vertices import Collect


def by_length(key: str, count: int) -> int:
    return len(key) % count


class TellPlacement(Processor):
    """Takes anything; emits its placement and the places that it takes over."""

    def process(self, ordinal: int, inbox: Any) -> None:
        inbox.clear()

    def complete(self) -> bool:
        context = self.context
        placement = placement_in(context)
        return self.outbox.offer((placement, [place for place in range(4) if takes_place(context, place)]))


@pytest.mark.parametrize(
    ("edge", "expected"),
    [
        (lambda edge: edge, StatePlacement(271, is_partitioned=False)),
        (lambda edge: edge.partitioned(column("a")), StatePlacement(271, ("a",))),
        (lambda edge: edge.partitioned(columns("b", "a"), PartitionCount(9)), StatePlacement(9, ("b", "a"))),
        (lambda edge: edge.partitioned(len, by_length), StatePlacement(271, None, by_length)),
        (lambda edge: edge.all_to_one(), StatePlacement(271, is_partitioned=False, is_to_one=True)),
        (lambda edge: edge.broadcast(), StatePlacement(271, is_partitioned=False, broadcast=frozenset([0]))),
    ],
)
def test_the_engine_tells_how_edges_deal_what_comes(edge: Any, expected: StatePlacement, tmp_path: Path) -> None:
    dag = DAG()
    source = dag.new_vertex("source", read_items(()))
    told = dag.new_vertex("told", TellPlacement, 2)
    sink = dag.new_vertex("sink", Collect, 1)
    dag.edge(edge(between(source, told))).edge(between(told, sink))
    found = [item for _, _, item in SnapshotRun(dag, tmp_path, workers=2, rate=0).run().grid.lists["out"]]
    assert [placement for placement, _ in found] == [expected] * 2
    places = sorted(places for _, places in found)
    assert places == ([[], [0, 1, 2, 3]] if expected.is_to_one else [[0, 2], [1, 3]])


def test_the_first_partitioned_edge_counts(tmp_path: Path) -> None:
    dag = DAG()
    source = dag.new_vertex("source", read_items(()))
    told = dag.new_vertex("told", TellPlacement, 1)
    dag.edge(from_(source, 0).to(told, 2).partitioned(column("c")))
    dag.edge(from_(source, 1).to(told, 0).broadcast())
    dag.edge(from_(source, 2).to(told, 1).partitioned(column("b")))
    sink = dag.new_vertex("sink", Collect, 1)
    dag.edge(between(told, sink))
    [(placement, _)] = [item for _, _, item in SnapshotRun(dag, tmp_path, workers=1, rate=0).run().grid.lists["out"]]
    assert placement == StatePlacement(271, ("b",), broadcast=frozenset([0]))


def test_without_an_engine_the_keys_of_the_state_are_partitioned() -> None:
    assert placement_in(ProcessorContext(partition_count=7)) == StatePlacement(7)


@pytest.mark.parametrize(
    ("partitioned", "expected"),
    [
        (lambda edge: edge.partitioned(None, PartitionCount(9)), StatePlacement(9)),
        (lambda edge: edge.partitioned(column("a")), StatePlacement(271, ("a",))),
        (lambda edge: edge.partitioned(len, by_length), StatePlacement(271, is_partitioned=False)),
    ],
)
def test_items_that_stay_on_their_processor_lie_by_the_edge_that_brought_them(
    partitioned: Any, expected: Any, tmp_path: Path
) -> None:
    dag = DAG()
    source = dag.new_vertex("source", read_items(()))
    first, told = dag.new_vertex("first", map_(str), 2), dag.new_vertex("told", TellPlacement, 2)
    sink = dag.new_vertex("sink", Collect, 1)
    dag.edge(partitioned(between(source, first))).edge(between(first, told).isolated()).edge(between(told, sink))
    assert [item[0] for _, _, item in SnapshotRun(dag, tmp_path, workers=2, rate=0).run().grid.lists["out"]] == [
        expected
    ] * 2
