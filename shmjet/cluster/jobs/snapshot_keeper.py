"""Keeps copies of snapshots on several members: has others take them, takes what the coordinator of the view orders.

A snapshot counts on a member when its manifest has its name there, which is the last thing that is done about it.
`docs/design/0032-snapshots-on-all-members.md` says what has to be done in which order. Must not know attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from shmjet.cluster.jobs.copies import Keeper, copies_wanted, holders_of
from shmjet.cluster.jobs.file_exchange import FileExchange, done_in, host_of
from shmjet.cluster.jobs.questions import Questions, SnapshotNetwork
from shmjet.cluster.membership.peer_messages import (
    AskFile,
    AskSnapshots,
    FilePiece,
    ForgetSnapshots,
    KeepSnapshot,
    SnapshotFiles,
    SnapshotKept,
    SyncMaps,
)
from shmjet.data.errors import ShmjetError
from shmjet.host.folders import sync_folder
from shmjet.snapshots.manifest import Manifest, Piece, manifest_bytes, parse_manifest, read_manifest
from shmjet.snapshots.store import (
    EXPORTED_MANIFEST,
    ExportedSnapshot,
    LineageStore,
    SnapshotStore,
    exported_folder,
    exported_name,
)

Result = TypeVar("Result")

_AT_ONCE: Final = 4
"""Files that are fetched at once."""
_LEAST_RATE: Final = 8 << 20
"""Bytes of state a second that copies make at least; a slower member fails the snapshot."""

logger = logging.getLogger("shmjet.member")


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """An exported snapshot on its way: its name, and the version under which all members keep it."""

    name: str
    version: str


class SnapshotKeeper:
    """See the module.

    Args:
        store: of this member's snapshots.
        network: leads to the others; None for a member that has none.
        backups: how many copies a file has in addition to the first.
    """

    def __init__(self, store: SnapshotStore, network: SnapshotNetwork | None = None, backups: int = 1) -> None:
        self._store = store
        self._network = network
        self._backups = backups
        self._thread = ThreadPoolExecutor(2, thread_name_prefix="shmjet-snapshots")
        if network is not None:
            self._questions = Questions(network)
            self._exchange = FileExchange(store, network, self._questions, self._thread)
        self._keeping: dict[str, dict[asyncio.Task[None], int]] = {}
        """What is being kept here, by folder, with the numbers of the snapshots."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgetting = asyncio.Lock()
        self._lineages: dict[str, LineageStore] = {}
        self._idle: Callable[[], Iterable[str]] = tuple
        self._look_again = False
        self._looking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Do nothing more."""
        for task in list(self._tasks):
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    @property
    def has_network(self) -> bool:
        """Whether there may be other members."""
        return self._network is not None

    @property
    def others(self) -> list[str]:
        """The other members of the view."""
        view = None if self._network is None else self._network.view
        if view is None or self._network is None:
            return []
        return [peer.uuid for peer in view.members if peer.uuid != self._network.me.uuid]

    def _name_of(self, member: str) -> str:
        view = None if self._network is None else self._network.view
        peer = None if view is None else view.find(member)
        return member if peer is None else peer.address

    def _wanted(self, holders: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[str]]]:
        view = None if self._network is None else self._network.view
        members = [] if view is None else [Keeper(peer.uuid, host_of(peer.address)) for peer in view.members]
        return copies_wanted(holders, members, self._backups)

    # -- as the coordinator -------------------------------------------------------------------------------------

    async def keep_on_others(
        self,
        folder: str,
        manifest: Manifest,
        holders: Mapping[str, Sequence[str]],
        *,
        counts: bool,
        export: Export | None = None,
        least_s: float,
    ) -> None:
        """Have the chunk files of a new snapshot copied, and its manifest on all other members.

        Args:
            folder: of the lineage.
            manifest: of the snapshot, which does not count here yet.
            holders: who has each file.
            counts: whether attempts may go on from it.
            export: as what it is exported.
            least_s: how long this may take; longer for large state.

        Raises:
            OSError, TimeoutError, ShmjetError: it is not kept everywhere; `forget` it.
        """
        number = manifest.snapshot_id
        proposal = f"{number}.proposal"
        bound = least_s + manifest.size / _LEAST_RATE
        self._exchange.offer(folder, proposal, manifest_bytes(manifest))
        wanted = self._wanted(holders)
        order = KeepSnapshot(0, folder, proposal, number, {}, counts)
        if export is not None:
            order = msgspec.structs.replace(order, export=export.name, version=export.version)
        try:
            async with asyncio.timeout(bound), asyncio.TaskGroup() as group:
                await self._sync_maps()
                for member in self.others:
                    group.create_task(
                        self._kept_by(member, msgspec.structs.replace(order, files=wanted.pop(member, {})))
                    )
                for own in wanted.values():  # what is left are this member's
                    group.create_task(self._fetch(folder, manifest, own))
        except TimeoutError as error:
            raise TimeoutError(f"its chunk files were not copied within {bound:g} s") from error
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._exchange.withdraw(folder, proposal)

    async def _sync_maps(self) -> None:
        """Have all members bring to disk what a snapshot stands on, before it counts on any."""
        if self._store.sync:
            await self._do(self._store.sync_maps)
            await asyncio.gather(*(self._kept_by(member, SyncMaps(0)) for member in self.others))

    async def _kept_by(self, member: str, order: KeepSnapshot | SyncMaps) -> None:
        try:
            kept: SnapshotKept = await self._questions.ask(
                member, lambda number: msgspec.structs.replace(order, number=number)
            )
        except OSError as error:
            raise OSError(f"member {self._name_of(member)}: {error}") from error
        if kept.error:
            raise OSError(f"member {self._name_of(member)}: {kept.error}")

    async def held(self, folder: str, begun_from: str = "") -> dict[str, frozenset[str]]:
        """Return which files of a folder each member has, this one included.

        Args:
            folder: of a lineage, or of an exported snapshot.
            begun_from: the folder of the exported snapshot with which the lineage begins: who has files of it takes
                them into the lineage.

        Raises:
            OSError: a member is lost before it has answered.
        """
        assert self._network is not None
        found = {self._network.me.uuid: frozenset(await self._do(lambda: self._store.names(folder)))}

        async def ask(member: str) -> None:
            files: SnapshotFiles = await self._questions.ask(
                member, lambda number: AskSnapshots(number, folder, begun_from)
            )
            found[member] = frozenset(files.names)

        try:
            async with asyncio.TaskGroup() as group:
                for member in self.others:
                    group.create_task(ask(member))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return found

    async def is_whole(self, snapshot: ExportedSnapshot) -> bool:
        """Say whether the members have all chunk files of an exported snapshot.

        Raises:
            OSError: a member is lost before it has said what it has.
        """
        if self._network is None:
            return True
        held = await self.held(self._store.folder_of(snapshot.path))
        return not snapshot.manifest.files().difference(*held.values())

    def forget(self, folder: str, number: int = -1, but: str = "") -> None:
        """Have all others forget a snapshot that has failed; or a lineage, if there is no number.

        Args:
            folder: of the lineage, or of all versions of an exported snapshot.
            number: of the snapshot.
            but: the version of an exported snapshot to leave.
        """
        if self._network is not None:
            for member in self.others:
                self._network.send(member, ForgetSnapshots(folder, number, but))

    # -- as a participant ---------------------------------------------------------------------------------------

    async def restore(self, lineage: str, number: int, coordinator: str, files: Mapping[str, Sequence[str]]) -> None:
        """Have all of a snapshot here, and let none that is newer count.

        Args:
            lineage: to which it belongs.
            number: of the snapshot, -1 for none.
            coordinator: who has its manifest.
            files: who has what this member lacks.

        Raises:
            OSError, ShmjetError: something of it cannot be had.
        """
        assert self._network is not None
        await self._withdraw(lineage, number)
        if number < 0:
            return
        store = self._lineage(lineage)
        path = store.path_of(number)
        if coordinator == self._network.me.uuid:
            manifest = await self._do(lambda: read_manifest(path))
        else:  # a lost coordinator may have left another manifest of this number
            data = await self._exchange.read(lineage, path.name, coordinator)
            manifest = parse_manifest(data, path)
            os.replace(await self._do(lambda: store.write_ahead(number, manifest.files(), data)), path)
        await self._fetch(lineage, manifest, files)

    async def _withdraw(self, lineage: str, after: int) -> None:
        """Let no snapshot count that is newer than one, nor become valid any more."""
        tasks = list(self._keeping.get(lineage, {}))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store = self._lineage(lineage)
        for number in store.valid():
            if number > after:
                store.distrust(number)

    def _lineage(self, name: str) -> LineageStore:
        if name not in self._lineages:
            self._lineages[name] = self._store.lineage(name)
        return self._lineages[name]

    # -- messages -----------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Any) -> None:
        """Take what another member of the view says."""
        assert self._network is not None
        view = self._network.view
        is_coordinator = view is not None and view.coordinator.uuid == sender
        match message:
            case FilePiece() | SnapshotKept() | SnapshotFiles():
                self._questions.answered(sender, message)
            case AskFile():
                self._start(self._exchange.give(sender, message))
            case AskSnapshots():
                self._start(self._tell_files(sender, message))
            case SyncMaps():
                self._start(self._answer(sender, message.number, self._do(self._store.sync_maps)))
            case KeepSnapshot() if is_coordinator:
                task = self._start(self._answer(sender, message.number, self._keep_now(sender, message)))
                folders = [message.folder, *([exported_folder(message.export)] if message.export else [])]
                for folder in folders:
                    self._keeping.setdefault(folder, {})[task] = message.snapshot
                    task.add_done_callback(partial(self._kept, folder))
            case ForgetSnapshots() if is_coordinator:
                self._start(self._forget(message))

    def member_gone(self, member: str, why: str) -> None:
        """Take that a member is lost, or the connection to it."""
        if self._network is not None:
            self._questions.lost(member, why)

    def _kept(self, folder: str, task: asyncio.Task[None]) -> None:
        keeping = self._keeping.get(folder, {})
        keeping.pop(task, None)
        if not keeping:
            self._keeping.pop(folder, None)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _answer(self, sender: str, number: int, work: Awaitable[None]) -> None:
        assert self._network is not None
        error = ""
        try:
            await work
        except (OSError, ShmjetError, ValueError) as refusal:
            error = str(refusal) or type(refusal).__name__
        self._network.send(sender, SnapshotKept(number, error))

    async def _keep_now(self, sender: str, order: KeepSnapshot) -> None:
        data = await self._exchange.read(order.folder, order.manifest, sender)
        manifest = await self._do(lambda: parse_manifest(data, order.manifest))
        await self._do(lambda: self._store.make(order.folder))
        await self._fetch(order.folder, manifest, order.files)
        if order.export:
            await self._do(lambda: self._export(order, manifest))
        elif not order.counts:  # an exported snapshot gets another copy
            path = self._store.file(order.folder, order.manifest)
            await self._do(lambda: _replace(path, data, sync=self._store.sync))
        if order.counts:
            lineage = self._lineage(order.folder)
            path = lineage.path_of(order.snapshot)
            temporary = await self._do(lambda: lineage.write_ahead(order.snapshot, manifest.files(), data))
            os.replace(temporary, path)  # here, so that it does not happen when this was cancelled before
            await self._do(lambda: lineage.settle(order.snapshot))

    def _export(self, order: KeepSnapshot, manifest: Manifest) -> None:
        folder = self._store.root / order.folder
        here = {name for name in manifest.files() if (folder / name).exists()}
        self._store.keep(manifest, folder, order.export, version=order.version, files=here)

    async def _fetch(self, folder: str, manifest: Manifest, files: Mapping[str, Sequence[str]]) -> None:
        """Fetch chunk files, some at once."""
        pieces: dict[str, list[Piece]] = {}
        for vertex in manifest.vertices:
            for piece in vertex.pieces():
                if piece.file in files:
                    pieces.setdefault(piece.file, []).append(piece)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def fetch(file: str) -> None:
            async with turns:
                await self._exchange.fetch(folder, file, files[file], pieces.get(file, ()))

        try:
            async with asyncio.TaskGroup() as group:
                for file in sorted(files):
                    group.create_task(fetch(file))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _tell_files(self, sender: str, question: AskSnapshots) -> None:
        assert self._network is not None
        with contextlib.suppress(OSError, ShmjetError, ValueError):
            if question.begun_from:
                await self._do(lambda: self._store.link_initial(question.begun_from, question.folder))
        names = await self._do(lambda: self._store.names(question.folder))
        self._network.send(sender, SnapshotFiles(question.number, names))

    async def _forget(self, order: ForgetSnapshots) -> None:
        """Forget what the coordinator forgets, in the order in which it has said so."""
        async with self._forgetting:
            await self._forget_now(order)

    async def _forget_now(self, order: ForgetSnapshots) -> None:
        tasks = [task for task, number in self._keeping.get(order.folder, {}).items() if order.snapshot in (-1, number)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        name = exported_name(order.folder)
        if name is not None and order.but:
            await self._do(lambda: self._store.keep_only(name, order.but))
        elif name is not None:
            await self._do(lambda: self._store.destroy(name))
        elif order.snapshot < 0:
            self._lineages.pop(order.folder, None)
            await self._do(lambda: self._store.lineage(order.folder).remove())
        else:
            store = self._lineage(order.folder)
            store.distrust(order.snapshot)
            await self._do(lambda: store.prune(order.snapshot))

    # -- in the background --------------------------------------------------------------------------------------

    def look(self, idle: Callable[[], Iterable[str]]) -> None:
        """Have copies made where they are missing, of exported snapshots and of lineages without an attempt.

        Args:
            idle: gives the names of these lineages.
        """
        self._idle, self._look_again = idle, True
        if self.others and (self._looking is None or self._looking.done()):
            self._looking = self._start(self._look())

    async def looked(self) -> None:
        """Wait until that has been done as far as it can be."""
        if self._looking is not None:
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        while self._look_again:
            self._look_again = False
            lineages = list(self._idle())
            for folder, number in await self._do(lambda: self._kept_here(lineages)):  # noqa: B023
                try:
                    await self._copy_anew(folder, number)
                except (OSError, ShmjetError, ValueError) as error:
                    logger.warning("snapshot %s of %s has not all copies that it should: %s", number, folder, error)

    def _kept_here(self, lineages: Iterable[str]) -> list[tuple[str, int]]:
        exported = [(self._store.folder_of(snapshot.path), -1) for snapshot in self._store.exported()]
        return exported + [(name, number) for name in lineages for number in self._store.lineage(name).valid()]

    async def _copy_anew(self, folder: str, number: int) -> None:
        assert self._network is not None
        path = self._store.file(folder, EXPORTED_MANIFEST)
        if number >= 0:
            path = self._lineage(folder).path_of(number)
        data = await self._do(path.read_bytes)
        manifest = parse_manifest(data, path)
        held = await self.held(folder)
        holders = holders_of(manifest.files(), held)
        lost = sorted(file for file, members in holders.items() if not members)
        if lost:
            logger.error("snapshot %s cannot be used any more: no member has its chunk file %s", path, ", ".join(lost))
        wanted = self._wanted(holders)
        for member in self.others:
            files = wanted.get(member, {})
            if files or path.name not in held[member]:
                await self._kept_by(member, KeepSnapshot(0, folder, path.name, number, files, number >= 0))
        await self._fetch(folder, manifest, wanted.get(self._network.me.uuid, {}))

    async def _do(self, work: Callable[[], Result]) -> Result:
        return await done_in(self._thread, work)


def _replace(path: Path, data: bytes, *, sync: bool) -> None:
    """Write a file under another name first."""
    temporary = path.with_name(f".{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)
    if sync:
        sync_folder(path.parent)
