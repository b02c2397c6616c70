"""Keeps the backups of a member's partitions up to date, and takes what other members send to theirs here.

Each member that has a backup is sent what it lacks, one message after the other; what it confirms lets writers go on
that wait for it (`settled`). A member that does not answer for long is reported STALE: when all members know that by
a table in force, it is waited for no more. Which members have a backup is told by the keeper. A primary that takes
over agrees with the other backups on what the lost one may have told only some of them. Rules:
`docs/design/0031-replication.md`. Must not know when partitions open and close.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from shmjet.cluster.membership.peer_messages import AgreeOnTails, ChangesTaken, ShipChanges
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.grid.change_log import ends
from shmjet.grid.commit_counters import BACKED_UP, LOGGED
from shmjet.grid.errors import GridError, PartitionMovedError
from shmjet.grid.partition_copy import Classes, PartitionCopy, Piece
from shmjet.grid.replica import Replica, Sent, Term
from shmjet.grid.shipping import ALL, Batch, Shipping
from shmjet.grid.store import Opened
from shmjet.grid.times import now

Result = TypeVar("Result")
Tails = list[tuple[str, int, Sent]]

LATE_S = 2.0
"""How long a backup is waited for."""
_ASK_AGAIN_S = 0.5
"""When something is sent again; a member takes each once."""
_LOOK_S = 0.5
"""How long a backup without news is left alone, should a process have died between a change and asking for it."""
_PAUSE_S = 0.02
_NO_BACKUP = "this member has no backup of a partition"

SHORT_BYTES = 1 << 14
"""Changes of more bytes are taken in a thread."""
_REFUSED = (GridError, OSError, msgspec.MsgspecError)

_encode = msgspec.msgpack.Encoder().encode
_decode_piece = msgspec.msgpack.Decoder(Piece).decode
_decode_sent = msgspec.msgpack.Decoder(list[Sent]).decode
_decode_tails = msgspec.msgpack.Decoder(Tails).decode

logger = logging.getLogger("shmjet.member")


class NetworkOfReplicator(Protocol):
    """The member's network, as far as changes of partitions are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    def send(self, identity: str, message: object) -> None: ...
    def doubt(self, identity: str) -> None: ...
    async def reach(self, identities: Sequence[str]) -> None: ...


class NotTaken(Exception):
    """A member has not taken something."""


class NoBackup(NotTaken):
    """A member has not what the table says that it has a backup of."""

    def __init__(self, member: str) -> None:
        super().__init__(_NO_BACKUP)
        self.member = member


