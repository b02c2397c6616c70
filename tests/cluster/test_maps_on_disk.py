"""Maps and lists of an instance with a storage: shut down, killed, started again, with and without jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmjet
from shmjet import (
    ClientConfig,
    ConfigError,
    JetConfig,
    JetInstance,
    JobConfig,
    JobStatus,
    MapConfig,
    Pipeline,
    ProcessingGuarantee,
    ShmjetError,
    sinks,
    sources,
)
from shmjet.cli.lifecycle import recover
from shmjet.cli.outcome import CommandError
from shmjet.cli.remote import list_jobs
from shmjet.cluster.folder import base_folder, sweep
from tests.waiting import until

pytestmark = pytest.mark.slow
SOON_S = 60.0
Eventually = Callable[..., None]


def started(storage: Path, **settings: object) -> JetInstance:
    return shmjet.new_instance(JetConfig(cores=2, storage=str(storage), **settings))  # type: ignore[arg-type]


def kill_all(jet: JetInstance) -> None:
    """Kill the member and its workers, and let the instance notice."""
    member = psutil.Process(jet.cluster.members[0].pid)
    for process in [member, *member.children(recursive=True)]:
        os.kill(process.pid, signal.SIGKILL)
    jet.shutdown()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


@pytest.mark.parametrize("sync", [0.01, 0.0])
def test_what_clients_and_jobs_have_written_is_there_after_a_kill(storage: Path, sync: float) -> None:
    maps = {"log": MapConfig(journal_capacity=1000)}
    jet = started(storage, maps=maps, storage_sync=sync)
    jet.get_map("m").put_all({number: str(number) for number in range(500)})
    jet.get_list("l").extend(["a", b"x" * 100_000])
    pipeline = Pipeline()
    numbers = pipeline.read_from(sources.items(range(1000)))
    numbers.map(lambda n: (n % 50, n)).write_to(sinks.map("log"))
    numbers.write_to(sinks.list("numbers"))
    jet.new_job(pipeline).run(SOON_S)
    wanted = dict(jet.get_map("log"))
    jet.get_map("last")["x"] = 1
    if sync:
        jet.shutdown()
    else:
        kill_all(jet)
    with started(storage, maps=maps) as again:
        assert dict(again.get_map("m")) == {number: str(number) for number in range(500)}
        assert list(again.get_list("l")) == ["a", b"x" * 100_000]
        assert dict(again.get_map("log")) == wanted
        assert sorted(again.get_list("numbers")) == list(range(1000))
        assert dict(again.get_map("last")) == {"x": 1}
        again.get_map("m").destroy()
    with started(storage, maps=maps) as again:
        assert len(again.get_map("m")) == 0


COUNTING = JobConfig(name="counting", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02)
COUNT = 3000


def counting(gate: Path) -> Pipeline:
    """Return what counts numbers by their rest in a map, and ends when a file is there."""

    def fill(position: list[int], buffer: Any) -> None:
        until = min(position[0] + 20, COUNT)
        for number in range(position[0], until):
            buffer.add(number)
        position[0] = until
        if until == COUNT and gate.exists():
            buffer.close()

    numbers = (
        sources.builder("numbers", lambda context: [0])
        .fill_buffer_fn(fill)
        .create_snapshot_fn(lambda position: position[0])
        .restore_snapshot_fn(lambda position, saved: position.__setitem__(0, max(saved)))
        .build()
    )
    pipeline = Pipeline()
    source = pipeline.read_from(numbers)
    source.map(lambda n: (n % 7, 1)).write_to(sinks.map("counts", merge_fn=lambda old, new: old + new))
    return pipeline


def ended(jet: JetInstance, gate: Path) -> dict[Any, Any]:
    """Let the job end, and return the map."""
    gate.touch()
    job = jet.job(name="counting")
    assert job is not None
    assert job.execution is not None
    job.execution.result(SOON_S)
    return dict(jet.get_map("counts"))


def has_counted(jet: JetInstance, more_than: int) -> bool:
    return sum(jet.get_map("counts").values()) > min(more_than, COUNT - 1)


def test_a_job_and_the_maps_that_it_writes_go_on_together(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    gate, wanted = tmp_path / "gate", {key: len(range(key, COUNT, 7)) for key in range(7)}
    jet = started(storage)
    jet.new_job(counting(gate), COUNTING).execute()
    for _ in range(3):
        before = sum(jet.get_map("counts").values())
        eventually(lambda jet=jet, before=before: has_counted(jet, before))
        kill_all(jet)
        jet = started(storage)
        job = jet.job(name="counting")
        assert job is not None
        eventually(lambda job=job: job.status is JobStatus.RUNNING)
    with jet:
        assert ended(jet, gate) == wanted
    with started(storage) as again:
        assert dict(again.get_map("counts")) == wanted


def test_a_damaged_folder_is_named(storage: Path) -> None:
    with started(storage) as jet:
        for number in range(20):
            jet.get_list("l").append(number)
    (log,) = (storage / "grid").glob("log-*")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(ShmjetError, match=f"{log} is damaged at offset .*give another folder as storage"):
        started(storage)


# -- in a cluster -----------------------------------------------------------------------------------------------------


def joined(storage: Path, *others: JetInstance, **settings: object) -> JetInstance:
    """Start a member of a cluster."""
    members = [other.cluster.members[0].address for other in others]
    return shmjet.new_instance(
        JetConfig(cores=1, storage=str(storage), bind="127.0.0.1:0", secret="s", members=members, **settings)  # type: ignore[arg-type]
    )


def processes_of(jet: JetInstance) -> list[psutil.Process]:
    """Return the member that a process has started, and its children."""
    (member,) = (psutil.Process(member.pid) for member in jet.cluster.members if member.is_local)
    return [member, *member.children(recursive=True)]


def is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def kill_cluster(*members: JetInstance) -> None:
    """Kill all members of a cluster at once, and let their instances notice."""
    processes = [process for jet in members for process in processes_of(jet)]
    for process in processes:
        with contextlib.suppress(ProcessLookupError):  # its member has been killed before
            os.kill(process.pid, signal.SIGKILL)
    until(lambda: all(map(is_dead, processes)))
    for jet in members:
        jet.shutdown()


def test_a_cluster_goes_on_when_all_are_there_that_had_its_maps(storage: Path, eventually: Eventually) -> None:
    storage.mkdir()
    settings = {"maps": {"log": MapConfig(journal_capacity=1000)}, "storage_sync": 0}
    first = joined(storage / "1", **settings)
    second = joined(storage / "2", first, **settings)
    entries = {number: str(number) for number in range(2000)}
    first.get_map("m").put_all(entries)
    second.get_list("l").extend(["a", b"x" * 100_000])
    second.get_map("log")["a"] = 1
    second.get_map("log")["b"] = 2
    journal = first.get_map("log").journal("oldest")
    assert [next(journal).key, next(journal).key] == ["a", "b"]
    kill_cluster(first, second)

    first = joined(storage / "2", **settings)
    missing = "maps, lists and jobs are on the disks of members that have not come yet"
    with pytest.raises(ShmjetError, match=missing):
        first.new_job(Pipeline().read_from(sources.items([1])).write_to(sinks.list("l")).pipeline).execute()
    with pytest.raises(ShmjetError, match=missing):
        first.jobs()
    second = joined(storage / "1", first, **settings)
    eventually(lambda: first.cluster.is_safe)
    assert dict(first.get_map("m")) == dict(second.get_map("m")) == entries
    assert list(second.get_list("l")) == ["a", b"x" * 100_000]
    second.get_map("log")["c"] = 3
    journal = second.get_map("log").journal("oldest")
    assert [next(journal).key for _ in range(3)] == ["a", "b", "c"]

    kill_cluster(second)  # the other one goes on, so that what this one has is old
    eventually(lambda: len(first.cluster.members) == 1)
    first.get_map("m").update({0: "zero", "new": "there"})
    kill_cluster(first)
    first = joined(storage / "2", **settings)
    assert first.get_map("m")[0] == "zero"  # it does not wait: it was the last member
    second = joined(storage / "1", first, **settings)
    eventually(lambda: first.cluster.is_safe)
    kill_cluster(first)
    eventually(lambda: len(second.cluster.members) == 1)
    assert dict(second.get_map("m")) == {**entries, 0: "zero", "new": "there"}
    second.shutdown()
    sweep(base_folder())  # of the killed member, as the next one to start does


def test_a_job_of_a_cluster_goes_on_when_all_have_come(storage: Path, tmp_path: Path, eventually: Eventually) -> None:
    storage.mkdir()
    gate = tmp_path / "gate"
    first = joined(storage / "1")
    second = joined(storage / "2", first)
    first.new_job(counting(gate), COUNTING).execute()
    for order in ("21", "12"):  # the record of the job is on the disk of the last coordinator, which comes second
        before = sum(first.get_map("counts").values())
        eventually(lambda jet=first, before=before: has_counted(jet, before))
        kill_cluster(first, second)
        first = joined(storage / order[0])
        second = joined(storage / order[1], first)
        eventually(lambda jet=first: jet.job(name="counting") is not None)
    assert ended(first, gate) == {key: len(range(key, COUNT, 7)) for key in range(7)}
    for jet in (second, first):
        jet.shutdown()


def test_a_client_waits_for_a_job_while_all_members_are_started_again(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    gate = tmp_path / "gate"
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = JetConfig(cores=1, storage=str(storage), bind=address, secret="s")
    member = shmjet.new_instance(settings)
    with shmjet.new_client([address], ClientConfig(secret="s", timeout=SOON_S)) as client:
        execution = client.new_job(counting(gate), COUNTING).execute()
        brief = client.new_job(counting(gate), JobConfig(name="brief")).execute()
        eventually(lambda: has_counted(client, 0))
        member.shutdown()
        with pytest.raises(CancelledError):  # nothing is known of it when the member is started again
            brief.result(SOON_S)
        with shmjet.new_instance(settings):
            gate.touch()
            execution.result(SOON_S)


def test_a_cluster_can_go_on_without_a_member(
    storage: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.mkdir()
    first = joined(storage / "1", storage_sync=0)
    second = joined(storage / "2", first, storage_sync=0)
    eventually(lambda: first.cluster.is_safe)
    entries = {number: str(number) for number in range(2000)}
    first.get_map("m").put_all(entries)
    kill_cluster(first, second)
    with joined(storage / "1") as alone:
        monkeypatch.setenv("SHMJET_SECRET", "s")
        address = alone.cluster.members[0].address
        with pytest.raises(ShmjetError, match="on the disks of members that have not come yet"):
            list_jobs(address, None, everything=False, as_json=False)
        assert recover(address, None) == 0
        assert dict(alone.get_map("m")) == entries
        with pytest.raises(CommandError, match="this cluster waits for no member"):
            recover(address, None)


def test_other_maps_than_those_of_a_storage_are_refused(storage: Path) -> None:
    storage.mkdir()
    with joined(storage / "1") as jet:
        jet.get_map("m")[1] = 1
    with (
        joined(storage / "2") as stranger,
        pytest.raises(ConfigError, match="has other maps and lists than those in the storage of"),
    ):
        joined(storage / "1", stranger)
    with joined(storage / "1") as again:
        assert dict(again.get_map("m")) == {1: 1}


def test_who_has_left_is_not_waited_for(storage: Path, eventually: Eventually) -> None:
    storage.mkdir()
    first = joined(storage / "1", backup_count=0)
    second = joined(storage / "2", first, backup_count=0, storage_sync=0)
    entries = {number: str(number) for number in range(500)}
    second.get_map("m").put_all(entries)
    first.shutdown()
    kill_cluster(second)
    with joined(storage / "2", backup_count=0) as again:
        assert dict(again.get_map("m")) == entries
        with joined(storage / "1", again, backup_count=0) as other:
            eventually(lambda: other.cluster.is_safe)
            assert dict(other.get_map("m")) == entries


def test_a_store_of_a_member_alone_is_not_taken_into_a_cluster(storage: Path) -> None:
    with started(storage) as jet:
        jet.get_map("m")["a"] = 1
    with pytest.raises(ShmjetError, match=r"were written without JetConfig\.bind: start it without bind"):
        joined(storage)
