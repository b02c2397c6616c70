"""Deleting what dropped incarnations have left behind: entries, blocks, journals and the records that go with them.

A dropped incarnation has a garbage record until everything of it is deleted. Several processes may do so at once, each
a few milliseconds at a time, and each may die half way.
"""

from __future__ import annotations

from collections.abc import Callable

from shmjet.grid.blobs import BlobStore
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.layout import END_RECORD, GARBAGE_RECORD, LOG_RECORD, PARTITION_RECORD, USE_RECORD

NamesIn = Callable[[bytes], list[bytes]]
"""Gives the names of the blobs that a stored value needs."""
SWEEP_ENTRIES = 4096
EVENTS = b"e"
"""The kind of garbage that a journal is."""
_BY_INCARNATION = (PARTITION_RECORD, END_RECORD, USE_RECORD, LOG_RECORD)
"""Records that go with an incarnation."""


def sweep(env: Environment, prefix: bytes, blobs: BlobStore, names_in: NamesIn) -> None:
    """Delete what is left of a dropped incarnation."""
    record_key = GARBAGE_RECORD + prefix

    def work(txn: Transaction) -> tuple[bool, list[bytes]]:
        kind = txn.get(record_key)
        if kind is None:
            return True, []
        names: list[bytes] = []
        left = SWEEP_ENTRIES
        with txn.cursor() as cursor:
            for head in (prefix, *(catalogue + prefix for catalogue in _BY_INCARNATION)):
                cursor.set_range(head)
                while left and cursor.key()[: len(head)] == head:
                    if kind and head is prefix:
                        names += names_in(cursor.value())
                    cursor.delete()
                    left -= 1
        if left:
            txn.delete(record_key)
        return left > 0, names

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
