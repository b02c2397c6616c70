"""Jobs that are suspended, resumed and restarted on a real member: one execution through all of it."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import (
    DAG,
    ClientConfig,
    Execution,
    JetConfig,
    JetInstance,
    JobAlreadyExistsError,
    JobConfig,
    JobStateError,
    JobStatus,
    Processor,
    between,
    new_client,
    processors,
)
from shmjet.cluster.client.known_runs import KnownRuns

SOON_S = 60.0
Eventually = Callable[..., None]


class Until(Processor):
    """Emits its attempt's number, then nothing until a file is there."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate
        self._has_emitted = False

    def complete(self) -> bool:
        self._has_emitted = self._has_emitted or self.outbox.offer(self.context.execution_id)
        return self._has_emitted and self._gate.exists()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets a job end; it is not there yet."""
    return tmp_path / "gate"


@pytest.fixture
def waiting(gate: Path, out: str) -> DAG:
    """A job that writes one number for each attempt, and ends when the gate is there."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Until(gate), 1)
    return dag.edge(between(source, dag.new_vertex("sink", processors.write_list(out), 1)))


@pytest.fixture(scope="module")
def networked() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush")) as jet:
        yield jet


@pytest.fixture
def client(networked: JetInstance) -> Iterator[JetInstance]:
    with new_client([networked.cluster.members[0].address], ClientConfig(secret="hush")) as jet:
        yield jet


def test_one_future_lives_through_suspensions_and_restarts(
    jet: JetInstance, waiting: DAG, gate: Path, out: str, eventually: Eventually
) -> None:
    job = jet.new_job(waiting)
    changes: list[tuple[JobStatus, JobStatus]] = []
    job.on_status(lambda old, new: changes.append((old, new)))
    execution = job.execute()
    number = execution.id
    eventually(lambda: len(jet.get_list(out)) == 1)
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    assert job.suspension_cause is not None
    assert job.suspension_cause.requested_by_user
    assert job.suspension_cause.error is None
    assert not execution.done()
    job.resume()
    assert job.suspension_cause is None
    eventually(lambda: len(jet.get_list(out)) == 2)
    job.restart()
    eventually(lambda: len(jet.get_list(out)) == 3)
    job.restart(graceful=False)
    eventually(lambda: len(jet.get_list(out)) == 4)
    gate.touch()
    assert execution.result(SOON_S) is None
    assert job.execution is execution
    assert execution.id == number
    assert len(set(jet.get_list(out))) == 4, "context.execution_id is the attempt's"
    eventually(lambda: bool(changes) and changes[-1][1] is JobStatus.COMPLETED)
    started = [JobStatus.STARTING, JobStatus.RUNNING]
    heard = [new for _, new in changes]
    assert heard == [*started, JobStatus.SUSPENDED, *started, *started, *started, JobStatus.COMPLETED]
    assert [old for old, _ in changes] == [JobStatus.NOT_RUNNING, *heard[:-1]]


def test_what_does_not_fit_the_status_is_a_job_state_error(
    jet: JetInstance, waiting: DAG, gate: Path, eventually: Eventually
) -> None:
    job = jet.new_job(waiting, JobConfig(name="stubborn"))
    for verb in (job.suspend, job.resume, job.restart):
        with pytest.raises(JobStateError, match="'stubborn' is NOT_RUNNING"):
            verb()
    execution = job.execute()
    with pytest.raises(JobStateError, match="only a suspended job can be resumed"):
        job.resume()
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    for verb in (job.suspend, job.restart):
        with pytest.raises(JobStateError, match="SUSPENDED"):
            verb()
    job.resume()
    gate.touch()
    execution.result(SOON_S)
    for verb in (job.suspend, job.resume, job.restart):
        with pytest.raises(JobStateError, match="COMPLETED"):
            verb()


def test_a_suspended_job_is_cancelled(jet: JetInstance, waiting: DAG, eventually: Eventually) -> None:
    job = jet.new_job(waiting)
    execution = job.execute()
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    assert job.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        execution.result(SOON_S)
    assert job.status is JobStatus.FAILED
    assert job.suspension_cause is None


def test_ending_the_instance_ends_what_is_suspended(waiting: DAG, eventually: Eventually) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        job = jet.new_job(waiting)
        execution = job.execute()
        job.suspend()
        eventually(lambda: job.status is JobStatus.SUSPENDED)
    with pytest.raises(concurrent.futures.CancelledError):
        execution.result(SOON_S)


def test_a_suspended_job_keeps_its_name(jet: JetInstance, waiting: DAG, eventually: Eventually) -> None:
    job = jet.new_job(waiting, JobConfig(name="kept"))
    job.execute()
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    with pytest.raises(JobAlreadyExistsError, match="'kept' is suspended"):
        jet.new_job(waiting, JobConfig(name="kept")).execute()
    job.cancel()


