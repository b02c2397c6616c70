"""Every routing at every parallelism, with local lanes and with rings forced: nothing lost, doubled or misplaced."""

from __future__ import annotations

import random
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from shmjet.core import (
    DAG,
    Edge,
    EdgeConfig,
    Inbox,
    Outbox,
    Processor,
    ProcessorContext,
    between,
    partition_id,
)
from shmjet.core.keys import PartitionCount
from shmjet.core.latency_policy import THROUGHPUT
from shmjet.data.batch import Batch
from shmjet.execution.outbound_edge import make_router
from shmjet.execution.routers import UnicastRouter
from shmjet.processors.general.emission import Emission
from tests.execution.harness import LocalRun
from tests.execution.vertices import Collect, Emit

PER_PRODUCER = 300
SHAPES = [
    (1, 1),
    (1, 3),
    (1, 8),
    (2, 1),
    (2, 4),
    (3, 2),
    (3, 3),
    (4, 2),
    (4, 7),
    (5, 8),
    (7, 3),
    (8, 1),
    (8, 5),
    (8, 8),
]
"""Parallelisms of producers and consumers: as many, divisors, multiples and others, below and above the 3 workers.
`stress/random_dags.py` takes any."""


def numbers(index: int, total: int) -> list[tuple[int, int]]:
    return [(index, i) for i in range(PER_PRODUCER)]


def received(up: int, down: int, route: str, force_rings: bool, queue_size: int = 64) -> list[tuple[int, int, tuple]]:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(numbers), up)
    sink = dag.new_vertex("sink", Collect, down)
    edge: Edge = between(source, sink).configure(EdgeConfig(queue_size=queue_size, high_water_mark=256))
    if route == "partitioned":
        edge.partitioned(lambda item: item[1])
    elif route == "custom":
        edge.partitioned(lambda item: item[1], lambda key, count: key % count)
    elif route == "counted":
        edge.partitioned(lambda item: item[1], PartitionCount(1000))
    elif route == "spread":
        edge.distributed()
    elif route != "unicast":
        getattr(edge, route)()
    dag.edge(edge)
    return LocalRun(dag, 3, force_rings=force_rings, seed=up * 10 + down).run().grid.get_list("out")


@pytest.mark.parametrize("force_rings", [False, True], ids=["lanes", "rings"])
@pytest.mark.parametrize(("up", "down"), SHAPES)
@pytest.mark.parametrize(
    "route", ["unicast", "isolated", "partitioned", "custom", "broadcast", "all_to_one", "fanout", "counted", "spread"]
)
def test_every_item_reaches_the_consumers_that_its_routing_names(
    route: str, up: int, down: int, force_rings: bool
) -> None:
    out = received(up, down, route, force_rings)
    copies = down if route == "broadcast" else 1
    expected = {item: copies for index in range(up) for item in numbers(index, up)}
    assert Counter(item for _, _, item in out) == expected
    by_lane = defaultdict(list)
    for consumer, _, (producer, number) in out:
        by_lane[producer, consumer].append(number)
    assert all(lane == sorted(lane) for lane in by_lane.values()), "a lane was reordered"
    consumers_of = defaultdict(set)
    for consumer, _, (producer, number) in out:
        consumers_of[number if route in ("partitioned", "custom", "counted") else producer].add(consumer)
    if route == "all_to_one":
        assert len(set().union(*consumers_of.values())) == 1
    elif route == "partitioned":
        assert all(found == {partition_id(number, 271) % down} for number, found in consumers_of.items())
    elif route == "custom":
        assert all(found == {number % 271 % down} for number, found in consumers_of.items())
    elif route == "counted":
        assert all(found == {partition_id(number, 1000) % down} for number, found in consumers_of.items())
    elif route == "isolated":
        for producer, found in consumers_of.items():
            assert all(consumer % up == producer % down for consumer in found)


