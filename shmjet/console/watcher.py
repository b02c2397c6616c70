"""The console's watcher: finds members, samples each once a second, and returns what the page shows.

Runs in an event loop, in which nothing blocks: all members are asked at once, and a member without an answer delays no
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from shmjet import __version__
from shmjet.console.job_tracker import JobTrack
from shmjet.console.member_finder import Found
from shmjet.console.membership import SteeringRequest, WatchedMember
from shmjet.console.snapshot import JobCard, Snapshot
from shmjet.core import JobNotFoundError, MemberLostError

PERIOD_S = 1.0
"""Seconds between two looks."""
SILENT_S = 2.5
"""Seconds without an answer after which a member is called silent."""
KEPT_MEMBERS = 4
"""Members that have ended and are still shown."""

logger = logging.getLogger("shmjet.console")


class Watch:
    """Watches the members that `find` names.

    Args:
        find: returns the members that there are; called once a period, in a thread.
        changes: whether the page may offer changes.
        pid: watch only the member that has to do with this process; None for all.
        period: seconds between two looks.
    """

    def __init__(
        self,
        find: Callable[[], Found],
        *,
        changes: bool,
        pid: int | None = None,
        period: float = PERIOD_S,
    ) -> None:
        self._find = find
        self._changes = changes
        self._pid = pid
        self._others: set[str] = set()
        self._finding: asyncio.Task[Found] | None = None
        self._sampling: dict[str, asyncio.Task[None]] = {}
        self._period = period
        self._members: dict[str, WatchedMember] = {}
        self._looked = asyncio.Event()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Look until `stop`; then leave all members."""
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                await self.look()
                self._tell()
                with contextlib.suppress(TimeoutError):
                    rest = max(0.05, self._period - (time.monotonic() - began))
                    await asyncio.wait_for(self._stop.wait(), rest)
        finally:
            self.stop()
            waiting: list[asyncio.Task[Any]] = [*self._sampling.values(), *([self._finding] if self._finding else [])]
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.gather(*(member.close() for member in self._members.values()))

    def stop(self) -> None:
        """End `run` and all that wait for a look; to be called in the loop's thread."""
        self._stop.set()
        self._tell()

    @property
    def stopped(self) -> bool:
        """Whether it has been stopped."""
        return self._stop.is_set()

    def _tell(self) -> None:
        before, self._looked = self._looked, asyncio.Event()
        before.set()

    async def next_look(self) -> None:
        """Wait until there is something newer to show."""
        if not self.stopped:
            await self._looked.wait()

    async def look(self) -> None:
        """Look once at every member, and for new ones."""
        for key, connect in (await self._found()).items():
            if key not in self._members and key not in self._others:
                self._members[key] = WatchedMember(key, connect)
        for key, member in self._members.items():
            if not member.ended and key not in self._sampling:
                self._sampling[key] = asyncio.ensure_future(member.sample())
        if self._sampling:  # only its own task waits for a member that does not answer
            await asyncio.wait(self._sampling.values(), timeout=self._period)
        for key, sampling in list(self._sampling.items()):
            if sampling.done():
                del self._sampling[key]
                if (error := sampling.exception()) is not None:  # what cannot be read must not end the console
                    logger.error("a member cannot be read", exc_info=error)
        await self._forget()

    async def _found(self) -> Found:
        """Return the members; none, for now, if finding them takes longer than a period."""
        if self._finding is None:
            self._finding = asyncio.ensure_future(asyncio.to_thread(self._find))
        await asyncio.wait([self._finding], timeout=self._period)
        if not self._finding.done():
            return {}
        finding, self._finding = self._finding, None
        error = finding.exception()
        if error is not None and not isinstance(error, MemberLostError):
            logger.error("members cannot be found", exc_info=error)
        return {} if error is not None else finding.result()

    async def _forget(self) -> None:
        """Close members that have ended, forget the oldest of them, and forget members that were not asked for."""
        gone = [key for key, member in self._members.items() if member.ended]
        seen = [key for key in gone if self._members[key].about is not None]
        others = [key for key, member in self._members.items() if self._is_other(member)]
        for key in dict.fromkeys([*gone, *others]):
            await self._members[key].close()
        for key in {*seen[: max(0, len(seen) - KEPT_MEMBERS)], *(set(gone) - set(seen)), *others}:
            del self._members[key]
        self._others.update(others)

    def _is_other(self, member: WatchedMember) -> bool:
        return self._pid is not None and member.about is not None and not member.is_of(self._pid)

    # -- for the page -------------------------------------------------------------------------------------------

    async def snapshot(self, job_id: str | None) -> Snapshot:
        """Return what is to be shown.

        Args:
            job_id: the selected job; an unknown job counts as None.
        """
        cards = sorted(self._cards(), key=lambda card: (card.completed_at is None, card.started_at))
        chosen = job_id if any(card.id == job_id for card in cards) else (cards[-1].id if cards else None)
        selected = None
        if chosen is not None:
            member, track = self.find_job(chosen)
            await member.describe(track)
            selected = track.detail()
        members = [card for member in self.members if (card := member.card(SILENT_S)) is not None]
        return Snapshot(time.time(), __version__, self._changes, members, cards[::-1], selected)

    def _cards(self) -> list[JobCard]:
        """Return each job once: several members may have parts in it."""
        ids = dict.fromkeys(job_id for member in self.members for job_id in member.tracks)
        return [self.find_job(job_id)[1].card() for job_id in ids]

    @property
    def members(self) -> list[WatchedMember]:
        """All that live, and the last that have ended."""
        return [member for member in self._members.values() if not self._is_other(member)]

    def find_job(self, job_id: str) -> tuple[WatchedMember, JobTrack]:
        """Return a job and a member that knows it: its coordinator, if that is watched.

        Raises:
            JobNotFoundError: no member knows it.
        """
        known = [(member, member.tracks[job_id]) for member in self.members if job_id in member.tracks]
        if not known:
            raise JobNotFoundError(f"there is no job {job_id!r}")
        return next((pair for pair in known if pair[1].row.leads and not pair[0].ended), known[-1])

    async def cancel(self, job_id: str) -> bool:
        """Ask for the end of a job; False when it has ended already.

        Raises:
            JobNotFoundError: no member knows it.
            MemberLostError: its member is gone, or does not answer.
        """
        member, track = self._living(job_id)
        if not track.is_running:
            return False
        await member.cancel(track)
        return True

    async def steer(self, job_id: str, what: type[SteeringRequest]) -> bool:
        """Suspend a job, let it go on, or restart it; False when it has ended already.

        Raises:
            JobNotFoundError: no member knows it.
            MemberLostError: its member is gone, or does not answer.
            ShmjetError: that does not go with the job's status.
        """
        member, track = self._living(job_id)
        if not track.is_running:
            return False
        await member.steer(track, what)
        return True

    def _living(self, job_id: str) -> tuple[WatchedMember, JobTrack]:
        member, track = self.find_job(job_id)
        if member.ended:
            raise MemberLostError("the member of this job is gone")
        return member, track
