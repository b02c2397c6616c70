"""A map or list of a cluster in one environment: the operations of `Table`, each brought to the members it is for.

What is about one partition goes to the member that has it, and what is about several to each of theirs, by partition.
Must not know how members are reached, nor objects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from shmjet.data.errors import MemberLostError
from shmjet.grid.bounded_table import TRANSACTION_ENTRIES
from shmjet.grid.changes import Entry
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.divided_table import Count
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.kept_results import OperationId
from shmjet.grid.layout import PARTITION
from shmjet.grid.log import Piece
from shmjet.grid.operations import NO_PREFIX
from shmjet.grid.portions import Run, Survey, portions, survey
from shmjet.grid.remote import PORTION_BYTES, Recently
from shmjet.grid.routes import Routes, Search, TableOfMember
from shmjet.grid.scan import FIRST_STEP, LAST_STEP, PAGE_ENTRIES, Page
from shmjet.grid.table import Once
from shmjet.grid.table_reads import Block

Result = TypeVar("Result")
LOST = "the member that had this map or list was lost while it was read, and the rest of it"


class RoutedTable:
    """See the module: the methods of `Table`, with the same meaning.

    Args:
        routes: to the members.
        environment: in which it is, on each member.
        count: of environments.
        record_key: from `layout.record_key`.
        home: the partition in which all of it lies; None: each entry lies in that of its key.
    """

    prefix = NO_PREFIX

    def __init__(self, routes: Routes, environment: int, count: int, record_key: bytes, home: int | None) -> None:
        self._routes = routes
        self._environment = environment
        self._count = count
        self._record_key = record_key
        self._home = home
        self.announced = Recently()

    @property
    def partitions(self) -> range:
        """The partitions of a spread map in this environment."""
        return range(self._environment, len(self._routes.owners.primaries), self._count)

    def last_write(self) -> None:
        """Not known here."""

    # -- one partition ------------------------------------------------------------------------------------------

    def find(self, key: bytes) -> bytes | None:
        """See `Table.find`."""
        return self._read(self._place(key), lambda table: table.find(key))

    def replace(
        self, key: bytes, value: bytes, *, with_blobs: bool, ttl: int = 0, only_present: bool = False
    ) -> bytes | None:
        """See `Table.replace`."""

        def work(table: TableOfMember) -> bytes | None:
            return table.replace(key, value, with_blobs=with_blobs, ttl=ttl, only_present=only_present)

        return self._change(self._place(key), work)

    def swap(self, key: bytes, expected: bytes | None, value: bytes | None, *, with_blobs: bool, end: int = 0) -> bool:
        """See `Table.swap`."""
        return self._change(
            self._place(key), lambda table: table.swap(key, expected, value, with_blobs=with_blobs, end=end)
        )

    def add(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """See `Table.add`."""
        return self._change(self._place(key), lambda table: table.add(key, value, with_blobs=with_blobs))

    def pop(self, key: bytes) -> bytes | None:
        """See `Table.pop`."""
        return self._change(self._place(key), lambda table: table.pop(key))

    def _place(self, key: bytes) -> int:
        if self._home is not None:
            return self._home
        number: int = PARTITION.unpack_from(key)[0]
        return number

    def _at(self, partition: int, number: OperationId | None = None) -> TableOfMember:
        return self._routes.table(self._routes.owner(partition), self._environment, self._record_key, number)

    def _read(self, partition: int, work: Callable[[TableOfMember], Result]) -> Result:
        return self._routes.until_found(lambda: self._settled(partition, work, self._at(partition)))

    def _settled(self, partition: int, work: Callable[[TableOfMember], Result], table: TableOfMember) -> Result:
        result = work(table)
        self._routes.settle(table, (partition,))
        return result

    def _change(self, partition: int, work: Callable[[TableOfMember], Result]) -> Result:
        here = self._routes.here(self._routes.owner(partition), self._environment, self._record_key)
        if here is not None:
            try:
                result = work(here)
            except PartitionMovedError:  # so it is not done
                self._routes.forget()
            else:
                self._routes.settle(here, (partition,))
                return result
        with self._routes.numbers.number() as number:
            return self._routes.until_found(lambda: self._settled(partition, work, self._at(partition, number)))

    # -- all in one partition -----------------------------------------------------------------------------------

    def append(self, blocks: list[tuple[int, bytes]], *, with_blobs: bool, once: Once | None = None) -> bool:
        """See `Table.append`."""
        return self._change(self._there, lambda table: table.append(blocks, with_blobs=with_blobs, once=once))

    def block_of(self, index: int, known: tuple[bytes, int, int] | None = None) -> Block | None:
        """See `Table.block_of`."""
        return self._read(self._there, lambda table: table.block_of(index, known))

    def size(self) -> int:
        """See `Table.size`."""
        return self._read(self._there, lambda table: table.size())

    def sizes(self) -> dict[int, int]:
        """See `Table.sizes`."""
        return self._read(self._there, lambda table: table.sizes())

    def read_log(self, number: int | None) -> Piece:
        """See `Table.read_log`."""
        return self._read(self._there, lambda table: table.read_log(number))

    def drop(self, *, keep_name: bool) -> None:
        """See `Table.drop`."""
        self._change(self._there, lambda table: table.drop(keep_name=keep_name))

    @property
    def _there(self) -> int:
        assert self._home is not None
        return self._home

    # -- several partitions -------------------------------------------------------------------------------------

    def find_all(self, keys: Iterable[bytes]) -> list[Entry]:
        """See `Table.find_all`."""
        wanted = list(keys)
        found: dict[bytes, bytes] = {}

        def work(table: TableOfMember, some: list[bytes]) -> None:
            found.update(table.find_all(some))

        self._scatter(wanted, self._place, work)
        return [(key, found[key]) for key in wanted if key in found]

    def write(self, entries: list[Entry], *, with_blobs: bool) -> None:
        """See `Table.write`."""
        errors = DiskErrors()
        by_owner: dict[str, list[Entry]] = {}
        for partition, begin, end in survey(entries).runs:
            owner = self._routes.owner(partition if self._home is None else self._home)
            by_owner.setdefault(owner, []).extend(entries[begin:end])
        for some in by_owner.values():
            for portion, found in portions(some, PORTION_BYTES, TRANSACTION_ENTRIES):
                errors.result_of(partial(self._write_portion, portion, found, with_blobs))
        errors.report()

    def _write_portion(self, portion: list[Entry], found: Survey, with_blobs: bool) -> None:
        runs = found.runs

        def place(run: Run) -> int:
            return run[0] if self._home is None else self._home

        def work(table: TableOfMember, some: list[Run]) -> None:
            if len(some) == len(runs):
                table.write(portion, with_blobs=with_blobs, found=found)
            else:
                table.write([entry for _, begin, end in some for entry in portion[begin:end]], with_blobs=with_blobs)

        with self._routes.numbers.number() as number:
            self._scatter(runs, place, work, number)

    def write_once(self, entries: list[Entry], gone: list[bytes], once: Once, *, with_blobs: bool) -> list[int]:
        """See `Table.write_once`."""
        before: list[int] = []
        errors = DiskErrors()

        def work(table: TableOfMember, some: list[tuple[bytes, bytes | None]]) -> None:
            put = [(key, value) for key, value in some if value is not None]
            removed = [key[len(NO_PREFIX) :] for key, value in some if value is None]
            write = partial(table.write_once, put, removed, once, with_blobs=with_blobs)
            before.extend(errors.result_of(write) or ())

        changes: list[tuple[bytes, bytes | None]] = [*entries, *((NO_PREFIX + key, None) for key in gone)]
        with self._routes.numbers.number() as number:
            self._scatter(changes, lambda change: self._place(change[0][len(NO_PREFIX) :]), work, number)
        errors.report(before)
        return before

    def _scatter(
        self,
        things: Sequence[Result],
        place: Callable[[Result], int],
        work: Callable[[TableOfMember, list[Result]], None],
        number: OperationId | None = None,
    ) -> None:
        """Do something with things of several partitions, at once with those of one member."""
        left, search, is_first = list(things), Search(self._routes), True
        errors = DiskErrors()
        while left:
            owned = [(self._routes.owner(place(thing)), thing) for thing in left]
            groups: dict[str, list[Result]] = {}
            for member, thing in owned:
                groups.setdefault(member, []).append(thing)
            have_missed: set[str] = set()
            for member, some in groups.items():
                at = self._environment, self._record_key
                here = self._routes.here(member, *at) if is_first else None
                table = here or self._routes.table(member, *at, number)
                try:
                    errors.result_of(partial(work, table, some))
                except PartitionMovedError as error:
                    have_missed.add(member)
                    missed = error
                else:
                    self._routes.settle(table, None if self._home is None else (self._home,))
            left = [thing for member, thing in owned if member in have_missed]  # in their order, as tables need them
            is_first = False
            if left:
                search.missed(missed)
        errors.report()

    def counts(self) -> dict[int, Count]:
        """Return the entries of each partition of this environment of a spread map."""
        search, found = Search(self._routes), dict[int, Count]()
        while left := [partition for partition in self.partitions if partition not in found]:
            for member in self._routes.by_owner(left):
                table = self._routes.table(member, self._environment, self._record_key)
                with contextlib.suppress(PartitionMovedError):
                    found.update((count.partition, count) for count in table.counts())
                    self._routes.settle(table, None)
            if any(partition not in found for partition in left):
                search.missed(PartitionMovedError("a partition is on its way"))
        return found

    def drop_spread(self) -> None:
        """Remove the entries of all partitions of this environment of a spread map."""
        with self._routes.numbers.number() as number:
            self._scatter(list(self.partitions), int, lambda table, some: table.drop_partitions(some), number)

    # -- pages --------------------------------------------------------------------------------------------------

    def pages(self, low: bytes = b"", high: bytes | None = None, *, limit: int = PAGE_ENTRIES) -> Iterator[Page]:
        """See `Table.pages`; of a spread map `low` is in one partition, and the pages are of that one."""
        if self._home is None:
            partition = self._place(low)
            yield from self.pages_of(
                [partition], {}, low if len(low) > PARTITION.size else b"", limit=limit, skip=False
            )
            return
        step, skip = FIRST_STEP, False
        while True:

            def read(
                table: TableOfMember, low: bytes = low, step: int = step, skip: bool = skip
            ) -> tuple[Page, bytes | None]:
                return table.read_home_page(low, high, step=step, limit=limit, skip=skip)

            page, last = self._read(self._there, read)
            yield page._replace(transaction=self.announced.note())
            if last is None:
                return
            low, skip, step = last, True, LAST_STEP

    def pages_of(
        self,
        partitions: Iterable[int],
        lineages: dict[int, int],
        low: bytes = b"",
        *,
        limit: int = PAGE_ENTRIES,
        skip: bool = True,
    ) -> Iterator[Page]:
        """Yield the entries of some partitions of a spread map.

        Args:
            partitions: in their order.
            lineages: what is known of them; what is read is added.
            low: behind which key to begin in the first one.
            limit: entries of a page, about.
            skip: begin behind that key, not with it.

        Raises:
            MemberLostError: a partition has another lineage than it had: what it had is lost.
        """
        left, search = list(partitions), Search(self._routes)
        while left:
            try:
                owner = self._routes.owner(left[0])
                same = [partition for partition in left if self._routes.owner(partition) == owner]
                table = self._routes.table(owner, self._environment, self._record_key)
                read = table.read_partitions(same, low, limit, skip=skip)
                self._routes.settle(table, same[: len(read.lineages)])
            except PartitionMovedError as error:
                search.missed(error)
                continue
            for partition, number in zip(same, read.lineages, strict=False):
                if lineages.setdefault(partition, number) != number:
                    raise MemberLostError(LOST)
            search, low, skip = Search(self._routes), read.low, True
            done = set(same[: read.done])
            left = [partition for partition in left if partition not in done]
            if low:  # that one first, as its place is known
                begun = same[read.done]
                left = [begun, *(partition for partition in left if partition != begun)]
            yield Page(read.values, self.announced.note(), read.has_blobs, read.has_ends)
