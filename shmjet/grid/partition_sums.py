"""Checksums of what a partition holds in a store, by which its primary and a backup find out whether they differ.

Bytes are summed as they are stored, but for what is each store's own: incarnations, and the moments of times. A long
map or list is read in portions, a transaction each; the caller has to see to it that nothing changes meanwhile, or look
whether something has. Must not know members.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from shmjet.grid.change_log import last_number
from shmjet.grid.environment import behind
from shmjet.grid.layout import HAS_TIMES, LIST_RECORD, MAP_RECORD, PARTITION, Record, name_of
from shmjet.grid.ownership import opening
from shmjet.grid.partition_copy import is_home_of, portions_behind
from shmjet.grid.store import Opened
from shmjet.grid.times import TRAILER, times_of


class Sum(NamedTuple):
    """What a map or list holds of a partition in an environment.

    Args:
        environment: where.
        label: such as `map 'counts'`.
        pieces: entries or blocks.
        checksum: of their bytes.
    """

    environment: int
    label: str
    pieces: int
    checksum: int


class Reached(NamedTuple):
    """Numbers of the log of an environment: of its last record about a partition, and of its last record of all."""

    last: int
    end: int


def reached(store: Opened, partition: int) -> list[Reached] | None:
    """Return up to where a partition has been changed, by environment; None where it is not open."""
    found = []
    for env in store.environments:
        with env.begin() as txn:
            opened = opening(txn, PARTITION.pack(partition))
            if opened is None:
                return None
            found.append(Reached(opened.last, last_number(txn)))
    return found


def sums(store: Opened, partition: int) -> Iterator[Sum | None]:
    """Yield the sum of each map and list that has anything in a partition, and None after each portion of it."""
    packed, count = PARTITION.pack(partition), len(store.environments)
    for index, env in enumerate(store.environments):
        with env.begin() as txn:
            found = [(kind + name, data) for kind in (MAP_RECORD, LIST_RECORD) for name, data in behind(txn, kind)]
        for record_key, data in found:
            table = store.table(index, record_key)
            if is_home_of(store, record_key):
                if table.home != packed:
                    continue
                head = data[:4]
            elif partition % count == index:
                head = data[:4] + packed
            else:
                continue
            has_times = record_key.startswith(MAP_RECORD) and Record.unpack(data).flags & HAS_TIMES != 0
            entries = checksum = 0
            for portion in portions_behind(env, head):
                for tail, stored in portion:
                    checksum = zlib.crc32(_lasting(stored) if has_times else stored, zlib.crc32(tail, checksum))
                entries += len(portion)
                yield None
            if entries:
                kind = "map" if record_key.startswith(MAP_RECORD) else "list"
                yield Sum(index, f"{kind} {name_of(record_key)!r}", entries, checksum)


def _lasting(stored: bytes) -> bytes:
    """Return what is the same of an entry in all stores: the moments of times are of their clocks."""
    times = times_of(stored)
    return stored if times is None else stored[: -TRAILER.size] + bytes((times.end > 0, times.used > 0))


def differences(ours: list[Sum], theirs: list[Sum]) -> list[str]:
    """Return the names of the maps and lists that differ, sorted.

    Example:
        >>> differences([Sum(0, "map 'a'", 1, 7), Sum(0, "map 'b'", 1, 7)], [Sum(0, "map 'a'", 1, 7)])
        ["map 'b'"]
    """
    return sorted({one.label for one in set(ours) ^ set(theirs)})
