"""Priorities, buffering, ordering, watermarks and several edges between the same vertices, driven deterministically."""

from __future__ import annotations

import pytest

from shmjet.core import DAG, AbstractProcessor, EdgeConfig, ShmjetError, Watermark, between, from_
from shmjet.data.marks import DONE, Barrier
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.execution.ordered_inbound_edge import OrderedInboundEdge
from shmjet.execution.outbound_edge import Outbound
from shmjet.execution.tasklet import State
from shmjet.ring.local_lane import LocalLane
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit, Pass

BOTH = pytest.mark.parametrize("force_rings", [False, True], ids=["lanes", "rings"])


@BOTH
def test_the_edge_of_lower_priority_number_is_consumed_in_full_first(force_rings: bool) -> None:
    dag = DAG()
    big = dag.new_vertex("big", lambda: Emit(lambda i, n: range(5000)), 2)
    small = dag.new_vertex("small", lambda: Emit(lambda i, n: range(300)), 2)
    sink = dag.new_vertex("sink", Collect, 2)
    dag.edge(from_(big).to(sink, 0).priority(1)).edge(from_(small).to(sink, 1).broadcast().priority(-1))
    out = LocalRun(dag, 2, force_rings=force_rings, seed=1).run().grid.get_list("out")
    for consumer in range(2):
        ordinals = [ordinal for index, ordinal, _ in out if index == consumer]
        assert ordinals[:600] == [1] * 600
        assert set(ordinals[600:]) == {0}
    assert len(out) == 10_000 + 2 * 600


def fork_and_join(buffered: bool) -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(20_000)), 1)
    left = dag.new_vertex("left", Pass, 1)
    right = dag.new_vertex("right", Pass, 1)
    join = dag.new_vertex("join", Collect, 1)
    small = EdgeConfig(queue_size=64, high_water_mark=64)
    dag.edge(from_(source, 0).to(left).configure(small)).edge(from_(source, 1).to(right).configure(small))
    late = from_(left).to(join, 0).priority(1).configure(small)
    dag.edge(late.buffered() if buffered else late)
    return dag.edge(from_(right).to(join, 1).priority(0).configure(small))


@BOTH
def test_a_fork_and_join_with_priorities_needs_a_buffered_edge(force_rings: bool) -> None:
    with pytest.raises(AssertionError, match="deadlock"):
        LocalRun(fork_and_join(buffered=False), 2, force_rings=force_rings).run()
    out = LocalRun(fork_and_join(buffered=True), 2, force_rings=force_rings).run().grid.get_list("out")
    assert [ordinal for _, ordinal, _ in out] == [1] * 20_000 + [0] * 20_000
    assert [item for _, ordinal, item in out if ordinal == 0] == list(range(20_000))


@BOTH
def test_an_ordered_edge_merges_sorted_producers(force_rings: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: [(x, i) for x in range(i, 3000, i + 1)]), 4)
    sink = dag.new_vertex("sink", Collect, 1)
    dag.edge(between(source, sink).all_to_one().ordered(lambda item: item[0]))
    out = LocalRun(dag, 3, force_rings=force_rings, seed=7).run().grid.get_list("out")
    keys = [item[0] for _, _, item in out]
    assert keys == sorted(keys)
    assert sorted(item for _, _, item in out) == sorted((x, i) for i in range(4) for x in range(i, 3000, i + 1))


def test_disorder_on_an_ordered_edge_is_an_error() -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: [1, 3, 2]), 1)
    dag.edge(between(source, dag.new_vertex("sink", Collect, 1)).ordered())
    with pytest.raises(ShmjetError, match="out of order from producer 0"):
        LocalRun(dag, 1).run()


def stamped(index: int, total: int) -> list[object]:
    """Each producer: ten items below each watermark 10, 20, ... 100."""
    out: list[object] = []
    for step in range(10):
        out += [(step * 10 + k, index) for k in range(10)]
        out.append(Watermark(step * 10 + 10))
    return out


@BOTH
def test_watermarks_rise_and_never_overtake_an_item(force_rings: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(stamped), 3)
    middle = dag.new_vertex("middle", Pass, 3)
    sink = dag.new_vertex("sink", Collect, 2)
    dag.edge(between(source, middle)).edge(between(middle, sink).partitioned(lambda item: item[0]))
    out = LocalRun(dag, 3, force_rings=force_rings, seed=3).run().grid.get_list("out")
    for consumer in range(2):
        mine = [(ordinal, item) for index, ordinal, item in out if index == consumer]
        marks = [item.timestamp for ordinal, item in mine if ordinal == -1]
        assert marks == sorted(set(marks))
        assert marks[-1] == 100
        seen = -1
        for ordinal, item in mine:
            if ordinal == -1:
                seen = item.timestamp
            else:
                assert item[0] >= seen, "an item came behind a watermark above it"
    assert len([1 for _, ordinal, _ in out if ordinal == 0]) == 300


