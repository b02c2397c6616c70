"""Marks on many lanes: pushed and coalesced in one call each, they give what one lane after the other gives."""

from __future__ import annotations

import mmap
import random
from typing import Any

import pytest

from shmjet._native import RING_HEADER, Codec, RingConsumer, RingProducer, ring_format
from shmjet.core import WatermarkError
from shmjet.data.marks import DONE, IDLE, Barrier, Watermark
from shmjet.execution.inbound_edge import InboundEdge
from shmjet.execution.outbound_edge import Outbound
from shmjet.execution.routers import UnicastRouter
from shmjet.ring.lane import LocalLane, RingLaneReader, RingLaneWriter
from tests.examples import seeds

CAPACITY = 4096


def ring_lanes(count: int, queue_size: int = 64) -> tuple[list[RingLaneWriter], list[RingLaneReader]]:
    """Both ends of some lanes in rings."""
    size = RING_HEADER + CAPACITY
    memory = memoryview(mmap.mmap(-1, size * count))
    codec = Codec()
    writers, readers = [], []
    for offset in range(0, size * count, size):
        ring_format(memory, offset, CAPACITY, queue_size)
        writers.append(RingLaneWriter(RingProducer(memory, offset), codec))
        readers.append(RingLaneReader(RingConsumer(memory, offset), codec))
    return writers, readers


def everything(edge: InboundEdge) -> list[Any]:
    """Drain an edge as long as anything comes; items one by one, marks between them."""
    found: list[Any] = []
    while True:
        items, mark, moved = edge.drain(1024)
        found += items or ()
        found += [] if mark is None else [mark]
        if not moved:
            return found


def test_a_mark_reaches_every_lane_and_waits_for_the_full_ones() -> None:
    writers, readers = ring_lanes(3)
    local = LocalLane(8)
    out = Outbound([writers[0], local, *writers[1:]], UnicastRouter([local], deal=True))
    while writers[1].push_mark(Watermark(1)):
        pass
    out.add_mark(Watermark(7))
    assert not out.flush()
    assert [readers[0].pull(), local.pull(), readers[2].pull()] == [Watermark(7)] * 3
    while readers[1].pull() is not None:
        pass
    assert out.flush()
    assert readers[1].pull() == Watermark(7)
    assert readers[0].pull() is None
    assert out.moved == 4


@pytest.mark.parametrize("last", [Watermark(7), IDLE])
def test_time_and_idleness_move_with_a_stolen_tasklet(last: Watermark) -> None:
    writers, _ = ring_lanes(2)
    here, there = (Outbound(writers, UnicastRouter(writers, deal=True)) for _ in range(2))
    here.add([1, 2, 3, Watermark(5)])
    here.add_mark(last)
    assert here.flush()
    there.import_state(here.export_state())
    assert (there.time, there.is_idle) == (here.time, here.is_idle) == (5 if last == IDLE else 7, last == IDLE)
    assert there.export_state() == here.export_state()


def test_a_mark_cancels_an_item_of_which_a_part_was_written() -> None:
    writers, readers = ring_lanes(2)
    large = bytes(3 * CAPACITY)
    assert writers[0].push([large]) == 0
    assert writers[0].in_fragments
    out = Outbound(writers, UnicastRouter(writers, deal=True))
    out.add_mark(Watermark(7))
    found: list[Any] = []
    while not out.flush():
        found.append(readers[0].pull())
    found.append(readers[0].pull())
    assert found == [None] * (len(found) - 1) + [Watermark(7)]
    assert readers[1].pull() == Watermark(7)


def test_an_idle_lane_whose_items_have_come_holds_the_others_back() -> None:
    writers, readers = ring_lanes(2)
    edge = InboundEdge(0, readers)
    for writer in writers:
        writer.push_mark(Watermark(3))
    writers[0].push_mark(IDLE)
    assert everything(edge) == [Watermark(3)]
    writers[0].push([4])
    writers[1].push_mark(Watermark(9))
    assert everything(edge) == [4]
    writers[0].push_mark(Watermark(5))
    assert everything(edge) == [Watermark(5)]


@pytest.mark.parametrize("seed", seeds(20))
def test_what_an_edge_hands_over_is_what_the_rules_of_coalescing_allow(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 2, 5, 9])
    writers, readers = ring_lanes(count)
    local = [LocalLane(64) for _ in range(rng.choice([0, 2]))]
    edge = InboundEdge(0, [*readers, *local])
    ends: list[Any] = [*writers, *local]
    tops = [0] * len(ends)
    sent: list[list[Any]] = [[] for _ in ends]
    got: list[Any] = []
    for step in range(300):
        lane = rng.randrange(len(ends))
        kind = rng.random()
        if kind < 0.4:
            item = (lane, len(sent[lane]), tops[lane])
            if ends[lane].push([item]):
                sent[lane].append(item)
        elif kind < 0.9:
            mark = Watermark(tops[lane] + rng.randint(1, 5))
            if ends[lane].push_mark(mark):
                tops[lane] = mark.timestamp
        if rng.random() < 0.3 or step == 299:
            got += everything(edge)
    items = [item for item in got if not isinstance(item, Watermark)]
    assert [[item for item in items if item[0] == lane] for lane in range(len(ends))] == sent
    last = -1
    for item in got:
        if isinstance(item, Watermark):
            assert item.timestamp > last
            last = item.timestamp
        else:
            assert item[2] >= last, "an item came behind a watermark above that of its lane"
    assert last == (min(tops) or -1)
    for end in ends:
        end.push_mark(DONE)
    rest = everything(edge)
    assert edge.done
    assert [mark for mark in rest if mark.timestamp <= last] == []


def test_a_watermark_that_falls_is_an_error_that_names_the_lane() -> None:
    writers, readers = ring_lanes(2)
    edge = InboundEdge(0, readers)
    writers[1].push_mark(Watermark(5))
    writers[1].push_mark(Watermark(4))
    with pytest.raises(WatermarkError, match="watermarks must rise: input 1 brought 4 after 5"):
        everything(edge)


@pytest.mark.parametrize("aligns", [True, False])
@pytest.mark.parametrize("seed", seeds(10))
def test_a_barrier_has_come_when_every_lane_that_has_not_ended_has_brought_it(seed: int, aligns: bool) -> None:
    rng = random.Random(seed)
    count = rng.choice([1, 2, 5, 9])
    writers, readers = ring_lanes(count)
    edge = InboundEdge(0, readers, aligns=aligns)
    live = set(range(count))
    for number in range(1, 6):
        missing = set(live)
        while missing:
            assert everything(edge) == []
            lane = rng.choice(sorted(missing))
            missing.remove(lane)
            ends = rng.random() < 0.2 and len(live) > 1
            writers[lane].push_mark(DONE if ends else Barrier(number))
            if ends:
                live.remove(lane)
            if rng.random() < 0.3:
                edge.import_state(edge.export_state())
        expected = [Barrier(number)]
        assert everything(edge) == expected
    for lane in live:
        writers[lane].push_mark(DONE)
    assert everything(edge) == []
    assert edge.done
