"""The export of a snapshot of a run: of the state as it is now, or of a suspended job as it was.

It waits for a run that starts, is being restarted or suspended, or pauses between two attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from shmjet.cluster.jobs.attempt_snapshots import STOPPED
from shmjet.cluster.jobs.lineage import Lineage, snapshot_row
from shmjet.cluster.jobs.run_parts import BEFORE_RUNNING, RunSuspension
from shmjet.cluster.jobs.snapshot import SnapshotRequest
from shmjet.cluster.lifecycle_messages import SnapshotRow
from shmjet.core import JobStateError, JobStatus, ShmjetError

EXPORT_WAIT_S = 60.0
"""How long an export waits for a run that does not run yet or again, and for the end of a run that ends with it."""


class ExportedRun(Protocol):
    """The run (`shmjet.cluster.jobs.run.JobRun`)."""

    @property
    def name(self) -> str: ...
    @property
    def status(self) -> JobStatus: ...
    @property
    def state(self) -> str: ...
    @property
    def suspension(self) -> RunSuspension | None: ...
    @property
    def will_run(self) -> bool: ...
    @property
    def is_ending(self) -> bool: ...
    @property
    def is_being_stopped(self) -> bool: ...
    @property
    def is_stopped_for_restart(self) -> bool: ...
    def until(self, condition: Callable[[], bool], seconds: float) -> Awaitable[bool]: ...
    def take_snapshot(self, request: SnapshotRequest, done: Callable[[str | None], None]) -> None: ...
    def end_with_snapshot(self, name: str, token: str) -> Awaitable[str | None]: ...
    def exporting(self) -> AbstractContextManager[None]: ...
    def cancel(self) -> None: ...


class SnapshotExport:
    """See the module.

    Args:
        run: whose snapshot it is.
        lineage: of the run.
        name: a checked name; an older snapshot of that name is replaced.
        token: of the request, by which it is recognised when it comes again.
    """

    def __init__(self, run: ExportedRun, lineage: Lineage, name: str, token: str) -> None:
        self._run = run
        self._lineage = lineage
        self._name = name
        self._token = token

    async def make(self, *, cancel: bool) -> SnapshotRow:
        """Take the snapshot, and return what it holds.

        Args:
            cancel: end the run with this snapshot, and wait for that.

        Raises:
            JobStateError: the job has ended, ends before that, or does not run within `EXPORT_WAIT_S`; or it is
                suspended and has no guarantee.
            ShmjetError: the snapshot has failed; the job goes on, and an older one of that name is as before.
        """
        run = self._run
        if run.suspension is None:
            error = await (self._end_with_it() if cancel else self._take_it())
            if error is not None:
                kind = JobStateError if error == STOPPED else ShmjetError
                raise kind(f"no snapshot {self._name!r} of {run.name}: {error}")
        if run.suspension is not None:
            await self._name_the_last()
            if cancel:
                run.cancel()
        if cancel:  # the next thing is often a new version of the job, under the same name
            await run.until(lambda: run.status.is_terminal, EXPORT_WAIT_S)
        exported = self._lineage.exported(self._name)
        if exported is None:
            raise ShmjetError(f"snapshot {self._name!r} was removed as soon as it was there")
        return snapshot_row(exported)

    async def _end_with_it(self) -> str | None:
        """End the run with a snapshot, as soon as it runs; return what went wrong."""
        run = self._run
        if not await run.until(lambda: not run.is_stopped_for_restart, EXPORT_WAIT_S):
            late = f"is being restarted, and has not stopped for {EXPORT_WAIT_S:.0f} s"
            raise JobStateError(f"{run.name} {late}; cannot export a snapshot of it")
        if run.status not in BEFORE_RUNNING and run.is_being_stopped:
            raise JobStateError(f"{run.name} is being stopped; cannot export a snapshot of it")
        return await run.end_with_snapshot(self._name, self._token)

    async def _take_it(self) -> str | None:
        """Save an attempt under a name, as soon as one runs; return what went wrong, None as well when it is suspended
        meanwhile."""
        run = self._run
        while True:
            if not await run.until(lambda: not run.will_run, EXPORT_WAIT_S):
                late = f"is {run.state}, and has not run for {EXPORT_WAIT_S:.0f} s"
                raise JobStateError(f"{run.name} {late}; cannot export a snapshot of it")
            if run.suspension is not None:
                return None
            if run.status is not JobStatus.RUNNING or run.is_ending:
                raise JobStateError(f"{run.name} is {run.state}; cannot export a snapshot of it")
            if run.is_being_stopped:
                raise JobStateError(f"{run.name} is being stopped; cannot export a snapshot of it")
            outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            request = SnapshotRequest(name=self._name, token=self._token)
            run.take_snapshot(request, partial(settle, outcome))
            error = await outcome
            if error != STOPPED or not run.will_run:
                return error

    async def _name_the_last(self) -> None:
        """Give the last snapshot of a suspended run a name."""
        run, lineage = self._run, self._lineage
        try:
            with run.exporting():
                found = await lineage.export(self._name, EXPORT_WAIT_S, self._token)
        except OSError as error:
            raise ShmjetError(f"no snapshot {self._name!r} of {run.name}: {error}") from error
        if not found:
            how = "before its first snapshot" if lineage.takes_snapshots else "without a processing_guarantee"
            raise JobStateError(f"{run.name} was suspended {how}; there is nothing to export")


def settle(outcome: asyncio.Future[str | None], error: str | None) -> None:
    """Give an export its outcome, unless it has one."""
    if not outcome.done():
        outcome.set_result(error)
