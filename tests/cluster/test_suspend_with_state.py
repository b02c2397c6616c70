"""Jobs with a guarantee that are stopped and go on: their state comes back, for every client and under any name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import (
    DAG,
    BroadcastKey,
    ClientConfig,
    ConfigError,
    Execution,
    Inbox,
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
    Snapshot,
    between,
    new_client,
    processors,
)

SOON_S = 60.0
Eventually = Callable[..., None]


class Saved(Processor):
    """A processor whose attribute `state` is saved."""

    state: Any = 0

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(BroadcastKey("state"), self.state)

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        for _, value in inbox:
            self.state = value
        inbox.clear()


class Numbers(Saved):
    """Emits 1, 2, 3 ... until a file is there."""

    next_call = 0.001

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def complete(self) -> bool:
        if self._gate.exists():
            return True
        for _ in range(8):
            if not self.outbox.offer(self.state + 1):
                break
            self.state += 1
        return False


class Sum(Saved):
    """Adds up what it gets, and emits count, sum and last number at the end; `check` may raise."""

    state: Any = (0, 0)

    def __init__(self, check: Callable[[int], None] = lambda n: None) -> None:
        self._check = check
        self._last = 0

    def process(self, ordinal: int, inbox: Inbox) -> None:
        for n in inbox:
            self._check(n)
            self._last = n
            self.state = self.state[0] + 1, self.state[1] + n
        inbox.clear()

    def complete(self) -> bool:
        return self.outbox.offer((*self.state, self._last))


@pytest.fixture(scope="module")
def networked() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="hush")) as jet:
        yield jet


@pytest.fixture(params=["member", "client"])
def any_jet(networked: JetInstance, request: pytest.FixtureRequest) -> Iterator[JetInstance]:
    """The instance with the member, or a client of it."""
    if request.param == "member":
        yield networked
        return
    with new_client([networked.cluster.members[0].address], ClientConfig(secret="hush")) as jet:
        yield jet


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that ends the numbers; it is not there yet."""
    return tmp_path / "gate"


@pytest.fixture
def adding(gate: Path, out: str) -> Callable[..., DAG]:
    """Makes `numbers -> sum -> list`."""

    def make(check: Callable[[int], None] = lambda n: None, name: str = "sum") -> DAG:
        dag = DAG()
        numbers = dag.new_vertex("numbers", lambda: Numbers(gate), 1)
        total = dag.new_vertex(name, lambda: Sum(check), 1)
        sink = dag.new_vertex("sink", processors.write_list(out), 1)
        return dag.edge(between(numbers, total)).edge(between(total, sink))

    return make


def guaranteed(name: str, **more: Any) -> JobConfig:
    return JobConfig(name=name, processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.05, **more)


def has_counted(execution: Execution) -> bool:
    vertices = execution.metrics().vertices
    return "numbers" in vertices and vertices["numbers"].emitted_count > 20


def suspend(job: Job, eventually: Eventually) -> None:
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)


