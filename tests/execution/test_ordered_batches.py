"""Ordered edges of batches: sorted shares become one sorted stream, whatever the lanes, kinds and moments."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.core import DAG, ShmjetError, between
from shmjet.data.errors import BatchError
from shmjet.data.marks import DONE, Barrier
from shmjet.execution.ordered_batches import OrderedBatchEdge
from shmjet.processors.columns.project_batches import project_batches
from shmjet.processors.columns.sort_batches import sorted_share
from shmjet.processors.columns.sorted_shares import ColumnOrder
from shmjet.ring.local_lane import LocalLane
from tests.examples import examples
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit
from tests.tables import interpreter as plain

ORDER = ColumnOrder(("n",), (False,))


def lanes_of(*shares: list[Batch]) -> list[LocalLane]:
    lanes = []
    for share in shares:
        lane = LocalLane(64)
        for batch in share:
            lane.push([batch])
        lanes.append(lane)
    return lanes


def drained(edge: OrderedBatchEdge) -> list[Any]:
    found: list[Any] = []
    while True:
        items, mark, moved = edge.drain(100)
        found += items or []
        if mark is not None:
            found.append(mark)
        if not moved:
            return found


def numbers(found: list[Any]) -> list[Any]:
    return [value for each in found if isinstance(each, Batch) for value in each["n"].tolist()]


def of(*values: float) -> Batch:
    return Batch({"n": list(values)})


def test_nothing_comes_before_every_lane_has_told_its_columns() -> None:
    lanes = lanes_of([of(1, 5)], [])
    edge = OrderedBatchEdge(0, lanes, ORDER)
    assert drained(edge) == []
    merger = ORDER.merger()
    merger.note(of(0.5))
    lanes[1].push([merger.head()])
    (head,) = drained(edge)
    assert head.num_rows == 0
    assert str(head.schema["n"]) == "float64"
    lanes[1].push([of(2.5, 9.5)])
    assert numbers(drained(edge)) == [1, 2.5, 5]
    lanes[0].push_mark(DONE)
    assert numbers(drained(edge)) == [9.5]
    lanes[1].push_mark(DONE)
    assert drained(edge) == []
    assert edge.done


def test_a_lane_that_ends_without_a_batch_holds_nothing_back() -> None:
    lanes = lanes_of([], [of(2, 3)], [])
    for lane in lanes:
        lane.push_mark(DONE)
    edge = OrderedBatchEdge(0, lanes, ORDER)
    assert numbers(drained(edge)) == [2, 3]
    assert edge.done


def test_what_is_held_at_a_barrier_goes_on_after_a_restore() -> None:
    lanes = lanes_of([of(1, 5), of(6, 7)], [of(2)])
    edge = OrderedBatchEdge(0, lanes, ORDER)
    before = numbers(drained(edge))
    assert before == [1, 2]
    for lane in lanes:
        lane.push_mark(Barrier(1, False))
    found = drained(edge)
    assert isinstance(found[-1], Barrier)
    held = edge.heads()
    assert sorted(numbers([batch for head in held for batch in head])) == [5, 6, 7]
    again = lanes_of([], [of(3, 6.5)])
    twin = OrderedBatchEdge(0, again, ORDER)
    for head in held:
        twin.restore_heads(head)
    for lane in again:
        lane.push_mark(DONE)
    assert numbers(drained(twin)) == [3, 5, 6, 6.5, 7]
    assert twin.done


def test_an_edge_that_moves_takes_what_it_holds_with_it() -> None:
    lanes = lanes_of([of(1, 5)], [of(2)])
    edge = OrderedBatchEdge(0, lanes, ORDER)
    assert numbers(drained(edge)) == [1, 2]
    moved = OrderedBatchEdge(0, lanes, ORDER)
    moved.import_state(edge.export_state())
    for lane in lanes:
        lane.push_mark(DONE)
    assert numbers(drained(moved)) == [5]
    assert moved.done


def test_items_and_other_columns_are_refused_by_name() -> None:
    lanes = lanes_of([of(1)], [])
    lanes[1].push([7])
    with pytest.raises(ShmjetError, match="edge 'a' -> 'b' is ordered by columns, but producer 1 sent a int"):
        drained(OrderedBatchEdge(0, lanes, ORDER, text="'a' -> 'b'"))
    with pytest.raises(BatchError, match="m"):
        drained(OrderedBatchEdge(0, lanes_of([of(1)], [Batch({"m": [1]})]), ORDER))


VALUES: list[st.SearchStrategy[Any]] = [
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.sampled_from([math.nan, -0.0, 0.0, math.inf, -1.5])),
    st.one_of(st.none(), st.sampled_from(["", "a", "ab", "\u00e4"])),
]
SHARES = st.lists(st.lists(st.tuples(*VALUES), max_size=30), min_size=1, max_size=4)


@examples(30)
@given(
    shares=SHARES,
    names=st.permutations("nfs"),
    used=st.integers(1, 3),
    down=st.tuples(*[st.booleans()] * 3),
    nulls_first=st.booleans(),
    cut=st.integers(1, 40),
    workers=st.integers(1, 3),
    force_rings=st.booleans(),
)
def test_shares_are_merged_as_python_sorts(
    shares: list[list[tuple[Any, ...]]],
    names: list[str],
    used: int,
    down: tuple[bool, ...],
    nulls_first: bool,
    cut: int,
    workers: int,
    force_rings: bool,
) -> None:
    by, descending = tuple(names[:used]), down[:used]
    kinds = {"n": "int64", "f": "float64", "s": "text"}
    given_batches: list[list[Any]] = []
    for share in shares:
        pieces = [share[at : at + cut] for at in range(0, len(share), cut)]
        columns = [dict(zip("nfs", map(list, zip(*piece, strict=True)), strict=True)) for piece in pieces]
        given_batches.append([Batch(each, schema=kinds) for each in columns])
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: given_batches[i]), len(shares))
    share = dag.new_vertex("share", sorted_share(by, descending, nulls_first), len(shares))
    merged = dag.new_vertex("merged", project_batches(()), 1)
    dag.edge(between(source, share).isolated())
    dag.edge(between(share, merged).all_to_one().ordered(ColumnOrder(by, descending, nulls_first)))
    dag.edge(between(merged, dag.new_vertex("sink", Collect, 1)))
    out = LocalRun(dag, workers, force_rings=force_rings, seed=3).run().grid.get_list("out")
    rows = [row for _, _, batch in out for row in batch.rows()]
    everything = [dict(zip("nfs", row, strict=True)) for share in shares for row in share]
    if not everything:
        assert not rows
        return

    def keys(found: list[dict[str, Any]]) -> list[Any]:
        return [plain.order_key(row, by, descending, nulls_first) for row in found]

    def values(found: list[dict[str, Any]]) -> list[str]:
        return sorted(repr(plain.key_of(row, "nfs")) for row in found)

    assert keys(rows) == keys(plain.sort(everything, by, descending, nulls_first))
    assert values(rows) == values(everything)
