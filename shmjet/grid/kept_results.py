"""The results of operations that other processes ask for, kept so that what is asked again is not done again.

A client numbers its operations, and says with each below which number all have been answered. If an operation changes
something, its result is kept in the transaction of the change, until its answer is known to have come. So a retry finds
either nothing done, or the first result; and a late copy of an operation that has been answered does nothing. Results
belong to a partition: what an operation did to one is known there. Must not know which operations there are.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shmjet.data.decoders import from_msgpack
from shmjet.grid.environment import Transaction
from shmjet.grid.errors import GridError
from shmjet.grid.layout import CLIENT_RECORD, PARTITION, TIME
from shmjet.grid.times import now

if TYPE_CHECKING:
    from shmjet.grid.change_log import Recorder

CLIENT_BYTES = 16
"""Bytes of the random identity of who asks."""
KEEP_NS = 600 * 10**9
"""For so long results of a silent client are kept; a later retry is told that the outcome is unknown."""
FORGET_NS = 6 * KEEP_NS
"""After so long nothing is known of it any more."""

_CLIENT = struct.Struct(">QQ")
_RESULT = struct.Struct(">Q")
_encode = msgspec.msgpack.Encoder().encode
_decode = from_msgpack


class OperationId(NamedTuple):
    """An operation, and its client.

    Args:
        client: the identity of the client, in `CLIENT_BYTES` bytes.
        number: of the operation; from 1, each has its own.
        answered: all operations below this number have been answered.
    """

    client: bytes
    number: int
    answered: int


class Kept(NamedTuple):
    """The result that an operation had when it was done."""

    result: Any


def kept(txn: Transaction, operation: OperationId, partition: bytes) -> Kept | None:
    """Return the result of an operation on a partition if it has been done, else None.

    Args:
        txn: the transaction that will do it.
        operation: which one.
        partition: packed.

    Raises:
        GridError: it was answered before, or its result is not kept any more.
    """
    head = CLIENT_RECORD + partition + operation.client
    found = txn.get(head + _RESULT.pack(operation.number))
    if found is not None:
        return Kept(_decode(found))
    client = txn.get(head)
    if client is not None and operation.number < _CLIENT.unpack(client)[1]:
        raise GridError("this operation comes too late: its outcome is unknown, and it is not done now")
    return None


def keep(
    txn: Transaction, operation: OperationId, partition: bytes, result: object, recorder: Recorder | None = None
) -> None:
    """Keep the result of an operation, in the transaction that does it, and forget the answered ones.

    Args:
        txn: the transaction.
        operation: which one.
        partition: packed.
        result: to keep.
        recorder: notes for backups what is kept and forgotten.
    """
    head = CLIENT_RECORD + partition + operation.client
    client, moment = txn.get(head), now()
    answered = operation.answered
    if client is None:
        _forget_old(txn, partition, moment, recorder)
    else:
        answered = max(answered, _CLIENT.unpack(client)[1])
        _delete_results(txn, head, answered, recorder)
    _put(txn, head, _CLIENT.pack(moment, answered), recorder)
    _put(txn, head + _RESULT.pack(operation.number), _encode(result), recorder)


def _put(txn: Transaction, key: bytes, value: bytes | None, recorder: Recorder | None) -> None:
    """Write a record, or delete it for None."""
    if value is None:
        txn.delete(key)
    else:
        txn.put(key, value)
    if recorder is not None:
        recorder.catalogued(key[len(CLIENT_RECORD) :][: PARTITION.size], key, value)


def _delete_results(txn: Transaction, head: bytes, below: int, recorder: Recorder | None) -> int:
    """Delete the results of one client's operations below a number, and return the number behind the last of them."""
    following = 0
    with txn.cursor() as cursor:
        cursor.set_range(head + TIME.pack(0))
        while cursor.key()[: len(head)] == head:
            number = _RESULT.unpack(cursor.key()[len(head) :])[0]
            if number >= below:
                break
            following = number + 1
            if recorder is not None:
                recorder.catalogued(head[len(CLIENT_RECORD) :][: PARTITION.size], cursor.key(), None)
            cursor.delete()
    return following


def _forget_old(txn: Transaction, partition: bytes, moment: int, recorder: Recorder | None) -> None:
    """Forget what clients have left behind that have not changed anything for long."""
    for head, client in _clients(txn, partition):
        last, answered = _CLIENT.unpack(client)
        if moment - last < KEEP_NS:
            continue
        answered = max(answered, _delete_results(txn, head, 1 << 64, recorder))
        if moment - last < FORGET_NS:
            _put(txn, head, _CLIENT.pack(last, answered), recorder)
        else:
            _put(txn, head, None, recorder)


def _clients(txn: Transaction, partition: bytes) -> list[tuple[bytes, bytes]]:
    """Return the records of all clients of a partition, with their keys."""
    found: list[tuple[bytes, bytes]] = []
    kind = CLIENT_RECORD + partition
    with txn.cursor() as cursor:
        there = cursor.set_range(kind)
        while there and cursor.key()[: len(kind)] == kind:
            found.append((cursor.key(), cursor.value()))
            there = cursor.set_range(found[-1][0] + b"\xff" * (_RESULT.size + 1))
    return found
