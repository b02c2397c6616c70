"""A stream of msgspec messages with descriptors over one Unix socket.

Both ends are single-threaded: a worker reads and writes it blockingly, the member's event loop reads it when the
socket is readable. Each message is a 4-byte little-endian length and msgpack; descriptors ride on the length's bytes,
so that they are there when the message is.
"""

from __future__ import annotations

import array
import contextlib
import errno
import os
import resource
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.ipc.decode_errors import UNREADABLE

_LENGTH = struct.Struct("<I")
_MAX_FDS = 16
_ANCILLARY = socket.CMSG_LEN(_MAX_FDS * 4)
_CHUNK = 1 << 18
"""Bytes read at once of a message whose beginning is here."""
_ROOM = 1 << 14
"""Bytes read at once else, into a buffer that is kept: most messages are short, and a new one for each costs more than
reading it."""
_DONTWAIT, _CLOEXEC, _CTRUNC = int(socket.MSG_DONTWAIT), int(socket.MSG_CMSG_CLOEXEC), int(socket.MSG_CTRUNC)
"""As plain numbers: an operation on flags of the enum costs a microsecond, for each message."""
_UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN)
"""What a network says when the other end is gone without a word."""
LONGEST = (1 << 32) - 1
"""Bytes of a message that its length can tell."""


class ChannelClosed(ConnectionError):
    """The other end is gone."""


class DescriptorsDropped(OSError):
    """Descriptors that were sent could not be taken; whose they were is unknown, so the stream has ended."""


class Channel:
    """One end of a message stream.

    Args:
        sock: a connected Unix stream socket; the channel owns it.
        receives: the union of struct types that may arrive here.
        longest: bytes of a message at most.
    """

    def __init__(self, sock: socket.socket, receives: Any, longest: int = LONGEST) -> None:
        self._sock = sock
        self._longest = longest
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgpack_decoder(receives)
        self._buffer = bytearray()
        self._room = memoryview(bytearray(_ROOM))
        self._fds: deque[int] = deque()
        self._messages: deque[tuple[Any, list[int]]] = deque()
        self._outgoing: deque[tuple[memoryview, Sequence[int]]] = deque()
        self.unsent = 0
        """Bytes that have not left."""
        self._closed = False

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._sock.fileno()

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Write one message; blocks while the socket's buffer is full.

        Raises:
            ChannelClosed: the other end is gone.
        """
        self.queue(message, fds)
        while self._outgoing:
            self._write(0)

    def queue(self, message: object, fds: Sequence[int] = ()) -> None:
        """Add one message to what `flush` will write; the descriptors must stay open until then."""
        body = self._encoder.encode(message)
        header = _LENGTH.pack(len(body)) + bytes([len(fds)])
        self._outgoing.append((memoryview(header + body), tuple(fds)))
        self.unsent += len(header) + len(body)

    @property
    def backlog(self) -> int:
        """Messages that have not left."""
        return len(self._outgoing)

    def flush(self) -> bool:
        """Write what the socket takes without waiting; True when nothing is left.

        Raises:
            ChannelClosed: the other end is gone.
        """
        try:
            while self._outgoing:
                self._write(_DONTWAIT)
        except BlockingIOError:
            return False
        return True

    def _write(self, flags: int) -> None:
        data, fds = self._outgoing[0]
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self._sock.sendmsg([data], ancillary, flags)
        except OSError as error:
            if not isinstance(error, ConnectionError) and error.errno not in _UNREACHABLE:
                raise
            raise ChannelClosed("the other end of the channel is gone") from error
        self.unsent -= sent
        if sent == len(data):
            self._outgoing.popleft()
        else:
            self._outgoing[0] = (data[sent:], ())

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message and its descriptors, waiting for it.

        Raises:
            ChannelClosed: the other end is gone and nothing complete is left.
        """
        while not self._messages:
            self._read(0)
        return self._messages.popleft()

    @property
    def has_message(self) -> bool:
        """Whether `receive` has a message without waiting."""
        return bool(self._messages)

    def poll(self, *, once: bool = False) -> list[tuple[Any, list[int]]]:
        """Return all messages that have arrived completely, without waiting.

        Args:
            once: read once only, from an end that may send faster than this one reads.

        Raises:
            ChannelClosed: the other end is gone and nothing complete is left.
            msgspec.DecodeError: what came is not a message.
        """
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    if self._read(_DONTWAIT) or once:
                        break
                except ChannelClosed:
                    if self._messages:
                        break
                    raise
        ready = list(self._messages)
        self._messages.clear()
        return ready

    def _read(self, flags: int) -> bool:
        """Read once; True when that was all there is: a short read without descriptors, behind which it ends early."""
        flags |= _CLOEXEC
        data: bytes | memoryview
        try:
            if self._buffer:
                data, ancillary, seen, _ = self._sock.recvmsg(_CHUNK, _ANCILLARY, flags)
                all_read = len(data) < _CHUNK and not ancillary
            else:
                count, ancillary, seen, _ = self._sock.recvmsg_into([self._room], _ANCILLARY, flags)
                data = self._room[:count]
                all_read = count < _ROOM and not ancillary
        except (ConnectionResetError, OSError) as error:
            if isinstance(error, BlockingIOError | InterruptedError):
                raise
            raise ChannelClosed("the other end of the channel is gone") from error
        if not data:
            raise ChannelClosed("the other end of the channel is gone")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                rights = array.array("i")
                rights.frombytes(payload[: len(payload) - len(payload) % rights.itemsize])
                self._fds.extend(rights)
        self._buffer += data
        if seen & _CTRUNC:
            raise self._descriptors_dropped()
        self._split()
        return all_read

    def _descriptors_dropped(self) -> DescriptorsDropped:
        """Say what the kernel had no room for."""
        wanted, start = -len(self._fds), 0
        while len(self._buffer) - start > _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            wanted += self._buffer[start + _LENGTH.size]
            start += _LENGTH.size + 1 + length
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return DescriptorsDropped(
            errno.EMFILE,
            f"process {os.getpid()} could not take descriptors that were sent to it: it needs {wanted} more, and has "
            f"as many open as RLIMIT_NOFILE allows ({limit}); raise that limit (`ulimit -n {limit + 64}` or more, "
            "before the instance is started), or close files that user code has opened",
        )

    def _split(self) -> None:
        buffer = self._buffer
        start = 0
        head = _LENGTH.size + 1
        while len(buffer) - start >= head:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > self._longest:
                raise msgspec.DecodeError(f"a message of {length} bytes; {self._longest} are allowed")
            if len(buffer) - start - head < length:
                break
            count = buffer[start + _LENGTH.size]
            if count > len(self._fds):  # over a network none come, whatever the head says
                raise msgspec.DecodeError(f"a message with {count} descriptors, of which {len(self._fds)} have come")
            body = memoryview(buffer)[start + head : start + head + length]
            try:
                message = self._decoder.decode(body)
            except UNREADABLE as error:
                raise msgspec.DecodeError(str(error)) from error
            finally:
                body.release()
            self._messages.append((message, [self._fds.popleft() for _ in range(count)]))
            start += head + length
        if start:
            del buffer[:start]

    def feed(self, data: bytes) -> None:
        """Take bytes that other code has read from the socket."""
        self._buffer += data
        self._split()

    def duplicate(self) -> socket.socket:
        """Return the socket once more; it stays connected when the channel is closed."""
        return self._sock.dup()

    def close(self) -> None:
        """Close the socket and every descriptor that was not taken. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._sock.close()
        for fd in self._fds:
            os.close(fd)
        for _, fds in self._messages:
            for fd in fds:
                os.close(fd)
