"""Copies partitions to members that are to have them, while tables are followed and partitions are written to.

One batch at a time, to one member. When all is there, the other member joins the backups of the partitions, and is
reported when it has what all have. Must not know when partitions open and close, but for what is being handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from shmjet.cluster.member.copier import PIECES_OF_LINE, Copier, first_batch
from shmjet.cluster.member.copy_lines import CopyLines
from shmjet.cluster.member.copy_stream import CopyFailed, CopySender
from shmjet.cluster.member.known_backups import KnownBackups
from shmjet.cluster.member.local_partitions import LocalPartitions
from shmjet.cluster.member.replicator import Replicator
from shmjet.cluster.membership.peer_messages import CopyPartitions
from shmjet.cluster.partitions.table import Change, Event, PartitionTable

MUCH_BYTES = 1 << 20
"""Of bytes in the store: from so many on, copies have connections of their own."""


class NetworkOfMover(Protocol):
    """The member's network, as far as copies are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    def report(self, changes: Iterable[Change]) -> None: ...


class PartitionMover:
    """See the module.

    Args:
        network: of the member.
        here: the partitions in its store.
        backups: those of what it leads.
        replicator: brings changes to backups.
        sender: brings copies to members.
        lines: connections for copies; None: they go by the network.
        is_followed: says whether a view is in force, by its epoch, and what counts here is of that view.
    """

    def __init__(
        self,
        network: NetworkOfMover,
        here: LocalPartitions,
        backups: KnownBackups,
        replicator: Replicator,
        sender: CopySender,
        lines: CopyLines | None,
        is_followed: Callable[[int], bool],
    ) -> None:
        self._network = network
        self._here = here
        self._backups = backups
        self._replicator = replicator
        self._sender = sender
        self._lines = lines
        self._is_followed = is_followed
        self.has_classes: set[str] = set()
        """Members that have got all classes in this view."""
        self.being_copied: Collection[int] = frozenset()
        """Partitions that are being copied."""

    def next(self, table: PartitionTable, mine: Collection[int]) -> str | None:
        """Return the member that is to get a copy next; None where there is nothing to be copied.

        Args:
            table: in force.
            mine: the partitions that this member leads by that.
        """
        for partition in sorted(mine):
            for place in table.copying[partition]:
                if (partition, table.members[place]) not in self._backups.reported:
                    return table.members[place]
        return None

    async def move(
        self,
        table: PartitionTable,
        mine: Collection[int],
        uuid: str,
        sealed: Callable[[], Collection[int]],
        *,
        is_urgent: bool,
    ) -> bool:
        """Copy some partitions to a member that is to have them, and is a backup like others from then on.

        Args:
            table: in force.
            mine: the partitions that this member leads by that.
            uuid: the other member.
            sealed: gives the partitions that are being handed over.
            is_urgent: whether that goes before the writes of others, as it does where a partition lacks a backup.

        Returns:
            False if another table came before anything was copied.

        Raises:
            CopyFailed: the other member has not taken it all, or the members have changed.
        """
        place, here, epoch = table.members.index(uuid), self._here, table.epoch
        waiting = [
            partition
            for partition in sorted(mine)
            if place in table.copying[partition] and (partition, uuid) not in self._backups.reported
        ]
        size = await here.do(here.copy().size)
        batch = first_batch(waiting, len(here.stored), size)
        await self._sender.ask(uuid, CopyPartitions(epoch, 0, []))  # before anything is noted
        if self._network.table is not table:
            return False  # some may have been copied by what that says, and count as backups
        line = None if self._lines is None or size < MUCH_BYTES else await self._lines.to(uuid)
        if self._network.table is not table:
            return False
        batch = [partition for partition in batch if partition in here.open and partition not in sealed()]
        if not batch:
            return False
        terms = {partition: self._backups.terms[partition] for partition in batch}
        lineages = {partition: here.open[partition] for partition in batch}
        self.being_copied = frozenset(batch)
        try:
            async with self._sender.stream(uuid, line) as stream:
                shipping = self._replicator.shipping
                has_backups = all(len(table.synced[partition]) >= len(table.wanted[partition]) for partition in batch)
                copier = Copier(
                    self._network,
                    here,
                    shipping,
                    stream,
                    epoch,
                    uuid,
                    batch,
                    gives_way=has_backups and not is_urgent,
                    pieces_at_once=1 if line is None else PIECES_OF_LINE,
                )
                try:
                    await copier.begin(terms, with_classes=uuid not in self.has_classes)
                    self.has_classes.add(uuid)
                    await self._sender.ask(uuid, CopyPartitions(epoch, 0, [], end=lineages), line)
                    await self._join(epoch, uuid, batch, copier)
                finally:
                    await self._end(copier)
        finally:
            self.being_copied = frozenset()
        if self._is_followed(epoch):  # with a new view everything begins anew, the copy, too
            self._network.report([Change(Event.SYNCED, partition, uuid) for partition in batch])
        return True

    async def _join(self, epoch: int, uuid: str, batch: Collection[int], copier: Copier) -> None:
        """Have a member that has a copy be told of changes as backups are, and wait until it has what all have."""
        if not self._is_followed(epoch):
            raise CopyFailed("the members have changed")
        joined = {(partition, uuid) for partition in batch}
        try:
            self._backups.reported |= joined  # from now on it is waited for
            copier.join()
            await self._backups.follow()
            if not await self._replicator.caught_up(uuid, epoch):
                raise CopyFailed("the new backup has not taken what has changed")
        except BaseException:
            self._backups.reported -= joined
            raise

    async def _end(self, copier: Copier) -> None:
        """Note nothing for a copy any more, be it complete or not."""
        try:
            await copier.give_up()
        finally:
            copier.end()
            await self._backups.follow()
