"""Jobs with a guarantee on a real member: workers are killed, jobs suspended and upgraded, and the counts are exact."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet import (
    DAG,
    ConfigError,
    Execution,
    JetConfig,
    JetInstance,
    Job,
    JobAlreadyExistsError,
    JobConfig,
    JobFailedError,
    JobStateError,
    JobStatus,
    PlanError,
    ProcessingGuarantee,
    Processor,
    RestartableError,
    WorkerLostError,
    between,
    new_instance,
    processors,
)
from tests.cluster.counting import Counts, Numbers, Result, counting, exact
from tests.examples import seeds

SOON_S = 60.0
Eventually = Callable[..., None]


def guaranteed(**settings: object) -> JobConfig:
    """Return settings of a job with frequent snapshots."""
    chosen: dict[str, object] = {
        "processing_guarantee": ProcessingGuarantee.EXACTLY_ONCE,
        "snapshot_interval": 0.02,
        **settings,
    }
    return JobConfig(**chosen)  # type: ignore[arg-type]


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets sources end; it is not there yet."""
    return tmp_path / "gate"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a job writes its result."""
    return tmp_path / "result.json"


def result(file: Path) -> object:
    return json.loads(file.read_text())


def statuses(job: Job) -> list[JobStatus]:
    """Return a list that gets each status that the job comes to."""
    seen: list[JobStatus] = []
    job.on_status(lambda _, new: seen.append(new))
    return seen


def kill_worker(jet: JetInstance, which: int) -> None:
    workers = jet.cluster.members[0].workers
    with contextlib.suppress(ProcessLookupError):  # it was killed a moment ago
        os.kill(workers[which % len(workers)], signal.SIGKILL)


def test_a_job_ends_with_a_snapshot_and_leaves_none(jet: JetInstance, file: Path) -> None:
    job = jet.new_job(counting(file, 1000), guaranteed(snapshot_interval=1000.0))
    job.run(SOON_S)  # far below the interval
    assert result(file) == exact(1000)
    assert jet.snapshots() == []


def calls(job: Job) -> int:
    """How often the sources of the newest attempt were called; each call is a millisecond after the one before."""
    vertex = job.metrics().vertices.get("numbers")
    return 0 if vertex is None else sum(processor.calls for processor in vertex.processors)


@pytest.mark.parametrize("seed", seeds(4))
def test_counts_are_exact_when_workers_are_killed(
    jet: JetInstance, file: Path, gate: Path, eventually: Eventually, seed: int
) -> None:
    chance = random.Random(seed)
    job = jet.new_job(counting(file, 4000, gate=gate), guaranteed())
    execution = job.execute()
    for kill in range(3):
        enough = chance.randrange(150)
        eventually(lambda enough=enough: execution.done() or calls(job) >= enough)
        kill_worker(jet, chance.randrange(2))
        if kill == 1:
            gate.touch()
    execution.result(SOON_S)
    assert result(file) == exact(4000)


def test_stolen_tasklets_are_in_snapshots_too(jet: JetInstance, tmp_path: Path) -> None:
    """The tasklets of both lines start on one worker; the other one takes some of them."""
    dag = DAG()
    for line, count in (("short", 100), ("long", 1000)):
        numbers = dag.new_vertex(f"numbers of {line}", lambda count=count: Numbers(count, None), 1)
        counts = dag.new_vertex(f"counts of {line}", Counts, 1)
        end = dag.new_vertex(f"result of {line}", lambda line=line: Result(tmp_path / line), 1)
        dag.edge(between(numbers, counts)).edge(between(counts, end))
    job = jet.new_job(dag, guaranteed())
    for _ in range(5):
        job.run(SOON_S)
        assert result(tmp_path / "short") == exact(100, sources=1)
        assert result(tmp_path / "long") == exact(1000, sources=1)


def test_without_a_guarantee_the_loss_of_a_worker_fails_the_job(
    jet: JetInstance, file: Path, gate: Path, eventually: Eventually
) -> None:
    job = jet.new_job(counting(file, 1000, gate=gate))
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    kill_worker(jet, 0)
    with pytest.raises(WorkerLostError):
        execution.result(SOON_S)


def test_a_job_goes_on_where_it_was_suspended(jet: JetInstance, file: Path, gate: Path, eventually: Eventually) -> None:
    job = jet.new_job(counting(file, 2000, gate=gate), guaranteed(snapshot_interval=1000.0))
    seen = statuses(job)
    execution = job.execute()
    for _ in range(3):
        eventually(lambda: job.status is JobStatus.RUNNING)
        eventually(lambda: calls(job) >= 10)
        job.suspend()
        eventually(lambda: job.status is JobStatus.SUSPENDED)
        job.resume()
    gate.touch()
    execution.result(SOON_S)
    assert result(file) == exact(2000)
    eventually(lambda: seen[-1] is JobStatus.COMPLETED)
    assert seen.count(JobStatus.SUSPENDED) == 3
    assert JobStatus.FAILED not in seen


@pytest.mark.parametrize("graceful", [False, True])
def test_a_restart_changes_nothing(
    jet: JetInstance, file: Path, gate: Path, eventually: Eventually, graceful: bool
) -> None:
    job = jet.new_job(counting(file, 2000, gate=gate), guaranteed())
    execution = job.execute()
    for attempts in (2, 3, 4):
        eventually(lambda: job.status is JobStatus.RUNNING)
        job.restart(graceful=graceful)
        eventually(lambda attempts=attempts: job.metrics().attempts == attempts)
    gate.touch()
    execution.result(SOON_S)
    assert result(file) == exact(2000)


class Asks(Processor):
    """Has the job restarted until the file has as many bytes as it is to be restarted."""

    def __init__(self, file: Path, times: int) -> None:
        self._file, self._times = file, times

    def complete(self) -> bool:
        with self._file.open("a") as file:
            file.write("x")
        if self._file.stat().st_size <= self._times:
            raise RestartableError("the broker is away")
        return True


@pytest.mark.parametrize("guarantee", list(ProcessingGuarantee))
def test_a_processor_may_have_the_job_restarted(
    jet: JetInstance, tmp_path: Path, guarantee: ProcessingGuarantee
) -> None:
    dag = DAG()
    dag.new_vertex("asks", lambda: Asks(tmp_path / "times", 3), 1)
    jet.new_job(dag, JobConfig(processing_guarantee=guarantee)).run(SOON_S)
    assert (tmp_path / "times").stat().st_size == 4


def test_ten_attempts_without_a_new_snapshot_are_enough(jet: JetInstance, tmp_path: Path) -> None:
    dag = DAG()
    dag.new_vertex("asks", lambda: Asks(tmp_path / "times", 100), 1)
    with pytest.raises(JobFailedError, match="the broker is away"):
        jet.new_job(dag, guaranteed()).run(SOON_S)
    assert (tmp_path / "times").stat().st_size == 10


@pytest.fixture
def pausing(monkeypatch: pytest.MonkeyPatch) -> Iterator[JetInstance]:
    """A member on which the third attempt of a job waits for an hour."""
    monkeypatch.setenv("SHMJET_RESTART_PAUSE", "3600")
    with new_instance(JetConfig(cores=2)) as jet:
        yield jet


def test_a_job_in_a_pause_does_at_once_what_it_is_told(
    pausing: JetInstance, tmp_path: Path, eventually: Eventually
) -> None:
    dag = DAG()
    dag.new_vertex("asks", lambda: Asks(tmp_path / "times", 5), 1)
    job = pausing.new_job(dag, guaranteed())
    execution = job.execute()

    def pauses_after(times: int) -> bool:
        made = tmp_path / "times"
        return made.exists() and made.stat().st_size == times and job.status is JobStatus.NOT_RUNNING

    eventually(lambda: pauses_after(2))
    job.restart()
    eventually(lambda: pauses_after(3))
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    job.resume()
    eventually(lambda: pauses_after(5))
    job.restart()
    execution.result(SOON_S)
    assert (tmp_path / "times").stat().st_size == 6


@pytest.mark.parametrize("how", ["cancelled", "shut down"])
def test_a_pause_ends_with_its_job_and_its_member(
    pausing: JetInstance, tmp_path: Path, eventually: Eventually, how: str
) -> None:
    dag = DAG()
    dag.new_vertex("asks", lambda: Asks(tmp_path / "times", 100), 1)
    job = pausing.new_job(dag, guaranteed())
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.NOT_RUNNING)
    if how == "cancelled":
        job.cancel()
    else:
        pausing.shutdown()
    with pytest.raises(concurrent.futures.CancelledError):
        execution.result(SOON_S)
    assert (tmp_path / "times").stat().st_size == 2


def test_an_error_may_suspend_a_job(jet: JetInstance, tmp_path: Path, eventually: Eventually) -> None:
    fine = tmp_path / "fine"

    def check(item: int) -> int:
        if not fine.exists():
            raise ValueError(f"cannot do {item}")
        return item

    dag = DAG()
    items = dag.new_vertex("items", processors.read_items([1, 2, 3]), 1)
    checked = dag.new_vertex("check", processors.map(check), 1)
    dag.edge(between(items, checked)).edge(between(checked, dag.new_vertex("end", processors.noop(), 1)))
    job = jet.new_job(dag, guaranteed(suspend_on_failure=True))
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    cause = job.suspension_cause
    assert cause is not None
    assert not cause.requested_by_user
    assert cause.error is not None
    assert "'check'" in cause.error
    assert "cannot do 1" in cause.error
    fine.touch()
    job.resume()
    execution.result(SOON_S)


def test_a_job_with_a_guarantee_runs_once_at_a_time(jet: JetInstance, file: Path, gate: Path) -> None:
    job = jet.new_job(counting(file, 100, gate=gate), guaranteed())
    first = job.execute()
    with pytest.raises(JobAlreadyExistsError, match="runs once at a time"):
        job.execute().result(SOON_S)
    gate.touch()
    first.result(SOON_S)
    file.unlink()
    job.execute().result(SOON_S)  # anew
    assert result(file) == exact(100)


def test_a_snapshot_outlives_its_job_and_starts_another_one(
    jet: JetInstance, tmp_path: Path, file: Path, gate: Path, eventually: Eventually
) -> None:
    job = jet.new_job(counting(file, 2000, gate=gate), guaranteed(name="first"))
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    assert job.export_snapshot("while it ran").job_name == "first"
    snapshot = job.cancel_and_export_snapshot("at its end")
    assert sorted(snapshot.vertices) == ["counts", "numbers", "result"]
    with pytest.raises(concurrent.futures.CancelledError):
        execution.result(SOON_S)
    assert [found.name for found in jet.snapshots()] == ["while it ran", "at its end"]
    gate.touch()
    for name, parallelism in (("while it ran", 2), ("at its end", 3)):
        dag = counting(file, 2000, gate=gate, counts=parallelism)
        jet.new_job(dag, guaranteed(initial_snapshot_name=name)).run(SOON_S)
        assert result(file) == exact(2000)
        file.unlink()
    for snapshot in jet.snapshots():
        snapshot.destroy()
    with pytest.raises(ConfigError, match="there is no snapshot 'at its end'"):
        jet.new_job(counting(file, 1), guaranteed(initial_snapshot_name="at its end")).run(SOON_S)


def test_a_suspended_job_can_be_exported(jet: JetInstance, file: Path, gate: Path, eventually: Eventually) -> None:
    job = jet.new_job(counting(file, 500, gate=gate), guaranteed(snapshot_interval=1000.0))
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    snapshot = job.export_snapshot("x")
    assert snapshot.keys > 0
    assert job.status is JobStatus.SUSPENDED
    gate.touch()
    job.resume()
    execution.result(SOON_S)
    assert result(file) == exact(500)
    with pytest.raises(JobStateError):
        job.export_snapshot("y")
    snapshot.destroy()


class SavesForEver(Processor):
    """Does not come to an end with saving, and says that it has begun."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def complete(self) -> bool:
        return False

    def save_to_snapshot(self) -> bool:
        self._file.touch()
        return False


