"""The log of changes that backups on other members have to be told of, written in the transaction of each change.

Only changes of partitions that have backups, or are being copied (`ownership.Opening.is_noted`), are noted, and all
those of a store that is kept on disk (`grid.disk`): else a store has no log and pays nothing. A record is what one
transaction did, by partition, under a number that counts in each environment. It says how things *are* now and not what
was done to them, so that a record may be taken twice. Records that all backups have go with the next change. `replica`
takes records, `shipping` brings them. Must not know members.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.commit_counters import BACKED_UP, KEPT, LOGGED, ON_DISK
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import GridError
from shmjet.grid.layout import BY_PARTITION, CHANGE_RECORD, INDEX, LAST_CHANGE, MARKER_RECORD, OPEN_RECORD, PARTITION
from shmjet.grid.ownership import Opening, note_copies, opening

READ_BYTES = 1 << 20
"""Bytes of records that are read at once, about."""
_TRIMMED = 8
"""Old records that go with a change, at most."""


class _Change(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Puts(_Change, frozen=True, tag=True, array_like=True):
    """Entries of a map that are there now: keys without prefix, and stored entries."""

    record: bytes
    flags: int
    entries: list[tuple[bytes, bytes]]


class Removals(_Change, frozen=True, tag=True, array_like=True):
    """Keys of a map, without prefix, that have no entry now."""

    record: bytes
    keys: list[bytes]


class NewJournal(_Change, frozen=True, tag=True, array_like=True):
    """The identity of a map's journal."""

    record: bytes
    identity: bytes


class NewEvents(_Change, frozen=True, tag=True, array_like=True):
    """Events of a map's journal, with their packed numbers."""

    record: bytes
    events: list[tuple[bytes, bytes]]


class CutEvents(_Change, frozen=True, tag=True, array_like=True):
    """The packed number of the oldest event that is left, and the oldest sequences by partition, where they rose."""

    record: bytes
    oldest: bytes
    sequences: dict[int, int]


class NewSequences(_Change, frozen=True, tag=True, array_like=True):
    """For partitions of a journal the sequence of the next event, and the oldest that may be there."""

    record: bytes
    sequences: dict[int, tuple[int, int]]


class NewBlocks(_Change, frozen=True, tag=True, array_like=True):
    """Blocks of a list with the packed indexes of their first items, and the number of its items."""

    record: bytes
    flags: int
    size: int
    blocks: list[tuple[bytes, bytes]]


class Dropped(_Change, frozen=True, tag=True, array_like=True):
    """A map or list is empty in this environment, and gone unless `keep_name`."""

    record: bytes
    keep_name: bool


class Catalogued(_Change, frozen=True, tag=True, array_like=True):
    """Records of the catalogue that belong to the partition, by their whole keys; None: not there."""

    records: list[tuple[bytes, bytes | None]]


class FilesGone(_Change, frozen=True, tag=True, array_like=True):
    """Files of large values that are not needed any more."""

    names: list[bytes]


Change = (
    Puts | Removals | NewJournal | NewEvents | CutEvents | NewSequences | NewBlocks | Dropped | Catalogued | FilesGone
)


class LogRecord(NamedTuple):
    """What a transaction did.

    Args:
        number: of the record.
        groups: partitions with their changes, encoded.
    """

    number: int
    groups: list[tuple[int, msgspec.Raw]]


_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgpack_decoder(list[tuple[int, msgspec.Raw]]).decode


@cache
def _changes_decoder() -> Callable[[bytes | msgspec.Raw], list[Change]]:
    """Return what decodes changes. It takes as long to make as ten modules, and a member alone has no use for it."""
    return msgpack_decoder(list[Change]).decode


def decode_changes(data: bytes | msgspec.Raw) -> list[Change]:
    """Return the changes of a group of a record."""
    return _changes_decoder()(data)


