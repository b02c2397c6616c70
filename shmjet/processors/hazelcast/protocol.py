"""Messages of Hazelcast's open client protocol that its Python client does not have: paged reading, and journals.

They are sent through the client's own invocations, so routing to the owner of a partition, retries and reconnection
are its own. Message types, offsets and fields are those of the protocol's definitions 2.x (`Map.fetchEntries`,
`Map.fetchWithQuery`, `Map.eventJournalSubscribe`, `Map.eventJournalRead`). Everything that touches the inside of the
client stands here. Must not know processors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import mmh3
from hazelcast.protocol.builtin import ByteArrayCodec as FrameCodec
from hazelcast.protocol.builtin import CodecUtil, DataCodec, EntryListCodec, ListMultiFrameCodec, StringCodec
from hazelcast.protocol.client_message import (
    REQUEST_HEADER_SIZE,
    RESPONSE_HEADER_SIZE,
    OutboundMessage,
    create_initial_buffer,
)
from hazelcast.protocol.codec import map_put_all_codec
from hazelcast.serialization.compact import SchemaNotReplicatedError
from hazelcast.serialization.data import Data

_FETCH_ENTRIES, _FETCH_WITH_QUERY, _JOURNAL_SUBSCRIBE, _JOURNAL_READ = 0x013800, 0x014000, 0x014100, 0x014200
_BOUNDS = struct.Struct("<qq")
_READ = struct.Struct("<qii")
_PROGRESS = struct.Struct("<iq")
_COUNT = struct.Struct("<i")
_LENGTH = struct.Struct(">i")
_PARTITION_HASH = struct.Struct(">i")
_HASH_SEED = 0x01000193
_LEAST_HASH = -(2**31)

Pointers = tuple[tuple[int, int], ...]
"""How far a partition has been read: an index into a hash table, and the size that this had; for each size that it has
had since reading began, so that entries come once although the table grows."""

FIRST: Pointers = ((2**31 - 1, -1),)
"""Where a partition begins."""

_EVENT_HEAD = struct.Struct(">?iii")
"""Of an event, behind the header of its data: that it is identified, factory, class, and its type."""
_DATA_HEADER = 8
_KINDS = {
    **dict.fromkeys((1, 512), "added"),
    **dict.fromkeys((2, 8, 16, 32, 64), "removed"),
    **dict.fromkeys((4, 128), "updated"),
}


class Page(NamedTuple):
    """Some entries of a partition, or what was made of them, and where the next ones are; None: there are none."""

    items: list[Any]
    following: Pointers | None


class Bounds(NamedTuple):
    """Sequences of the oldest and the newest event in a journal; of an empty one the newest is one less."""

    oldest: int
    newest: int


class Changes(NamedTuple):
    """Events of a partition as (kind, key, old, new, sequence), and the sequence to go on with.

    Args:
        events: of the journal.
        first: sequence of the first event that the member has looked at.
        following: the sequence after the last.
    """

    events: list[tuple[str, Any, Any, Any, int]]
    first: int
    following: int


def cluster_id(client: Any) -> str:
    """Return the identity of the cluster that a client is in, or was last: another one when all members were lost."""
    return str(client._connection_manager._cluster_id)


def prepare_put_all(proxy: Any, entries: dict[Any, Any]) -> Callable[[], list[Any]]:
    """Serialize entries for a map, which takes most of the time of a `put_all`; the client's own does so, too.

    The client computes MurmurHash3 in Python to find the partition of a key; here `mmh3` does.

    Args:
        proxy: of the map.
        entries: by their keys.

    Returns:
        what sends them, and returns futures.

    Raises what the client cannot serialize; TypeError: a key or value is None.
    """
    to_data, count = proxy._to_data, proxy._context.partition_service.partition_count
    if None in entries or any(value is None for value in entries.values()):
        raise TypeError("Hazelcast has no place for None")
    by_partition: dict[int, list[tuple[Data, Data]]] = {}
    try:
        for key, value in entries.items():
            data = to_data(key)
            entry = data, to_data(value)
            partition = partition_of(data, count)
            if (found := by_partition.get(partition)) is None:
                by_partition[partition] = [entry]
            else:
                found.append(entry)
    except SchemaNotReplicatedError:  # a class of compact serialization that the cluster does not know yet
        return lambda: [proxy.put_all(entries)]
    name = proxy.name
    requests = [(map_put_all_codec.encode_request(name, some, False), at) for at, some in by_partition.items()]
    return lambda: [proxy._invoke_on_partition(request, at) for request, at in requests]


def partition_of(key: Data, count: int) -> int:
    """Return the partition of a serialized key, as Hazelcast's members compute it.

    Args:
        key: as the client has serialized it.
        count: how many partitions there are.
    """
    given = _PARTITION_HASH.unpack_from(key.buffer)[0]
    hashed = given or mmh3.hash(bytes(key.buffer[_DATA_HEADER:]), _HASH_SEED)
    return 0 if hashed == _LEAST_HASH else abs(hashed) % count


def fetch_entries(proxy: Any, partition: int, pointers: Pointers, count: int) -> Any:
    """Ask for a `Page` of (key, value) pairs of a partition. Returns a future.

    Args:
        proxy: of the map.
        partition: which.
        pointers: where to go on, or `FIRST`.
        count: entries that it should have; it may have some more.
    """
    request = _begun(_FETCH_ENTRIES, 4)
    _COUNT.pack_into(request, REQUEST_HEADER_SIZE, count)
    StringCodec.encode(request, proxy.name)
    FrameCodec.encode(request, _packed(pointers), True)

    def answer(message: Any) -> Page:
        message.next_frame()
        following = _unpacked(message.next_frame().buf)
        to_object = proxy._to_object
        entries = EntryListCodec.decode(message, DataCodec.decode, DataCodec.decode)
        return Page([(to_object(key), to_object(value)) for key, value in entries], following)

    return proxy._invoke_on_partition(OutboundMessage(request, True), partition, answer)


def fetch_with_query(
    proxy: Any, partition: int, pointers: Pointers, count: int, projection: Any, predicate: Any
) -> Any:
    """Ask for a `Page` of what a projection makes of the entries of a partition for which a predicate is true.

    Args:
        proxy: of the map.
        partition: which.
        pointers: where to go on, or `FIRST`.
        count: results that it should have; it may have some more.
        projection, predicate: of the client.
    """
    request = _begun(_FETCH_WITH_QUERY, 4)
    _COUNT.pack_into(request, REQUEST_HEADER_SIZE, count)
    StringCodec.encode(request, proxy.name)
    FrameCodec.encode(request, _packed(pointers))
    DataCodec.encode(request, proxy._to_data(projection))
    DataCodec.encode(request, proxy._to_data(predicate), True)

    def answer(message: Any) -> Page:
        message.next_frame()
        to_object = proxy._to_object
        results = ListMultiFrameCodec.decode_contains_nullable(message, DataCodec.decode)
        return Page(list(map(to_object, results)), _unpacked(message.next_frame().buf))

    return proxy._invoke_on_partition(OutboundMessage(request, True, True), partition, answer)


def journal_bounds(proxy: Any, partition: int) -> Any:
    """Ask for the `Bounds` of a partition's journal. Returns a future."""
    request = _begun(_JOURNAL_SUBSCRIBE, 0)
    StringCodec.encode(request, proxy.name, True)

    def answer(message: Any) -> Bounds:
        return Bounds(*_BOUNDS.unpack_from(message.next_frame().buf, RESPONSE_HEADER_SIZE))

    return proxy._invoke_on_partition(OutboundMessage(request, True), partition, answer)


