"""One direction of a captured connection between members, as lines that a person can read.

Of records only the kind is shown, and of messages the names and numbers; nothing is unpickled, so a capture may come
from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, BinaryIO

import msgspec

from shmjet.data.decoders import from_msgpack
from shmjet.net.compression import Lz4Compressor, is_installed, unpacked_size
from shmjet.net.handshake import CLIENT, LENGTH, LONGEST, MAGIC, PREAMBLE, Challenge, Hello, Proof, Refused, Welcome
from shmjet.net.packets import (
    BATCH,
    BULK,
    CONTROL,
    DATA,
    FLAG_LZ4,
    FLAG_MORE,
    FLOW,
    FLOW_ENTRY,
    GOODBYE,
    HEADER_SIZE,
    KIND_NAMES,
    PacketError,
    opened,
)
from shmjet.net.window import BLOCK
from shmjet.ring import frames

_KINDS = {
    frames.KIND_ITEMS: "items",
    frames.KIND_WATERMARK: "watermark",
    frames.KIND_BARRIER: "barrier",
    frames.KIND_DONE: "DONE",
    frames.KIND_FRAGMENT: "fragment",
}
_CODECS = {
    frames.CODEC_NONE: "",
    frames.CODEC_COLUMNS: "columns",
    frames.CODEC_PICKLE: "pickle",
    frames.CODEC_BYTES: "bytes",
    frames.CODEC_BATCH: "batch",
    frames.CODEC_SLOT: "slot",
}
_SHOWN = 60
_LONGEST_TOLD = 160
_LONGEST_MESSAGE = 16 << 20
"""A message between members of more bytes is not put together to be shown."""
TLS = b"\x16\x03"
"""What a connection with TLS starts with."""


def dump(stream: BinaryIO, position: int = 0, *, of_client: bool = False) -> Iterator[str]:
    """Yield a line for each message of the handshake, packet and record in a stream; the last one says how it ends.

    Args:
        stream: the bytes of one direction, with the handshake in front or without.
        position: of its first byte, for the lines.
        of_client: it is known to be a client's connection, of which only the handshake can be shown.

    Example:
        >>> import io
        >>> from shmjet.net.packets import HEADER, HEARTBEAT
        >>> list(dump(io.BytesIO(HEADER.pack(0, HEARTBEAT, 0, 0, 0, 0, 0, 0, 0))))
        ['       0  HEARTBEAT', '      32  end']
    """
    source = _Source(stream, position)
    start = source.peek(len(MAGIC))
    try:
        if start == MAGIC:
            of_client |= yield from _handshake(source)
        if start.startswith(TLS):
            yield f"{source.position:8}  TLS: what is inside cannot be shown"
            return
        if of_client and source.peek(1):
            yield f"{source.position:8}  what a client and its member say follows, which is not shown"
            return
        said = {kind: bytearray() for kind in (CONTROL, BULK)}
        while source.peek(1):
            yield from _packet(source, said)
    except (EOFError, PacketError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        yield f"{source.position:8}  cannot go on: {error}"
        return
    yield f"{source.position:8}  end"


class _Source:
    """A stream with a position and a look ahead."""

    def __init__(self, stream: BinaryIO, position: int = 0) -> None:
        self._stream = stream
        self._ahead = b""
        self.position = position

    def peek(self, count: int) -> bytes:
        """Return the next bytes, fewer at the end, without taking them."""
        while len(self._ahead) < count:
            more = self._stream.read(count - len(self._ahead))
            if not more:
                break
            self._ahead += more
        return self._ahead[:count]

    def take(self, count: int, what: str) -> bytes:
        """Take bytes; EOFError when there are fewer."""
        data = self.peek(count)
        if len(data) < count:
            raise EOFError(f"{what} of {count} bytes is cut off after {len(data)}")
        self._ahead = self._ahead[count:]
        self.position += count
        return data


def _handshake(source: _Source) -> Generator[str, None, bool]:
    """Return whether it is a client's."""
    at, client = source.position, False
    _, version = PREAMBLE.unpack(source.take(PREAMBLE.size, "a preamble"))
    yield f"{at:8}  preamble: version {version}"
    for _ in range(2):
        at = source.position
        (length,) = LENGTH.unpack(source.take(LENGTH.size, "a length"))
        if length > LONGEST:
            raise PacketError(f"a message of the handshake of {length} bytes; {LONGEST} are allowed")
        message = _message(source.take(length, "a message of the handshake"))
        yield f"{at:8}  {type(message).__name__}: {_fields(message)}"
        client |= isinstance(message, Hello) and message.role == CLIENT
        if isinstance(message, Refused) or not source.peek(1):
            break
    return client


