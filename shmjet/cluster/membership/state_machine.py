"""Membership of one member as a state machine: messages and time go in, messages and events come out.

The oldest member coordinates. When a member is to come or to go, it proposes the next *view*, a list of members with a
number, the *epoch*; when all members in it have accepted, it is installed everywhere. A member that has accepted an
epoch accepts nothing older, so two members that both believe that they coordinate cannot both have their way among the
same members. A view may follow another only if it has at least half of the old view's members that are not known to be
dead; so of a cluster that is cut into unequal parts only the larger goes on, and the others wait and join it again when
they can. Of two halves each goes on, and when they meet, one of them joins the other.

A member that is not in the view of those it talks to is *fenced*: nothing it says as a member is accepted, it learns
so, gives up all that it was part of, and joins again under a new identity. `docs/design/0015-cluster.md` has the rules
and what they promise. No clock, no randomness and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec

from shmjet.cluster.membership.candidates import Candidates, answer_to
from shmjet.cluster.membership.cluster_search import ClusterSearch
from shmjet.cluster.membership.events import (
    Event,
    HasLeft,
    JoinFailed,
    MembershipSettings,
    PartitionsLost,
    State,
    TableInstalled,
    ViewInstalled,
    WasFenced,
    WasIsolated,
)
from shmjet.cluster.membership.presence import Presence
from shmjet.cluster.membership.roster import Roster
from shmjet.cluster.membership.split_brain import MergeDecision, resolve
from shmjet.cluster.membership.table_agreement import TableAgreement, TableMessage
from shmjet.cluster.membership.view_agreement import Agreement
from shmjet.cluster.membership.views import (
    Accept,
    Disband,
    Fenced,
    Heartbeat,
    Install,
    JoinRefused,
    JoinRequest,
    Leave,
    MembershipMessage,
    Peer,
    Probe,
    Propose,
    Redirect,
    Reject,
    View,
    Waiting,
)
from shmjet.cluster.partitions.table import Change, PartitionTable


class Membership:
    """The state machine.

    Args:
        me: this member; its uuid changes whenever it has to join again.
        seeds: addresses at which there may be members; its own does not matter.
        partition_count: has to be the same in all members.
        new_identity: makes a uuid.
        now: seconds of a clock that never goes back.
        allow_code: whether this member takes code from clients; has to be the same in all members.
        backups: how many of each partition there should be; has to be the same in all members.
        holds_data: partitions hold data, so that they move only when it is reported that they were copied.
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
        holds_data: bool = False,
    ) -> None:
        self.me = me
        self.state = State.JOINING
        self._settings = settings or MembershipSettings()
        self._partition_count = partition_count
        self._allow_code = allow_code
        self._new_identity = new_identity
        self._search = ClusterSearch(me.address, seeds, self._settings)
        self._outgoing: list[tuple[str, MembershipMessage]] = []
        self._events: list[Event] = []
        self._last_tick = now
        self._next_heartbeat = now
        self._next_probe = now
        self._agreement = Agreement()
        self._tables = TableAgreement(partition_count, backups, holds_data=holds_data)
        self._reset(now)

    def _reset(self, now: float) -> None:
        """Begin to look for a cluster."""
        self.state = State.JOINING
        self._agreement.forget()
        self._tables.forget()
        self._presence = Presence(self._settings.detector, self._settings.complaint_grace)
        self._roster = Roster(self.me.uuid, self._presence)
        self._candidates = Candidates()
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

    # -- what goes in -------------------------------------------------------------------------------------------

    def add_seeds(self, addresses: Iterable[str]) -> None:
        """Take further addresses at which there may be members."""
        if self._search.learn(addresses):
            self._search.ask_soon(self._last_tick)

    def rename(self, seed: str, address: str) -> None:
        """Note that the process at a seed uses another address; its own address, if it is this member."""
        if self._search.rename(seed, address):
            self._search.ask_soon(self._last_tick)

    def renew(self, now: float) -> None:
        """Give up and join again under a new identity: we have lost our connections."""
        self._fence(now)

    def search_anew(self, now: float) -> None:
        """Begin the search for a cluster now: no member could be asked before."""
        if self.state is State.JOINING:
            self._search.begin(now)

    def unreachable(self, address: str, now: float) -> None:
        """Note that no process listens at an address: its host answers, and has no such process. So it is dead."""
        self._search.nothing_at(address)
        self._roster.take_dead_at(address)
        self.tick(now)

    def heard(self, uuid: str, now: float) -> None:
        """Take a sign of life that came with no message."""
        self._presence.heard(uuid, now)

    def fenced_by(self, address: str, now: float) -> None:
        """Note that the process at an address refuses to talk to us under this identity."""
        if self.state in (State.ISOLATED, State.JOINING) or any(
            peer.address == address for peer in self._roster.others
        ):
            self._fence(now, address)

    def leave(self, now: float) -> None:
        """Begin to leave; `HasLeft` comes when the others know."""
        if self.state in (State.LEAVING, State.LEFT):
            return
        alone = self.view is None or len(self.view.members) == 1 or self.state is State.ISOLATED
        self.state = State.LEFT if alone else State.LEAVING
        self._agreement.withdraw()  # accepted, it would make us a member again
        self._leave_by = now + self._settings.leave_patience
        if alone:
            self._events.append(HasLeft())
        else:
            self._say_goodbye()

    def tick(self, now: float) -> None:
        """Do what is due; to be called every tenth of a second or so."""
        if now - self._last_tick > self._settings.own_pause:
            self._presence.excuse_all(now)
            self._candidates.excuse_all(now)
        self._last_tick = max(now, self._last_tick)
        if self.state is State.JOINING:
            self._seek(now)
        elif self.state is State.LEAVING:
            if now >= self._leave_by:
                self._finish_leaving()
            elif now >= self._next_heartbeat:
                self._next_heartbeat = now + self._settings.detector.heartbeat_interval
                self._say_goodbye()
        elif self.view is not None and self.state in (State.MEMBER, State.ISOLATED):
            if now >= self._next_heartbeat:
                self._next_heartbeat = now + self._settings.detector.heartbeat_interval
                self._beat(now)
                self._repeat_proposal()
                self._repeat_tables()
            self._probe(now)
            self._consider(now)

    def receive(self, message: MembershipMessage, now: float) -> None:
        """Take a message of another member, which has proved that it knows the secret."""
        if self.state in (State.LEFT, State.REFUSED):
            return
        _TAKERS[type(message)](self, message, now)

    # -- looking for a cluster ----------------------------------------------------------------------------------

    def _seek(self, now: float) -> None:
        if self._search.due(now):
            request = self._join_request()
            for address in sorted(self._search.seeds):
                self._send(address, request)
        if self._search.may_found(now):
            epoch = self._agreement.highest + 1
            self._install_first(View(epoch, (self.me,), (self._agreement.since or epoch,)), now)

    def _join_request(self) -> JoinRequest:
        epoch, since = self._agreement.highest, self._agreement.since
        return JoinRequest(self.me, self._partition_count, epoch, since, self._allow_code)

    def _on_redirect(self, message: Redirect, now: float) -> None:
        if message.coordinator != self.me.address:
            self.add_seeds([message.coordinator])
            if self.state is State.JOINING:
                self._search.is_hopeful(now)

    def _on_waiting(self, message: Waiting, now: float) -> None:
        self._search.another_searches(message.sender.address, now)

    def _on_refused(self, message: JoinRefused, now: float) -> None:
        if self.state is State.JOINING:
            self.state = State.REFUSED
            self._events.append(JoinFailed(message.text))

    def _on_join(self, message: JoinRequest, now: float) -> None:
        peer = message.peer
        self._search.unreachable.discard(peer.address)
        if self.state is State.JOINING:
            self._search.another_searches(peer.address, now)
            self._send(peer.address, Waiting(self.me))
            return
        if self.view is None or self.state is not State.MEMBER:
            return
        answer = answer_to(
            message,
            self.me,
            self._partition_count,
            self._roster,
            self._tables.table,
            now,
            allow_code=self._allow_code,
        )
        if answer is not None:
            self._send(peer.address, answer)
            return
        # A listener was bound to that address anew, so the process that had it before is gone.
        self._roster.take_dead_at(peer.address)
        self._candidates.add(message, now)
        self._send(peer.address, Redirect(self.me, self.me.address))
        self._consider(now)

    # -- who is there -------------------------------------------------------------------------------------------

    def _beat(self, now: float) -> None:
        assert self.view is not None
        suspects = tuple(peer.uuid for peer in self._roster.others if self._presence.is_silent(peer.uuid, now))
        table = self._tables.table
        self._tell_others(Heartbeat(self.me.uuid, self.view.epoch, suspects, 0 if table is None else table.stamp))

    def _on_heartbeat(self, message: Heartbeat, now: float) -> None:
        view = self.view
        if view is None:
            return
        peer = view.find(message.sender)
        if peer is None:
            self._refuse(message.sender, message.epoch)
            return
        self._presence.heard(message.sender, now)
        self._presence.complains(message.sender, message.suspects, now)
        if message.epoch < view.epoch:
            self._send(peer.address, Install(self.me.uuid, view, self._tables.table))
        elif message.epoch == view.epoch and (newer := self._tables.catch_up(message.stamp, self.me.uuid)) is not None:
            self._send(peer.address, newer)

    # -- changing the view --------------------------------------------------------------------------------------

    def _consider(self, now: float) -> None:
        """See whether the view still fits; propose another, or find that we have no right to."""
        view = self.view
        assert view is not None
        staying = self._roster.staying(now)
        if not self._roster.may_go_on(staying):
            self._isolate(self._roster.missing(now))
            return
        if self.state is State.ISOLATED:
            self.state = State.MEMBER
        if staying[0].uuid != self.me.uuid:
            return
        staying = self._roster.trusted(staying, now)
        self._candidates.drop_silent(now, self._settings.detector.longest_silence)
        coming = self._candidates.outside(view)
        members = (*staying, *(candidate.peer for candidate in coming))
        since = (*(view.since_of(peer.uuid) for peer in staying), *(candidate.since for candidate in coming))
        if members == view.members and not self._tables.wants_view:
            self._agreement.withdraw()
        elif not self._agreement.proposes(members, since):
            epoch = 1 + max(view.epoch, self._agreement.highest, *(candidate.epoch for candidate in coming))
            for candidate in coming:
                candidate.since = candidate.since or epoch
            self._tables.forget_votes()
            self._agreement.propose(View(epoch, members, tuple(s or epoch for s in since)), self.me.uuid)
            self._repeat_proposal()
            self._check_accepted(now)

    def _repeat_proposal(self) -> None:
        for peer, message in self._agreement.unanswered(self.me.uuid, self._tables.newest):
            self._send(peer.address, message)

    def _on_propose(self, message: Propose, now: float) -> None:
        proposed, view = message.view, self.view
        if proposed.find(self.me.uuid) is None or self.state is State.LEAVING:
            return
        proposer = proposed.find(message.sender)
        if proposer is not None and view is not None and view.find(message.sender) is None:
            self._refuse(message.sender, proposed.epoch, proposer.address)
            return
        tables = self._tables.vote(self.me.uuid), self._tables.newer_than(message.table)
        for address, answer in self._agreement.answers(message, self._join_request(), self._roster, tables, now):
            self._send(address, answer)
            if isinstance(answer, Accept):
                self._search.learn(peer.address for peer in proposed.members)
                self._search.is_hopeful(now)

    def _on_reject(self, message: Reject, now: float) -> None:
        if self._tables.has_proposal and self.view is not None and message.epoch > self.view.epoch:
            self._tables.wants_view = True
        if self._agreement.rejected(message) and self.state is State.MEMBER:
            self._consider(now)

    def _on_accept(self, message: Accept, now: float) -> None:
        if self._agreement.accepted(message):
            self._tables.learn(message)
        self._check_accepted(now)

    def _check_accepted(self, now: float) -> None:
        view = self._agreement.take_agreed()
        if view is not None:
            self._install_first(view, now)

    def _install_first(self, view: View, now: float) -> None:
        """Install a view that is in force from now on, with the table of partitions that follows, and tell it."""
        table, lost = self._tables.following(view, self.me.uuid)
        for peer in view.members:
            self._send(peer.address, Install(self.me.uuid, view, table))
        self._install(view, table, now)
        if lost:
            self._events.append(PartitionsLost(tuple(lost)))

    def _on_install(self, message: Install, now: float) -> None:
        new, view = message.view, self.view
        if new.find(self.me.uuid) is None or new.find(message.sender) is None or self.state is State.LEAVING:
            return
        if view is not None and new.epoch <= view.epoch:
            return
        if view is not None and new.lost_by(view):
            # We had accepted the proposals of two sides, and the other one had its way first. Both views have us in
            # them, and those in the one are lost to the other: we can go on with neither under this identity.
            self._fence(now, next(peer.address for peer in new.members if peer.uuid == message.sender))
        else:
            self._install(new, message.table, now)

    def _install(self, view: View, table: PartitionTable | None, now: float) -> None:
        before = self.view
        old = before.members if before is not None else ()
        uuids = {peer.uuid for peer in old}
        gone = [peer for peer in old if view.find(peer.uuid) is None]
        self._roster.view = view
        self.state = State.MEMBER
        self._agreement.entered(view, self.me.uuid)
        self._tables.install(table)
        self._search.learn(peer.address for peer in (*old, *view.members))
        self._candidates.drop_members(view)
        self._search.unreachable -= {peer.address for peer in view.members}
        left = tuple(peer for peer in gone if self._presence.said_goodbye(peer.uuid))
        lost = tuple(peer for peer in gone if not self._presence.said_goodbye(peer.uuid))
        joined = tuple(p for p in view.members if p.uuid not in uuids and p.uuid != self.me.uuid)
        self._presence.follow(self._roster.others, now)
        self._next_heartbeat = now
        self._events.append(ViewInstalled(view, before, joined, lost, left))
        self._table_installed()

    # -- changing the table of partitions -------------------------------------------------------------------------

    def report(self, changes: Iterable[Change]) -> None:
        """Report changes of replicas whose primary this member has to the coordinator.

        It is repeated until the table shows it, and holds for the view in force.
        """
        self._tables.report(changes)
        self._repeat_tables()

    def _repeat_tables(self) -> None:
        if self.view is not None and self.state is State.MEMBER:
            self._say_about_table(self._tables.repeat(self.view, self.me.uuid, self._agreement.promised))

    def _on_table_message(self, message: TableMessage, _now: float) -> None:
        if self.view is not None:
            self._say_about_table(self._tables.take(message, self.view, self.me.uuid, self._agreement.promised))

    def _say_about_table(self, messages: Iterable[tuple[str, MembershipMessage]]) -> None:
        for address, message in messages:
            self._send(address, message)
        self._table_installed()

    def _table_installed(self) -> None:
        table = self._tables.take_installed()
        if table is not None:
            self._events.append(TableInstalled(table))

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
            self._events.append(WasIsolated(lost))

    def _say_goodbye(self) -> None:
        self._tell_others(Leave(self.me.uuid))

    def _finish_leaving(self) -> None:
        self.state = State.LEFT
        self._events.append(HasLeft())

    def _on_leave(self, message: Leave, now: float) -> None:
        view = self.view
        if view is None:
            return
        if view.find(message.sender) is None:
            self._refuse(message.sender, 0)
        elif self.state in (State.MEMBER, State.ISOLATED):
            self._presence.has_left(message.sender)
            self._consider(now)

    # -- parts of one cluster that meet -------------------------------------------------------------------------

    def _probe(self, now: float) -> None:
        if now < self._next_probe or self.view is None:
            return
        self._next_probe = now + self._settings.probe_interval
        if self.is_coordinator:
            here = {peer.address for peer in self.view.members}
            for address in sorted(self._search.seeds - here):
                self._send(address, Probe(self.me, self.view.epoch, len(self.view.members)))
        elif self.state is State.ISOLATED:
            # The members that it misses may have been started again and know neither its address nor its view.
            for address in sorted(self._search.seeds):
                self._send(address, Probe(self.me, self.view.epoch, 0))

    def _on_probe(self, message: Probe, now: float) -> None:
        view = self.view
        if view is None:
            self.add_seeds([message.sender.address])
            if message.size > 0:
                self._search.is_hopeful(now)
            return
        match resolve(message, self.me, view, self.state):
            case MergeDecision.JOIN:
                self._fence(now, message.sender.address)
            case MergeDecision.REDIRECT:
                self._send(message.sender.address, Redirect(self.me, view.coordinator.address))
            case MergeDecision.DISBAND:
                self._tell_others(Disband(self.me.uuid, view.epoch, message.sender.address))
                self._fence(now, message.sender.address)
            case MergeDecision.ANSWER:
                self._send(message.sender.address, Probe(self.me, view.epoch, len(view.members)))

    def _on_disband(self, message: Disband, now: float) -> None:
        view = self.view
        if view is not None and message.sender == view.coordinator.uuid and message.epoch == view.epoch:
            self._fence(now, message.address)

    def _tell_others(self, message: MembershipMessage) -> None:
        for peer in self._roster.others:
            self._send(peer.address, message)

    def _send(self, address: str, message: MembershipMessage) -> None:
        if address != self.me.address:
            self._outgoing.append((address, message))


_TAKERS: dict[type, Callable[[Membership, Any, float], None]] = {
    JoinRequest: Membership._on_join,
    Redirect: Membership._on_redirect,
    Waiting: Membership._on_waiting,
    JoinRefused: Membership._on_refused,
    Heartbeat: Membership._on_heartbeat,
    Propose: Membership._on_propose,
    Accept: Membership._on_accept,
    Reject: Membership._on_reject,
    Install: Membership._on_install,
    Leave: Membership._on_leave,
    Fenced: Membership._on_fenced,
    Probe: Membership._on_probe,
    Disband: Membership._on_disband,
    **dict.fromkeys(get_args(TableMessage), Membership._on_table_message),
}
