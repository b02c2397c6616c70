"""What one write transaction does to one map in one environment, with all that hangs on it.

`Changes` keeps the sizes of partitions, the indexes of times, the weight of a map with a limit and the journal in step
with the entries. It knows no locks and no other environments: `bounded_table` opens transactions, and makes room
afterwards.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from shmjet._native import move_entries
from shmjet.core.map_config import PLAIN, MapConfig
from shmjet.grid.change_log import CutEvents, NewSequences, Recorder
from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.layout import (
    END_RECORD,
    FLAGS_AT,
    HAS_BLOBS,
    HAS_ENDS,
    HAS_TIMES,
    INCARNATION,
    INDEX,
    LAST_INCARNATION,
    LOG_RECORD,
    PARTITION,
    PARTITION_RECORD,
    TIME,
    USE_RECORD,
    Record,
    Sizes,
)
from shmjet.grid.portions import Run, survey
from shmjet.grid.times import Times, is_over, now, times_of, with_times

Entry = tuple[bytes, bytes]
_first: Any = itemgetter(0)

ADDED, UPDATED, REMOVED = 1, 2, 3
EVENT = struct.Struct(">BHQQI")
"""Kind, partition, sequence there, moment, and the length of the old entry that follows, before the new one."""
MOST_ENDED = 64
"""Entries whose time is over that a write removes on the way."""
MOST_LOOKED_AT = 128
"""Entries whose time is over that a write looks at for that: those of backups are left to their primaries."""

MOST_SPARED = 256
"""Entries that one transaction gives another place in the order of use; readers may be faster than it is."""


class Event(NamedTuple):
    """A change of one entry: stored entries as they were and are, empty for none."""

    kind: int
    partition: int
    sequence: int
    moment: int
    old: bytes
    new: bytes

    @staticmethod
    def unpack(data: bytes) -> Event:
        """Read a stored event."""
        kind, partition, sequence, moment, length = EVENT.unpack_from(data)
        split = EVENT.size + length
        return Event(kind, partition, sequence, moment, data[EVENT.size : split], data[split:])


class Rules(msgspec.Struct, frozen=True):
    """How the entries of a map are kept.

    Args:
        config: its settings.
        files: gives the bytes of the files that a stored entry names.
    """

    config: MapConfig = PLAIN
    files: Callable[[bytes], int] = len


class Changes:
    """The changes of one transaction. After the last one `close` has to be called, before it commits.

    Args:
        txn: the transaction.
        env: where it is.
        record_key: of the map.
        rules: of the map.
        recorder: notes the changes for backups; the caller closes it.
        home: the partition, packed, that all of the map belongs to; empty: each entry belongs to that of its key.
        is_open: says whether a partition, packed, may be changed here; None: all may be of which there are entries.
    """

    __slots__ = (
        "_env",
        "_events",
        "_home",
        "_is_open",
        "_limited",
        "_now",
        "_record_key",
        "_rules",
        "_sizes",
        "_stored",
        "_used",
        "gone",
        "has_changed",
        "heaviest",
        "prefix",
        "record",
        "recorder",
        "txn",
        "weighed",
        "written",
    )

    def __init__(
        self,
        txn: Transaction,
        env: Environment,
        record_key: bytes,
        rules: Rules,
        recorder: Recorder | None = None,
        home: bytes = b"",
        is_open: Callable[[bytes], bool] | None = None,
    ) -> None:
        self.txn = txn
        self.recorder = recorder
        self._home = home
        self._is_open = is_open
        self._env = env
        self._record_key = record_key
        self._rules = rules
        self._limited = rules.config.max_bytes is not None
        self._stored = txn.get(record_key)
        if self._stored is not None:
            self.record = Record.unpack(self._stored)
        else:
            self.record = Record(next_incarnation(txn), flags=HAS_TIMES if self._limited else 0)
            if rules.config.journal_capacity:
                self.record.log = next_incarnation(txn)
                identity = os.urandom(INDEX.size)
                txn.put(LOG_RECORD + INCARNATION.pack(self.record.log), identity)
                if recorder is not None:
                    recorder.new_journal(home, record_key, identity)
        self.prefix = INCARNATION.pack(self.record.incarnation)
        self.gone: list[bytes] = []
        """Stored entries that have left without the caller having asked for them; their files are not needed."""
        self.has_changed = False
        """Whether an entry was put or removed because it was asked for."""
        self.weighed = 0
        """By how many bytes the map has become heavier."""
        self.heaviest = 0
        """Bytes of the heaviest entry that was stored."""
        self.written = 0
        """How many events there had been before these."""
        self._used = 0
        """The last place in the order of use that was given out."""
        self._sizes: dict[bytes, Sizes] = {}
        self._events: list[bytes] = []
        self._now = now() if self.record.flags & HAS_TIMES or self.record.log else 0

    @property
    def appended(self) -> int:
        """How many events there are."""
        return len(self._events)

    @property
    def is_plain(self) -> bool:
        """Whether entries may be written without a look at what they replace."""
        return not self.record.flags and not self.record.log

    def get(self, tail: bytes) -> bytes | None:
        """Return the stored entry of a key, None when there is none, or its time is over."""
        found = self.txn.get(self.prefix + tail)
        return None if found is None or self._is_over(found) else found

    def time_left(self, end: int) -> int:
        """Return the nanoseconds until a moment, below 0 when it is over."""
        self._now = self._now or now()
        return end - self._now or -1

    def put(self, tail: bytes, stored: bytes, *, with_blobs: bool, ttl: int = 0) -> bytes | None:
        """Store an entry and return what was there.

        Args:
            tail: key without prefix.
            stored: the entry.
            with_blobs: whether its value may lie in a file.
            ttl: nanoseconds until it ends; 0: never.
        """
        self.has_changed = True
        if with_blobs:
            self.record.flags |= HAS_BLOBS
        if ttl or self._limited:
            stored = self._with_times(tail, stored, ttl)
        replaced = self.txn.replace(self.prefix + tail, stored)
        if self.recorder is not None:
            self.recorder.put(self._place(tail), self._record_key, self.record.flags, tail, stored)
        old = None if replaced is None else self._left(tail, replaced)
        if replaced is None:
            self._sizes_of(tail[: PARTITION.size]).entries += 1
            self.record.size += 1
        if self.record.log:
            self._note(ADDED if old is None else UPDATED, tail, old or b"", stored)
        return old

    def remove(self, tail: bytes) -> bytes | None:
        """Remove an entry and return it; None when there is none, or its time is over."""
        replaced = self.txn.pop(self.prefix + tail)
        if replaced is None:
            return None
        if self.recorder is not None:
            self.recorder.removed(self._place(tail), self._record_key, tail)
        self.has_changed = True
        self._sizes_of(tail[: PARTITION.size]).entries -= 1
        self.record.size -= 1
        old = self._left(tail, replaced)
        if old is not None and self.record.log:
            self._note(REMOVED, tail, old, b"")
        return old

    def remove_some(self, partition: bytes, most: int) -> int:
        """Remove entries of a partition, packed, of which nothing has to be kept, and return how many.

        Files of large values stay, and there are no events: the partition goes as a whole.
        """
        head, tails = self.prefix + partition, list[bytes]()
        has_times = self.record.flags & HAS_TIMES
        with self.txn.cursor() as cursor:
            there = cursor.set_range(head)
            while there and len(tails) < most and (key := cursor.key()).startswith(head):
                if has_times:
                    self._unindexed(cursor.value())
                tails.append(key[INCARNATION.size :])
                there = cursor.delete()
        if tails:
            if self.recorder is not None:
                self.recorder.removals(self._home or partition, self._record_key, tails)
            self._sizes_of(partition).entries -= len(tails)
            self.record.size -= len(tails)
        return len(tails)

    def put_plain(self, entries: list[Entry], runs: list[Run]) -> None:
        """Store entries of a map that `is_plain`.

        Args:
            entries: with full keys; neighbours share pages, so best in their order.
            runs: of them, see `portions.Survey`.
        """
        self.has_changed = True
        before = self._env.entries(self.txn)
        with self.txn.cursor() as cursor:
            for number, begin, end in runs:
                partition = PARTITION.pack(number)
                portion = entries[begin:end] if len(runs) > 1 else entries
                cursor.putmulti(portion)
                if self.recorder is not None and self.recorder.notes(partition):
                    tails = move_entries(portion, INCARNATION.size, b"")
                    self.recorder.puts(partition, self._record_key, self.record.flags, tails)
                after = self._env.entries(self.txn)
                if after != before:
                    self._sizes_of(partition).entries += after - before
                    self.record.size += after - before
                before = after

    def take_over_all(self, entries: list[Entry], flags: int, later: int) -> None:
        """Store entries of another store, as `take_over`.

        Args:
            entries: keys without prefix, and entries.
            flags: of the map there.
            later: see `take_over`.
        """
        if flags or not self.is_plain:
            for tail, stored in entries:
                self.take_over(tail, stored, later, with_blobs=flags & HAS_BLOBS != 0)
        else:
            full = sorted(move_entries(entries, 0, self.prefix), key=_first)
            self.put_plain(full, survey(full).runs)

    def take_over(self, tail: bytes, stored: bytes, later: int, *, with_blobs: bool) -> None:
        """Store an entry of another store, with the times that it has there; in place of any that is here.

        Args:
            tail: key without prefix.
            stored: the entry.
            later: how much later the clock of this host is, in nanoseconds.
            with_blobs: whether its value may lie in a file.
        """
        if with_blobs:
            self.record.flags |= HAS_BLOBS
        self.give_up(tail)
        times = times_of(stored)
        if times is not None:
            end = self._indexed(END_RECORD, max(1, times.end + later), tail) if times.end else 0
            used = self._indexed(USE_RECORD, max(1, times.used + later), tail) if times.used else 0
            self.record.flags |= HAS_TIMES | (HAS_ENDS if end else 0)
            self.weighed += times.weight
            stored = with_times(stored, Times(end, used, times.weight))
        self.txn.put(self.prefix + tail, stored)
        if self.recorder is not None:
            self.recorder.put(self._place(tail), self._record_key, self.record.flags, tail, stored)
        self._sizes_of(tail[: PARTITION.size]).entries += 1
        self.record.size += 1

    def give_up(self, tail: bytes) -> None:
        """Remove an entry that another store has not, or has another one for, if it is here."""
        replaced = self.txn.pop(self.prefix + tail)
        if replaced is not None:
            self._unindexed(replaced)
            if self.recorder is not None:
                self.recorder.removed(self._place(tail), self._record_key, tail)
            self._sizes_of(tail[: PARTITION.size]).entries -= 1
            self.record.size -= 1

    def take_over_identity(self, identity: bytes) -> None:
        """Give the journal the identity that it has in another store."""
        self.txn.put(LOG_RECORD + INCARNATION.pack(self.record.log), identity)
        if self.recorder is not None:
            self.recorder.new_journal(self._home, self._record_key, identity)

    def take_over_events(self, events: list[Entry], sequences: dict[int, tuple[int, int]], later: int) -> None:
        """Store events of a journal with their numbers in the log.

        Args:
            events: packed numbers, and events.
            sequences: for each partition the next sequence, and the oldest that may be there.
            later: see `take_over`.
        """
        if not self.record.log:
            return
        log = INCARNATION.pack(self.record.log)
        taken: list[Entry] = []
        for number, data in events:
            kind, partition, sequence, moment, length = EVENT.unpack_from(data)
            head = EVENT.pack(kind, partition, sequence, max(0, moment + later), length)
            taken.append((number, head + data[EVENT.size :]))
            self.txn.put(log + number, taken[-1][1])
            self._sizes_of(PARTITION.pack(partition)).following = sequence + 1
        for partition, (following, oldest) in sequences.items():
            sizes = self._sizes_of(PARTITION.pack(partition))
            sizes.following, sizes.oldest = following, oldest
        if self.recorder is not None and taken:
            self.recorder.new_events(self._home, self._record_key, taken)
        if self.recorder is not None and sequences:
            self.recorder.note(self._home, NewSequences(self._record_key, sequences))

    def cut_events(self, oldest: bytes, sequences: dict[int, int]) -> None:
        """Remove the events before one, by its packed number; what there is of partitions then begins with these."""
        if not self.record.log:
            return
        log = INCARNATION.pack(self.record.log)
        with self.txn.cursor() as cursor:
            there = cursor.set_range(log)
            while there and log <= cursor.key() < log + oldest:
                there = cursor.delete()
        for partition, sequence in sequences.items():
            self._sizes_of(PARTITION.pack(partition)).oldest = sequence
        if self.recorder is not None:
            self.recorder.note(self._home, CutEvents(self._record_key, oldest, sequences))

    def end_some(self, most: int = MOST_ENDED, looked_at: int | None = None) -> int:
        """Remove entries whose time is over, and return how many.

        Those of partitions that are not open here stay: they are backups, which have what their primaries have.

        Args:
            most: how many are enough.
            looked_at: after so many no more are looked for; None: all are.
        """
        head = END_RECORD + self.prefix
        tails: list[bytes] = []
        with self.txn.cursor() as cursor:
            if cursor.set_range(head):
                for key, tail in islice(cursor.iternext(), looked_at):
                    if len(tails) == most or not key.startswith(head) or TIME.unpack(key[len(head) :])[0] > self._now:
                        break
                    if self._is_open is None or self._is_open(self._place(tail)):
                        tails.append(tail)
        for tail in tails:
            self.remove(tail)
        return len(tails)

    def evict(self, most: int, last: Callable[[bytes], int]) -> int:
        """Remove the entries that were used longest ago.

        Args:
            most: bytes that are enough.
            last: gives the last use of a key, with its prefix.

        Returns:
            bytes that were removed.
        """
        head, removed, spared = USE_RECORD + self.prefix, 0, 0
        while removed < most:
            with self.txn.cursor() as cursor:
                if not cursor.set_range(head) or not cursor.key().startswith(head):
                    break
                at, tail = TIME.unpack(cursor.key()[len(head) :])[0], cursor.value()
            used = last(self.prefix + tail)
            if used > at and spared < MOST_SPARED:
                self._use_again(tail, used)
                spared += 1
                continue
            before = self.weighed
            old = self.remove(tail)
            if old is not None and not self.record.log:
                self.gone.append(old)
            removed += before - self.weighed
        return removed

    def close(self, *, ends: bool = True) -> None:
        """Write down what has changed but for the entries themselves.

        Args:
            ends: remove some entries whose time is over.
        """
        if ends and self.record.flags & HAS_ENDS:
            self.end_some(looked_at=MOST_LOOKED_AT)
        if self._events:
            log = INCARNATION.pack(self.record.log)
            self.written = at = log_span(self.txn, self.prefix, log)[1]
            events = [(INDEX.pack(at + index), event) for index, event in enumerate(self._events)]
            with self.txn.cursor() as cursor:
                cursor.putmulti([(log + number, event) for number, event in events])
            if self.recorder is not None:
                self.recorder.new_events(self._home, self._record_key, events)
        for partition, sizes in self._sizes.items():
            self.txn.put(PARTITION_RECORD + self.prefix + partition, sizes.pack())
        self.record.weight += self.weighed
        stored = self.record.pack()
        if stored != self._stored:
            self.txn.put(self._record_key, stored)

    def _place(self, tail: bytes) -> bytes:
        return self._home or tail[: PARTITION.size]

    def _sizes_of(self, partition: bytes) -> Sizes:
        sizes = self._sizes.get(partition)
        if sizes is None:
            found = self.txn.get(PARTITION_RECORD + self.prefix + partition)
            sizes = self._sizes[partition] = Sizes.unpack(found)
        return sizes

    def _with_times(self, tail: bytes, stored: bytes, ttl: int) -> bytes:
        self._now = self._now or now()
        self.record.flags |= HAS_TIMES | (HAS_ENDS if ttl else 0)
        end = self._indexed(END_RECORD, self._now + ttl, tail) if ttl else 0
        used, weight = 0, 0
        if self._limited:
            if self._rules.config.eviction == "lru":
                used = self._indexed(USE_RECORD, max(self._now, self._used + 1), tail)
                self._used = used
            weight = len(tail) + len(stored) + self._rules.files(stored)
            self.weighed += weight
            self.heaviest = max(self.heaviest, weight)
        return with_times(stored, Times(end, used, weight))

    def _use_again(self, tail: bytes, used: int) -> None:
        """Give an entry the place in the order of use that its last use has."""
        key = self.prefix + tail
        stored = self.txn.get(key)
        times = None if stored is None else times_of(stored)
        assert stored is not None
        assert times is not None
        self.txn.delete(USE_RECORD + self.prefix + TIME.pack(times.used))
        stored = with_times(stored, times._replace(used=self._indexed(USE_RECORD, used, tail)))
        self.txn.put(key, stored)
        if self.recorder is not None:
            self.recorder.put(self._place(tail), self._record_key, self.record.flags, tail, stored)

    def _indexed(self, kind: bytes, moment: int, tail: bytes) -> int:
        """Enter a key into an index, at a moment or the next nanosecond that is free."""
        while not self.txn.put(kind + self.prefix + TIME.pack(moment), tail, overwrite=False):
            moment += 1
        return moment

    def _left(self, tail: bytes, stored: bytes) -> bytes | None:
        """Take an entry that is not stored any more out of indexes and weight; return it, None when it had ended."""
        times = self._unindexed(stored)
        if times is None or not 0 < times.end <= self._now:
            return stored
        if self.record.log:
            self._note(REMOVED, tail, stored, b"")
        else:
            self.gone.append(stored)
        return None

    def _unindexed(self, stored: bytes) -> Times | None:
        """Take an entry that is not stored any more out of indexes and weight; return its times."""
        times = times_of(stored) if self.record.flags & HAS_TIMES else None
        if times is not None:
            if times.end:
                self.txn.delete(END_RECORD + self.prefix + TIME.pack(times.end))
            if times.used:
                self.txn.delete(USE_RECORD + self.prefix + TIME.pack(times.used))
            self.weighed -= times.weight
        return times

    def _is_over(self, stored: bytes) -> bool:
        return self.record.flags & HAS_ENDS != 0 and is_over(stored, self._now)

    def _note(self, kind: int, tail: bytes, old: bytes, new: bytes) -> None:
        partition = tail[: PARTITION.size]
        sizes = self._sizes_of(partition)
        number = PARTITION.unpack(partition)[0]
        self._events.append(EVENT.pack(kind, number, sizes.following, self._now, len(old)) + old + new)
        sizes.following += 1


def log_span(txn: Transaction, prefix: bytes, log: bytes) -> tuple[int, int]:
    """Return the numbers of the oldest event of a log, and of the next one.

    Args:
        txn: the transaction.
        prefix: of the map's incarnation.
        log: of its journal's.
    """
    with txn.cursor() as cursor:
        if cursor.set_range(log) and cursor.key()[: len(log)] == log:
            first = INDEX.unpack(cursor.key()[len(log) :])[0]
            following = INCARNATION.pack(INCARNATION.unpack(log)[0] + 1)
            if cursor.set_range(following):
                cursor.prev()
            else:
                cursor.last()
            return first, INDEX.unpack(cursor.key()[len(log) :])[0] + 1
    written = sum(Sizes.unpack(data).following for _, data in behind(txn, PARTITION_RECORD + prefix))
    return written, written


def next_incarnation(txn: Transaction) -> int:
    """Give out an incarnation."""
    last = txn.get(LAST_INCARNATION)
    number = 1 if last is None else INCARNATION.unpack(last)[0] + 1
    txn.put(LAST_INCARNATION, INCARNATION.pack(number))
    return number


def flags_of(record: bytes) -> int:
    """Return the flags of a packed record."""
    return record[FLAGS_AT]
