"""The operations on one map or list in one environment: what a transaction of each kind does.

A *table* is the range of keys behind one incarnation number. The catalogue record says which number that is, and every
transaction reads it first; so `clear()` and `destroy()` are one small commit, after which no writer anywhere can
add to the old incarnation, and its entries are swept in short transactions by the process that dropped it, or by the
next process that finds the work unfinished.

`table_reads` has what only reads, `bounded_table` what keeps the limits of a map. Values are bytes here; that some of
them name files is told by two functions. Must not know objects, nor what is done after a change.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from shmjet._native import move_entries
from shmjet.grid.bounded_table import TRANSACTION_ENTRIES, BoundedTable
from shmjet.grid.change_log import Dropped, NewBlocks, Recorder
from shmjet.grid.changes import Changes, Entry, next_incarnation
from shmjet.grid.disk_errors import DiskErrors
from shmjet.grid.environment import Transaction
from shmjet.grid.errors import GridFullError, NotOnDiskError
from shmjet.grid.kept_results import keep, kept
from shmjet.grid.layout import (
    GARBAGE_RECORD,
    HAS_BLOBS,
    HAS_TIMES,
    INCARNATION,
    INDEX,
    MARK,
    MARKER_RECORD,
    PARTITION,
    PREFIX,
    Record,
)
from shmjet.grid.portions import Run, Survey, survey
from shmjet.grid.sweeping import EVENTS, garbage, sweep

if TYPE_CHECKING:
    from typing import Self

TRANSACTION_BYTES = 1 << 20


class Once(NamedTuple):
    """What makes a write happen once, however often it is repeated.

    Args:
        marker: names the writer of one map or list, in 1 to 64 bytes.
        mark: of the write; a writer's marks rise. A write whose mark is not above the last one changes nothing.
    """

    marker: bytes
    mark: int


class Table(BoundedTable):
    """One map or list in one environment.

    Args:
        env: the environment.
        record_key: from `layout.record_key`.
        label: how errors call it, such as `map 'counts'`.
        blobs: where its large values are.
        rules: of a map.
        store: where the other tables are.
    """

    prefix = b""
    """The incarnation of the last write, empty before the first: good keys spare `write` building them anew."""

    def twin(self) -> Self:
        """Return another table of the same map or list, as this table was when it was made."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def write(self, entries: list[Entry], *, with_blobs: bool, found: Survey | None = None) -> None:
        """Store entries, replacing what is there; atomic in portions of about 2 ms, or as a whole in a divided store.

        Args:
            entries: keys behind one incarnation, best that of `prefix`, and values, sorted by key; of equal keys the
                last one counts.
            with_blobs: whether one of the values needs a blob.
            found: of the entries, where that is known.
        """
        found = found or survey(entries)
        step = min(TRANSACTION_ENTRIES, max(1, len(entries) * TRANSACTION_BYTES // max(1, found.size)))
        if self.operation is not None or self.is_divided:
            step = len(entries)  # a portion already; all of it is done, or nothing where a partition has moved
        replaced: list[bytes] = []
        errors = DiskErrors()
        for at in range(0, len(entries), step):
            portion = entries
            if len(entries) > step:
                portion = entries[at : at + step]
                found = survey(portion)

            def work(changes: Changes, portion: list[Entry] = portion, found: Survey = found) -> bytes:
                replaced.clear()
                if self.is_divided:
                    self.admit(changes.txn, found.partitions)
                portion, runs = self._not_done(changes, portion, found.runs)
                if with_blobs or not changes.is_plain:
                    for key, value in portion:
                        old = changes.put(key[4:], value, with_blobs=with_blobs)
                        if old is not None:
                            replaced.append(old)
                elif portion:
                    if found.prefix != changes.prefix:
                        portion = move_entries(portion, INCARNATION.size, changes.prefix)
                    changes.put_plain(portion, runs)
                return changes.prefix

            self.prefix = errors.result_of(partial(self._change, work))
            self._forget(replaced)
        errors.report()

    def _not_done(self, changes: Changes, entries: list[Entry], runs: list[Run]) -> tuple[list[Entry], list[Run]]:
        """Leave out the entries of those partitions for which `operation` has been done; note that the rest is."""
        operation, txn = self.operation, changes.txn
        if operation is None:
            return entries, runs
        places = {partition: self.place_of(PARTITION.pack(partition)) for partition, _, _ in runs}
        partitions = set(places.values())
        new = {partition for partition in partitions if kept(txn, operation, partition) is None}
        for partition in new:
            keep(txn, operation, partition, None, changes.recorder)
        if new == partitions:
            return entries, runs
        left = [entry for partition, begin, end in runs if places[partition] in new for entry in entries[begin:end]]
        return left, survey(left).runs

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

        return self._change(work, makes=not only_present, partition=key[: PARTITION.size])

    def add(self, key: bytes, value: bytes, *, with_blobs: bool) -> bytes | None:
        """Store one entry unless the key is there: then change nothing and return its value."""

        def work(changes: Changes) -> bytes | None:
            old = changes.get(key)
            if old is None:
                changes.put(key, value, with_blobs=with_blobs)
            return old

        return self._change(work, partition=key[: PARTITION.size])

    def swap(self, key: bytes, expected: bytes | None, value: bytes | None, *, with_blobs: bool, end: int = 0) -> bool:
        """Store or remove one entry if what is stored is what the caller has seen, and say whether it was.

        Args:
            key: without prefix.
            expected: the value from `find`, None for none.
            value: the new one, None to remove it.
            with_blobs: whether the new value needs a blob.
            end: moment at which the new entry ends, by the clock of this store's host; 0: never. An entry that has
                ended is not stored, and its blob is not used.
        """

        def work(changes: Changes) -> bool:
            if changes.get(key) != expected:
                return False
            left = changes.time_left(end) if end else 0
            if left < 0:
                return False
            if value is not None:
                changes.put(key, value, with_blobs=with_blobs, ttl=left)
            elif expected is not None:
                changes.remove(key)
            return True

        partition = key[: PARTITION.size]
        return self._change(work, makes=value is not None, default=expected is None, partition=partition)

    def pop(self, key: bytes) -> bytes | None:
        """Remove one entry and return its value; for its blobs see `replace`."""
        return self._change(lambda changes: changes.remove(key), makes=False, partition=key[: PARTITION.size])

    def write_once(self, entries: list[Entry], gone: list[bytes], once: Once, *, with_blobs: bool) -> list[int]:
        """Store some entries and remove others in one transaction, but for those partitions where that is done.

        Args:
            entries: keys behind one incarnation, best that of `prefix`, and values; some thousand at most.
            gone: keys without prefix.
            once: says whether it is done; each partition has marks of its own.
            with_blobs: whether one of the values needs a blob.

        Returns:
            the partitions where it was done before: nothing is stored there, and blobs of their values are not used.
        """
        replaced: list[bytes] = []

        def work(changes: Changes) -> list[int]:
            replaced.clear()
            partitions = {key[4:PREFIX] for key, _ in entries} | {key[: PARTITION.size] for key in gone}
            self.admit(changes.txn, partitions)
            places = {self.place_of(partition) for partition in partitions}
            done = {place for place in places if self._is_done(changes.txn, place)}
            before = {place for place in places - done if not self._note(changes, place, once)}
            new = {partition for partition in partitions if self.place_of(partition) not in done | before}
            put = [entry for entry in entries if entry[0][4:PREFIX] in new]
            olds = [changes.put(key[4:], value, with_blobs=with_blobs) for key, value in put]
            olds += [changes.remove(key) for key in gone if key[: PARTITION.size] in new]
            replaced.extend(old for old in olds if old is not None)
            return sorted(PARTITION.unpack(p)[0] for p in partitions if self.place_of(p) in before)

        errors = DiskErrors()
        done_before = errors.result_of(partial(self._change, work))
        self._forget(replaced)
        errors.report(done_before)
        return done_before

    def _note(self, changes: Changes, place: bytes, once: Once) -> bool:
        """Note that a write is done to a partition with this transaction; False when it was done before."""
        is_new = note_mark(changes.txn, place, once, changes.recorder)
        if is_new and self.operation is not None:
            keep(changes.txn, self.operation, place, True, changes.recorder)
        return is_new

    def _is_done(self, txn: Transaction, partition: bytes) -> bool:
        """Say whether `operation` has been done to a partition."""
        return self.operation is not None and kept(txn, self.operation, partition) is not None

    def append(self, blocks: list[tuple[int, bytes]], *, with_blobs: bool, once: Once | None = None) -> bool:
        """Store the blocks of a list behind what it has, as one transaction; each is (number of items, bytes).

        Returns:
            False when `once` says that it was done before; then nothing is stored.
        """

        def work(txn: Transaction, recorder: Recorder | None) -> bool:
            if once is not None and not note_mark(txn, self.home, once, recorder):
                return False
            found = txn.get(self.record_key)
            record = Record(next_incarnation(txn)) if found is None else Record.unpack(found)
            prefix = INCARNATION.pack(record.incarnation)
            new: list[tuple[bytes, bytes]] = []
            for count, block in blocks:
                new.append((INDEX.pack(record.size), block))
                txn.put(prefix + new[-1][0], block)
                record.size += count
            record.flags |= HAS_BLOBS if with_blobs else 0
            txn.put(self.record_key, record.pack())
            if recorder is not None:
                recorder.note(self.home, NewBlocks(self.record_key, record.flags, record.size, new))
            return True

        return self.env.write(lambda txn: self._once(txn, self.home, lambda recorder: work(txn, recorder)), self.label)

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
        if keep_name and self.rules.config.journal_capacity:
            self._remove_all()
            return
        try:
            dropped = self.env.write(
                lambda txn: self._once(
                    txn, self.home, lambda recorder: self.drop_in(txn, keep_name=keep_name, recorder=recorder)
                ),
                self.label,
            )
        except NotOnDiskError as error:  # it is done, and may be what makes room there
            self.sweep(error.result)
            raise
        self.sweep(dropped)

    def drop_in(self, txn: Transaction, *, keep_name: bool, recorder: Recorder | None = None) -> list[Entry]:
        """Drop all in a transaction, and return what is to be swept after it."""
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
        if recorder is not None:
            recorder.note(self.home, Dropped(self.record_key, keep_name))
        return dropped

    def sweep(self, dropped: list[Entry]) -> None:
        """Sweep what `drop_in` has returned."""
        for prefix, kind in dropped:
            sweep(self.env, prefix, self._blobs, self._store.names_in(kind))

    def _remove_all(self) -> None:
        """Remove the entries that are there now, in portions."""
        low, errors = b"", DiskErrors()
        while keys := self._keys_from(low):
            low = keys[-1] + b"\0"

            def work(changes: Changes, keys: list[bytes] = keys) -> None:
                self.admit(changes.txn, (self.home,))
                for key in keys:
                    changes.remove(key)

            errors.result_of(partial(self._change, work, makes=False))
        errors.report()

    def _keys_from(self, low: bytes) -> list[bytes]:
        with self.env.begin() as txn, txn.cursor() as cursor:
            prefix = (txn.get(self.record_key) or b"")[:4]
            if not prefix or not cursor.set_range(prefix + low):
                return []
            keys = islice(cursor.iternext(values=False), TRANSACTION_ENTRIES)
            return [key[4:] for key in keys if key[:4] == prefix]


def note_mark(txn: Transaction, partition: bytes, once: Once, recorder: Recorder | None = None) -> bool:
    """Note that a write is done to a partition with this transaction; False when that has been noted before."""
    key = MARKER_RECORD + partition + once.marker
    found = txn.get(key)
    if found is not None and MARK.unpack(found)[0] >= once.mark:
        return False
    txn.put(key, MARK.pack(once.mark))
    if recorder is not None:
        recorder.catalogued(partition, key, MARK.pack(once.mark))
    return True
