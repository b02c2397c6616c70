"""A feed's processor, driven through sockets by hand."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from shmjet import Batch
from shmjet.ipc.channel import Channel
from shmjet.ring.batch_frames import BatchCodec, padded
from shmjet.spark import protocol
from shmjet.spark.feed_processor import FeedProcessor, slots_for
from shmjet.spark.protocol import Content, Mode, Receipt
from shmjet.spark.shm_area import AttachedArea
from shmjet.testing import TestContext, TestOutbox


class ProcessorEndpoint:
    def __init__(self) -> None:
        self.waiting: deque[socket.socket] = deque()

    def take(self) -> socket.socket | None:
        return self.waiting.popleft() if self.waiting else None


class Rig:
    """A processor with an outbox, and connections made of socket pairs."""

    def __init__(self) -> None:
        self.endpoint = ProcessorEndpoint()
        self.processor = FeedProcessor("feed", (), 1 << 16)
        self.outbox = TestOutbox(100)
        self.processor.init(self.outbox, TestContext(open_endpoint=lambda name: self.endpoint))
        self.channels: list[Channel] = []

    def connection(self, *, driver: bool = False) -> Channel:
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        self.endpoint.waiting.append(theirs)
        channel = Channel(ours, protocol.Answer)
        self.channels.append(channel)
        channel.send(protocol.Hello(driver))
        return channel

    def step(self) -> bool:
        self.outbox.begin_callback()
        return self.processor.complete()

    def ask(self, channel: Channel, *messages: protocol.Message) -> tuple[Any, list[int]]:
        for message in messages:
            channel.send(message)
        self.step()
        return channel.receive()

    def close(self) -> None:
        self.processor.close()
        for channel in self.channels:
            channel.close()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def opened(rig: Rig, mode: Mode, partitions: int = 1) -> Channel:
    driver = rig.connection(driver=True)
    rig.step()
    assert driver.receive()[0].processors == 1
    assert rig.ask(driver, protocol.OpenRound(0, partitions, mode))[0] == protocol.RoundOpened(0, False)
    return driver


def task(rig: Rig) -> tuple[Channel, AttachedArea]:
    channel = rig.connection()
    rig.step()
    welcome, fds = channel.receive()
    return channel, AttachedArea(fds[0], welcome.slot_size, welcome.slots)


def test_an_attempt_that_is_superseded_keeps_its_slot_until_it_has_stopped(rig: Rig) -> None:
    opened(rig, Mode.PARTITION)
    slow, slow_area = task(rig)
    fast, fast_area = task(rig)
    granted = rig.ask(slow, protocol.Begin(0, 0, 1), protocol.Want())[0].slot
    rig.ask(slow, protocol.Want())  # the one after, while it writes
    verdict = rig.ask(fast, protocol.Begin(0, 0, 2), protocol.End(0, 0, 0))[0]
    assert verdict == protocol.Verdict(Receipt(0, 2, 0, 0))
    assert rig.ask(slow, protocol.Want())[0] == protocol.Superseded(Receipt(0, 2, 0, 0))
    area = rig.processor.area
    assert area is not None
    free = []
    while (slot := area.take()) is not None:
        free.append(slot)
    assert granted not in free
    slow.send(protocol.Abandon())
    rig.step()
    assert {area.take(), area.take()} >= {granted}
    slow_area.close()
    fast_area.close()


def test_rows_are_seen_with_the_end_and_the_source_ends_after_the_receipts(rig: Rig) -> None:
    driver = opened(rig, Mode.PARTITION)
    sender, area = task(rig)
    slot = rig.ask(sender, protocol.Begin(0, 0, 7), protocol.Want())[0].slot
    batch = Batch({"v": [1, 2, 3]})
    parts, size = BatchCodec().encode(batch)
    payload = b"".join(bytes(memoryview(part).cast("B")) for part in padded(parts))
    memory = area.slot(slot)
    protocol.put_head(memory, 0, Content.BATCH, 0, 0, 3, size, size, 0)
    memory[64 : 64 + len(payload)] = payload
    sender.send(protocol.Filled(slot, protocol.padded(size)))
    rig.step()
    assert rig.outbox.drain(0) == []
    assert rig.ask(sender, protocol.End(1, 3, 0))[0].winner == Receipt(0, 7, 1, 3)
    assert rig.outbox.drain(0) == [batch]
    assert rig.ask(driver, protocol.CloseRound(0, [Receipt(0, 7, 1, 3)]))[0] == protocol.RoundClosed(0)
    driver.send(protocol.Finish())
    assert rig.step()
    del memory
    area.close()


def test_what_a_task_has_sent_is_dropped_when_its_socket_ends(rig: Rig) -> None:
    opened(rig, Mode.ROUND)
    area = rig.processor.area
    assert area is not None
    sender, attached = task(rig)
    slot = rig.ask(sender, protocol.Begin(0, 0, 7), protocol.Want())[0].slot
    sender.close()
    rig.channels.remove(sender)
    rig.step()
    taken = [area.take() for _ in range(slots_for(1 << 16, 1)[1])]
    assert slot in taken
    attached.close()


def test_when_the_clients_feed_is_gone_the_job_fails(rig: Rig) -> None:
    driver = opened(rig, Mode.PARTITION)
    driver.close()
    with pytest.raises(Exception, match="the process that runs the Spark job of this feed is gone"):
        rig.step()


def test_sparks_failure_fails_the_job(rig: Rig) -> None:
    driver = opened(rig, Mode.PARTITION)
    driver.send(protocol.Failure("Spark: no such table", "at line 7"))
    with pytest.raises(Exception, match="Spark: no such table") as caught:
        rig.step()
    assert caught.value.__notes__ == ["at line 7"]


def test_a_task_waits_for_nothing_but_rows_that_can_be_seen(rig: Rig) -> None:
    """When memory is full of what cannot be seen yet, the task gets a file."""
    opened(rig, Mode.ROUND)
    sender, attached = task(rig)
    sender.send(protocol.Begin(0, 0, 7))
    answers = [rig.ask(sender, protocol.Want()) for _ in range(slots_for(1 << 16, 1)[1] + 1)]
    assert [type(answer) for answer, _ in answers] == [protocol.Grant] * 8 + [protocol.Spill]
    (file,) = answers[-1][1]
    os.close(file)
    attached.close()
