"""Producer and consumer objects against a model: what goes in comes out, in order, within the bounds."""

from __future__ import annotations

import mmap
from collections import deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shmjet._native import (
    RING_ALIGNMENT,
    RING_HEADER,
    Codec,
    Doorbell,
    Poller,
    RingConsumer,
    RingCorruptError,
    RingProducer,
    ring_format,
    ring_items,
)
from shmjet.ring import frames
from tests.examples import examples

codec = Codec()


def make_ring(capacity: int = 4096, queue_size: int = 1024) -> tuple[mmap.mmap, RingProducer, RingConsumer]:
    memory = mmap.mmap(-1, RING_HEADER + capacity)
    ring_format(memory, 0, capacity, queue_size)
    return memory, RingProducer(memory, 0), RingConsumer(memory, 0)


class RingMachine(RuleBasedStateMachine):
    """Random pushes and pulls of items, byte records and marks, compared with a deque."""

    @initialize(capacity=st.sampled_from([4096, 8192]), queue_size=st.integers(1, 600))
    def open(self, capacity: int, queue_size: int) -> None:
        self.memory, self.producer, self.consumer = make_ring(capacity, queue_size)
        self.queue_size = queue_size
        self.model: deque[Any] = deque()
        self.items = 0
        self.next = 0

    @rule(count=st.integers(1, 700), scale=st.sampled_from([1, 10**6, 10**15]))
    def push_items(self, count: int, scale: int) -> None:
        offered = [(self.next + i) * scale for i in range(count)]
        accepted = self.producer.push(codec, offered, 0, count)
        assert 0 <= accepted <= min(count, max(1, self.queue_size // 4), self.queue_size - self.items)
        assert self.producer.blocked == (accepted == 0)
        self.model.extend(offered[:accepted])
        self.items += accepted
        self.next += accepted

    @rule(sizes=st.lists(st.integers(0, 700), max_size=10), count=st.integers(0, 3))
    def push_record(self, sizes: list[int], count: int) -> None:
        parts = [bytes([i]) * size for i, size in enumerate(sizes)]
        if sum(sizes) > self.producer.max_record or count > self.queue_size:
            with pytest.raises(ValueError):
                self.producer.push_bytes(9, 8, 7, count, parts)
        elif self.producer.push_bytes(9, 8, 7, count, parts):
            self.model.append(("record", count, b"".join(parts)))
            self.items += count

    @rule(value=st.integers(-(2**63), 2**63 - 1), kind=st.sampled_from([2, 3, 4]))
    def push_mark(self, value: int, kind: int) -> None:
        if self.producer.push_mark(kind, value, 5):
            self.model.append(("mark", kind, value))

    @rule(limit=st.sampled_from([0, 0, 100, 1000]))
    def pull(self, limit: int) -> None:
        got = self.consumer.pull(codec, limit)
        if got is None:
            assert not self.model
        elif isinstance(got, list):
            assert got
            assert got == [self.model.popleft() for _ in got]
            self.items -= len(got)
        elif len(got) == 3:
            assert self.model.popleft() == ("mark", got[0], got[1])
            assert got[2] == 5
        else:
            assert got[:3] == (9, 8, 7)
            assert self.model.popleft() == ("record", got[3], bytes(got[4]))
            with pytest.raises(BufferError):
                self.consumer.release()
            got[4].release()
            self.consumer.release()
            self.items -= got[3]

    @precondition(lambda self: self.producer.blocked)
    @rule()
    def drain_until_the_producer_is_wanted(self) -> None:
        """A blocked producer's poller becomes ready before the ring is empty for long."""
        poller = Poller([], [self.producer])
        while self.model:
            self.pull(0)
        assert poller.ready()

    @rule(end=st.sampled_from(["producer", "consumer"]))
    def reopen(self, end: str) -> None:
        if end == "producer":
            self.producer.close()
            self.producer = RingProducer(self.memory, 0)
        else:
            self.consumer.close()
            self.consumer = RingConsumer(self.memory, 0)

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "model"):
            assert self.consumer.has_data == bool(self.model)
            assert self.producer.free_items == self.queue_size - self.items
            assert self.consumer.queued_items == ring_items(self.memory) == self.items
            assert Poller([self.consumer], []).ready() == bool(self.model)

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            self.producer.close()
            self.consumer.close()
            self.memory.close()


TestRingMachine = RingMachine.TestCase
TestRingMachine.settings = examples(60, stateful_step_count=40)


def test_frames_have_at_most_a_quarter_of_the_queue() -> None:
    _, producer, consumer = make_ring(65536, 100)
    assert [producer.push(codec, list(range(1000)), 0, 1000) for _ in range(5)] == [25, 25, 25, 25, 0]
    assert consumer.pull(codec) == list(range(25))
    assert consumer.pull(codec, 1000) == list(range(25)) * 3


def test_a_refused_push_waits_for_half_of_the_ring_and_not_for_every_frame() -> None:
    _, producer, consumer = make_ring(65536, 100)
    poller = Poller([], [producer])
    while producer.push(codec, [1] * 25, 0, 25):
        pass
    consumer.pull(codec)
    assert not poller.ready()
    consumer.pull(codec)
    assert poller.ready()
    assert producer.push(codec, [1], 0, 1) == 1
    assert not producer.blocked
    assert not poller.ready()


def test_few_free_places_are_not_filled_with_tiny_frames() -> None:
    _, producer, _ = make_ring(65536, 80)
    for _ in range(4):
        producer.push(codec, [1] * 19, 0, 19)
    assert producer.free_items == 4
    assert producer.push(codec, [1] * 20, 0, 20) == 0
    assert producer.push(codec, [1] * 4, 0, 4) == 4


def test_items_that_are_no_columns_and_items_too_large_are_told_apart() -> None:
    _, producer, _ = make_ring()
    assert producer.push(codec, [object()], 0, 1) == -1
    assert producer.push(codec, [b"x" * 2049], 0, 1) == -2
    assert producer.push(codec, [1, b"x" * 2049], 0, 2) == 1
    assert producer.push(codec, [], 0, 0) == 0


def test_a_frame_shrinks_until_its_bytes_fit() -> None:
    _, producer, consumer = make_ring(4096, 100)
    items = [b"%03d" % i * 100 for i in range(20)]
    done, out = 0, list[bytes]()
    while len(out) < 20:
        done += producer.push(codec, items, done, 20)
        while isinstance(got := consumer.pull(codec), list):
            out += got
    assert out == items


def test_a_poller_looks_at_enabled_inputs_only() -> None:
    _, producer, consumer = make_ring()
    _, _, empty = make_ring()
    poller = Poller([empty, consumer], [producer])
    assert not poller.ready()
    producer.push(codec, [1], 0, 1)
    assert poller.ready()
    assert poller.ready_inputs() == [1]
    consumer.enabled = False
    assert not poller.ready()
    assert poller.ready_inputs() == []
    consumer.enabled = True
    poller.inputs = False
    assert not poller.ready()
    assert poller.ready_inputs() == [1]


def test_a_held_record_keeps_the_mapping() -> None:
    memory, producer, consumer = make_ring()
    producer.push_bytes(9, 0, 0, 1, [b"abc"])
    got = consumer.pull(codec)
    assert got is not None
    view = got[4]
    with pytest.raises(ValueError, match="release"):
        consumer.pull(codec)
    with pytest.raises(BufferError):
        consumer.close()
    del consumer, got
    with pytest.raises(BufferError):
        memory.close()
    assert bytes(view) == b"abc"


def test_admission_is_asked_without_writing() -> None:
    _, producer, consumer = make_ring(4096, 8)
    assert producer.admit(8, 100)
    with pytest.raises(ValueError):
        producer.admit(9, 100)
    with pytest.raises(ValueError):
        producer.admit(1, 3000)
    producer.push_bytes(1, 2, 0, 8, [b"x"])
    assert not producer.admit(1, 100)
    assert producer.blocked
    got = consumer.pull(codec)
    assert got is not None
    got[4].release()
    consumer.release()
    assert Poller([], [producer]).ready()
    assert producer.admit(1, 100)


@pytest.mark.parametrize("capacity", [0, 4095, 4097, 6000, 2**32, -4096])
def test_a_wrong_capacity_is_an_error(capacity: int) -> None:
    with mmap.mmap(-1, 1 << 16) as memory, pytest.raises(ValueError, match="power of two"):
        ring_format(memory, 0, capacity, 10)


def test_a_ring_must_lie_in_its_buffer_and_be_aligned_and_formatted() -> None:
    with mmap.mmap(-1, 1 << 16) as memory:
        for offset in (-64, 1 << 16, (1 << 16) - 4096):
            with pytest.raises(ValueError, match="does not lie"):
                ring_format(memory, offset, 4096, 10)
        with pytest.raises(ValueError, match="aligned"):
            ring_format(memory, RING_ALIGNMENT // 2, 4096, 10)
        with pytest.raises(ValueError, match="no ring"):
            RingProducer(memory, 0)
        with pytest.raises(ValueError, match="queue_size"):
            ring_format(memory, 0, 4096, 0)
        ring_format(memory, 0, 1 << 12, 10)
        memory[8:16] = (1 << 16).to_bytes(8, "little")
        with pytest.raises(ValueError, match="does not lie"):
            RingConsumer(memory, 0)
        with pytest.raises(BufferError):
            RingProducer(bytes(8192), 0)  # type: ignore[arg-type, unused-ignore]


@pytest.mark.parametrize(
    ("offset", "value"),
    [(RING_HEADER, 10**6), (RING_HEADER + 8, 2000), (128, 4096 * 5), (128, 24)],
    ids=["length", "count", "tail", "unaligned tail"],
)
def test_damaged_words_are_errors(offset: int, value: int) -> None:
    memory, producer, consumer = make_ring(4096, 100)
    producer.push(codec, [1, 2, 3], 0, 3)
    memory[offset : offset + 4] = value.to_bytes(4, "little")
    with pytest.raises(RingCorruptError):
        consumer.pull(codec)


def test_a_damaged_head_is_an_error_of_the_producer() -> None:
    memory, producer, _ = make_ring(4096, 4)
    memory[384:392] = (1 << 20).to_bytes(8, "little")
    with pytest.raises(RingCorruptError):
        for _ in range(5):
            producer.push(codec, [1], 0, 1)


def test_closed_objects_say_so() -> None:
    memory, producer, consumer = make_ring()
    bell = Doorbell(mmap.mmap(-1, 4096), 0)
    for thing in (producer, consumer, bell):
        thing.close()
        thing.close()
    for call in (
        lambda: producer.push(codec, [1], 0, 1),
        lambda: producer.push_mark(frames.KIND_DONE, 0),
        lambda: producer.free_bytes,
        lambda: consumer.pull(codec),
        bell.ring,
        lambda: bell.commands,
    ):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert not consumer.has_data
    assert not Poller([consumer], [producer]).ready()
    memory.close()


def test_no_wake_mark_is_left_in_an_empty_ring() -> None:
    """Who looked while the ring was full may ask when it is empty: a mark would lie where no reader ever comes."""
    memory = mmap.mmap(-1, RING_HEADER + 4096)
    ring_format(memory, 0, 4096, 64)
    producer, consumer = RingProducer(memory, 0), RingConsumer(memory, 0)
    assert producer.push_mark(2, 1)
    assert producer.leave_mark(24)  # the reader has not passed it
    assert consumer.pull(Codec()) == (2, 1, 0)
    assert not producer.leave_mark(24)
    producer.close()
    consumer.close()
