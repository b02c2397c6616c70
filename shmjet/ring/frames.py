"""Numbers of the frame format: record kinds, codec ids, flags, and the layout of a pickled payload.

`docs/formats/ring.md` and `docs/formats/frame.md` describe the bytes; a test holds the pages against this module and
the C headers. Nothing here knows what an item means.
"""

from __future__ import annotations

import struct
from typing import Final

from shmjet.data.marks import Barrier, Mark, Watermark

RECORD: Final = struct.Struct("=IBBHII")
"""A record's header: payload length, kind, codec, flags, item count, reserved (0)."""

KIND_ITEMS: Final = 1
KIND_WATERMARK: Final = 2
KIND_BARRIER: Final = 3
KIND_DONE: Final = 4
KIND_FRAGMENT: Final = 5
"""A piece of an item that is larger than a record may be."""
KIND_SKIP: Final = 255
"""Fills the end of the ring; never leaves the C code."""

CODEC_NONE: Final = 0
"""Marks have no codec."""
CODEC_COLUMNS: Final = 1
"""Columns of plain values, written and read in C."""
CODEC_PICKLE: Final = 2
"""A pickle (protocol 5) of a list of items, with its out-of-band buffers behind it."""
CODEC_BYTES: Final = 3
"""One bytes object as it is; only in fragments."""
CODEC_BATCH: Final = 4
"""A batch of columns, as `shmjet.ring.batch_frames` writes it."""
CODEC_SLOT: Final = 5
"""The place of a batch of columns in a slab: a `SLOT`."""

FLAG_TERMINAL: Final = 1
"""Of a barrier: the job ends after it."""
FLAG_FIRST: Final = 1
"""Of a fragment: the item starts here, behind a `FRAGMENT_HEAD`."""
FLAG_LAST: Final = 2
"""Of a fragment: the item ends here; this one carries its item count of 1."""
FLAG_CANCEL: Final = 4
"""Of a fragment: forget what came of the item so far."""

FRAGMENT_HEAD: Final = struct.Struct("=Q")
"""Bytes of the whole encoded item, at the start of its first fragment."""

SLOT: Final = struct.Struct("=IIQQ")
"""Number of the slab, 0, offset in its data, bytes."""

PICKLE_HEAD: Final = struct.Struct("=IIQ")
"""Of a pickled payload: number of out-of-band buffers, 0, bytes of the pickle; then a `BUFFER_SIZE` for each buffer."""
BUFFER_SIZE: Final = struct.Struct("=Q")
BUFFER_ALIGNMENT: Final = 16
"""Pickle and buffers start at multiples of this from the start of the payload."""


def numbers_of(mark: Mark) -> tuple[int, int, int]:
    """Return kind, value and flags of the record of a mark.

    Example:
        >>> numbers_of(Watermark(7)), numbers_of(Barrier(3, terminal=True))
        ((2, 7, 0), (3, 3, 1))
    """
    if isinstance(mark, Watermark):
        return KIND_WATERMARK, mark.timestamp, 0
    if isinstance(mark, Barrier):
        return KIND_BARRIER, mark.snapshot_id, FLAG_TERMINAL if mark.terminal else 0
    return KIND_DONE, 0, 0
