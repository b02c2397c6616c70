"""The records of one map or list in one environment: what a transaction of each kind does.

A *table* is the range of keys behind one incarnation number. The catalogue record says which number that is, and every
transaction reads it first; so `clear()` and `destroy()` are one small commit, after which no writer anywhere can
add to the old incarnation, and its entries are swept in short transactions by the process that dropped it, or by the
next process that finds the work unfinished.

Values are bytes here; that some of them name files is told by two functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

from shmjet.grid import log
from shmjet.grid.blobs import BlobStore
from shmjet.grid.changes import MOST_SPARED, Changes, Entry, Rules, behind, flags_of, next_incarnation
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import GridFullError
from shmjet.grid.layout import (
    END_RECORD,
    GARBAGE_RECORD,
    HAS_BLOBS,
    HAS_ENDS,
    HAS_TIMES,
    INCARNATION,
    INDEX,
    MAP_RECORD,
    MARK,
    MARKER_RECORD,
    PARTITION,
    PARTITION_RECORD,
    TIME,
    USE_RECORD,
    Record,
    Sizes,
)
from shmjet.grid.limits import is_due, make_room, shorten
from shmjet.grid.scan import FIRST_STEP, PAGE_BYTES, PAGE_ENTRIES, Page, pages
from shmjet.grid.sweeping import EVENTS, NamesIn, garbage, sweep
from shmjet.grid.times import Uses, is_over, now

Result = TypeVar("Result")

TRANSACTION_ENTRIES = 2048
"""Entries written in one transaction: about 2 ms."""
TRANSACTION_BYTES = 1 << 20


class Once(NamedTuple):
    """What makes a write happen once, however often it is repeated.

    Args:
        marker: names the writer of one map or list, in 1 to 64 bytes.
        mark: of the write; a writer's marks rise. A write whose mark is not above the last one changes nothing.
    """

    marker: bytes
    mark: int


class Block(NamedTuple):
    """A stored block of a list: prefix of its incarnation, index of its first item, bytes."""

    prefix: bytes
    first: int
    data: bytes


class Neighbours(Protocol):
    """What a table has to know of the rest of its store."""

    uses: Uses | None

    def parts_of(self, record_key: bytes) -> Sequence[Table]:
        """Return the tables of one map, one for each environment."""

    def names_in(self, kind: bytes) -> NamesIn:
        """Return what gives the names of the blobs that a stored value needs, by kind of garbage."""

    def end_entries(self, env: Environment) -> int:
        """Remove the entries of all maps whose time is over, in one environment, and return how many."""


class Table:
    """One map or list in one environment.

    Args:
        env: the environment.
        record_key: from `layout.record_key`.
        label: how errors call it, such as `map 'counts'`.
        blobs: where its large values are.
        rules: of a map.
        store: where the other tables are.
    """

    def __init__(
        self, env: Environment, record_key: bytes, label: str, blobs: BlobStore, rules: Rules, store: Neighbours
    ) -> None:
        self.env = env
        self.record_key = record_key
        self.label = label
        self.rules = rules
        self._blobs = blobs
        self._store = store
        self._names_in = store.names_in(self._kind())
        self._is_plain = rules.config.is_plain
        self._uses = store.uses if rules.config.eviction == "lru" else None
        self.prefix = b""
        """The incarnation of the last write, empty before the first: good keys spare `write` building them anew."""

    def prepare(self) -> bytes:
        """Return `prefix` before the first write; makes the record if there is none."""
        self.prefix = self._change(lambda changes: changes.prefix)
        return self.prefix

    def find(self, key: bytes) -> bytes | None:
        """Return the value stored under `key` (without prefix), or None."""
        with self.env.begin() as txn:
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
        with self.env.begin() as txn:
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
            found = txn.get(self.record_key)
            if found is None:
                return 0
            record = Record.unpack(found)
            return record.size - (_ended(txn, found[:4], now()) if record.flags & HAS_ENDS else 0)

    def sizes(self) -> dict[int, int]:
        """Return the number of entries of each partition that has or had one; entries whose time is over count."""
        with self.env.begin() as txn:
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

    def write(self, entries: list[Entry], *, with_blobs: bool) -> None:
        """Store entries, replacing what is there; atomic in portions of about 2 ms.

        Args:
            entries: keys behind one incarnation, best that of `prefix`, and values, sorted by key; of equal keys the
                last one counts.
            with_blobs: whether one of the values needs a blob.
        """
        size = sum([len(value) for _, value in entries]) if len(entries) > 1 else 0
        step = min(TRANSACTION_ENTRIES, max(1, len(entries) * TRANSACTION_BYTES // max(1, size)))
        for at in range(0, len(entries), step):
            portion = entries[at : at + step] if len(entries) > step else entries

            def work(changes: Changes, portion: list[Entry] = portion) -> tuple[bytes, list[bytes]]:
                replaced: list[bytes] = []
                if with_blobs or not changes.is_plain:
                    for key, value in portion:
                        old = changes.put(key[4:], value, with_blobs=with_blobs)
                        if old is not None:
                            replaced.append(old)
                else:
                    if portion[0][0][:4] != changes.prefix:
                        portion = [(changes.prefix + key[4:], value) for key, value in portion]
                    changes.put_sorted(portion)
                return changes.prefix, replaced

            self.prefix, replaced = self._change(work)
            self._forget(replaced)

    def replace(
        self, key: bytes, value: bytes, *, with_blobs: bool, ttl: int = 0, only_present: bool = False
    ) -> bytes | None:
        """Store one entry and return the value it replaces.

        The caller has to delete the blobs of that one, unless the map has a journal.

        Args:
            key: without prefix.
            value: to store.
            with_blobs: whether the value needs a blob.
            ttl: nanoseconds until the entry ends; 0: never.
            only_present: store nothing where there is no entry.
        """

        def work(changes: Changes) -> bytes | None:
            if only_present and changes.get(key) is None:
                return None
            return changes.put(key, value, with_blobs=with_blobs, ttl=ttl)

        return self._change(work, makes=not only_present)

    def add(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """Store one entry unless the key is there: then change nothing and return its value."""

        def work(changes: Changes) -> bytes | None:
            old = changes.get(key)
            if old is None:
                changes.put(key, value, with_blobs=with_blobs)
            return old

        return self._change(work)

    def swap(self, key: bytes, expected: bytes | None, value: bytes | None, *, with_blobs: bool) -> bool:
        """Store or remove one entry if what is stored is what the caller has seen, and say whether it was.

        Args:
            key: without prefix.
            expected: the value from `find`, None for none.
            value: the new one, None to remove it.
            with_blobs: whether the new value needs a blob.
        """

        def work(changes: Changes) -> bool:
            if changes.get(key) != expected:
                return False
            if value is not None:
                changes.put(key, value, with_blobs=with_blobs)
            elif expected is not None:
                changes.remove(key)
            return True

        return self._change(work, makes=value is not None, default=expected is None)

    def pop(self, key: bytes) -> bytes | None:
        """Remove one entry and return its value; for its blobs see `replace`."""
        return self._change(lambda changes: changes.remove(key), makes=False)

    def write_once(self, entries: list[Entry], gone: list[bytes], once: Once, *, with_blobs: bool) -> bool:
        """Store some entries and remove others in one transaction, unless that is done.

        Args:
            entries: keys behind one incarnation, best that of `prefix`, and values; some thousand at most.
            gone: keys without prefix.
            once: says whether it is done.
            with_blobs: whether one of the values needs a blob.

        Returns:
            False when it was done before; then nothing is stored, and blobs of the values are not used.
        """

        def work(changes: Changes) -> list[bytes] | None:
            if not _is_new(changes.txn, once):
                return None
            replaced = [changes.put(key[4:], value, with_blobs=with_blobs) for key, value in entries]
            replaced += [changes.remove(key) for key in gone]
            return [old for old in replaced if old is not None]

        replaced = self._change(work)
        self._forget(replaced or [])
        return replaced is not None

    def append(self, blocks: list[tuple[int, bytes]], *, with_blobs: bool, once: Once | None = None) -> bool:
        """Store the blocks of a list behind what it has, as one transaction; each is (number of items, bytes).

        Returns:
            False when `once` says that it was done before; then nothing is stored.
        """

        def work(txn: Transaction) -> bool:
            if once is not None and not _is_new(txn, once):
                return False
            found = txn.get(self.record_key)
            record = Record(next_incarnation(txn)) if found is None else Record.unpack(found)
            prefix = INCARNATION.pack(record.incarnation)
            for count, block in blocks:
                txn.put(prefix + INDEX.pack(record.size), block)
                record.size += count
            record.flags |= HAS_BLOBS if with_blobs else 0
            txn.put(self.record_key, record.pack())
            return True

        return self.env.write(work, self.label)

    def drop(self, *, keep_name: bool) -> None:
        """Remove all entries at once, and the record too unless `keep_name`; then sweep what is left of them.

        Works on a full file system too, see `BlobStore.give_up_reserve`. Of a map with a journal entries are removed
        one by one, so that each removal is an event; in a full store the journal ends instead, as when it is destroyed.
        """
        try:
            self._drop(keep_name)
        except GridFullError:
            has_journal = self.rules.config.journal_capacity > 0
            if not self._blobs.give_up_reserve() and not has_journal:
                raise
            self._drop(keep_name and not has_journal)
            for prefix, kind in garbage(self.env):
                if kind in (b"", self._kind()):
                    sweep(self.env, prefix, self._blobs, self._names_in)

    def _drop(self, keep_name: bool) -> None:
        def work(txn: Transaction) -> list[tuple[bytes, bytes]]:
            found = txn.get(self.record_key)
            if found is None:
                return []
            record = Record.unpack(found)
            dropped = [(found[:4], self._kind() if record.flags & HAS_BLOBS else b"")]
            if record.log:
                dropped.append((INCARNATION.pack(record.log), EVENTS if record.flags & HAS_BLOBS else b""))
            for prefix, kind in dropped:
                txn.put(GARBAGE_RECORD + prefix, kind)
            if keep_name:
                flags = HAS_TIMES if self.rules.config.max_bytes is not None else 0
                txn.put(self.record_key, Record(next_incarnation(txn), flags=flags).pack())
            else:
                txn.delete(self.record_key)
            return dropped

        if keep_name and self.rules.config.journal_capacity:
            self._remove_all()
            return
        for prefix, kind in self.env.write(work, self.label):
            sweep(self.env, prefix, self._blobs, self._store.names_in(kind))

    def _remove_all(self) -> None:
        """Remove the entries that are there now, in portions."""
        low = b""
        while keys := self._keys_from(low):
            low = keys[-1] + b"\0"

            def work(changes: Changes, keys: list[bytes] = keys) -> None:
                for key in keys:
                    changes.remove(key)

            self._change(work, makes=False)

    def _keys_from(self, low: bytes) -> list[bytes]:
        with self.env.begin() as txn, txn.cursor() as cursor:
            prefix = (txn.get(self.record_key) or b"")[:4]
            if not prefix or not cursor.set_range(prefix + low):
                return []
            keys = islice(cursor.iternext(values=False), TRANSACTION_ENTRIES)
            return [key[4:] for key in keys if key[:4] == prefix]

    def _kind(self) -> bytes:
        return b"m" if self.record_key.startswith(MAP_RECORD) else b"l"

    def _change(self, work: Callable[[Changes], Result], *, makes: bool = True, default: Any = None) -> Result:
        """Do something to the map in one transaction, and make room afterwards where it has a limit.

        Args:
            work: what to do.
            makes: whether the map comes into being.
            default: the result where it does not, and is not there.
        """
        config = self.rules.config
        others = 0
        if config.max_bytes is not None and config.eviction == "none":
            others = sum(part.weight() for part in self._store.parts_of(self.record_key) if part.env is not self.env)

        def attempt(txn: Transaction) -> tuple[Result, Changes | None]:
            if not makes and txn.get(self.record_key) is None:
                return default, None
            changes = Changes(txn, self.env, self.record_key, self.rules)
            result = work(changes)
            changes.close()
            if not self._is_plain:
                self._check_weight(changes, others)
            return result, changes

        result, changes = self._write(attempt)
        if changes is None:
            return result
        if not self._is_plain:
            self._keep_limits(changes)
        if changes.gone:
            self._forget(changes.gone)
        return result

    def _keep_limits(self, changes: Changes) -> None:
        """Make room where the map has a limit, and shorten its journal."""
        config, count = self.rules.config, changes.appended
        if self._uses is not None and config.max_bytes is not None and changes.weighed > 0:
            make_room(self._store.parts_of(self.record_key), config.max_bytes)
        if count:
            parts = self._store.parts_of(self.record_key)
            if is_due(changes.written, changes.written + count, config.journal_capacity, len(parts)):
                shorten(parts, config.journal_capacity)

    def _check_weight(self, changes: Changes, others: int) -> None:
        most = self.rules.config.max_bytes
        if most is None or changes.weighed <= 0:
            return
        is_full = self._uses is None and others + changes.record.weight > most
        if is_full or changes.heaviest > most:
            raise GridFullError(
                f"no room for {self.label}: it would take {others + changes.record.weight} bytes, and its limit is "
                f"{most} (MapConfig.max_bytes, eviction={self.rules.config.eviction!r}); remove what is not needed, "
                "give it more, or let entries go that were not used for long (eviction='lru')"
            )

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

    def evict(self) -> bool:
        """Remove the entry that was used longest ago, in this environment, and say whether there was one."""
        uses = self._uses
        return uses is not None and self._change(lambda changes: changes.evict(1, uses.last) > 0, makes=False)

    def log_length(self) -> int:
        """Return the number of events here, of a map with a journal."""
        return log.length(self.env, self.record_key)

    def cut_log(self, count: int) -> int:
        """Remove some of the oldest events, at most so many, and return how many."""
        removed = log.cut(self.env, self.record_key, count, self.label)
        names_in = self._store.names_in(EVENTS)
        for event in removed:
            self._blobs.delete(names_in(event))
        return len(removed)

    def last_write(self) -> int:
        """Return the number of the last write to the environment."""
        number: int = self.env.announced[0]
        return number

    def read_log(self, number: int | None) -> log.Piece:
        """Return events from a number on, or the end of the log for None."""
        if number is None:
            return log.end_of_log(self.env, self.record_key)
        return log.read_piece(self.env, self.record_key, number)

    def _write(self, attempt: Callable[[Transaction], Result]) -> Result:
        try:
            return self.env.write(attempt, self.label)
        except GridFullError:
            if not self._store.end_entries(self.env):
                raise
            return self.env.write(attempt, self.label)

    def end_entries(self) -> int:
        """Remove the entries whose time is over, and return how many."""

        def work(txn: Transaction) -> tuple[int, list[bytes]]:
            found = txn.get(self.record_key)
            if found is None or not flags_of(found) & HAS_ENDS:
                return 0, []
            changes = Changes(txn, self.env, self.record_key, self.rules)
            ended = changes.end_some(TRANSACTION_ENTRIES)
            changes.close()
            return ended, changes.gone

        total = 0
        while True:
            ended, gone = self.env.write(work, self.label)
            self._forget(gone)
            total += ended
            if not ended:
                return total

    def _forget(self, values: list[bytes]) -> None:
        if not self.rules.config.journal_capacity:  # else their files are needed until their events go
            for value in values:
                self._blobs.delete(self._names_in(value))


def _is_new(txn: Transaction, once: Once) -> bool:
    """Say whether a write has not been done, and note that it is done with this transaction."""
    key = MARKER_RECORD + once.marker
    found = txn.get(key)
    if found is not None and MARK.unpack(found)[0] >= once.mark:
        return False
    txn.put(key, MARK.pack(once.mark))
    return True


def _ended(txn: Transaction, prefix: bytes, moment: int) -> int:
    """Return how many entries have ended and are still there."""
    count = 0
    for key, _ in behind(txn, END_RECORD + prefix):
        if TIME.unpack(key)[0] > moment:
            break
        count += 1
    return count
