"""The console's connections, with a short time limit for connections without a request.

uvicorn closes a connection that is idle after an answer, but waits without end for the first request, and for the rest
of a request that has begun. With the limit, such connections cannot keep others out.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from shmjet.ipc.rate_limited_log import RateLimitedLog
from shmjet.net.admission import Admission, source_of

REQUEST_S = 10.0
"""Seconds from the connection, or the end of an answer, to the end of the next request's head."""
MOST_WAITING = 128
"""Connections that have not asked yet, all together; for one more, one of the address that has the most is closed."""


class RequestLog(logging.Logger):
    """What uvicorn says about requests: its warnings, which strangers bring about, are limited in rate."""

    def __init__(self) -> None:
        super().__init__("shmjet.console.requests", logging.WARNING)
        self.parent = logging.getLogger("shmjet.console")
        self._limited = RateLimitedLog(self.parent)

    def warning(self, msg: object, *args: object, **_: Any) -> None:
        """Log a warning, or count it for the next."""
        self._limited.warning(str(msg), *args)


class Connection(H11Protocol):
    """One connection. The console's server makes them; all of one server share `waiting` and `requests`."""

    waiting: Admission[Connection]
    requests: RequestLog

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take it, and have another one go where there are too many."""
        self.logger = self.requests
        super().connection_made(transport)
        self._deadline: asyncio.TimerHandle | None = None
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self._stop_waiting()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_request()

    def _await_request(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(REQUEST_S, self.transport.abort)
        self.waiting.add(self, source_of(self.client[0] if self.client else ""))
        if len(self.waiting) > MOST_WAITING:
            oldest = self.waiting.to_give_up()
            if oldest is not None:
                self.waiting.discard(oldest)
                oldest.transport.abort()

    def _stop_waiting(self) -> None:
        self.waiting.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def connections() -> type[Connection]:
    """Return what a server makes its connections of."""
    return type("Connection", (Connection,), {"waiting": Admission(), "requests": RequestLog()})