def test_unicast_stays_on_the_worker_while_its_lane_has_room() -> None:
    out = received(3, 3, "unicast", False, queue_size=2048)
    assert all(consumer == producer for consumer, _, (producer, _) in out)


def test_a_unicast_edge_that_reaches_other_members_deals_to_all_alike() -> None:
    counts = Counter(consumer for consumer, _, _ in received(3, 3, "spread", False, queue_size=2048))
    assert len(counts) == 3
    by_consumer = Counter((consumer, producer) for consumer, _, (producer, _) in received(3, 3, "spread", False))
    assert len(by_consumer) == 9


def test_one_source_feeds_all_workers() -> None:
    out = received(1, 3, "unicast", False)
    counts = Counter(consumer for consumer, _, _ in out)
    assert len(counts) == 3
    assert min(counts.values()) > PER_PRODUCER / 6


class TakesSecond(Processor):
    """The first of two takes nothing before the second has; both say what they have taken."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        taken = self.context.grid.get_list("out")
        if self.context.local_index == 1 or any(index == 1 for index, _, _ in taken):
            taken += [(self.context.local_index, ordinal, item) for item in inbox.take()]


class Busy(Processor):
    """Keeps the second worker awake until everything has been taken."""

    def complete(self) -> bool:
        self.outbox.offer("busy")
        return self.context.local_index == 0 or len(self.context.grid.get_list("out")) == PER_PRODUCER


@pytest.mark.parametrize("high_water_mark", [9, 12, 16, 40])
def test_items_go_to_a_busy_worker_when_the_consumer_beside_the_producer_takes_no_more(high_water_mark: int) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(0 if i else PER_PRODUCER)), 2)
    sink = dag.new_vertex("sink", TakesSecond, 2)
    dag.edge(between(source, sink).configure(EdgeConfig(queue_size=16, high_water_mark=high_water_mark)))
    dag.edge(between(dag.new_vertex("busy", Busy, 2), dag.new_vertex("drop", Drop, 2)).isolated())
    out = LocalRun(dag, 2).run(20_000).grid.get_list("out")
    assert sorted(item for _, _, item in out) == list(range(PER_PRODUCER))


class Drop(Processor):
    """Forgets what it gets."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        inbox.clear()


class GiveLists(Processor):
    """Gives lists away whole, and remembers them."""

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._emission = Emission(outbox)
        self._given = context.grid.get_list("given")

    def complete(self) -> bool:
        if self._emission.flush() and len(self._given) < 40:
            self._given.append(list(range(2000)))
            self._emission.put(self._given[-1])
            return False
        return self._emission.idle


