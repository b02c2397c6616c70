"""Edges that span members: every routing, columns, marks, back-pressure; real links over loopback TCP in this
process."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from shmjet._native import clock_ns
from shmjet.core import DAG, Edge, EdgeConfig, Inbox, Watermark, between
from shmjet.core.keys import partition_id
from shmjet.data.batch import Batch
from shmjet.net.window import BLOCK
from tests.examples import seeds
from tests.execution.vertices import Collect, Emit, Pass
from tests.net.members import ClusterRun, linked, running

ITEMS = 3000


def numbers(index: int, total: int) -> Any:
    return range(index, ITEMS, total)


def two_vertices(edge: Any, make: Any = numbers, **vertex: Any) -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(make), **vertex)
    sink = dag.new_vertex("sink", Collect)
    dag.edge(edge(between(source, sink)))
    return dag


def values(run: ClusterRun, member: int) -> list[Any]:
    return [item for _, ordinal, item in run.collected()[member] if ordinal >= 0]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("force_rings", [False, True])
def test_a_unicast_edge_deals_to_the_processors_of_all_members(count: int, force_rings: bool) -> None:
    with linked(count) as members, running(members, two_vertices(Edge.distributed), force_rings=force_rings) as run:
        run.run()
        got = [values(run, member) for member in range(count)]
        assert sorted(itertools.chain(*got)) == list(range(ITEMS))
        assert all(len(part) > ITEMS / count / 4 for part in got)


@pytest.mark.parametrize("count", [2, 3])
def test_a_broadcast_edge_reaches_every_processor_of_every_member_in_order(count: int) -> None:
    with linked(count) as members, running(members, two_vertices(lambda e: e.broadcast().distributed())) as run:
        run.run()
        for part in run.collected():
            for index in range(2):
                mine = [item for at, _, item in part if at == index]
                assert sorted(mine) == list(range(ITEMS))
                for producer in range(2 * count):
                    assert [x for x in mine if x % (2 * count) == producer] == list(numbers(producer, 2 * count))


def test_a_partitioned_edge_sends_a_key_to_one_processor_of_the_member_that_owns_its_partition() -> None:
    edge = lambda e: e.partitioned(lambda x: x % 100).distributed()  # noqa: E731
    owners = [0 if p < 200 else 1 for p in range(271)]
    with linked(2) as members, running(members, two_vertices(edge), owners=owners) as run:
        run.run()
        assert sorted(values(run, 0) + values(run, 1)) == list(range(ITEMS))
        for member, part in enumerate(run.collected()):
            assert all(owners[partition_id(item % 100, 271)] == member for _, _, item in part)
            homes: dict[int, set[int]] = {}
            for index, _, item in part:
                homes.setdefault(item % 100, set()).add(index)
            assert all(len(home) == 1 for home in homes.values())


def test_a_local_and_a_distributed_edge_agree_on_the_processor_of_an_own_partition() -> None:
    dag = DAG()
    near = dag.new_vertex("near", lambda: Emit(numbers))
    far = dag.new_vertex("far", lambda: Emit(numbers))
    sink = dag.new_vertex("sink", Collect, local_parallelism=3)
    dag.edge(Edge(near, 0, sink, 0).partitioned())
    dag.edge(Edge(far, 0, sink, 1).partitioned().distributed())
    owners = [(p * 7) % 2 for p in range(271)]
    with linked(2) as members, running(members, dag, owners=owners) as run:
        run.run()
        for member, part in enumerate(run.collected()):
            home = {item: index for index, ordinal, item in part if ordinal == 1}
            assert home
            assert all(owners[partition_id(item, 271)] == member for item in home)
            for index, ordinal, item in part:
                assert ordinal == 1 or home.get(item, index) == index


def test_distribute_to_sends_everything_to_one_member() -> None:
    with linked(3) as members:
        target = members[1].address
        with running(members, two_vertices(lambda e: e.partitioned().distribute_to(target))) as run:
            run.run()
            assert [len(values(run, member)) for member in range(3)] == [0, ITEMS, 0]


def test_all_to_one_sends_everything_to_one_processor_of_the_cluster() -> None:
    with linked(2) as members, running(members, two_vertices(lambda e: e.all_to_one("x").distributed())) as run:
        run.run()
        places = {(member, index) for member, part in enumerate(run.collected()) for index, _, _ in part}
        assert len(places) == 1
        assert sorted(values(run, 0) + values(run, 1)) == list(range(ITEMS))


def test_a_fanout_edge_brings_each_item_to_one_processor_of_every_member() -> None:
    with linked(2) as members, running(members, two_vertices(lambda e: e.fanout().distributed())) as run:
        run.run()
        for member in range(2):
            assert sorted(values(run, member)) == list(range(ITEMS))
            assert len({index for index, _, _ in run.collected()[member]}) == 2


@pytest.mark.parametrize("routing", ["fanout", "broadcast", "unicast", "partitioned"])
def test_members_whose_lanes_are_full_at_different_times_get_each_item_once(
    routing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.net.window.INITIAL_WINDOW", 1)  # what is behind 64 KiB waits for the other member

    def make(index: int, total: int) -> Any:
        return (f"{i:2000}" for i in range(index, ITEMS, total))

    narrow = EdgeConfig(queue_size=16, high_water_mark=32)
    dag = two_vertices(lambda e: getattr(e, routing)().distributed().configure(narrow), make)
    rng = random.Random(1)
    with linked(2) as members, running(members, dag, default_parallelism=1) as run:
        while tasklets := [tasklet for part in run.runs for tasklet in part.tasklets]:
            for _ in range(rng.randint(0, 10)):
                tasklet = rng.choice(tasklets)
                if not tasklet.done:
                    tasklet.call()
            rng.choice(members).turn()
        got = [Counter(map(int, values(run, member))) for member in range(2)]
    once = dict.fromkeys(range(ITEMS), 1)
    if routing in ("fanout", "broadcast"):
        assert got == [once, once]
    else:
        assert got[0] + got[1] == once


def test_an_ordered_edge_merges_what_all_members_send() -> None:
    edge = lambda e: e.all_to_one().distributed().ordered()  # noqa: E731
    with linked(2) as members, running(members, two_vertices(edge)) as run:
        run.run()
        assert values(run, 0) + values(run, 1) == list(range(ITEMS))


def test_watermarks_of_all_members_are_coalesced() -> None:
    def make(index: int, total: int) -> Any:
        for i in range(200):
            yield index * 1000 + i
            if i % 20 == 19:
                yield Watermark(i + index)

    with linked(2) as members, running(members, two_vertices(Edge.distributed, make)) as run:
        run.run()
        for part in run.collected():
            for processor in range(2):
                marks = [item.timestamp for at, ordinal, item in part if ordinal == -1 and at == processor]
                assert marks == sorted(set(marks))
                assert marks[-1] >= 199


def columns(index: int, total: int) -> Any:
    for i in range(4):
        start = (index * 4 + i) * 40_000
        yield Batch({"key": np.arange(start, start + 40_000), "half": np.arange(40_000) / 2})


@pytest.mark.parametrize("ring_memory", [64 << 20, 2 << 20])
def test_batches_arrive_equal_with_slots_and_without(ring_memory: int) -> None:
    dag = two_vertices(lambda e: e.broadcast().distributed(), columns, local_parallelism=1)
    with linked(2) as members, running(members, dag, ring_memory=ring_memory) as run:
        run.run()
        for part in run.collected():
            for processor in range(2):
                mine = [item for at, _, item in part if at == processor]
                assert sum(batch.num_rows for batch in mine) == 8 * 40_000
                keys = np.sort(np.concatenate([np.array(batch["key"]) for batch in mine]))
                assert np.array_equal(keys, np.arange(8 * 40_000))
                assert all(np.array_equal(b["half"], (np.array(b["key"]) % 40_000) / 2) for b in mine)
            part.clear()


def test_rows_are_partitioned_over_members() -> None:
    from shmjet.core.column_key import column

    dag = two_vertices(lambda e: e.partitioned(column("key")).distributed(), columns, local_parallelism=1)
    with linked(2) as members, running(members, dag) as run:
        run.run()
        seen: list[int] = []
        for member, part in enumerate(run.collected()):
            for _, _, batch in part:
                keys = batch["key"].tolist()
                seen += keys
                assert all(partition_id(key, 271) % 2 == member for key in keys[:50])
            part.clear()
        assert sorted(seen) == list(range(8 * 40_000))


def test_objects_of_all_kinds_arrive_equal() -> None:
    odd = ["text", b"x" * 300_000, {"a": [1, 2]}, (1, "two", 3.0), 1 << 80, ["z" * 70_000], {4}, True]

    def make(index: int, total: int) -> Any:
        return odd

    dag = two_vertices(lambda e: e.broadcast().distributed(), make, local_parallelism=1)
    with linked(2) as members, running(members, dag, ring_memory=2 << 20) as run:
        run.run()
        for part in run.collected():
            for processor in range(2):
                mine = [item for at, _, item in part if at == processor]
                assert Counter(map(repr, mine)) == Counter(list(map(repr, odd)) * 2)


def test_a_stuck_edge_does_not_stop_its_neighbour_on_the_same_connection() -> None:
    dag = DAG()
    for name in ("slow", "fast"):
        source = dag.new_vertex(f"{name} source", lambda: Emit(numbers), local_parallelism=1)
        sink = dag.new_vertex(f"{name} sink", lambda name=name: Collect(name), local_parallelism=1)
        dag.edge(between(source, sink).broadcast().distributed().configure(EdgeConfig(queue_size=64)))
    stuck = True

    def paused(tasklet: Any) -> bool:
        return stuck and tasklet.context.vertex_name == "slow sink"

    with linked(2) as members, running(members, dag, paused=paused) as run:
        while any(t.context.vertex_name == "fast sink" for r in run.runs for t in r.tasklets):
            run.step()
        assert all(len(part) == ITEMS for part in run.collected("fast"))
        assert not any(run.collected("slow"))
        edges = {edge.edge: edge for edge in run.stats(0).edges}
        assert sum(edge.waiting > 0 for edge in edges.values()) == 1  # the slow one's records wait in the link
        stuck = False
        run.run()
        assert all(len(part) == ITEMS for part in run.collected("slow"))


def test_processors_know_their_place_in_the_cluster() -> None:
    def make(index: int, total: int) -> Any:
        yield (index, total)

    with linked(3) as members, running(members, two_vertices(Edge.distributed, make)) as run:
        contexts = [t.context for r in run.runs for t in r.tasklets if t.context.vertex_name == "source"]
        run.run()
        assert [c.global_index for c in contexts] == list(range(6))
        assert [c.member_index for c in contexts] == [0, 0, 1, 1, 2, 2]
        assert {(c.member_count, c.total_parallelism) for c in contexts} == {(3, 6)}
        assert sorted(values(run, 0) + values(run, 1) + values(run, 2)) == [(i, 6) for i in range(6)]


def test_no_process_starts_before_the_start_barrier_is_open() -> None:
    with linked(2) as members, running(members, two_vertices(Edge.distributed)) as run:
        for member in run.runs:
            ready = [deployment.say_ready() for deployment in member.deployments]
            assert ready == [False, False]
        run.run()


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("routing", ["unicast", "partitioned", "broadcast"])
def test_tasklets_move_and_barriers_pass_while_lanes_cross_members(routing: str, seed: int) -> None:
    """Sources, a vertex that moves, sinks: nothing lost or doubled, and every processor sees all barriers in order."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(numbers))
    middle = dag.new_vertex("middle", Pass)
    sink = dag.new_vertex("sink", Collect)
    for first, second in ((source, middle), (middle, sink)):
        dag.edge(getattr(between(first, second), routing)().distributed().configure(EdgeConfig(queue_size=16)))
    with linked(2) as members, running(members, dag, seed=seed) as run:
        run.run()
        got = Counter(itertools.chain(values(run, 0), values(run, 1)))
        copies = 16 if routing == "broadcast" else 1
        assert got == Counter(dict.fromkeys(range(ITEMS), copies))
        assert run.steals > 0
        for (name, _), passed in run.barriers.items():
            expected = list(range(1, run.barrier_id + 1))
            assert passed == expected, name
        assert run.barrier_id > 0
        assert len(run.barriers) == 8  # every processor that has inputs


