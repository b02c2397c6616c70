"""docs/formats/spark-feed.md against the code; slots, and what waits where."""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import shmjet.spark
from shmjet import BatchError
from shmjet.cluster import protocol as member_protocol
from shmjet.spark import protocol as feed_protocol
from shmjet.spark.protocol import ALIGNMENT, Content, Mode, padded, put_head, records
from shmjet.spark.shm_area import AttachedArea, FeedArea
from shmjet.spark.staging import Extent, Room, StagingMemory, room_for


def test_a_record_lies_as_the_page_says() -> None:
    memory = bytearray(padded(100) + padded(3))
    put_head(memory, 0, Content.ARROW_LARGE, 0xCAFE, 5, 0, 100, 103, 0)
    put_head(memory, padded(100), Content.ARROW_LARGE, 0xBEEF, 6, 40, 3, 103, 100)
    assert struct.unpack_from("<IIQQQQQ", memory) == (2, 0xCAFE, 5, 0, 100, 103, 0)
    assert memory[48:64] == bytes(16)
    one, two = records(memory, len(memory))
    assert (one.place, two.place) == (64, 192 + 64)
    assert ALIGNMENT == 64
    assert (one.is_whole, one.ends_frame, two.is_whole, two.ends_frame) == (False, False, False, True)
    assert [int(content) for content in Content] == [1, 2, 3, 4]
    assert two.rows == 40


@pytest.mark.parametrize("used", [32, 64, 190])
def test_what_is_no_record_is_an_error(used: int) -> None:
    memory = bytearray(256)
    put_head(memory, 0, 1, 0, 0, 1, 100, 100, 0)
    with pytest.raises(BatchError, match="Spark task's slot"):
        records(memory, used)


def test_a_slot_is_free_when_the_last_view_of_it_is_gone() -> None:
    area = FeedArea(1 << 16, 2, "test")
    one, two = area.take(), area.take()
    assert {one, two} == {0, 1}
    assert area.take() is None
    assert one is not None
    view = area.view(one)
    part = view[8:16]
    del view
    assert area.viewed == 1
    assert area.take() is None
    del part
    assert area.take() == one
    area.close()


def test_a_task_may_let_go_of_an_area_whose_slot_it_still_holds() -> None:
    """As it does when its function raised in the middle of a slot: that error must reach Spark, and no other."""
    area = FeedArea(1 << 16, 2, "test")
    attached = AttachedArea(os.dup(area.fd), 1 << 16, 2)
    slot = attached.slot(1)
    slot[0] = 7
    attached.close()
    assert slot[0] == 7
    assert area.memory(1)[0] == 7
    area.close()


def test_a_view_outlives_its_area() -> None:
    area = FeedArea(1 << 16, 1, "test")
    slot = area.take()
    assert slot == 0
    view = area.view(slot)
    area.close()
    assert view[0] == 0


@pytest.mark.parametrize(
    ("mode", "free", "slots", "visible", "room"),
    [
        (Mode.PARTITION, True, 0, 0, Room.SLOT),
        (Mode.PARTITION, False, 1, 10, Room.WAIT),
        (Mode.PARTITION, False, 0, 10, Room.FILE),
        (Mode.PARTITION, True, 0, 100, Room.WAIT),
        (Mode.ROUND, False, 0, 0, Room.FILE),
        (Mode.STREAM, False, 0, 0, Room.WAIT),
        (Mode.STREAM, True, 0, 500, Room.SLOT),
    ],
)
def test_who_gets_memory(mode: Mode, free: bool, slots: int, visible: int, room: Room) -> None:
    assert room_for(mode, free, slots, visible, 100) is room


def test_a_hardly_used_slot_is_moved_out_of() -> None:
    area = FeedArea(1 << 16, 1, "test")
    staging = StagingMemory(area, 1 << 16)
    _, slot = staging.room(Mode.PARTITION)
    extent = Extent(64, slot)
    staging.compact(extent)
    assert area.take() == slot
    staging.mark_visible(extent)
    assert (staging.visible_bytes, staging.visible_slots) == (64, 0)
    assert bytes(staging.open(extent)) == bytes(64)
    area.close()


def test_the_writer_in_java_names_messages_that_there_are() -> None:
    source = (Path(shmjet.spark.__file__).parent / "direct" / "attempt.java").read_text()
    names = set(re.findall(r'Object\[\] \{"(\w+)"|answer\[0\]\.equals\("(\w+)"\)', source))
    wanted = {sent or received for sent, received in names}
    assert {"Begin", "Grant", "EndpointConnected"} <= wanted
    assert [
        name for name in sorted(wanted) if not hasattr(feed_protocol, name) and not hasattr(member_protocol, name)
    ] == []