def assert_exact(jet: JetInstance, out: str) -> None:
    """Each number was counted once, from the first on."""
    ((count, total, last),) = jet.get_list(out)
    assert (count, total) == (last, last * (last + 1) // 2)
    assert count > 20


def test_a_job_goes_on_where_it_was(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, out: str, eventually: Eventually
) -> None:
    job = any_jet.new_job(adding(), guaranteed("exact"))
    execution = job.execute()
    eventually(lambda: has_counted(execution))
    suspend(job, eventually)
    job.resume()
    eventually(lambda: has_counted(execution))
    job.restart()
    eventually(lambda: execution.metrics().attempts == 3 and has_counted(execution))
    job.restart(graceful=False)
    eventually(lambda: execution.metrics().attempts == 4 and has_counted(execution))
    metrics = execution.metrics()
    assert metrics.last_snapshot_id >= 2, "that of the suspension, and that of the restart"
    assert metrics.last_snapshot_duration is not None
    assert metrics.vertices["sum"].snapshot_keys == 1
    assert metrics.vertices["sum"].snapshot_bytes > 0
    gate.touch()
    assert execution.result(SOON_S) is None
    assert_exact(any_jet, out)


def test_an_exported_snapshot_is_listed_and_starts_another_job(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, out: str, eventually: Eventually
) -> None:
    job = any_jet.new_job(adding(), guaranteed("exporting"))
    execution = job.execute()
    eventually(lambda: has_counted(execution))
    running = job.export_snapshot("while it runs", SOON_S)
    assert (running.name, running.job_name, running.keys) == ("while it runs", "exporting", 2)
    assert running.size == sum(vertex.size for vertex in running.vertices.values()) > 0
    assert running.vertices["sum"].keys == 1
    assert job.status is JobStatus.RUNNING
    suspend(job, eventually)
    suspended = job.export_snapshot("while it waits")
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    assert [snapshot.name for snapshot in any_jet.snapshots()] == ["while it runs", "while it waits"]
    assert running.created < suspended.created
    job.cancel()
    for snapshot in (running, suspended):
        any_jet.get_list(out).clear()
        gate.unlink(missing_ok=True)
        other = any_jet.new_job(adding(), guaranteed(f"from {snapshot.name}", initial_snapshot_name=snapshot.name))
        begun = other.execute()
        eventually(lambda begun=begun: has_counted(begun))
        gate.touch()
        begun.result(SOON_S)
        assert_exact(any_jet, out)
        snapshot.destroy()
        snapshot.destroy()
    assert any_jet.snapshots() == []


def test_the_next_version_goes_on_with_what_the_old_one_has_left(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, out: str, eventually: Eventually
) -> None:
    old = any_jet.new_job(adding(), guaranteed("versioned"))
    execution = old.execute()
    eventually(lambda: has_counted(execution))
    snapshot = old.cancel_and_export_snapshot("before 2.0", SOON_S)
    assert isinstance(snapshot, Snapshot)
    with pytest.raises(CancelledError):
        execution.result(SOON_S)
    assert list(any_jet.get_list(out)) == []

    def renamed(**more: Any) -> Job:
        config = guaranteed("versioned", initial_snapshot_name="before 2.0", **more)
        return any_jet.new_job(adding(name="total"), config)

    with pytest.raises(PlanError, match="'sum'"):
        renamed().execute()
    gate.touch()
    renamed(allow_dropped_state=True).run(SOON_S)
    assert [count for count, *_ in any_jet.get_list(out)] == [0], "it has no state of its own"
    any_jet.get_list(out).clear()
    gate.unlink()
    new = any_jet.new_job(adding(), guaranteed("versioned", initial_snapshot_name="before 2.0")).execute()
    eventually(lambda: has_counted(new))
    gate.touch()
    new.result(SOON_S)
    assert_exact(any_jet, out)
    snapshot.destroy()


def test_a_job_that_would_fail_is_suspended_and_goes_on_when_the_cause_is_gone(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, out: str, tmp_path: Path, eventually: Eventually
) -> None:
    fixed = tmp_path / "fixed"

    def check(n: int) -> None:
        if n == 50 and not fixed.exists():
            raise ValueError(f"no room for {n}")

    job = any_jet.new_job(adding(check), guaranteed("careful", suspend_on_failure=True))
    execution = job.execute()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    cause = job.suspension_cause
    assert cause is not None
    assert not cause.requested_by_user
    assert cause.error is not None
    for part in ("'careful'", "vertex 'sum'", "in check", "ValueError: no room for 50", __file__):
        assert part in cause.error
    fixed.touch()
    job.resume()
    eventually(lambda: has_counted(execution))
    gate.touch()
    execution.result(SOON_S)
    assert_exact(any_jet, out)


def test_a_restartable_error_begins_another_attempt_which_the_future_outlives(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, out: str, tmp_path: Path, eventually: Eventually
) -> None:
    seen = tmp_path / "seen"

    def check(n: int) -> None:
        if n == 50 and not seen.exists():
            seen.touch()
            raise RestartableError("lost the connection")

    execution = any_jet.new_job(adding(check), guaranteed("reconnecting")).execute()
    eventually(lambda: execution.metrics().attempts == 2 and has_counted(execution))
    gate.touch()
    execution.result(SOON_S)
    assert_exact(any_jet, out)


def test_what_cannot_be_saved_or_started_is_said_at_once(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, eventually: Eventually
) -> None:
    plain = any_jet.new_job(adding(), JobConfig(name="plain"))
    with pytest.raises(JobStateError, match="NOT_RUNNING"):
        plain.export_snapshot("a")
    execution = plain.execute()
    eventually(lambda: plain.status is JobStatus.RUNNING)
    with pytest.raises(ConfigError, match="must not begin with a dot"):
        plain.export_snapshot("../a")
    gate.touch()
    execution.result(SOON_S)
    for export in (plain.export_snapshot, plain.cancel_and_export_snapshot):
        with pytest.raises(JobStateError, match="COMPLETED"):
            export("a")
    unknown = any_jet.new_job(adding(), guaranteed("unknown", initial_snapshot_name="nothing"))
    for _ in range(2):  # the client has not forgotten what to run
        with pytest.raises(ConfigError, match="there is no snapshot 'nothing'"):
            unknown.execute()


def test_a_job_with_a_guarantee_runs_once_at_a_time(
    any_jet: JetInstance, adding: Callable[..., DAG], gate: Path, out: str, eventually: Eventually
) -> None:
    job = any_jet.new_job(adding(), guaranteed("single"))
    execution = job.execute()
    with pytest.raises(JobAlreadyExistsError, match="once at a time"):
        job.execute()
    suspend(job, eventually)
    with pytest.raises(JobAlreadyExistsError, match="is suspended"):
        job.execute()
    job.resume()
    eventually(lambda: has_counted(execution))
    gate.touch()
    execution.result(SOON_S)
    assert job.execution is execution
    any_jet.get_list(out).clear()
    job.run(SOON_S)
    assert list(any_jet.get_list(out)) == [(0, 0, 0)], "it begins anew"


def test_an_error_without_suspension_still_fails_the_job(any_jet: JetInstance, adding: Callable[..., DAG]) -> None:
    def check(n: int) -> None:
        raise ValueError("no room")

    with pytest.raises(JobFailedError, match="no room"):
        any_jet.new_job(adding(check), guaranteed("failing")).run(SOON_S)


def test_a_client_that_is_closed_says_that_its_job_is_suspended(
    networked: JetInstance, adding: Callable[..., DAG], eventually: Eventually
) -> None:
    with new_client([networked.cluster.members[0].address], ClientConfig(secret="hush")) as client:
        job = client.new_job(adding(), JobConfig(name="at rest"))
        execution = job.execute()
        job.suspend()
        eventually(lambda: job.status is JobStatus.SUSPENDED)
    assert str(execution.exception(SOON_S)) == "this client is closed; job 'at rest' is suspended"
    found = networked.job(name="at rest")
    assert found is not None
    assert found.status is JobStatus.SUSPENDED
    found.cancel()
    eventually(lambda: found.status is JobStatus.FAILED)
