"""Membership of one member as a state machine: messages and time go in, messages and events come out.

The oldest member coordinates. When a member is to come or to go, it proposes the next *view*, a list of members with a
number, the *epoch*; when all members in it have accepted, it is installed everywhere. A member that has accepted an
epoch accepts nothing older, so two members that both believe that they coordinate cannot both have their way among the
same members. A view may follow another only if it has at least half of the old view's members that are not known to be
dead; so of a cluster that is cut into unequal parts only the larger goes on, and the others wait and join it again when
they can. Of two halves each goes on, and when they meet, one of them joins the other.

A member that is not in the view of those it talks to is *fenced*: nothing it says as a member is accepted, it learns
so, gives up all that it was part of, and joins again under a new identity. `docs/design/0015-cluster.md` has the rules
and what they promise.

From the bottom up: `member_state` (what a member is, and the ways out of a view), `view_changes` (the next view and its
table of partitions), and here what makes members come and go: the search, heartbeats, leaving, and parts of one cluster
that meet. No clock, no randomness and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

from shmjet.cluster.membership.candidates import answer_to
from shmjet.cluster.membership.events import HasLeft, JoinFailed, State
from shmjet.cluster.membership.split_brain import MergeDecision, resolve
from shmjet.cluster.membership.table_agreement import TableMessage
from shmjet.cluster.membership.view_changes import ViewChanges
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
    Probe,
    Propose,
    Redirect,
    Reject,
    View,
    Waiting,
)


class Membership(ViewChanges):
    """The state machine; made as a `MemberState`."""

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

    def connected(self, uuid: str, address: str, now: float) -> None:
        """Note which process answers at an address: a member that had it before is dead."""
        if any(peer.address == address and peer.uuid != uuid for peer in self._roster.others):
            self._roster.take_dead_at(address, but=uuid)
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
        answer = self._answer_to(message, now)
        if not isinstance(answer, JoinRefused):
            # A listener was bound to that address anew, so the process that had it before is gone.
            self._roster.take_dead_at(peer.address, but=peer.uuid)
            answer = self._answer_to(message, now)
        if answer is not None:
            self._send(peer.address, answer)
        else:
            self._candidates.add(message, now)
            self._send(peer.address, Redirect(self.me, self.me.address))
        self._consider(now)

    def _answer_to(self, request: JoinRequest, now: float) -> MembershipMessage | None:
        return answer_to(
            request,
            self.me,
            self._partition_count,
            self._roster,
            self._tables.table,
            now,
            allow_code=self._allow_code,
            backup_count=self._backups,
            maps=self._maps,
        )

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

    # -- leaving ------------------------------------------------------------------------------------------------

    def _say_goodbye(self) -> None:
        self._tell_others(Leave(self.me.uuid))

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
