"""One map or list in one environment of a store that is divided among members.

As `Table`, with what depends on which partitions are open: counts, pages and removal by partition, and large values
that come inside an entry. What `ownership` says of a partition is looked at in the transaction that reads or changes
it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from shmjet.grid import carried
from shmjet.grid.bounded_table import TRANSACTION_ENTRIES
from shmjet.grid.changes import Changes, Entry
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.environment import Transaction, behind
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import END_RECORD, HAS_ENDS, PARTITION, PARTITION_RECORD, PREFIX, TIME, Record, Sizes
from shmjet.grid.log import Piece
from shmjet.grid.ownership import MOVED, lineage, open_here
from shmjet.grid.portions import Survey, survey
from shmjet.grid.scan import FIRST_STEP, LAST_STEP, PAGE_BYTES, PAGE_ENTRIES, Page, read_page
from shmjet.grid.table import Once, Table
from shmjet.grid.times import now

MOST_LOOKED_AT = 1 << 14
"""Ended entries of backups that are passed over, at most, in a search for one of an open partition."""


class Count(NamedTuple):
    """The entries of a map in an open partition.

    Args:
        partition: which one.
        entries: as many as have not been removed.
        ended: of these, those whose time is over.
        lineage: of the partition.
    """

    partition: int
    entries: int
    ended: int
    lineage: int


class PartitionsRead(NamedTuple):
    """Entries of some partitions, read one after the other.

    Args:
        values: stored entries.
        done: how many partitions have been read to their end.
        low: behind which key without prefix the next one goes on; empty where it has not been begun.
        has_blobs, has_ends: see `scan.Page`.
        lineages: of the partitions that were read, the unfinished one included.
    """

    values: list[bytes]
    done: int
    low: bytes
    has_blobs: bool
    has_ends: bool
    lineages: list[int]


class DividedTable(Table):
    """See the module. Fields as those of `Table`, and which of how many environments it is."""

    index = 0
    environments = 1

    # -- large values -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _settled(self, key: bytes, value: bytes | None) -> Iterator[tuple[bytes | None, bool]]:
        """Give an entry as it is stored, and whether it has a file, which goes if the entry is not stored."""
        name = b""
        if value is not None:
            value, name = carried.entry_of(value, self._blobs, self._place(key[: PARTITION.size]))
        try:
            yield value, bool(name)
        finally:
            if name:
                self._delete_unused(key, name)

    def _place(self, partition: bytes) -> int:
        number: int = PARTITION.unpack(self.place_of(partition))[0]
        return number

    def _delete_unused(self, key: bytes, name: bytes) -> None:
        with self.env.begin() as txn:  # whether the partition is open or not: its copy needs the files that are named
            record = txn.get(self.record_key)
            found = None if record is None else txn.get(record[:4] + key)
        if found is None or name not in self._names_in(found):
            self._blobs.delete([name])

    def replace(
        self, key: bytes, value: bytes, *, with_blobs: bool, ttl: int = 0, only_present: bool = False
    ) -> bytes | None:
        """See `Table.replace`."""
        with self._settled(key, value) as (stored, has_file):
            assert stored is not None
            return super().replace(key, stored, with_blobs=has_file, ttl=ttl, only_present=only_present)

    def add(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """See `Table.add`."""
        with self._settled(key, value) as (stored, has_file):
            assert stored is not None
            return super().add(key, stored, with_blobs=has_file)

    def swap(self, key: bytes, expected: bytes | None, value: bytes | None, *, with_blobs: bool, end: int = 0) -> bool:
        """See `Table.swap`."""
        with self._settled(key, value) as (stored, has_file):
            return super().swap(key, expected, stored, with_blobs=has_file, end=end)

    def write(self, entries: list[Entry], *, with_blobs: bool, found: Survey | None = None) -> None:
        """See `Table.write`."""
        found = found or survey(entries)
        if not found.may_have_large:
            super().write(entries, with_blobs=False, found=found)
            return
        with contextlib.ExitStack() as stack:
            settled, has_files = self._all_settled(stack, entries)
            super().write(settled, with_blobs=has_files)

    def write_once(self, entries: list[Entry], gone: list[bytes], once: Once, *, with_blobs: bool) -> list[int]:
        """See `Table.write_once`."""
        with contextlib.ExitStack() as stack:
            settled, has_files = self._all_settled(stack, entries)
            return super().write_once(settled, gone, once, with_blobs=has_files)

    def _all_settled(self, stack: contextlib.ExitStack, entries: list[Entry]) -> tuple[list[Entry], bool]:
        settled, has_files = list(entries), False
        for at, (key, value) in enumerate(entries):
            if carried.may_be_large(value):
                stored, has_file = stack.enter_context(self._settled(key[4:], value))
                if has_file:
                    assert stored is not None
                    settled[at], has_files = (key, stored), True
        return settled, has_files

    def append(self, blocks: list[tuple[int, bytes]], *, with_blobs: bool, once: Once | None = None) -> bool:
        """See `Table.append`."""
        settled, names = [], []
        is_new = False
        try:
            for count, block in blocks:
                stored, name = carried.block_of(block, self._blobs, self._place(self.home))
                settled.append((count, stored))
                names += [name] if name else []
            is_new = super().append(settled, with_blobs=bool(names), once=once)
        finally:
            if not is_new:
                self._blobs.delete(names)
        return is_new

    # -- at home ------------------------------------------------------------------------------------------------

    def read_home_page(
        self, low: bytes, high: bytes | None, *, step: int, limit: int, skip: bool
    ) -> tuple[Page, bytes | None]:
        """Return a page of a list, or of a map that lies in one partition, and where the next one begins."""
        found: list[int] = []

        def admitted(txn: Transaction) -> None:
            found.append(lineage(txn, self.home))

        page, last = read_page(
            self.env,
            self.record_key,
            low,
            high,
            step=step,
            limit=limit,
            skip=skip,
            last_step=FIRST_STEP,
            admit=admitted,
        )
        return (page or Page([], 0, False))._replace(store=found[0]), last

    def read_log(self, number: int | None) -> Piece:
        """See `Table.read_log`."""
        before = self._home_lineage()
        piece = super().read_log(number)
        if self._home_lineage() != before:
            raise PartitionMovedError(MOVED)
        return piece._replace(store=before)

    def _home_lineage(self) -> int:
        with self.env.begin() as txn:
            return lineage(txn, self.home)

    # -- by partition -------------------------------------------------------------------------------------------

    def counts(self) -> list[Count]:
        """Return the entries of each partition of this environment that is open."""
        with self.env.begin() as txn:
            open_ones = open_here(txn)
            found = txn.get(self.record_key)
            entries: dict[int, int] = {}
            ended: dict[int, int] = {}
            if found is not None:
                for key, data in behind(txn, PARTITION_RECORD + found[:4]):
                    entries[PARTITION.unpack(key)[0]] = Sizes.unpack(data).entries
                if Record.unpack(found).flags & HAS_ENDS:
                    ended = _ended_by_partition(txn, found[:4])
        return [
            Count(partition, entries.get(partition, 0), ended.get(partition, 0), number)
            for partition, number in open_ones.items()
            if partition % self.environments == self.index
        ]

    def read_partitions(
        self, partitions: Sequence[int], low: bytes, limit: int = PAGE_ENTRIES, *, skip: bool = True
    ) -> PartitionsRead:
        """Read partitions, one after the other, until there is about a page; begin the first one behind a key.

        Args:
            partitions: which ones.
            low: where to begin in the first one; empty: with its first key.
            limit: so many entries are enough.
            skip: begin behind that key, not with it.

        Raises:
            PartitionMovedError: the first one is not open here. A later one is left out then.
        """
        values: list[bytes] = []
        lineages: list[int] = []
        size, done, has_blobs, has_ends = 0, 0, False, False
        for number in partitions:
            packed, behind_it = PARTITION.pack(number), PARTITION.pack(number + 1)

            def admitted(txn: Transaction, packed: bytes = packed) -> None:
                lineages.append(lineage(txn, packed))

            try:
                page, last = read_page(
                    self.env,
                    self.record_key,
                    low or packed,
                    behind_it,
                    step=FIRST_STEP,
                    limit=limit,
                    skip=skip and bool(low),
                    last_step=LAST_STEP,
                    admit=admitted,
                )
            except PartitionMovedError:
                if lineages:
                    break
                raise
            if page is not None:
                values += page.values
                size += sum(map(len, page.values))
                has_blobs, has_ends = has_blobs or page.has_blobs, has_ends or page.has_ends
            if last is not None:
                return PartitionsRead(values, done, last, has_blobs, has_ends, lineages)
            low, skip = b"", True
            done += 1
            if size >= PAGE_BYTES or len(values) >= limit:
                break
        return PartitionsRead(values, done, b"", has_blobs, has_ends, lineages)

    def has_ended(self) -> bool:
        """Say whether an entry of an open partition has ended, as far as the first thousands of ended ones tell."""
        moment = now()
        with self.env.begin() as txn:
            found = txn.get(self.record_key)
            if found is None or not Record.unpack(found).flags & HAS_ENDS:
                return False
            here = {PARTITION.pack(partition) for partition in open_here(txn)}
            for key, tail in islice(behind(txn, END_RECORD + found[:4]), MOST_LOOKED_AT):
                if TIME.unpack(key)[0] > moment:
                    return False
                if self.place_of(tail[: PARTITION.size]) in here:
                    return True
        return False

    def drop_partitions(self, partitions: Sequence[int]) -> None:
        """Remove the entries of some partitions, in portions. Raises PartitionMovedError, perhaps half way."""
        errors = DiskErrors()
        for number in partitions:
            packed = PARTITION.pack(number)
            while keys := self._some_keys(packed):

                def work(changes: Changes, keys: list[bytes] = keys, packed: bytes = packed) -> list[bytes]:
                    self.admit(changes.txn, (packed,))
                    return [old for key in keys if (old := changes.remove(key)) is not None]

                self._forget(errors.result_of(partial(self._change, work, makes=False, default=[])))
        errors.report()

    def _some_keys(self, packed: bytes) -> list[bytes]:
        with self.env.begin() as txn, txn.cursor() as cursor:
            self.admit(txn, (packed,))
            prefix = (txn.get(self.record_key) or b"")[:4]
            keys: list[bytes] = []
            if prefix and cursor.set_range(prefix + packed):
                for key in cursor.iternext(values=False):
                    if key[:PREFIX] != prefix + packed or len(keys) == TRANSACTION_ENTRIES:
                        break
                    keys.append(key[4:])
            return keys


def _ended_by_partition(txn: Transaction, prefix: bytes) -> dict[int, int]:
    ended: dict[int, int] = {}
    moment = now()
    for key, tail in behind(txn, END_RECORD + prefix):
        if TIME.unpack(key)[0] > moment:
            break
        number = PARTITION.unpack_from(tail)[0]
        ended[number] = ended.get(number, 0) + 1
    return ended
