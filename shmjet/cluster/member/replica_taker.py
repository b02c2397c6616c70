"""Takes what primaries on other members send to the backups here, one message after the other, and answers it.

A few changes for which nothing has to be waited for are taken on the member's loop; else a thread takes them. Each
message is taken once, whatever way and however often it comes. Rules: `docs/design/0031-replication.md`. Must not know
when partitions open and close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import msgspec

from shmjet.cluster.membership.peer_messages import AgreeOnTails, ChangesTaken, ShipChanges
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.errors import GridError
from shmjet.grid.partition_copy import PartitionCopy, Piece
from shmjet.grid.replica import Replica, Sent
from shmjet.grid.store import Opened

Result = TypeVar("Result")
Tails = list[tuple[str, int, Sent]]
Way = Callable[[object], None]
"""Sends an answer the way that a message came."""

NO_BACKUP = "this member has no backup of a partition"
SHORT_BYTES = 1 << 14
"""Changes of more bytes are taken in a thread."""
_REFUSED = (GridError, OSError, msgspec.MsgspecError)

encode_tails = msgspec.msgpack.Encoder().encode
decode_tails = msgpack_decoder(Tails).decode
_decode_piece = msgpack_decoder(Piece).decode
_decode_sent = msgpack_decoder(list[Sent]).decode


class NetworkOfTaker(Protocol):
    """The member's network, as far as changes of other members are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    def send(self, identity: str, message: object) -> None: ...


class ReplicaTaker:
    """See the module.

    Args:
        network: of the member.
        opened: gives its store.
        replica: gives what takes changes there.
        has: says whether all of a closed partition is here.
    """

    def __init__(
        self,
        network: NetworkOfTaker,
        opened: Callable[[], Opened],
        replica: Callable[[], Replica],
        has: Callable[[int], bool],
    ) -> None:
        self._network = network
        self._opened = opened
        self._replica = replica
        self._has = has
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmjet-replica")
        self._ways: dict[str, Way | None] = {}
        self._done: dict[tuple[str, type], ChangesTaken] = {}
        """By sender and kind: the answer to its last message."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.taking = asyncio.Lock()
        """Held while anything is taken from another member."""

    async def stop(self) -> None:
        """Take nothing more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown()

    def forget(self) -> None:
        """Take that this member is not who was asked before."""
        self._done.clear()

    def receive(self, sender: str, message: ShipChanges | AgreeOnTails, way: Way | None) -> None:
        """Take what a replicator asks for; it is answered the way that it came, where that is known."""
        self._ways[sender] = way
        if isinstance(message, ShipChanges) and self._taken_at_once(sender, message):
            return
        task = asyncio.create_task(self._take(sender, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _taken_at_once(self, sender: str, message: ShipChanges) -> bool:
        """Take a few changes now if nothing has to be waited for, and say whether that was done.

        A thread would take longer to be woken.
        """
        if self._tasks or self.taking.locked() or message.piece or len(message.sent) > SHORT_BYTES:
            return False
        done = self._done.get((sender, ShipChanges))
        if done is not None and message.number <= done.number:
            return False
        try:
            self._check(sender, message)
            sent, replica = self._sent(message), self._replica()
            if not replica.takes_no_time(sent):
                return False
            replica.take(sender, message.backed_up, sent, message.moment)
            error = ""
        except _REFUSED as failure:
            error = _text(failure)
        self._answer(sender, message, ChangesTaken(message.number, error))
        return True

    def _answer(self, sender: str, message: ShipChanges | AgreeOnTails, answer: ChangesTaken) -> None:
        self._done[sender, type(message)] = answer
        way = self._ways.get(sender)
        if way is None:
            self._network.send(sender, answer)
        else:
            way(answer)

    async def _take(self, sender: str, message: ShipChanges | AgreeOnTails) -> None:
        async with self.taking:
            done = self._done.get((sender, type(message)))
            if done is not None and message.number < done.number:
                return
            if done is None or message.number > done.number:
                try:
                    tails = await self._take_now(sender, message)
                    done = ChangesTaken(message.number, "", tails)
                except _REFUSED as error:
                    done = ChangesTaken(message.number, _text(error))
        self._answer(sender, message, done)

    def _check(self, sender: str, message: ShipChanges | AgreeOnTails) -> None:
        table = self._network.table
        if table is None or table.epoch != message.epoch or sender not in table.members:
            raise GridError("this member has another table of partitions")

    def _sent(self, message: ShipChanges) -> list[Sent]:
        """Return the changes of a message, which have to be of partitions that are here."""
        sent = _decode_sent(message.sent)
        if not all(self._has(group[0]) for record in sent for group in record.groups):
            raise GridError(NO_BACKUP)
        return sent

    async def _take_now(self, sender: str, message: ShipChanges | AgreeOnTails) -> bytes:
        self._check(sender, message)
        if isinstance(message, AgreeOnTails):
            return await self._agree_as_backup(message)
        if message.piece:
            piece, copy = _decode_piece(message.piece), PartitionCopy(self._opened())
            await self.do(lambda: copy.take(piece))
        if message.sent:
            sent, replica = self._sent(message), self._replica()
            await self.do(lambda: replica.take(sender, message.backed_up, sent, message.moment))
        return b""

    async def take_for_copy(self, sent: list[Sent], moment: int) -> None:
        """Take changes that came after what a copy was made of; see `Replica.take_for_copy`."""
        async with self.taking:
            replica = self._replica()
            await self.do(lambda: replica.take_for_copy(sent, moment))

    async def _agree_as_backup(self, message: AgreeOnTails) -> bytes:
        if not all(map(self._has, message.partitions)):
            raise GridError(NO_BACKUP)
        replica, found = self._replica(), decode_tails(message.tails)
        await self.do(lambda: replica.take_tails(found))
        return encode_tails(replica.tails_of(message.partitions, message.positions))

    async def do(self, work: Callable[[], Result]) -> Result:
        """Do something that blocks with the replica; `taking` has to be held."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
