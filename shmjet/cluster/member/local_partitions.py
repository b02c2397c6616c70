"""The partitions in a member's own store: opened, closed, filled and removed, each at a time.

A partition is open, or all of it is here and it is closed, or there may be a part of it. What opens and closes has a
thread of its own, so that it waits for no copy; what reads, stores and removes has another one. Must not know why.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shmjet.cluster.member.other_writes import OtherWrites
from shmjet.cluster.member.partitions_on_disk import new_lineage
from shmjet.cluster.member.replicator import Replicator
from shmjet.grid import Grid
from shmjet.grid.commit_counters import COMMITTED
from shmjet.grid.ownership import close_partitions, count_backups, open_partitions
from shmjet.grid.partition_copy import PartitionCopy

Result = TypeVar("Result")

_END: Any = object()

logger = logging.getLogger("shmjet.member")


class LocalPartitions:
    """See the module.

    Args:
        folder: of the store.
        replicator: gives what takes changes from other members.
        still_led: gives those of some partitions of which this member is the primary by what is in force now.
        note: notes on disk what is here, where it is kept there; None: it is not.
    """

    def __init__(
        self,
        folder: Path,
        replicator: Callable[[], Replicator],
        still_led: Callable[[Collection[int]], list[int]],
        note: Callable[[], Awaitable[None]] | None,
    ) -> None:
        self._folder = folder
        self._replicator = replicator
        self._still_led = still_led
        self._note = note
        self._grid: Grid | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmjet-keeper")
        self._opening = ThreadPoolExecutor(1, thread_name_prefix="shmjet-opening")
        self._dropping = asyncio.Lock()
        self.other_writes = OtherWrites(self._committed)
        self._forgotten = 0
        self._counts: dict[int, int] = {}
        """How many backups the store knows of for the open ones."""
        self.stored: set[int] = set()
        """Partitions of which there may be anything here."""
        self.open: dict[int, int] = {}
        """Open partitions, with their lineages."""
        self.closed: dict[int, int] = {}
        """Closed partitions of which everything is here, with their lineages."""

    def store(self) -> Any:
        """Return the store."""
        if self._grid is None:
            self._grid = Grid.open(self._folder)
        return self._grid.opened

    def copy(self) -> PartitionCopy:
        """Return what reads, stores and removes partitions."""
        return PartitionCopy(self.store(), self.other_writes.piece_bytes)

    def _committed(self) -> int:
        return 0 if self._grid is None else sum(env.announced[COMMITTED] for env in self._grid.opened.environments)

    async def do(self, work: Callable[[], Result]) -> Result:
        """Do something that blocks; one thing at a time. What it commits is not taken for a write of others."""
        return await self._do_in(self._thread, work)

    async def _open_or_close(self, work: Callable[[], None]) -> None:
        await self._do_in(self._opening, work)

    async def _do_in(self, thread: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(thread, partial(self.other_writes.apart_from, work))

    async def open_up(self, partitions: Collection[int], rows: Callable[[], Mapping[int, Collection[str]]]) -> None:
        """Open partitions; such of which nothing is here, or not all, begin empty.

        That is right for a new cluster, and where no member has them any more. If other members have backups of them,
        a member was made their primary that should not have been: the backups are given up then, which an error says.
        A table that was looked at before something was waited for may be an old one: what another member leads by then
        stays closed.

        Args:
            partitions: which ones.
            rows: gives their backups.
        """
        fresh = {partition for partition in partitions if partition not in self.closed}
        await self.drop(fresh & self.stored)
        lineages = {p: self.closed.get(p) or new_lineage() for p in self._still_led(partitions)}
        if fresh and self._note is not None:
            self.closed.update(lineages)
            await self._note()
            lineages = {partition: lineages[partition] for partition in self._still_led(lineages)}
        if lineages:
            environments, forgotten = self.store().environments, self._forgotten
            self.stored.update(lineages)
            backups = rows()
            _tell_what_is_given_up({p: backups[p] for p in sorted(fresh.intersection(lineages)) if backups.get(p)})
            counts = {partition: len(backups.get(partition, ())) for partition in lineages}
            await self._open_or_close(lambda: open_partitions(environments, lineages, counts))
            if self._forgotten != forgotten:
                return  # all has been closed behind this
            self._counts.update(counts)
            for partition, number in lineages.items():
                self.closed.pop(partition, None)
                self.open[partition] = number

    async def close(self, partitions: Collection[int]) -> None:
        """Close partitions. When this returns, nothing of them changes any more."""
        if partitions:
            environments, some = self.store().environments, list(partitions)
            await self._open_or_close(lambda: close_partitions(environments, some))
            for partition in some:
                if partition in self.open:
                    self.closed[partition] = self.open.pop(partition)
                    self._counts.pop(partition, None)

    async def count_backups(self, rows: Mapping[int, Collection[str]]) -> bool:
        """Have the store know how many backups the open partitions have, and say whether that is news."""
        counts = {partition: len(rows.get(partition, ())) for partition in self.open}
        other = {partition: count for partition, count in counts.items() if self._counts.get(partition) != count}
        if other:
            environments = self.store().environments
            await self._open_or_close(lambda: count_backups(environments, other))  # some may be being closed
            self._counts.update(other)
        return bool(other)

    async def drop(self, partitions: Collection[int], is_right: Callable[[], bool] = lambda: True) -> None:
        """Remove all that partitions hold, which are closed; given up where that is not right any more."""
        if not partitions:
            return
        async with self._dropping:
            some = set(partitions)
            if not is_right():
                return
            for partition in some:
                self.closed.pop(partition, None)
            replicator = self._replicator()
            async with replicator.taking:  # what comes after this is refused
                replicator.replica.forget(some)
            steps = self.copy().drop_by_steps(some)
            began = time.monotonic()
            while await self.do(lambda: next(steps, _END)) is not _END:
                await self.other_writes.give_way(time.monotonic() - began)
                if not is_right():
                    return
                began = time.monotonic()
            self.stored -= some

    def forget(self) -> None:
        """Close and remove everything. Blocks."""
        copy, environments = self.copy(), self.store().environments
        every = range(self.store().layout.partition_count)
        self._forgotten += 1
        # behind what is under way, which may open partitions
        self._opening.submit(close_partitions, environments, every).result()
        self._thread.submit(copy.drop, every).result()
        self.open.clear()
        self.closed.clear()
        self._counts.clear()
        self.stored = set(every)  # what is being taken at this moment may come after this

    def stop(self) -> None:
        """Let go of the store."""
        self._opening.shutdown()
        self._thread.shutdown()
        if self._grid is not None:
            self._grid.close()


def _tell_what_is_given_up(backups: Mapping[int, Collection[str]]) -> None:
    if backups:
        members = ", ".join(sorted({member for row in backups.values() for member in row}))
        logger.error(
            "this member is to lead these partitions and does not have all of them: %s; they begin empty, and what "
            "their backups on %s have is lost; this should not happen",
            ", ".join(map(str, backups)),
            members,
        )
