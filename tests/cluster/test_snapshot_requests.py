"""How requests about exported snapshots are answered."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shmjet.cluster.jobs.snapshot_requests import SnapshotRequests
from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    SnapshotReply,
    SnapshotRow,
    SnapshotsReply,
)
from shmjet.cluster.protocol import Done
from shmjet.core import JobStateError
from shmjet.snapshots.manifest import Manifest
from shmjet.snapshots.store import SnapshotStore


class Run:
    """A run whose state is saved by the store, or is not."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.exports: list[tuple[str, bool]] = []

    async def export_snapshot(self, name: str, *, cancel: bool = False) -> SnapshotRow:
        if self.error is not None:
            raise self.error
        self.exports.append((name, cancel))
        return row(name)


class Client:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def send(self, message: object) -> None:
        self.told.append(message)


def row(name: str, created: float = 5.0) -> SnapshotRow:
    return SnapshotRow(name, "clicks", created, 0, 0, {})


def keep(store: SnapshotStore, folder: Path, name: str, created: float) -> None:
    store.keep(Manifest("lineage", 1, "0" * 16, "clicks", created, False, []), folder, name)


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
