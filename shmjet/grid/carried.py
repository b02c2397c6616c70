"""Large values that travel inside an operation, and become files where the operation is done.

In a store that is divided among members a file has to lie where the entry does that names it, and the entry may move
while it is being put. So the process that puts a large value sends its bytes in the entry; the member that has the
partition writes the file, and stores an entry that names it. The first part of the file's name is the partition.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.blobs import BlobStore, contents
from shmjet.grid.entries import BLOB, BLOB_BLOCK, BLOCK_HEAD, EntryCodec

if TYPE_CHECKING:
    from typing_extensions import Buffer

CARRIED = 4
"""Extension code of a large value in an entry that is not stored yet."""
CARRIED_BLOCK = 4
"""Kind of a block with a large item that is not stored yet."""
_EXT_32 = struct.Struct(">BIb")
_parts = msgpack_decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode


class CarryingCodec(EntryCodec):
    """As `EntryCodec`, but large values stay in entries and blocks."""

    def _large_value(self, parts: Sequence[Buffer], blobs: list[bytes]) -> Any:
        data = b"".join(bytes(part) for part in contents(parts))
        return msgspec.Raw(_EXT_32.pack(0xC9, len(data), CARRIED) + data)

    def _large_block(self, parts: Sequence[Buffer], blobs: list[bytes]) -> tuple[int, Sequence[Buffer]]:
        return CARRIED_BLOCK, contents(parts)


def entry_of(stored: bytes, blobs: BlobStore, place: int) -> tuple[bytes, bytes]:
    """Return an entry as it is stored, and the name of the file that was written for it, empty for none.

    Args:
        stored: the entry as it came.
        blobs: where files are written.
        place: the partition.
    """
    parts = _parts(stored)
    key, value = memoryview(parts[0]), memoryview(parts[1])
    if len(value) <= _EXT_32.size or value[0] != 0xC9 or value[_EXT_32.size - 1] != CARRIED:
        return stored, b""
    name = blobs.write_contents([value[_EXT_32.size :]], place)
    return b"\x92" + bytes(key) + _encode(msgspec.msgpack.Ext(BLOB, name)), name


def block_of(block: bytes, blobs: BlobStore, place: int) -> tuple[bytes, bytes]:
    """As `entry_of`, for a block of a list."""
    kind, count = BLOCK_HEAD.unpack_from(block)
    if kind != CARRIED_BLOCK:
        return block, b""
    name = blobs.write_contents([memoryview(block)[BLOCK_HEAD.size :]], place)
    return BLOCK_HEAD.pack(BLOB_BLOCK, count) + name, name


def place_of(name: bytes) -> int:
    """Return the partition of a file's name, of a store that is divided."""
    return int(name.partition(b"-")[0], 16)
