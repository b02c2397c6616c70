"""The jobs with which a member goes on that was started again with its storage, alone or in a cluster that was away.

A member alone, or the founder of a cluster, goes on with the records on its own disk. Where the cluster waits for maps
that are on other disks, the coordinator goes on with the records of the member that coordinated last
(`shmjet.cluster.jobs.stored_runs`), and says when all members have them: until then the next coordinator would have to
do it again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shmjet.cluster.jobs.service import JobService
from shmjet.cluster.jobs.stored_runs import StoredRuns
from shmjet.cluster.partitions.table import Change, Event
from shmjet.data.errors import ShmjetError
from shmjet.ipc.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network

logger = logging.getLogger("shmjet.member")


class JobsOfStorage:
    """See the module.

    Args:
        jobs: of the member.
        network: of the member; None for one alone.
        stored_runs: on the disks of members; None for one alone.
        has_storage: whether there may be any on its own.
        opened: waits until maps and lists are there.
        serve_held: has requests answered that wait for what this knows.
    """

    def __init__(
        self,
        jobs: JobService,
        network: Network | None,
        stored_runs: StoredRuns | None,
        *,
        has_storage: bool,
        opened: Callable[[], Awaitable[None]],
        serve_held: Callable[[], None],
    ) -> None:
        self._jobs = jobs
        self._network = network
        self._stored_runs = stored_runs
        self._opened = opened
        self._serve_held = serve_held
        self._tasks = BackgroundTasks()
        self.has_restored = not has_storage
        """Whether this member goes on with the runs of its storage, if it is to."""
        self._restored_of = ""
        """The member with whose runs on disk this one, the coordinator, goes on; all others have the records."""

    def restore(self) -> None:
        """Go on with what the storage of this member has, if it coordinates."""
        if self._is_coordinator:
            self._jobs.recovery.restore()
        self._know_all()

    async def restore_when_opened(self) -> None:
        """Go on with jobs when maps and lists, which they may use, are there."""
        await self._opened()
        if not self._jobs.is_taking_over:
            await self._restore_of_cluster()

    def taken_over(self) -> None:
        """Take that this member knows all runs that the lost coordinator went on with, or does not coordinate."""
        table = None if self._network is None else self._network.table
        if self._is_coordinator and table is not None and not table.is_waiting:
            if table.led_by:
                self.has_restored = False
                self._tasks.start(self._restore_of_cluster())
                return
            self._jobs.recovery.forget_ended()
            self.has_restored = True
        self._serve_held()

    def wanted(self, member: str) -> None:
        """Get the records that a member has, and have the network know."""

        async def get() -> None:
            assert self._stored_runs is not None
            assert self._network is not None
            if await self._stored_runs.get(member):
                self._network.has_runs_of(member)

        self._tasks.start(get())

    def table_changed(self) -> None:
        """Take that there is another table of partitions."""
        table = None if self._network is None else self._network.table
        if table is not None and not table.is_waiting and not table.led_by and self._stored_runs is not None:
            self._stored_runs.forget()
        self._report_restored()

    def fenced(self) -> None:
        """Take that this member is out of its cluster."""
        if self._stored_runs is not None:
            self._stored_runs.forget()
        self._restored_of = ""

    @property
    def _is_coordinator(self) -> bool:
        return self._network is None or self._network.is_coordinator

    def _know_all(self) -> None:
        self.has_restored = True
        self._serve_held()

    async def _restore_of_cluster(self) -> None:
        """Go on with the jobs of a cluster that was away, as its coordinator, and have the others know."""
        assert self._stored_runs is not None
        assert self._network is not None
        table = self._network.table
        try:
            if self._is_coordinator:
                records = await self._stored_runs.find()
                if self._is_coordinator:
                    self._jobs.recovery.restore(records)
        except ShmjetError as error:
            logger.error("the jobs of the cluster do not go on: %s", error)
        self._know_all()
        if self._is_coordinator and table is not None:
            await self._jobs.recorded()
            self._restored_of = table.led_by
            self._report_restored()

    def _report_restored(self) -> None:
        """Have the next coordinator know that it need not restore the runs of a cluster that was away."""
        table = None if self._network is None else self._network.table
        if table is not None and table.led_by and table.led_by == self._restored_of and self._is_coordinator:
            assert self._network is not None
            self._network.report([Change(Event.RESTORED, 0, table.led_by)])