class TakeLists(Processor):
    """Remembers the lists that it takes."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.context.grid.get_list("taken").append(inbox.take())


def lists_over(edge: Callable[[Edge], Edge], consumers: int) -> tuple[list[list[int]], list[list[int]]]:
    dag = DAG()
    dag.edge(edge(between(dag.new_vertex("give", GiveLists, 1), dag.new_vertex("take", TakeLists, consumers))))
    lists = LocalRun(dag, 1).run().grid.lists
    return lists["given"], lists["taken"]


def test_a_list_that_is_given_away_reaches_a_consumer_on_the_same_worker_itself() -> None:
    given, taken = lists_over(lambda edge: edge, 1)
    assert [item for items in taken for item in items] == [*range(2000)] * 40
    assert {id(items) for items in taken} & {id(items) for items in given}


def test_what_consumers_of_a_broadcast_take_are_lists_of_their_own() -> None:
    given, taken = lists_over(lambda edge: edge.broadcast(), 2)
    assert sum(map(len, taken)) == 2 * 40 * 2000
    assert len({id(items) for items in [*taken, *given]}) == len(taken) + len(given)


class Spoiling:
    """A lane that takes a few items at a time, and changes the lists that it is given as a consumer may."""

    in_fragments = False

    def __init__(self, rng: random.Random, is_local: bool) -> None:
        self._rng = rng
        self.is_local = is_local
        self.reader_idle = not is_local
        self.is_empty = True
        self.got: list[Any] = []

    def push(self, items: list[Any], start: int = 0) -> int:
        count = self._rng.randint(0, min(7, len(items) - start))
        self.got += items[start : start + count]
        return count

    def give(self, items: list[Any]) -> int:
        if self._rng.random() < 0.3:
            return self.push(items)
        count = len(items)
        self.got += items
        items += ["another lane's"] * self._rng.randint(1, 9)
        items.reverse()
        return count


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("route", ["unicast", "partitioned", "broadcast", "all_to_one", "fanout"])
def test_no_router_reads_a_list_that_it_has_given_away(route: str, members: int) -> None:
    for seed in range(40):
        rng = random.Random(seed)
        each = rng.randint(1, 3)
        lanes = [Spoiling(rng, lane < each and rng.random() < 0.5) for lane in range(members * each)]
        router = make_router(
            route,
            lanes,  # type: ignore[arg-type]
            producers=rng.randint(1, 3),
            workers=2,
            key_fn=None,
            partitioner=None,
            table=array("H", [p % len(lanes) for p in range(17)]),
            target_partition=5,
            edge="edge",
            policy=THROUGHPUT,
            members=[lane // each for lane in range(len(lanes))],
        )
        sent: list[int] = []
        for _ in range(rng.randint(1, 5)):
            run = [len(sent) + i for i in range(rng.randint(1, 60))]
            sent += run
            router.start(run)
            while not router.flush():
                pass
        while not router.flush_buffered():
            pass
        copies = {"broadcast": len(lanes), "fanout": members}.get(route, 1)
        assert Counter(item for lane in lanes for item in lane.got) == dict.fromkeys(sent, copies)
        assert all(lane.got == sorted(lane.got) for lane in lanes)


class Choosy:
    """A lane that takes so many items, and no more until it is given more room."""

    reader_idle = in_fragments = False
    is_empty = True

    def __init__(self, room: int, *, is_local: bool = True) -> None:
        self.room = room
        self.is_local = is_local
        self.got: list[Any] = []

    def push(self, items: list[Any], start: int = 0) -> int:
        count = min(self.room, len(items) - start)
        self.room -= count
        self.got += items[start : start + count]
        return count

    give = push


def test_a_worker_that_is_awake_gets_batches_one_at_a_time_and_only_while_the_own_ones_are_full() -> None:
    near, far = Choosy(2), Choosy(9, is_local=False)
    router = UnicastRouter([near, far], deal=False)
    batches = [Batch({"n": [n]}) for n in range(6)]
    router.start(list(batches))
    assert [router.flush() for _ in range(3)] == [False] * 3
    assert (near.got, far.got) == (batches[:2], batches[2:3])
    far.is_empty = False
    assert not router.flush()
    assert not router.flush()
    assert far.got == batches[2:3]
    near.room = 1
    router.flush()
    far.is_empty = True
    router.flush()
    router.flush()
    assert (near.got, far.got) == ([*batches[:2], batches[3]], [batches[2], batches[4]])
    far.reader_idle = True
    assert router.flush()
    assert far.got == [batches[2], *batches[4:]]


def fanout_over(lanes: list[Choosy], each: int) -> Any:
    return make_router(
        "fanout",
        lanes,  # type: ignore[arg-type]
        producers=1,
        workers=2,
        key_fn=None,
        partitioner=None,
        table=array("H"),
        target_partition=0,
        edge="edge",
        policy=THROUGHPUT,
        members=[lane // each for lane in range(len(lanes))],
    )


@pytest.mark.parametrize("members", [1, 2])
def test_a_fanout_edge_deals_in_turn_over_several_runs_while_all_have_room(members: int) -> None:
    lanes = [Choosy(1000) for _ in range(3 * members)]
    router = fanout_over(lanes, 3)
    for run in ([0], [1, 2, 3, 4], [5], list(range(6, 20))):
        router.start(run)
        assert router.flush()
        assert not router.has_buffered_rows
    assert [lane.got for lane in lanes] == [list(range(k, 20, 3)) for k in range(3)] * members


@pytest.mark.parametrize("members", [1, 2])
def test_a_fanout_edge_skips_the_consumers_that_are_full(members: int) -> None:
    lanes = [Choosy(1000) for _ in range(3 * members)]
    full = lanes[3 * (members - 1) + 1]  # one of the last member
    full.room = 5
    router = fanout_over(lanes, 3)
    for run in range(10):
        router.start(list(range(run * 30, run * 30 + 30)))
        assert router.flush(), "one full consumer stops the edge"
        assert router.has_buffered_rows
        assert not router.flush_buffered()
    assert full.got == [1, 4, 7, 10, 13]
    others = [lane for lane in lanes[-3:] if lane is not full]
    assert [len(lane.got) for lane in others] == [145, 145]
    full.room = 1000
    router.start(list(range(300, 330)))
    assert router.flush()
    assert router.flush_buffered()
    assert full.got[5:10] == [16, 19, 22, 25, 28], "what waited for it comes first"
    for member in range(members):
        mine = lanes[3 * member : 3 * member + 3]
        assert sorted(item for lane in mine for item in lane.got) == list(range(330))
        assert all(lane.got == sorted(lane.got) for lane in mine)


def test_a_fanout_edge_waits_when_all_consumers_of_a_member_are_full() -> None:
    lanes = [Choosy(1000), Choosy(1000), Choosy(1), Choosy(1)]
    router = fanout_over(lanes, 2)
    router.start(list(range(10)))
    assert router.flush()
    router.start(list(range(10, 20)))
    assert not router.flush()
    assert [len(lane.got) for lane in lanes] == [10, 10, 1, 1], "the other member has got the second run"
    assert not router.flush()
    assert [len(lane.got) for lane in lanes] == [10, 10, 1, 1], "and gets it once"
    lanes[3].room = 50
    assert router.flush()
    assert [len(lane.got) for lane in lanes] == [10, 10, 1, 15]
    assert lanes[3].got == [1, 3, 5, 7, 9, *range(10, 20)]
    assert router.has_buffered_rows


class WaitsForOther(Processor):
    """The first takes nothing before the other has taken half of all items."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        taken = self.context.grid.get_list("out")
        if self.context.local_index == 1 or len(taken) >= PER_PRODUCER:
            taken += [(self.context.local_index, ordinal, item) for item in inbox.take()]


