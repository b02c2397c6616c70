"""Changes of the view that is in force: proposed, accepted by all, and installed with their table of partitions.

A part of `state_machine.Membership`. The oldest member that is heard proposes the next view when members are to come
or to go. `view_agreement` and `table_agreement` have the promises that count then; this decides what to propose, which
member to answer, and what a view in force changes here. Must not know how members find a cluster, when they beat or
leave, nor how two clusters meet. No clock, no randomness and no I/O in here.
"""

from __future__ import annotations

from collections.abc import Iterable

from shmjet.cluster.membership.events import PartitionsLost, State, StoredRunsWanted, TableInstalled, ViewInstalled
from shmjet.cluster.membership.member_state import MemberState
from shmjet.cluster.membership.table_agreement import TableMessage
from shmjet.cluster.membership.views import (
    Accept,
    Install,
    JoinRequest,
    MembershipMessage,
    Propose,
    Reject,
    View,
)
from shmjet.cluster.partitions.table import Change, PartitionTable


class ViewChanges(MemberState):
    """What one member does about the next view, and about the table of partitions of the one in force."""

    def _join_request(self) -> JoinRequest:
        epoch, since = self._agreement.highest, self._agreement.since
        origin, count = self._tables.origin, self._partition_count
        return JoinRequest(self.me, count, epoch, since, self._allow_code, self._backups, origin, self._maps)

    def _consider(self, now: float) -> None:
        """See whether the view still fits; propose another, or find that we have no right to."""
        view = self.view
        assert view is not None
        early = self._early_proposal
        if early is not None and early.sender == self._roster.leader(now).uuid:
            self._on_propose(early, now)
        staying = self._roster.staying(now)
        if not self._roster.may_go_on(staying):
            self._isolate(self._roster.missing(now))
            return
        if self.state is State.ISOLATED:
            # The others have not removed it. A new view has all go on together, and they are given time to be heard.
            self.state = State.MEMBER
            self._tables.wants_view = True
            self._presence.excuse_all(now)
            staying = self._roster.staying(now)
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
        self._early_proposal = None
        if proposed.find(self.me.uuid) is None or self.state is State.LEAVING:
            return
        proposer = proposed.find(message.sender)
        if proposer is not None and view is not None and view.find(message.sender) is None:
            self._refuse(message.sender, proposed.epoch, proposer.address)
            return
        tables = self._tables.vote(self.me.uuid), self._tables.newer_than(message.table)
        answers = list(self._agreement.answers(message, self._join_request(), self._roster, tables, now))
        if not answers:
            self._early_proposal = message  # its sender may know before us that an older member is gone
        for address, answer in answers:
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
        self._early_proposal = None
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
            before = self._tables.table
            self._say_about_table(self._tables.take(message, self.view, self.me.uuid, self._agreement.promised))
            if self._tables.table is not before:  # what was reported while that was proposed has not been looked at
                self._repeat_tables()

    def _say_about_table(self, messages: Iterable[tuple[str, MembershipMessage]]) -> None:
        for address, message in messages:
            self._send(address, message)
        self._table_installed()

    def has_runs_of(self, member: str) -> None:
        """Take that this member has the runs that another one, or itself, has on disk; it was asked for by an event."""
        self._tables.has_runs_of = member
        self._repeat_tables()

    def _table_installed(self) -> None:
        if wanted := self._tables.take_wanted_runs():
            self._events.append(StoredRunsWanted(wanted))
        table = self._tables.take_installed()
        if table is not None:
            self._events.append(TableInstalled(table))
            if lost := self._tables.take_lost():
                self._events.append(PartitionsLost(tuple(lost)))

    def go_on_without(self) -> None:
        """Wait no longer for members whose partitions are on disk; the coordinator decides."""
        self._tables.go_on_without()
        self._repeat_tables()
