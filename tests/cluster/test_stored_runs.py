"""The runs that a cluster which has been away goes on with: those of the member that coordinated it last."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shmjet.cluster.jobs.run_records import RunRecord, RunRecords
from shmjet.cluster.jobs.stored_runs import StoredRuns
from shmjet.cluster.partitions.table import Holder, PartitionTable
from shmjet.cluster.protocol import Submission
from shmjet.data.errors import ShmjetError
from shmjet.execution.job_plan import JobShape

JOB = Submission("job", None, JobShape([], []), b"", b"", {}, [])


class Network:
    """Of two members, "a" and "b", the first of which coordinates; what is sent is given to the other one at once."""

    def __init__(self, me: str, led_by: str) -> None:
        self.me: Any = SimpleNamespace(uuid=me)
        self.view = None
        first = PartitionTable.first(1, 4, [Holder("a", "one"), Holder("b", "two")], 0)
        self.table = PartitionTable(*(getattr(first, name) for name in first.__struct_fields__[:-1]), led_by)
        self.other: StoredRuns | None = None

    async def reach(self, identities: Any) -> None:
        pass

    def send(self, identity: str, message: object) -> None:
        if self.other is not None:
            self.other.receive(self.me.uuid, message)


def pair(folder: Path, led_by: str) -> tuple[StoredRuns, StoredRuns, list[RunRecords]]:
    networks = [Network(name, led_by) for name in "ab"]
    records = [RunRecords(folder / name) for name in "ab"]
    a, b = (StoredRuns(network, some) for network, some in zip(networks, records, strict=True))
    networks[0].other, networks[1].other = b, a
    return a, b, records


@pytest.mark.parametrize(("led_by", "asked"), [("a", 0), ("b", 1)])
def test_the_records_of_the_last_coordinator_count(tmp_path: Path, led_by: str, asked: int) -> None:
    a, _, records = pair(tmp_path, led_by)
    found: list[Any] = []
    for number, some in enumerate(records):
        some.all = lambda number=number: found.append(number) or []  # type: ignore[method-assign, misc]
    assert asyncio.run(a.find()) == []
    assert found == [asked]


def test_without_that_member_or_a_storage_no_run_goes_on(tmp_path: Path) -> None:
    a, _, _ = pair(tmp_path, "")
    with pytest.raises(ShmjetError, match="coordinated them last is not there"):
        asyncio.run(a.find())
    with pytest.raises(ShmjetError, match="has no storage"):
        asyncio.run(StoredRuns(Network("a", "a"), None).find())


def test_a_member_that_is_lost_is_not_waited_for(tmp_path: Path) -> None:
    async def story() -> None:
        silent = StoredRuns(Network("a", "b"), RunRecords(tmp_path / "a"))
        finding = asyncio.ensure_future(silent.find())
        await asyncio.sleep(0)
        silent.member_gone("b", "member b is gone")
        with pytest.raises(ShmjetError, match="cannot be asked: member b is gone"):
            await finding

    asyncio.run(story())


def test_the_records_that_a_member_has_got_count_when_the_member_that_had_them_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        a, b, records = pair(tmp_path, "b")
        records[1].all = lambda: [RunRecord(7, "lineage", JOB)]  # type: ignore[method-assign]
        assert await a.get("b")
        b.receive = lambda *_: None  # type: ignore[method-assign]
        a.member_gone("b", "member b is gone")
        assert [record.run for record in await a.find()] == [7]
        a.forget()
        finding = asyncio.ensure_future(a.find())
        await asyncio.sleep(0)
        a.member_gone("b", "member b is gone")
        with pytest.raises(ShmjetError, match="cannot be asked"):
            await finding

    asyncio.run(story())


def test_a_member_asks_once_at_a_time_and_again_after_a_failure(tmp_path: Path) -> None:
    async def story() -> None:
        silent = StoredRuns(Network("a", "b"), RunRecords(tmp_path / "a"))
        getting = asyncio.ensure_future(silent.get("b"))
        await asyncio.sleep(0)
        assert not await silent.get("b")
        silent.member_gone("b", "member b is gone")
        assert not await getting
        a, _, _ = pair(tmp_path, "b")
        assert await a.get("b")

    asyncio.run(story())


def test_records_of_runs_that_others_have_ended_go(tmp_path: Path) -> None:
    records = RunRecords(tmp_path)
    for number in (3, 4, 5):
        records.write(RunRecord(number, "lineage", JOB))
    records.keep_only({4, 9})
    assert [record.run for record in records.all()] == [4]
