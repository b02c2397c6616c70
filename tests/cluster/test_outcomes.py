"""How an execution ends for the program that holds it: what is kept of it, and what no caller can do to it."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ALL_COMPLETED, CancelledError, Future, InvalidStateError, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shmjet
from shmjet import (
    DAG,
    JetConfig,
    JetInstance,
    Job,
    JobConfig,
    JobFailedError,
    JobStatus,
    Pipeline,
    Processor,
    WorkerLostError,
    between,
    processors,
    sinks,
    sources,
)
from shmjet.cluster.client.job_record import JobCode, JobRecord
from shmjet.cluster.client.known_run import KnownRun
from shmjet.cluster.jobs.run_parts import RunRequest, Told
from shmjet.cluster.protocol import Execute, Submission
from shmjet.execution.failure import without_exception
from shmjet.execution.job_plan import JobShape
from shmjet.execution.messages import Failure
from tests.cluster.jobs_here import JobsHere
from tests.odd import ODD, raise_odd

PATIENCE_S = 60.0


class Held:
    """What a function has among its variables."""


def fail(item: int) -> int:
    raise ValueError(f"item {item}")


def run_and_fail(job: Job) -> weakref.ref[Held]:
    """Run a job that fails, in a function with a variable; return whether that is still there."""
    held = Held()
    with pytest.raises(JobFailedError):
        job.run(PATIENCE_S)
    return weakref.ref(held)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_failed_job_keeps_no_variables_of_its_callers(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    held = [run_and_fail(jet.new_job(mapping(fail))) for _ in range(5)]
    gc.collect()
    assert [ref() for ref in held] == [None] * 5


def test_nor_does_its_handle(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    job = jet.new_job(mapping(fail))
    held = run_and_fail(job)
    gc.collect()
    assert held() is None
    assert job.status is JobStatus.FAILED
    with pytest.raises(JobFailedError, match="item 0"):
        job.execute().result(PATIENCE_S)


def test_a_failed_job_with_collect_leaves_no_descriptors(jet: JetInstance, eventually: Callable[..., None]) -> None:
    def failing() -> weakref.ref[Held]:
        results = sinks.collect()
        p = Pipeline()
        p.read_from(sources.items([1, 2])).map(fail).write_to(results)
        held = run_and_fail(jet.new_job(p))
        with pytest.raises(JobFailedError):
            list(results)
        return held

    failing()
    before = descriptors()
    held = [failing() for _ in range(5)]
    gc.collect()
    assert [ref() for ref in held] == [None] * 5
    eventually(lambda: descriptors() <= before)


def test_a_job_that_succeeded_keeps_neither_results_nor_callbacks(
    jet: JetInstance, eventually: Callable[..., None]
) -> None:
    def collecting() -> tuple[weakref.ref[Held], threading.Event]:
        held, called = Held(), threading.Event()
        results = sinks.collect()
        p = Pipeline()
        p.read_from(sources.items([1, 2])).write_to(results)
        execution = jet.new_job(p).execute()
        execution.add_done_callback(lambda _, held=held: called.set())
        execution.result(PATIENCE_S)
        assert called.wait(PATIENCE_S)
        assert sorted(results) == [1, 2]
        return weakref.ref(held), called

    collecting()
    before = descriptors()
    held = [collecting()[0] for _ in range(5)]
    eventually(lambda: gc.collect() >= 0 and descriptors() <= before and not any(ref() for ref in held))


def test_an_execution_that_is_held_drops_its_callbacks(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    called, held = threading.Event(), Held()
    execution = jet.new_job(mapping(lambda x: x)).execute()
    execution.add_done_callback(lambda _, held=held: called.set())
    execution.result(PATIENCE_S)
    assert called.wait(PATIENCE_S)
    ref = weakref.ref(held)
    del held
    for thread in threading.enumerate():
        if thread.name == "shmjet-callbacks":
            thread.join()
    gc.collect()
    assert ref() is None


def test_what_nobody_has_kept_is_told_by_the_member(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    with pytest.raises(JobFailedError):
        jet.new_job(mapping(fail), JobConfig(name="forgotten")).run(PATIENCE_S)
    gc.collect()
    job = jet.job(name="forgotten")
    assert job is not None
    assert job.status is JobStatus.FAILED
    assert job.execution is not None
    assert isinstance(job.execution.exception(0), JobFailedError)
    assert jet.job(name="forgotten").execution is job.execution  # type: ignore[union-attr]


def test_the_same_exception_is_given_as_long_as_somebody_has_it(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    execution = jet.new_job(mapping(fail)).execute()
    with pytest.raises(JobFailedError) as raised:
        execution.result(PATIENCE_S)
    assert execution.exception() is raised.value
    assert isinstance(raised.value.cause, ValueError)


@pytest.mark.parametrize("name", sorted(ODD))
def test_an_odd_exception_fails_its_job_and_costs_no_worker(
    jet: JetInstance, mapping: Callable[..., DAG], name: str
) -> None:
    before = pids_of(jet, mapping)
    with pytest.raises(JobFailedError) as raised:
        jet.new_job(mapping(lambda _, name=name: raise_odd(name))).run(PATIENCE_S)
    assert raised.value.vertex == "map"
    assert issubclass(type(raised.value.cause), BaseException)
    assert pids_of(jet, mapping) == before


def pids_of(jet: JetInstance, mapping: Callable[..., DAG]) -> list[int]:
    """Return the processes of the workers."""
    job = jet.new_job(mapping(abs))
    job.run(PATIENCE_S)
    return [worker.pid for worker in job.metrics().workers]


class Closing(Processor):
    """Leaves, when it is closed."""

    def complete(self) -> bool:
        return True

    def close(self) -> None:
        raise SystemExit("closed")


def test_a_close_that_exits_costs_no_worker(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    before = pids_of(jet, mapping)
    dag = DAG()
    dag.new_vertex("closing", Closing)
    failing = dag.new_vertex("failing", processors.map(fail))
    numbers = dag.new_vertex("numbers", processors.read_items([1]))
    sink = dag.new_vertex("sink", processors.noop())
    dag.edge(between(numbers, failing)).edge(between(failing, sink))
    with pytest.raises(JobFailedError):
        jet.new_job(dag).run(PATIENCE_S)
    assert pids_of(jet, mapping) == before


class Waiting(Processor):
    """Ends when a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def complete(self) -> bool:
        return self.path.exists()


