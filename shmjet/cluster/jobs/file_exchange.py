"""Fetches files of snapshots from other members, and gives others pieces of the files that are here.

Who lacks a file asks a member that has it for one piece after the other. So two pieces of each file are under way,
however slow a member is, and a member that is full costs the others nothing. Files are read and written by a thread. A
file has its name when it is whole and has been compared with its checksums. Members of one host link it instead.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from shmjet.cluster.jobs.questions import Questions, SnapshotNetwork
from shmjet.cluster.membership.peer_messages import AskFile, FilePiece
from shmjet.host.folders import remove_folder
from shmjet.net.addresses import split_address
from shmjet.snapshots.chunk import check_pieces
from shmjet.snapshots.manifest import DamagedSnapshotError, Manifest, Piece
from shmjet.snapshots.store import SnapshotStore

Result = TypeVar("Result")

PIECE: Final = 1 << 20
"""Bytes of a file in one message."""
_AT_ONCE: Final = 4
"""Files that are fetched at once."""
_FETCHING: Final = ".fetching-"


class NotGivenError(OSError):
    """No member gives a file; the text names it."""


class FileExchange:
    """See the module.

    Args:
        store: where the files lie.
        network: leads to the others.
        questions: to them.
        thread: reads and writes.
    """

    def __init__(
        self, store: SnapshotStore, network: SnapshotNetwork, questions: Questions, thread: ThreadPoolExecutor
    ) -> None:
        self._store = store
        self._network = network
        self._questions = questions
        self._thread = thread
        self._offers: dict[tuple[str, str], bytes] = {}
        self._numbers = itertools.count(1)

    # -- to others ----------------------------------------------------------------------------------------------

    def offer(self, folder: str, file: str, data: bytes) -> None:
        """Give others these bytes when they ask for a file of that name, until `withdraw`."""
        self._offers[folder, file] = data

    def withdraw(self, folder: str, file: str) -> None:
        """Do not offer something any more."""
        self._offers.pop((folder, file), None)

    async def give(self, sender: str, question: AskFile) -> None:
        """Answer a question for a piece."""
        offered = self._offers.get((question.folder, question.file))
        try:
            if offered is not None:
                data = offered[question.offset : question.offset + PIECE]
                answer = FilePiece(question.number, data, len(offered))
            else:
                path = self._store.file(question.folder, question.file)
                if question.is_here:
                    answer = FilePiece(question.number, b"", 0, str(path))
                else:
                    data, size = await self.do(lambda: _read(path, question.offset))
                    answer = FilePiece(question.number, data, size)
        except (OSError, ValueError) as error:
            answer = FilePiece(question.number, b"", 0, error=str(error))
        self._network.send(sender, answer)

    async def do(self, work: Callable[[], Result]) -> Result:
        """Do something in the thread of files; see `done_in`."""
        return await done_in(self._thread, work)

    # -- from others --------------------------------------------------------------------------------------------

    async def read(self, folder: str, file: str, holder: str) -> bytes:
        """Return all bytes of a file of another member. Raises NotGivenError when it gives them not."""
        parts: list[bytes] = []
        size, offset = 1, 0
        while offset < size:
            piece = await self._piece(holder, folder, file, offset)
            size, offset = piece.size, offset + len(piece.data)
            parts.append(piece.data)
        return b"".join(parts)

    async def fetch(self, folder: str, file: str, holders: Sequence[str], pieces: Collection[Piece]) -> None:
        """Have a file that other members have.

        Args:
            folder: in the store, here and there.
            file: its name.
            holders: who has it; one is asked after the other.
            pieces: that have to be in it.

        Raises:
            NotGivenError: no one gives it whole.
            OSError: there is no room for it here.
        """
        if await self.do(self._store.file(folder, file).exists):
            return
        reasons = []
        for holder in holders:
            try:
                await self._fetch_from(holder, folder, file, pieces)
            except (NotGivenError, DamagedSnapshotError) as error:
                reasons.append(str(error))
            else:
                return
        why = "; ".join(reasons) or "no member has it"
        raise NotGivenError(f"chunk file {file!r} cannot be had: {why}")

    async def fetch_all(self, folder: str, manifest: Manifest, files: Mapping[str, Sequence[str]]) -> None:
        """Have chunk files of a snapshot, some at once.

        Args:
            folder: in the store, here and there.
            manifest: of the snapshot.
            files: with the members that have each.

        Raises:
            NotGivenError, OSError: as `fetch`.
        """
        pieces: dict[str, list[Piece]] = {}
        for vertex in manifest.vertices:
            for piece in vertex.pieces():
                if piece.file in files:
                    pieces.setdefault(piece.file, []).append(piece)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def fetch(file: str) -> None:
            async with turns:
                await self.fetch(folder, file, files[file], pieces.get(file, ()))

        try:
            async with asyncio.TaskGroup() as group:
                for file in sorted(files):
                    group.create_task(fetch(file))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _fetch_from(self, holder: str, folder: str, file: str, pieces: Collection[Piece]) -> None:
        target = self._store.file(folder, file)
        place = target.parent / f"{_FETCHING}{next(self._numbers)}"
        path = place / file
        await self.do(lambda: place.mkdir(mode=0o700, parents=True))
        try:
            if not await self._link(holder, folder, file, path):  # a linked one is compared where it is read
                await self._copy(holder, folder, file, path)
                await self.do(lambda: check_pieces(place, pieces))
            await self.do(lambda: _move(path, target, sync=self._store.sync))
        finally:
            remove_folder(place)

    async def _copy(self, holder: str, folder: str, file: str, path: Path) -> None:
        """Copy a file piece by piece; the next one is on its way while one is written."""
        offset = 0
        coming = asyncio.ensure_future(self._piece(holder, folder, file, offset))
        try:
            while True:
                piece = await coming
                start, offset = offset, offset + len(piece.data)
                if offset < piece.size:
                    coming = asyncio.ensure_future(self._piece(holder, folder, file, offset))
                await self.do(partial(_write, path, start, piece.data))
                if offset >= piece.size:
                    return
        finally:
            coming.cancel()

    async def _link(self, holder: str, folder: str, file: str, path: Path) -> bool:
        """Let a file of a member of the same host have a name here, too; say whether that can be done."""
        view = self._network.view
        peer = None if view is None else view.find(holder)
        if peer is None or host_of(peer.address) != host_of(self._network.me.address):
            return False
        piece: FilePiece = await self._ask(holder, lambda number: AskFile(number, folder, file, 0, is_here=True))
        try:
            await self.do(lambda: os.link(piece.path, path))
        except OSError:  # another file system, or another user's
            return False
        return True

    async def _piece(self, holder: str, folder: str, file: str, offset: int) -> FilePiece:
        piece = await self._ask(holder, lambda number: AskFile(number, folder, file, offset))
        if not piece.data and offset < piece.size:
            raise NotGivenError(f"member {holder} has {offset} of {piece.size} bytes of {file!r}")
        return piece

    async def _ask(self, holder: str, make: Callable[[int], AskFile]) -> FilePiece:
        try:
            piece: FilePiece = await self._questions.ask(holder, make)
        except OSError as error:
            raise NotGivenError(str(error)) from error
        if piece.error:
            raise NotGivenError(f"member {holder}: {piece.error}")
        return piece


async def done_in(thread: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    """Do something in a thread. When this is cancelled, it ends after the work: nothing is changed behind its back."""
    done = asyncio.get_running_loop().run_in_executor(thread, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        await asyncio.wait({done})
        raise


def host_of(address: str) -> str:
    """Return what members of one host have in common."""
    return split_address(address)[0]


def _read(path: Path, offset: int) -> tuple[bytes, int]:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(PIECE), os.fstat(file.fileno()).st_size


def _write(path: Path, offset: int, data: bytes) -> None:
    """Write a piece."""
    with path.open("r+b" if offset else "wb", buffering=0) as file:
        file.seek(offset)
        waiting = memoryview(data)
        while waiting:
            waiting = waiting[file.write(waiting) :]


def _move(path: Path, target: Path, *, sync: bool) -> None:
    if sync:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    os.replace(path, target)
