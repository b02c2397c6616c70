"""Batches in ring lanes: equal on arrival, in order with items and marks, by slots, by the ring and by fragments."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import RING_HEADER, Codec, Poller, RingConsumer, RingCorruptError, RingProducer, ring_format
from shmjet.data.batch import Batch
from shmjet.data.marks import DONE, Watermark
from shmjet.data.text import Text
from shmjet.ring import frames
from shmjet.ring.batch_frames import BatchCodec, padded
from shmjet.ring.lane import RingLaneReader, RingLaneWriter
from shmjet.ring.slab import IncomingSlabs, OutgoingSlab
from tests.data.batches import batches

SLAB = 8 << 20


class Lane:
    """Both ends of a lane and its slab; `memory` bytes of the slab are available."""

    def __init__(self, capacity: int = 1 << 16, queue_size: int = 64, memory: int = SLAB) -> None:
        area = memoryview(mmap.mmap(-1, SLAB + RING_HEADER + capacity))
        self.reserved = 0

        def reserve(offset: int, size: int) -> None:
            if self.reserved + size > memory:
                raise OSError("full")
            self.reserved += size

        ring_format(area, SLAB, capacity, queue_size)
        self.slab = OutgoingSlab(area, 0, SLAB, 0, reserve)
        self.slabs = IncomingSlabs(area, [0], SLAB)
        codec = Codec()
        self.producer = RingProducer(area, SLAB)
        self.writer = RingLaneWriter(self.producer, codec, self.slab)
        self.consumer = RingConsumer(area, SLAB)
        self.reader = RingLaneReader(self.consumer, codec, self.slabs)

    def pump(self, items: list[Any]) -> list[Any]:
        """Send items; return what arrives."""
        out: list[Any] = []
        position = idle = 0
        while position < len(items) or self.reader.has_data:
            accepted = self.writer.push(items, position) if position < len(items) else 0
            position += accepted
            idle = 0 if accepted or self.reader.has_data else idle + 1
            assert idle < 3, "neither end moves"
            while self.reader.has_data:
                got = self.reader.pull()
                if isinstance(got, list):
                    out += got
        return out


def joined(items: list[Any]) -> Batch:
    return Batch.concat(items)


@given(st.lists(batches(), max_size=6), st.sampled_from([0, SLAB]))
def test_every_batch_arrives_equal(sent: list[Batch], memory: int) -> None:
    got = Lane(memory=memory).pump(sent)
    assert got == sent
    for batch in got:
        for column in batch.parts()[0].values():
            assert isinstance(column, Text) or not column.flags.writeable


@given(st.lists(st.one_of(st.integers(), st.text(max_size=5), st.builds(object), batches(most_columns=2)), max_size=30))
def test_batches_keep_their_places_among_other_items(sent: list[Any]) -> None:
    sent = [("o", i) if type(item) is object else item for i, item in enumerate(sent)]
    sent = [{1, 2, i} if i % 7 == 3 and not isinstance(item, Batch) else item for i, item in enumerate(sent)]
    assert Lane(capacity=4096, queue_size=8).pump(sent) == sent


@pytest.mark.parametrize("memory", [0, 2 << 20, SLAB])
@pytest.mark.parametrize("rows", [1, 300, 8192, 65_536, 1_000_000])
def test_small_and_large_batches_arrive_by_every_way(rows: int, memory: int) -> None:
    sent = [
        Batch({"n": np.arange(rows) + i, "half": np.arange(rows) / 2, "t": Text.of([str(i)] * rows)}) for i in (1, 2)
    ]
    got = Lane(memory=memory).pump(sent)
    assert joined(got) == joined(sent)
    assert len(got) == 2 or rows == 1_000_000


def test_a_batch_arrives_as_views_on_a_slot() -> None:
    lane = Lane()
    (got,) = lane.pump([Batch({"n": np.arange(8192), "t": Text.of(["ab"] * 8192)})])
    assert lane.slabs.live == 1
    assert not got["n"].flags.owndata
    part = got["n"][100:200]
    text = got["t"][5:]
    del got
    assert lane.slabs.live == 1
    del part
    assert (lane.slabs.live, text[0]) == (1, "ab")
    del text
    assert lane.slabs.live == 0


def test_a_reader_that_keeps_everything_gets_copies_and_never_stops_the_lane() -> None:
    lane = Lane()
    sent = [Batch({"n": np.full(20_000, i)}) for i in range(200)]
    got = lane.pump(sent)
    assert got == sent
    assert 0 < lane.slabs.live * 160_000 <= SLAB // 2
    assert lane.reserved <= SLAB


def test_a_lane_holds_few_batches_at_once_and_asks_to_be_woken() -> None:
    lane = Lane(queue_size=1000)
    batch = Batch({"n": np.arange(50_000)})
    accepted = lane.writer.push([batch[i:] for i in range(1, 100)])
    assert 2 <= accepted <= 4
    poller = Poller([], [lane.producer])
    assert not poller.ready()
    while lane.reader.has_data:
        lane.reader.pull()
    assert poller.ready()


def test_when_others_have_all_slots_a_lane_still_moves() -> None:
    lane = Lane()
    while lane.slab.put(object(), 0, (bytes(1 << 20),), 1 << 20) >= 0:
        pass
    sent = [Batch({"n": np.arange(50_000) + i}) for i in range(3)]
    assert lane.pump(sent) == sent
    assert lane.slabs.live == 0


def test_a_batch_too_large_for_a_slot_is_cut_by_rows() -> None:
    lane = Lane()
    whole = Batch({"n": np.arange(1_500_000), "t": Text.of([str(i % 97) for i in range(1_500_000)])})
    got = lane.pump([whole, 7, whole[:10]])
    assert got[-2:] == [7, whole[:10]]
    assert len(got) > 4
    assert joined(got[:-2]) == whole
    assert lane.producer.items_in == 3


def test_a_single_value_larger_than_everything_arrives() -> None:
    huge = "x" * (SLAB + 5)
    batch = Batch({"t": [huge, "y", None]})
    got = Lane().pump([batch])
    assert joined(got) == batch


def test_a_thousand_columns_arrive() -> None:
    batch = Batch({f"c{i}": np.arange(100) + i for i in range(1000)})
    assert Lane().pump([batch]) == [batch]


def test_marks_come_behind_the_batches_before_them() -> None:
    lane = Lane()
    batch = Batch({"n": np.arange(10_000)})
    assert lane.writer.push([batch]) == 1
    assert lane.writer.push_mark(Watermark(5))
    assert lane.writer.push([batch[:1]]) == 1
    assert lane.writer.push_mark(DONE)
    assert [lane.reader.pull() for _ in range(4)] == [[batch], Watermark(5), [batch[:1]], DONE]


def test_a_batch_begun_in_fragments_gives_way_to_another_item() -> None:
    lane = Lane(capacity=4096, memory=0)
    batch = Batch({"n": np.arange(10_000)})
    assert lane.writer.push([batch]) == 0
    assert lane.writer.in_fragments
    while lane.reader.has_data:
        assert lane.reader.pull() is None
    assert lane.pump([5]) == [5]
    assert not lane.writer.in_fragments
    assert not lane.reader.in_fragments
    assert lane.pump([batch]) == [batch]


def test_what_is_no_batch_is_an_error() -> None:
    codec = BatchCodec()
    parts, _ = codec.encode(Batch({"n": np.arange(50)}))
    good = b"".join(bytes(part) for part in padded(parts))
    assert codec.decode(good)["n"][-1] == 49
    for bad in (b"", good[:10], good[:40], good[:-8], b"\xff" * 100, good.replace(b"<i8", b"|O8")):
        with pytest.raises(RingCorruptError):
            codec.decode(bad)
    lane = Lane()
    lane.producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_SLOT, 0, 1, [frames.SLOT.pack(9, 0, 0, 10)])
    with pytest.raises(RingCorruptError, match="no slab 9"):
        lane.reader.pull()
