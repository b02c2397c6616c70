"""Ring lanes: any item of any size comes through a small ring, in order, with the marks in their places."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import RING_HEADER, Codec, Poller, RingConsumer, RingCorruptError, RingProducer, ring_format
from shmjet.data.marks import DONE, IDLE, Barrier, Mark, Watermark
from shmjet.ring import frames
from shmjet.ring.lane import LaneReader, LaneWriter, RingLaneReader, RingLaneWriter
from shmjet.ring.pickling import ItemEncodingError
from tests.native.values import nested, odd_scalars, plain_scalars, same


class Lane:
    """Both ends of a ring lane, and a way to pump a script of items and marks through it."""

    def __init__(self, capacity: int = 4096, queue_size: int = 64) -> None:
        memory = mmap.mmap(-1, RING_HEADER + capacity)
        ring_format(memory, 0, capacity, queue_size)
        codec = Codec()
        self.writer = RingLaneWriter(RingProducer(memory, 0), codec)
        self.reader = RingLaneReader(RingConsumer(memory, 0), codec)

    def pump(self, script: list[Any]) -> list[Any]:
        """Send items and marks; return what arrives, the items of a frame one by one."""
        out: list[Any] = []
        todo: deque[list[Any] | Mark] = deque()
        for entry in script:
            if isinstance(entry, Watermark | Barrier | type(DONE)):
                todo.append(entry)
            elif todo and isinstance(todo[-1], list):
                todo[-1].append(entry)
            else:
                todo.append([entry])
        position = idle = 0
        while todo or self.reader.has_data:
            idle += 1
            if todo:
                head = todo[0]
                if isinstance(head, list):
                    accepted = self.writer.push(head, position)
                    position += accepted
                    idle = 0 if accepted else idle
                    if position == len(head):
                        todo.popleft()
                        position = 0
                elif self.writer.push_mark(head):
                    todo.popleft()
            while self.reader.has_data:
                idle = 0
                got = self.reader.pull()
                if isinstance(got, list):
                    assert got
                    out.extend(got)
                elif got is not None:
                    out.append(got)
            assert idle < 10, "nothing moves"
        return out


marks: st.SearchStrategy[Mark] = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(Watermark), st.builds(Barrier, st.integers(0, 2**40), st.booleans())
)


@given(
    st.lists(st.one_of(nested(plain_scalars), nested(odd_scalars), marks), max_size=60),
    st.sampled_from([4096, 65536]),
    st.sampled_from([1, 5, 1024]),
)
def test_any_items_and_marks_come_through_in_order(script: list[Any], capacity: int, queue_size: int) -> None:
    assert all(map(same, Lane(capacity, queue_size).pump([*script, DONE]), [*script, DONE]))


def test_the_ends_are_lanes() -> None:
    lane = Lane()
    writer: LaneWriter = lane.writer
    reader: LaneReader = lane.reader
    assert not writer.is_local
    assert writer.reader_idle
    assert reader.pull() is None


def test_marks_keep_their_values() -> None:
    script = [Watermark(-5), IDLE, Barrier(3), Barrier(4, terminal=True), DONE]
    assert Lane().pump(script) == script


def test_items_larger_than_the_ring_come_through() -> None:
    array = np.arange(200_000.0)
    items = [1, b"b" * 300_000, "é" * 100_000, array, [array[:5], "x" * 5000], {"k": b"y" * 9000}, 2]
    assert all(map(same, Lane().pump(items), items))


def test_many_items_just_around_the_largest_record_come_through() -> None:
    for size in range(1900, 2100, 7):
        items = [b"x" * (size + i) for i in range(12)]
        assert Lane().pump(items) == items
        texts = [frozenset([("y" * (size - 60 + i))]) for i in range(12)]
        assert Lane().pump(list(texts)) == texts


def test_a_large_item_is_accepted_with_its_last_fragment() -> None:
    lane, item = Lane(), b"x" * 20_000
    assert lane.writer.push([item]) == 0
    assert lane.writer.producer.blocked
    pushes = 0
    while lane.writer.push([item]) == 0:
        assert lane.reader.pull() is None
        pushes += 1
        assert pushes < 50
    assert pushes > 3
    assert lane.reader.pull() == [item]


def test_an_item_given_to_another_lane_half_way_is_cancelled() -> None:
    lane = Lane()
    assert lane.writer.push([b"x" * 20_000]) == 0
    assert lane.pump([1, 2, "three"]) == [1, 2, "three"]
    assert lane.writer.push([b"x" * 20_000]) == 0
    assert lane.pump([DONE]) == [DONE]


def test_a_pickled_frame_that_found_no_room_is_not_pickled_again() -> None:
    class Counted:
        count = 0

        def __reduce__(self) -> Any:
            Counted.count += 1
            return bytes, (1000,)

    lane = Lane(4096, 64)
    items = [Counted() for _ in range(3)]
    assert lane.writer.push([b"y" * 1500, b"z" * 500]) == 2
    for _ in range(5):
        lane.writer.push(items)
    tries = Counted.count
    while lane.reader.pull() is not None:
        pass
    for _ in range(5):
        lane.writer.push(items)
    assert Counted.count <= max(tries, 1) * 3 + 9


def test_an_item_that_cannot_be_pickled_is_named_alone() -> None:
    lane = Lane()
    with pytest.raises(ItemEncodingError, match="an item of type 'lock'"):
        lane.writer.push([1, 2j, threading.Lock(), 4])


def test_items_after_an_odd_one_become_columns_again() -> None:
    lane = Lane(65536, 1024)
    codecs: list[int] = []
    original = lane.reader.consumer.pull
    assert original is not None
    for batch in range(200):
        lane.writer.push([2j] if batch == 0 else [batch])
        record = lane.reader.consumer.pull(lane.reader.codec)
        assert record is not None
        if isinstance(record, tuple) and len(record) == 5:
            codecs.append(record[1])
            record[4].release()
            lane.reader.consumer.release()
    assert set(codecs) == {frames.CODEC_PICKLE}
    assert len(codecs) < 5


def test_an_unpicklable_payload_raises_and_the_lane_goes_on() -> None:
    lane = Lane()
    lane.writer.producer.push_bytes(frames.KIND_ITEMS, frames.CODEC_PICKLE, 0, 1, [bytes(16), b"garbage"])
    with pytest.raises(Exception, match=r"out of input|Ran out|pickle|unpickling"):
        lane.reader.pull()
    assert lane.pump([1]) == [1]


@pytest.mark.parametrize(
    "record",
    [
        (77, 0, 0, 0, b""),
        (frames.KIND_ITEMS, 99, 0, 1, b""),
        (frames.KIND_FRAGMENT, frames.CODEC_BYTES, 0, 0, b"abc"),
        (frames.KIND_FRAGMENT, frames.CODEC_BYTES, 3, 1, (9).to_bytes(8, "little") + b"short"),
        (frames.KIND_FRAGMENT, frames.CODEC_BYTES, 1, 0, (2).to_bytes(8, "little") + b"long"),
    ],
)
def test_a_frame_that_cannot_be_is_an_error(record: tuple[int, int, int, int, bytes]) -> None:
    lane = Lane()
    lane.writer.producer.push_bytes(*record[:4], [record[4]])
    with pytest.raises(RingCorruptError):
        lane.reader.pull()


def test_a_refused_push_is_called_back_by_the_poller() -> None:
    lane = Lane(4096, 64)
    poller = Poller([], [lane.writer.producer])
    for items in ([1] * 64, [2j] * 64, ["x" * 100] * 64):
        for _ in range(10):
            lane.writer.push(items)
        assert not poller.ready()
        while lane.reader.has_data:
            lane.reader.pull()
        assert poller.ready()


def test_closing_lets_go_of_the_memory() -> None:
    lane = Lane()
    lane.writer.push([1])
    lane.writer.close()
    assert lane.reader.pull() == [1]
    lane.reader.close()
    with pytest.raises(ValueError, match="closed"):
        lane.writer.push([1])
