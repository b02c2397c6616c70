"""A client's connection to a member: requests with replies, news, and the patience of a client.

An `Endpoint` leads to a member. One over the network may lead to another member when the first is gone: then the
connection goes on there, after it has told its user. Requests that may be sent twice are sent again there.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from shmjet.cluster.protocol import News, Ping, Refused, Reply
from shmjet.cluster.retry import as_retry, is_idempotent
from shmjet.data import errors
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.grid import errors as grid_errors
from shmjet.host.patience import Patience
from shmjet.ipc.channel import Channel, ChannelClosed

logger = logging.getLogger("shmjet.client")

CLOSED = "this instance has been shut down; start a new one with shmjet.new_instance() or shmjet.new_client()"
PATIENCE_S = 3.0
"""A client's patience: a member on the network that is silent for so long, though it is asked to answer, counts as
lost. Then the client connects to another member."""
RECONNECT_S = 15.0
"""How long a client tries to reach any member after it has lost its own, if it does not say it,"""
_LONGER_S = 5.0
"""and how much longer a request waits for that."""
MOST_SILENCE_S = 60.0
"""How long a request is waited for when the member gives no sign of life."""
WARN_SILENCE_S = 5.0
"""After how long that is logged."""
SIGN_S = 2.0
STEP_S = 1.0
MOST_VAIN = 5
"""Connections in a row that may end without an answer before a request that was sent over all of them is given up."""
PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
"""Between two such connections; the pauses double."""
_SIGNS = 4
"""How often a silent member is asked for a sign of life before it counts as lost."""


class Endpoint(Protocol):
    """What leads to a member."""

    def connect(self) -> tuple[socket.socket, bytes, Callable[[], None]]:
        """Return a connected socket, what has been read from it already, and what closes it."""

    @property
    def reconnect_s(self) -> float:
        """How long `connect_again` may look for a member, in seconds."""

    def connect_again(self, stopped: Callable[[], bool]) -> tuple[socket.socket, bytes, Callable[[], None]] | None:
        """Return another one, after the first has been lost; None when there is none, or when it is not wanted."""

    @property
    def patience(self) -> float | None:
        """Seconds of silence after which the member counts as lost; None where its end is noticed anyway."""

    @property
    def gone(self) -> str:
        """What to say when there is no connection and will be none."""

    @property
    def trouble(self) -> str:
        """What keeps a member from answering, as far as it can be seen, after ": "; else nothing."""


def _pass_on(take: Callable[[Any], None], late: Future[Any]) -> None:
    if late.exception() is None:
        take(late.result())


def refusal(reply: Refused) -> Exception:
    """Return the error that a refusal names."""
    kind: Any = getattr(errors, reply.error, getattr(grid_errors, reply.error, ShmjetError))
    error: Exception = kind(reply.text)
    if isinstance(error, grid_errors.NotOnDiskError):
        error.result = reply.result
    return error


class _Asked(msgspec.Struct, frozen=True):
    """A request that has not been answered, and when it was sent first."""

    future: Future[Any]
    request: Any
    at: float
    vain: int = 0
    """How often it was sent over a connection that then ended without an answer to anything."""
    was_sent: bool = True
    """Whether a member may have got it."""

    def give_up(self, gone: str) -> None:
        """Fail it.

        Args:
            gone: what to say where no member has got it.
        """
        what = type(self.request).__name__
        text = f"the member was lost before it answered; whether the request ({what}) was carried out is not known"
        self.future.set_exception(MemberLostError(text if self.was_sent else gone))


class Connection:
    """One connection; may be used from any thread.

    Args:
        endpoint: that leads to the member.
        on_news: called in the reader's thread with what comes unasked.
        on_again: called in the reader's thread when the connection has been made again.
        on_lost: called in the reader's thread, once, when it is gone for good.
        on_quiet: called in the reader's thread now and then, as long as no news come over a network.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        on_news: Callable[[News], None],
        on_again: Callable[[], None],
        on_lost: Callable[[], None],
        on_quiet: Callable[[], None] = lambda: None,
    ) -> None:
        self._endpoint = endpoint
        self._on_quiet = on_quiet
        self._quiet = 0
        self._pid = os.getpid()
        self._on_news = on_news
        self._on_again = on_again
        self._on_lost = on_lost
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[int, _Asked] = {}
        self._connected = False
        self._lost = False
        self._closing = False
        self._ended = threading.Event()
        self._use(*endpoint.connect())
        self._reader = threading.Thread(target=self._read, name="shmjet-client", daemon=True)
        self._reader.start()

    def _use(self, sock: socket.socket, leftover: bytes, close: Callable[[], None]) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(MOST_SILENCE_S), 0))
        channel = Channel(sock, Reply)
        if leftover:
            channel.feed(leftover)
        with self._lock:
            self._sock, self._channel, self._close_endpoint = sock, channel, close
            self._connected = True
            self._changed.notify_all()
        if self._closing:  # `close` has ended the connection before
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def ask(
        self,
        make: Callable[[int], Any],
        timeout: float | None = None,
        fds: Sequence[int] = (),
        on_late: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send a request and return its reply.

        Args:
            make: makes the request from its number.
            timeout: seconds.
            fds: descriptors that go with it; they may be closed afterwards.
            on_late: called in the reader's thread with a reply that comes after `timeout`.

        Raises:
            MemberLostError: the member is gone, or has not answered anything for `MOST_SILENCE_S`.
            ShmjetError: it refused, and the class is what it named; or this connection has been closed.
            TimeoutError: no reply within `timeout`.
        """
        reply = self.wait_for(self.post(make, fds), timeout, on_late)
        if isinstance(reply, Refused):
            raise refusal(reply)
        return reply

    def wait_for(self, future: Future[Any], timeout: float | None, on_late: Callable[[Any], None] | None) -> Any:
        """Wait for a reply as long as the member gives signs of life, or `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        patience, sign, has_warned = Patience(STEP_S), None, False
        while True:
            left = STEP_S if deadline is None else deadline - time.monotonic()
            with contextlib.suppress(TimeoutError):
                return future.result(max(0.0, min(left, STEP_S)))
            if deadline is not None and time.monotonic() >= deadline:
                if on_late is not None:
                    future.add_done_callback(partial(_pass_on, on_late))
                raise TimeoutError(f"the member has not answered within {timeout:g} s{self._endpoint.trouble}")
            waited = patience.waited(time.monotonic())
            if sign is not None and sign.done():  # it is busy with what we have asked for
                patience.reset()
                sign = None
            elif sign is None and waited >= SIGN_S:
                sign = self.post(Ping)
            elif waited >= WARN_SILENCE_S and not has_warned:
                has_warned = True
                logger.warning("the member has not answered for %.0f s%s", waited, self._endpoint.trouble)
            if waited >= MOST_SILENCE_S:
                raise MemberLostError(f"the member has not answered for {waited:.0f} s{self._endpoint.trouble}")

    def post(self, make: Callable[[int], Any], fds: Sequence[int] = ()) -> Future[Any]:
        """Send a request with descriptors; the future brings its reply."""
        if os.getpid() != self._pid:  # the parent has the thread that reads replies, and would get ours
            raise ShmjetError(
                f"this instance belongs to process {self._pid}, from which this one ({os.getpid()}) was forked; "
                "start one here with shmjet.new_instance()"
            )
        future: Future[Any] = Future()
        with self._lock:
            if self._closing:
                raise ShmjetError(CLOSED)
            number = next(self._numbers)
            if not self._connected and threading.current_thread() is not self._reader:
                self._changed.wait_for(lambda: self._connected or self._lost, self._endpoint.reconnect_s + _LONGER_S)
            if self._closing:  # while we waited
                raise ShmjetError(CLOSED)
            if self._lost or not self._connected:
                raise MemberLostError(self._endpoint.gone)
            request = make(number)
            self._waiting[number] = _Asked(future, request, time.monotonic())
            try:
                self._channel.send(request, fds)
            except (ChannelClosed, OSError) as error:
                asked = self._waiting.pop(number)
                if isinstance(error, BlockingIOError):  # part of it may have left, so nothing can follow
                    with contextlib.suppress(OSError):
                        self._sock.shutdown(socket.SHUT_RDWR)
                    raise MemberLostError(
                        f"the member has not read for {MOST_SILENCE_S:g} s{self._endpoint.trouble}"
                    ) from None
                if not is_idempotent(request) or threading.current_thread() is self._reader:
                    raise MemberLostError(self._endpoint.gone) from error
                self._waiting[number] = replace(asked, was_sent=False)  # the reader is about to notice, and repeats it
        return future

    def _read(self) -> None:
        """Be the reader's thread. Whatever happens in it, no request waits forever."""
        try:
            self._read_until_lost()
        except BaseException:
            logger.critical("the thread that reads what the member says has failed", exc_info=True)
        finally:
            with self._lock:
                self._lost = True
                self._connected = False
                waiting, self._waiting = self._waiting, {}
                self._changed.notify_all()
            for asked in waiting.values():
                asked.give_up(self._endpoint.gone)
            self._on_lost()

    def _read_until_lost(self) -> None:
        vain = 0
        while True:
            vain += 1
            try:
                while True:
                    self._await_reply()
                    reply, _ = self._channel.receive()
                    if isinstance(reply, News):
                        self._quiet = 0
                        self._tell(self._on_news, reply)
                    else:
                        vain = 0
                        asked = self._waiting.pop(reply.request, None)
                        if asked is not None:
                            asked.future.set_result(reply)
            except ChannelClosed:
                pass
            except (msgspec.DecodeError, OSError, MemoryError) as error:
                logger.error("the connection to the member is given up: %s: %s", type(error).__name__, error)
            with self._lock:
                self._connected = False
                waiting, self._waiting = self._waiting, {}
            if vain:
                waiting = {number: replace(asked, vain=asked.vain + 1) for number, asked in waiting.items()}
                self._ended.wait(min(PAUSE_S * 2 ** (vain - 1), _LONGEST_PAUSE_S) if vain > 1 else 0)
            repeatable = {
                number: asked
                for number, asked in waiting.items()
                if is_idempotent(asked.request) and asked.vain < MOST_VAIN
            }
            for number in waiting.keys() - repeatable.keys():
                waiting[number].give_up(self._endpoint.gone)
            again = None if self._closing else self._endpoint.connect_again(lambda: self._closing)
            if again is None:
                for asked in repeatable.values():
                    asked.give_up(self._endpoint.gone)
                return
            self._channel.close()
            self._close_endpoint()
            self._use(*again)
            self._tell(self._on_again)
            for number, asked in sorted(repeatable.items()):
                self._repeat(number, asked)

    @staticmethod
    def _tell(told: Callable[..., None], *news: Any) -> None:
        """Tell the owner something; what it raises must not end the thread that all requests wait for."""
        try:
            told(*news)
        except ShmjetError as error:  # the connection is gone again already
            logger.debug("%s", error)
        except Exception:
            logger.exception("news of the member could not be taken in")

    def _repeat(self, number: int, asked: _Asked) -> None:
        """Ask once more, over another connection, under the same number."""
        request = as_retry(asked.request, time.monotonic() - asked.at)
        with self._lock:
            self._waiting[number] = replace(asked, was_sent=True)
            with contextlib.suppress(ChannelClosed, OSError):  # the reader will notice, and come here again
                self._channel.send(request)

    def _await_reply(self) -> None:
        """Wait for bytes from a member that may fall silent, and ask it for a sign of life when there are none.

        Raises:
            ChannelClosed: it gives none.
        """
        patience = self._endpoint.patience
        if patience is None or self._channel.has_message:
            return
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        step = patience / _SIGNS
        heard = looked = time.monotonic()
        while not poll.poll(1000 * step):
            now = time.monotonic()
            if now - looked > 2 * step:  # it was this process that was away
                heard = now
            if now - heard >= patience:
                raise ChannelClosed("the member is silent")
            looked = now
            self._quiet += 1
            with contextlib.suppress(ShmjetError):
                self.post(Ping)
                if self._quiet % _SIGNS == 0:
                    self._tell(self._on_quiet)

    def close(self) -> None:
        """Close the connection and wait for the reader's end; may be called twice."""
        self._closing = True
        self._ended.set()
        with contextlib.suppress(OSError):  # it is closed already
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join()
        self._channel.close()
        self._close_endpoint()
