"""Copies partitions to another member while they are written to: what they hold first, then what has changed meanwhile.

From the beginning on all changes of the partitions are noted in the log of changes, so that a copy that was read bit
by bit and then took these changes is as the partitions are. When little is left, the other member joins the backups,
which are told of the rest. The partitions stay open all the time. Must not know when partitions open and close.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from shmjet.cluster.member.copy_stream import CopyFailed, CopyStream
from shmjet.cluster.member.local_partitions import LocalPartitions
from shmjet.cluster.membership.peer_messages import CopyPartitions
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.grid.change_log import READ_BYTES, note_changes
from shmjet.grid.parcels import parcels
from shmjet.grid.partition_copy import PIECE_BYTES, Classes, PartitionCopy, Piece
from shmjet.grid.replica import Term
from shmjet.grid.shipping import Shipping
from shmjet.grid.store import Opened
from shmjet.grid.times import now

BATCH, BATCH_BYTES = 16, 64 << 20
"""What is copied at the same time: at least so many partitions, and more up to so many bytes."""
_FEW_BYTES = 1 << 16
"""Of changes: so many may be left when the other member joins the backups."""
PIECES_OF_LINE = 4
"""Pieces that are read, sent and stored together by a connection for copies: each time threads have to be woken."""
_ROUNDS = 100
"""How often changes are sent before that, however many are left."""
_PATIENT_ROUNDS, _PATIENCE_S = 30, 5.0
"""How often, and for how long, a few of them are sent, with pauses, while others write: who writes much is not caught
up with so."""

_encode = msgspec.msgpack.Encoder().encode


def first_batch(waiting: Sequence[int], stored: int, size: int) -> Sequence[int]:
    """Return those of the waiting partitions that are copied together, by the average of the store.

    Args:
        waiting: what is to be copied, in order.
        stored: how many partitions the store has.
        size: of the store in bytes; 0: nothing.

    Example:
        >>> first_batch(range(271), 271, 1 << 30)
        range(0, 16)
        >>> first_batch(range(271), 271, 1 << 28)
        range(0, 67)
    """
    return waiting[: max(BATCH, BATCH_BYTES * stored // size)] if size else waiting


class NetworkOfCopier(Protocol):
    """The member's network, as far as a copy is concerned."""

    @property
    def table(self) -> PartitionTable | None: ...


class Copier:
    """One copy of some partitions for one member.

    Args:
        network: of the member.
        here: the partitions of the member.
        shipping: knows what has changed.
        stream: leads to the other member.
        epoch: of the view.
        uuid: the other member.
        partitions: which ones.
        gives_way: whether writes of others go first.
        pieces_at_once: so many go together while others do not write.
    """

    def __init__(
        self,
        network: NetworkOfCopier,
        here: LocalPartitions,
        shipping: Shipping,
        stream: CopyStream,
        epoch: int,
        uuid: str,
        partitions: Collection[int],
        *,
        gives_way: bool,
        pieces_at_once: int = 1,
    ) -> None:
        self._network = network
        self._store: Opened = here.store()
        self._others = here.other_writes if gives_way else None
        self._copy = PartitionCopy(self._store, self._piece_bytes)
        self._do = here.do
        self._shipping = shipping
        self._stream = stream
        self._epoch = epoch
        self._uuid = uuid
        self._partitions = set(partitions)
        self._pieces_at_once = pieces_at_once

    async def begin(self, terms: dict[int, Term], *, with_classes: bool) -> None:
        """Send what the partitions hold, and most of what changes meanwhile.

        Args:
            terms: of the partitions.
            with_classes: whether the other member may lack classes.

        Raises:
            CopyFailed: the other member has not taken it, or the members have changed.
        """
        store, some = self._store, self._partitions
        self._shipping.keep_all()
        numbers = await self._do(lambda: note_changes(store.environments, some, are_copied=True))
        self._shipping.begin_copy(self._uuid, some, numbers)
        await self._send(begin=sorted(some))
        if with_classes:
            await self._send(_encode([await self._do(self._copy.classes)]))
        await self._send_pieces(self._copy.pieces(some))
        await self._send(terms=terms, numbers=numbers)
        until = time.monotonic() + _PATIENCE_S
        for number in range(_ROUNDS):
            began = time.monotonic()
            if number >= _PATIENT_ROUNDS or began >= until:
                self._others = None
            size = await self._send_changes(READ_BYTES if self._others is None else self._piece_bytes())
            await self._stream.finish()
            if size < _FEW_BYTES:
                break
            if self._others is not None:
                await self._others.give_way(time.monotonic() - began)

    def join(self) -> None:
        """Have the other member be told of what has changed since as backups are; it has taken everything before."""
        self._shipping.join(self._uuid, self._partitions)

    def end(self) -> None:
        """Keep no changes for the copy any more, whether it is complete or not."""
        self._shipping.end_copy(self._uuid)

    async def give_up(self) -> None:
        """Note no changes of the partitions for the copy any more; they may be open."""
        environments, some = self._store.environments, self._partitions
        await self._do(lambda: note_changes(environments, some, are_copied=False))

    def _piece_bytes(self) -> int:
        return PIECE_BYTES if self._others is None else self._others.piece_bytes()

    def _parcel_bytes(self) -> int:
        size = self._piece_bytes()
        return self._pieces_at_once * size if size == PIECE_BYTES else size

    async def _send_changes(self, limit: int) -> int:
        """Send changes, of about so many bytes at most, and return of how many bytes they are.

        A file may be gone before it is sent. What removes its entry is in the log then, and is taken before the copy
        counts; until that no one looks for the file.
        """
        batch = self._shipping.changes_since(self._uuid, limit)
        if batch is None:
            return 0
        for name in batch.files:
            await self._send_pieces(self._copy.file(name))
        classes = _encode([Classes(batch.classes)]) if batch.classes else b""
        sent = _encode(batch.sent)
        await self._send(classes, sent=sent, moment=now())
        self._shipping.copy_went_on(self._uuid, batch)
        return len(sent)

    async def _send_pieces(self, pieces: Iterable[Piece]) -> None:
        """Send pieces, and read the next ones meanwhile."""
        some = parcels(pieces, self._parcel_bytes)
        reading = self._read(some)
        try:
            began = time.monotonic()
            while (parcel := await reading) is not None:
                reading = self._read(some)
                await self._send(parcel)
                if self._others is not None and self._others.are_there():
                    await asyncio.wait({reading})
                    await self._others.give_way(time.monotonic() - began)
                began = time.monotonic()
        finally:
            await asyncio.wait({reading})
            if not reading.cancelled():
                reading.exception()  # of a copy that has failed otherwise

    def _read(self, some: Iterator[bytearray]) -> asyncio.Future[bytearray | None]:
        return asyncio.ensure_future(self._do(lambda: next(some, None)))

    async def _send(self, parcel: bytes | bytearray = b"", *, begin: list[int] | None = None, **fields: Any) -> None:
        table = self._network.table
        if table is None or table.epoch != self._epoch:
            raise CopyFailed("the members have changed")
        await self._stream.send(CopyPartitions(self._epoch, 0, begin or [], **fields), parcel)
