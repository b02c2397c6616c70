"""Floor 0: the C parts — rings in shared memory, doorbells, the column codec, key hashing and routing.

This floor must not know anything of Jet: no processors, no jobs, no watermarks beyond "a mark with a number". The rules
of memory order are in the headers (`ring/ring.h`, `ring/doorbell.h`), which contain no Python and have a test in C of
their own; `_core.pyi` types and describes everything exported here. The ring is modelled on Aeron's and rigtorp's SPSC
queues.
"""

import os
import sys

try:
    from shmjet._native._core import (
        CLAIMS_HEADER,
        CRC32_IS_FAST,
        DOORBELL_SIZE,
        RECORD_HEADER,
        RING_ALIGNMENT,
        RING_HEADER,
        RING_MIN_CAPACITY,
        SLAB_UNIT,
        Claims,
        Coalescer,
        Codec,
        Doorbell,
        EdgeFlow,
        LinkLoop,
        NumberSorter,
        PacketReader,
        PacketWriter,
        Poller,
        RingConsumer,
        RingCorruptError,
        RingProducer,
        SlabReader,
        SlabWriter,
        Slot,
        Tally,
        Totals,
        add_up,
        ascends,
        clock_ns,
        crc32,
        cut_frames,
        cut_results,
        grow_stack,
        hold_reserve,
        index_of_special,
        journal_events,
        journal_parts,
        keyed_results,
        murmur3_32,
        name_tuples,
        partition_of,
        push_marks,
        release_reserve,
        ring_format,
        ring_items,
        ring_totals,
        short_slice,
        sort_numbers,
        sort_texts,
        split,
        split_entries,
        unify_nans,
    )
except ImportError as _error:
    _root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    _is_checkout = os.path.exists(os.path.join(_root, "setup.py"))
    _remedy = (
        f"run `{sys.executable} setup.py build_ext --inplace` in {_root}" if _is_checkout else "install shmjet again"
    )
    _lack = "is not built" if isinstance(_error, ModuleNotFoundError) else f"is not that of this version ({_error})"
    raise ImportError(f"the C extension of shmjet in {_root} {_lack}: {_remedy}", name=_error.name) from None

__all__ = [
    "CLAIMS_HEADER",
    "CRC32_IS_FAST",
    "DOORBELL_SIZE",
    "RECORD_HEADER",
    "RING_ALIGNMENT",
    "RING_HEADER",
    "RING_MIN_CAPACITY",
    "SLAB_UNIT",
    "Claims",
    "Coalescer",
    "Codec",
    "Doorbell",
    "EdgeFlow",
    "LinkLoop",
    "NumberSorter",
    "PacketReader",
    "PacketWriter",
    "Poller",
    "RingConsumer",
    "RingCorruptError",
    "RingProducer",
    "SlabReader",
    "SlabWriter",
    "Slot",
    "Tally",
    "Totals",
    "add_up",
    "ascends",
    "clock_ns",
    "crc32",
    "cut_frames",
    "cut_results",
    "grow_stack",
    "hold_reserve",
    "index_of_special",
    "journal_events",
    "journal_parts",
    "keyed_results",
    "murmur3_32",
    "name_tuples",
    "partition_of",
    "push_marks",
    "release_reserve",
    "ring_format",
    "ring_items",
    "ring_totals",
    "short_slice",
    "sort_numbers",
    "sort_texts",
    "split",
    "split_entries",
    "unify_nans",
]
