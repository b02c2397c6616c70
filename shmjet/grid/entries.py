"""Keys, values and items to the bytes that a store keeps, and back, many at a time.

A map's entry is a msgpack array of key and value. msgpack has what most entries consist of (text, bytes, floats,
booleans, 64-bit integers), and a page of entries is turned into pairs by one call in C: the entries, joined behind the
header of an array, *are* an array of pairs. Whatever msgpack would not bring back as exactly the same type is an
extension that holds a pickle or names a file. A list's block is a frame of the column codec of `shmjet._native`, or a
pickle, or names a file.

Nothing here reads or writes LMDB.
"""

from __future__ import annotations

import contextlib
import gc
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from shmjet._native import Codec, partition_of, place_entries, plain_entries
from shmjet.core.keys import canonical_bytes, canonical_tagged
from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.blobs import INLINE_LIMIT, BlobStore
from shmjet.grid.changes import Event
from shmjet.grid.errors import GridError
from shmjet.grid.layout import MAX_TAGGED, fitting
from shmjet.grid.pickles import ObjectCodec
from shmjet.grid.times import TIMED, TRAILER, times_of, without_times
from shmjet.ipc.decode_errors import UNREADABLE

if TYPE_CHECKING:
    from typing_extensions import Buffer

PICKLE, BLOB = 1, 2
"""Extension codes in entries: a pickle; the name of a blob that holds a pickle and its buffers."""
COLUMNS_BLOCK, PICKLE_BLOCK, BLOB_BLOCK = 1, 2, 3
BLOCK_HEAD = struct.Struct("<BI")
"""A list block's kind and its number of items."""

_PLAIN = frozenset((str, int, float, bytes, bool))
"""What msgpack brings back as it was; exact types only."""
_SIZED = frozenset((str, bytes))
_TEXT, _INTEGER = {str}, {int}
_ARRAY_OF, _ARRAY_32 = struct.Struct(">BI"), 0xDD
"""The header of a msgpack array of up to 2**32 - 1 elements."""
_FIRST_STEP, _LAST_STEP = 64, 4096
"""Items tried for one block of a list."""

Pair = tuple[Any, Any]
Decoded = TypeVar("Decoded")
UNENCODABLE = (OverflowError, ValueError)
"""What msgpack raises for integers beyond 64 bits, lone surrogates and more than 4 GiB."""


