"""Checks an operation of another host before it touches the store: could a client have sent it?

A stored value is read by the kind of its record: a map's as a msgpack entry, a list's as a block. So what writes must
match the record that it names, and a key must stay inside the map or list: a key with a prefix of its own would reach
the catalogue, or a list through a map.
"""

from __future__ import annotations

from typing import Any

from shmjet.core.map_config import config_of
from shmjet.grid.carried import CARRIED_BLOCK, STAGED_BLOCK
from shmjet.grid.entries import BLOB_BLOCK, BLOCK_HEAD, COLUMNS_BLOCK, PICKLE_BLOCK
from shmjet.grid.errors import GridError
from shmjet.grid.layout import INCARNATION, LIST_RECORD, MAP_RECORD, MAX_KEY, MAX_NAME, PARTITION, Layout, name_of
from shmjet.grid.operations import (
    NO_PREFIX,
    Add,
    Append,
    BlockOf,
    Counts,
    Drop,
    DropPartitions,
    Find,
    FindAll,
    Pop,
    ReadLog,
    ReadPage,
    ReadPartitions,
    Replace,
    Size,
    Sizes,
    Swap,
    Write,
)
from shmjet.grid.portions import survey
from shmjet.grid.times import times_of
from shmjet.ipc.decode_errors import UNREADABLE

MOST_ITEMS = 1 << 31
"""Items of one block, at most: more than a block can hold, and few enough that no index overflows."""

OF_MAPS = (Sizes, ReadLog, Find, FindAll, Write, Replace, Swap, Add, Pop, Counts, ReadPartitions, DropPartitions)
OF_LISTS = (Append, BlockOf)
OF_BOTH = (Size, Drop, ReadPage)
_BLOCKS = (COLUMNS_BLOCK, PICKLE_BLOCK, BLOB_BLOCK, CARRIED_BLOCK, STAGED_BLOCK)


def check_operation(operation: Any, layout: Layout) -> None:
    """Check an operation on a map or a list.

    Args:
        operation: decoded; it names a record.
        layout: of the store.

    Raises:
        GridError: the record is that of no map and no list, the operation is not one for its kind, a key is none of
            such a map, an entry is not one or has times of its own, a map without a journal is asked for it, or a
            block says a number of items that it cannot have.
    """
    if not 0 <= operation.environment < layout.environments:
        raise GridError(f"the store has no environment {operation.environment}")
    kind = operation.record[: len(MAP_RECORD)]
    if kind not in (MAP_RECORD, LIST_RECORD) or not _is_name(operation.record[len(kind) :]):
        raise GridError("this is the record of no map and no list")
    if not isinstance(operation, OF_BOTH + (OF_MAPS if kind == MAP_RECORD else OF_LISTS)):
        name = "map" if kind == MAP_RECORD else "list"
        raise GridError(f"a {name} does not do {type(operation).__name__}")
    match operation:
        case Write():
            if not _are_right(operation, layout):
                for key, entry in operation.entries:
                    if not key.startswith(NO_PREFIX):
                        raise GridError("a remote key has a prefix of its own")
                    _check_key(key[len(NO_PREFIX) :], operation.environment, layout)
                    _check_entry(entry)
            for key in operation.gone:
                _check_key(key, operation.environment, layout)
        case Replace() | Swap() | Add():
            _check_key(operation.key, operation.environment, layout)
            if operation.value is not None:
                _check_entry(operation.value)
        case Pop():
            _check_key(operation.key, operation.environment, layout)
        case ReadLog():
            if not config_of(name_of(operation.record), layout.maps).journal_capacity:
                raise GridError("the map keeps no journal")
        case Append():
            for count, block in operation.blocks:
                _check_block(count, block)


def _is_name(name: bytes) -> bool:
    try:
        name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return 0 < len(name) <= MAX_NAME


def _are_right(operation: Write, layout: Layout) -> bool:
    """Say whether all entries are right for certain, without a look at each."""
    try:
        found = survey(operation.entries)
    except TypeError:
        return False
    return (
        found.are_plain
        and found.prefix == NO_PREFIX
        and found.longest_key <= MAX_KEY
        and all(
            partition < layout.partition_count and partition % layout.environments == operation.environment
            for partition, _, _ in found.runs
        )
    )


def _check_key(key: bytes, environment: int, layout: Layout) -> None:
    """Check a key without prefix: its partition is one of the environment, and more follows."""
    partition = PARTITION.unpack_from(key)[0] if len(key) > PARTITION.size else layout.partition_count
    right = partition < layout.partition_count and partition % layout.environments == environment
    if not right or INCARNATION.size + len(key) > MAX_KEY:
        raise GridError(f"{key[:40]!r} is not a key of a map in environment {environment}")


def _check_entry(entry: bytes) -> None:
    """Check that it is a key and a value without a trailer, which only the store gives."""
    try:
        times = times_of(entry)
    except UNREADABLE as error:
        raise GridError(f"{entry[:40]!r} is not an entry of a map: {error}") from error
    if times is not None:
        raise GridError("a remote entry has times of its own")


def _check_block(count: int, block: bytes) -> None:
    if len(block) < BLOCK_HEAD.size:
        raise GridError(f"{block!r} is not a block of a list")
    kind, items = BLOCK_HEAD.unpack_from(block)
    if kind not in _BLOCKS or items != count or not 0 < count < MOST_ITEMS:
        raise GridError(f"a block of kind {kind} with {items} items was sent as one of {count}")
