"""Compares partitions with their backups, one after the other, now and then, as long as nothing writes to them.

Replication has every change on all backups before it counts; that it has worked, also through faults of memory and of
this program, is looked at here. A backup that differs from its primary is reported, with the names of the maps and
lists. What is compared is the state behind the last change of the partition: a backup that has had more or less says
so, and the pair has its turn again later. Rules: `docs/design/0031-replication.md`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import msgspec

from shmjet.cluster.member.replicator import NotTaken, Replicator
from shmjet.cluster.membership.peer_messages import ChangesTaken, CompareSums
from shmjet.cluster.partitions.table import PartitionTable
from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.errors import GridError
from shmjet.grid.partition_sums import Sum, differences, reached, sums
from shmjet.grid.replica import Term
from shmjet.grid.store import Opened

EVERY_S = 2.0
"""How long after one comparison the next one begins."""
_CHANGED = "the partition has changed meanwhile"

_encode = msgspec.msgpack.Encoder().encode
_decode_names = msgpack_decoder(list[str]).decode

logger = logging.getLogger("shmjet.member")


class NetworkOfComparer(Protocol):
    """The member's network, as far as comparisons are concerned."""

    @property
    def table(self) -> PartitionTable | None: ...
    def send(self, identity: str, message: object) -> None: ...


class Comparer:
    """See the module.

    Args:
        network: of the member.
        replicator: of the member.
        opened: gives its store.
        terms: of the partitions that it leads.
        backups: the members that have a backup of these, by partition.
        differs: is told of a backup that differs.
    """

    def __init__(
        self,
        network: NetworkOfComparer,
        replicator: Replicator,
        opened: Callable[[], Opened],
        terms: Callable[[], Mapping[int, Term]],
        backups: Callable[[], Mapping[int, Collection[str]]],
        differs: Callable[[int, str], None],
    ) -> None:
        self._network = network
        self._replicator = replicator
        self._opened = opened
        self._terms = terms
        self._backups = backups
        self._differs = differs
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmjet-comparer")
        self._asked: dict[str, tuple[int, ChangesTaken | None]] = {}
        """By sender, the number of what is compared for it, or was last, and the answer if there is one."""

    def stop(self) -> None:
        """Compare nothing more; what is under way was cancelled before."""
        self._thread.shutdown()

    async def run(self) -> None:
        """Compare for ever."""
        for turn in itertools.count():
            await asyncio.sleep(EVERY_S)
            pairs = sorted((partition, member) for partition, row in self._backups().items() for member in row)
            if pairs:
                try:
                    await self.compare(*pairs[turn % len(pairs)])
                except (NotTaken, GridError, OSError) as error:
                    logger.debug("a partition was not compared with its backup: %s", error)
                except Exception:
                    logger.exception("partitions could not be compared; that goes on")

    async def compare(self, partition: int, member: str) -> bool:
        """Compare a partition with the backup that a member has; False where both change meanwhile.

        Raises:
            NotTaken: the member refuses, or the members have changed.
        """
        table, term = self._network.table, self._terms().get(partition)
        before = await self._do(lambda: reached(self._opened(), partition))
        if table is None or term is None or before is None:
            return False
        found = await self._sums(partition)
        after = await self._do(lambda: reached(self._opened(), partition))
        if after is None or [one.last for one in after] != [one.last for one in before]:
            return False
        ends = [(one.last, one.end) for one in after]
        epoch, plain = table.epoch, [(one.environment, one.label, one.pieces, one.checksum) for one in found]
        taken = await self._replicator.ask(
            member, lambda number: CompareSums(epoch, number, partition, term, ends, plain)
        )
        names = _decode_names(taken.tails)
        if names:
            logger.error(
                "partition %d differs from its backup on %s in %s; the backup is made anew",
                partition,
                member,
                ", ".join(names),
            )
            self._differs(partition, member)
        return True

    async def _sums(self, partition: int, lock: asyncio.Lock | None = None) -> list[Sum]:
        """Sum what a partition holds; for each portion of it the lock is held."""
        found: list[Sum] = []
        going = sums(self._opened(), partition)

        def portion() -> bool:
            one = next(going, going)
            if isinstance(one, Sum):
                found.append(one)
            return one is not going

        while True:
            if lock is None:
                is_going = await self._do(portion)
            else:
                async with lock:
                    is_going = await self._do(portion)
            if not is_going:
                return found

    # -- for others ---------------------------------------------------------------------------------------------

    async def answer(self, sender: str, message: CompareSums) -> None:
        """Compare what a primary has with the backup that is here, and answer."""
        number, answer = self._asked.get(sender, (0, None))
        if message.number <= number:  # it comes again
            if message.number == number and answer is not None:
                self._network.send(sender, answer)
            return
        self._asked[sender] = message.number, None
        try:
            names = await self._compared(sender, message)
        except (GridError, OSError) as error:
            answer = ChangesTaken(message.number, str(error) or type(error).__name__)
        else:
            answer = ChangesTaken(message.number, "", _encode(names))
        self._asked[sender] = message.number, answer
        self._network.send(sender, answer)

    async def _compared(self, sender: str, message: CompareSums) -> list[str]:
        table = self._network.table
        if table is None or table.epoch != message.epoch or sender not in table.members:
            raise GridError("this member has another table of partitions")
        replica, taking, partition = self._replicator.replica, self._replicator.taking, message.partition
        async with taking:
            before = [replica.position(partition, environment) for environment in range(len(message.ends))]
        for (term, number), (last, end) in zip(before, message.ends, strict=True):
            if term != tuple(message.term) or not last <= number <= end:
                raise GridError(_CHANGED)
        found = await self._sums(partition, taking)
        async with taking:
            if before != [replica.position(partition, environment) for environment in range(len(message.ends))]:
                raise GridError(_CHANGED)
        return differences([Sum(*one) for one in message.sums], found)

    async def _do(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
