"""The member's side of its link process: starts it, gives orders, awaits answers, passes on events.

Runs on the member's event loop and never blocks it. What it must not know: members, jobs, who coordinates.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from shmjet.host.own_code import program
from shmjet.ipc.loop_channel import LoopChannel
from shmjet.net.forked_link import ForkedLink
from shmjet.net.messages import (
    Alive,
    CloseExecution,
    Connect,
    Disconnect,
    Event,
    ExecutionClosed,
    ExecutionOpened,
    Fence,
    GetStats,
    Listen,
    ListenFailed,
    Listening,
    OpenExecution,
    RefuseClients,
    Send,
    SetHeartbeat,
    Setup,
    Stats,
    Stop,
)


class LinkLost(ConnectionError):
    """The link process is gone."""


class LinkClient:
    """A member's link process.

    Args:
        on_event: called with each event that answers no method here, and its descriptors, which it owns then:
            `PeerUp`, `PeerDown`, `ConnectFailed`, `Received`, `Heard`, `Accepted`.
        on_lost: called once when the process has ended unasked.
        forked: the process to use; None: `start` executes one.

    Example:
        >>> link = LinkClient(take_event, lost)                                # doctest: +SKIP
        >>> link.start(Setup(uuid, "dev", Secret(secret)))                     # doctest: +SKIP
        >>> address = await link.listen("0.0.0.0:5701")                        # doctest: +SKIP
        >>> link.connect("10.0.0.6:5701")    # a PeerUp or ConnectFailed comes # doctest: +SKIP
    """

    def __init__(
        self,
        on_event: Callable[[Event, list[int]], None],
        on_lost: Callable[[], None],
        forked: ForkedLink | None = None,
    ) -> None:
        self._on_event = on_event
        self._on_lost = on_lost
        self._forked = forked
        self._process: subprocess.Popen[bytes] | ForkedLink | None = None
        self._channel: LoopChannel | None = None
        self._listening: asyncio.Future[str] | None = None
        self._opening: dict[int, asyncio.Future[None]] = {}
        self._closing: dict[int, asyncio.Future[None]] = {}
        self._asked: dict[int, asyncio.Future[Stats]] = {}
        self._requests = 0
        self._beat: asyncio.TimerHandle | None = None
        self._stopped = False

    # -- life ---------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process' id; 0 before `start`."""
        return 0 if self._process is None else self._process.pid

    def start(self, setup: Setup, fds: Sequence[int] = ()) -> None:
        """Start the process; needs the running loop. The secret goes over a socket pair, not by argv or environment.

        Args:
            setup: who this member is.
            fds: the control segment's descriptor and the link's eventfd, when `setup` speaks of them; they stay the
                caller's.
        """
        if self._forked is None:
            self._process, sock = _executed()
        else:
            self._process, sock = self._forked, self._forked.socket
        self._channel = LoopChannel(sock, Event, self._take, self._gone)
        self._channel.open()
        own = [os.dup(fd) for fd in fds]
        self._channel.send(setup, own)
        self._channel.when_flushed(own)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Have the process close everything and end; kill it when it takes longer than `grace_s`."""
        self._stopped = True
        if self._beat is not None:
            self._beat.cancel()
        process, channel = self._process, self._channel
        if process is None or channel is None:
            return
        channel.send(Stop())
        if process.poll() is None:
            await _ended(process, grace_s)
        process.wait()
        channel.close()
        self._forget(LinkLost("the link has been stopped"))

    def _gone(self) -> None:
        if not self._stopped:
            self._stopped = True
            if self._beat is not None:
                self._beat.cancel()
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                self._process.wait()
            self._forget(LinkLost("the link process is gone"))
            self._on_lost()

    def _forget(self, error: LinkLost) -> None:
        waiting: list[asyncio.Future[None] | asyncio.Future[str] | asyncio.Future[Stats]] = []
        waiting += [*self._opening.values(), *self._closing.values(), *self._asked.values()]
        if self._listening is not None:
            waiting.append(self._listening)
        for future in waiting:
            if not future.done():
                future.set_exception(error)
        self._opening.clear()
        self._closing.clear()
        self._asked.clear()

    # -- orders -------------------------------------------------------------------------------------------------

    async def listen(self, address: str, advertised: str | None = None) -> str:
        """Open a port and return the address that others are told.

        Args:
            address: "host:port"; port 0 for any.
            advertised: where others reach it, port 0 for the bound port; None: the address that was bound.

        Raises:
            OSError: the port cannot be opened.
        """
        self._listening = asyncio.get_running_loop().create_future()
        self._send(Listen(address, advertised))
        return await self._listening

    def connect(self, address: str) -> None:
        """Connect to a member; `PeerUp` or `ConnectFailed` follows."""
        self._send(Connect(address))

    def disconnect(self, peer: str) -> None:
        """Close the connection to a peer once what was sent has left; `PeerDown` follows."""
        self._send(Disconnect(peer))

    def fence(self, peer: str) -> None:
        """Close the connection to a peer at once and accept nothing from it any more."""
        self._send(Fence(peer))

    def refuse_clients(self, order: RefuseClients) -> None:
        """Say which clients are told that this member is busy."""
        self._send(order)

    def send(self, peer: str, payload: bytes, *, may_wait: bool = False) -> None:
        """Send bytes to a peer's member, in order; lost when the peer is not connected.

        Args:
            peer: its identity.
            payload: what to send.
            may_wait: whether the data of edges goes first; such messages have an order of their own.
        """
        self._send(Send(peer, payload, may_wait))

    def set_heartbeat(self, interval: float, patience: float) -> None:
        """Have heartbeats sent each `interval` seconds, as long as this event loop has turned within `patience`."""
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        self._send(SetHeartbeat(int(interval * 1e9), int(patience * 1e9)))
        if interval > 0:
            self._live(min(interval, patience / 4))

    def _live(self, interval: float) -> None:
        if not self._stopped:
            self._send(Alive())
            self._beat = asyncio.get_running_loop().call_later(interval, self._live, interval)

    async def open_execution(self, order: OpenExecution, arena: int) -> None:
        """Have the edges of an execution carried.

        Args:
            order: what to open.
            arena: the arena's descriptor; stays the caller's.

        Raises:
            OSError: the link cannot; the text says why.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        own = [os.dup(arena)]
        self._send(order, own)
        self._opening[order.execution] = future
        if self._channel is not None:
            self._channel.when_flushed(own)
        await future

    async def close_execution(self, execution: int) -> None:
        """Have the link let go of an execution's arena."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._send(CloseExecution(execution))
        self._closing[execution] = future
        await future

    async def stats(self) -> Stats:
        """Return what went over connections and edges so far."""
        self._requests += 1
        future: asyncio.Future[Stats] = asyncio.get_running_loop().create_future()
        self._send(GetStats(self._requests))
        self._asked[self._requests] = future
        return await future

    def _send(self, order: object, fds: Sequence[int] = ()) -> None:
        if self._channel is None or self._stopped:
            for fd in fds:
                os.close(fd)
            raise LinkLost("the link process does not run")
        self._channel.send(order, fds)

    # -- events -------------------------------------------------------------------------------------------------

    def _take(self, event: Event, fds: list[int]) -> None:
        match event:
            case Listening():
                _resolve(self._listening, event.address)
            case ListenFailed():
                if self._listening is not None and not self._listening.done():
                    self._listening.set_exception(OSError(f"cannot listen on {event.address}: {event.reason}"))
            case ExecutionOpened():
                future = self._opening.pop(event.execution, None)
                if event.error is None:
                    _resolve(future, None)
                elif future is not None and not future.done():
                    future.set_exception(OSError(event.error))
            case ExecutionClosed():
                _resolve(self._closing.pop(event.execution, None), None)
            case Stats():
                _resolve(self._asked.pop(event.request, None), event)
            case _:
                self._on_event(event, fds)


def _executed() -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a link process, and return it with the socket to it."""
    ours, theirs = socket.socketpair()
    code = (  # whatever holds its imports up must not keep it alive without its member
        "import gc; gc.disable()\n"  # no module that it loads is garbage
        f"from shmjet.host.child_process import die_with_parent; die_with_parent({os.getpid()})\n"
        f"from shmjet.net.link_main import main; main({theirs.fileno()})"
    )
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program(code)],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
    return process, ours


def _resolve(future: asyncio.Future[Any] | None, value: Any) -> None:
    if future is not None and not future.done():
        future.set_result(value)


async def _ended(process: subprocess.Popen[bytes] | ForkedLink, grace_s: float) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    fd = os.pidfd_open(process.pid)
    try:
        loop.add_reader(fd, ended.set)
        await asyncio.wait_for(ended.wait(), grace_s)
    except TimeoutError:
        process.kill()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
