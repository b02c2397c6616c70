"""A client's connection to a member: requests with replies, and a thread that hands over what comes unasked."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from shmjet.cluster.protocol import ExecutionChanged, Refused, Reply
from shmjet.core import errors
from shmjet.core.errors import MemberLostError, ShmjetError
from shmjet.execution.channel import Channel, ChannelClosed


class Connection:
    """One connection; may be used from any thread.

    Args:
        path: the member's socket.
        on_change: called in the reader's thread with every `ExecutionChanged`.
        on_lost: called in the reader's thread, once, when the member is gone.
    """

    def __init__(self, path: str, on_change: Callable[[ExecutionChanged], None], on_lost: Callable[[], None]) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(path)
        self._sock = sock
        self._pid = os.getpid()
        self._channel = Channel(sock, Reply)
        self._on_change = on_change
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._lost = False
        self._reader = threading.Thread(target=self._read, name="shmjet-client", daemon=True)
        self._reader.start()

    def ask(self, make: Callable[[int], Any], timeout: float | None = None, fds: Sequence[int] = ()) -> Any:
        """Send a request and return its reply.

        Args:
            make: makes the request from its number.
            timeout: seconds.
            fds: descriptors that go with it; they may be closed afterwards.

        Raises:
            MemberLostError: the member is gone.
            ShmjetError: it refused; the class is the one that it named.
            TimeoutError: no reply within `timeout`.
        """
        reply = self.post(make, fds).result(timeout)
        if isinstance(reply, Refused):
            kind = getattr(errors, reply.error, ShmjetError)
            raise kind(reply.text)
        return reply

    def post(self, make: Callable[[int], Any], fds: Sequence[int] = ()) -> Future[Any]:
        """Send a request with descriptors; the future brings its reply."""
        if os.getpid() != self._pid:  # the parent has the thread that reads replies, and would get ours
            raise ShmjetError(
                f"this instance belongs to process {self._pid}, from which this one ({os.getpid()}) was forked; "
                "start one here with shmjet.new_instance()"
            )
        future: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            if self._lost:
                raise MemberLostError("the member of this instance is gone; start a new one with shmjet.new_instance()")
            self._waiting[number] = future
            try:
                self._channel.send(make(number), fds)
            except (ChannelClosed, OSError) as error:
                self._waiting.pop(number, None)
                raise MemberLostError("the member of this instance is gone") from error
        return future

    def _read(self) -> None:
        try:
            while True:
                reply, _ = self._channel.receive()
                if isinstance(reply, ExecutionChanged):
                    self._on_change(reply)
                else:
                    future = self._waiting.pop(reply.request, None)
                    if future is not None:
                        future.set_result(reply)
        except ChannelClosed:
            pass
        with self._lock:
            self._lost = True
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(MemberLostError("the member was lost before it answered"))
        self._on_lost()

    def close(self) -> None:
        """Close the connection and wait for the reader's end; may be called twice."""
        with contextlib.suppress(OSError):  # it is closed already
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join()
        self._channel.close()
