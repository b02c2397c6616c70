"""What is read of one map or list in one environment: entries, blocks, sizes, weights and events.

Each method is one short read transaction, and looks the incarnation up first. Values are bytes here. Must not know how
anything is written, nor that there are other environments: nothing in here begins a write.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shmjet.grid import log
from shmjet.grid.changes import MOST_SPARED, Entry, flags_of
from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.layout import (
    END_RECORD,
    HAS_ENDS,
    HAS_TIMES,
    INDEX,
    PARTITION,
    PARTITION_RECORD,
    TIME,
    USE_RECORD,
    Record,
    Sizes,
)
from shmjet.grid.ownership import admit
from shmjet.grid.scan import FIRST_STEP, PAGE_BYTES, PAGE_ENTRIES, Page, pages
from shmjet.grid.times import Uses, is_over, now


class Block(NamedTuple):
    """A stored block of a list: prefix of its incarnation, index of its first item, bytes."""

    prefix: bytes
    first: int
    data: bytes


class TableReads:
    """The reads of one map or list in one environment.

    Args:
        env: the environment.
        record_key: from `layout.record_key`.
        uses: where each read notes what it has used; None where nothing is evicted.
    """

    home = b""
    """The partition of its name, packed: a list lies there, and what is done to a whole map is noted there."""
    lies_at_home = False
    """Whether all of it lies in that partition, also the entries of a map."""
    is_divided = False
    """Whether only those partitions are here that are open, see `ownership`."""

    def __init__(self, env: Environment, record_key: bytes, uses: Uses | None) -> None:
        self.env = env
        self.record_key = record_key
        self._uses = uses

    def admit(self, txn: Transaction, partitions: Iterable[bytes]) -> None:
        """Raise PartitionMovedError where a partition that a transaction is about is not open here."""
        if self.is_divided:
            admit(txn, (self.home,) if self.lies_at_home else partitions)

    def place_of(self, partition: bytes) -> bytes:
        """Return the partition with which an entry of a partition moves."""
        return self.home if self.lies_at_home else partition

    def find(self, key: bytes) -> bytes | None:
        """Return the value stored under `key` (without prefix), or None."""
        with self.env.begin() as txn:
            self.admit(txn, (key[: PARTITION.size],))
            record = txn.get(self.record_key)
            found = None if record is None else txn.get(record[:4] + key)
        if found is None or record is None:
            return None
        flags = flags_of(record)
        if flags & HAS_ENDS and is_over(found, now()):
            return None
        if self._uses is not None:
            self._uses.note(record[:4] + key, now())
        return found

    def find_all(self, keys: Iterable[bytes]) -> list[Entry]:
        """Return those of the keys that are there, in the order given, with their values; keys are without prefix."""
        keys = list(keys)
        with self.env.begin() as txn:
            self.admit(txn, {key[: PARTITION.size] for key in keys})
            record = txn.get(self.record_key)
            if record is None:
                return []
            prefix = record[:4]
            with txn.cursor() as cursor:
                found = [(key[4:], value) for key, value in cursor.getmulti([prefix + key for key in keys])]
        moment = now() if flags_of(record) & HAS_TIMES else 0
        if flags_of(record) & HAS_ENDS:
            found = [entry for entry in found if not is_over(entry[1], moment)]
        if self._uses is not None:
            for key, _ in found:
                self._uses.note(prefix + key, moment)
        return found

    def find_some(self, keys: Sequence[bytes]) -> tuple[int, list[Entry]]:
        """Look for keys in order, as `find_all` does, until what was found is about a page.

        Returns:
            how many keys were looked for, and what was found.
        """
        found: list[Entry] = []
        size = looked = 0
        while looked < len(keys) and size < PAGE_BYTES:
            entries = self.find_all(keys[looked : looked + FIRST_STEP])
            looked = min(len(keys), looked + FIRST_STEP)
            size += sum(len(value) for _, value in entries)
            found += entries
        return looked, found

    @property
    def announced(self) -> memoryview:
        """The id of the last write, as `Page.transaction`; one element, which changes."""
        return self.env.announced

    def pages(self, low: bytes = b"", high: bytes | None = None, *, limit: int = PAGE_ENTRIES) -> Iterator[Page]:
        """Yield the stored values from key `low` to below `high` (without prefix), see `scan.pages`."""
        return pages(self.env, self.record_key, low, high, limit=limit)

    def block_of(self, index: int, known: tuple[bytes, int, int] | None = None) -> Block | None:
        """Return the block of a list that holds the item `index`, or the one before; None when there is none.

        Args:
            known: prefix, first index and number of items of a block that the caller has; when that is the one, it
                comes without its data.
        """
        with self.env.begin() as txn, txn.cursor() as cursor:
            self.admit(txn, (self.home,))
            prefix = (txn.get(self.record_key) or b"")[:4]
            if known is not None and known[0] == prefix and 0 <= index - known[1] < known[2]:
                return Block(prefix, known[1], b"")
            place = prefix + INDEX.pack(index)
            found = cursor.set_range(place)
            if not found or cursor.key() != place:
                found = cursor.prev() if found else cursor.last()
            key, data = cursor.item()
        if not prefix or key[:4] != prefix:
            return None
        return Block(prefix, INDEX.unpack(key[4:])[0], data)

    def size(self) -> int:
        """Return the number of entries (of a list: items)."""
        with self.env.begin() as txn:
            self.admit(txn, (self.home,))
            found = txn.get(self.record_key)
            if found is None:
                return 0
            record = Record.unpack(found)
            return record.size - (_ended(txn, found[:4], now()) if record.flags & HAS_ENDS else 0)

    def sizes(self) -> dict[int, int]:
        """Return the number of entries of each partition that has or had one; entries whose time is over count."""
        with self.env.begin() as txn:
            self.admit(txn, (self.home,))
            prefix = (txn.get(self.record_key) or b"")[:4]
            if not prefix:
                return {}
            return {
                PARTITION.unpack(key)[0]: Sizes.unpack(data).entries
                for key, data in behind(txn, PARTITION_RECORD + prefix)
            }

    def weight(self) -> int:
        """Return the bytes of the entries of a map with a limit."""
        with self.env.begin() as txn:
            found = txn.get(self.record_key)
            return 0 if found is None else Record.unpack(found).weight

    def longest_unused(self) -> float:
        """Return when the entry that is the first to be evicted was used last; infinity when there is none."""
        oldest = math.inf
        with self.env.begin() as txn:
            prefix = (txn.get(self.record_key) or b"")[:4]
            if self._uses is None or not prefix:
                return oldest
            for place, tail in islice(behind(txn, USE_RECORD + prefix), MOST_SPARED):
                at: int = TIME.unpack(place)[0]
                if at >= oldest:
                    break
                oldest = min(oldest, max(at, self._uses.last(prefix + tail)))
        return oldest

    def log_length(self) -> int:
        """Return the number of events here, of a map with a journal."""
        return log.length(self.env, self.record_key)

    def last_write(self) -> int:
        """Return the number of the last write to the environment."""
        number: int = self.env.announced[0]
        return number

    def read_log(self, number: int | None) -> log.Piece:
        """Return events from a number on, or the end of the log for None."""
        if number is None:
            return log.end_of_log(self.env, self.record_key)
        return log.read_piece(self.env, self.record_key, number)


def _ended(txn: Transaction, prefix: bytes, moment: int) -> int:
    """Return how many entries have ended and are still there."""
    count = 0
    for key, _ in behind(txn, END_RECORD + prefix):
        if TIME.unpack(key)[0] > moment:
            break
        count += 1
    return count