class Recorder:
    """Notes what one transaction does to partitions that have backups. `close` has to be called before it commits.

    Args:
        txn: the transaction.
        env: where it is.
        notes_all: note changes of all partitions.
    """

    def __init__(self, txn: Transaction, env: Environment, *, notes_all: bool = False) -> None:
        self._txn = txn
        self._env = env
        self._notes_all = notes_all
        self._openings: dict[bytes, Opening | None] = {}
        self._noted: dict[bytes, list[Change]] = {}

    def is_open(self, place: bytes) -> bool:
        """Say whether a partition, packed, is open here."""
        return self._opening(place) is not None

    def notes(self, place: bytes) -> bool:
        """Say whether changes of a partition, packed, are noted."""
        found = self._opening(place)
        return self._notes_all or (found is not None and found.is_noted)

    def note(self, place: bytes, change: Change) -> None:
        """Note a change of a partition."""
        if self.notes(place):
            self._noted.setdefault(place, []).append(change)

    def put(self, place: bytes, record: bytes, flags: int, tail: bytes, stored: bytes) -> None:
        """Note that an entry is there."""
        if self.notes(place):
            noted = self._noted.setdefault(place, [])
            last = noted[-1] if noted else None
            if isinstance(last, Puts) and last.record == record and last.flags == flags:
                last.entries.append((tail, stored))
            else:
                noted.append(Puts(record, flags, [(tail, stored)]))

    def puts(self, place: bytes, record: bytes, flags: int, entries: list[tuple[bytes, bytes]]) -> None:
        """Note that entries of one partition are there."""
        self.note(place, Puts(record, flags, entries))

    def new_journal(self, place: bytes, record: bytes, identity: bytes) -> None:
        """Note that a map has a journal now."""
        self.note(place, NewJournal(record, identity))

    def new_events(self, place: bytes, record: bytes, events: list[tuple[bytes, bytes]]) -> None:
        """Note events of a journal."""
        self.note(place, NewEvents(record, events))

    def removed(self, place: bytes, record: bytes, tail: bytes) -> None:
        """Note that an entry is not there."""
        if self.notes(place):
            noted = self._noted.setdefault(place, [])
            last = noted[-1] if noted else None
            if isinstance(last, Removals) and last.record == record:
                last.keys.append(tail)
            else:
                noted.append(Removals(record, [tail]))

    def removals(self, place: bytes, record: bytes, tails: list[bytes]) -> None:
        """Note that entries of one partition are not there."""
        self.note(place, Removals(record, tails))

    def catalogued(self, place: bytes, key: bytes, value: bytes | None) -> None:
        """Note a record of the catalogue."""
        if self.notes(place):
            noted = self._noted.setdefault(place, [])
            last = noted[-1] if noted else None
            if isinstance(last, Catalogued):
                last.records.append((key, value))
            else:
                noted.append(Catalogued([(key, value)]))

    def require(self, least: int, label: str) -> None:
        """Raise GridError where a partition that is changed has fewer backups than it must have for a write."""
        for found in self._openings.values() if least else ():
            if found is not None and found.backups < least:
                raise GridError(
                    f"{label} is written only with {least} backups (MapConfig.min_backups), and a partition has "
                    f"{found.backups} now: wait until copies are made, or give the cluster more members"
                )

    def close(self) -> None:
        """Write the record, if there is anything to tell."""
        if not self._noted:
            return
        txn, words = self._txn, self._env.announced
        number = last_number(txn) + 1
        record = [(PARTITION.unpack(place)[0], changes) for place, changes in self._noted.items()]
        self._trim(_not_needed(words))
        txn.put(CHANGE_RECORD + INDEX.pack(number), _encode(record))
        txn.put(LAST_CHANGE, INDEX.pack(number))
        for place in self._noted:
            found = self._openings.get(place)
            if found is not None and found.is_noted:
                txn.put(OPEN_RECORD + place, found._replace(last=number).pack())
        self._noted = {}
        words[LOGGED] = number

    def _opening(self, place: bytes) -> Opening | None:
        if place not in self._openings:
            self._openings[place] = opening(self._txn, place)
        return self._openings[place]

    def _trim(self, below: int) -> None:
        with self._txn.cursor() as cursor:
            there = cursor.set_range(CHANGE_RECORD)
            for _ in range(_TRIMMED):
                if not there or not cursor.key().startswith(CHANGE_RECORD) or _number_of(cursor.key()) > below:
                    return
                there = cursor.delete()