def test_the_end_of_a_job_ends_an_export(jet: JetInstance, file: Path, eventually: Eventually) -> None:
    dag = DAG()
    dag.new_vertex("saving", lambda: SavesForEver(file), 1)
    job = jet.new_job(dag, guaranteed(snapshot_interval=1000.0))
    job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        export = threads.submit(job.export_snapshot, "x", SOON_S)
        eventually(file.exists)
        job.cancel()
        with pytest.raises(JobStateError, match="has ended, or is being stopped"):
            export.result(SOON_S)


def test_state_of_a_vertex_that_is_gone_is_named(
    jet: JetInstance, file: Path, gate: Path, eventually: Eventually
) -> None:
    job = jet.new_job(counting(file, 500, gate=gate), guaranteed())
    job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    snapshot = job.cancel_and_export_snapshot("x")
    dag = DAG()
    numbers = dag.new_vertex("numbers", lambda: Numbers(500, None), 2)
    renamed = dag.new_vertex("tallies", Counts, 2)
    end = dag.new_vertex("result", lambda: Result(file), 1)
    dag.edge(between(numbers, renamed).partitioned(lambda item: item % 10)).edge(between(renamed, end))
    with pytest.raises(PlanError, match=r"'x' has state of 'counts' \(\d+ entries\)"):
        jet.new_job(dag, guaranteed(initial_snapshot_name="x")).run(SOON_S)
    jet.new_job(dag, guaranteed(initial_snapshot_name="x", allow_dropped_state=True)).run(SOON_S)
    snapshot.destroy()


