"""The answers of a member about the table of partitions: to clients, and to processes that monitor it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from shmjet.cluster.membership.views import View
from shmjet.cluster.partitions.table import Holder, PartitionTable
from shmjet.cluster.protocol import DescribePartitions, PartitionCounts, PartitionsReply, Refused
from shmjet.core.ownership import PartitionOwners, dealt


class Client(Protocol):
    """The client that asks."""

    def send(self, message: object) -> None:
        """Send the answer."""


class NetworkWithTable(Protocol):
    """The member's network, as far as the table is concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    @property
    def trouble(self) -> str: ...
    @property
    def is_cut_off(self) -> bool: ...


class Partitions:
    """See the module.

    Args:
        network: of the member; None for a member alone, which has all partitions.
        count: of partitions.
        backups: how many of each there should be, as far as there are members.
        me: gives the member's identity.
    """

    def __init__(self, network: NetworkWithTable | None, count: int, backups: int, me: Callable[[], str]) -> None:
        self._network = network
        self._count = count
        self._backups = backups
        self._me = me

    def describe(self, client: Client, request: DescribePartitions) -> None:
        """Answer with the table in force."""
        table = self._table()
        if table is None:
            assert self._network is not None
            error = "ShmjetError" if self._network.is_cut_off else "PartitionMovedError"
            client.send(Refused(request.request, error, self._network.trouble))
            return
        wanted = min(1 + self._backups, len(table.members))
        is_safe = table.is_safe and all(len(owners) >= wanted for owners in table.synced)
        client.send(PartitionsReply(request.request, list(table.members), list(table.synced), is_safe, self._me()))

    def counts(self) -> PartitionCounts:
        """Return how many partitions this member has."""
        if self._network is None:
            return PartitionCounts(self._count, 0, 0)
        table = self._network.table
        if table is None or self._me() not in table.members:
            return PartitionCounts()
        me = table.members.index(self._me())
        synced, copying = Counter(table.synced), Counter(table.copying)
        return PartitionCounts(
            sum(count for row, count in synced.items() if row[0] == me),
            sum(count for row, count in synced.items() if me in row[1:]),
            sum(count for row, count in copying.items() if me in row),
        )

    def owners(self, view: View) -> PartitionOwners:
        """Return the owners of partitions for a job that begins on the members of a view: where they are, or go now."""
        table = None if self._network is None else self._network.table
        if table is None or table.members != view.uuids or len(view.members) == 1:
            return dealt(self._count, len(view.members))
        return PartitionOwners(len(view.members), [row[0] for row in table.wanted])

    def _table(self) -> PartitionTable | None:
        if self._network is None:
            return PartitionTable.first(0, self._count, [Holder(self._me(), "local")], 0)
        return self._network.table