class EntryCodec:
    """The encoding of one store; safe for several threads.

    Args:
        objects: pickles what has to be pickled.
        blobs: keeps what is too large for LMDB.
        partition_count: partitions of each map.
    """

    def __init__(self, objects: ObjectCodec, blobs: BlobStore, partition_count: int) -> None:
        self.objects = objects
        self.blobs = blobs
        self.partition_count = partition_count
        self._encode = msgspec.msgpack.Encoder().encode
        self._pairs = msgpack_decoder(list[tuple[Any, Any]], ext_hook=self._extension)
        self._value = msgpack_decoder(tuple[msgspec.Raw, Any], ext_hook=self._extension)
        self._raw = msgpack_decoder(tuple[msgspec.Raw, msgspec.Raw])
        self._keys = msgpack_decoder(list[tuple[Any, msgspec.Raw]], ext_hook=self._extension)
        self._parts = msgpack_decoder(list[Any], ext_hook=self._extension)
        self._plain = msgpack_decoder(Any, ext_hook=self._extension)
        self._names = msgpack_decoder(list[Any], ext_hook=_name_of_blob)
        self._local = threading.local()

    def key(self, key: Any) -> tuple[int, bytes]:
        """Return the partition of a key and the bytes that stand for it there.

        Raises:
            TypeError: None, or of a type that cannot be a key.
        """
        if key is None:
            raise TypeError("a map's key must not be None")
        tagged = b"s" + key.encode("utf-8", "surrogatepass") if type(key) is str else canonical_tagged(key)
        return partition_of(key, self.partition_count, canonical_bytes), fitting(tagged)

    def keys(self, keys: list[Any]) -> tuple[list[int], list[bytes]]:
        """Return `key` of many keys at once."""
        kinds = set(map(type, keys))
        try:
            if kinds == _TEXT:
                tagged = [b"s" + key.encode() for key in keys]
            elif kinds == _INTEGER:
                tagged = [b"i" + key.to_bytes(8, "little", signed=True) for key in keys]
            else:
                tagged = list(map(canonical_tagged, keys))
        except UNENCODABLE:
            tagged = list(map(canonical_tagged, keys))
        if type(None) in kinds:
            raise TypeError("a map's key must not be None")
        if max(map(len, tagged), default=0) > MAX_TAGGED:
            tagged = list(map(fitting, tagged))
        return list(map(partition_of, keys, repeat(self.partition_count), repeat(canonical_bytes))), tagged

    def entry(self, key: Any, value: Any, blobs: list[bytes]) -> bytes:
        """Return the stored form of one entry; the name of a blob that had to be written is added to `blobs`.

        Raises:
            TypeError: the value is None, or cannot be pickled (`ItemEncodingError`).
        """
        if value is None:
            raise TypeError(f"the value for key {key!r} must not be None; use remove() to take a key out")
        return self._encode((self._stored(key, None), self._stored(value, blobs)))

    def copied(self, stored: bytes, blobs: list[bytes]) -> tuple[bytes, int]:
        """Return an entry that has left the store in a form that can be stored again, and when it ends; 0: never.

        Its blob is copied, as events and backups may still delete the file that it had, and the new name is added to
        `blobs`. Nothing is unpickled.
        """
        times = times_of(stored)
        end = 0 if times is None else times.end
        plain = without_times(stored)
        names = self.blobs_of(plain)
        if not names:
            return plain, end
        key, _ = self._raw.decode(plain)
        return self._encode((key, self._large_value(self.blobs.read(bytes(names[0])), blobs))), end

    def entries(self, pairs: list[Pair], blobs: list[bytes]) -> list[bytes]:
        """Return `entry` of many pairs at once."""
        if set(map(type, [key for key, _ in pairs])) | set(map(type, [value for _, value in pairs])) <= _PLAIN:
            try:
                stored = list(map(self._encode, pairs))
            except UNENCODABLE:
                pass
            else:
                if max(map(len, stored), default=0) <= INLINE_LIMIT:
                    return stored
        return [self.entry(key, value, blobs) for key, value in pairs]

    def placed(self, pairs: list[Any], heads: list[bytes], blobs: list[bytes]) -> list[list[tuple[bytes, bytes]]]:
        """Return full keys and `entry` of many pairs at once, by partition.

        Args:
            pairs: of keys and values.
            heads: for each partition what its keys begin with.
            blobs: gets the names of blobs that had to be written; none is left when this fails.
        """
        plain = plain_entries(pairs, heads, MAX_TAGGED, INLINE_LIMIT)
        if plain is not None:
            return plain
        if set(map(type, pairs)) != {tuple}:
            pairs = [(key, value) for key, value in pairs]
        partitions, tagged = self.keys([key for key, _ in pairs])
        try:
            return place_entries(partitions, tagged, self.entries(pairs, blobs), heads)
        except BaseException:
            self.blobs.delete(blobs)
            raise

    def pairs(self, stored: list[bytes]) -> list[Pair]:
        """Return the keys and values of stored entries.

        Raises:
            BlobVanishedError: one of them has been replaced or removed, and its blob with it.
        """
        return self._decode_all(self._pairs.decode, stored)

    def parts(self, packed: bytes) -> list[Any]:
        """Return the keys and values of a msgpack array of them; raises as `pairs`."""
        with without_collector():
            return self._parts.decode(packed)

    def value(self, stored: bytes) -> Any:
        """Return the value of one stored entry; raises as `pairs`."""
        return self._value.decode(stored)[1]

    def keys_of(self, stored: list[bytes]) -> list[tuple[Any, msgspec.Raw]]:
        """Return the keys of stored entries, each with its value's bytes, which are not looked at."""
        return self._decode_all(self._keys.decode, stored)

    def blobs_of(self, stored: bytes) -> list[bytes]:
        """Return the names of the blobs that a stored entry needs."""
        return [part for part in self._names.decode(stored) if isinstance(part, _BlobName)]

    def blobs_of_event(self, data: bytes) -> list[bytes]:
        """Return the names of the blobs that nothing needs once this event of a journal is gone."""
        old = Event.unpack(data).old
        return self.blobs_of(old) if old else []

    def blocks(self, items: list[Any], blobs: list[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield list items as stored blocks, each with its number of items.

        Args:
            blobs: gets the names of blobs that had to be written.

        Raises:
            ItemEncodingError: an item cannot be pickled.
        """
        at, step = 0, _FIRST_STEP
        while at < len(items):
            part = items[at : at + step]
            count = len(part)
            kind, parts = self._block(part)
            size = sum(memoryview(piece).nbytes for piece in parts)
            if size > INLINE_LIMIT and count > 1:
                step = max(1, count // -(-2 * size // INLINE_LIMIT))
                continue
            if size > INLINE_LIMIT:
                kind, parts = self._large_block(self.objects.dumps(part), blobs)
            yield count, BLOCK_HEAD.pack(kind, count) + b"".join(parts)
            at += count
            if size < INLINE_LIMIT // 4:
                step = min(2 * step, _LAST_STEP)

    def items(self, block: bytes) -> list[Any]:
        """Return the items of a stored block.

        Raises:
            BlobVanishedError: the list has been cleared.
            GridError: it is not a block.
        """
        if len(block) < BLOCK_HEAD.size:
            raise GridError(f"{block!r} is not a block of a list")
        kind, count = BLOCK_HEAD.unpack_from(block)
        body = memoryview(block)[BLOCK_HEAD.size :]
        if kind == COLUMNS_BLOCK:
            return self._columns().decode(body, count)
        parts: Sequence[Buffer]
        if kind == PICKLE_BLOCK:
            parts = [body]
        elif kind == BLOB_BLOCK:
            parts = self.blobs.read(bytes(body))
        else:
            raise GridError(f"a stored block has the unknown kind {kind}; was it written by another version?")
        items: list[Any] = self.objects.loads(parts)
        return items

    def blobs_of_block(self, block: bytes) -> list[bytes]:
        """Return the names of the blobs that a stored block needs."""
        return [block[BLOCK_HEAD.size :]] if block[0] == BLOB_BLOCK else []

    def _block(self, items: list[Any]) -> tuple[int, Sequence[Buffer]]:
        columns = self._columns().encode(items, 0, len(items))
        return (PICKLE_BLOCK, self.objects.dumps(items)) if columns is None else (COLUMNS_BLOCK, [columns])

    def _columns(self) -> Codec:
        codec: Codec | None = getattr(self._local, "codec", None)
        if codec is None:
            codec = self._local.codec = Codec()
        return codec

    def _stored(self, part: Any, blobs: list[bytes] | None) -> Any:
        """Return what msgpack encodes in place of a key (`blobs` is None then) or a value."""
        kind = type(part)
        if kind in _PLAIN and not (kind in _SIZED and blobs is not None and len(part) > INLINE_LIMIT):
            try:
                plain = self._encode(part)
            except UNENCODABLE:
                plain = None
            if plain is not None and (len(plain) <= INLINE_LIMIT or blobs is None):
                return part
        parts = self.objects.dumps(part, out_of_band=blobs is not None)
        if blobs is None or (len(parts) == 1 and memoryview(parts[0]).nbytes <= INLINE_LIMIT):
            return msgspec.msgpack.Ext(PICKLE, bytes(parts[0]))
        return self._large_value(parts, blobs)

    def _large_value(self, parts: Sequence[Buffer], blobs: list[bytes]) -> Any:
        """Return what msgpack encodes in place of a value that is too large for LMDB."""
        blobs.append(self.blobs.write(parts))
        return msgspec.msgpack.Ext(BLOB, blobs[-1])

    def _large_block(self, parts: Sequence[Buffer], blobs: list[bytes]) -> tuple[int, Sequence[Buffer]]:
        """Return kind and contents of a block whose item is too large for LMDB."""
        blobs.append(self.blobs.write(parts))
        return BLOB_BLOCK, [blobs[-1]]

    def _decode_all(self, decode: Callable[[bytes], list[Decoded]], stored: list[bytes]) -> list[Decoded]:
        with without_collector():
            return decode(_ARRAY_OF.pack(_ARRAY_32, len(stored)) + b"".join(stored))

    def _extension(self, code: int, data: memoryview) -> Any:
        if code == PICKLE:
            return self.objects.loads([data])
        if code == BLOB:
            return self.objects.loads(self.blobs.read(bytes(data)))
        if code == TIMED:
            return self._plain.decode(data[: -TRAILER.size])
        raise GridError(f"a stored entry has the unknown extension {code}; was it written by another version?")


class without_collector:
    """Keeps the cyclic collector from walking a growing page of objects repeatedly; may be nested."""

    __slots__ = ("_collecting",)

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._collecting:
            gc.enable()


class _BlobName(bytes):
    """Tells the name of a blob from bytes that a user stored."""


def _name_of_blob(code: int, data: memoryview) -> Any:
    if code == TIMED:
        with contextlib.suppress(*UNREADABLE):  # no member has written it; who reads the value is told
            return _value_names.decode(data[: -TRAILER.size])
    return _BlobName(data) if code == BLOB else None


_value_names = msgpack_decoder(Any, ext_hook=_name_of_blob)
