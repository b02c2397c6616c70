"""Maps and lists of an instance with a storage: shut down, killed, started again, with and without jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmjet
from shmjet import (
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


def test_a_job_and_the_maps_that_it_writes_go_on_together(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    gate, count = tmp_path / "gate", 3000

    def fill(position: list[int], buffer: Any) -> None:
        until = min(position[0] + 20, count)
        for number in range(position[0], until):
            buffer.add(number)
        position[0] = until
        if until == count and gate.exists():
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
    jet = started(storage)
    jet.new_job(
        pipeline,
        JobConfig(name="counting", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02),
    ).execute()
    for _ in range(3):
        before = sum(jet.get_map("counts").values())
        eventually(lambda jet=jet, before=before: sum(jet.get_map("counts").values()) >= min(before + 1, count))
        kill_all(jet)
        jet = started(storage)
        job = jet.job(name="counting")
        assert job is not None
        eventually(lambda job=job: job.status is JobStatus.RUNNING)
        assert sum(jet.get_map("counts").values()) >= 0
    with jet:
        gate.touch()
        job = jet.job(name="counting")
        assert job is not None
        assert job.execution is not None
        job.execution.result(SOON_S)
        wanted = {key: len(range(key, count, 7)) for key in range(7)}
        assert dict(jet.get_map("counts")) == wanted
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


def test_with_a_network_a_storage_holds_no_maps(storage: Path) -> None:
    with pytest.raises(ConfigError, match="which with bind holds no maps"):
        JetConfig(bind="127.0.0.1:0", secret="s", storage=str(storage), maps={"m": MapConfig(journal_capacity=1)})
    with (
        started(storage, bind="127.0.0.1:0", secret="s") as jet,
        pytest.raises(ConfigError, match="with bind holds no"),
    ):
        jet.get_map("m")