def waiting(path: Path) -> DAG:
    dag = DAG()
    dag.new_vertex("waiting", lambda: Waiting(path), 1)
    return dag


def test_an_execution_is_ended_by_its_job_only(jet: JetInstance, mapping: Callable[..., DAG], tmp_path: Path) -> None:
    execution = jet.new_job(waiting(tmp_path / "go")).execute()
    for end in (
        lambda: execution.set_result(None),
        lambda: execution.set_exception(ValueError()),
        execution.set_running_or_notify_cancel,
    ):
        with pytest.raises(InvalidStateError):
            end()
    assert not execution.done()
    (tmp_path / "go").touch()
    assert execution.result(PATIENCE_S) is None
    assert jet.new_job(mapping(abs)).run(60) is None


@pytest.mark.parametrize("outcome", ["result", "exception", "cancelled"])
def test_whoever_ends_one_behind_its_back_ends_nothing_else(
    jet: JetInstance, mapping: Callable[..., DAG], tmp_path: Path, outcome: str
) -> None:
    execution = jet.new_job(waiting(tmp_path / "go")).execute()
    if outcome == "result":
        Future.set_result(execution, None)
    elif outcome == "exception":
        Future.set_exception(execution, LookupError("mine"))
    else:
        Future.cancel(execution)
    (tmp_path / "go").touch()
    jet.new_job(mapping(abs)).run(PATIENCE_S)
    if outcome == "exception":
        assert isinstance(execution.exception(PATIENCE_S), LookupError)


def test_a_callback_that_exits_keeps_no_other_from_being_called(
    jet: JetInstance, mapping: Callable[..., DAG], tmp_path: Path
) -> None:
    called = threading.Event()

    def leave(_: Future[None]) -> None:
        raise SystemExit("called")

    execution = jet.new_job(waiting(tmp_path / "go")).execute()
    execution.add_done_callback(leave)
    execution.add_done_callback(lambda _: called.set())
    (tmp_path / "go").touch()
    execution.result(PATIENCE_S)
    assert called.wait(PATIENCE_S)
    jet.new_job(mapping(abs)).run(PATIENCE_S)