@BOTH
def test_several_edges_join_the_same_two_vertices(force_rings: bool) -> None:
    class Split(AbstractProcessor):
        def try_process0(self, item: int) -> bool:
            return self.try_emit(item, item % 2)

    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(1000)), 1)
    split = dag.new_vertex("split", Split, 2)
    sink = dag.new_vertex("sink", Collect, 2)
    dag.edge(between(source, split)).edge(from_(split, 0).to(sink, 1)).edge(from_(split, 1).to(sink, 0).broadcast())
    out = LocalRun(dag, 2, force_rings=force_rings, seed=5).run().grid.get_list("out")
    assert sorted(item for _, ordinal, item in out if ordinal == 1) == list(range(0, 1000, 2))
    assert sorted(item for _, ordinal, item in out if ordinal == 0) == sorted(list(range(1, 1000, 2)) * 2)


@BOTH
def test_a_source_without_items_and_64_processors_end(force_rings: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: []), 64)
    middle = dag.new_vertex("middle", Pass, 64)
    dag.edge(between(source, middle)).edge(between(middle, dag.new_vertex("sink", Collect, 3)))
    assert LocalRun(dag, 2, force_rings=force_rings).run().grid.get_list("out") == []


def test_a_lane_that_ends_while_others_wait_at_a_barrier_holds_no_watermark_back() -> None:
    lanes = [LocalLane(8), LocalLane(8)]
    edge = InboundEdge(0, lanes)
    lanes[0].push_mark(Watermark(5))
    lanes[1].push_mark(Watermark(3))
    assert edge.drain(10)[1] == Watermark(3)
    lanes[0].push_mark(Barrier(1))
    lanes[1].push_mark(DONE)
    assert edge.drain(10) == (None, Barrier(1), True)
    assert edge.drain(10) == (None, Watermark(5), True)
    assert edge.drain(10) == (None, None, False)


def sent(lane: LocalLane, late: object) -> None:
    if isinstance(late, list):
        lane.push(late)
    else:
        lane.push_mark(late)  # type: ignore[arg-type]


def sent_behind(edge: Outbound, late: object) -> None:
    """Send what comes after the end of an edge."""
    if isinstance(late, list):
        edge.add(late)
    else:
        edge.add_mark(late)  # type: ignore[arg-type]
    assert edge.flush()


LATE = pytest.mark.parametrize(
    ("late", "what"),
    [([7, 8], "2 items, the first a int"), (Watermark(3), r"Watermark\(timestamp=3\)"), (DONE, "DONE")],
    ids=["items", "watermark", "DONE"],
)


@LATE
@pytest.mark.parametrize("kind", ["plain", "ordered", "buffered"])
def test_what_comes_on_a_lane_after_its_end_is_refused_by_name(kind: str, late: object, what: str) -> None:
    lanes = [LocalLane(8), LocalLane(8)]
    text = "'a' -> 'b'"
    edge = OrderedInboundEdge(0, lanes, None, text=text) if kind == "ordered" else InboundEdge(0, lanes, text=text)
    lanes[0].push([1])
    lanes[1].push([1])
    lanes[1].push_mark(DONE)
    sent(lanes[1], late)
    if kind == "buffered":
        edge.soak()
    with pytest.raises(ShmjetError, match=f"edge 'a' -> 'b': producer 1 has ended, yet .*DONE: {what}$"):
        while edge.drain(100)[2]:
            pass


@LATE
@pytest.mark.parametrize("when", ["while another is read", "when the edge is at its end", "when all has been emitted"])
def test_what_comes_on_a_lane_long_after_its_end_is_refused(when: str, late: object, what: str) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(10 * i)), 2)
    dag.edge(between(source, dag.new_vertex("sink", Collect, 1)))
    run = LocalRun(dag, 1)
    ended, other, sink = run.deployments[0].tasklets
    assert (ended.context.vertex_name, sink.context.vertex_name) == ("source", "sink")
    (outbound,), (inbound,) = ended.output.edges, sink.intake.edges
    while not ended.done:
        ended.call()
    while inbound.export_state()["live"][0]:
        sink.call()
    if when == "while another is read":
        sent_behind(outbound, late)
    while not other.done:
        other.call()
    if when == "when all has been emitted":
        while sink.state is not State.EMIT_DONE_ITEM:
            sink.call()
    sent_behind(outbound, late)
    with pytest.raises(ShmjetError, match=f"edge .*source.*sink.*: producer 0 has ended, .*: {what}$"):
        for _ in range(100):
            sink.call()
    run.close()
