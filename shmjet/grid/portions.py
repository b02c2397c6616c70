"""Portions of entries that are put into a map: what has to be known of all of them is found by one look at each.

Entries are pairs of a full key (prefix, partition, and what stands for the user's key) and a stored entry. Most
portions consist of small entries of a few partitions, for which nothing has to be done entry by entry. Must not know
where entries go.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shmjet._native import survey_entries
from shmjet.grid.blobs import INLINE_LIMIT, STAGED_BYTES
from shmjet.grid.layout import PARTITION
from shmjet.grid.times import EXT_32, TIMED

STAGED = 5
"""Extension code of a large value that was brought in pieces, before its entry (`BlobStore.stage`)."""
STAGED_PLACE = struct.Struct(f"<{STAGED_BYTES}sQ")
"""What stands for a file that was brought in pieces: its number, and its bytes."""
STAGED_HEAD = EXT_32.pack(0xC9, STAGED_PLACE.size, STAGED)
STAGED_BACK = STAGED_PLACE.size + len(STAGED_HEAD)
"""So far before its end an entry has that head, whose value was brought in pieces."""

Run = tuple[int, int, int]
"""A partition, and the bounds of the places of its entries."""


class Survey(NamedTuple):
    """What is known of a portion.

    Args:
        runs: entries of one partition that follow each other: its number, and the bounds of their places.
        prefix: of all keys; None where they have several, and of no entries.
        size: bytes of all keys and stored entries.
        longest_key: bytes of the longest key, with its prefix.
        longest_value: bytes of the longest stored entry.
        has_staged: whether an entry may stand for a large value that was brought before; see `carried`.
        are_plain: whether each stored entry is certain to be a key and a value without times.
    """

    runs: list[Run]
    prefix: bytes | None
    size: int
    longest_key: int
    longest_value: int
    has_staged: bool
    are_plain: bool

    @property
    def partitions(self) -> set[bytes]:
        """The partitions, packed."""
        return {PARTITION.pack(partition) for partition, _, _ in self.runs}

    @property
    def may_have_large(self) -> bool:
        """Whether `carried.may_be_large` holds for one of the entries."""
        return self.has_staged or self.longest_value > INLINE_LIMIT


def survey(entries: list[tuple[bytes, bytes]]) -> Survey:
    """Return what is known of entries. Raises TypeError if a key has no more than prefix and partition.

    Example:
        >>> survey([(b"....\\x00\\x07sa", b"\\x92\\xa1a\\x01"), (b"....\\x00\\x07sb", b"\\x92\\xa1b\\x02")]).runs
        [(7, 0, 2)]
    """
    return Survey._make(survey_entries(entries, STAGED_HEAD, STAGED_BACK, TIMED))


def portions(
    entries: list[tuple[bytes, bytes]], most_bytes: int, most_entries: int
) -> Iterator[tuple[list[tuple[bytes, bytes]], Survey]]:
    """Yield entries in portions, and what is known of each.

    A portion has so many entries at most, and ends with the entry that reaches so many bytes.

    Example:
        >>> entry = (b"....\\x00\\x07sa", b"\\x92\\xa1a\\x01")
        >>> [len(portion) for portion, _ in portions([entry] * 5, 100, 2)]
        [2, 2, 1]
    """
    for at in range(0, len(entries), most_entries):
        some = entries[at : at + most_entries] if len(entries) > most_entries else entries
        found = survey(some)
        if found.size <= most_bytes:
            yield some, found
            continue
        portion: list[tuple[bytes, bytes]] = []
        size = 0
        for entry in some:
            portion.append(entry)
            size += len(entry[0]) + len(entry[1])
            if size >= most_bytes:
                yield portion, survey(portion)
                portion, size = [], 0
        if portion:
            yield portion, survey(portion)