def test_state_of_another_kind_is_named_before_the_job_begins(
    jet: JetInstance, file: Path, gate: Path, eventually: Eventually
) -> None:
    def dag(step: object, wait_for: Path | None) -> DAG:
        made = DAG()
        numbers = made.new_vertex("numbers", lambda: Numbers(100, wait_for), 2)
        state, end = made.new_vertex("state", step, 2), made.new_vertex("end", processors.noop(), 1)
        return made.edge(between(numbers, state).partitioned(lambda item: item % 10)).edge(between(state, end))

    job = jet.new_job(dag(processors.distinct(), gate), guaranteed())
    job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    eventually(lambda: job.export_snapshot("x").vertices["state"].keys > 0)
    snapshot = job.cancel_and_export_snapshot("x")
    with pytest.raises(PlanError, match="'x' has state of 'state' that distinct has saved; in the job it is sort"):
        jet.new_job(dag(processors.sort(), None), guaranteed(initial_snapshot_name="x")).execute()
    with pytest.raises(PlanError, match="that distinct has saved; in the job it is a stage without state, which"):
        jet.new_job(dag(processors.filter(bool), None), guaranteed(initial_snapshot_name="x")).execute()
    jet.new_job(dag(processors.distinct(), None), guaranteed(initial_snapshot_name="x")).run(SOON_S)
    snapshot.destroy()


