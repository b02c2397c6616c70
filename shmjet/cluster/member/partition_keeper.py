"""The keeper of a member's partitions: opens, closes, copies and removes them as the table of partitions says.

The table (`cluster.partitions`) says which member is the primary of a partition, which ones have a backup, and which
are getting one. The keeper of the primary copies the partition while it is open (`copier`); then the other member is
told of changes as backups are (`replicator`), and when it has what all have, that is reported (SYNCED). If it is to be
the primary, the partition is closed, and reported to be (HANDED_OVER); when the table says so, the other keeper opens
it. So at most one member has a partition open, and what was acknowledged
there is on all backups. With a new view everything begins anew from what the table then says.
`docs/design/0029-data-on-all-members.md` and `0031-replication.md` have the rules. Must not know clients, nor what
partitions hold.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from shmjet.cluster.member.comparer import Comparer
from shmjet.cluster.member.copy_lines import CopyLines
from shmjet.cluster.member.copy_stream import CopyFailed, CopySender, CopyTaker
from shmjet.cluster.member.expiry import Expiry
from shmjet.cluster.member.known_backups import KnownBackups
from shmjet.cluster.member.local_partitions import LocalPartitions
from shmjet.cluster.member.partition_mover import PartitionMover
from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk
from shmjet.cluster.member.replicator import NetworkOfReplicator, NoBackup, NotTaken, Replicator
from shmjet.cluster.membership.peer_messages import (
    AgreeOnTails,
    ChangesTaken,
    CompareSums,
    CopiedPartitions,
    CopyPartitions,
    ShipChanges,
)
from shmjet.cluster.partitions.table import Change, Event, PartitionTable
from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.errors import GridError
from shmjet.grid.lease import RENEW_S, Lease
from shmjet.grid.parcels import decode_parcel
from shmjet.grid.replica import Sent
from shmjet.grid.times import now
from shmjet.ipc.background_tasks import BackgroundTasks

_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
"""When a copy is tried again; each time the pause is doubled, as there may be no room for it."""
_LEAVE_S = 60.0
"""How long a leaving member tries to hand its partitions over."""
_decode_sent = msgpack_decoder(list[Sent]).decode

logger = logging.getLogger("shmjet.member")


class NetworkOfKeeper(Protocol):
    """The member's network, as far as partitions are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    @property
    def is_cut_off(self) -> bool: ...
    def send(self, identity: str, message: object) -> None: ...
    def report(self, changes: Iterable[Change]) -> None: ...
    async def reach(self, identities: Sequence[str]) -> None: ...