@pytest.mark.slow
def test_what_waits_for_a_stuck_consumer_is_bounded_by_the_window_and_arrives_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, count = 1 << 16, 90
    # Time goes by with what links do, however busy the machine is: the window moves with it.
    times = itertools.count(clock_ns(), 100_000)
    monkeypatch.setattr("shmjet.net.link.clock_ns", lambda: next(times))

    def make(index: int, total: int) -> Any:
        for i in range(count):
            yield Batch({"key": np.arange(i * rows, (i + 1) * rows), "half": np.arange(rows) / 2})

    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(make), local_parallelism=1)
    sink = dag.new_vertex("sink", SumOfKeys, local_parallelism=1)
    stuck = True

    def paused(tasklet: Any) -> bool:
        return stuck and tasklet.context.vertex_name == "sink"

    with linked(2) as members:
        dag.edge(between(source, sink).all_to_one().distribute_to(members[1].address))
        with running(members, dag, paused=paused) as run:
            still = 0
            while still < 400:
                still = 0 if run.step() else still + 1
            (edge,) = run.stats(1).edges
            assert edge.waiting > 20 << 20
            assert edge.waiting <= 801 * BLOCK + (2 << 20)
            assert run.stats(0).edges[0].bytes_out < count << 20  # member 0's own share would be all of it
            stuck = False
            run.run()
            (total,) = values(run, 1)
            assert total == 2 * sum(range(count * rows))  # both members have a source


def test_a_sender_is_told_of_room_before_the_period_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, count = 1 << 12, 100
    start = clock_ns()
    monkeypatch.setattr("shmjet.net.link.clock_ns", lambda: start)  # no period ever ends
    monkeypatch.setattr("shmjet.net.window.INITIAL_WINDOW", 8)

    def make(index: int, total: int) -> Any:
        for i in range(count if index == 0 else 0):
            yield Batch({"key": np.arange(i * rows, (i + 1) * rows), "half": np.arange(rows) / 2})

    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(make), local_parallelism=1)
    sink = dag.new_vertex("sink", SumOfKeys, local_parallelism=1)
    with linked(2) as members:
        dag.edge(between(source, sink).all_to_one().distribute_to(members[1].address))
        with running(members, dag) as run:
            run.run()
            assert values(run, 1) == [sum(range(count * rows))]
            assert run.stats(1).edges[0].bytes_in > 10 * 8 * BLOCK


class SumOfKeys(Collect):
    """Adds a column up, so that no batch is kept."""

    _sum = 0

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self._sum += sum(int(batch["key"].sum()) for batch in inbox.take())

    def complete(self) -> bool:
        if self._sum:
            self._list.append((0, 0, self._sum))
        return True
