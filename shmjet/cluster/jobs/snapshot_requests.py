"""The answers to requests about exported snapshots: make one, list them, remove one.

Knows not how a run is saved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from weakref import WeakValueDictionary

from shmjet.cluster.jobs.lifecycle_requests import known
from shmjet.cluster.jobs.lineage import snapshot_row
from shmjet.cluster.jobs.run_parts import Running
from shmjet.cluster.jobs.snapshot_copies import SnapshotCopies
from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    SnapshotReply,
    SnapshotRow,
    SnapshotsReply,
)
from shmjet.cluster.protocol import Done, Refused
from shmjet.cluster.requests.client_connections import Client
from shmjet.core.checks import check_snapshot_name
from shmjet.data.errors import ShmjetError
from shmjet.ipc.background_tasks import BackgroundTasks
from shmjet.snapshots.store import SnapshotStore, exported_folder

logger = logging.getLogger("shmjet.member")


class SnapshotRequests:
    """See the module.

    Args:
        run: gives the run of a number, None if there is none.
        store: of snapshots.
        copies: of them on other members; None where there are none.
        is_left: says whether this member has left its cluster, where another one goes on with its runs. Then it
            does not answer: the end of a run here says nothing, and clients ask again.
    """

    def __init__(
        self,
        run: Callable[[int], Running | None],
        store: SnapshotStore,
        copies: SnapshotCopies | None = None,
        *,
        is_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._run = run
        self._store = store
        self._copies = copies
        self._is_left = is_left
        self._tasks = BackgroundTasks()
        self._exporting: dict[str, asyncio.Future[SnapshotRow]] = {}
        """What is being carried out, by the tokens of the requests."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the names of snapshots: one export after the other replaces the older one of its name."""

    def export(self, client: Client, request: ExportSnapshot) -> None:
        """Have the state of a run saved under a name, and answer when that is done."""
        self._tasks.start(self._export(client, request))

    async def _export(self, client: Client, request: ExportSnapshot) -> None:
        try:
            name = check_snapshot_name("the name of a snapshot", request.name)
            row = await self._exported(request, name)
        except ShmjetError as error:
            if not self._is_left():
                client.send(Refused(request.request, type(error).__name__, str(error)))
        except Exception as error:
            logger.exception("snapshot %r cannot be exported", request.name)
            text = f"snapshot {request.name!r} cannot be exported: {type(error).__name__}: {error}"
            client.send(Refused(request.request, "ShmjetError", text))
        else:
            client.send(SnapshotReply(request.request, row))

    async def _exported(self, request: ExportSnapshot, name: str) -> SnapshotRow:
        """Have a run saved, or find what an earlier request with the same token has come to.

        A run without a guarantee begins anew when its coordinator is lost. So what was saved before is not replaced.
        """
        if request.again and (under_way := self._exporting.get(request.token)) is not None:
            return await asyncio.shield(under_way)
        if request.again and (row := await self._done_before(name, request.token)) is not None:
            run = self._run(request.execution_id)
            if run is None or run.status.is_terminal or not request.cancel:
                return row
            if not run.job.settings.has_guarantee:
                run.cancel()
                await run.until_ended()
                return row
        exporting = asyncio.ensure_future(self._in_turn(request, name))
        if not request.token:
            return await exporting
        self._exporting[request.token] = exporting
        try:
            return await exporting
        finally:
            self._exporting.pop(request.token, None)

    async def _in_turn(self, request: ExportSnapshot, name: str) -> SnapshotRow:
        """Have a run saved, after all earlier exports under the same name."""
        async with self._turns.setdefault(name, asyncio.Lock()):
            run = known(self._run, request.execution_id)
            return await run.export_snapshot(name, cancel=request.cancel, token=request.token)

    async def _done_before(self, name: str, token: str) -> SnapshotRow | None:
        """Return what was exported for a request, if all of it is there."""
        found = await asyncio.to_thread(self._store.find, name)
        if found is None or found.manifest.token != token:
            return None
        is_whole = self._copies is None or await self._copies.is_whole(found)
        return snapshot_row(found) if is_whole else None

    def list_snapshots(self, client: Client, request: ListSnapshots) -> None:
        """Answer with the exported snapshots, the oldest first."""
        self._tasks.start(self._list(client, request))

    async def _list(self, client: Client, request: ListSnapshots) -> None:
        try:
            rows = await asyncio.to_thread(self._rows)  # manifests may be large, and lie on a disk
        except OSError as error:
            client.send(Refused(request.request, "ShmjetError", f"the snapshots cannot be read: {error}"))
        else:
            client.send(SnapshotsReply(request.request, rows))

    def _rows(self) -> list[SnapshotRow]:
        return [snapshot_row(snapshot) for snapshot in self._store.exported()]

    def destroy_snapshot(self, client: Client, request: DestroySnapshot) -> None:
        """Remove an exported snapshot."""
        self._tasks.start(self._destroy(client, request))

    async def _destroy(self, client: Client, request: DestroySnapshot) -> None:
        try:
            name = check_snapshot_name("the name of a snapshot", request.name)
            await asyncio.to_thread(self._store.destroy, name)
            if self._copies is not None:
                self._copies.forget(exported_folder(name))
        except (ShmjetError, OSError) as error:
            text = f"snapshot {request.name!r} cannot be removed: {error}"
            client.send(Refused(request.request, "ShmjetError", text))
        else:
            client.send(Done(request.request))
