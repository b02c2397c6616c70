"""The state of one member of a cluster: its identity, what it knows, what it has to say, and the ways out of a view.

A part of `state_machine.Membership`. A member is out when it is fenced, and then has a new identity and knows nothing;
when it is isolated, and waits; or when it has left. Must not know how a view comes about, nor what makes a member
look for a cluster or go. No clock, no randomness and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from shmjet.cluster.membership.candidates import Candidates
from shmjet.cluster.membership.cluster_search import ClusterSearch
from shmjet.cluster.membership.events import Event, HasLeft, MembershipSettings, State, WasFenced, WasIsolated
from shmjet.cluster.membership.presence import Presence
from shmjet.cluster.membership.roster import Roster
from shmjet.cluster.membership.table_agreement import TableAgreement
from shmjet.cluster.membership.view_agreement import Agreement
from shmjet.cluster.membership.views import Fenced, MembershipMessage, Peer, Propose, View
from shmjet.cluster.partitions.recovery import StoredTable
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.core.map_config import MapSettings


class MemberState:
    """What one member is at the moment.

    Args:
        me: this member; its uuid changes whenever it has to join again.
        seeds: addresses at which there may be members; its own does not matter.
        partition_count: has to be the same in all members.
        new_identity: makes a uuid.
        now: seconds of a clock that never goes back.
        allow_code: whether this member takes code from clients; has to be the same in all members.
        backups: how many of each partition there should be; has to be the same in all members.
        maps: settings of maps, which have to be the same in all members; None: they are not compared.
        holds_data: partitions hold data, so that they move only when it is reported that they were copied.
        stored: what this member has on disk; None: nothing.
    """

    def __init__(
        self,
        me: Peer,
        seeds: Iterable[str],
        partition_count: int,
        new_identity: Callable[[], str],
        now: float,
        settings: MembershipSettings | None = None,
        *,
        allow_code: bool = True,
        backups: int = 0,
        maps: MapSettings | None = None,
        holds_data: bool = False,
        stored: StoredTable | None = None,
    ) -> None:
        self.me = me
        self.state = State.JOINING
        self._settings = settings or MembershipSettings()
        self._partition_count = partition_count
        self._allow_code = allow_code
        self._backups = backups
        self._maps = maps
        self._new_identity = new_identity
        self._search = ClusterSearch(me.address, seeds, self._settings)
        self._outgoing: list[tuple[str, MembershipMessage]] = []
        self._events: list[Event] = []
        self._last_tick = now
        self._next_heartbeat = now
        self._next_probe = now
        self._agreement = Agreement()
        if stored is not None:  # tables of the cluster that begins have to be newer
            self._agreement.saw(stored.table.epoch)
        self._tables = TableAgreement(partition_count, backups, holds_data=holds_data, stored=stored)
        self._reset(now)

    def _reset(self, now: float) -> None:
        """Begin to look for a cluster."""
        self.state = State.JOINING
        self._agreement.forget()
        self._tables.forget()
        self._presence = Presence(self._settings.detector, self._settings.complaint_grace)
        self._roster = Roster(self.me.uuid, self._presence)
        self._candidates = Candidates()
        self._early_proposal: Propose | None = None
        """Of a member that is not the oldest that is heard here: it is looked at again when it is."""
        self._leave_by = 0.0
        self._search.begin(now)

    # -- what comes out -----------------------------------------------------------------------------------------

    def take_messages(self) -> list[tuple[str, MembershipMessage]]:
        """Return (address, message) pairs to send, and forget them."""
        messages, self._outgoing = self._outgoing, []
        return messages

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call."""
        events, self._events = self._events, []
        return events

    @property
    def view(self) -> View | None:
        """The view that is in force, None before the first."""
        return self._roster.view

    @property
    def table(self) -> PartitionTable | None:
        """The table of partitions that is in force, of the same epoch as the view."""
        return self._tables.table

    @property
    def is_coordinator(self) -> bool:
        """True for the oldest member of a view that is in force."""
        return self.state is State.MEMBER and self.view is not None and self.view.coordinator.uuid == self.me.uuid

    @property
    def missing(self) -> tuple[Peer, ...]:
        """Members of the view that are not heard."""
        return self._roster.missing(self._last_tick)

    def addresses(self) -> set[str]:
        """Return where members are or should be, but for our own address."""
        known = {peer.address for peer in self._roster.others} | set(self._candidates.addresses())
        return (known | self._search.seeds) - {self.me.address}

    # -- being out ----------------------------------------------------------------------------------------------

    def _refuse(self, sender: str, epoch: int, address: str | None = None) -> None:
        """Tell a sender that is not in our view that it is not, unless its view is the newer one."""
        view = self.view
        if view is None or epoch > view.epoch:
            return
        message = Fenced(self.me.uuid, sender, view.epoch)
        for where in [address] if address is not None else sorted(self._search.seeds):
            self._send(where, message)

    def _on_fenced(self, message: Fenced, now: float) -> None:
        view = self.view
        if message.receiver != self.me.uuid:
            return
        if view is None:
            self._fence(now)
        elif self.state is State.LEAVING:
            self._finish_leaving()
        elif self.state is State.ISOLATED or (view.find(message.sender) is not None and message.epoch > view.epoch):
            self._fence(now)

    def _fence(self, now: float, seed: str | None = None) -> None:
        others = tuple(self._roster.others)
        if self.state is State.LEAVING:
            self._finish_leaving()
            return
        self.me = msgspec.structs.replace(self.me, uuid=self._new_identity())
        self._reset(now)
        if seed is not None and seed != self.me.address:
            self._search.learn([seed])
        self._search.is_hopeful(now)
        self._events.append(WasFenced(self.me, others))

    def _isolate(self, lost: tuple[Peer, ...]) -> None:
        if self.state is not State.ISOLATED:
            self.state = State.ISOLATED
            self._agreement.withdraw()
            self._events.append(WasIsolated(lost, tuple(self._roster.others)))

    def _finish_leaving(self) -> None:
        self.state = State.LEFT
        self._events.append(HasLeft())

    # -- saying something ---------------------------------------------------------------------------------------

    def _tell_others(self, message: MembershipMessage) -> None:
        for peer in self._roster.others:
            self._send(peer.address, message)

    def _send(self, address: str, message: MembershipMessage) -> None:
        if address != self.me.address:
            self._outgoing.append((address, message))
