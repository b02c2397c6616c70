"""The times of an entry: when it ends, when it was last used, and what it weighs.

An entry has them in a trailer around its value, and only if it ends or its map has a limit. The trailer is made and
read here, and nowhere are values decoded for that. Times are nanoseconds of the host's clock since boot, which nothing
sets; 0 stands for none.

`Uses` is what readers write: the moments of use, in shared memory.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shmjet.data.decoders import msgpack_decoder

TIMED = 3
"""Extension code of a value with a trailer; 1 and 2 are those of `entries`."""
TRAILER = struct.Struct(">QQQ")
_PAIR, EXT_32 = b"\x92", struct.Struct(">BIb")
"""A msgpack array of two elements; the head of an extension with four bytes of length: 0xc9, length and code."""
_parts = msgpack_decoder(tuple[msgspec.Raw, msgspec.Raw]).decode

SLOTS = 1 << 16
LONGEST_NS = 1 << 62


class Times(NamedTuple):
    """See the module. `end` and `used` are moments, 0 for none; `weight` is in bytes."""

    end: int
    used: int
    weight: int


def now() -> int:
    """Return the time of the host's clock since boot in nanoseconds."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def with_times(stored: bytes, times: Times) -> bytes:
    """Return a stored entry with this trailer, in place of any that it has."""
    key, value = _parts(stored)
    plain = _value(bytes(value))
    head = EXT_32.pack(0xC9, len(plain) + TRAILER.size, TIMED)
    return b"".join((_PAIR, key, head, plain, TRAILER.pack(*times)))


def without_times(stored: bytes) -> bytes:
    """Return a stored entry without a trailer."""
    key, value = _parts(stored)
    return b"".join((_PAIR, key, _value(bytes(value))))


def times_of(stored: bytes) -> Times | None:
    """Return the times of a stored entry, None when it has none."""
    value = memoryview(_parts(stored)[1])
    return Times(*TRAILER.unpack_from(stored, len(stored) - TRAILER.size)) if _is_timed(value) else None


def is_over(stored: bytes, moment: int) -> bool:
    """Say whether an entry has ended at a moment."""
    times = times_of(stored)
    return times is not None and 0 < times.end <= moment


def _is_timed(value: Any) -> bool:
    return len(value) > EXT_32.size and value[0] == 0xC9 and value[EXT_32.size - 1] == TIMED


def _value(value: bytes) -> bytes:
    return value[EXT_32.size : -TRAILER.size] if _is_timed(value) else value


class Uses:
    """When entries were last used, as far as their checksums tell them apart: one word each, in shared memory.

    Args:
        path: a file that `create` made.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), SLOTS * 8)).cast("Q")

    @staticmethod
    def create(path: Path) -> None:
        """Make the file, with its memory reserved."""
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, SLOTS * 8)

    def close(self) -> None:
        """Let go of the memory; nothing may be noted any more."""
        self._words = memoryview(b"")

    def note(self, key: bytes, moment: int) -> None:
        """Note a use of a key, which begins with its incarnation."""
        self._words[zlib.crc32(key) % SLOTS] = moment

    def last(self, key: bytes) -> int:
        """Return when a key was used last, 0 for never."""
        return self._words[zlib.crc32(key) % SLOTS]