def test_what_is_cancelled_before_it_has_a_number_is_cancelled(tmp_path: Path) -> None:
    cancelled: list[int] = []
    run = KnownRun(SimpleNamespace(cancel=cancelled.append), lambda call: call())  # type: ignore[arg-type]
    execution = run.execution
    assert execution.cancel()
    assert cancelled == []
    run.started_as(7)
    assert cancelled == [7]
    run.changed(JobStatus.FAILED, True, None)
    assert wait([execution], 0, ALL_COMPLETED).done == {execution}
    with pytest.raises(CancelledError):
        execution.result(0)
    assert execution.cancel()


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_job_keeps_what_a_member_was_told_only_for_another_member(is_kept: bool) -> None:
    submission: Any = Held()
    told = weakref.ref(submission)
    code = JobCode(([], []), (), is_endless=False, is_kept=is_kept)
    record = JobRecord("0", JobConfig(), lambda call: call(), submission, code)
    del submission
    assert record.take_submission() is told() is not None
    assert record.take_submission() is None
    gc.collect()
    assert (told() is not None) is is_kept


def test_a_job_is_what_it_was_when_it_was_made(jet: JetInstance, out: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.touch()
    second.touch()
    config = JobConfig(name="before").attach_file(first)
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(10)))
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    edge = between(source, sink)
    dag.edge(edge)
    job = jet.new_job(dag, config)
    config.name = "after"
    config.attach_file(second)
    edge.broadcast()
    sink.local_parallelism = 2
    dag.new_vertex("late", Closing)
    job.config.name = "later"
    assert (job.name, job.config.name, set(job.config.attached_files)) == ("before", "before", {"first"})
    job.run(PATIENCE_S)
    assert jet.job(name="before") is job
    assert jet.job(name="after") is None
    assert sorted(jet.get_list(out)) == list(range(10))
    vertices = job.metrics().vertices
    assert list(vertices) == ["source", "sink"]
    assert len(vertices["sink"].processors) == 1


def test_a_pipeline_that_changes_does_not_change_its_job(jet: JetInstance, out: str) -> None:
    p = Pipeline()
    numbers = p.read_from(sources.items(range(10)))
    numbers.write_to(sinks.list(out))
    job = jet.new_job(p)
    numbers.map(lambda x: x + 100).write_to(sinks.list(out))
    job.run(PATIENCE_S)
    assert sorted(jet.get_list(out)) == list(range(10))


class FailedRun:
    """A run that has failed, with an exception of some bytes."""

    status, cancelled, is_over, suspension = JobStatus.FAILED, False, True, None

    def __init__(self, number: int, request: RunRequest) -> None:
        self.id, self.job = number, request.job
        self.failure: Failure | None = Failure("error", None, 0, 0, 1, "E", f"text {number}", [], bytes(40))

    def start(self) -> None:
        pass

    def forget_exception(self) -> None:
        assert self.failure is not None
        self.failure = without_exception(self.failure)


class Asker:
    """A client that does not listen."""

    def queue(self, message: object) -> None:
        pass

    def flush(self) -> None:
        pass


def test_a_member_remembers_exceptions_of_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[FailedRun, Told]] = []

    def make(request: RunRequest, on_status: Told, on_over: Told) -> Any:
        runs.append((FailedRun(len(runs), request), on_over))
        return runs[-1][0]

    monkeypatch.setattr("shmjet.cluster.jobs.table.KEPT_EXCEPTIONS", 100)
    jobs = JobsHere(make)
    client: Any = Asker()
    for number in range(4):
        job = Submission(f"job {number}", None, JobShape([], []), b"", b"", {}, [])
        jobs.submissions.execute(client, Execute(number, job.job_id, job, False, None, None, ""), [])
    for run, over in runs:
        over(run)
    failures = [run.failure for run, _ in runs if run.failure is not None]
    assert [failure.exception is not None for failure in failures] == [False, False, True, True]
    assert [failure.text for failure in failures] == [f"text {i}" for i in range(4)]


def overwrite(item: int) -> int:
    """Overwrite all shared memory that this process may write to, but the first page: the doorbells are there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(part, 16) for part in line.split()[0].split("-"))
        if "/dev/shm/shmjet-" in line and "rw-s" in line and last - first > 4096:
            ctypes.memset(first + 4096, 0x5A, last - first - 4096)
    raise ValueError("overwritten")


def test_a_job_that_overwrites_its_memory_ends_and_its_member_works_on(
    mapping: Callable[..., DAG], caplog: pytest.LogCaptureFixture
) -> None:
    with shmjet.new_instance(JetConfig(cores=2)) as own:
        job = own.new_job(mapping(overwrite))
        with pytest.raises((JobFailedError, WorkerLostError)):
            job.run(PATIENCE_S)
        assert job.metrics().vertices == {}
        own.new_job(mapping(abs)).run(PATIENCE_S)
    assert any("has no metrics: its shared memory was overwritten" in record.getMessage() for record in caplog.records)
    assert [record for record in caplog.records if record.name == "asyncio"] == []
