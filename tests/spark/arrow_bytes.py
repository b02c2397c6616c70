"""Record batches written by hand: what Spark's JVM sends, made of Python values, so that a test knows every byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np


def message(
    rows: int,
    nodes: Sequence[tuple[int, int]],
    buffers: Sequence[bytes],
    *,
    kind: int = 3,
    compressed: bool = False,
    legacy: bool = False,
) -> bytes:
    """Return an encapsulated message.

    Args:
        rows: of the batch.
        nodes: length and nulls of each column.
        buffers: in order.
        kind: of the message; 3 is a record batch.
        compressed: claim that buffers are compressed.
        legacy: leave out the continuation mark, as before Arrow 0.15.
    """
    places, body = [], b""
    for buffer in buffers:
        places.append((len(body), len(buffer)))
        body += buffer + bytes(-len(buffer) % 8)
    metadata = _metadata(rows, nodes, places, len(body), kind, compressed)
    metadata += bytes(-(len(metadata) + (4 if legacy else 8)) % 8)
    head = b"" if legacy else b"\xff\xff\xff\xff"
    return head + struct.pack("<i", len(metadata)) + metadata + body


def _metadata(
    rows: int,
    nodes: Sequence[tuple[int, int]],
    places: Sequence[tuple[int, int]],
    body: int,
    kind: int,
    compressed: bool,
) -> bytes:
    """Return the flatbuffer: message table, record batch table, both vectors, each after its reference."""
    # root 4, gap 4 | vtable of the message 12, gap 4 | message 32 | vtable of the batch 12, gap 4 | batch 32
    message_at, batch_at = 24, 72
    nodes_at = 104
    buffers_at = nodes_at + 8 + 16 * len(nodes)
    data = bytearray(buffers_at + 8 + 16 * len(places))
    struct.pack_into("<I", data, 0, message_at)
    struct.pack_into("<HHHHHH", data, 8, 12, 32, 4, 6, 8, 16)
    struct.pack_into("<ihBxIxxxxq", data, message_at, message_at - 8, 4, kind, batch_at - (message_at + 8), body)
    struct.pack_into("<HHHHHH", data, 56, 12, 32, 8, 16, 20, 24 if compressed else 0)
    struct.pack_into("<ixxxxq", data, batch_at, batch_at - 56, rows)
    struct.pack_into("<I", data, batch_at + 16, nodes_at + 4 - (batch_at + 16))
    struct.pack_into("<I", data, batch_at + 20, buffers_at + 4 - (batch_at + 20))
    struct.pack_into("<I", data, nodes_at + 4, len(nodes))
    for place, node in enumerate(nodes):
        struct.pack_into("<qq", data, nodes_at + 8 + 16 * place, *node)
    struct.pack_into("<I", data, buffers_at + 4, len(places))
    for place, found in enumerate(places):
        struct.pack_into("<qq", data, buffers_at + 8 + 16 * place, *found)
    return bytes(data)


def bits(values: Sequence[bool]) -> bytes:
    """Return booleans as Arrow packs them."""
    return np.packbits(np.array(values, np.bool_), bitorder="little").tobytes()


def numbers(values: Sequence[float], dtype: str) -> bytes:
    """Return numbers of a dtype."""
    return np.array(values, dtype).tobytes()
