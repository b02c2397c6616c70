"""Pieces of partitions as they are sent: encoded together, a megabyte or less at once."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.partition_copy import PIECE_BYTES, Piece

_ARRAY = struct.Struct(">BI")
_ARRAY_32 = 0xDD

_encode_into = msgspec.msgpack.Encoder().encode_into
decode_parcel = msgpack_decoder(list[Piece]).decode
"""Returns the pieces of a parcel."""


def parcels(pieces: Iterable[Piece], piece_bytes: Callable[[], int] = lambda: PIECE_BYTES) -> Iterator[bytearray]:
    """Yield pieces as encoded lists, about as many bytes at once as `piece_bytes` says each time."""
    parcel, count = bytearray(_ARRAY.size), 0
    for piece in pieces:
        _encode_into(piece, parcel, -1)
        count += 1
        if len(parcel) >= piece_bytes():
            yield _closed(parcel, count)
            parcel, count = bytearray(_ARRAY.size), 0
    if count:
        yield _closed(parcel, count)


def _closed(parcel: bytearray, count: int) -> bytearray:
    _ARRAY.pack_into(parcel, 0, _ARRAY_32, count)
    return parcel
