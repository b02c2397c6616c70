"""Which members have a backup of the partitions that this member leads, and have to have each change.

They are those of the table in force, and the members that have a copy which the table does not show yet. Must not know
when partitions open and close.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from shmjet.cluster.member.local_partitions import LocalPartitions
from shmjet.cluster.member.replicator import Replicator
from shmjet.cluster.partitions.table import Change, Event, PartitionTable
from shmjet.grid.errors import GridError
from shmjet.grid.replica import Term

logger = logging.getLogger("shmjet.member")


class NetworkOfBackups(Protocol):
    """The member's network, as far as backups are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    def report(self, changes: Iterable[Change]) -> None: ...


class KnownBackups:
    """See the module.

    Args:
        network: of the member.
        me: gives the member's identity.
        here: the partitions in its store.
        replicator: gives what brings changes to backups.
    """

    def __init__(
        self,
        network: NetworkOfBackups,
        me: Callable[[], str],
        here: LocalPartitions,
        replicator: Callable[[], Replicator],
    ) -> None:
        self._network = network
        self._me = me
        self._here = here
        self._replicator = replicator
        self._following = asyncio.Lock()
        self.terms: dict[int, Term] = {}
        """Partitions that this member leads, by the table under which it began to."""
        self.rows: dict[int, set[str]] = {}
        """The backups of these, which have to have each change."""
        self.reported: set[tuple[int, str]] = set()
        """Copies of partitions that are or will be reported, with who has them, and are not in the table yet."""

    def forget(self) -> None:
        """Take that this member leads nothing any more."""
        self.terms.clear()
        self.rows.clear()

    def leave_off(self, partitions: Collection[int]) -> None:
        """Take that this member leads some partitions no more; who opens them next, be it this one, begins anew."""
        for partition in partitions:
            self._replicator().replica.led(partition, self.terms.pop(partition))

    async def look(self) -> None:
        """See to it that no one waits for a backup that counts no more, whatever else is under way."""
        try:
            if self.terms:
                await self.follow()
                self.look_for_late()
        except (GridError, OSError) as error:
            logger.warning("the backups of partitions could not be looked at: %s", str(error))

    async def follow(self) -> None:
        """Take from the table which members have a backup of what this one leads.

        A backup counts from the moment at which it is reported, until a table in force says that it does not.
        """
        async with self._following:
            table, me = self._network.table, self._me()
            if table is None or me not in table.members:
                return
            place = table.members.index(me)
            rows: dict[int, set[str]] = {}
            strange: list[Change] = []
            for partition in self.terms:
                held = table.synced[partition]
                if held[0] != place:
                    continue
                backups = {table.members[other] for other in held[1:]}
                if partition in self._here.open:
                    known = self.rows.get(partition, set())
                    strange += [Change(Event.STALE, partition, uuid) for uuid in backups - known]
                rows[partition] = backups
            self.reported = {(p, uuid) for p, uuid in self.reported if _is_copying(table, p, uuid)}
            for partition, uuid in self.reported:
                if partition in rows:
                    rows[partition].add(uuid)
            self.rows = rows
            self._replicator().follow(rows, self.terms)
            if await self._here.count_backups(rows):
                self._replicator().count()
            if strange:
                logger.error("members were said to have backups that this one has not made; they are made anew")
                self._network.report(strange)

    def look_for_late(self) -> None:
        """Report backups that do not answer; they are waited for until the table shows it."""
        table, me = self._network.table, self._me()
        if table is None or me not in table.members or not self._replicator().late:
            return
        place = table.members.index(me)
        late = [table.members.index(uuid) for uuid in self._replicator().late if uuid in table.members]
        changes = [
            Change(Event.STALE, partition, table.members[other])
            for partition, row in enumerate(table.synced)
            if row[0] == place
            for other in late
            if other in row[1:]
        ]
        if changes:
            names = ", ".join(sorted({change.uuid for change in changes}))
            logger.warning("backups on %s do not answer, and are made anew", names)
            self.reported.difference_update((change.partition, change.uuid) for change in changes)
            self._network.report(changes)

    def differs(self, partition: int, uuid: str) -> None:
        """Have a backup that is not what it should be made anew; it is waited for until the table shows it."""
        self.reported.discard((partition, uuid))
        self._network.report([Change(Event.STALE, partition, uuid)])


def _is_copying(table: PartitionTable, partition: int, uuid: str) -> bool:
    return uuid in (table.members[place] for place in table.copying[partition])
