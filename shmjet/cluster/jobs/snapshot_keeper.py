"""Keeps this member's copies of snapshots, as the coordinator of the view orders it.

A snapshot counts on a member when its manifest has its name there, which is the last thing that is done about it.
`docs/design/0032-snapshots-on-all-members.md` says what has to be done in which order. Must not know attempts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from shmjet.cluster.jobs.file_exchange import FileExchange
from shmjet.cluster.jobs.questions import Questions, SnapshotNetwork
from shmjet.cluster.jobs.snapshot_copies import SnapshotCopies
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
from shmjet.snapshots.manifest import Manifest, parse_manifest
from shmjet.snapshots.store import (
    LineageStore,
    SnapshotStore,
    exported_folder,
    exported_name,
)


class SnapshotKeeper:
    """See the module.

    Args:
        store: of this member's snapshots.
        network: leads to the others.
        backups: how many copies a file has in addition to the first.
    """

    def __init__(self, store: SnapshotStore, network: SnapshotNetwork, backups: int = 1) -> None:
        self._store = store
        self._network = network
        self._thread = ThreadPoolExecutor(2, thread_name_prefix="shmjet-snapshots")
        self._questions = Questions(network)
        self._exchange = FileExchange(store, network, self._questions, self._thread)
        self.copies = SnapshotCopies(store, network, backups, self._questions, self._exchange, self._let_go)
        """Those on all members, which this one sees to as the coordinator."""
        self._keeping: dict[str, dict[asyncio.Task[None], int]] = {}
        """What is being kept here, by folder, with the numbers of the snapshots."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._forgetting = asyncio.Lock()
        self._lineages: dict[str, LineageStore] = {}
        self._left_over: set[str] = set()
        """The lineages that were here when this member was last out of its cluster, until it is known which go on."""

    def stop(self) -> None:
        """Do nothing more."""
        self.copies.stop()
        for task in list(self._tasks):
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def forget_all(self) -> None:
        """Let no snapshot of a run count here: this member is out of its cluster, and the runs may go on without it.

        Chunk files stay: others may have gone on from an older snapshot and miss a copy. See `remove_left_over`.
        """
        for folder in list(self._keeping):
            if exported_name(folder) is None:
                for task in self._keeping[folder]:
                    task.cancel()
        self._left_over = set(self._store.lineages())
        for name in self._left_over:
            with contextlib.suppress(OSError):
                lineage = self._lineage(name)
                for number in lineage.valid():
                    lineage.distrust(number)

    def remove_left_over(self, live: Collection[str]) -> None:
        """Remove what is left of runs that have ended while this member was out of the cluster.

        Args:
            live: the lineages of all runs that have not.
        """
        for name in self._left_over.difference(live):
            self._let_go(name)
            with contextlib.suppress(OSError):
                self._store.lineage(name).remove()
        self._left_over.clear()

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
        await self._withdraw(lineage, number)
        if number < 0:
            return
        store = self._lineage(lineage)
        path = store.path_of(number)
        if coordinator == self._network.me.uuid:
            manifest = await self._exchange.do(lambda: store.read(number))
        else:  # a lost coordinator may have left another manifest of this number
            await self._exchange.do(lambda: self._store.make(lineage))
            data = await self._exchange.read(lineage, path.name, coordinator)
            manifest = parse_manifest(data, path)
            os.replace(await self._exchange.do(lambda: store.write_ahead(number, manifest.files(), data)), path)
        await self._exchange.fetch_all(lineage, manifest, files)

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

    def _let_go(self, name: str) -> None:
        """Take that a lineage is being removed."""
        self._lineages.pop(name, None)

    # -- messages -----------------------------------------------------------------------------------------------

    def receive(self, sender: str, message: Any) -> None:
        """Take what another member of the view says."""
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
                self._start(self._answer(sender, message.number, self._exchange.do(self._store.sync_maps)))
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
        error = ""
        try:
            await work
        except (OSError, ShmjetError, ValueError) as refusal:
            error = str(refusal) or type(refusal).__name__
        self._network.send(sender, SnapshotKept(number, error))

    async def _keep_now(self, sender: str, order: KeepSnapshot) -> None:
        data = await self._exchange.read(order.folder, order.manifest, sender)
        manifest = await self._exchange.do(lambda: parse_manifest(data, order.manifest))
        await self._exchange.do(lambda: self._store.make(order.folder))
        await self._exchange.fetch_all(order.folder, manifest, order.files)
        if order.export:
            await self._exchange.do(lambda: self._export(order, manifest))
        elif not order.counts:  # an exported snapshot gets another copy
            path = self._store.file(order.folder, order.manifest)
            await self._exchange.do(lambda: _replace(path, data, sync=self._store.sync))
        if order.counts:
            lineage = self._lineage(order.folder)
            path = lineage.path_of(order.snapshot)
            temporary = await self._exchange.do(lambda: lineage.write_ahead(order.snapshot, manifest.files(), data))
            os.replace(temporary, path)  # here, so that it does not happen when this was cancelled before
            await self._exchange.do(lambda: lineage.settle(order.snapshot))

    def _export(self, order: KeepSnapshot, manifest: Manifest) -> None:
        folder = self._store.root / order.folder
        here = {name for name in manifest.files() if (folder / name).exists()}
        self._store.keep(manifest, folder, order.export, version=order.version, files=here)

    async def _tell_files(self, sender: str, question: AskSnapshots) -> None:
        with contextlib.suppress(OSError, ShmjetError, ValueError):
            if question.begun_from:
                await self._exchange.do(lambda: self._store.link_initial(question.begun_from, question.folder))
        names = await self._exchange.do(lambda: self._store.names(question.folder))
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
            await self._exchange.do(lambda: self._store.keep_only(name, order.but))
        elif name is not None:
            await self._exchange.do(lambda: self._store.destroy(name))
        elif order.snapshot < 0:
            self._let_go(order.folder)
            await self._exchange.do(lambda: self._store.lineage(order.folder).remove())
        else:
            store = self._lineage(order.folder)
            store.distrust(order.snapshot)
            await self._exchange.do(lambda: store.prune(order.snapshot))


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
