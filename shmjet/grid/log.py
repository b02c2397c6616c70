"""The log of a map in one environment: its events in the order of commits, read in pieces and cut at its beginning.

`changes` appends to it. Each function has a transaction of its own. Must not know what the entries in events mean.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from shmjet.grid.change_log import CutEvents, Recorder
from shmjet.grid.changes import Event, log_span
from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.layout import INCARNATION, INDEX, LOG_RECORD, PARTITION, PARTITION_RECORD, Record, Sizes
from shmjet.grid.ownership import opening

PIECE_EVENTS = 1024
PIECE_BYTES = 1 << 20
CUT_EVENTS = 2048
FIRST_STEP = 32
"""Events read between two looks at their size."""


class Piece(NamedTuple):
    """Some consecutive events of a log.

    Args:
        incarnation: identity of the log; 0: it is not there.
        number: of the first event, or of the next one where there is none.
        sequences: for each partition the sequence of its oldest event that may still be there; empty where the piece
            begins with the event that was asked for. Of the end of a log: of its next event.
        events: as they are stored.
        has_more: there are events after these.
        transaction: the last write that is seen.
        store: which store it is of.
    """

    incarnation: int
    number: int
    sequences: dict[int, int]
    events: list[bytes]
    transaction: int = 0
    has_more: bool = False
    store: int = 0


def read_piece(env: Environment, record_key: bytes, number: int) -> Piece:
    """Return the events from a number on, or from the oldest one where that is later."""
    with env.begin() as txn:
        transaction, found = txn.id(), txn.get(record_key)
        if found is None:
            return Piece(0, 0, {}, [], transaction)
        record = Record.unpack(found)
        log = INCARNATION.pack(record.log)
        first, end = log_span(txn, found[:4], log)
        at = min(max(first, number), end)
        sequences = {}
        if at != number:
            sequences = {partition: sizes.oldest for partition, sizes in _sizes(txn, found[:4]).items()}
        events: list[bytes] = []
        size = 0
        with txn.cursor() as cursor:
            if at < end and cursor.set_range(log + INDEX.pack(at)):
                follow = islice(cursor.iternext(keys=False), min(PIECE_EVENTS, end - at))
                while size < PIECE_BYTES and (some := list(islice(follow, FIRST_STEP))):
                    events += some
                    size += sum(map(len, some))
        identity = identity_of(txn, log)
    return Piece(identity, at, sequences, events, transaction, at + len(events) < end)


def end_of_log(env: Environment, record_key: bytes) -> Piece:
    """Return a piece without events that begins where the next event will be."""
    with env.begin() as txn:
        found = txn.get(record_key)
        if found is None:
            return Piece(0, 0, {}, [])
        record = Record.unpack(found)
        end = log_span(txn, found[:4], INCARNATION.pack(record.log))[1]
        sequences = {partition: sizes.following for partition, sizes in _sizes(txn, found[:4]).items()}
        identity = identity_of(txn, INCARNATION.pack(record.log))
    return Piece(identity, end, sequences, [])


def identity_of(txn: Transaction, log: bytes) -> int:
    """Return the identity of a log, which is that of the map's life until it is destroyed."""
    return int.from_bytes(txn.get(LOG_RECORD + log) or b"")


def length(env: Environment, record_key: bytes) -> int:
    """Return the number of events."""
    with env.begin() as txn:
        found = txn.get(record_key)
        if found is None:
            return 0
        first, end = log_span(txn, found[:4], INCARNATION.pack(Record.unpack(found).log))
        return end - first


def cut(
    env: Environment,
    record_key: bytes,
    count: int,
    label: str,
    home: bytes,
    recorder_of: Callable[[Transaction], Recorder | None],
) -> list[bytes]:
    """Remove the oldest events, at most some thousand, and return them: the files of their old entries may go.

    Args:
        env: the environment.
        record_key: of the map.
        count: so many at most.
        label: how errors call the map.
        home: the partition, packed, that the map belongs to, in a store that is divided among members; else empty.
        recorder_of: makes what notes the changes of a transaction.
    """

    def work(txn: Transaction) -> list[bytes]:
        found = txn.get(record_key)
        if found is None or (home and opening(txn, home) is None):
            return []
        prefix, log = found[:4], INCARNATION.pack(Record.unpack(found).log)
        oldest: dict[int, int] = {}
        following = b""
        removed: list[bytes] = []
        with txn.cursor() as cursor:
            cursor.set_range(log)
            while len(removed) < min(count, CUT_EVENTS) and cursor.key()[: len(log)] == log:
                removed.append(cursor.value())
                event = Event.unpack(removed[-1])
                oldest[event.partition] = event.sequence + 1
                following = INDEX.pack(INDEX.unpack(cursor.key()[len(log) :])[0] + 1)
                cursor.delete()
        for partition, sequence in oldest.items():
            key = PARTITION_RECORD + prefix + PARTITION.pack(partition)
            sizes = Sizes.unpack(txn.get(key))
            sizes.oldest = sequence
            txn.put(key, sizes.pack())
        recorder = recorder_of(txn) if removed else None
        if recorder is not None:
            recorder.note(home or PARTITION.pack(0), CutEvents(record_key, following, oldest))
            recorder.close()
        return removed

    return env.write(work, label)


def _sizes(txn: Transaction, prefix: bytes) -> dict[int, Sizes]:
    return {PARTITION.unpack(key)[0]: Sizes.unpack(data) for key, data in behind(txn, PARTITION_RECORD + prefix)}
