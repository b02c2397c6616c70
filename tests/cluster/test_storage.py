"""Members with a storage: they are killed and started again, and go on with their jobs."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import shmjet
from shmjet import (
    ConfigError,
    JetConfig,
    JetInstance,
    JobConfig,
    JobFailedError,
    JobStatus,
    ProcessingGuarantee,
)
from shmjet.cluster.jobs.run_records import RunRecord, RunRecords
from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.cluster.protocol import Submission
from shmjet.execution.failure import member_failed
from shmjet.execution.job_plan import JobShape
from tests.cluster.counting import counting, exact

SOON_S = 60.0
pytestmark = pytest.mark.slow
Eventually = Callable[..., None]


def started(storage: Path) -> JetInstance:
    return shmjet.new_instance(JetConfig(cores=1, storage=str(storage)))


def guaranteed(**settings: object) -> JobConfig:
    chosen: dict[str, object] = {
        "name": "counting",
        "processing_guarantee": ProcessingGuarantee.EXACTLY_ONCE,
        "snapshot_interval": 0.02,
        **settings,
    }
    return JobConfig(**chosen)  # type: ignore[arg-type]


def manifests(storage: Path) -> list[Path]:
    """Return those of lineages, the oldest first; a lineage may be removed meanwhile."""
    found = [Path(folder, name) for folder, _, names in os.walk(storage / "snapshots") for name in names]
    numbered = [path for path in found if path.suffix == ".manifest" and path.stem.isdigit()]
    return sorted(numbered, key=lambda path: int(path.stem))


def kill_member(jet: JetInstance) -> None:
    os.kill(jet.cluster.members[0].pid, signal.SIGKILL)
    jet.shutdown()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def go_on(storage: Path, file: Path, gate: Path, eventually: Eventually) -> None:
    """Start the member again, and wait for the end of its job."""
    with started(storage) as jet:
        job = jet.job(name="counting")
        assert job is not None
        execution = job.execution
        assert execution is not None
        gate.touch()
        execution.result(SOON_S)
        assert json.loads(file.read_text()) == exact(2000)
        assert not list((storage / "jobs").iterdir())
        eventually(lambda: not manifests(storage))


@pytest.mark.parametrize("how", ["killed", "shut down", "damaged", "suspended"])
def test_a_member_that_is_started_again_goes_on_with_its_job(
    storage: Path, tmp_path: Path, eventually: Eventually, how: str
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    jet = started(storage)
    job = jet.new_job(counting(file, 2000, gate=gate), guaranteed())
    job.execute()
    eventually(lambda: len(manifests(storage)) == 2)
    if how == "suspended":
        job.suspend()
        eventually(lambda: job.status is JobStatus.SUSPENDED)
    if how == "shut down":
        jet.shutdown()
    else:
        kill_member(jet)
    if how == "damaged":
        newest = manifests(storage)[-1]
        newest.write_bytes(newest.read_bytes()[:-7])
    if how == "suspended":
        with started(storage) as again:
            job = again.job(name="counting")
            assert job is not None
            eventually(lambda: job.status is JobStatus.SUSPENDED)
            assert job.suspension_cause is not None
            assert job.suspension_cause.requested_by_user
            job.resume()
            eventually(lambda: job.status is JobStatus.RUNNING)
    go_on(storage, file, gate, eventually)


def test_a_chunk_that_is_torn_is_found_and_the_snapshot_before_it_taken(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    jet = started(storage)
    jet.new_job(counting(file, 2000, gate=gate), guaranteed()).execute()
    eventually(lambda: len(manifests(storage)) == 2)
    kill_member(jet)
    newest = manifests(storage)[-1]
    for chunk in newest.parent.glob(f"{newest.stem}-*.chunk"):
        os.truncate(chunk, chunk.stat().st_size - 3)
    go_on(storage, file, gate, eventually)


def waits_suspended(jet: JetInstance, eventually: Eventually) -> tuple[shmjet.Job, str]:
    """The job, when it is suspended because of an error, and the text of that."""
    job = jet.job(name="counting")
    assert job is not None
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    cause = job.suspension_cause
    assert cause is not None
    assert not cause.requested_by_user
    assert cause.error is not None
    return job, cause.error


def test_a_member_without_the_module_of_a_job_keeps_its_snapshots(
    storage: Path, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, gate, place = tmp_path / "result.json", tmp_path / "gate", tmp_path / "modules"
    place.mkdir()
    module = place / "counting_of_old.py"
    module.write_text("from tests.cluster.counting import Numbers\n\n\nclass Source(Numbers):\n    pass\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("PYTHONPATH", str(place))
    source = importlib.import_module(module.stem).Source
    jet = started(storage)
    jet.new_job(counting(file, 2000, gate=gate, source=source), guaranteed()).execute()
    eventually(lambda: len(manifests(storage)) == 2)
    kill_member(jet)
    module.rename(place / "away")
    shutil.rmtree(place / "__pycache__", ignore_errors=True)
    with started(storage) as jet:
        job, text = waits_suspended(jet, eventually)
        assert "No module named 'counting_of_old'" in text
        job.resume()  # without success
        waits_suspended(jet, eventually)
    assert len(manifests(storage)) == 2
    (place / "away").rename(module)
    go_on(storage, file, gate, eventually)


def test_a_job_of_which_all_snapshots_are_damaged_does_not_begin_anew_by_itself(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    jet = started(storage)
    jet.new_job(counting(file, 2000, gate=gate), guaranteed()).execute()
    eventually(lambda: len(manifests(storage)) == 2)
    kill_member(jet)
    for manifest in manifests(storage):
        manifest.write_bytes(manifest.read_bytes()[:-7])
    for _ in range(2):  # the cause is in the record, too
        with started(storage) as jet:
            assert "no snapshot of the job is left" in waits_suspended(jet, eventually)[1]
    with started(storage) as jet:
        waits_suspended(jet, eventually)[0].resume()
        eventually(lambda: manifests(storage))
    go_on(storage, file, gate, eventually)


def test_a_job_whose_snapshots_cannot_be_read_is_suspended_and_goes_on_when_they_can(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    with started(storage) as jet:
        execution = jet.new_job(counting(file, 2000, gate=gate), guaranteed()).execute()
        eventually(lambda: len(manifests(storage)) == 2)
        folder = manifests(storage)[0].parent
        folder.rename(tmp_path / "away")
        folder.symlink_to(folder)  # to itself
        os.kill(jet.cluster.members[0].workers[0], signal.SIGKILL)
        job, text = waits_suspended(jet, eventually)
        assert "no snapshot of the job is left" in text
        with pytest.raises(TimeoutError, match="it is suspended until its job is resumed, restarted or cancelled"):
            execution.result(0.01)
        folder.unlink()
        (tmp_path / "away").rename(folder)
        gate.touch()
        job.resume()
        execution.result(SOON_S)
        assert json.loads(file.read_text()) == exact(2000)


def test_a_job_that_begins_from_a_damaged_snapshot_fails(storage: Path, tmp_path: Path, eventually: Eventually) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    with started(storage) as jet:
        job = jet.new_job(counting(file, 200, gate=gate), guaranteed())
        job.execute()
        eventually(lambda: job.status is JobStatus.RUNNING)
        job.cancel_and_export_snapshot("x")
        for chunk in storage.glob("snapshots/exported/x/*/*.chunk"):
            os.truncate(chunk, chunk.stat().st_size - 3)
        gate.touch()
        with pytest.raises(JobFailedError, match=r"damaged|torn"):
            jet.new_job(counting(file, 200, gate=gate), guaranteed(initial_snapshot_name="x")).run(SOON_S)
    assert not file.exists()


def test_exported_snapshots_and_the_outcomes_of_jobs_stay(
    storage: Path, tmp_path: Path, eventually: Eventually
) -> None:
    file, gate = tmp_path / "result.json", tmp_path / "gate"
    with started(storage) as jet:
        job = jet.new_job(counting(file, 200, gate=gate), guaranteed())
        job.execute()
        eventually(lambda: job.status is JobStatus.RUNNING)
        job.cancel_and_export_snapshot("x")
        plain = jet.new_job(counting(file, 200, gate=gate), JobConfig(name="plain"))
        plain.execute()
    with started(storage) as jet:
        assert [snapshot.name for snapshot in jet.snapshots()] == ["x"]
        assert jet.jobs() == []
        gate.touch()
        jet.new_job(counting(file, 200, gate=gate), guaranteed(initial_snapshot_name="x")).run(SOON_S)
        assert json.loads(file.read_text()) == exact(200)


def test_a_storage_is_one_members(storage: Path, tmp_path: Path) -> None:
    with started(storage), pytest.raises(ConfigError, match="another member uses"):
        started(storage)
    plain_file = tmp_path / "file"
    plain_file.write_text("")
    with pytest.raises(ConfigError, match="cannot be used"):
        started(plain_file)


@pytest.mark.parametrize("name", ["grid", "jobs", "snapshots"])
def test_a_part_of_a_storage_that_cannot_be_used_is_named(storage: Path, name: str) -> None:
    storage.mkdir()
    (storage / name).write_text("")
    with pytest.raises(ConfigError, match=f"JetConfig.storage: .* because of {storage / name}: Not a directory"):
        started(storage)


def test_a_damaged_record_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = RunRecords(tmp_path / "jobs")
    settings = RunSettings(guarantee="exactly_once", snapshot_interval=0.5)
    job = Submission("j", "name", JobShape([], []), b"code", b"config", {}, [], settings=settings)
    cause = member_failed(ValueError("the broker is away"))
    kept = [RunRecord(number, f"lineage {number}", job, number == 3, cause) for number in (12, 3, 7)]
    for record in kept:
        records.write(record)
    assert records.all() == sorted(kept, key=lambda record: record.run)
    path = tmp_path / "jobs" / "7.run"
    data = path.read_bytes()
    for damaged in (b"", data[:-1], data[:-1] + b"?", b"x" * len(data)):
        path.write_bytes(damaged)
        assert [record.run for record in records.all()] == [3, 12]
    assert sum("7.run cannot be read" in record.getMessage() for record in caplog.records) == 1
    path.write_bytes((tmp_path / "jobs" / "12.run").read_bytes())
    caplog.clear()
    assert [record.run for record in RunRecords(tmp_path / "jobs").all()] == [3, 12]
    assert "it has the record of run 12, which belongs into" in caplog.text
    records.remove(7)
    records.remove(7)
    assert sorted(os.listdir(tmp_path / "jobs")) == ["12.run", "3.run"]
