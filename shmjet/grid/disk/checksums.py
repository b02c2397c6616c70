"""Checksums in the folder of a store on disk: of whole files, and of small files, which end with their own.

A small file is one structure, whose last field is its checksum: eight hexadecimal digits, the CRC-32 of all bytes
before them. Files of older versions have no such field, and older versions pass over it.
"""

from __future__ import annotations

import os
import zlib
from io import FileIO
from typing import Final

from shmjet.data.checksum import crc32

UNSET: Final = "0" * 8
"""What the field of the checksum has when a structure is encoded for `with_checksum`."""
_PORTION: Final = 256 << 10
CHANGED: Final = "its checksum does not fit, a byte of it has changed"


def with_checksum(encoded: bytes) -> bytes:
    """Return an encoded structure with its checksum, in place of the `UNSET` with which it ends."""
    at = encoded.rindex(UNSET.encode())
    return encoded[:at] + _digits(encoded[:at]) + encoded[at + len(UNSET) :]


def fits(data: bytes, checksum: str) -> bool:
    """Say whether a file is what was written.

    Args:
        data: all bytes of it.
        checksum: that is in it; empty: it is of an older version and has none.
    """
    at = data.rfind(checksum.encode())
    return not checksum or (at >= 0 and _digits(data[:at]) == checksum.encode())


def _digits(data: bytes) -> bytes:
    return b"%08x" % zlib.crc32(data)


def of_file(file: FileIO) -> int:
    """Return the CRC-32 of all bytes of a file.

    It is read in portions that stay in the cache of a core: to map it takes twice as long, most of it for the pages.
    """
    buffer = memoryview(bytearray(_PORTION))
    found = done = 0
    while count := os.preadv(file.fileno(), [buffer], done):
        found = crc32(buffer[:count], found)
        done += count
    return found
