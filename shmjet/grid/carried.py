"""Large values that travel inside an operation, and become files where the operation is done.

In a store that is divided among members a file has to lie where the entry does that names it, and the entry may move
while it is being put. So the process that puts a large value sends its bytes in the entry; the member that has the
partition writes the file, and stores an entry that names it. The first part of the file's name is the partition.

To another member a value of more than a megabyte goes in pieces, before its entry: a message of 100 MB would keep the
loops of members for as long as copying it takes. If the partition has moved when the entry comes, the pieces are not
there, the member refuses the entry, and all goes to the member that has the partition now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.blobs import INLINE_LIMIT, BlobStore, contents
from shmjet.grid.entries import BLOB, BLOB_BLOCK, BLOCK_HEAD, EntryCodec
from shmjet.grid.errors import GridError
from shmjet.grid.portions import STAGED, STAGED_BACK, STAGED_HEAD, STAGED_PLACE
from shmjet.grid.times import EXT_32

if TYPE_CHECKING:
    from typing_extensions import Buffer

CARRIED = 4
"""Extension code of a large value in an entry that is not stored yet."""
CARRIED_BLOCK = 4
"""Kind of a block with a large item that is not stored yet."""
STAGED_BLOCK = 5
"""Kind of a block with a large item that was brought in pieces."""
Stage = Callable[[memoryview], bytes]
"""Brings what a file consists of in pieces, and returns the number that stands for it."""
_STAGED_TAIL = slice(-STAGED_BACK, -STAGED_PLACE.size)
_parts = msgpack_decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode


class CarryingCodec(EntryCodec):
    """As `EntryCodec`, but large values stay in entries and blocks."""

    def _large_value(self, parts: Sequence[Buffer], blobs: list[bytes]) -> Any:
        data = b"".join(bytes(part) for part in contents(parts))
        return msgspec.Raw(EXT_32.pack(0xC9, len(data), CARRIED) + data)

    def _large_block(self, parts: Sequence[Buffer], blobs: list[bytes]) -> tuple[int, Sequence[Buffer]]:
        return CARRIED_BLOCK, contents(parts)


def entry_of(stored: bytes, blobs: BlobStore, place: int) -> tuple[bytes, bytes]:
    """Return an entry as it is stored, and the name of the file that was written for it, empty for none.

    Args:
        stored: the entry as it came.
        blobs: where files are written.
        place: the partition.
    """
    key, code, data = _large(stored)
    if code == CARRIED:
        name = blobs.write_contents([data], place)
    elif code == STAGED:
        name = blobs.name_staged(*_what_stands_for(data), place)
    else:
        return stored, b""
    return b"\x92" + bytes(key) + _encode(msgspec.msgpack.Ext(BLOB, name)), name


def staged_entry(stored: bytes, stage: Stage) -> bytes:
    """Return an entry without the large value that is carried in it, which is brought before."""
    key, code, data = _large(stored)
    if code != CARRIED:
        return stored
    staged = STAGED_PLACE.pack(stage(data), len(data))
    return b"\x92" + bytes(key) + STAGED_HEAD + staged


def may_be_large(stored: bytes) -> bool:
    """Say in a moment whether `entry_of` has to look at an entry: False for most entries that have none."""
    return len(stored) > INLINE_LIMIT or stored[_STAGED_TAIL] == STAGED_HEAD


def _large(stored: bytes) -> tuple[memoryview, int, memoryview]:
    """Return key, extension code and data of an entry whose value is an extension with four bytes of length."""
    parts = _parts(stored)
    key, value = memoryview(parts[0]), memoryview(parts[1])
    if len(value) <= EXT_32.size or value[0] != 0xC9:
        return key, 0, value
    return key, value[EXT_32.size - 1], value[EXT_32.size :]


def _what_stands_for(data: memoryview) -> tuple[bytes, int]:
    if len(data) != STAGED_PLACE.size:
        raise GridError("this does not stand for a large value that came in pieces")
    ident, size = STAGED_PLACE.unpack(data)
    return ident, size


def block_of(block: bytes, blobs: BlobStore, place: int) -> tuple[bytes, bytes]:
    """As `entry_of`, for a block of a list."""
    kind, count = BLOCK_HEAD.unpack_from(block)
    data = memoryview(block)[BLOCK_HEAD.size :]
    if kind == CARRIED_BLOCK:
        name = blobs.write_contents([data], place)
    elif kind == STAGED_BLOCK:
        name = blobs.name_staged(*_what_stands_for(data), place)
    else:
        return block, b""
    return BLOCK_HEAD.pack(BLOB_BLOCK, count) + name, name


def staged_block(block: bytes, stage: Stage) -> bytes:
    """As `staged_entry`, for a block of a list."""
    kind, count = BLOCK_HEAD.unpack_from(block)
    if kind != CARRIED_BLOCK:
        return block
    data = memoryview(block)[BLOCK_HEAD.size :]
    return BLOCK_HEAD.pack(STAGED_BLOCK, count) + STAGED_PLACE.pack(stage(data), len(data))


def place_of(name: bytes) -> int:
    """Return the partition of a file's name, of a store that is divided."""
    return int(name.partition(b"-")[0], 16)
