"""The records of one map or list in one environment: what a transaction of each kind does.

A *table* is the range of keys behind one incarnation number. The catalogue record says which number that is, and every
transaction reads it first; so `clear()` and `destroy()` are one small commit, after which no writer anywhere can
add to the old incarnation, and its entries are swept in short transactions by the process that dropped it, or by the
next process that finds the work unfinished.

Values are bytes here; that some of them name files is told by two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from shmjet.grid.blobs import BlobStore
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import GridFullError
from shmjet.grid.layout import (
    GARBAGE_RECORD,
    INCARNATION,
    INDEX,
    LAST_INCARNATION,
    MAP_RECORD,
    MARK,
    MARKER_RECORD,
    Record,
)
from shmjet.grid.scan import FIRST_STEP, PAGE_BYTES, PAGE_ENTRIES, Page, pages

Entry = tuple[bytes, bytes]
NamesIn = Callable[[bytes], list[bytes]]

TRANSACTION_ENTRIES = 2048
"""Entries written in one transaction: about 2 ms."""
TRANSACTION_BYTES = 1 << 20
SWEEP_ENTRIES = 4096


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


class Table:
    """One map or list in one environment.

    Args:
        env: the environment.
        record_key: from `layout.record_key`.
        label: how errors call it, such as `map 'counts'`.
        blobs: where its large values are.
        names_in: gives the names of the blobs that a stored value needs.
    """

    def __init__(self, env: Environment, record_key: bytes, label: str, blobs: BlobStore, names_in: NamesIn) -> None:
        self.env = env
        self.record_key = record_key
        self.label = label
        self._blobs = blobs
        self._names_in = names_in
        self.prefix = b""
        """The incarnation of the last write, empty before the first: good keys spare `write` building them anew."""

    def prepare(self) -> bytes:
        """Return `prefix` before the first write; makes the record if there is none."""

        def work(txn: Transaction) -> bytes:
            return INCARNATION.pack(self._record(txn).incarnation)

        self.prefix = self.env.write(work, self.label)
        return self.prefix

    def find(self, key: bytes) -> bytes | None:
        """Return the value stored under `key` (without prefix), or None."""
        with self.env.begin() as txn:
            record = txn.get(self.record_key)
            return None if record is None else txn.get(record[:4] + key)

    def find_all(self, keys: Iterable[bytes]) -> list[Entry]:
        """Return those of the keys that are there, in the order given, with their values; keys are without prefix."""
        with self.env.begin() as txn:
            record = txn.get(self.record_key)
            if record is None:
                return []
            prefix = record[:4]
            with txn.cursor() as cursor:
                return [(key[4:], value) for key, value in cursor.getmulti([prefix + key for key in keys])]

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
            record = txn.get(self.record_key)
            return 0 if record is None else Record.unpack(record).size

    def write(self, entries: list[Entry], *, with_blobs: bool) -> None:
        """Store entries, replacing what is there; atomic in portions of about 2 ms.

        Args:
            entries: keys behind one incarnation, best that of `prefix`, and values; of equal keys the last one counts.
            with_blobs: whether one of the values needs a blob.
        """
        size = sum([len(value) for _, value in entries]) if len(entries) > 1 else 0
        step = min(TRANSACTION_ENTRIES, max(1, len(entries) * TRANSACTION_BYTES // max(1, size)))
        for at in range(0, len(entries), step):
            portion = entries[at : at + step] if len(entries) > step else entries

            def work(txn: Transaction, portion: list[Entry] = portion) -> tuple[bytes, list[bytes]]:
                record = self._record(txn)
                prefix = INCARNATION.pack(record.incarnation)
                if portion[0][0][:4] != prefix:
                    portion = [(prefix + key[4:], value) for key, value in portion]
                before = self.env.entries(txn)
                replaced: list[bytes] = []
                if record.has_blobs or with_blobs:
                    replaced = [old for key, value in portion if (old := txn.replace(key, value)) is not None]
                elif len(portion) == 1:
                    txn.put(*portion[0])
                else:
                    with txn.cursor() as cursor:
                        cursor.putmulti(portion)
                self._update(txn, record, self.env.entries(txn) - before, with_blobs)
                return prefix, replaced

            self.prefix, replaced = self.env.write(work, self.label)
            self._forget(replaced)

    def replace(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """Store one entry and return the value it replaces, whose blobs the caller has to delete."""

        def work(txn: Transaction) -> bytes | None:
            record = self._record(txn)
            old = txn.replace(INCARNATION.pack(record.incarnation) + key, value)
            self._update(txn, record, int(old is None), with_blobs)
            return old

        return self.env.write(work, self.label)

    def add(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """Store one entry unless the key is there: then change nothing and return its value."""

        def work(txn: Transaction) -> bytes | None:
            record = self._record(txn)
            full = INCARNATION.pack(record.incarnation) + key
            old = txn.get(full)
            if old is None:
                txn.put(full, value)
                self._update(txn, record, 1, with_blobs)
            return old

        return self.env.write(work, self.label)

    def pop(self, key: bytes) -> bytes | None:
        """Remove one entry and return its value, whose blobs the caller has to delete."""

        def work(txn: Transaction) -> bytes | None:
            found = txn.get(self.record_key)
            if found is None:
                return None
            old = txn.pop(found[:4] + key)
            if old is not None:
                self._update(txn, Record.unpack(found), -1, False)
            return old

        return self.env.write(work, self.label)

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

        def work(txn: Transaction) -> list[bytes] | None:
            if not _is_new(txn, once):
                return None
            record = self._record(txn)
            prefix = INCARNATION.pack(record.incarnation)
            before = self.env.entries(txn)
            replaced = [txn.replace(prefix + key[4:], value) for key, value in entries]
            replaced += [txn.pop(prefix + key) for key in gone]
            self._update(txn, record, self.env.entries(txn) - before, with_blobs)
            return [old for old in replaced if old is not None]

        replaced = self.env.write(work, self.label)
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
            record = self._record(txn)
            prefix = INCARNATION.pack(record.incarnation)
            at = record.size
            for count, block in blocks:
                txn.put(prefix + INDEX.pack(at), block)
                at += count
            self._update(txn, record, at - record.size, with_blobs)
            return True

        return self.env.write(work, self.label)

    def drop(self, *, keep_name: bool) -> None:
        """Remove all entries at once, and the record too unless `keep_name`; then sweep what is left of them.

        Works on a full file system too, see `BlobStore.give_up_reserve`.
        """
        try:
            self._drop(keep_name)
        except GridFullError:
            if not self._blobs.give_up_reserve():
                raise
            self._drop(keep_name)
            for prefix, kind in garbage(self.env):
                if kind in (b"", self._kind()):
                    sweep(self.env, prefix, self._blobs, self._names_in)

    def _drop(self, keep_name: bool) -> None:
        def work(txn: Transaction) -> bytes | None:
            found = txn.get(self.record_key)
            if found is None:
                return None
            record = Record.unpack(found)
            txn.put(GARBAGE_RECORD + found[:4], self._kind() if record.has_blobs else b"")
            if keep_name:
                txn.put(self.record_key, Record(_next_incarnation(txn)).pack())
            else:
                txn.delete(self.record_key)
            return found[:4]

        prefix = self.env.write(work, self.label)
        if prefix is not None:
            sweep(self.env, prefix, self._blobs, self._names_in)

    def _kind(self) -> bytes:
        return b"m" if self.record_key.startswith(MAP_RECORD) else b"l"

    def _record(self, txn: Transaction) -> Record:
        found = txn.get(self.record_key)
        if found is not None:
            return Record.unpack(found)
        record = Record(_next_incarnation(txn))
        txn.put(self.record_key, record.pack())
        return record

    def _update(self, txn: Transaction, record: Record, more: int, with_blobs: bool) -> None:
        if more or (with_blobs and not record.has_blobs):
            changed = Record(record.incarnation, record.size + more, record.has_blobs or with_blobs)
            txn.put(self.record_key, changed.pack())

    def _forget(self, values: list[bytes]) -> None:
        for value in values:
            self._blobs.delete(self._names_in(value))


def sweep(env: Environment, prefix: bytes, blobs: BlobStore, names_in: NamesIn) -> None:
    """Delete the entries of a dropped incarnation, a few milliseconds at a time.

    Several processes may do so at once, and each may die half way.
    """
    record_key = GARBAGE_RECORD + prefix

    def work(txn: Transaction) -> tuple[bool, list[bytes]]:
        kind = txn.get(record_key)
        if kind is None:
            return True, []
        names: list[bytes] = []
        with txn.cursor() as cursor:
            cursor.set_range(prefix)
            for _ in range(SWEEP_ENTRIES):
                if cursor.key()[:4] != prefix:
                    txn.delete(record_key)
                    return True, names
                if kind:
                    names += names_in(cursor.value())
                cursor.delete()
        return False, names

    done = False
    while not done:
        done, names = env.write(work, "a sweep")
        blobs.delete(names)


def garbage(env: Environment) -> list[tuple[bytes, bytes]]:
    """Return the incarnations that still have to be swept, each with the kind of blobs it has (`m`, `l` or none)."""
    with env.begin() as txn, txn.cursor() as cursor:
        found: list[tuple[bytes, bytes]] = []
        if cursor.set_range(GARBAGE_RECORD):
            for key, value in cursor.iternext():
                if not key.startswith(GARBAGE_RECORD):
                    break
                found.append((key[len(GARBAGE_RECORD) :], value))
        return found


def _is_new(txn: Transaction, once: Once) -> bool:
    """Say whether a write has not been done, and note that it is done with this transaction."""
    key = MARKER_RECORD + once.marker
    found = txn.get(key)
    if found is not None and MARK.unpack(found)[0] >= once.mark:
        return False
    txn.put(key, MARK.pack(once.mark))
    return True


def _next_incarnation(txn: Transaction) -> int:
    last = txn.get(LAST_INCARNATION)
    number = 1 if last is None else INCARNATION.unpack(last)[0] + 1
    txn.put(LAST_INCARNATION, INCARNATION.pack(number))
    return number