def read_journal(proxy: Any, partition: int, sequence: int, count: int) -> Any:
    """Ask for `Changes` of a partition; the answer comes when there is at least one. Returns a future.

    Args:
        proxy: of the map.
        partition: which.
        sequence: to begin with; the member begins with the oldest or the next one where it does not have that.
        count: events that it gives at most.
    """
    request = _begun(_JOURNAL_READ, 16)
    _READ.pack_into(request, REQUEST_HEADER_SIZE, sequence, 1, count)
    StringCodec.encode(request, proxy.name)
    CodecUtil.encode_nullable(request, None, DataCodec.encode)
    CodecUtil.encode_nullable(request, None, DataCodec.encode, True)

    def answer(message: Any) -> Changes:
        read, following = _PROGRESS.unpack_from(message.next_frame().buf, RESPONSE_HEADER_SIZE)
        data = ListMultiFrameCodec.decode(message, FrameCodec.decode)
        packed = CodecUtil.decode_nullable(message, FrameCodec.decode)
        first = following - read
        sequences = range(first, following) if packed is None else struct.unpack(f"<{len(packed) // 8}q", packed)
        return Changes(_events(data, sequences, proxy._to_object), first, following)

    return proxy._invoke_on_partition(OutboundMessage(request, True, True), partition, answer)


def _events(
    data: Sequence[bytes], sequences: Sequence[int], to_object: Callable[[Any], Any]
) -> list[tuple[str, Any, Any, Any, int]]:
    events = []
    for event, sequence in zip(data, sequences, strict=False):
        kind = _EVENT_HEAD.unpack_from(event, _DATA_HEADER)[3]
        at = _DATA_HEADER + _EVENT_HEAD.size
        parts: list[Any] = []
        for _ in range(3):
            length = _LENGTH.unpack_from(event, at)[0]
            at += 4
            parts.append(to_object(Data(event[at : at + length])) if length > 0 else None)
            at += max(length, 0)
        key, new, old = parts
        events.append((_KINDS.get(kind, "updated"), key, old, new, sequence))
    return events


def _begun(message_type: int, size: int) -> bytearray:
    """Return the first frame of a request, with room for its fields."""
    begun: bytearray = create_initial_buffer(REQUEST_HEADER_SIZE + size, message_type)
    return begun


def _packed(pointers: Pointers) -> bytes:
    return b"".join(struct.pack("<ii", *pointer) for pointer in pointers)


def _unpacked(packed: bytes) -> Pointers | None:
    """Return pointers, or None behind the last entry."""
    pointers = tuple(struct.iter_unpack("<ii", packed))
    return pointers if pointers and pointers[-1][0] >= 0 else None
