"""Lines of text that a server sends, without end. After Jet's `streamSocketP`."""

from __future__ import annotations

import codecs
import math
import socket
from collections.abc import Iterable

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.processor import ProcessorContext
from shmjet.core.wake_up import wake_up_in
from shmjet.processors.general.sockets import CONNECT_TIMEOUT
from shmjet.processors.streams.readable import ReadableThread
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource

_RECEIVE = 64 << 10


class SocketStreamProcessor(TimedSource):
    """Emits the lines that arrive until the other side closes. It connects in `init`, which blocks.

    Args:
        host, port: of the server.
        encoding, errors: of the text.
        policy: of its event time; None: it has none.
    """

    is_cooperative = False

    def __init__(self, host: str, port: int, encoding: str, errors: str, policy: EventTimePolicy | None) -> None:
        super().__init__(policy)
        self._address = (host, port)
        self._encoding = encoding
        self._errors = errors
        self._socket: socket.socket | None = None
        self._thread: ReadableThread | None = None
        self._tail = ""

    def start(self, context: ProcessorContext) -> None:
        """Connect."""
        self._decoder = codecs.getincrementaldecoder(self._encoding)(self._errors)
        self._socket = socket.create_connection(self._address, CONNECT_TIMEOUT)
        self._socket.setblocking(False)
        self._thread = ReadableThread(self._socket.fileno(), wake_up_in(context))

    def read(self) -> Iterable[PartitionItems]:
        """Return the lines that have arrived; the beginning of a line waits for its end."""
        if self._socket is None or self._thread is None:
            self.ended = True
            return ()
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError:
            self.read_again = math.inf
            self._thread.arm()
            return ()
        self.read_again = 0.0
        lines = (self._tail + self._decoder.decode(data, final=not data)).split("\n")
        self._tail = lines.pop()
        if not data:
            self.ended = True
            self.close()
            if self._tail:
                lines.append(self._tail)
        return [PartitionItems([line.removesuffix("\r") for line in lines])]

    def close(self) -> None:
        """Close the connection."""
        if self._thread is not None:
            self._thread.close()
            self._thread = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