def place_in(key: bytes) -> bytes:
    """Return the partition, packed, to which a record of the catalogue belongs; the first where it belongs to all."""
    kind = key[: len(MARKER_RECORD)]
    return key[len(kind) :][: PARTITION.size] if kind in BY_PARTITION else PARTITION.pack(0)


def last_number(txn: Transaction) -> int:
    """Return the number of the last record, 0 before the first."""
    found = txn.get(LAST_CHANGE)
    return 0 if found is None else _unpacked(found)


def last_of(txn: Transaction, partitions: Collection[bytes] | None) -> int:
    """Return the number of the last record that is about some partitions, packed; None: about any."""
    openings = [] if partitions is None else [opening(txn, place) for place in partitions]
    if partitions is None or None in openings:  # closed meanwhile: its last change may be any
        return last_number(txn)
    return max((found.last for found in openings if found is not None), default=0)


def unsettled(env: Environment, partitions: Collection[bytes] | None) -> int:
    """Return the number of the last record about some partitions, packed, if not all backups have it; else 0."""
    words = env.announced
    if words[BACKED_UP] >= words[LOGGED]:
        return 0
    with env.begin() as txn:
        number = last_of(txn, partitions)
    return number if words[BACKED_UP] < number else 0


def read_records(env: Environment, after: int, limit: int = READ_BYTES) -> tuple[list[LogRecord], int]:
    """Return the records after a number, as many as have about so many bytes, and the number of the last one of all."""
    found: list[LogRecord] = []
    size = 0
    with env.begin() as txn:
        last = last_number(txn)
        if after < last:
            for number, data in _records(txn, after + 1):
                if number > last or size >= limit:
                    break
                found.append(LogRecord(number, _decode_record(data)))
                size += len(data)
    return found, last


def raw_records(env: Environment, after: int, limit: int) -> tuple[list[tuple[int, bytes]], int]:
    """Return encoded records with their numbers, of about so many bytes, and the number of the last one of these."""
    found: list[tuple[int, bytes]] = []
    size = 0
    with env.begin() as txn:
        for number, data in _records(txn, after + 1):
            found.append((number, bytes(data)))
            size += len(data)
            if size >= limit:
                break
    return found, found[-1][0] if found else after


def trim(env: Environment) -> None:
    """Remove the records that all backups and the disk have."""
    below = _not_needed(env.announced)

    def work(txn: Transaction) -> None:
        with txn.cursor() as cursor:
            there = cursor.set_range(CHANGE_RECORD)
            while there and cursor.key().startswith(CHANGE_RECORD) and _number_of(cursor.key()) <= below:
                there = cursor.delete()

    env.write(work, "the log of changes")


def note_changes(environments: Sequence[Environment], partitions: Collection[int], *, are_copied: bool) -> list[int]:
    """Have all changes of open partitions noted from now on, as they are being copied, or only for their backups.

    Returns:
        for each environment the number of the last record before.
    """

    def work(txn: Transaction) -> int:
        note_copies(txn, partitions, are_copied=are_copied)
        return last_number(txn)

    return [env.write(work, "the partitions that are here") for env in environments]


def _not_needed(words: memoryview) -> int:
    """Return the number up to which no one needs records any more."""
    done: int = min(words[BACKED_UP], words[ON_DISK])
    kept: int = words[KEPT]
    return min(done, kept - 1) if kept else done


def _records(txn: Transaction, number: int) -> Iterator[tuple[int, bytes]]:
    with txn.cursor() as cursor:
        if cursor.set_range(CHANGE_RECORD + INDEX.pack(number)):
            for key, data in cursor.iternext():
                if not key.startswith(CHANGE_RECORD):
                    return
                yield _number_of(key), data


def _number_of(key: bytes) -> int:
    return _unpacked(key[len(CHANGE_RECORD) :])


def _unpacked(data: bytes) -> int:
    number: int = INDEX.unpack(data)[0]
    return number


def ends(environments: Sequence[Environment]) -> list[int]:
    """Return the number of the last record of each environment."""
    found = []
    for env in environments:
        with env.begin() as txn:
            found.append(last_number(txn))
    return found