@pytest.mark.parametrize("force_rings", [False, True], ids=["lanes", "rings"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_consumer_that_takes_nothing_for_long_does_not_stop_a_fanout_edge(workers: int, force_rings: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(2 * PER_PRODUCER)), 1)
    sink = dag.new_vertex("sink", WaitsForOther, 2)
    dag.edge(between(source, sink).fanout().configure(EdgeConfig(queue_size=16, high_water_mark=40)))
    out = LocalRun(dag, workers, force_rings=force_rings).run(20_000).grid.get_list("out")
    for consumer in range(2):
        got = [item for index, _, item in out if index == consumer]
        assert got == sorted(got)
    assert sorted(item for _, _, item in out) == list(range(2 * PER_PRODUCER))


@pytest.mark.parametrize("force_rings", [False, True], ids=["lanes", "rings"])
def test_a_fanout_edge_deals_item_by_item(force_rings: bool) -> None:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Emit(lambda i, n: range(1, 2000)), 1)
    dag.edge(between(source, dag.new_vertex("sink", Collect, 2)).fanout())
    out = LocalRun(dag, 1, force_rings=force_rings).run().grid.get_list("out")
    for consumer in range(2):
        assert [item for index, _, item in out if index == consumer] == list(range(1 + consumer, 2000, 2))
