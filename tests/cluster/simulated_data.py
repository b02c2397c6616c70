"""The data of partitions in a simulated cluster: who has which writes, and whether an acknowledged one is ever lost.

Each replica is a log of numbered writes. A primary writes to its own, and sends each backup that it has to wait for
what that one lacks: a write, and all before it, is acknowledged when all have it. A primary that is lost in between has
told some of them, so the next one and the other backups give each other what they lack before it takes writes; all of
their logs must be beginnings of one. A primary copies to the members that are to get the partition, and hands over,
when all have everything, where another member is to be the primary; it reports all that to the membership, as a
member does. What a backup takes and refuses is what docs/design/0026 and 0031 ask of the members: it takes writes of
its own view alone. A view follows the views that its members had before, so that halves of a cluster that was cut are
judged for themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shmjet.cluster.membership.events import State, ViewInstalled
from shmjet.cluster.membership.views import View
from shmjet.cluster.partitions.table import Change, Event, PartitionTable

if TYPE_CHECKING:
    from tests.cluster.simulation import Node, Simulation

PARTITIONS = 5
WORK_S = 0.3
"""How long a copy or a hand-over takes."""
SLOW = 0.05
"""How often a backup does not take a write although it could."""
Key = tuple[int, tuple[str, ...]]


def key_of(view: View) -> Key:
    """Return what tells views apart: those of two halves may have the same epoch, and have no member in common."""
    return view.epoch, view.uuids


class SimulatedData:
    """See the module.

    Args:
        simulation: the story that it is part of.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._replicas: dict[tuple[str, int], dict[int, None]] = defaultdict(dict)
        """By member and partition: its log, in order."""
        self._leading: set[tuple[str, int]] = set()
        """Primaries that have agreed with their backups."""
        self._acked: dict[int, list[tuple[int, Key]]] = defaultdict(list)
        self._known: set[int] = set()
        """All that was acknowledged."""
        self._lost: dict[int, list[Key]] = defaultdict(list)
        self._before: dict[Key, set[Key]] = defaultdict(set)
        self._tables: dict[tuple[int, int], list[PartitionTable]] = defaultdict(list)
        self._waited_for: dict[tuple[str, int], set[str]] = defaultdict(set)
        """By primary and partition: replicas that it has reported to be synced, whatever its table says."""
        self._sealed: set[tuple[str, int]] = set()
        self._stale: set[tuple[str, int, int]] = set()
        """Replicas that were reported to lack a write, with the epoch: a table that says so may be in force since."""
        self.writes = 0
        self.agreed = 0
        """How often a new primary and its backups had different logs."""

    # -- what members learn -------------------------------------------------------------------------------------

    def view_installed(self, event: ViewInstalled, uuid: str) -> None:
        """Take a view. What a primary has reported in the one before, it reports anew."""
        if event.old is not None:
            old = key_of(event.old)
            self._before[key_of(event.view)] |= {old, *self._before[old]}
        for partition in range(PARTITIONS):
            self._waited_for.pop((uuid, partition), None)
            self._sealed.discard((uuid, partition))

    def lost(self, partitions: tuple[int, ...], node: Node) -> None:
        """Take that the proposer of a view has found that no member has some partitions."""
        view = node.installed
        assert view is not None
        for partition in partitions:
            for other in view.uuids:
                if self._is_complete(other, partition, key_of(view)) and self._was_synced(other, partition, view):
                    self._simulation.broken(f"partition {partition} is called lost, and {other} has all of it")
            self._lost[partition].append(key_of(view))
            for uuid in view.uuids:
                self._replicas[uuid, partition].clear()

    def table_installed(self, table: PartitionTable, node: Node) -> None:
        """Take a table that is in force at a member, check it, and begin what it asks of this member."""
        for other in self._tables[table.version]:
            if other != table and set(other.members) & set(table.members):
                self._simulation.broken(f"two tables {table.version} share members: {other} and {table}")
        if table not in self._tables[table.version]:
            self._tables[table.version].append(table)
        if table.is_waiting:
            return
        view = key_of(_view(node))
        self._take_up(table, node, view)
        for partition in range(PARTITIONS):
            if table.primary(partition) != node.uuid:
                self._leading.discard((node.uuid, partition))
                continue
            if (node.uuid, partition) not in self._leading:
                self._agree(node, partition, table.epoch)
            if not self._is_complete(node.uuid, partition, view):
                missing = self._required(partition, view) - self._replicas[node.uuid, partition].keys()
                self._simulation.broken(f"{node.address} is the primary of {partition} and lacks writes {missing}")
            if table.copying[partition]:
                self._later(self._copy, node, partition, table.epoch)
        for partition, uuid in table.hand_overs():
            if table.primary(partition) == node.uuid:
                self._later(self._hand_over, node, partition, table.epoch, uuid)

    def _take_up(self, table: PartitionTable, node: Node, view: Key) -> None:
        """Have a member take up what it has on disk, where its first open table says that this counts."""
        found, node.stored = node.stored, None
        if found is None or not table.former or table.former[table.members.index(node.uuid)] != found.uuid:
            return
        old = found.table.epoch, found.table.members
        self._before[view] |= {old, *self._before[old]}
        for partition in range(PARTITIONS):
            self._replicas[node.uuid, partition] = dict(self._replicas[found.uuid, partition])

    # -- what members do ----------------------------------------------------------------------------------------

    def write(self, node: Node) -> None:
        """Have a member write to a partition, if it takes itself for the primary."""
        partition = self._simulation.random.randrange(PARTITIONS)
        table = self._table_of_primary(node, partition)
        if table is None or (node.uuid, partition) in self._sealed or (node.uuid, partition) not in self._leading:
            return
        view = key_of(_view(node))
        synced = set(table.owners()[partition][1:])
        backups = synced | self._waited_for[node.uuid, partition]
        random = self._simulation.random
        slow = 0.0 if self._simulation.is_healed else SLOW
        silent = [
            uuid for uuid in sorted(backups) if not self._reaches(node, uuid, table.epoch) or random.random() < slow
        ]
        self.writes += 1
        log = self._replicas[node.uuid, partition]
        log[self.writes] = None
        for uuid in backups - set(silent):
            self._replicas[uuid, partition] = dict(log)
        if silent:
            if random.random() < 0.5:  # its patience is at an end
                stale = [uuid for uuid in silent if uuid in synced]
                self._stale.update((uuid, partition, table.epoch) for uuid in stale)
                self._report(node, [Change(Event.STALE, partition, uuid) for uuid in stale])
            return
        new = [number for number in log if number not in self._known]
        self._known.update(new)
        self._acked[partition] += [(number, view) for number in new]
        for other in self._simulation.members():
            if other is not node and self._table_of_primary(other, partition) is not None:
                their = key_of(_view(other))
                if view in self._before[their] and not self._is_complete(other.uuid, partition, their):
                    self._simulation.broken(f"{node.address} still writes to {partition}, which is {other.address}'s")

    def _agree(self, node: Node, partition: int, epoch: int) -> None:
        """Have a new primary and the backups give each other what they lack; it leads when that is done."""
        table = self._table_of_primary(node, partition)
        if table is None and node.member is not None and node.member.state is State.ISOLATED:
            self._later(self._agree, node, partition, epoch)
        if table is None or table.epoch != epoch or (node.uuid, partition) in self._leading:
            return
        row = table.owners()[partition]
        if not all(self._reaches(node, uuid, epoch) for uuid in row[1:]):
            self._later(self._agree, node, partition, epoch)
            return
        logs = [list(self._replicas[uuid, partition]) for uuid in row]
        longest = max(logs, key=len)
        if any(log != longest[: len(log)] for log in logs):
            self._simulation.broken(f"the logs of {partition} are not beginnings of one: {logs}")
        self.agreed += any(log != longest for log in logs)
        for uuid in row:
            self._replicas[uuid, partition] = dict.fromkeys(longest)
        self._leading.add((node.uuid, partition))

    def vacate(self, node: Node, generation: int | None = None, tries: int = 20) -> None:
        """Have a member hand its partitions over and leave then; after some tries it stays."""
        member = node.member
        if member is None or tries == 0 or (generation is not None and generation != node.generation):
            return
        table = member.table
        if table is not None and member.state is State.MEMBER and self._simulation.now >= node.paused_until:
            if table.is_free(node.uuid):
                self._simulation.note(f"{node.address} has no partition any more, and leaves")
                member.leave(self._simulation.now)
                node.settle()
                return
            self._report(node, [Change(Event.LEAVING, 0, node.uuid)])
        self._simulation.at(self._simulation.now + WORK_S, self.vacate, node, node.generation, tries - 1)

    def _copy(self, node: Node, partition: int, epoch: int) -> None:
        table = self._table_of_primary(node, partition)
        if table is None and node.member is not None and node.member.state is State.ISOLATED:
            self._later(self._copy, node, partition, epoch)  # it may hear the others again
        if table is None or table.epoch != epoch:
            return
        if (node.uuid, partition) not in self._leading:
            self._later(self._copy, node, partition, epoch)
            return
        for member in table.copying[partition]:
            uuid = table.members[member]
            if not self._reaches(node, uuid, epoch):
                self._later(self._copy, node, partition, epoch)
                continue
            self._replicas[uuid, partition] = dict(self._replicas[node.uuid, partition])
            self._waited_for[node.uuid, partition].add(uuid)
            self._report(node, [Change(Event.SYNCED, partition, uuid)])

    def _hand_over(self, node: Node, partition: int, epoch: int, uuid: str) -> None:
        table = self._table_of_primary(node, partition)
        if table is None and node.member is not None and node.member.state is State.ISOLATED:
            self._later(self._hand_over, node, partition, epoch, uuid)
        elif table is not None and table.epoch == epoch and (partition, uuid) in table.hand_overs():
            self._sealed.add((node.uuid, partition))
            backups = {*table.owners()[partition][1:], *self._waited_for[node.uuid, partition]}
            if (node.uuid, partition) not in self._leading or not all(
                self._reaches(node, other, epoch) for other in backups
            ):
                self._later(self._hand_over, node, partition, epoch, uuid)
                return
            for other in backups:
                self._replicas[other, partition] = dict(self._replicas[node.uuid, partition])
            self._leading.discard((node.uuid, partition))
            self._report(node, [Change(Event.HANDED_OVER, partition, uuid)])

    def _report(self, node: Node, changes: list[Change]) -> None:
        if node.member is not None and changes:
            node.member.report(changes)
            node.settle()

    def _later(self, action: object, node: Node, *arguments: object) -> None:
        after = WORK_S * (0.5 + self._simulation.random.random())

        def act(generation: int) -> None:
            if node.alive and node.generation == generation:
                if self._simulation.now < node.paused_until:
                    self._simulation.at(node.paused_until + 0.01, act, generation)
                else:
                    action(node, *arguments)  # type: ignore[operator]

        self._simulation.at(self._simulation.now + after, act, node.generation)

    # -- questions ----------------------------------------------------------------------------------------------

    def _table_of_primary(self, node: Node, partition: int) -> PartitionTable | None:
        member = node.member
        if member is None or member.table is None or member.state is not State.MEMBER:
            return None
        if self._simulation.now < node.paused_until or member.me.uuid != node.uuid or member.table.is_waiting:
            return None
        return member.table if member.table.primary(partition) == node.uuid else None

    def _reaches(self, node: Node, uuid: str, epoch: int) -> bool:
        """Say whether a member gets a write and takes it: it is in the same view."""
        for other in self._simulation.members():
            member = other.member
            if other.uuid == uuid and member is not None and self._simulation.now >= other.paused_until:
                is_same = member.view is not None and member.view.epoch == epoch and member.state is State.MEMBER
                return is_same and self._simulation.connects(node.address, other.address)
        return False

    def _required(self, partition: int, view: Key) -> set[int]:
        """Return the writes that a member that has a partition in a view must have."""
        line = {view, *self._before[view]}
        losses = [lost for lost in self._lost[partition] if lost in line]
        return {
            number
            for number, where in self._acked[partition]
            if where in line and not any(where in self._before[lost] for lost in losses)
        }

    def _is_complete(self, uuid: str, partition: int, view: Key) -> bool:
        return self._required(partition, view) <= self._replicas[uuid, partition].keys()

    def _was_synced(self, uuid: str, partition: int, view: View) -> bool:
        """Say whether a member had a partition in the newest table that a view may follow, and still had after that."""
        found = list(self._tables_before(view))
        newest = max((table.version for table in found), default=(0, 0))
        if (uuid, partition, newest[0]) in self._stale:
            return False
        return any(table.version == newest and uuid in table.owners()[partition] for table in found)

    def _tables_before(self, view: View) -> Iterator[PartitionTable]:
        line = self._before[key_of(view)]
        for tables in self._tables.values():
            for table in tables:
                if any(table.epoch == epoch and table.members == uuids for epoch, uuids in line):
                    yield table


def _view(node: Node) -> View:
    assert node.member is not None
    assert node.member.view is not None
    return node.member.view
