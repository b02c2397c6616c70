"""The copies of snapshots on all members, as the coordinator of the view sees to them.

Other members keep them (`snapshot_keeper`). `docs/design/0032-snapshots-on-all-members.md` says what has to be done in
which order. Must not know attempts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from shmjet.cluster.jobs.copies import Keeper, copies_wanted, holders_of
from shmjet.cluster.jobs.file_exchange import FileExchange, host_of
from shmjet.cluster.jobs.questions import Questions, SnapshotNetwork
from shmjet.cluster.membership.peer_messages import (
    AskSnapshots,
    ForgetSnapshots,
    KeepSnapshot,
    SnapshotFiles,
    SnapshotKept,
    SyncMaps,
)
from shmjet.data.errors import ShmjetError
from shmjet.snapshots.manifest import Manifest, manifest_bytes, parse_manifest
from shmjet.snapshots.store import EXPORTED_MANIFEST, ExportedSnapshot, SnapshotStore

_LEAST_RATE: Final = 8 << 20
"""Bytes of state a second that copies make at least; a slower member fails the snapshot."""

logger = logging.getLogger("shmjet.member")


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """An exported snapshot on its way: its name, and the version under which all members keep it."""

    name: str
    version: str


class SnapshotCopies:
    """See the module.

    Args:
        store: of this member's snapshots.
        network: leads to the other members.
        backups: how many copies a file has in addition to the first.
        questions: to the others.
        exchange: fetches files of the others, and offers what they are to fetch.
        forgotten: called with the name of a lineage that all are to forget.
    """

    def __init__(
        self,
        store: SnapshotStore,
        network: SnapshotNetwork,
        backups: int,
        questions: Questions,
        exchange: FileExchange,
        forgotten: Callable[[str], None],
    ) -> None:
        self._store = store
        self._network = network
        self._backups = backups
        self._questions = questions
        self._exchange = exchange
        self._forgotten = forgotten
        self._idle: Callable[[], Iterable[str]] = tuple
        self._look_again = False
        self._looking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Do nothing more."""
        if self._looking is not None:
            self._looking.cancel()

    @property
    def others(self) -> list[str]:
        """The other members of the view."""
        view = self._network.view
        return [] if view is None else [peer.uuid for peer in view.members if peer.uuid != self._network.me.uuid]

    def _name_of(self, member: str) -> str:
        view = self._network.view
        peer = None if view is None else view.find(member)
        return member if peer is None else peer.address

    def _wanted(self, holders: Mapping[str, Sequence[str]]) -> dict[str, dict[str, list[str]]]:
        view = self._network.view
        members = [] if view is None else [Keeper(peer.uuid, host_of(peer.address)) for peer in view.members]
        return copies_wanted(holders, members, self._backups)

    # -- of a new snapshot --------------------------------------------------------------------------------------

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
                    group.create_task(self._exchange.fetch_all(folder, manifest, own))
        except TimeoutError as error:
            raise TimeoutError(f"its chunk files were not copied within {bound:g} s") from error
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._exchange.withdraw(folder, proposal)

    async def _sync_maps(self) -> None:
        """Have all members bring to disk what a snapshot stands on, before it counts on any."""
        if self._store.sync:
            await self._exchange.do(self._store.sync_maps)
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
        found = {self._network.me.uuid: frozenset(await self._exchange.do(lambda: self._store.names(folder)))}

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
        held = await self.held(self._store.folder_of(snapshot.path))
        return not snapshot.manifest.files().difference(*held.values())

    def forget(self, folder: str, number: int = -1, but: str = "") -> None:
        """Have all others forget a snapshot that has failed; or a lineage, if there is no number.

        Args:
            folder: of the lineage, or of all versions of an exported snapshot.
            number: of the snapshot.
            but: the version of an exported snapshot to leave.
        """
        if number < 0:
            self._forgotten(folder)
        for member in self.others:
            self._network.send(member, ForgetSnapshots(folder, number, but))

    # -- of snapshots that members had which are gone -----------------------------------------------------------

    def look(self, idle: Callable[[], Iterable[str]]) -> None:
        """Have copies made where they are missing, of exported snapshots and of lineages without an attempt.

        Args:
            idle: gives the names of these lineages.
        """
        self._idle, self._look_again = idle, True
        if self.others and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def looked(self) -> None:
        """Wait until that has been done as far as it can be."""
        if self._looking is not None:
            await asyncio.wait({self._looking})

    async def _look(self) -> None:
        while self._look_again:
            self._look_again = False
            lineages = list(self._idle())
            for folder, number in await self._exchange.do(lambda: self._kept_here(lineages)):  # noqa: B023
                try:
                    await self._copy_anew(folder, number)
                except (OSError, ShmjetError, ValueError) as error:
                    logger.warning("snapshot %s of %s has not all copies that it should: %s", number, folder, error)

    def _kept_here(self, lineages: Iterable[str]) -> list[tuple[str, int]]:
        exported = [(self._store.folder_of(snapshot.path), -1) for snapshot in self._store.exported()]
        return exported + [(name, number) for name in lineages for number in self._store.lineage(name).valid()]

    async def _copy_anew(self, folder: str, number: int) -> None:
        path = self._store.file(folder, EXPORTED_MANIFEST)
        if number >= 0:
            path = await self._exchange.do(lambda: self._store.lineage(folder).path_of(number))
        data = await self._exchange.do(path.read_bytes)
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
        await self._exchange.fetch_all(folder, manifest, wanted.get(self._network.me.uuid, {}))