def _message(body: bytes) -> object:
    for kind in (Welcome, Refused, Hello, Challenge):
        try:
            return from_msgpack(body, kind)
        except msgspec.MsgspecError:
            continue
    return from_msgpack(body, Proof)


def _fields(message: object) -> str:
    shown = []
    for name, value in msgspec.structs.asdict(message).items():  # type: ignore[arg-type]
        text = value.hex()[:16] + "…" if isinstance(value, bytes) else repr(value)
        shown.append(f"{name} {text}")
    return ", ".join(shown)


def _packet(source: _Source, said: Mapping[int, bytearray]) -> Iterator[str]:
    """Take a packet; `said` are the pieces so far of a message between members, of each kind."""
    at = source.position
    header = opened(memoryview(source.take(HEADER_SIZE, "a header")))
    name = KIND_NAMES[header.kind]
    body = source.take(header.length, f"a {name} packet")
    lane = f"execution {header.execution} edge {header.edge} lane {header.producer}->{header.consumer}"
    size, packed = f"{header.length} bytes", bool(header.flags & FLAG_LZ4)
    if header.kind in (DATA, BATCH) and packed:
        size += f" (lz4 of {unpacked_size(header.kind, body)})"
    if header.kind == DATA:
        yield f"{at:8}  DATA {lane}: {size}, {header.items} items"
        if not packed:
            yield from _records(body, lambda place: str(at + HEADER_SIZE + place))
        elif is_installed():
            yield from _records(Lz4Compressor().unpack(DATA, memoryview(body)), lambda place: f"+{place}")
        else:
            yield f"{'':8}    the package lz4 is missing here, so its records are not shown"
    elif header.kind == BATCH:
        piece = "" if header.items else " (a piece, more follow)"
        yield f"{at:8}  BATCH {lane}: {size}{piece}"
    elif header.kind == FLOW:
        yield f"{at:8}  FLOW: {header.length // FLOW_ENTRY.size} limits"
        for execution, edge, _, limit in FLOW_ENTRY.iter_unpack(body):
            yield f"{'':8}    execution {execution} edge {edge}: up to block {limit} ({limit * BLOCK} bytes)"
    elif header.kind in (CONTROL, BULK):
        message = said[header.kind]
        message += body[: max(0, _LONGEST_MESSAGE - len(message))]
        if header.flags & FLAG_MORE:
            yield f"{at:8}  {name}: {header.length} bytes, more follows: {body[:_SHOWN]!r}"
        else:
            yield f"{at:8}  {name}: {header.length} bytes: {_told(bytes(message))}"
            message.clear()
    elif header.kind == GOODBYE:
        yield f"{at:8}  GOODBYE: {body.decode(errors='replace')}"
    else:
        yield f"{at:8}  {name}"


def _told(message: bytes) -> str:
    """Return a message between members with its name and, cut short, what it holds."""
    try:
        name, *values = from_msgpack(message)
        if not isinstance(name, str):
            raise TypeError(name)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return repr(message[:_SHOWN])
    text = ", ".join(map(_short, values))
    return f"{name}({text if len(text) <= _LONGEST_TOLD else text[:_LONGEST_TOLD] + '…'})"


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value[:_SHOWN]))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_short(key)}: {_short(one)}' for key, one in list(value.items())[:_SHOWN])}}}"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _records(body: bytes, where: Callable[[int], str]) -> Iterator[str]:
    at = 0
    while at < len(body):
        if len(body) - at < frames.RECORD.size:
            raise PacketError(f"a record at {where(at)} is cut off")
        length, kind, codec, flags, count, _ = frames.RECORD.unpack_from(body, at)
        end = at + frames.RECORD.size + -(-length // 16) * 16
        if end > len(body):
            raise PacketError(f"a record of {length} bytes at {where(at)} goes beyond its packet")
        what = f"{_KINDS.get(kind, f'kind {kind}')} {_CODECS.get(codec, f'codec {codec}')}".rstrip()
        if kind in (frames.KIND_WATERMARK, frames.KIND_BARRIER) and length == 8:
            value = int.from_bytes(body[at + 16 : at + 24], "little", signed=True)
            what += f" {value}{' terminal' if flags else ''}"
        elif kind == frames.KIND_ITEMS:
            what = f"{count} {what}"
        elif kind == frames.KIND_FRAGMENT:
            names = ((frames.FLAG_FIRST, "first"), (frames.FLAG_LAST, "last"), (frames.FLAG_CANCEL, "cancel"))
            what += "".join(f" {name}" for flag, name in names if flags & flag)
        yield f"{where(at):>8}    {what}, {length} bytes"
        at = end
