"""A member's place in the cluster: its link process, its membership, and the messages that go between members.

Here the pure state machine of `membership` meets sockets and time: it is fed with what the link reports, and what it
wants to say is sent. The user of a network is told of views, of lost connections, of messages from members of the view
(only from those) and of clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import msgspec

from shmjet.cluster.membership.advertised_address import advertised_host
from shmjet.cluster.membership.contacts import DIAL_AGAIN_S, Contacts
from shmjet.cluster.membership.discovery import Discovery
from shmjet.cluster.membership.discovery_search import DiscoverySearch
from shmjet.cluster.membership.early_messages import EarlyMessages
from shmjet.cluster.membership.events import (
    HasLeft,
    JoinFailed,
    PartitionsLost,
    State,
    StoredRunsWanted,
    TableInstalled,
    ViewInstalled,
    WasFenced,
    WasIsolated,
    membership_settings,
)
from shmjet.cluster.membership.failure_detector import HEARTBEAT_S
from shmjet.cluster.membership.network_user import NetworkSettings, NetworkUser
from shmjet.cluster.membership.peer_messages import FilePiece, PeerMessage
from shmjet.cluster.membership.state_machine import Membership
from shmjet.cluster.membership.views import MembershipMessage, Peer, View
from shmjet.cluster.partitions.table import Change, PartitionTable
from shmjet.data.decoders import msgpack_decoder
from shmjet.data.errors import AuthenticationError, ConfigError, ShmjetError
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.ipc.decode_errors import UNREADABLE
from shmjet.net.addresses import join_address, split_address
from shmjet.net.client import LinkClient, LinkLost
from shmjet.net.forked_link import ForkedLink
from shmjet.net.messages import (
    Accepted,
    ConnectFailed,
    Heard,
    PeerDown,
    PeerUp,
    Received,
    RefuseClients,
    Secret,
    Setup,
)

_ALIVE_S = 0.7
"""How long the link sends heartbeats for a member that gives no sign of life itself."""
_TICK_S = 0.1
_REACH_S = 5.0
_LEAVE_S = 2.0
_JOIN_S = 30.0
_RESTART_S = 0.5

logger = logging.getLogger("shmjet.member")


class Network:
    """See the module.

    Args:
        settings: of the network.
        user: is told what happens.
        discovery: finds further addresses.
        forked: the first link process; None to execute it as all later ones.
    """

    def __init__(
        self, settings: NetworkSettings, user: NetworkUser, discovery: Discovery, forked: ForkedLink | None = None
    ) -> None:
        self._settings = settings
        self._user = user
        self._discovery_search = DiscoverySearch(
            discovery, lambda addresses: self._state.add_seeds(addresses), lambda: self.view is not None
        )
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgpack_decoder(PeerMessage).decode
        self._forked = forked
        self._link: LinkClient | None = None
        self._membership: Membership | None = None
        self._address = ""
        self._contacts = Contacts(lambda: self.link, self._now)
        self._early = EarlyMessages()
        self._ready: asyncio.Future[None] | None = None
        self._left = asyncio.Event()
        self._arrived = asyncio.Event()
        self._tasks = BackgroundTasks(self._task_failed)
        self._stopping = False
        self._restarting = False
        self._member_since = 0.0
        self._was_isolated = False
        """Whether it has given up what it knew, and no view has followed."""
        self._refused_clients = RefuseClients(False)

    # -- what others see ----------------------------------------------------------------------------------------

    @property
    def link(self) -> LinkClient | None:
        """The link, None while there is none."""
        return None if self._restarting else self._link

    @property
    def settings(self) -> NetworkSettings:
        """Its settings."""
        return self._settings

    @property
    def link_pid(self) -> int:
        """The link's process id."""
        return 0 if self._link is None else self._link.pid

    @property
    def address(self) -> str:
        """Where others reach this member."""
        return self._address

    @property
    def me(self) -> Peer:
        """This member, with its present identity."""
        return self._state.me

    @property
    def has_identity(self) -> bool:
        """Whether its port is open: before that this member has no identity that others know."""
        return self._membership is not None

    @property
    def view(self) -> View | None:
        """The view in force; None while this member has none or is cut off from most of it."""
        found = self._membership  # None before the port is open
        return found.view if found is not None and found.state is State.MEMBER else None

    @property
    def table(self) -> PartitionTable | None:
        """The table of partitions in force, of the same epoch as the view; None while there is no view."""
        return None if self.view is None else self._state.table

    @property
    def is_coordinator(self) -> bool:
        """Whether this is the oldest member."""
        return self._state.is_coordinator

    def member_for(self) -> float:
        """Return for how many seconds this has been a member under its present identity; 0 without a view."""
        return 0.0 if self.view is None or self._was_isolated else self._now() - self._member_since

    @property
    def is_cut_off(self) -> bool:
        """Whether there is no view because most of the others cannot be heard."""
        return self._state.state is State.ISOLATED

    @property
    def waits_for(self) -> str:
        """Why no partition is open yet, in the words of an error message; empty when no member is waited for."""
        table = self.table
        if table is None or not table.awaited:
            return ""
        missing = ", ".join(table.awaited)
        return (
            f"maps, lists and jobs are on the disks of members that have not come yet ({missing}); start these, or go "
            "on without what only they have by `shmjet recover`"
        )

    def go_on_without(self) -> None:
        """Wait no longer for members that have partitions on disk; for the coordinator."""
        self._state.go_on_without()
        self._pump()

    @property
    def trouble(self) -> str:
        """Why there is no view: in the words of an error message."""
        if self._state.state is State.ISOLATED:
            lost = ", ".join(peer.address for peer in self._state.missing)
            return f"member {self._address} has lost touch with {lost}, and waits until it can join the others again"
        return f"member {self._address} is looking for its cluster"

    @property
    def _state(self) -> Membership:
        assert self._membership is not None
        return self._membership

    # -- life ---------------------------------------------------------------------------------------------------

    async def open_port(self) -> None:
        """Start the link and open the port; `join` follows. Raises OSError when the port cannot be opened."""
        identity = _new_identity()
        bind, seeds = self._settings.bind, self._settings.seeds
        self._address = await self._open(identity, bind, advertised_host(bind, seeds))
        now = asyncio.get_running_loop().time()
        self._membership = Membership(
            self._user.peer(identity, self._address),
            seeds,
            self._settings.partition_count,
            _new_identity,
            now,
            membership_settings(self._settings.longest_silence),
            allow_code=self._settings.allow_code,
            backups=self._settings.backup_count,
            maps=self._settings.maps,
            holds_data=True,
            stored=self._user.stored_table,
        )

    async def join(self) -> None:
        """Join or found a cluster.

        Raises:
            AuthenticationError: a member does not accept our secret, or we not its.
            ShmjetError: the cluster does not take this member, or no member answers for too long.
        """
        self._ready = asyncio.get_running_loop().create_future()
        await self._discovery_search.begin(self._address)
        self._tasks.start(self._tick())
        self._tasks.start(self._discovery_search.go_on())
        try:
            await asyncio.wait_for(self._ready, _JOIN_S)
        except TimeoutError:
            asked = ", ".join(sorted(self._state.addresses())) or "no address"
            raise ShmjetError(
                f"member {self._address} has found no cluster that takes it within {_JOIN_S:.0f} s; it asked {asked}"
            ) from None

    async def _open(self, identity: str, bind: str, host: str | None) -> str:
        settings = self._settings
        size, offset, fds = self._user.link_setup()
        forked, self._forked = self._forked, None
        link = LinkClient(self._take, self._link_lost, forked)
        setup = Setup(
            identity,
            settings.cluster_name,
            Secret(settings.secret),
            settings.tls,
            flow_period_ns=settings.flow_period_ns,
            doorbell_size=size,
            doorbell_offset=offset,
            folder=str(self._user.folder.path),
            member_secret=Secret(settings.member_secret),
        )
        self._link = link
        link.start(setup, fds)
        advertised = None if host is None else join_address(host, split_address(bind)[1])
        address = await link.listen(bind, advertised)
        link.set_heartbeat(HEARTBEAT_S, _ALIVE_S)
        link.refuse_clients(self._refused_clients)
        return address

    def refuse_clients(self, order: RefuseClients) -> None:
        """Say which clients are told that this member is busy."""
        self._refused_clients = order
        with contextlib.suppress(LinkLost):
            if self.link is not None:
                self.link.refuse_clients(order)

    async def leave(self) -> None:
        """Tell the others that this member goes, and wait until they know, or for a moment."""
        if self._membership is None:
            return
        self._membership.leave(self._now())
        self._pump()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._left.wait(), _LEAVE_S)

    async def stop(self) -> None:
        """Close everything."""
        self._stopping = True
        await self._tasks.cancel()
        await self._discovery_search.stop()
        if self._link is not None:
            await self._link.stop(0.5)

    def send(self, identity: str, message: object) -> None:
        """Send a message to a member; it is lost when there is no connection to it."""
        if identity in self._contacts:
            self._contacts.send(identity, self._encode(message), may_wait=isinstance(message, FilePiece))

    def report(self, changes: Iterable[Change]) -> None:
        """Report changes of replicas whose primary this member has; see `Membership.report`."""
        self._state.report(changes)
        self._pump()

    def has_runs_of(self, member: str) -> None:
        """Take that this member has the runs that another one, or itself, has on disk."""
        self._state.has_runs_of(member)
        self._pump()

    def is_connected(self, identity: str) -> bool:
        """Say whether there is a connection to a member."""
        return identity in self._contacts

    async def reach(self, identities: Sequence[str]) -> None:
        """Wait until there are connections to members of the view: right after a change some are still being made.

        Raises:
            OSError: one of them cannot be reached; the text names it.
        """
        deadline = self._now() + _REACH_S
        while missing := [uuid for uuid in identities if uuid != self.me.uuid and uuid not in self._contacts]:
            view = self.view
            peers = [view.find(uuid) for uuid in missing] if view is not None else []
            addresses = [peer.address for peer in peers if peer is not None]
            if self._now() > deadline or not addresses:
                raise OSError(f"member {self._address} has no connection to {', '.join(addresses or missing)}")
            for address in addresses:
                self._contacts.dial(address)
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), DIAL_AGAIN_S)

    # -- time ---------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _tick(self) -> None:
        while True:
            if not self._restarting:  # without one no member can be asked
                self._state.tick(self._now())
                self._pump()
            await asyncio.sleep(_TICK_S)

    def _task_failed(self, error: BaseException) -> None:
        logger.critical("the network of this member failed", exc_info=error)
        os._exit(1)  # a member that does not notice what happens around it must not go on

    # -- from membership ----------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Carry out what membership wants."""
        state = self._state
        while True:
            messages, events = state.take_messages(), state.take_events()
            for address, message in messages:
                self._contacts.say(address, self._encode(message))
            for event in events:
                self._happened(event)
            if not messages and not events:
                return

    def _happened(self, event: Any) -> None:
        match event:
            case ViewInstalled():
                self._follow(event)
            case TableInstalled():
                self._user.table_changed()
            case PartitionsLost():
                lost = ", ".join(map(str, event.partitions))
                logger.error("no member is left that has these partitions, and they begin anew, empty: %s", lost)
            case StoredRunsWanted():
                self._user.stored_runs_wanted(event.member)
            case WasIsolated():
                self._was_isolated = True
                logger.error("lost touch with %s: this member waits", _names(event.lost))
                self._user.isolated(event.lost, event.others)
                self._hang_up(event.others)
            case WasFenced():
                logger.error("this member was away or cut off, and the others went on: it joins again as a new member")
                self._give_up(event.others, "it was away or cut off from the others")
            case JoinFailed():
                self._fail_start(ConfigError(event.text))
            case HasLeft():
                self._left.set()

    def _follow(self, event: ViewInstalled) -> None:
        view = event.view
        logger.info(
            "view %d: %s%s", view.epoch, _names(view.members), f"; lost {_names(event.lost)}" if event.lost else ""
        )
        if event.old is None or self._was_isolated:
            self._was_isolated = False
            self._member_since = self._now()
        survivors = len(view.members) - len(event.joined)
        link = self.link
        with contextlib.suppress(LinkLost):
            for peer in (*event.lost, *event.left):
                if link is not None and peer.uuid in self._contacts:
                    # Of two halves each has lost the other, and neither may shut the other out for good.
                    if peer in event.lost and 2 * survivors > survivors + len(event.lost):
                        link.fence(peer.uuid)
                    else:
                        link.disconnect(peer.uuid)
        for peer in view.members:
            if peer.uuid != self.me.uuid and peer.uuid not in self._contacts:
                self._contacts.dial(peer.address)
        self._user.view_changed(event)
        self._arrived.set()  # a member that is waited for may be gone
        for sender, payload in self._early.take(view.uuids):
            self._received(sender, payload, self._now())
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(None)

    def _hang_up(self, others: Iterable[Peer]) -> None:
        """Close the connections to all members: what was under way is over, and members that go on have to notice."""
        link = self.link
        with contextlib.suppress(LinkLost):
            for peer in others:
                if link is not None and peer.uuid in self._contacts:
                    link.disconnect(peer.uuid)

    def _fail_start(self, error: ShmjetError) -> None:
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)

    def _give_up(self, others: tuple[Peer, ...], why: str) -> None:
        self._user.fenced(others, why)
        if not self._restarting and not self._stopping:
            self._restarting = True
            self._tasks.start(self._restart())

    async def _restart(self) -> None:
        """Give the new identity a link of its own: peers know connections by identity."""
        old, self._link = self._link, None
        self._contacts.forget_all()
        if old is not None:
            await old.stop(_RESTART_S)
        self._early.forget_all()
        while not await self._open_again():
            await asyncio.sleep(_RESTART_S)
        self._restarting = False
        self._state.search_anew(self._now())

    async def _open_again(self) -> bool:
        host, port = split_address(self._address)
        bound = split_address(self._settings.bind)[0]
        identity = self.me.uuid
        try:
            await self._open(identity, join_address(bound, port), host)
            if identity == self.me.uuid:  # else it was given up meanwhile
                return True
        except OSError as error:
            logger.error("the link cannot be started again yet: %s", error)
        if self._link is not None:
            await self._link.stop(_RESTART_S)
        return False

    def _link_lost(self) -> None:
        if self._stopping:
            return
        logger.error("the link process is gone: this member gets another one, and joins again")
        if self._ready is not None and not self._ready.done():
            self._fail_start(ShmjetError("the link process ended before this member was up"))
        elif not self._restarting and self._membership is not None:
            self._membership.renew(self._now())
            self._pump()

    # -- from the link ------------------------------------------------------------------------------------------

    def _take(self, event: Any, fds: list[int]) -> None:
        if self._membership is None:
            for fd in fds:
                os.close(fd)
            return
        now = self._now()
        match event:
            case Received():
                self._received(event.peer, event.payload, now)
            case Heard():
                self._state.heard(event.peer, event.at_ns / 1e9)
            case PeerUp():
                self._up(event, now)
            case PeerDown():
                self._down(event)
            case ConnectFailed():
                self._failed(event, now)
            case Accepted():
                self._user.client_accepted(fds[0], event.address, event.leftover)
        self._pump()

    def _received(self, sender: str, payload: bytes, now: float) -> None:
        try:
            message = self._decode(payload)
        except UNREADABLE as error:
            logger.error("a message of %s cannot be read: %s", self._contacts.address_of(sender) or sender, error)
            if self._link is not None:
                self._link.disconnect(sender)
            return
        if isinstance(message, _MEMBERSHIP):
            self._state.receive(message, now)
        else:
            view = self.view
            if view is not None and view.find(sender) is not None:
                self._user.peer_message(sender, message)
            elif not self._early.hold(sender, payload) and self._link is not None:
                self._link.disconnect(sender)

    def _up(self, event: PeerUp, now: float) -> None:
        self._arrived.set()
        if event.dialed is not None and event.dialed != event.address:
            self._state.rename(event.dialed, event.address)
        self._contacts.up(event.peer, event.address, event.dialed)
        if event.dialed is not None:  # what others say of their own address proves nothing
            self._state.connected(event.peer, event.dialed, now)
        self._user.connected(event.peer)

    def _down(self, event: PeerDown) -> None:
        address = self._contacts.down(event.peer)
        self._early.connection_lost(event.peer)
        view = self._state.view
        peer = view.find(event.peer) if view is not None else None
        if peer is not None:
            self._user.connection_lost(peer, event.reason)
        if address is not None and peer is not None and not self._stopping:
            self._contacts.dial(address)  # to see whether a process listens there

    def _failed(self, event: ConnectFailed, now: float) -> None:
        self._contacts.failed(event.address)
        match event.kind:
            case "unreachable" if "refused" in event.reason.lower():
                self._state.unreachable(event.address, now)
            case "self":
                self._state.rename(event.address, self._address)
            case "fenced":
                if not self._restarting:  # what the link of the old identity still says is not about the new one
                    self._state.fenced_by(event.address, now)
            case "authentication":
                self._fail_start(AuthenticationError(f"cannot join {event.address}: {event.reason}"))
            case "cluster" | "version" | "protocol" | "tls":
                self._fail_start(ConfigError(f"cannot join {event.address}: {event.reason}"))


_MEMBERSHIP = get_args(MembershipMessage)


def _new_identity() -> str:
    return uuid.uuid4().hex


def _names(peers: Iterable[Peer]) -> str:
    return ", ".join(peer.address for peer in peers) or "none"
