"""Partitions as they go from one store to another: all that they hold, in pieces of a megabyte or less.

A piece is as the partition was when it was read. So all pieces of a closed partition are right together; those of
a partition that is written to are when all changes since the first piece have been taken, too (`change_log`). Times are
those of a host, and are shifted by the difference of the two clocks. Must not know members, nor how pieces travel.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from shmjet.core.map_config import config_of
from shmjet.grid.blobs import BlobStore
from shmjet.grid.carried import place_of
from shmjet.grid.change_log import NewBlocks, place_in
from shmjet.grid.changes import Changes, Entry, next_incarnation
from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.layout import (
    BY_PARTITION,
    INCARNATION,
    INDEX,
    LIST_RECORD,
    LOG_RECORD,
    MAP_RECORD,
    PARTITION,
    PARTITION_RECORD,
    TYPE_RECORD,
    Record,
    Sizes,
    name_of,
)
from shmjet.grid.store import Opened
from shmjet.grid.times import now

PIECE_BYTES = 1 << 20
_PORTION, _SMALL_PORTION = 2048, 512
"""Entries that are read, or written, in one transaction: at most, and where pieces are smaller than `PIECE_BYTES`."""
_DROPPED, _FEW_DROPPED = 512, 128
"""Entries that are removed in one transaction, one by one, while writers of other partitions wait."""
_CHUNK, _LARGE_BYTES = 64, 1 << 12
"""So many entries are read at once, unless they are large: then none is read that is behind the last one."""


_value: Any = itemgetter(1)


class Portion(NamedTuple):
    """What is read, written or removed in one transaction, about."""

    size: int
    """Bytes."""
    entries: int


def _whole() -> Portion:
    return Portion(PIECE_BYTES, _PORTION)


class _Piece(msgspec.Struct, frozen=True, tag=True, array_like=True):
    pass


class Classes(_Piece, frozen=True, tag=True, array_like=True):
    """Pickles of classes by their ids."""

    classes: list[tuple[bytes, bytes]]


class Entries(_Piece, frozen=True, tag=True, array_like=True):
    """Entries of a map in one environment; keys without prefix. `moment` is that of the sender's clock."""

    environment: int
    record: bytes
    flags: int
    moment: int
    entries: list[tuple[bytes, bytes]]


class Events(_Piece, frozen=True, tag=True, array_like=True):
    """Events of a map's journal in one environment, with their numbers; see `Changes.take_over_events`."""

    environment: int
    record: bytes
    moment: int
    identity: bytes
    events: list[tuple[bytes, bytes]]
    sequences: dict[int, tuple[int, int]]


class Blocks(_Piece, frozen=True, tag=True, array_like=True):
    """Blocks of a list, with the packed indexes of their first items, and the number of items of the whole list."""

    environment: int
    record: bytes
    flags: int
    size: int
    blocks: list[tuple[bytes, bytes]]


class Records(_Piece, frozen=True, tag=True, array_like=True):
    """Records of the catalogue of one environment."""

    environment: int
    records: list[tuple[bytes, bytes]]


class File(_Piece, frozen=True, tag=True, array_like=True):
    """A part of a file; they come in order."""

    name: bytes
    offset: int
    data: bytes


Piece = Classes | Entries | Events | Blocks | Records | File


