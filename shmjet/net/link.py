"""The link: one event loop that owns all sockets of a member and moves what its executions exchange with others.

It sleeps in epoll on its sockets and on an eventfd, its doorbell: workers that fill or empty a ring of a distributed
lane write that while the link sleeps. What it is told comes from the member (`messages.Order`), what it sees goes there
(`messages.Event`).
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import select
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from shmjet._native import Doorbell, LinkLoop, Poller, RingCorruptError, clock_ns
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.net.addresses import join_address, split_address
from shmjet.net.connection_manager import ConnectionManager
from shmjet.net.handshake import MEMBER, Identity
from shmjet.net.heartbeat import Periods
from shmjet.net.link_execution import CarriedExecution, carry
from shmjet.net.messages import (
    Accepted,
    Alive,
    CloseExecution,
    Connect,
    Disconnect,
    ExecutionClosed,
    ExecutionOpened,
    Fence,
    GetStats,
    Listen,
    ListenFailed,
    Listening,
    OpenExecution,
    PeerDown,
    PeerStats,
    PeerUp,
    Received,
    RefuseClients,
    Send,
    SetHeartbeat,
    Setup,
    Stats,
    Stop,
)
from shmjet.net.packets import PacketError
from shmjet.net.peer import Peer
from shmjet.net.pending_connection import PendingConnection, Security
from shmjet.net.receiver import OverflowBuffer
from shmjet.net.relay import Relays
from shmjet.net.wire_socket import tune_near

logger = logging.getLogger("shmjet.link")

_LONGEST_NS = 1_000_000_000
_GOODBYE_S = 0.2
MOST_FENCED = 1024
"""Identities that are remembered as fenced: each start of a member brings another one."""


class Link:
    """The link of one member.

    Args:
        channel: to the member.
        setup: the member's first message.
        fds: the control segment's descriptor and the link's eventfd, if the setup speaks of them; owned by the link.
    """

    def __init__(self, channel: Channel, setup: Setup, fds: Sequence[int]) -> None:
        self._channel = channel
        self._setup = setup
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._masks: dict[int, int] = {}
        self.peers: dict[str, Peer] = {}
        """The members that are connected, by uuid."""
        self._executions: dict[int, CarriedExecution] = {}
        self._relays = Relays(self)
        self._overflow = OverflowBuffer()
        self._fenced: dict[str, None] = {}
        self._refused_clients = RefuseClients(False)
        self._bell: Doorbell | None = None
        self._control: memoryview | None = None
        self._eventfd = -1
        self._periods = Periods(setup.flow_period_ns)
        self._due_ns = 0
        """When timers are looked at next; 0 when something has changed."""
        self._stopping = False
        if setup.doorbell_size:
            control, self._eventfd = fds
            self._mapping = mmap.mmap(control, setup.doorbell_size)
            self._control = memoryview(self._mapping)
            os.close(control)
            self._bell = Doorbell(self._control, setup.doorbell_offset, self._eventfd)
            self._epoll.register(self._eventfd, select.EPOLLIN | select.EPOLLET)  # never read: each ring is an edge
        self._link_loop = LinkLoop(self._epoll.fileno(), self._bell)
        self._leaving: list[Peer] = []
        self._me = Identity(MEMBER, setup.cluster, setup.uuid, "", setup.secret.value, setup.member_secret.value)
        self.connections = ConnectionManager(self, Security(setup.tls, listens=setup.tls is not None), setup.limits)
        self.watch(channel.fileno(), select.EPOLLIN, self._told)

    # -- what the connection manager needs ----------------------------------------------------------------------------

    @property
    def me(self) -> Identity:
        """Who this member is."""
        return self._me

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        """Have `handler` called with the events of a descriptor."""
        self._due_ns = 0  # the new one may have a deadline
        self._epoll.register(fd, mask)
        self._handlers[fd] = handler
        self._masks[fd] = mask

    def mask(self, fd: int, mask: int) -> None:
        """Change the events that a descriptor is watched for."""
        if self._masks.get(fd) != mask:
            self._epoll.modify(fd, mask)
            self._masks[fd] = mask

    def unwatch(self, fd: int) -> None:
        """Watch a descriptor no longer; before it is closed."""
        self._due_ns = 0
        if self._handlers.pop(fd, None) is not None:
            del self._masks[fd]
            with contextlib.suppress(OSError):
                self._epoll.unregister(fd)

    def is_fenced(self, uuid: str) -> bool:
        """Say whether nothing is to be accepted from a member."""
        return uuid in self._fenced

    def has_room_for(self, source: str) -> bool:
        """Say whether the member takes another client from a source."""
        return not self._refused_clients.all_sources and source not in self._refused_clients.sources

    def peer(self, uuid: str) -> Peer | None:
        """Return the connection to a member, None when there is none."""
        return self.peers.get(uuid)

    def peer_at(self, address: str) -> Peer | None:
        """Return the connection to the member that is known by an address."""
        return next((peer for peer in self.peers.values() if peer.address == address), None)

    def tell(self, event: object, fds: Sequence[int] = ()) -> None:
        """Tell the member something; its descriptors are closed when they have left."""
        if fds:
            self._channel.send(event, fds)
            for fd in fds:
                os.close(fd)
        else:
            self._channel.queue(event)

    def joined(self, connection: PendingConnection, address: str) -> None:
        """Take a member that has proved itself."""
        uuid = connection.peer
        dialed = connection.remote if connection.is_dialed else None
        wire, leftover = connection.accept()
        tune_near(wire.socket)
        peer = self.peers[uuid] = Peer(uuid, address, wire, self, self._setup.limits.message_bytes)
        peer.heard_ns = clock_ns()
        if peer.is_native:
            peer.join(self._link_loop)
            self._handlers[peer.fd] = lambda _: self._ended(peer)
        else:
            self.watch(peer.fd, select.EPOLLIN, lambda mask: self._peer_ready(peer, mask))
        self._due_ns = 0
        self.tell(PeerUp(uuid, address, dialed))
        try:
            peer.take(leftover)
        except (PacketError, RingCorruptError) as error:
            self._fail(peer, error)

    def client(self, connection: PendingConnection) -> None:
        """Take a client that has proved itself: its connection is the member's from now on."""
        wire, leftover = connection.accept()
        sock = wire.socket
        if self._setup.tls is None:
            sock.setblocking(True)
            self.tell(Accepted(connection.remote, leftover, False), [sock.detach()])
            return
        theirs = self._relays.add(wire)
        self.tell(Accepted(connection.remote, leftover, True), [theirs.detach()])

    # -- the loop -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Serve until the member says stop, or is gone."""
        try:
            while not self._stopping:
                self.turn(_LONGEST_NS)
        except ChannelClosed:
            pass
        finally:
            self.close()

    def turn(self, longest_ns: int) -> None:
        """Do what there is to do, or wait for it, at most `longest_ns`.

        Raises:
            ChannelClosed: the member is gone.
        """
        more = self._move()
        if not self._channel.flush():
            self.mask(self._channel.fileno(), select.EPOLLIN | select.EPOLLOUT)
        timeout = 0 if more else min(longest_ns, max(0, self._due_ns - clock_ns()))
        try:
            events = self._link_loop.carry(self._pollers(), timeout)
        except (OSError, PacketError, RingCorruptError) as error:
            events = []
            self._broken(self._link_loop.current, error)
        for fd, mask in events:
            handler = self._handlers.get(fd)
            if handler is not None:
                handler(mask)
        while self._leaving:
            self._ended(self._leaving.pop())
        now = clock_ns()
        if now >= self._due_ns:
            self.connections.tick(now)
            for heard in self._periods.tick(now, self.peers.values()):
                self.tell(heard)
            self._due_ns = min([self.connections.next_deadline(), *self._periods.next_ns(self.peers.values())])

    def _move(self) -> bool:
        """Fill rings that have room again, and do what the link loop cannot; True when there is more to be done now."""
        more = False
        for peer in list(self.peers.values()):
            try:
                for incoming in peer.incoming.values():
                    if incoming.is_blocked and incoming.poller.ready():
                        incoming.retry()
                    if incoming.due:
                        peer.send_limits(list(incoming.renewals()))
                if peer.is_native:
                    continue
                if not peer.is_blocked:
                    more = self._flush(peer) or more
                if peer.wire.has_more:
                    self._receive(peer)
                    more = True
            except (OSError, RingCorruptError) as error:
                self._fail(peer, error)
        return more

    def _flush(self, peer: Peer) -> bool:
        more = peer.flush()
        if peer.is_blocked:
            self.mask(peer.fd, select.EPOLLIN | select.EPOLLOUT)
        return more

    def _pollers(self) -> list[Poller]:
        """What is waited for apart from sockets and what the link loop takes from rings itself."""
        pollers = []
        for peer in self.peers.values():
            if not peer.is_native and not peer.is_blocked:
                pollers += [lanes.poller for lanes in peer.outgoing.values()]
            pollers += [lanes.poller for lanes in peer.incoming.values() if lanes.is_blocked]
        return pollers

    # -- the member ---------------------------------------------------------------------------------------------

    def _told(self, mask: int) -> None:
        if mask & select.EPOLLOUT and self._channel.flush():
            self.mask(self._channel.fileno(), select.EPOLLIN)
        for order, fds in self._channel.poll():
            self._obey(order, fds)

    def _obey(self, order: Any, fds: list[int]) -> None:
        self._due_ns = 0
        match order:
            case Send():
                peer = self.peers.get(order.peer)
                if peer is not None:
                    peer.send_message(order.payload, may_wait=order.may_wait)
            case Alive():
                self._periods.alive(clock_ns())
            case Connect():
                self.connections.connect(order.address)
            case Disconnect():
                self._disconnect(order.peer, "the member has disconnected")
            case Fence():
                self._fence(order.peer)
            case OpenExecution():
                self._open(order, fds[0])
            case CloseExecution():
                self._close_execution(order.execution)
            case Listen():
                self._listen(order)
            case SetHeartbeat():
                self._periods.set_heartbeat(order.interval_ns, order.patience_ns, clock_ns())
            case RefuseClients():
                self._refused_clients = order
            case GetStats():
                self.tell(self._stats(order.request))
            case Stop():
                for uuid in list(self.peers):
                    self._disconnect(uuid, "the member leaves")
                self._stopping = True

    def _listen(self, order: Listen) -> None:
        try:
            address = self.connections.listen(order.address)
        except (OSError, ValueError) as error:
            self.tell(ListenFailed(order.address, _text(error)))
            return
        if order.advertised is not None:
            host, port = split_address(order.advertised)
            address = join_address(host, port or split_address(address)[1])
        self._me = structs.replace(self._me, address=address)
        self.tell(Listening(address))

    def _stats(self, request: int) -> Stats:
        peers = [PeerStats(p.uuid, p.bytes_out, p.bytes_in, p.queued) for p in self.peers.values()]
        return Stats(request, peers, [edge for execution in self._executions.values() for edge in execution.stats()])

    # -- peers --------------------------------------------------------------------------------------------------

    def message(self, peer: Peer, payload: bytes) -> None:
        """Pass on what a peer's member has said."""
        self.tell(Received(peer.uuid, payload))

    def _peer_ready(self, peer: Peer, mask: int) -> None:
        if mask & select.EPOLLOUT:
            peer.is_blocked = False
            self.mask(peer.fd, select.EPOLLIN)
        if mask & ~select.EPOLLOUT:
            self._receive(peer)

    def _receive(self, peer: Peer) -> None:
        try:
            if not peer.receive():
                self._ended(peer)
        except (OSError, PacketError, RingCorruptError) as error:
            self._fail(peer, error)

    def leaves(self, peer: Peer) -> None:
        """Note that a peer has said goodbye."""
        self._leaving.append(peer)

    def _ended(self, peer: Peer) -> None:
        self._drop(peer, peer.leaving or "it has closed the connection")

    def _broken(self, fd: int, error: Exception) -> None:
        for peer in list(self.peers.values()):
            if peer.fd == fd:
                self._fail(peer, error)

    def _fail(self, peer: Peer, error: Exception) -> None:
        """Drop a peer whose connection is broken, or brings or would send what cannot be."""
        if isinstance(error, OSError):
            self._drop(peer, _text(error))
        else:
            self._drop(peer, str(error), log=True)

    def _drop(self, peer: Peer, reason: str, *, log: bool = False, hard: bool = False) -> None:
        """Close a connection and tell the member."""
        if self.peers.get(peer.uuid) is not peer:
            return
        del self.peers[peer.uuid]
        if log:
            logger.warning("the connection to %s is closed: %s", peer.address or peer.uuid, reason)
        if peer.is_native:
            del self._handlers[peer.fd]
            self._link_loop.remove(peer.fd)
        else:
            self.unwatch(peer.fd)
        peer.close(hard=hard)
        self.tell(PeerDown(peer.uuid, reason))

    def _disconnect(self, uuid: str, reason: str) -> None:
        """Say goodbye, let what was sent leave, and close."""
        peer = self.peers.get(uuid)
        if peer is None:
            return
        for execution in list(peer.outgoing):
            peer.drop(execution)
        peer.send_goodbye(reason)
        deadline = clock_ns() + int(_GOODBYE_S * 1e9)
        with contextlib.suppress(OSError):
            while peer.has_output and clock_ns() < deadline:
                peer.flush()
                if peer.is_blocked:
                    writable = select.poll()  # of a descriptor of any number
                    writable.register(peer.fd, select.POLLOUT)
                    writable.poll(10)
        self._drop(peer, reason)

    def _fence(self, uuid: str) -> None:
        self._fenced[uuid] = None
        if len(self._fenced) > MOST_FENCED:  # the oldest; its member, should it wake, is in no view either
            del self._fenced[next(iter(self._fenced))]
        peer = self.peers.get(uuid)
        if peer is not None:
            self._drop(peer, "it was fenced", hard=True)

    # -- executions ---------------------------------------------------------------------------------------------

    def _open(self, order: OpenExecution, fd: int) -> None:
        try:
            carried = carry(order, fd, self._control, self._setup.flow_period_ns, self._overflow, self.peers)
        except (OSError, ValueError, RingCorruptError) as error:
            self.tell(ExecutionOpened(order.execution, _text(error)))
            return
        now = clock_ns()
        if not self._executions:
            self._periods.begin_flow(now)
        self._executions[order.execution] = carried
        for uuid in carried.peers():
            peer, incoming = self.peers[uuid], carried.incoming[uuid]
            peer.carry(order.execution, carried.outgoing[uuid], incoming)
            entries = list(incoming.limits(now))  # at once: no sender should wait a period to begin
            if entries:
                peer.send_limits(entries)
        self.tell(ExecutionOpened(order.execution))

    def _close_execution(self, execution: int) -> None:
        carried = self._executions.pop(execution, None)
        if carried is not None:
            for peer in self.peers.values():
                peer.drop(execution)
            carried.close()
        self.tell(ExecutionClosed(execution))

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close everything."""
        for peer in list(self.peers.values()):
            self._drop(peer, "the link ends")
        for execution in self._executions.values():
            execution.close()
        self._executions.clear()
        self._relays.close()
        self.connections.close()
        with contextlib.suppress(ChannelClosed, OSError):
            self._channel.flush()
        self._channel.close()
        self._epoll.close()
        if self._bell is not None and self._control is not None:
            self._bell.close()
            self._control.release()
            self._mapping.close()
            os.close(self._eventfd)


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