def test_state_of_a_class_of_a_script_is_of_the_class_of_the_next_version(
    jet: JetInstance, gate: Path, eventually: Eventually
) -> None:
    text = """
class Total:
    def __init__(self):
        self.n = 0
    def add(self):
        self.n += 1
        return VERSION, self.n

def step(total, item):
    return *total.add(), isinstance(total, Total)
"""

    def dag(version: str, count: int, wait_for: Path | None) -> DAG:
        script: dict[str, Any] = {"__name__": "a_script"}
        exec(text.replace("VERSION", repr(version)), script)
        made = DAG()
        numbers = made.new_vertex("numbers", lambda: Numbers(count, wait_for), 1)
        total = made.new_vertex("total", processors.map_stateful(script["Total"], script["step"]), 1)
        end = made.new_vertex("end", processors.write_list("versions"), 1)
        return made.edge(between(numbers, total)).edge(between(total, end))

    results = jet.get_list("versions")
    job = jet.new_job(dag("old", 20, gate), guaranteed())
    job.execute()
    eventually(lambda: len(results) == 20)
    snapshot = job.cancel_and_export_snapshot("x")
    jet.new_job(dag("new", 40, None), guaranteed(initial_snapshot_name="x")).run(SOON_S)
    assert list(results)[20:] == [("new", n, True) for n in range(21, 41)]
    snapshot.destroy()
    results.destroy()


def test_a_cancelled_job_leaves_nothing(jet: JetInstance, file: Path, gate: Path, eventually: Eventually) -> None:
    execution: Execution = jet.new_job(counting(file, 500, gate=gate), guaranteed()).execute()
    eventually(lambda: execution.metrics().last_snapshot_id > 0)
    execution.cancel()
    eventually(execution.done)
    assert execution.cancelled()
