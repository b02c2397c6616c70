"""Lines of text over TCP: a source that reads them and a sink that writes them.

They block, so they are not cooperative and run in processes of their own; a call waits no
longer than `LatencyPolicy.blocking_ns`.
Must not know: protocols above lines. After Jet's `streamSocketP` and `writeSocketP`.
"""

from __future__ import annotations

import codecs
import socket
from collections.abc import Callable
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import mapped
from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import Processor, ProcessorContext, ProcessorMetaSupplier
from shmjet.processors.files.line_blocks import check_encoding
from shmjet.processors.general.base import BulkProcessor, Supply

CONNECT_TIMEOUT = 10.0
"""Seconds within which a connection must come about."""

_RECEIVE = 256 << 10


class ReadLinesProcessor(BulkProcessor):
    """Emits the lines that arrive until the other side closes."""

    is_cooperative = False

    def __init__(self, host: str, port: int, encoding: str, errors: str) -> None:
        self._address = (host, port)
        self._encoding = encoding
        self._errors = errors
        self._socket: socket.socket | None = None
        self._tail = ""

    def start(self, context: ProcessorContext) -> None:
        """Connect."""
        self._decoder = codecs.getincrementaldecoder(self._encoding)(self._errors)
        self._socket = socket.create_connection(self._address, CONNECT_TIMEOUT)
        self._socket.settimeout(policy_in(context).blocking_ns / 1e9)

    def complete(self) -> bool:
        """Emit what arrives within a short wait; True at the end of the stream."""
        if not self.emission.flush():
            return False
        if self._socket is None:
            return True
        try:
            data = self._socket.recv(_RECEIVE)
        except TimeoutError:
            return False
        lines = (self._tail + self._decoder.decode(data, final=not data)).split("\n")
        self._tail = lines.pop()
        if not data:
            self.close()
            if self._tail:
                lines.append(self._tail)
        return self.emission.put([line.removesuffix("\r") for line in lines]) and not data

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class WriteSocketProcessor(BulkProcessor):
    """Sends a line for each item."""

    is_cooperative = False

    def __init__(self, host: str, port: int, to_line: Callable[[Any], str], encoding: str) -> None:
        self._address = (host, port)
        self._to_line = to_line
        self._encoding = encoding
        self._socket: socket.socket | None = None
        self._unsent = memoryview(b"")

    def start(self, context: ProcessorContext) -> None:
        """Connect."""
        self._socket = socket.create_connection(self._address, CONNECT_TIMEOUT)
        self._socket.settimeout(policy_in(context).blocking_ns / 1e9)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # each send has all items of a call

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Send what is left of earlier items, then a list; what the other side does not take now stays for later."""
        if not self._send():
            return
        self.release(inbox)
        if not inbox:
            return
        items = inbox.take()
        text = "\n".join(mapped(self._to_line, items)) + "\n"
        self._unsent = memoryview(text.encode(self._encoding))
        if not self._send():
            self.hold(inbox, items[-1])

    def finish(self) -> bool:
        """Tell the other side that this was all."""
        if self._socket is not None:
            self._socket.shutdown(socket.SHUT_WR)
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self) -> bool:
        assert self._socket is not None
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent[:_RECEIVE])
            except TimeoutError:
                return False
            self._unsent = self._unsent[sent:]
        return True


def checked_address(function: str, host: str, port: int) -> tuple[str, int]:
    """Return the address of a server. Raises TypeError or ValueError when it cannot be one."""
    if not isinstance(host, str) or not host:
        raise TypeError(f"{function}: expected a host name or address, got {host!r}")
    if not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError(f"{function}: port must be 1 to 65535, got {port!r}")
    return host, port


def read_lines_socket(
    host: str, port: int, *, encoding: str = "utf-8", errors: str = "replace"
) -> ProcessorMetaSupplier:
    """Connect to a server and emit the lines it sends, until it closes the connection.

    Every processor of the vertex makes a connection of its own; one per member by default.

    Args:
        host, port: of the server.
        encoding, errors: of the text, as for `bytes.decode`.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    A connection that is refused, or does not come about within 10 s, makes the job fail with the `OSError`.

    Example:
        >>> source = read_lines_socket("localhost", 5000)
    """
    address = checked_address("read_lines_socket", host, port)
    return ProcessorMetaSupplier.prefer_local_parallelism_one(
        Supply(ReadLinesProcessor, *address, check_encoding(encoding), errors)
    )


def write_socket(
    host: str, port: int, to_line: Callable[[Any], str] = str, *, encoding: str = "utf-8"
) -> Callable[[], Processor]:
    """Connect to a server and send each item as a line of text.

    Every processor of the vertex makes a connection of its own.

    Args:
        host, port: of the server.
        to_line: text of an item, without the newline.
        encoding: of the text.

    Raises:
        TypeError, ValueError, LookupError: for arguments that make no sense.

    Example:
        >>> sink = write_socket("localhost", 5001)
    """
    if not callable(to_line):
        raise TypeError(f"write_socket: to_line must be callable, got {to_line!r}")
    return Supply(WriteSocketProcessor, *checked_address("write_socket", host, port), to_line, check_encoding(encoding))
