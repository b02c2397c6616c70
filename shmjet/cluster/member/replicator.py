"""Keeps the backups of a member's partitions up to date; `replica_taker` takes what other members send to theirs here.

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
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from shmjet.cluster.member.replica_taker import NO_BACKUP, ReplicaTaker, decode_tails, encode_tails
from shmjet.cluster.membership.peer_messages import AgreeOnTails, ChangesTaken, ShipChanges
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.grid.change_log import ends
from shmjet.grid.commit_counters import BACKED_UP, LOGGED
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.partition_copy import Classes, PartitionCopy
from shmjet.grid.replica import Replica, Sent, Term
from shmjet.grid.shipping import ALL, Batch, Shipping
from shmjet.grid.store import Opened
from shmjet.grid.times import now

Result = TypeVar("Result")

LATE_S = 2.0
"""How long a backup is waited for."""
_ASK_AGAIN_S = 0.5
"""When something is sent again; a member takes each once."""
_LOOK_S = 0.5
"""How long a backup without news is left alone, should a process have died between a change and asking for it."""
_PAUSE_S = 0.02

_encode = msgspec.msgpack.Encoder().encode

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
        super().__init__(NO_BACKUP)
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
        self._late_backup = late
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmjet-shipping")
        self._made: tuple[Shipping, Replica] | None = None
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[str, asyncio.Future[ChangesTaken | None]]] = {}
        self._feeds: dict[str, tuple[asyncio.Task[None], _News]] = {}
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._taker = ReplicaTaker(network, opened, lambda: self.replica, has)
        self.taking = self._taker.taking
        """Held while anything is taken from another member."""
        self._forgotten: list[int] = []
        """By environment, the number of the last change before `forget`."""
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
        tasks = [task for task, _ in feeds.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._give_up()
        await self._taker.stop()
        self._thread.shutdown()

    def forget(self) -> None:
        """Take that this member is not who had anything any more."""
        for task, _ in self._feeds.values():
            task.cancel()
        self._feeds.clear()
        self.late.clear()
        self._taker.forget()
        self._made = None
        self._forgotten = ends(self._opened().environments)
        self._give_up()

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, _, settled in waiting:
            if not settled.done():
                settled.set_exception(_gone())

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
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._forgotten and number <= self._forgotten[environment]:  # it was made, and removed before this call
            done.set_exception(_gone())
            return done
        if not self._feeds:
            self.count()
            if self._is_backed_up(environment, number):
                return None
        self._waiting.append((environment, number, done))
        for member, (_, news) in self._feeds.items():
            self._wake(member, news)
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
            self._wake(member, self._feeds[member][1])
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

    def _wake(self, member: str, news: _News) -> None:
        """Have a member be sent what it lacks, at once if its feed has nothing else to do: a task takes longer."""
        if news.under_way is not None:
            news.is_more = True
        elif not (news.is_waited_for and self._sent_at_once(member, news)):
            news.set()

    def _sent_at_once(self, member: str, news: _News) -> bool:
        """Send a member what it lacks, if that is one message, and say whether that was done.

        Where it is refused, or not answered, the feed begins anew.
        """
        table = self._network.table
        try:
            batch = None if table is None else self.shipping.batch(member)
        except Exception:  # the feed will have it, too, and knows what to do
            return False
        if table is None or batch is None or batch.files or batch.classes:
            return False
        news.under_way = _Message(next(self._numbers), batch, asyncio.get_running_loop().time())
        self._network.send(
            member,
            ShipChanges(
                table.epoch,
                news.under_way.number,
                backed_up=self.shipping.backed_up,
                sent=_encode(batch.sent),
                moment=now(),
            ),
        )
        return True

    def _answered(self, member: str, news: _News, batch: Batch, error: str) -> None:
        """Take the answer to what was sent at once."""
        is_more, news.under_way, news.is_more = news.is_more, None, False
        if error:
            news.set()
            return
        self.late.discard(member)
        self.shipping.confirmed(member, batch)
        self._progress()
        if is_more:
            self._wake(member, news)

    async def _feed(self, member: str, news: _News) -> None:
        """Send a member what it lacks, as long as it has a backup."""
        shipping, _ = self._parts()
        loop = asyncio.get_running_loop()
        while True:
            if news.under_way is not None:
                left = news.under_way.since + _ASK_AGAIN_S - loop.time()
                if left > 0:
                    news.clear()
                    await news.wait(left)
                    continue
                news.under_way = None
                self._network.doubt(member)
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
            raise NoBackup(member) if taken.error == NO_BACKUP else NotTaken(taken.error)
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

    def receive(self, sender: str, message: Any, way: Callable[[object], None] | None = None) -> None:
        """Take what another replicator says; it is answered the way that it came, where that is known."""
        if isinstance(message, ChangesTaken):
            asked, answer = self._answers.get(message.number, ("", None))
            if asked == sender and answer is not None:
                _give(answer, message)
            elif sender in self._feeds:
                _, news = self._feeds[sender]
                if news.under_way is not None and news.under_way.number == message.number:
                    self._answered(sender, news, news.under_way.batch, message.error)
        else:
            self._taker.receive(sender, message, way)

    async def take_for_copy(self, sent: list[Sent], moment: int) -> None:
        """Take changes that came after what a copy was made of; see `Replica.take_for_copy`."""
        await self._taker.take_for_copy(sent, moment)

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
                    tails = encode_tails(self.replica.tails_of(some, ()))
                taken = await self.ask(
                    member,
                    lambda number, some=some, at=positions, tails=tails: AgreeOnTails(epoch, number, some, at, tails),  # type: ignore[misc]
                )
                async with self.taking:
                    replica, found = self.replica, decode_tails(taken.tails)
                    await self._taker.do(lambda replica=replica, found=found: replica.take_tails(found))  # type: ignore[misc]

    async def _do(self, work: Callable[[], Result]) -> Result:
        """Read a file that is sent."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _gone() -> PartitionMovedError:
    return PartitionMovedError("this member has lost its partitions")


def _done(wait: asyncio.Future[None]) -> bool:
    return wait.done()


def _give(future: asyncio.Future[Result], result: Result) -> None:
    if not future.done():
        future.set_result(result)


class _Message(NamedTuple):
    """Changes that are on their way.

    Args:
        number: of the message.
        batch: what it has.
        since: the loop's time when it was sent.
    """

    number: int
    batch: Batch
    since: float


class _News:
    """What one task waits for, in one turn of the loop, and what was sent in its place."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self.under_way: _Message | None = None
        self.is_more = False
        """Whether there is something to be sent behind what is under way."""

    @property
    def is_waited_for(self) -> bool:
        """Whether the task has nothing to do."""
        return self._waiter is not None and not self._waiter.done()

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
