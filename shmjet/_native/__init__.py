"""Floor 0: the C parts — rings in shared memory, doorbells, the column codec, key hashing and routing.

This floor must not know anything of Jet: no processors, no jobs, no watermarks beyond "a mark with a number". The rules
of memory order are in the headers (`ring.h`, `doorbell.h`), which contain no Python and have a test in C of their own;
`_core.pyi` types and describes everything exported here. The ring is modelled on Aeron's and rigtorp's SPSC queues.
"""

from shmjet._native._core import (
    DOORBELL_SIZE,
    RECORD_HEADER,
    RING_ALIGNMENT,
    RING_HEADER,
    RING_MIN_CAPACITY,
    Codec,
    Doorbell,
    Poller,
    RingConsumer,
    RingCorruptError,
    RingProducer,
    Tally,
    clock_ns,
    index_of_special,
    murmur3_32,
    partition_of,
    ring_format,
    ring_items,
    split,
)

__all__ = [
    "DOORBELL_SIZE",
    "RECORD_HEADER",
    "RING_ALIGNMENT",
    "RING_HEADER",
    "RING_MIN_CAPACITY",
    "Codec",
    "Doorbell",
    "Poller",
    "RingConsumer",
    "RingCorruptError",
    "RingProducer",
    "Tally",
    "clock_ns",
    "index_of_special",
    "murmur3_32",
    "partition_of",
    "ring_format",
    "ring_items",
    "split",
]