class PartitionCopy:
    """Reads, writes and removes whole partitions of one store; they are closed meanwhile. Blocks.

    Args:
        store: the store.
        piece_bytes: asked for each step: how many bytes it should be about.
    """

    def __init__(self, store: Opened, piece_bytes: Callable[[], int] = lambda: PIECE_BYTES) -> None:
        self._store = store
        self._piece_bytes = piece_bytes

    def _portion(self) -> Portion:
        size = self._piece_bytes()
        return Portion(size, _PORTION if size == PIECE_BYTES else _SMALL_PORTION)

    def _to_be_dropped(self) -> Portion:
        return Portion(PIECE_BYTES, _DROPPED if self._piece_bytes() == PIECE_BYTES else _FEW_DROPPED)

    # -- from here ----------------------------------------------------------------------------------------------

    def classes(self) -> Piece:
        """Return all classes."""
        with self._store.environment(0).begin() as txn:
            return Classes(list(behind(txn, TYPE_RECORD)))

    def pieces(self, partitions: Collection[int]) -> Iterator[Piece]:
        """Yield all that some partitions hold, but for classes."""
        for index, env in enumerate(self._store.environments):
            for record_key in _records(env, MAP_RECORD):
                yield from self._of_map(index, record_key, partitions)
            for record_key in _records(env, LIST_RECORD):
                if self._home(index, record_key) in partitions:
                    yield from self._of_list(index, record_key)
            for kind in BY_PARTITION:
                for partition in partitions:
                    head = kind + PARTITION.pack(partition)
                    for portion in portions_behind(env, head, self._portion):
                        yield Records(index, [(head + tail, data) for tail, data in portion])
        for name in self._files(partitions):
            yield from self.file(name)

    def size(self) -> int:
        """Return about how many bytes the store takes with everything in it."""
        blobs = self._store.blobs
        files = sum(blobs.size(name.encode()) for name in os.listdir(blobs.folder))
        return files + sum(env.size() for env in self._store.environments)

    def _of_map(self, index: int, record_key: bytes, partitions: Collection[int]) -> Iterator[Piece]:
        env = self._store.environment(index)
        with env.begin() as txn:
            found = txn.get(record_key)
        if found is None:
            return
        prefix, record = found[:4], Record.unpack(found)
        if is_home_of(self._store, record_key):
            if self._home(index, record_key) in partitions:
                for portion in portions_behind(env, prefix, self._portion):
                    yield Entries(index, record_key, record.flags | _flags(env, record_key), now(), portion)
                yield from self._of_journal(index, record_key, prefix, record)
            return
        count, flags = len(self._store.environments), record.flags
        found_so_far: list[Entry] = []
        size = 0
        for first, last in _runs([partition for partition in partitions if partition % count == index], count):
            low, high = prefix + PARTITION.pack(first), _behind(prefix + PARTITION.pack(last))
            for portion in portions_between(env, low, high, len(prefix), self._portion):
                found_so_far += portion
                size += _size_of(portion)
                most = self._portion()
                if size >= most.size or len(found_so_far) >= most.entries:
                    flags |= _flags(env, record_key)
                    yield Entries(index, record_key, flags, now(), found_so_far)
                    found_so_far, size = [], 0
        if found_so_far:
            flags |= _flags(env, record_key)
            yield Entries(index, record_key, flags, now(), found_so_far)

    def _of_journal(self, index: int, record_key: bytes, prefix: bytes, record: Record) -> Iterator[Piece]:
        if not record.log:
            return
        env, log = self._store.environment(index), INCARNATION.pack(record.log)
        with env.begin() as txn:
            identity = txn.get(LOG_RECORD + log) or bytes(INDEX.size)
            sizes = {
                PARTITION.unpack(key)[0]: Sizes.unpack(data) for key, data in behind(txn, PARTITION_RECORD + prefix)
            }
        sequences = {partition: (size.following, size.oldest) for partition, size in sizes.items()}
        yield Events(index, record_key, now(), identity, [], sequences)
        for portion in portions_behind(env, log, self._portion):
            yield Events(index, record_key, now(), identity, portion, {})

    def _of_list(self, index: int, record_key: bytes) -> Iterator[Piece]:
        env = self._store.environment(index)
        with env.begin() as txn:
            found = txn.get(record_key)
        if found is not None:
            record = Record.unpack(found)
            for portion in portions_behind(env, found[:4], self._portion):
                yield Blocks(index, record_key, record.flags | _flags(env, record_key), record.size, portion)

    def file(self, name: bytes) -> Iterator[Piece]:
        """Yield a file; nothing where it is gone."""
        try:
            file = (self._store.blobs.folder / name.decode()).open("rb")
        except FileNotFoundError:  # its entry was removed before
            return
        with file:
            offset = 0
            while data := file.read(self._piece_bytes()):
                yield File(name, offset, data)
                offset += len(data)

    # -- to here ------------------------------------------------------------------------------------------------

    def take_all(self, pieces: Iterable[Piece]) -> None:
        """Store pieces, one after the other."""
        for piece in pieces:
            self.take(piece)

    def take(self, piece: Piece) -> None:
        """Store a piece."""
        match piece:
            case Classes():
                for class_id, data in piece.classes:
                    self._store.keep_class(class_id.decode(), data)
            case Entries():
                self._take_entries(piece)
            case Events():
                self._take_events(piece)
            case Blocks():
                self._take_blocks(piece)
            case Records():

                def put(txn: Transaction) -> None:
                    recorder = self._store.recorder(txn, self._store.environment(piece.environment))
                    for key, data in piece.records:
                        txn.put(key, data)
                        if recorder is not None:
                            recorder.catalogued(place_in(key), key, data)
                    if recorder is not None:
                        recorder.close()

                self._store.environment(piece.environment).write(put, "the records of a partition")
            case File():
                with (self._store.blobs.folder / piece.name.decode()).open("r+b" if piece.offset else "wb") as file:
                    file.seek(piece.offset)
                    file.write(piece.data)

    def _change(self, environment: int, record_key: bytes, work: Any) -> None:
        env = self._store.environment(environment)
        table = self._store.table(environment, record_key)
        home = table.home if table.lies_at_home else b""

        def attempt(txn: Transaction) -> None:
            recorder = self._store.recorder(txn, env)
            changes = Changes(txn, env, record_key, table.rules, recorder, home)
            work(changes)
            changes.close(ends=False)
            if recorder is not None:
                recorder.close()

        env.write(attempt, table.label)

    def _take_entries(self, piece: Entries) -> None:
        later = now() - piece.moment
        self._change(
            piece.environment,
            piece.record,
            lambda changes: changes.take_over_all(piece.entries, piece.flags, later),
        )

    def _take_events(self, piece: Events) -> None:
        def work(changes: Changes) -> None:
            changes.take_over_events(piece.events, piece.sequences, now() - piece.moment)
            changes.take_over_identity(piece.identity)

        self._change(piece.environment, piece.record, work)

    def _take_blocks(self, piece: Blocks) -> None:
        home = self._store.table(piece.environment, piece.record).home

        def work(txn: Transaction) -> None:
            recorder = self._store.recorder(txn, self._store.environment(piece.environment))
            found = txn.get(piece.record)
            record = Record(next_incarnation(txn)) if found is None else Record.unpack(found)
            for index, block in piece.blocks:
                txn.put(INCARNATION.pack(record.incarnation) + index, block)
            record.size, record.flags = piece.size, piece.flags
            txn.put(piece.record, record.pack())
            if recorder is not None:
                recorder.note(home, NewBlocks(piece.record, piece.flags, piece.size, piece.blocks))
                recorder.close()

        self._store.environment(piece.environment).write(work, "a list")

    # -- away from here -----------------------------------------------------------------------------------------

    def drop(self, partitions: Collection[int]) -> None:
        """Remove all that some partitions hold."""
        for _ in self.drop_by_steps(partitions):
            pass

    def drop_by_steps(self, partitions: Collection[int]) -> Iterator[None]:
        """Remove all that some partitions hold, and yield between any two transactions."""
        for index, env in enumerate(self._store.environments):
            for record_key in _records(env, MAP_RECORD):
                if not is_home_of(self._store, record_key):
                    yield from self._drop_spread(index, record_key, partitions)
                elif self._home(index, record_key) in partitions:
                    self._drop_whole(index, record_key)
                    yield
            for record_key in _records(env, LIST_RECORD):
                if self._home(index, record_key) in partitions:
                    self._drop_whole(index, record_key)
                    yield
            for kind in BY_PARTITION:
                for partition in partitions:
                    yield from self._delete(env, kind + PARTITION.pack(partition))
        self._store.blobs.delete(self._files(partitions))

    def _drop_whole(self, index: int, record_key: bytes) -> None:
        table = self._store.table(index, record_key)
        table.is_divided = False  # the partition is closed already
        table.drop(keep_name=False)

    def _drop_spread(self, index: int, record_key: bytes, partitions: Collection[int]) -> Iterator[None]:
        """Remove the entries of partitions, some of one or of several in a transaction."""
        with self._store.environment(index).begin() as txn:
            if txn.get(record_key) is None:
                return
        count = len(self._store.environments)
        some = [PARTITION.pack(partition) for partition in sorted(partitions) if partition % count == index]
        begun = done = 0

        def work(changes: Changes) -> None:  # again from the same partition on where there was no room for it
            nonlocal done
            done, most = begun, self._to_be_dropped().entries
            while done < len(some) and (most := most - changes.remove_some(some[done], most)):
                done += 1

        while begun < len(some):
            self._change(index, record_key, work)
            begun = done
            yield

    def _delete(self, env: Environment, head: bytes) -> Iterator[None]:
        """Delete all records of the catalogue under keys that begin with `head`."""
        for portion in portions_behind(env, head, self._to_be_dropped):

            def work(txn: Transaction, portion: list[Entry] = portion) -> None:
                recorder = self._store.recorder(txn, env)
                for tail, _ in portion:
                    txn.delete(head + tail)
                    if recorder is not None:
                        recorder.catalogued(place_in(head + tail), head + tail, None)
                if recorder is not None:
                    recorder.close()

            env.write(work, "the records of a partition")
            yield

    # -- what there is ------------------------------------------------------------------------------------------

    def _home(self, index: int, record_key: bytes) -> int:
        home: int = PARTITION.unpack(self._store.table(index, record_key).home)[0]
        return home

    def _files(self, partitions: Collection[int]) -> list[bytes]:
        names = [name.encode() for name in os.listdir(self._store.blobs.folder)]
        return [name for name in names if BlobStore.is_name(name) and place_of(name) in partitions]


