"""How requests about exported snapshots are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.jobs.snapshot_requests import SnapshotRequests
from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    RunSettings,
    SnapshotReply,
    SnapshotRow,
    SnapshotsReply,
)
from shmjet.cluster.protocol import Done, Submission
from shmjet.cluster.retry import as_retry, is_idempotent
from shmjet.core import JobStateError, JobStatus
from shmjet.execution.job_plan import JobShape
from shmjet.snapshots.manifest import Manifest
from shmjet.snapshots.store import SnapshotStore


class Run:
    """A run whose state is saved by the store, or is not."""

    def __init__(
        self, error: Exception | None = None, *, status: JobStatus = JobStatus.RUNNING, guarantee: str = "none"
    ) -> None:
        self.error = error
        self.status = status
        self.job = Submission("job", None, JobShape([], []), b"", b"", {}, [], settings=RunSettings(guarantee))
        self.exports: list[tuple[str, bool]] = []
        self.saves = asyncio.Event()
        self.saves.set()

    async def export_snapshot(self, name: str, *, cancel: bool = False, token: str = "") -> SnapshotRow:
        if self.error is not None:
            raise self.error
        self.exports.append((name, cancel))
        await self.saves.wait()
        return row(name)

    def cancel(self) -> None:
        self.status = JobStatus.FAILED

    async def until_ended(self) -> bool:
        return self.status.is_terminal


class Client:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def send(self, message: object) -> None:
        self.told.append(message)


def row(name: str, created: float = 5.0) -> SnapshotRow:
    return SnapshotRow(name, "clicks", created, 0, 0, {})


def keep(store: SnapshotStore, folder: Path, name: str, created: float, token: str = "") -> None:
    store.keep(Manifest("lineage", 1, "0" * 16, "clicks", created, False, [], token), folder, name)


async def asked(run: Run | None, store: SnapshotStore, *requests: Any) -> list[Any]:
    """Return the answers to requests about run 7."""
    client: Any = Client()
    known: Any = {7: run}
    snapshots = SnapshotRequests(lambda number: known.get(number), store)
    handlers: Any = {
        ExportSnapshot: snapshots.export,
        ListSnapshots: snapshots.list_snapshots,
        DestroySnapshot: snapshots.destroy_snapshot,
    }
    for number, request in enumerate(requests):
        handlers[type(request)](client, request)
        while len(client.told) <= number:
            await asyncio.sleep(0)
    return list(client.told)


def test_a_snapshot_is_exported_when_the_run_has_saved_it(tmp_path: Path) -> None:
    run = Run()
    answers = asyncio.run(asked(run, SnapshotStore(tmp_path), ExportSnapshot(1, 7, "before", True)))
    assert answers == [SnapshotReply(1, row("before"))]
    assert run.exports == [("before", True)]


@pytest.mark.parametrize(
    ("run", "name", "error", "text"),
    [
        (Run(), "../up", "ConfigError", "must not begin with a dot"),
        (Run(), "a/b", "ConfigError", "a slash"),
        (None, "before", "JobStateError", "does not know it any more"),
        (Run(JobStateError("it is STARTING")), "before", "JobStateError", "it is STARTING"),
        (Run(OSError("no room")), "before", "ShmjetError", "no room"),
    ],
)
def test_what_cannot_be_saved_is_refused(run: Run | None, name: str, error: str, text: str, tmp_path: Path) -> None:
    (answer,) = asyncio.run(asked(run, SnapshotStore(tmp_path), ExportSnapshot(1, 7, name)))
    assert (answer.error, text in answer.text) == (error, True)


AGAIN = as_retry(ExportSnapshot(1, 7, "before", token="token"), 1.0)
CANCELS = as_retry(ExportSnapshot(1, 7, "before", True, "token"), 1.0)


def test_an_export_is_asked_for_again_where_it_can_be_recognised() -> None:
    assert not is_idempotent(ExportSnapshot(1, 7, "before"))
    assert is_idempotent(ExportSnapshot(1, 7, "before", token="token"))
    assert AGAIN.again


@pytest.mark.parametrize("run", [None, Run(JobStateError("it is COMPLETED")), Run()])
@pytest.mark.parametrize("request_sent", [AGAIN, CANCELS])
def test_an_export_that_is_asked_for_again_is_done_if_its_snapshot_is_there(
    run: Run | None, request_sent: ExportSnapshot, tmp_path: Path
) -> None:
    store = SnapshotStore(tmp_path)
    keep(store, tmp_path, "before", 7.0, "token")
    assert asyncio.run(asked(run, store, request_sent)) == [SnapshotReply(1, row("before", 7.0))]
    assert run is None or run.exports == []
    if run is not None and request_sent.cancel:
        assert run.status is JobStatus.FAILED, "it ends, without another export"


def test_exports_under_one_name_are_made_one_after_the_other(tmp_path: Path) -> None:
    async def both() -> list[Any]:
        run: Any = Run()
        run.saves.clear()
        client: Any = Client()
        snapshots = SnapshotRequests(lambda number: run, SnapshotStore(tmp_path))
        for number, name in enumerate(("before", "before", "another")):
            snapshots.export(client, ExportSnapshot(number, 7, name))
        for _ in range(10):
            await asyncio.sleep(0)
        begun = list(run.exports)
        run.saves.set()
        while len(client.told) < 3:
            await asyncio.sleep(0)
        return begun

    assert asyncio.run(both()) == [("before", False), ("another", False)]


@pytest.mark.parametrize("token", ["", "of another request"])
def test_an_export_that_is_asked_for_again_is_done_now_if_another_one_has_the_name(token: str, tmp_path: Path) -> None:
    store, run = SnapshotStore(tmp_path), Run()
    keep(store, tmp_path, "before", 7.0, token)
    assert asyncio.run(asked(run, store, AGAIN)) == [SnapshotReply(1, row("before"))]
    assert run.exports == [("before", False)]


def test_a_job_with_a_guarantee_that_goes_on_after_its_last_snapshot_ends_with_another_one(tmp_path: Path) -> None:
    store, run = SnapshotStore(tmp_path), Run(guarantee="exactly_once")
    keep(store, tmp_path, "before", 7.0, "token")
    assert asyncio.run(asked(run, store, CANCELS)) == [SnapshotReply(1, row("before"))]
    assert run.exports == [("before", True)]


def test_an_export_that_is_asked_for_again_while_it_is_carried_out_is_carried_out_once(tmp_path: Path) -> None:
    async def story() -> None:
        client: Any = Client()
        run: Any = Run()
        run.saves.clear()
        snapshots = SnapshotRequests(lambda _: run, SnapshotStore(tmp_path))
        snapshots.export(client, ExportSnapshot(1, 7, "before", token="token"))
        while not run.exports:
            await asyncio.sleep(0)
        snapshots.export(client, msgspec.structs.replace(AGAIN, request=2))
        for _ in range(5):
            await asyncio.sleep(0)
        run.saves.set()
        while len(client.told) < 2:
            await asyncio.sleep(0)
        assert client.told == [SnapshotReply(1, row("before")), SnapshotReply(2, row("before"))]
        assert run.exports == [("before", False)]

    asyncio.run(story())


def test_a_member_that_has_left_refuses_no_export_for_the_end_that_a_run_has_there(tmp_path: Path) -> None:
    async def story() -> None:
        client: Any = Client()
        run: Any = Run(JobStateError("it is FAILED"))
        has_left = False
        snapshots = SnapshotRequests(lambda _: run, SnapshotStore(tmp_path), is_left=lambda: has_left)
        snapshots.export(client, ExportSnapshot(1, 7, "before"))
        while not client.told:
            await asyncio.sleep(0)
        has_left = True
        snapshots.export(client, ExportSnapshot(2, 7, "before"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert [refused.request for refused in client.told] == [1]

    asyncio.run(story())


def test_snapshots_are_listed_the_oldest_first_and_removed(tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path)
    keep(store, tmp_path, "newer", 6.0)
    keep(store, tmp_path, "older", 5.0)
    requests = ListSnapshots(1), DestroySnapshot(2, "older"), DestroySnapshot(3, "older"), ListSnapshots(4)
    answers = asyncio.run(asked(None, store, *requests))
    newer = row("newer", 6.0)
    assert answers == [SnapshotsReply(1, [row("older"), newer]), Done(2), Done(3), SnapshotsReply(4, [newer])]


def test_a_name_that_leads_elsewhere_removes_nothing(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "kept").mkdir()
    (answer,) = asyncio.run(asked(None, SnapshotStore(tmp_path / "snapshots"), DestroySnapshot(1, "../../kept")))
    assert answer.error == "ShmjetError"
    assert (tmp_path / "kept").is_dir()
