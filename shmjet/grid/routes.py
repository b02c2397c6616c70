"""Which member has which partition of a cluster's maps and lists, and the way to it.

The place of a partition is looked up in a table that may be old: the member that is asked refuses what it does not
have. Then the table is fetched anew, and the operation asked again, under its number, until the partition is found.
Must not know what operations do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from shmjet.grid.change_log import unsettled
from shmjet.grid.divided_table import DividedTable
from shmjet.grid.errors import GridError, PartitionMovedError
from shmjet.grid.kept_results import OperationId
from shmjet.grid.layout import PARTITION
from shmjet.grid.lease import holds
from shmjet.grid.remote import Call, NumberedCalls, OneNumber, RemoteTable
from shmjet.grid.store import Opened

Result = TypeVar("Result")
TableOfMember = DividedTable | RemoteTable

PATIENCE_S = 60.0
"""How long a partition is looked for."""
_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_SHARE_OF_WAIT = 0.25
"""A pause is this part of what has been waited: so much longer at most than the partition was away does a call take."""


class Owners(NamedTuple):
    """The table of partitions: identities of members, and for each partition the place of its primary among them."""

    members: tuple[str, ...]
    primaries: tuple[int, ...]
    here: str
    """The member that was asked."""


class Carrier(Protocol):
    """Leads to members."""

    def ask(self, member: str, body: bytes) -> bytes:
        """Have a member perform an encoded operation; an empty name is that of any member.

        Raises:
            PartitionMovedError: the member does not have the partition, or cannot be reached.
        """

    def owners(self) -> Owners:
        """Return the table, as the nearest member has it. Raises PartitionMovedError while it has none."""


class Routes:
    """See the module. Safe for several threads.

    Args:
        carrier: leads to members.
        store: of the nearest member, where this process can open it.
        settle: waits until all backups of what is in that store have its changes, up to a number in the log of an
            environment.
        check: raises an error if what is in that store counts no more; it is called before and after each use. None
            where this process ends with the member.
    """

    def __init__(
        self,
        carrier: Carrier,
        store: Opened | None = None,
        settle: Callable[[int, int], None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.carrier = carrier
        self._store = store
        self._settle = settle
        self._check = check
        self._owners: Owners | None = None
        self._tables: dict[tuple[int, bytes], DividedTable] = {}
        self.numbers = NumberedCalls(partial(carrier.ask, ""))

    @property
    def owners(self) -> Owners:
        """The table as it was when it was fetched last."""
        owners = self._owners
        if owners is None:
            owners = self._owners = self.fetched()
        return owners

    def fetched(self) -> Owners:
        """Return the table as it is now."""
        search = Search(self)
        while True:
            try:
                return self.carrier.owners()
            except PartitionMovedError as error:  # the nearest member is leaving, or joining anew
                search.missed(error)

    def owner(self, partition: int) -> str:
        """Return the member that has a partition."""
        owners = self.owners
        return owners.members[owners.primaries[partition]]

    def by_owner(self, partitions: Iterable[int]) -> dict[str, list[int]]:
        """Return partitions by the member that has them."""
        found: dict[str, list[int]] = {}
        for partition in partitions:
            found.setdefault(self.owner(partition), []).append(partition)
        return found

    def to(self, member: str) -> Call:
        """Return what carries operations to a member."""
        return partial(self.carrier.ask, member)

    def table(
        self, member: str, environment: int, record_key: bytes, number: OperationId | None = None
    ) -> TableOfMember:
        """Return a map or list on a member, in one environment.

        Args:
            member: which one.
            environment: of its store.
            record_key: from `layout.record_key`.
            number: of a change that is not to be done twice.
        """
        if number is None and (here := self.here(member, environment, record_key)) is not None:
            return here
        if self._store is not None and member == self.owners.here and self._is_leased():
            self._look()
            table = self._store.divided_table(environment, record_key)
            table.operation = number
            return table
        call = self.to(member)
        changes = self.numbers if number is None else OneNumber(call, number)
        return RemoteTable(call, changes, environment, record_key)

    def here(self, member: str, environment: int, record_key: bytes) -> DividedTable | None:
        """Return a map or list in the store of this process, None where the member has another one."""
        if self._store is None or member != self.owners.here or not self._is_leased():
            return None
        self._look()
        key = environment, record_key
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._store.divided_table(environment, record_key)
        return table

    def _is_leased(self) -> bool:
        """Whether what is in the store counts; else the member is asked, when it moves again."""
        return self._store is None or holds(self._store.environment(0).announced)

    def _look(self) -> None:
        if self._check is not None:
            self._check()

    def settle(self, table: TableOfMember, partitions: Iterable[int] | None) -> None:
        """Wait until all backups have the changes that were read or made; those of another process have seen to it.

        Args:
            table: of which something was read or changed.
            partitions: in which; None: in any.
        """
        if self._settle is not None and isinstance(table, DividedTable):
            self._look()
            packed = None if partitions is None else [PARTITION.pack(partition) for partition in partitions]
            number = unsettled(table.env, packed)
            if number:
                self._settle(table.index, number)

    def forget(self) -> None:
        """Take that the table has changed."""
        self._owners = None

    def until_found(self, work: Callable[[], Result]) -> Result:
        """Do something until no partition was missed.

        Raises:
            GridError: one could not be found for long.
        """
        search = Search(self)
        while True:
            try:
                return work()
            except PartitionMovedError as error:
                search.missed(error)


class Search:
    """The patience of one operation that misses partitions.

    Args:
        routes: to be looked up anew.
    """

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._since = 0.0

    def missed(self, error: PartitionMovedError) -> None:
        """Pause, and fetch the table anew. Raises GridError after `PATIENCE_S`."""
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > PATIENCE_S:
            raise GridError(
                f"no member has had a partition for {PATIENCE_S:g} s ({error}); all members have to have the same "
                "settings of maps"
            ) from error
        time.sleep(min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, _SHARE_OF_WAIT * (now - self._since))))
        self._routes.forget()
