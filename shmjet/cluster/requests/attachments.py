"""Files attached to jobs: kept in the instance's folder, and sent to the members that take part in an execution.

Messages to other members go through here as well (`Post`), because files go the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from shmjet.cluster.membership.peer_messages import PutFile
from shmjet.cluster.protocol import FILE_PIECE, Done, Refused, Submission, Upload
from shmjet.data.errors import JobNotFoundError, ShmjetError
from shmjet.host.folders import remove_folder

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network

_PART = ".part"
"""Ends the name of a file whose last piece has not come."""
MOST_JOBS = 64
"""Of how many jobs files are kept that are not needed any more, or not yet."""


class Client(Protocol):
    """Who uploads."""

    def send(self, message: object) -> None:
        """Send the answer."""


class Attachments:
    """The attached files of one member.

    Args:
        folder: where they are kept, a folder for each job in it.
        network: leads to other members; None where there are none.
        is_needed: says of a job, by its id, whether it may be executed again, or is being executed.
    """

    def __init__(self, folder: Path, network: Network | None, is_needed: Callable[[str], bool]) -> None:
        self._folder = folder
        self._network = network
        self._is_needed = is_needed
        self._jobs: dict[str, None] = {}
        """The jobs that have files here; the job whose files came last stands last."""

    def upload(self, client: Client, request: Upload) -> None:
        """Write the piece that a client sends, and answer."""
        try:
            self.add(request.job_id, request.path, request.offset, request.data, is_last=len(request.data) < FILE_PIECE)
        except ShmjetError as error:
            client.send(Refused(request.request, type(error).__name__, str(error)))
        else:
            client.send(Done(request.request))

    def add(self, job: str, path: str, offset: int, data: bytes, *, is_last: bool = True) -> None:
        """Write a piece of a file, which is there when its last piece has come.

        The pieces of one sender come in order. Two may send the same file at once, in a restart.

        Args:
            job: id of the job, hexadecimal digits.
            path: relative to the job's folder.
            offset: where the piece begins.
            data: the piece.
            is_last: whether the file ends with it.

        Raises:
            JobNotFoundError: pieces before this one are missing.
            ShmjetError: id or path lead out of the folder.
        """
        where = PurePosixPath(path)
        if not job.isalnum() or where.is_absolute() or ".." in where.parts or not where.parts:
            raise ShmjetError(f"an attachment cannot be called {path!r} in job {job!r}")
        file = self._folder / job / where
        part = file.with_name(f"{file.name}{_PART}")
        if offset == 0:
            self._remove_old(job)
            file.parent.mkdir(parents=True, exist_ok=True)
        if (part.stat().st_size if part.exists() else 0) < offset:
            raise JobNotFoundError(
                f"the beginning of the attachment {path!r} went to a member that was lost; make the job anew"
            )
        with part.open("r+b" if part.exists() else "wb") as stream:
            stream.seek(offset)
            stream.write(data)
            if is_last:
                stream.truncate()
        if is_last:
            part.rename(file)

    def has_all(self, job: Submission) -> bool:
        """Say whether all files attached to a job are here."""
        return all((self._folder / job.job_id / path).exists() for path in job.attachments.values())

    def _remove_old(self, newest: str) -> None:
        """Make room for another job: they lie in memory, and a member may live for months."""
        self._jobs.pop(newest, None)
        self._jobs[newest] = None
        excess = len(self._jobs) - MOST_JOBS
        if excess <= 0:
            return
        old = [job for job in list(self._jobs)[:-1] if not self._is_needed(job)]
        for job in old[:excess]:
            del self._jobs[job]
            remove_folder(self._folder / job)

    def take(self, message: Any) -> bool:
        """Take a piece that another member sends; False when the message is about something else."""
        if isinstance(message, PutFile):
            # Of two senders the first has brought all that the second would; and where pieces were lost with a
            # connection, all are sent again over the next one.
            with contextlib.suppress(JobNotFoundError):
                is_last = len(message.data) < FILE_PIECE
                self.add(message.job, message.path, message.offset, message.data, is_last=is_last)
            return True
        return False

    def send(self, identity: str, message: object) -> None:
        """Send a message to a member; it is lost when the member is."""
        if self._network is not None:
            self._network.send(identity, message)

    async def send_files(self, uuids: Sequence[str], job: Submission) -> None:
        """Send the files of a job; between pieces others get their turn."""
        for path in job.attachments.values():
            with (self._folder / job.job_id / path).open("rb") as stream:
                offset = 0
                while True:
                    data = stream.read(FILE_PIECE)
                    for uuid in uuids:
                        self.send(uuid, PutFile(job.job_id, path, offset, data))
                    offset += len(data)
                    if len(data) < FILE_PIECE:
                        break
                    await asyncio.sleep(0)
