"""The console's watch: finds members, looks at each once a second, and tells what the page is to show.

Runs in an event loop, in which nothing blocks: all members are asked at once, and one that does not answer delays no
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from shmjet import __version__
from shmjet.console.membership import WatchedMember
from shmjet.console.snapshot import JobCard, Snapshot
from shmjet.console.tracking import JobTrack
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
        find: returns the folders of instances; called once a period.
        changes: whether the page may offer changes.
        pid: watch only the member that has to do with this process; None for all.
        period: seconds between two looks.
    """

    def __init__(
        self,
        find: Callable[[], Iterable[Path]],
        *,
        changes: bool,
        pid: int | None = None,
        period: float = PERIOD_S,
    ) -> None:
        self._find = find
        self._changes = changes
        self._pid = pid
        self._others: set[Path] = set()
        self._sampling: dict[Path, asyncio.Task[None]] = {}
        self._period = period
        self._members: dict[Path, WatchedMember] = {}
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
            for sampling in self._sampling.values():
                sampling.cancel()
            await asyncio.gather(*self._sampling.values(), return_exceptions=True)
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
        for folder in self._find():
            if folder not in self._members and folder not in self._others:
                self._members[folder] = WatchedMember(folder)
        for folder, member in self._members.items():
            if not member.ended and folder not in self._sampling:
                self._sampling[folder] = asyncio.ensure_future(member.sample())
        if self._sampling:  # one that does not answer is waited for by its own task, and by nobody else
            await asyncio.wait(self._sampling.values(), timeout=self._period)
        for folder, sampling in list(self._sampling.items()):
            if sampling.done():
                del self._sampling[folder]
                if (error := sampling.exception()) is not None:  # what cannot be read must not end the console
                    logger.error("a member cannot be read", exc_info=error)
        await self._forget()

    async def _forget(self) -> None:
        """Leave members that have ended, forget the oldest of them, and those that are not the ones asked for."""
        gone = [folder for folder, member in self._members.items() if member.ended]
        seen = [folder for folder in gone if self._members[folder].about is not None]
        others = [folder for folder, member in self._members.items() if self._is_other(member)]
        for folder in dict.fromkeys([*gone, *others]):
            await self._members[folder].close()
        for folder in {*seen[: max(0, len(seen) - KEPT_MEMBERS)], *(set(gone) - set(seen)), *others}:
            del self._members[folder]
        self._others.update(others)

    def _is_other(self, member: WatchedMember) -> bool:
        return self._pid is not None and member.about is not None and not member.is_of(self._pid)

    # -- for the page -------------------------------------------------------------------------------------------

    async def snapshot(self, job_id: str | None) -> Snapshot:
        """Return what is to be shown.

        Args:
            job_id: the job that is looked at; one that is not known counts as None.
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
        return [track.card() for member in self.members for track in member.tracks.values()]

    @property
    def members(self) -> list[WatchedMember]:
        """All that live, and the last that have ended."""
        return [member for member in self._members.values() if not self._is_other(member)]

    def find_job(self, job_id: str) -> tuple[WatchedMember, JobTrack]:
        """Return a job and its member.

        Raises:
            JobNotFoundError: no member knows it.
        """
        for member in self.members:
            if job_id in member.tracks:
                return member, member.tracks[job_id]
        raise JobNotFoundError(f"there is no job {job_id!r}")

    async def cancel(self, job_id: str) -> bool:
        """Ask for the end of a job; False when it has ended already.

        Raises:
            JobNotFoundError: no member knows it.
            MemberLostError: its member is gone, or does not answer.
        """
        member, track = self.find_job(job_id)
        if member.ended:
            raise MemberLostError("the member of this job is gone")
        if not track.is_running:
            return False
        await member.cancel(track)
        return True
