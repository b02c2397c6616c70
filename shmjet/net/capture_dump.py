"""What a capture of a network holds of connections between members, as lines that a person can read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from shmjet.data.decoders import from_msgpack
from shmjet.net.captures import CaptureError, Stream, tcp_streams
from shmjet.net.handshake import CLIENT, LENGTH, MAGIC, PREAMBLE, Hello
from shmjet.net.packets import HEADER_SIZE, Header, PacketError, opened
from shmjet.net.wire_dump import TLS, dump


def dump_capture(capture: BinaryIO) -> Iterator[str]:
    """Yield, for each direction of each connection in a capture of a network, its two ends and then as `dump`.

    Args:
        capture: a file that `tcpdump -w` or wireshark has written.

    Example:
        >>> import io
        >>> list(dump_capture(io.BytesIO(b"no capture")))
        ['cannot go on: a capture does not start with 6e6f2063']
    """
    try:
        streams = tcp_streams(capture)
    except CaptureError as error:
        yield f"cannot go on: {error}"
        return
    clients = {direction for direction, stream in streams.items() if _is_client(stream)}
    for direction, stream in streams.items():
        if stream.size:
            yield f"{direction.source} -> {direction.destination}: {stream.size} bytes"
            yield from _part(stream, of_client=direction in clients or direction.back in clients)


def _is_client(stream: Stream) -> bool:
    """Say whether it is a client who speaks."""
    head = stream.data.read(PREAMBLE.size + LENGTH.size)
    body = stream.data.read(int.from_bytes(head[PREAMBLE.size :], "little"))
    stream.data.seek(0)
    try:
        return head.startswith(MAGIC) and from_msgpack(body, Hello).role == CLIENT
    except msgspec.MsgspecError:
        return False


def _part(stream: Stream, *, of_client: bool) -> Iterator[str]:
    at = 0 if stream.from_start else _first_packet(stream)
    if at is None:
        yield f"{0:8}  no packet begins anywhere here"
        return
    if at or not stream.from_start:
        yield f"{0:8}  the capture began later than the connection; shown from the first packet on"
    stream.data.seek(at)
    yield from dump(stream.data, at, of_client=of_client)
    if stream.lost:
        yield f"{stream.size:8}  a gap: the capture has {stream.lost} bytes more, but lacks what comes before them"


def _first_packet(stream: Stream) -> int | None:
    """Return where, at the start of a segment, what follows can be read; None for nowhere."""
    for start in stream.starts:
        stream.data.seek(start)
        head = stream.data.read(HEADER_SIZE)
        if head.startswith((MAGIC, TLS)):
            return start
        try:
            length = _checked(head).length
            stream.data.seek(start + HEADER_SIZE + length)
            behind = stream.data.read(HEADER_SIZE)
            if len(behind) == HEADER_SIZE:
                _checked(behind)
        except PacketError:
            continue
        return start
    return None


def _checked(head: bytes) -> Header:
    if len(head) < HEADER_SIZE:
        raise PacketError("a header is cut off")
    return opened(memoryview(head))
