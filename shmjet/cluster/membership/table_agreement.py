"""The agreement on the table of partitions: with each view, and on changes of it while a view is in force.

A part of `membership`. With a view comes the table that follows the newest that may be in force anywhere.
Between views the coordinator proposes changes, which primaries report to it, one at a time; what all members of the
view have accepted is in force. `docs/design/0026-partition-table.md` says why the views that follow never go back
behind a table that is in force anywhere. No clock in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shmjet.cluster.membership.views import (
    Accept,
    AcceptTable,
    InstallTable,
    Peer,
    ProposeTable,
    Reject,
    ReplicaReport,
    StoredReport,
    View,
)
from shmjet.cluster.partitions.recovery import StoredTable, lost_partitions, recovered, waiting
from shmjet.cluster.partitions.table import NO_TABLE, Change, Event, Holder, PartitionTable, Version
from shmjet.net.addresses import split_address

TableMessage = ReplicaReport | StoredReport | ProposeTable | AcceptTable | InstallTable
Outgoing = tuple[str, TableMessage | Reject]
"""An address, and what to send there."""


class TableAgreement:
    """What one member knows of the table.

    Args:
        count: of partitions.
        backups: how many of each partition there should be, as far as there are members.
        holds_data: partitions hold data that has to be copied before they can move; without, they move at once.
        stored: what this member has on disk, until a cluster that it is in has open partitions.
    """

    def __init__(self, count: int, backups: int, *, holds_data: bool, stored: StoredTable | None = None) -> None:
        self._count = count
        self._backups = backups
        self._holds_data = holds_data
        self._stored = stored
        self._all_came = False
        self._lost: list[int] = []
        self._report = 0
        self.forget()

    def forget(self) -> None:
        """Begin anew, under another identity: what this member had is no longer counted."""
        self.has_runs_of = ""
        """The member whose runs on disk this one has got; see `take_wanted_runs`."""
        self._wanted_runs = ""
        self.table: PartitionTable | None = None
        """The table in force; it is of the epoch of the view in force."""
        self._newest: PartitionTable | None = None
        """The newest that this member has accepted: the table in force, or its proposed successor."""
        self._installed: PartitionTable | None = None
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self.wants_view = False
        """Whether tables cannot be changed in this view, as members have accepted another view, which never came."""
        self._proposal: PartitionTable | None = None
        self._accepted: set[str] = set()
        self._reported: dict[Change, None] = {}
        self._heard: dict[str, int] = {}
        self._brought: dict[str, StoredTable] = {}
        """By member, what it has on disk, while the table waits."""
        self.forget_votes()

    @property
    def origin(self) -> str:
        """Which data this member has on disk and waits with; empty: none."""
        return "" if self._stored is None else self._stored.table.origin

    def _put_in_force(self, table: PartitionTable | None) -> None:
        self.table = self._installed = table
        if table is not None and not table.is_waiting:  # what is on disk counts by that, or no more
            self._stored = None

    # -- with a view --------------------------------------------------------------------------------------------

    @property
    def newest(self) -> Version:
        """The version of the newest table that this member has accepted."""
        return NO_TABLE if self._newest is None else self._newest.version

    def vote(self, me: str) -> Version:
        """Return the version of the newest table that may be in force, as far as this member knows.

        The coordinator knows it exactly: only it puts a table in force.
        """
        if self.table is not None and self.table.members[0] == me:
            return self.table.version
        return self.newest

    def newer_than(self, version: Version) -> PartitionTable | None:
        """Return the table in force here, if it is newer than what the proposer of a view has."""
        return self.table if self.table is not None and self.table.version > version else None

    def forget_votes(self) -> None:
        """Take that another view is proposed."""
        self._votes: dict[str, Version] = {}
        self._ahead: PartitionTable | None = None

    def learn(self, message: Accept) -> None:
        """Take what a member that accepts a view says of tables."""
        self._votes[message.sender] = message.newest
        table = message.table
        if table is not None and (self._ahead is None or table.version > self._ahead.version):
            self._ahead = table

    def following(self, view: View, me: str) -> tuple[PartitionTable, list[int]]:
        """Return the table of the next view, which all its members have accepted, and the partitions that are lost."""
        members = [_holder(peer) for peer in view.members]
        base = self._base(view, me)
        if base is None and self._stored is not None:
            return waiting(view.epoch, self._stored, members, self._backups), []
        if base is None:
            return PartitionTable.first(view.epoch, self._count, members, self._backups), []
        table, lost = base.after(view.epoch, members, self._backups)
        return (table, lost) if self._holds_data else (table.settled(), [])

    def _base(self, view: View, me: str) -> PartitionTable | None:
        """Return the newest table that may be in force anywhere.

        That is the one of a view that this member has missed; or what it has accepted last, if all others that are left
        have, too, and the coordinator, where it is left, has put it in force; or else the one before.
        """
        newest = self._newest
        if self._ahead is not None and self._ahead.version > self.newest:
            return self._ahead
        if newest is None or newest is self.table:
            return newest
        votes = {**self._votes, me: self.vote(me)}
        asked = [uuid for uuid in view.uuids if uuid in newest.members]
        return newest if all(votes.get(uuid, NO_TABLE) >= newest.version for uuid in asked) else self.table

    def install(self, table: PartitionTable | None) -> None:
        """Take the table that comes with a view; what was reported and proposed was for another one."""
        self._begin_epoch()
        self._newest = table
        self._put_in_force(table)

    def take_installed(self) -> PartitionTable | None:
        """Return a table that has come into force, once."""
        table, self._installed = self._installed, None
        return table

    # -- while a view is in force -------------------------------------------------------------------------------

    def report(self, changes: Iterable[Change]) -> None:
        """Note changes of replicas whose primary this member has. It is for the view in force alone."""
        self._reported.update(dict.fromkeys(changes))

    def repeat(self, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        """Yield what has not been answered, and what has been reported and the table does not show; see `take`."""
        yield from self._questions(view, me)
        if self._proposal is not None and promised > view.epoch:
            self.wants_view = True  # it can never come into force
        table = self.table
        if table is None:
            return
        if table.is_waiting:
            yield from self._bring(view, me, promised)
        self._reported = {change: None for change in self._reported if table.changed([change]) is not table}
        if self._reported:
            self._report += 1
            report = ReplicaReport(me, table.epoch, self._report, tuple(self._reported))
            if view.coordinator.uuid == me:
                yield from self.take(report, view, me, promised)
            else:
                yield view.coordinator.address, report

    def take(self, message: TableMessage, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        """Take a message about the table, and yield what to say.

        Args:
            message: of another member.
            view: in force.
            me: this member.
            promised: the newest epoch of a view that this member has accepted. If that is not in force, its proposer
                has been told which table is the newest here, and that must not change: a new view has to come first.
        """
        match message:
            case ReplicaReport() if view.coordinator.uuid == me:
                yield from self._propose(message, view, me, promised)
            case StoredReport() if view.coordinator.uuid == me and message.epoch == view.epoch:
                self._brought[message.sender] = message.stored
                yield from self._recover(view, me, promised)
            case ProposeTable() if message.sender == view.coordinator.uuid:
                if promised > view.epoch and message.table.version > self.newest:
                    yield view.coordinator.address, Reject(me, promised)
                else:
                    yield from self._answer(message.table, view, me)
            case AcceptTable():
                yield from self._accept(message, view, me, promised)
            case InstallTable() if view.find(message.sender) is not None:
                table = message.table
                if table.epoch == view.epoch and self.table is not None and table.version > self.table.version:
                    self._put_in_force(table)
                    self._newest = max(self._newest or table, table, key=lambda table: table.version)

    def catch_up(self, stamp: int, me: str) -> InstallTable | None:
        """Return what to tell a member of the view whose heartbeat names this stamp; None where its table is as new."""
        return InstallTable(me, self.table) if self.table is not None and stamp < self.table.stamp else None

    @property
    def has_proposal(self) -> bool:
        """Whether a changed table is proposed and not in force yet."""
        return self._proposal is not None

    def _propose(self, message: ReplicaReport, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        """Make reported changes the next proposal, where none is under way; they will be reported again.

        A report that comes late, after a later one of its member, is dropped: it may be about an earlier copy.
        """
        table = self._newest
        if table is None or table.epoch != message.epoch or message.number < self._heard.get(message.sender, 0):
            return
        self._heard[message.sender] = message.number
        if self._proposal is not None:
            return
        if promised > view.epoch:
            self.wants_view = True
            return
        changed = table.changed(
            change
            for change in message.changes
            if (0 <= change.partition < table.count and table.primary(change.partition) == message.sender)
            or (change.event is Event.LEAVING and change.uuid == message.sender)
            or (change.event is Event.RESTORED and message.sender == me)
        )
        if changed.leaving != table.leaving:
            changed = changed.vacated([_holder(peer) for peer in view.members], self._backups)
        if changed is not table:
            yield from self._offer(changed, view, me, promised)

    def _offer(self, changed: PartitionTable, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        self._newest = self._proposal = changed
        self._accepted = set()
        yield from self._questions(view, me)
        yield from self._accept(AcceptTable(me, *changed.version), view, me, promised)

    # -- while members with partitions on disk are waited for -----------------------------------------------------

    def go_on_without(self) -> None:
        """Wait no longer for members whose partitions are on disk; for the coordinator."""
        self._all_came = True

    def take_lost(self) -> list[int]:
        """Return the partitions that are lost as the members that had them were not waited for, once."""
        lost, self._lost = self._lost, []
        return lost

    def take_wanted_runs(self) -> str:
        """Return the member whose runs on disk this one needs before it accepts that partitions are open; once.

        So the next coordinator has these runs, even if that member and the coordinator are lost at that moment.
        """
        wanted, self._wanted_runs = self._wanted_runs, ""
        return wanted

    def _lacks_runs(self, table: PartitionTable) -> bool:
        """Say whether a table that does not wait any more cannot be accepted yet."""
        before = self._newest
        if before is None or not before.is_waiting or table.is_waiting or table.led_by in ("", self.has_runs_of):
            return False
        self._wanted_runs = table.led_by
        return True

    def _bring(self, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        if view.coordinator.uuid == me:
            yield from self._recover(view, me, promised)
        elif self._stored is not None:
            yield view.coordinator.address, StoredReport(me, view.epoch, self._stored)

    def _recover(self, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        """Propose the table of what all members have brought, or the members to wait for."""
        table = self._newest
        if table is None or not table.is_waiting or self._proposal is not None:
            return
        if promised > view.epoch:
            self.wants_view = True
            return
        found = {uuid: stored for uuid, stored in self._brought.items() if view.find(uuid) is not None}
        if self._stored is not None:
            found[me] = self._stored
        holders = [_holder(peer) for peer in view.members]
        changed = recovered(table, found, holders, self._backups, all_came=self._all_came)
        if changed is not table and not self._lacks_runs(changed):
            self._lost = [] if changed.is_waiting else lost_partitions(changed, found)
            yield from self._offer(changed, view, me, promised)

    def _questions(self, view: View, me: str) -> Iterator[Outgoing]:
        if self._proposal is not None:
            for peer in view.members:
                if peer.uuid != me and peer.uuid not in self._accepted:
                    yield peer.address, ProposeTable(me, self._proposal)

    def _answer(self, table: PartitionTable, view: View, me: str) -> Iterator[Outgoing]:
        if self._lacks_runs(table):
            return  # it is proposed again
        if table.epoch == view.epoch and self._newest is not None and table.version >= self._newest.version:
            if table.version > self._newest.version and self._newest is not self.table:
                self._put_in_force(self._newest)  # nothing is proposed before that is in force
            self._newest = table
            yield view.coordinator.address, AcceptTable(me, *table.version)

    def _accept(self, message: AcceptTable, view: View, me: str, promised: int) -> Iterator[Outgoing]:
        table = self._proposal
        if table is None or promised > view.epoch or (message.epoch, message.stamp) != table.version:
            return
        self._accepted.add(message.sender)
        if self._accepted.issuperset(view.uuids):
            self._proposal = None
            self._put_in_force(table)
            for peer in view.members:
                if peer.uuid != me:
                    yield peer.address, InstallTable(me, table)


def _holder(peer: Peer) -> Holder:
    return Holder(peer.uuid, split_address(peer.address)[0])
