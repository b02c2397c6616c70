"""The members of a cluster, as a client sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shmjet.cluster.client.connection import Connection
from shmjet.cluster.protocol import Describe, DescribePartitions
from shmjet.core import ShmjetError


@dataclass(frozen=True)
class Member:
    """A member of the cluster.

    `address` is "local" for a member without a network; `uuid` names it for good, `pid` is its process; `cores` are the
    core numbers that its workers run on; `workers` are the pids of its workers, `carriers` those of the processes that
    its running jobs have for processors that may block; `keeper` is the process that keeps its partitions of maps and
    lists, which is `pid`; `is_local`: this process started it; `is_coordinator`: it is the oldest, which coordinates
    jobs.

    Example:
        >>> [(member.address, member.cores) for member in jet.cluster.members]  # doctest: +SKIP
        [('10.0.0.5:5701', (0, 1)), ('10.0.0.6:5701', (0, 1))]
    """

    address: str
    uuid: str
    pid: int
    cores: tuple[int, ...]
    workers: tuple[int, ...]
    carriers: tuple[int, ...]
    is_local: bool
    is_coordinator: bool

    @property
    def keeper(self) -> int:
        """The pid of the process that keeps its partitions of maps and lists, sends their backups and moves them.

        That is `pid`: there is no process of its own for it, so its loss is the loss of the member. Its partitions go
        on where their backups are; without any, what they hold is lost, unless the members have a storage.
        """
        return self.pid


class Cluster:
    """The members that a client sees.

    Example:
        >>> [len(member.workers) for member in jet.cluster.members]             # doctest: +SKIP
        [4]
    """

    def __init__(self, connection: Connection, has_own: bool, learn: Callable[[list[str]], None]) -> None:
        self._connection = connection
        self._has_own = has_own
        self._learn = learn

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, the oldest, which coordinates, first.

        Raises:
            MemberLostError: the member is gone.
        """
        reply = self._connection.ask(Describe)
        found = tuple(
            Member(
                address=row.address,
                uuid=row.uuid,
                pid=row.pid,
                cores=tuple(row.cores),
                workers=tuple(row.workers),
                carriers=tuple(row.carriers),
                is_local=self._has_own and row.uuid == reply.asked,
                is_coordinator=place == 0,
            )
            for place, row in enumerate(reply.members)
        )
        self._learn([member.address for member in found])
        return found

    def partition_table(self) -> tuple[tuple[str, ...], ...]:
        """Return for each partition the uuids of the members that have it: the primary first, then complete backups.

        The primaries are where edges between members bring the items of a partition.

        Raises:
            MemberLostError: the member is gone.
            ShmjetError: the member is cut off from its cluster, or is looking for it.

        Example:
            >>> jet.cluster.partition_table()[0]                                        # doctest: +SKIP
            ('7ae1c0bb4e4f4d6f8f2f6b1a0c9d8e7f',)
        """
        reply = self._connection.ask(DescribePartitions)
        return tuple(tuple(reply.members[place] for place in row) for row in reply.replicas)

    @property
    def is_safe(self) -> bool:
        """Whether every partition has all its backups: `backup_count`, or one on each other member if there are fewer.

        While it is True, `backup_count` members may be lost at once, and nothing that was acknowledged is lost. It is
        False while backups are being made, after a member has come or was lost.

        Raises:
            MemberLostError, ShmjetError: as `partition_table`.
        """
        return bool(self._connection.ask(DescribePartitions).is_safe)

    def _repr_html_(self) -> str:
        """Show the members, in a notebook."""
        from shmjet.cluster.client.notebook import cluster_html

        return cluster_html(self)

    def __repr__(self) -> str:
        try:
            return f"<Cluster of {', '.join(f'{member.address} (pid {member.pid})' for member in self.members)}>"
        except ShmjetError:
            return "<Cluster that is gone>"