def _size_of(entries: Iterable[Entry]) -> int:
    return sum(map(len, chain.from_iterable(entries)))


def is_home_of(store: Opened, record_key: bytes) -> bool:
    """Say whether a map or list lies in the partition of its name."""
    return record_key.startswith(LIST_RECORD) or not config_of(name_of(record_key), store.layout.maps).is_plain


def _records(env: Environment, kind: bytes) -> list[bytes]:
    with env.begin() as txn:
        return [kind + name for name, _ in behind(txn, kind)]


def _flags(env: Environment, record_key: bytes) -> int:
    """Return what may be in the entries of a map or list that have been read, at least."""
    with env.begin() as txn:
        found = txn.get(record_key)
    return 0 if found is None else Record.unpack(found).flags


def portions_behind(env: Environment, head: bytes, most: Callable[[], Portion] = _whole) -> Iterator[list[Entry]]:
    """Yield what is stored under keys that begin with `head`, without it, a transaction each."""
    return portions_between(env, head, _behind(head), len(head), most)


def portions_between(
    env: Environment, low: bytes, high: bytes, cut: int, most: Callable[[], Portion] = _whole
) -> Iterator[list[Entry]]:
    """Yield what is stored under keys from `low` on and below `high`, a transaction each.

    Args:
        env: where.
        low, high: bounds.
        cut: so many bytes of each key are left out.
        most: asked for each transaction.
    """
    is_first = True
    while True:
        found: list[Entry] = []
        portion = most()
        with env.begin() as txn, txn.cursor() as cursor:
            if cursor.set_range(low) and (is_first or cursor.key() != low or cursor.next()):
                entries, size, chunk = cursor.iternext(), 0, 1
                while size < portion.size and len(found) < portion.entries:
                    some = list(islice(entries, chunk))
                    if not some:
                        break
                    found += some
                    if some[-1][0] >= high:
                        break
                    size += sum(map(len, map(_value, some)))
                    chunk = 1 if size > _LARGE_BYTES * len(found) else min(_CHUNK, 2 * chunk)
        if found and found[-1][0] >= high:
            del found[bisect_left(found, (high,)) :]
        if not found:
            return
        low, is_first = found[-1][0], False
        yield [(key[cut:], value) for key, value in found]


def _runs(partitions: Iterable[int], step: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of those partitions that follow each other in an environment."""
    first = last = -1
    for partition in sorted(partitions):
        if first >= 0 and partition != last + step:
            yield first, last
            first = -1
        first, last = partition if first < 0 else first, partition
    if first >= 0:
        yield first, last


def _behind(head: bytes) -> bytes:
    """Return the least key that is behind all that begin with `head`, which is not all 0xff."""
    kept = head.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])