class PartitionKeeper:
    """See the module.

    Args:
        network: of the member.
        lines: that part of it which brings changes to backups.
        folder: of the store.
        me: gives the member's identity.
        connect: makes a connection for copies to a member, see `CopyLines`; None: copies go by the network.
        disk: knows the partitions of a store that is kept on disk; None: it is not.
    """

    def __init__(
        self,
        network: NetworkOfKeeper,
        lines: NetworkOfReplicator,
        folder: Path,
        me: Callable[[], str],
        connect: Callable[[str], Awaitable[socket.socket | None]] | None = None,
        disk: PartitionsOnDisk | None = None,
    ) -> None:
        self._network = network
        self._me = me
        self._wake = asyncio.Event()
        self._looked = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._sender = CopySender(network)
        self._taker = CopyTaker(network.send, self._take)
        self._lines: CopyLines | None = None
        if connect is not None:
            answered, lost = self._sender.answered, self._sender.connection_lost
            self._lines = CopyLines(connect, self._take_by_line, answered, lost)
        self._is_moving = False
        self._moves_at = 0.0
        """When copies may be begun, after a copy that has failed."""
        self._began: tuple[int, list[int]] = 0, []
        """The first table of a view: its epoch, and the places of primaries."""
        self._leaving = False
        self._free = asyncio.Event()
        self._disk = disk
        self._is_over = False
        """Whether all members are leaving, so that each keeps what it has."""
        self._lease: Lease | None = None
        self._replicator: Replicator
        note = None if disk is None else self._note_what_is_here
        self._here = LocalPartitions(folder, lambda: self._replicator, self._still_led, note)
        self._backups = KnownBackups(network, me, self._here, lambda: self._replicator)
        has, late = self._here.closed.__contains__, self._backups.look_for_late
        self._replicator = Replicator(lines, self._here.store, has, late)
        self._mover = PartitionMover(
            network, self._here, self._backups, self._replicator, self._sender, self._lines, self._is_followed
        )
        self._expiry = Expiry(self._here.store)
        self._comparer = Comparer(
            network,
            self._replicator,
            self._here.store,
            lambda: self._backups.terms,
            lambda: self._backups.rows,
            self._backups.differs,
        )
        self._begin("", 0)

    @property
    def _is_waiting(self) -> bool:
        return self._disk is not None and self._disk.waits

    def _begin(self, me: str, epoch: int) -> None:
        self._now = me, epoch
        self._sealed: set[int] = set()
        """Partitions that are closed to be handed over."""
        self._complete: set[int] = set()
        """Partitions that this member has completely, by the last table."""
        self._failures = 0
        self._backups.reported.clear()
        self._mover.has_classes.clear()

    def _words(self) -> memoryview:
        words: memoryview = self._here.store().environment(0).announced
        return words

    def _renew(self) -> None:
        if self._lease is None:
            self._lease = Lease(self._words())
        table = self._network.table
        self._lease.renew(now(), is_member=table is not None and self._me() in table.members)

    async def _go_on_renewing(self) -> None:
        while True:
            self._renew()
            self._replicator.look()
            await asyncio.sleep(RENEW_S)

    def start(self) -> None:
        """Begin; needs the running loop."""
        self._tasks.start(self._go_on_renewing())
        self._tasks.start(self._run())
        self._tasks.start(self._comparer.run())
        self._tasks.start(self._expiry.run())
        self.look()

    def look(self) -> None:
        """Take that there is another table."""
        table = self._network.table
        if self._leaving and table is not None and len(table.leaving) == len(table.members):
            self._is_over = True  # what follows is about members that are still there for a moment
        if table is not None and table.stamp == 0:
            self._began = table.epoch, table.primaries()
        if self._lease is not None:
            self._renew()
        self._wake.set()
        self._looked.set()
        self._tasks.start(self._backups.look())

    def backed_up(self, environment: int, number: int) -> asyncio.Future[None] | None:
        """Return what is done when all backups have what has been changed, see `Replicator.settling`."""
        return self._replicator.settling(environment, number)

    async def opened(self) -> None:
        """Wait until no member with partitions on its disk is waited for."""
        while (table := self._network.table) is None or table.is_waiting:
            self._looked.clear()
            await self._looked.wait()

    async def settled(self, patience: float) -> None:
        """Wait until all partitions are where they should be, or for so many seconds."""
        try:
            async with asyncio.timeout(patience):
                while (table := self._network.table) is None or not table.is_settled:
                    self._looked.clear()
                    await self._looked.wait()
        except TimeoutError:
            logger.info("partitions are still on their way")

    async def leave(self) -> None:
        """Hand all partitions over to members that stay; return when that is done, or cannot be done."""
        self._leaving = True
        self.look()
        try:
            await asyncio.wait_for(self._free.wait(), _LEAVE_S)
        except TimeoutError:
            logger.error("this member leaves with %d partitions that no other one has taken", len(self._here.open))
        table, me = self._network.table, self._me()
        if self._disk is not None and table is not None and not table.is_waiting and table.is_free(me):
            await self._here.do(self._disk.forget)

    def forget(self) -> None:
        """Remove everything: this member is not who had it any more. Blocks.

        What is on disk stays while the cluster waits for it.
        """
        self._begin("", 0)
        if self._is_waiting:
            return
        if self._disk is not None:
            self._disk.forget()
        self._here.forget()
        self._backups.forget()
        self._replicator.forget()

    async def stop(self) -> None:
        """Let go of the store."""
        await self._tasks.cancel()
        if self._lines is not None:
            await self._lines.stop()
        await self._replicator.stop()
        self._comparer.stop()
        self._expiry.stop()
        self._here.stop()

    # -- what the table asks for --------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._try(self._follow)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (CopyFailed, NotTaken, GridError, OSError) as error:
            after = min(_LONGEST_PAUSE_S, _PAUSE_S * 2**self._failures)
            self._failures = min(self._failures + 1, 10)
            level = logging.DEBUG if after < 1 else logging.WARNING
            logger.log(level, "partitions could not be moved: %s; they are tried again in %.1f s", error, after)
            self._look_later(after)
        except Exception:
            logger.exception("the keeper of partitions has failed, and goes on")
            self._look_later(_LONGEST_PAUSE_S)

    def _look_later(self, after: float) -> None:
        loop = asyncio.get_running_loop()
        self._moves_at = loop.time() + after
        loop.call_later(after, self.look)

    async def _follow(self) -> None:
        """Do what the table in force asks of this member."""
        table, me = self._network.table, self._me()
        if table is None and self._here.open and self._network.is_cut_off:  # others may go on with what is open here
            await self._here.close(set(self._here.open))
        if table is None or me not in table.members:
            if self._leaving:
                self._free.set()
            return
        if self._is_over or table.is_waiting:
            if self._leaving:
                self._free.set()
            return
        place = table.members.index(me)
        if self._disk is not None:
            await self._note_on_disk(self._disk, table, me)
            if self._network.table is not table:  # copies may have been taken by a newer one, and would count no more
                self.look()
                return
        self._look_at_view(table, me)
        mine = {partition for partition, row in enumerate(table.synced) if row[0] == place}
        going = self._going(table)
        self._sealed = set(going)
        await self._here.close(self._here.open.keys() - (mine - self._sealed))
        self._backups.leave_off(self._backups.terms.keys() - mine)
        if self._network.table is not table:
            self.look()
            return
        self._replicator.replica.forget_tails(table.members.__contains__)
        await self._backups.follow()
        await self._lead(table, mine - self._sealed - self._here.open.keys())
        self._report_leaving(table, me)
        await self._hand_over(table, going)
        rows = zip(table.synced, table.copying, strict=True)
        unused = self._here.stored - {p for p, (held, coming) in enumerate(rows) if place in (*held, *coming)}
        await self._here.drop(unused, lambda: self._network.table is table)
        if self._network.table is not table:  # what is reported has been compared with the new one
            self.look()
            return
        if self._is_moving or asyncio.get_running_loop().time() < self._moves_at:
            return  # it is looked again then
        uuid = self._mover.next(table, mine)
        if uuid is not None:
            self._is_moving = True
            self._tasks.start(self._try(partial(self._move, table, mine, uuid)))
        elif self._lines is not None:
            self._lines.let_go()

    async def _move(self, table: PartitionTable, mine: Collection[int], uuid: str) -> None:
        """Copy some partitions, while tables are followed."""
        try:
            if await self._mover.move(table, mine, uuid, lambda: self._sealed, is_urgent=self._leaving):
                self._failures = 0
        finally:
            self._is_moving = False
        self.look()

    def _look_at_view(self, table: PartitionTable, me: str) -> None:
        """Give up what counted in an older view, or by an older table."""
        place = table.members.index(me)
        complete = {partition for partition, row in enumerate(table.synced) if place in row}
        if (me, table.epoch) != self._now:
            self._begin(me, table.epoch)
            for partition in self._here.closed.keys() - complete:
                del self._here.closed[partition]
        for partition in self._complete - complete:  # what it had counts no more
            self._here.closed.pop(partition, None)
        self._complete = complete

    async def _note_on_disk(self, disk: PartitionsOnDisk, table: PartitionTable, me: str) -> None:
        """Note a table before anything is done by it; the first one says whether what is on disk counts."""
        if disk.waits:
            self._here.stored = set(range(table.count))
            self._here.closed.clear()
            self._here.closed.update(disk.take_up(me, table))
        lineages = {**self._here.closed, **self._here.open}
        await self._here.do(lambda: disk.note(me, table, lineages))

    async def _note_what_is_here(self) -> None:
        """Note what is here before it is opened."""
        table, me = self._network.table, self._me()
        if self._disk is not None and table is not None and me in table.members:
            await self._note_on_disk(self._disk, table, me)

    def _report_leaving(self, table: PartitionTable, me: str) -> None:
        if not self._leaving:
            return
        if len(table.leaving) == len(table.members) or len(table.members) == 1 or self._is_free(table, me):
            self._free.set()
        elif table.members.index(me) not in table.leaving:
            self._network.report([Change(Event.LEAVING, 0, me)])

    def _is_free(self, table: PartitionTable, me: str) -> bool:
        return table.members.index(me) in table.leaving and table.is_free(me)

    def _going(self, table: PartitionTable) -> dict[int, str]:
        """Return the partitions that this member has to hand over, with who gets them.

        What is being copied is not handed over before that is over.
        """
        me = self._me()
        return {
            partition: uuid
            for partition, uuid in table.hand_overs()
            if table.primary(partition) == me and partition not in self._mover.being_copied
        }

    async def _hand_over(self, table: PartitionTable, going: dict[int, str]) -> None:
        """Report that partitions, which are closed, may be opened by other members, once these have everything."""
        if going:
            is_drained = await self._replicator.drained(table.epoch)
            current = self._network.table
            if not is_drained or current is None or current.epoch != table.epoch:
                self.look()
                return
            going = dict(going.items() & self._going(current).items())
            self._backups.leave_off(going.keys() & self._backups.terms.keys())
            self._network.report([Change(Event.HANDED_OVER, partition, uuid) for partition, uuid in going.items()])

    # -- what this member leads ---------------------------------------------------------------------------------

    def _still_led(self, partitions: Collection[int]) -> list[int]:
        """Return those of some partitions of which this member is the primary by what is in force now."""
        table, me = self._network.table, self._me()
        if table is None or me not in table.members or self._now[0] != me:
            return []
        return [partition for partition in partitions if table.primary(partition) == me]

    async def _open(self, partitions: Collection[int]) -> None:
        await self._here.open_up(partitions, lambda: self._backups.rows)

    async def _lead(self, table: PartitionTable, partitions: Collection[int]) -> None:
        """Open partitions; where this member begins to lead, with the same state as the backups that there are."""
        new = {partition for partition in partitions if partition not in self._backups.terms}
        await self._open(set(partitions) - new)
        complete = {partition for partition in new if partition in self._here.closed}
        others: dict[str, list[int]] = {}
        for partition in complete - self._handed_over(table):
            for place in table.synced[partition][1:]:
                others.setdefault(table.members[place], []).append(partition)
        waiting = {partition for some in others.values() for partition in some}
        await self._begin_to_lead(table, new - waiting)
        if waiting:
            try:
                await self._replicator.agree(table.epoch, others)
            except NoBackup as error:
                logger.error("%s was said to have backups that it has not; they are made anew", error.member)
                self._network.report([Change(Event.STALE, p, error.member) for p in others[error.member]])
                raise
            await self._begin_to_lead(table, waiting)

    def _handed_over(self, table: PartitionTable) -> set[int]:
        """Return the partitions that had another primary in this view before: their backups have had everything."""
        epoch, primaries = self._began
        if epoch != table.epoch:
            return set()
        return {partition for partition, row in enumerate(table.synced) if primaries[partition] != row[0]}

    async def _begin_to_lead(self, table: PartitionTable, partitions: Collection[int]) -> None:
        if partitions:
            async with self._replicator.taking:  # nothing of the last primary is under way any more
                if not self._is_followed(table.epoch):
                    self.look()  # the members have changed while something was waited for
                    return
                self._backups.terms.update(dict.fromkeys(partitions, table.version))
            await self._backups.follow()
            await self._open(partitions)

    def _is_followed(self, epoch: int) -> bool:
        """Say whether a view is in force, and what counts here is of that view."""
        table = self._network.table
        return table is not None and table.epoch == epoch and self._now == (self._me(), epoch)

    def connection_lost(self, uuid: str) -> None:
        """Take that the connection to a member has broken, or that the member is gone."""
        self._sender.connection_lost(uuid)
        if self._lines is not None:
            self._lines.connection_lost(uuid)

    # -- what others ask for ------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Any, way: Callable[[object], None] | None = None) -> None:
        """Take what another keeper says, and answer the way that it came, where that is known."""
        match message:
            case CopyPartitions():
                self._tasks.start(self._taker.take(sender, message))
            case ShipChanges() | AgreeOnTails() | ChangesTaken():
                self._replicator.receive(sender, message, way)
            case CompareSums():
                self._tasks.start(self._comparer.answer(sender, message))
            case CopiedPartitions():
                self._sender.answered(sender, message)

    def take_connection(self, sender: str, sock: socket.socket) -> None:
        """Take copies of a member by a connection that it has made for them."""
        if self._lines is None:
            sock.close()
        else:
            self._lines.taken(sender, sock)

    async def _take_by_line(self, sender: str, message: CopyPartitions, way: Callable[[Any], None]) -> None:
        table = self._network.table
        if table is not None and sender in table.members:
            await self._taker.take(sender, message, way)

    async def _take(self, message: CopyPartitions) -> None:
        table, me = self._network.table, self._me()
        if table is None or table.epoch != message.epoch or me not in table.members or self._is_waiting:
            raise GridError("this member has another table of partitions")
        if (me, table.epoch) != self._now:  # before a copy of this view counts, not after it
            self._look_at_view(table, me)
        place = table.members.index(me)
        sent = _decode_sent(message.sent) if message.sent else []
        changed = {group[0] for record in sent for group in record.groups}
        about = {*message.begin, *message.terms, *changed, *message.end}
        if not all(0 <= partition < table.count and place in table.copying[partition] for partition in about):
            raise GridError("this member is not getting the partition")
        if message.begin:
            await self._here.drop(self._here.stored.intersection(message.begin))
            self._replicator.replica.forget(message.begin)
            self._complete.difference_update(message.begin)  # what an older table says of them is over
            self._here.stored.update(message.begin)
        if message.pieces:
            copy = self._here.copy()
            await self._here.do(lambda: copy.take_all(decode_parcel(message.pieces)))
        if self._network.table is table or (self._network.table or table).epoch == message.epoch:
            for partition, term in message.terms.items():
                self._replicator.replica.begin(partition, term, message.numbers)
            if sent:
                await self._replicator.take_for_copy(sent, message.moment)
            self._here.closed.update(message.end)
