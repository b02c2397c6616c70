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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from shmjet.cluster.member.comparer import Comparer
from shmjet.cluster.member.copier import Copier, first_batch
from shmjet.cluster.member.copy_lines import CopyLines
from shmjet.cluster.member.copy_stream import CopyFailed, CopySender, CopyTaker
from shmjet.cluster.member.partitions_on_disk import PartitionsOnDisk, new_lineage
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
from shmjet.grid import Grid
from shmjet.grid.errors import GridError
from shmjet.grid.lease import RENEW_S, Lease
from shmjet.grid.ownership import close_partitions, count_backups, open_partitions
from shmjet.grid.parcels import decode_parcel
from shmjet.grid.partition_copy import PartitionCopy
from shmjet.grid.replica import Sent, Term
from shmjet.grid.times import now
from shmjet.ipc.background_tasks import BackgroundTasks

Result = TypeVar("Result")

_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 5.0
"""When a copy is tried again; each time the pause is doubled, as there may be no room for it."""
_LEAVE_S = 60.0
"""How long a leaving member tries to hand its partitions over."""
MUCH_BYTES = 1 << 20
"""Of bytes in the store: from so many on, copies have connections of their own."""

_END: Any = object()

_decode_sent = msgspec.msgpack.Decoder(list[Sent]).decode

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
        self._folder = folder
        self._me = me
        self._grid: Grid | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmjet-keeper")
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="shmjet-opening")
        """What opens and closes waits for no copy."""
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
        self._being_copied: Collection[int] = frozenset()
        self._moves_at = 0.0
        """When copies may be begun, after a copy that has failed."""
        self._began: tuple[int, list[int]] = 0, []
        """The first table of a view: its epoch, and the places of primaries."""
        self._leaving = False
        self._free = asyncio.Event()
        self._disk = disk
        self._is_over = False
        """Whether all members are leaving, so that each keeps what it has."""
        self._stored: set[int] = set()
        """Partitions of which there may be anything here."""
        self._begin("", 0)
        self._open: dict[int, int] = {}
        self._copies: dict[int, int] = {}
        """Closed partitions of which everything is here, with their lineages."""
        self._terms: dict[int, Term] = {}
        """Partitions that this member leads, by the table under which it began to."""
        self._rows: dict[int, set[str]] = {}
        """The backups of these, which have to have each change."""
        self._counts: dict[int, int] = {}
        """How many backups the store knows of for the open ones."""
        self._following = asyncio.Lock()
        self._dropping = asyncio.Lock()
        self._lease: Lease | None = None
        self._replicator = Replicator(lines, self._opened, self._copies_has, self._look_for_late)
        self._comparer = Comparer(
            network, self._replicator, self._opened, lambda: self._terms, lambda: self._rows, self._differs
        )

    @property
    def _is_waiting(self) -> bool:
        return self._disk is not None and self._disk.waits

    def _begin(self, me: str, epoch: int) -> None:
        self._now = me, epoch
        self._sealed: set[int] = set()
        """Partitions that are closed to be handed over."""
        self._reported: set[tuple[int, str]] = set()
        """Copies of partitions that are or will be reported, with who has them, and are not in the table yet."""
        self._complete: set[int] = set()
        """Partitions that this member has completely, by the last table."""
        self._has_classes: set[str] = set()
        self._failures = 0

    def _words(self) -> memoryview:
        words: memoryview = self._opened().environment(0).announced
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
        self._tasks.start(self._look_at_backups())

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
            logger.error("this member leaves with %d partitions that no other one has taken", len(self._open))
        table, me = self._network.table, self._me()
        if self._disk is not None and table is not None and not table.is_waiting and table.is_free(me):
            await self._do(self._disk.forget)

    def forget(self) -> None:
        """Remove everything: this member is not who had it any more. Blocks.

        What is on disk stays while the cluster waits for it.
        """
        self._begin("", 0)
        if self._is_waiting:
            return
        if self._disk is not None:
            self._disk.forget()
        copy, environments = self._copy(), self._opened().environments
        count = self._opened().layout.partition_count

        # behind what is under way, which may open partitions
        self._opening.submit(close_partitions, environments, range(count)).result()
        self._thread.submit(copy.drop, range(count)).result()
        self._open.clear()
        self._copies.clear()
        self._terms.clear()
        self._rows.clear()
        self._counts.clear()
        self._replicator.forget()
        self._stored = set(range(count))  # what is being taken at this moment may come after this

    async def stop(self) -> None:
        """Let go of the store."""
        await self._tasks.cancel()
        if self._lines is not None:
            await self._lines.stop()
        await self._replicator.stop()
        self._comparer.stop()
        self._opening.shutdown()
        self._thread.shutdown()
        if self._grid is not None:
            self._grid.close()

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
        if table is None and self._open and self._network.is_cut_off:  # others may go on with what is open here
            await self._close(set(self._open))
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
        await self._close(self._open.keys() - (mine - self._sealed))
        for partition in self._terms.keys() - mine:
            self._replicator.replica.led(partition, self._terms.pop(partition))
        if self._network.table is not table:
            self.look()
            return
        self._replicator.replica.forget_tails(table.members.__contains__)
        await self._follow_backups()
        await self._lead(table, mine - self._sealed - self._open.keys())
        self._report_leaving(table, me)
        await self._hand_over(table, going)
        rows = zip(table.synced, table.copying, strict=True)
        unused = self._stored - {p for p, (held, coming) in enumerate(rows) if place in (*held, *coming)}
        await self._drop(unused, lambda: self._network.table is table)
        if self._network.table is not table:  # what is reported has been compared with the new one
            self.look()
            return
        if self._is_moving or asyncio.get_running_loop().time() < self._moves_at:
            return  # it is looked again then
        for partition in sorted(mine):
            for uuid in (table.members[place] for place in table.copying[partition]):
                if (partition, uuid) not in self._reported:
                    self._is_moving = True
                    self._tasks.start(self._try_to_move(table, mine, uuid))
                    return
        if self._lines is not None:
            self._lines.let_go()

    def _look_at_view(self, table: PartitionTable, me: str) -> None:
        """Give up what counted in an older view, or by an older table."""
        place = table.members.index(me)
        complete = {partition for partition, row in enumerate(table.synced) if place in row}
        if (me, table.epoch) != self._now:
            self._begin(me, table.epoch)
            self._copies = {partition: number for partition, number in self._copies.items() if partition in complete}
        for partition in self._complete - complete:  # what it had counts no more
            self._copies.pop(partition, None)
        self._complete = complete

    async def _note_on_disk(self, disk: PartitionsOnDisk, table: PartitionTable, me: str) -> None:
        """Note a table before anything is done by it; the first one says whether what is on disk counts."""
        if disk.waits:
            self._stored = set(range(table.count))
            self._copies = disk.take_up(me, table)
        lineages = {**self._copies, **self._open}
        await self._do(lambda: disk.note(me, table, lineages))

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
            if table.primary(partition) == me and partition not in self._being_copied
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
            for partition in going.keys() & self._terms.keys():  # who opens it next, be it this member, begins anew
                self._replicator.replica.led(partition, self._terms.pop(partition))
            self._network.report([Change(Event.HANDED_OVER, partition, uuid) for partition, uuid in going.items()])

    # -- backups ------------------------------------------------------------------------------------------------

    def _copies_has(self, partition: int) -> bool:
        return partition in self._copies

    async def _look_at_backups(self) -> None:
        """See to it that no one waits for a backup that counts no more, whatever else is under way."""
        try:
            if self._terms:
                await self._follow_backups()
                self._look_for_late()
        except (GridError, OSError) as error:
            logger.warning("the backups of partitions could not be looked at: %s", str(error))

    async def _follow_backups(self) -> None:
        """Take from the table which members have a backup of what this one leads.

        A backup counts from the moment at which it is reported, until a table in force says that it does not.
        """
        async with self._following:
            table, me = self._network.table, self._me()
            if table is None or me not in table.members:
                return
            place = table.members.index(me)
            rows: dict[int, set[str]] = {}
            strange: list[Change] = []
            for partition in self._terms:
                held = table.synced[partition]
                if held[0] != place:
                    continue
                backups = {table.members[other] for other in held[1:]}
                if partition in self._open:
                    known = self._rows.get(partition, set())
                    strange += [Change(Event.STALE, partition, uuid) for uuid in backups - known]
                rows[partition] = backups
            self._reported = {(p, uuid) for p, uuid in self._reported if _is_copying(table, p, uuid)}
            for partition, uuid in self._reported:
                if partition in rows:
                    rows[partition].add(uuid)
            self._rows = rows
            self._replicator.follow(rows, self._terms)
            await self._count_backups()
            if strange:
                logger.error("members were said to have backups that this one has not made; they are made anew")
                self._network.report(strange)

    async def _count_backups(self) -> None:
        """Have the store know how many backups the open partitions have."""
        counts = {partition: len(self._rows.get(partition, ())) for partition in self._open}
        other = {partition: count for partition, count in counts.items() if self._counts.get(partition) != count}
        if other:
            environments = self._opened().environments
            await self._do(lambda: count_backups(environments, other), self._opening)  # some may be being closed
            self._counts.update(other)
            self._replicator.count()

    def _look_for_late(self) -> None:
        """Report backups that do not answer; they are waited for until the table shows it."""
        table, me = self._network.table, self._me()
        if table is None or me not in table.members or not self._replicator.late:
            return
        place = table.members.index(me)
        late = [table.members.index(uuid) for uuid in self._replicator.late if uuid in table.members]
        changes = [
            Change(Event.STALE, partition, table.members[other])
            for partition, row in enumerate(table.synced)
            if row[0] == place
            for other in late
            if other in row[1:]
        ]
        if changes:
            names = ", ".join(sorted({change.uuid for change in changes}))
            logger.warning("backups on %s do not answer, and are made anew", names)
            self._reported.difference_update((change.partition, change.uuid) for change in changes)
            self._network.report(changes)

    def _differs(self, partition: int, uuid: str) -> None:
        """Have a backup that is not what it should be made anew; it is waited for until the table shows it."""
        self._reported.discard((partition, uuid))
        self._network.report([Change(Event.STALE, partition, uuid)])

    async def _lead(self, table: PartitionTable, partitions: Collection[int]) -> None:
        """Open partitions; where this member begins to lead, with the same state as the backups that there are."""
        new = {partition for partition in partitions if partition not in self._terms}
        await self._open_up(set(partitions) - new)
        complete = {partition for partition in new if partition in self._copies}
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
                self._terms.update(dict.fromkeys(partitions, table.version))
            await self._follow_backups()
            await self._open_up(partitions)

    # -- copies -------------------------------------------------------------------------------------------------

    async def _try_to_move(self, table: PartitionTable, mine: Collection[int], uuid: str) -> None:
        """Copy some partitions, while tables are followed; what is copied is not handed over meanwhile."""
        try:
            await self._try(partial(self._move, table, mine, uuid))
        finally:
            self._is_moving = False
            self._being_copied = frozenset()
        self.look()

    async def _move(self, table: PartitionTable, mine: Collection[int], uuid: str) -> None:
        """Copy some partitions to a member that is to have them, and is a backup like others from then on."""
        place = table.members.index(uuid)
        waiting = [
            partition
            for partition in sorted(mine)
            if place in table.copying[partition] and (partition, uuid) not in self._reported
        ]
        size = await self._do(self._copy().size)
        batch = first_batch(waiting, len(self._stored), size)
        await self._sender.ask(uuid, CopyPartitions(table.epoch, 0, []))  # before anything is noted
        if self._network.table is not table:
            return  # some may have been copied by what that says, and count as backups
        line = None if self._lines is None or size < MUCH_BYTES else await self._lines.to(uuid)
        if self._network.table is not table:
            return
        epoch, shipping = table.epoch, self._replicator.shipping
        batch = [partition for partition in batch if partition in self._open and partition not in self._sealed]
        if not batch:
            return
        terms = {partition: self._terms[partition] for partition in batch}
        lineages = {partition: self._open[partition] for partition in batch}
        self._being_copied = frozenset(batch)
        joined = {(partition, uuid) for partition in batch}
        async with self._sender.stream(uuid, line) as stream:
            copier = Copier(self._network, self._opened(), shipping, self._do, stream, epoch, uuid, batch)
            try:
                await copier.begin(terms, with_classes=uuid not in self._has_classes)
                self._has_classes.add(uuid)
                await self._sender.ask(uuid, CopyPartitions(epoch, 0, [], end=lineages), line)
                if not self._is_followed(epoch):
                    raise CopyFailed("the members have changed")
                self._reported |= joined  # from now on it is waited for
                shipping.join(uuid, batch)
                await self._follow_backups()
                if not await self._replicator.caught_up(uuid, epoch):
                    raise CopyFailed("the new backup has not taken what has changed")
            except BaseException:
                self._reported -= joined
                raise
            finally:
                await copier.give_up()
                copier.end()
                await self._follow_backups()
        self._failures = 0
        if self._is_followed(epoch):  # with a new view everything begins anew, the copy, too
            self._network.report([Change(Event.SYNCED, partition, uuid) for partition in batch])

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
        await self._drop(self._stored.intersection(message.begin))
        self._replicator.replica.forget(message.begin)
        self._complete.difference_update(message.begin)  # what an older table says of them is over
        self._stored.update(message.begin)
        if message.pieces:
            copy = self._copy()
            await self._do(lambda: copy.take_all(decode_parcel(message.pieces)))
        if self._network.table is table or (self._network.table or table).epoch == message.epoch:
            for partition, term in message.terms.items():
                self._replicator.replica.begin(partition, term, message.numbers)
            if sent:
                await self._replicator.take_for_copy(sent, message.moment)
            self._copies.update(message.end)

    # -- the store ----------------------------------------------------------------------------------------------

    async def _open_up(self, partitions: Collection[int]) -> None:
        """Open partitions; such of which nothing is here, or not all, begin empty."""
        fresh = {partition for partition in partitions if partition not in self._copies}
        await self._drop(fresh & self._stored)
        lineages = {p: self._copies.get(p) or new_lineage() for p in self._still_led(partitions)}
        if fresh and self._disk is not None:
            self._copies.update(lineages)
            table = self._network.table
            if table is None or self._me() not in table.members:
                return
            await self._note_on_disk(self._disk, table, self._me())
            lineages = {partition: lineages[partition] for partition in self._still_led(lineages)}
        if lineages:
            environments, now = self._opened().environments, self._now
            self._stored.update(lineages)
            counts = {partition: len(self._rows.get(partition, ())) for partition in lineages}
            await self._do(lambda: open_partitions(environments, lineages, counts), self._opening)
            if self._now[0] != now[0]:
                return  # all has been forgotten meanwhile, and closed
            self._counts.update(counts)
            for partition, number in lineages.items():
                self._copies.pop(partition, None)
                self._open[partition] = number

    def _still_led(self, partitions: Collection[int]) -> list[int]:
        """Return those of some partitions of which this member is the primary by what is in force now.

        A table that was looked at before something was waited for may be an old one.
        """
        table, me = self._network.table, self._me()
        if table is None or me not in table.members or self._now[0] != me:
            return []
        return [partition for partition in partitions if table.primary(partition) == me]

    async def _close(self, partitions: Collection[int]) -> None:
        if partitions:
            environments, some = self._opened().environments, list(partitions)
            await self._do(lambda: close_partitions(environments, some), self._opening)
            for partition in some:
                if partition in self._open:
                    self._copies[partition] = self._open.pop(partition)
                    self._counts.pop(partition, None)

    async def _drop(self, partitions: Collection[int], is_right: Callable[[], bool] = lambda: True) -> None:
        """Remove all that partitions hold, which are closed; given up where that is not right any more."""
        if not partitions:
            return
        async with self._dropping:
            some = set(partitions)
            if not is_right():
                return
            for partition in some:
                self._copies.pop(partition, None)
            async with self._replicator.taking:  # what comes after this is refused
                self._replicator.replica.forget(some)
            steps = self._copy().drop_by_steps(some)
            while await self._do(lambda: next(steps, _END)) is not _END:
                if not is_right():
                    return
            self._stored -= some

    async def _do(self, work: Callable[[], Result], thread: ThreadPoolExecutor | None = None) -> Result:
        """Do something that blocks; in each thread one thing at a time."""
        return await asyncio.get_running_loop().run_in_executor(thread or self._thread, work)

    def _opened(self) -> Any:
        if self._grid is None:
            self._grid = Grid.open(self._folder)
        return self._grid.opened

    def _copy(self) -> PartitionCopy:
        return PartitionCopy(self._opened())


def _is_copying(table: PartitionTable, partition: int, uuid: str) -> bool:
    return uuid in (table.members[place] for place in table.copying[partition])
