"""The counters of one processor in its execution's arena; anyone who maps the arena may read them at any time.

Only the processor's tasklet writes its block. A reader may see a block half way through an update: each number is
right by itself, sums across numbers may be a call apart. `docs/formats/arena.md` has the offsets.
"""

from __future__ import annotations

import os
from array import array
from functools import lru_cache

from shmjet.execution.layout import COUNTERS, INBOUND_COUNTERS, OUTBOUND_COUNTERS, counters_size

COUNTS = os.environ.get("SHMJET_METRICS", "") != "0"
"""False with SHMJET_METRICS=0: processors publish no numbers. `bench/overhead.py` measures so what they cost."""

CALLS = 0
SLOW_CALLS = 1
BUSY_NS = 2
RECEIVED = 3
RECEIVED_BATCHES = 4
EMITTED = 5
TOP_OBSERVED_WATERMARK = 6
COALESCED_WATERMARK = 7
LAST_FORWARDED_WATERMARK = 8
STATE = 9
BLOCKED = 10
WORK_DONE = 11
WORK_TOTAL = 12
"""How much of its work a source has done, and of how much if it knows that; else 0."""
WORK_UNIT = 13
"""What these two count: an index into `WORK_UNITS`."""

LATE_EVENTS_DROPPED = 14
FAILED_ITEMS_SKIPPED = 15
"""What the processor itself counts, in attributes of these names."""

FORWARDED_IDLE = 16
"""1 while the last mark of time that it has sent is the idle message."""
TIME_CHANGED_NS = 17
"""When the word of its coalesced watermark, or of the one sent last, has changed, by `perf_counter_ns`; 0: never."""
SOURCE_PARTITIONS = 18
IDLE_PARTITIONS = 19
SLOWEST_PARTITION = 20
SLOWEST_PARTITION_WATERMARK = 21
SLOWEST_PARTITION_EVENTS = 22
"""What its `time_facts` say: how many source partitions it has, how many of them are idle, and which of the others has
the lowest watermark (-1: none), with that watermark and how many events have come from it."""
SOURCE_WATERMARK = 23
"""How far a source tells the others of its job that it is (`source_alignment`); none: it takes no part."""

RECEIVED_ITEMS = 0
RECEIVED_LISTS = 1
EDGE_COALESCED_WATERMARK = 2
SLOWEST_LANE = 3
SLOWEST_LANE_WATERMARK = 4
EDGE_STATE = 5
"""The words of an inbound ordinal; the slowest lane is the active one with the lowest watermark, -1: there is none."""
EDGE_ACTIVE, EDGE_IDLE, EDGE_DONE = 0, 1, 2

WORK_UNITS = ("items", "bytes")

EMITTED_ITEMS = 0
WAITED_NS = 1
WAITING_SINCE = 2
QUEUED_LOCALLY = 3
"""The words of an outbound ordinal."""

ITEMS_OUT = 0
BYTES_OUT = 1
ITEMS_IN = 2
BYTES_IN = 3
"""The words of an edge and another member."""

NO_WATERMARK = -(2**63)
_HIGHEST = 2**63 - 1

_WATERMARKS = (
    TOP_OBSERVED_WATERMARK,
    COALESCED_WATERMARK,
    LAST_FORWARDED_WATERMARK,
    SLOWEST_PARTITION_WATERMARK,
    SOURCE_WATERMARK,
)


@lru_cache(maxsize=64)
def blank_block(inbound: int, outbound: int) -> bytes:
    """Return a block as it is at the start: zeros, and no watermark seen."""
    words = array("q", bytes(counters_size(inbound, outbound)))
    for i in _WATERMARKS:
        words[i] = NO_WATERMARK
    words[SLOWEST_PARTITION] = -1
    for at in range(COUNTERS, COUNTERS + INBOUND_COUNTERS * inbound, INBOUND_COUNTERS):
        words[at + EDGE_COALESCED_WATERMARK] = words[at + SLOWEST_LANE_WATERMARK] = NO_WATERMARK
    return words.tobytes()


class ProcessorCounters:
    """A processor's block of counters.

    Args:
        memory: of the arena; writable for the processor's tasklet.
        offset: where the block starts, in bytes.
        inbound: number of inbound ordinals.
        outbound: number of outbound ordinals.
    """

    def __init__(self, memory: memoryview, offset: int, inbound: int, outbound: int) -> None:
        self.words = memory[offset : offset + counters_size(inbound, outbound)].cast("q")
        self.inbound = inbound
        self.outbound = outbound

    def received_at(self, ordinal: int) -> int:
        """Return the index of an inbound ordinal's words, of which the first counts items."""
        return COUNTERS + INBOUND_COUNTERS * ordinal

    def emitted_at(self, ordinal: int) -> int:
        """Return the index of an outbound ordinal's words, of which the first counts items."""
        return COUNTERS + INBOUND_COUNTERS * self.inbound + OUTBOUND_COUNTERS * ordinal

    def note_waiting(self, ordinal: int, since_ns: int) -> None:
        """Say that an outbound ordinal waits for room since then (by `perf_counter_ns`)."""
        self.words[self.emitted_at(ordinal) + WAITING_SINCE] = since_ns

    def note_room(self, ordinal: int, now_ns: int) -> None:
        """Say that an outbound ordinal waits no longer, and add the time up."""
        at, to = self.emitted_at(ordinal), self.words
        to[at + WAITED_NS] += now_ns - to[at + WAITING_SINCE]
        to[at + WAITING_SINCE] = 0

    def waited_ns(self, ordinal: int, now_ns: int) -> int:
        """Return how long an outbound ordinal has waited for room so far, the present wait included."""
        at, words = self.emitted_at(ordinal), self.words
        waited, since = words[at + WAITED_NS], words[at + WAITING_SINCE]
        return int(waited + max(0, now_ns - since) if since else waited)

    def hold_no_source(self) -> None:
        """Say that other sources need not wait for this processor any more, if they did."""
        if self.words[SOURCE_WATERMARK] != NO_WATERMARK:
            self.words[SOURCE_WATERMARK] = _HIGHEST

    def watermark(self, index: int) -> int | None:
        """Return a watermark word, None where none was seen."""
        value = self.words[index]
        return None if value == NO_WATERMARK else value

    def release(self) -> None:
        """Let go of the memory."""
        self.words.release()


class TrafficCounters:
    """What has gone to another member on one edge, and has come from there. Only the link process writes it.

    It counts before anyone can see what is counted, so that nothing is missing when an execution has ended.

    Args:
        words: the whole arena as 64-bit words, writable.
        offset: where the counters start, in bytes.
    """

    __slots__ = ("_at", "_words")

    def __init__(self, words: memoryview, offset: int) -> None:
        self._words = words
        self._at = offset // 8

    @property
    def out(self) -> memoryview:
        """The words for items and bytes of payload that leave, for the code that counts them."""
        return self._words[self._at + ITEMS_OUT : self._at + BYTES_OUT + 1]

    @property
    def into(self) -> memoryview:
        """The words for items and bytes of payload that have come."""
        return self._words[self._at + ITEMS_IN : self._at + BYTES_IN + 1]