class Replicator:
    """See the module.

    Args:
        network: of the member.
        opened: gives its store.
        has: says whether all of a closed partition is here.
        late: is told of a backup that does not answer.
    """

    def __init__(
        self,
        network: NetworkOfReplicator,
        opened: Callable[[], Opened],
        has: Callable[[int], bool],
        late: Callable[[], None],
    ) -> None:
        self._network = network
        self._opened = opened
        self._has = has
        self._late_backup = late
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"shmjet-{name}") for name in ("shipping", "replica")]
        self._made: tuple[Shipping, Replica] | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[str, asyncio.Future[ChangesTaken | None]]] = {}
        self._feeds: dict[str, tuple[asyncio.Task[None], _News]] = {}
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._ways: dict[str, Callable[[object], None] | None] = {}
        self._done: dict[tuple[str, type], ChangesTaken] = {}
        """By sender and kind: the answer to its last message."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.taking = asyncio.Lock()
        """Held while anything is taken from another member."""
        self.late: set[str] = set()
        """Backups that have not answered for `LATE_S`."""

    @property
    def replica(self) -> Replica:
        """What takes changes here."""
        return self._parts()[1]

    @property
    def shipping(self) -> Shipping:
        """What knows the changes that other members have to be sent."""
        return self._parts()[0]

    def _parts(self) -> tuple[Shipping, Replica]:
        if self._made is None:
            opened = self._opened()
            self._made = Shipping(opened), Replica(opened)
        return self._made

    async def stop(self) -> None:
        """Send and take nothing more; who waits is told that."""
        feeds, self._feeds = self._feeds, {}
        tasks = [*self._tasks, *(task for task, _ in feeds.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up()
        for thread in self._threads:
            thread.shutdown()

    def forget(self) -> None:
        """Take that this member is not who had anything any more."""
        for task, _ in self._feeds.values():
            task.cancel()
        self._feeds.clear()
        self.late.clear()
        self._done.clear()
        self._made = None
        self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, settled in waiting:
            if not settled.done():
                settled.set_exception(PartitionMovedError("this member has lost its partitions"))

    # -- to backups ---------------------------------------------------------------------------------------------

    def follow(self, rows: Mapping[int, Collection[str]], terms: Mapping[int, Term]) -> None:
        """Take which members have a backup of partitions, see `Shipping.follow`."""
        shipping, _ = self._parts()
        shipping.follow(rows, terms)
        members = {member for row in rows.values() for member in row}
        for member in self._feeds.keys() - members:
            self._feeds.pop(member)[0].cancel()
            self.late.discard(member)
        for member in members - self._feeds.keys():
            news = _News()
            self._feeds[member] = asyncio.create_task(self._feed(member, news)), news
        self._progress()

    def count(self) -> None:
        """Look whether there is no one to wait for."""
        self._parts()[0].count()
        self._progress()

    def look(self) -> None:
        """Let go of changes that the log has for the disk alone."""
        if not self._feeds and self._made is not None:
            words = [env.announced for env in self._opened().environments]
            if any(of[BACKED_UP] < of[LOGGED] for of in words):
                self.count()

    def settling(self, environment: int, number: int) -> asyncio.Future[None] | None:
        """Return what is done when all backups have the changes up to a number in an environment; None if they have.

        The future raises PartitionMovedError when this member has lost its partitions: whether others have the changes
        is not known then.
        """
        if self._is_backed_up(environment, number):
            return None
        if not self._feeds:
            self.count()
            if self._is_backed_up(environment, number):
                return None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((environment, number, done))
        for _, news in self._feeds.values():
            news.set()
        return done

    async def settled(self, environment: int, number: int) -> None:
        """Wait until all backups have the changes up to a number in an environment. Raises as `settling` says."""
        done = self.settling(environment, number)
        if done is not None:
            await done

    async def drained(self, epoch: int) -> bool:
        """Wait until all backups have what has been changed so far; False if another table comes first."""
        table = self._network.table
        numbers = ends(self._opened().environments)
        waits = [asyncio.ensure_future(self.settled(*at)) for at in enumerate(numbers)]
        try:
            while not all(wait.done() for wait in waits):
                await asyncio.wait(waits, timeout=_PAUSE_S, return_when=asyncio.ALL_COMPLETED)
                current = self._network.table
                if current is None or current.epoch != epoch or (current is not table and not all(map(_done, waits))):
                    return False
        finally:
            for wait in waits:
                wait.cancel()
        return all(wait.exception() is None for wait in waits)

    async def caught_up(self, member: str, epoch: int) -> bool:
        """Wait until a member that has a copy has what has been changed so far, as all backups have.

        Returns:
            False if it does not answer, or is to have no backup any more, or another view comes first.
        """
        numbers = ends(self._opened().environments)
        while not (self.shipping.has(member, numbers) and all(self._is_backed_up(*at) for at in enumerate(numbers))):
            table = self._network.table
            if table is None or table.epoch != epoch or member not in self._feeds or member in self.late:
                return False
            self._feeds[member][1].set()
            await asyncio.sleep(_PAUSE_S)
        return True

    def _is_backed_up(self, environment: int, number: int) -> bool:
        reached: int = self._opened().environment(environment).announced[BACKED_UP]
        return reached >= number

    def _progress(self) -> None:
        """Let go on who has waited for long enough."""
        left = []
        for waiting in self._waiting:
            environment, number, settled = waiting
            if settled.done():
                continue
            if self._is_backed_up(environment, number):
                settled.set_result(None)
            else:
                left.append(waiting)
        self._waiting = left

    async def _feed(self, member: str, news: _News) -> None:
        """Send a member what it lacks, as long as it has a backup."""
        shipping, _ = self._parts()
        while True:
            news.clear()
            try:
                batch = shipping.batch(member)  # short reads; a thread would take longer to be woken
                self._progress()
                if batch is None:
                    await news.wait(_LOOK_S)
                    continue
                sent = await self._send(member, batch)
                self.late.discard(member)
                shipping.confirmed(member, sent)
                self._progress()
            except Exception:
                logger.exception("changes could not be sent to a backup; they are tried again")
                self._is_late(member)
                await asyncio.sleep(_LOOK_S)

    def _is_late(self, member: str) -> None:
        if member in self._feeds:
            self.late.add(member)
            self._late_backup()

    async def _send(self, member: str, batch: Batch) -> Batch:
        """Have a member take a batch, or one with more; return that when it has."""
        shipping, _ = self._parts()
        if batch.classes:
            await self._insist(member, piece=_encode(Classes(batch.classes)))
        while not await self._send_files(member, batch.files):
            whole = shipping.batch(member, ALL)
            if whole is None:
                return batch
            batch = whole
        await self._insist_on(member, batch)
        return batch

    async def _send_files(self, member: str, names: list[bytes]) -> bool:
        """Send files; False if one of them is gone meanwhile."""
        copy = PartitionCopy(self._opened())
        for name in names:
            pieces, is_there = copy.file(name), False
            while (piece := await self._do(lambda pieces=pieces: next(pieces, None))) is not None:  # type: ignore[misc]
                is_there = True
                await self._insist(member, piece=_encode(piece))
            if not is_there:
                return False
        return True

    async def _insist_on(self, member: str, batch: Batch) -> None:
        """Have a member take the changes of a batch, as far as it is to have them when they are sent.

        A table may have come by which it has dropped a partition: then it refuses all.
        """
        shipping, _ = self._parts()

        def changes() -> dict[str, Any] | None:
            sent = shipping.still_wanted(member, batch).sent
            return {"backed_up": shipping.backed_up, "sent": _encode(sent), "moment": now()} if sent else None

        await self._insist_with(member, changes)

    async def _insist(self, member: str, **message: Any) -> None:
        """Have a member take a message, however often it has to be sent; say so if that is not done soon."""
        await self._insist_with(member, lambda: message)

    async def _insist_with(self, member: str, make: Callable[[], dict[str, Any] | None]) -> None:
        timer = asyncio.get_running_loop().call_later(LATE_S, self._is_late, member)
        try:
            while (message := make()) is not None:
                table = self._network.table
                if table is not None:
                    epoch = table.epoch
                    try:
                        await self.ask(member, partial(ShipChanges, epoch, **message))
                    except NotTaken as error:
                        logger.debug("a backup has not taken changes: %s", error)
                    else:
                        return
                await asyncio.sleep(_PAUSE_S)
        finally:
            timer.cancel()

    async def ask(self, member: str, make: Callable[[int], Any]) -> ChangesTaken:
        """Have a member take something. Raises NotTaken if it refuses, or the table is another one meanwhile."""
        number = next(self._numbers)
        message = make(number)
        try:
            while (taken := await self._ask_once(member, number, message)) is None:
                table = self._network.table
                if table is None or table.epoch != message.epoch:
                    raise NotTaken("the members have changed")
                self._network.doubt(member)
                with contextlib.suppress(OSError, TimeoutError):
                    await asyncio.wait_for(self._network.reach([member]), _ASK_AGAIN_S)
        finally:
            self._answers.pop(number, None)
        if taken.error:
            raise NoBackup(member) if taken.error == _NO_BACKUP else NotTaken(taken.error)
        return taken

    async def _ask_once(self, member: str, number: int, message: Any) -> ChangesTaken | None:
        """Send a message and return its answer; None where it does not come for a while."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ChangesTaken | None] = loop.create_future()
        self._answers[number] = member, answer
        self._network.send(member, message)
        timer = loop.call_later(_ASK_AGAIN_S, _give, answer, None)
        try:
            return await answer
        finally:
            timer.cancel()

    # -- from primaries -----------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Any, way: Callable[[object], None] | None = None) -> None:
        """Take what another replicator says; it is answered the way that it came, where that is known."""
        self._ways[sender] = way
        match message:
            case ChangesTaken():
                asked, answer = self._answers.get(message.number, ("", None))
                if asked == sender and answer is not None:
                    _give(answer, message)
            case ShipChanges() | AgreeOnTails():
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
            sent, replica = self._sent(message), self.replica
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
            raise GridError(_NO_BACKUP)
        return sent

    async def _take_now(self, sender: str, message: ShipChanges | AgreeOnTails) -> bytes:
        self._check(sender, message)
        if isinstance(message, AgreeOnTails):
            return await self._agree_as_backup(message)
        if message.piece:
            piece, copy = _decode_piece(message.piece), PartitionCopy(self._opened())
            await self._do(lambda: copy.take(piece), 1)
        if message.sent:
            sent, replica = self._sent(message), self.replica
            await self._do(lambda: replica.take(sender, message.backed_up, sent, message.moment), 1)
        return b""

    async def take_for_copy(self, sent: list[Sent], moment: int) -> None:
        """Take changes that came after what a copy was made of; see `Replica.take_for_copy`."""
        async with self.taking:
            replica = self.replica
            await self._do(lambda: replica.take_for_copy(sent, moment), 1)

    # -- when a primary is lost ---------------------------------------------------------------------------------

    async def agree(self, epoch: int, partitions: Mapping[str, list[int]]) -> None:
        """Bring the backups of partitions, which this member is to lead, to the same state, before they are opened.

        Args:
            epoch: of the view.
            partitions: by member, those of which it has a backup.

        Raises:
            NotTaken: a member refuses, or the members have changed.
        """
        rounds = 1 if len(partitions) == 1 else 2  # in the first, the first ones lack what the others have
        for _ in range(rounds):
            for member, some in partitions.items():
                async with self.taking:
                    positions = self.replica.positions_of(some)
                    tails = _encode(self.replica.tails_of(some, ()))
                taken = await self.ask(
                    member,
                    lambda number, some=some, at=positions, tails=tails: AgreeOnTails(epoch, number, some, at, tails),  # type: ignore[misc]
                )
                async with self.taking:
                    replica, found = self.replica, _decode_tails(taken.tails)
                    await self._do(lambda replica=replica, found=found: replica.take_tails(found), 1)  # type: ignore[misc]

    async def _agree_as_backup(self, message: AgreeOnTails) -> bytes:
        if not all(map(self._has, message.partitions)):
            raise GridError(_NO_BACKUP)
        replica, found = self.replica, _decode_tails(message.tails)
        await self._do(lambda: replica.take_tails(found), 1)
        return _encode(replica.tails_of(message.partitions, message.positions))

    async def _do(self, work: Callable[[], Result], thread: int = 0) -> Result:
        """Do something that blocks; files that are sent, and what is taken, have a thread each."""
        return await asyncio.get_running_loop().run_in_executor(self._threads[thread], work)


def _done(wait: asyncio.Future[None]) -> bool:
    return wait.done()


def _give(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__


class _News:
    """What one task waits for, in one turn of the loop."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Let the task go on, now or when it comes to wait."""
        self._is_set = True
        if self._waiter is not None:
            _give(self._waiter, None)

    def clear(self) -> None:
        """Take that the news are known."""
        self._is_set = False

    async def wait(self, seconds: float) -> None:
        """Wait for news, or so many seconds."""
        if self._is_set:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(seconds, self.set)
        try:
            await self._waiter
        finally:
            self._waiter = None
            timer.cancel()
