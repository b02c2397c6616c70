"""The pages in docs/formats hold what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from shmjet._native import DOORBELL_SIZE
from shmjet.execution import control, counters
from shmjet.execution.layout import (
    CANCELLED_OFFSET,
    COUNTERS,
    HEADER_SIZE,
    INBOUND_COUNTERS,
    OUTBOUND_COUNTERS,
    TRAFFIC_COUNTERS,
)
from shmjet.execution.readiness import PREPARING, READY, STARTED
from shmjet.execution.ring_places import MAX_RING, MIN_RING

FORMATS = Path(__file__).parents[2] / "docs" / "formats"


def rows(page: str) -> dict[str, str]:
    """Return the first column -> last column of all tables of a page."""
    found = re.findall(r"^\| ([^|]+) \|(?:[^|\n]*\|)* ([^|]+) \|$", (FORMATS / page).read_text(), re.MULTILINE)
    return {first.strip(): last.strip() for first, last in found}


def test_the_page_of_the_control_segment_has_its_offsets() -> None:
    table = rows("control.md")
    assert f"a block of {control.BLOCK_SIZE} bytes" in (FORMATS / "control.md").read_text()
    assert f"{DOORBELL_SIZE} bytes" in table["0"]
    for word, text in [
        (control.PID, "pid"),
        (control.HEARTBEAT_NS, "heartbeat"),
        (control.BUSY_NS, "spent in rounds"),
        (control.IDLE_NS, "spent asleep"),
        (control.TASKLETS, "tasklets"),
        (control.ROUNDS, "rounds"),
        (control.SLEEPS, "sleeps"),
        (control.CURRENT_EXECUTION, "the execution"),
        (control.SLAB_BYTES, "put into slabs"),
        (control.CHANGES, "has got its arena"),
    ]:
        assert text in table[str(DOORBELL_SIZE + 8 * word)]


def test_the_page_of_the_arena_has_its_offsets() -> None:
    table = rows("arena.md")
    assert str(HEADER_SIZE) in table
    assert f"header; byte {CANCELLED_OFFSET} is 1" in (FORMATS / "arena.md").read_text()
    assert f"{control.BLOCK_SIZE} per carrier" in (FORMATS / "arena.md").read_text()
    states = f"{PREPARING}: its processors are not initialised, {READY}: they are, {STARTED}: it has started"
    assert states in (FORMATS / "arena.md").read_text()
    assert (MIN_RING, MAX_RING) == (4 << 10, 1 << 20)
    for word, text in [
        (counters.SLOW_CALLS, "more than 5 ms"),
        (counters.BUSY_NS, "nanoseconds"),
        (counters.RECEIVED, "items received"),
        (counters.RECEIVED_BATCHES, "lists"),
        (counters.EMITTED, "emitted"),
        (counters.TOP_OBSERVED_WATERMARK, "highest watermark"),
        (counters.COALESCED_WATERMARK, "coalesced"),
        (counters.LAST_FORWARDED_WATERMARK, "dealt with"),
        (counters.STATE, "state"),
        (counters.BLOCKED, "had to wait"),
        (counters.WORK_DONE, "it has done"),
        (counters.WORK_TOTAL, "of how much"),
        (counters.FORWARDED_IDLE, "idle message"),
        (counters.TIME_CHANGED_NS, "has changed"),
        (counters.SOURCE_PARTITIONS, "number of source partitions"),
        (counters.IDLE_PARTITIONS, "idle ones"),
        (counters.SLOWEST_PARTITION, "lowest watermark"),
        (counters.SLOWEST_PARTITION_WATERMARK, "its watermark"),
        (counters.SLOWEST_PARTITION_EVENTS, "events"),
        (counters.LATE_EVENTS_DROPPED, "too late"),
        (counters.FAILED_ITEMS_SKIPPED, "skipped"),
        (counters.WORK_UNIT, " items, 1 ".join(("0", "bytes"))),
    ]:
        assert text in table[str(word)]
    assert counters.WORK_UNITS == ("items", "bytes")
    for word, text in [
        (counters.RECEIVED_ITEMS, "items received"),
        (counters.RECEIVED_LISTS, "lists"),
        (counters.EDGE_COALESCED_WATERMARK, "coalesced"),
        (counters.SLOWEST_LANE, "lowest watermark"),
        (counters.SLOWEST_LANE_WATERMARK, "its watermark"),
        (counters.EDGE_STATE, f"{counters.EDGE_IDLE}: all lanes are idle, {counters.EDGE_DONE}: all have ended"),
    ]:
        assert text in table[f"{COUNTERS + word} + {INBOUND_COUNTERS} i"]
    for word, text in [
        (counters.EMITTED_ITEMS, "items emitted"),
        (counters.WAITED_NS, "has waited for room"),
        (counters.WAITING_SINCE, "since when it waits"),
        (counters.QUEUED_LOCALLY, "stay in this process"),
    ]:
        assert text in table[f"{COUNTERS + word} + {INBOUND_COUNTERS} n + {OUTBOUND_COUNTERS} o"]
    assert f"{8 * TRAFFIC_COUNTERS} per edge and other member" in (FORMATS / "arena.md").read_text()
    for word, text in [
        (counters.ITEMS_OUT, "items that have left"),
        (counters.BYTES_OUT, "bytes that have left"),
        (counters.ITEMS_IN, "items that have come"),
        (counters.BYTES_IN, "bytes that have come"),
    ]:
        assert text in table[f"t + {word}" if word else "t"]