def test_another_client_goes_on_with_a_job_that_it_finds(
    client: JetInstance, networked: JetInstance, waiting: DAG, gate: Path, eventually: Eventually
) -> None:
    address = networked.cluster.members[0].address
    with new_client([address], ClientConfig(secret="hush")) as first:
        begun = first.new_job(waiting, JobConfig(name="inherited"))
        begun.execute()
        begun.suspend()
        eventually(lambda: begun.status is JobStatus.SUSPENDED)
    job = client.job(name="inherited")
    assert job is not None
    assert job.status is JobStatus.SUSPENDED
    assert job.suspension_cause is not None
    assert job.suspension_cause.requested_by_user
    changes: list[JobStatus] = []
    ended = threading.Event()
    job.on_status(lambda _, new: (changes.append(new), ended.set() if new.is_terminal else None))
    job.resume()
    gate.touch()
    assert job.execution is not None
    job.execution.result(SOON_S)
    assert ended.wait(SOON_S)
    assert changes == [JobStatus.STARTING, JobStatus.RUNNING, JobStatus.COMPLETED]


def test_a_job_that_is_there_is_joined(
    client: JetInstance, networked: JetInstance, waiting: DAG, gate: Path, eventually: Eventually
) -> None:
    config = JobConfig(name="one for all")
    early = client.new_job_if_absent(waiting, config)
    assert early.status is JobStatus.NOT_RUNNING
    other = networked.new_job_if_absent(waiting, config)
    execution = other.execute()
    late = client.new_job_if_absent(waiting, config)
    assert late.id == other.id
    assert late.execution is not None
    assert late.execution.id == execution.id
    joined = early.execute()
    assert early.id == other.id
    assert joined is late.execution is late.execute()
    early.suspend()
    eventually(lambda: other.status is JobStatus.SUSPENDED)
    assert networked.new_job_if_absent(waiting, config).status is JobStatus.SUSPENDED
    other.resume()
    gate.touch()
    for each in (execution, joined):
        each.result(SOON_S)
    again = client.new_job_if_absent(waiting, config)
    assert again.id != other.id
    again.run(SOON_S)
    assert isinstance(again.execution, Execution)
    assert again.execution.id != execution.id


def test_a_callback_may_steer_the_job(jet: JetInstance, waiting: DAG, gate: Path) -> None:
    job = jet.new_job(waiting)

    def listener(old: JobStatus, new: JobStatus) -> None:
        if old is JobStatus.STARTING and new is JobStatus.RUNNING and not gate.exists():
            job.suspend()
        if new is JobStatus.SUSPENDED:
            gate.touch()
            job.resume()
        raise ValueError("ends nothing")

    job.on_status(listener)
    job.run(SOON_S)
    assert gate.exists()


def test_a_timeout_of_run_cancels_a_job_that_is_suspended(
    jet: JetInstance, waiting: DAG, eventually: Eventually
) -> None:
    job = jet.new_job(waiting)
    job.on_status(lambda _, new: job.suspend() if new is JobStatus.RUNNING else None)
    with pytest.raises(TimeoutError):
        job.run(0.5)
    eventually(lambda: job.status is JobStatus.FAILED)


def test_a_joined_job_of_the_same_client_is_the_same_execution(jet: JetInstance, waiting: DAG, gate: Path) -> None:
    config = JobConfig(name="within")
    first, second = (jet.new_job_if_absent(waiting, config) for _ in range(2))
    execution = first.execute()
    assert second.execute() is execution
    assert second.id == first.id
    gate.touch()
    second.run(SOON_S)


@pytest.mark.parametrize("ends", ["after", "before"])
def test_a_job_may_be_joined_by_a_thread_before_the_thread_that_started_it_knows_its_number(
    jet: JetInstance, waiting: DAG, gate: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (jet.new_job_if_absent(waiting, JobConfig(name=f"ends {ends}")) for _ in range(2))
    add = KnownRuns.add
    joined: list[Execution] = []

    def join(*arguments: Any) -> Any:
        monkeypatch.setattr(KnownRuns, "add", add)
        execution = second.execute()
        joined.append(execution)
        if ends == "before":
            gate.touch()
            execution.result(SOON_S)
        return add(*arguments)

    monkeypatch.setattr(KnownRuns, "add", join)
    execution = first.execute()
    gate.touch()
    for each in (execution, *joined):
        each.result(SOON_S)
    assert second.id == first.id
    assert second.status is first.status is JobStatus.COMPLETED
