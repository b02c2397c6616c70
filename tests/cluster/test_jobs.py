"""Jobs end to end: what runs, what comes back, and what a job's handle says meanwhile."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import (
    DAG,
    AbstractProcessor,
    JetInstance,
    JobAlreadyExistsError,
    JobConfig,
    JobFailedError,
    JobStatus,
    PlanError,
    Processor,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    between,
    from_,
    processors,
)


def test_a_lambda_a_closure_and_a_generator_function_run_in_the_workers(jet: JetInstance, out: str) -> None:
    offset = 1000

    def twice(x: int) -> Any:
        yield x
        yield x + offset

    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(100)))
    mapper = dag.new_vertex("map", processors.map(lambda x: x + offset))
    flat = dag.new_vertex("flat", processors.flat_map(twice))
    sink = dag.new_vertex("sink", processors.write_list(out))
    dag.edge(between(source, mapper)).edge(between(mapper, flat)).edge(between(flat, sink))
    jet.new_job(dag).run(60)
    assert sorted(jet.get_list(out)) == sorted([*range(1000, 1100), *range(2000, 2100)])


def test_one_job_runs_many_times_and_each_run_starts_afresh(
    jet: JetInstance, out: str, mapping: Callable[..., DAG]
) -> None:
    seen: list[int] = []

    def count(x: int) -> int:
        seen.append(x)
        return len(seen)

    job = jet.new_job(mapping(count, range(5), 1))
    for _ in range(3):
        job.run(60)
        assert job.status is JobStatus.COMPLETED
    assert sorted(jet.get_list(out)) == sorted([1, 2, 3, 4, 5] * 3)
    assert seen == []


def test_many_jobs_run_at_the_same_time(jet: JetInstance) -> None:
    def make(name: str) -> DAG:
        dag = DAG()
        source = dag.new_vertex("source", processors.read_items(range(2000)), 1)
        keyed = dag.new_vertex("keyed", processors.map(lambda x: (x % 7, x)))
        sink = dag.new_vertex("sink", processors.write_list(name))
        return dag.edge(between(source, keyed)).edge(between(keyed, sink).partitioned(lambda pair: pair[0]))

    executions = [jet.new_job(make(f"many-{i}"), JobConfig(name=f"many {i}")).execute() for i in range(12)]
    done, pending = concurrent.futures.wait(executions, 60)
    assert not pending
    assert all(execution.result() is None for execution in done)
    for i in range(12):
        assert len(jet.get_list(f"many-{i}")) == 2000


class Witness:
    """Says, where it is unpickled, in which files of memory the job's code lies."""

    def __init__(self, ballast: bytes) -> None:
        self.ballast = ballast

    def __reduce__(self) -> tuple[Any, ...]:
        return _look, (self.ballast,)


def _look(ballast: bytes) -> tuple[int, tuple[str, ...]]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return len(ballast), tuple(sorted({line.split()[4] for line in lines if "memfd:shmjet-large" in line}))


def test_a_large_code_lies_in_one_file_for_all_processes_and_is_forgotten_after_use(jet: JetInstance, out: str) -> None:
    witness: Any = Witness(os.urandom(4 << 20))
    dag = DAG()
    source = dag.new_vertex("items", processors.generate(lambda i, n: [i]))
    seen = dag.new_vertex("seen", processors.map(lambda i: (i, os.getpid(), witness)))
    dag.edge(between(source, seen).isolated()).edge(between(seen, dag.new_vertex("sink", processors.write_list(out))))
    job = jet.new_job(dag)
    for _ in range(2):
        job.run(60)
    found = list(jet.get_list(out))
    assert len(found) == 4
    assert len({pid for _, pid, _ in found}) == 2
    assert {size for _, _, (size, _) in found} == {4 << 20}
    assert len({inodes for _, _, (_, inodes) in found}) == 1, "one file, for both workers and both runs"
    assert len(found[0][2][1]) == 1
    for pid in jet.cluster.members[0].workers:
        assert not [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "shmjet-large" in line]


def test_what_a_resting_processor_has_counted_is_told_while_others_on_its_worker_go_on(
    jet: JetInstance, eventually: Callable[..., None]
) -> None:
    class Forever(Processor):
        def complete(self) -> bool:
            self.outbox.offer(1)
            return False

    class Few(Processor):
        next_call = 0.001
        left = 50

        def complete(self) -> bool:
            if self.left and self.outbox.offer(self.left):
                self.left -= 1
            return False

    dag = DAG()
    dag.edge(between(dag.new_vertex("busy", Forever, 2), dag.new_vertex("drop", processors.noop(), 2)))
    dag.edge(between(dag.new_vertex("few", Few, 1), dag.new_vertex("taker", processors.noop(), 1)))
    execution = jet.new_job(dag).execute()
    eventually(lambda: execution.metrics().vertices["taker"].received_count == 50)
    execution.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        execution.result(60)


def test_results_can_be_read_while_the_job_runs(jet: JetInstance, out: str, eventually: Callable[..., None]) -> None:
    class Forever(Processor):
        def complete(self) -> bool:
            self.outbox.offer(1)
            return False

    dag = DAG()
    dag.edge(between(dag.new_vertex("a", Forever, 1), dag.new_vertex("b", processors.write_list(out), 1)))
    execution = jet.new_job(dag).execute()
    eventually(lambda: len(jet.get_list(out)) > 10)
    assert execution.status is JobStatus.RUNNING
    eventually(lambda: execution.metrics().vertices["b"].received_count > 0)  # it is told when a call has returned
    metrics = execution.metrics()
    assert metrics.vertices["a"].emitted_count > 0
    assert metrics.to_dict()["vertices"]["b"]["processors"][0]["received_count"] > 0
    assert {worker.index for worker in metrics.workers} == {0, 1}
    assert execution.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        execution.result(60)
    assert execution.cancelled()
    assert execution.status is JobStatus.FAILED


def test_callbacks_and_waiters_see_a_cancelled_execution(jet: JetInstance) -> None:
    class Silent(Processor):
        def complete(self) -> bool:
            return False

    dag = DAG()
    dag.new_vertex("silent", Silent)
    execution = jet.new_job(dag).execute()
    called = threading.Event()
    execution.add_done_callback(lambda _: called.set())
    assert not execution.done()
    execution.cancel()
    assert list(concurrent.futures.as_completed([execution], 60)) == [execution]
    assert called.wait(60)


def test_a_job_runs_while_its_first_call_has_not_returned(
    jet: JetInstance, eventually: Callable[..., None], tmp_path: Path
) -> None:
    leave = tmp_path / "leave"

    class Busy(Processor):
        def complete(self) -> bool:
            while not leave.exists():
                pass
            return True

    dag = DAG()
    dag.new_vertex("busy", Busy, 2)
    execution = jet.new_job(dag).execute()
    eventually(lambda: execution.status is JobStatus.RUNNING)
    leave.touch()
    execution.result(60)
    assert execution.status is JobStatus.COMPLETED


def test_a_client_remembers_the_last_executions_only(
    jet: JetInstance, mapping: Callable[..., DAG], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.cluster.client.known_runs.KEPT_RESULTS", 2)
    jobs = [jet.new_job(mapping(lambda x: x)) for _ in range(4)]
    for job in jobs:
        job.run(60)
    assert all(job.status is JobStatus.COMPLETED for job in jobs)
    assert all(job.metrics().vertices["map"].received_count == 100 for job in jobs)


def test_a_timeout_of_run_cancels_the_job(jet: JetInstance, eventually: Callable[..., None]) -> None:
    class Silent(Processor):
        def complete(self) -> bool:
            return False

    dag = DAG()
    dag.new_vertex("silent", Silent)
    job = jet.new_job(dag)
    with pytest.raises(TimeoutError):
        job.run(0.05)
    eventually(lambda: job.status is JobStatus.FAILED)


def test_a_name_can_be_used_by_one_running_job_only(jet: JetInstance) -> None:
    class Silent(Processor):
        def complete(self) -> bool:
            return False

    dag = DAG()
    dag.new_vertex("silent", Silent)
    execution = jet.new_job(dag, JobConfig(name="unique")).execute()
    assert jet.job(name="unique") is not None
    other = jet.new_job(dag, JobConfig(name="unique"))
    with pytest.raises(JobAlreadyExistsError, match="'unique' is running"):
        other.execute()
    assert other.id not in [job.id for job in jet.jobs()], "a job that never ran is not listed"
    running = jet.job(name="unique")
    assert running is not None
    assert running.execution is execution
    execution.cancel()
    concurrent.futures.wait([execution], 60)
    other.execute().cancel()


def test_who_lists_jobs_takes_no_news_from_those_who_start_them(mapping: Callable[..., DAG]) -> None:
    enough = threading.Event()
    with shmjet.new_instance(shmjet.JetConfig(cores=1)) as jet, concurrent.futures.ThreadPoolExecutor(1) as threads:

        def look() -> int:
            seen = 0
            while not enough.is_set():
                seen = max(seen, len(jet.jobs()))
            return seen

        looking = threads.submit(look)
        try:
            for _ in range(100):
                jet.new_job(mapping(lambda x: x, range(3), 1)).run(60)
        finally:
            enough.set()
        assert 0 < looking.result(60) <= 100
        assert [job.status for job in jet.jobs()] == [JobStatus.COMPLETED] * 100


def test_jobs_are_found_by_name_and_id(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    job = jet.new_job(mapping(lambda x: x), JobConfig(name="findable"))
    assert job.status is JobStatus.NOT_RUNNING
    job.run(60)
    found = jet.job(name="findable")
    assert found is not None
    assert (found.id, found.status) == (job.id, JobStatus.COMPLETED)
    assert jet.job(id=job.id) is found
    assert jet.job(name="no such job") is None
    with pytest.raises(TypeError, match="name of a job, or its id"):
        jet.job()
    assert job.id in [other.id for other in jet.jobs()]


def test_a_non_cooperative_processor_has_a_process_of_its_own(jet: JetInstance, out: str) -> None:
    class Blocking(Processor):
        is_cooperative = False

        def complete(self) -> bool:
            return self.outbox.offer((os.getpid(), self.context.global_index))

    dag = DAG()
    source = dag.new_vertex("blocking", Blocking, 3)
    mapper = dag.new_vertex("map", processors.map(lambda pair: (*pair, os.getpid())))
    dag.edge(between(source, mapper)).edge(between(mapper, dag.new_vertex("sink", processors.write_list(out), 1)))
    jet.new_job(dag).run(60)
    rows = list(jet.get_list(out))
    assert sorted(index for _, index, _ in rows) == [0, 1, 2]
    assert len({pid for pid, _, _ in rows}) == 3
    workers = set(jet.cluster.members[0].workers)
    assert not workers & {pid for pid, _, _ in rows}
    assert {worker for _, _, worker in rows} <= workers


def test_a_factory_of_non_cooperative_processors_is_probed(jet: JetInstance, out: str) -> None:
    class Either(Processor):
        def __init__(self, cooperative: bool) -> None:
            self.is_cooperative = cooperative

        def complete(self) -> bool:
            return self.outbox.offer(os.getpid())

    dag = DAG()
    blocking = dag.new_vertex("blocking", lambda: Either(False), 1)
    quick = dag.new_vertex("quick", lambda: Either(True), 1)
    sink = dag.new_vertex("sink", processors.write_list(out), 1)
    dag.edge(from_(blocking).to(sink, 0)).edge(from_(quick).to(sink, 1))
    jet.new_job(dag).run(60)
    pids = set(jet.get_list(out))
    assert len(pids - set(jet.cluster.members[0].workers)) == 1
    assert len(pids) == 2


def test_suppliers_of_all_three_levels_are_called_as_in_jet(jet: JetInstance, tmp_path: Path) -> None:
    log = tmp_path / "calls"

    def note(text: str) -> None:
        with log.open("a") as file:
            file.write(text + "\n")

    class P(Processor):
        def __init__(self, number: int) -> None:
            self.number = number

        def init(self, outbox: Any, context: Any) -> None:
            note(f"p.init {self.number} {context.local_index} of {context.total_parallelism}")

        def close(self) -> None:
            note(f"p.close {self.number}")

    class S(ProcessorSupplier):
        def init(self, context: Any) -> None:
            note(f"s.init {context.vertex_name}")

        def get(self, count: int) -> list[Processor]:
            note(f"s.get {count}")
            return [P(i) for i in range(count)]

        def close(self, error: BaseException | None) -> None:
            note(f"s.close {error}")

    class M(ProcessorMetaSupplier):
        preferred_local_parallelism = 1

        def init(self, context: Any) -> None:
            note(f"m.init {context.vertex_name}")

        def get(self, addresses: Any) -> dict[str, ProcessorSupplier]:
            return {address: S() for address in addresses}

        def close(self, error: BaseException | None) -> None:
            note(f"m.close {error}")

    dag = DAG()
    dag.new_vertex("v", M())
    jet.new_job(dag).run(60)
    wait_for_lines(log, 7)
    assert log.read_text().split("\n")[:-1] == [
        "m.init v",
        "s.init v",
        "s.get 1",
        "p.init 0 0 of 1",
        "p.close 0",
        "s.close None",
        "m.close None",
    ]


def wait_for_lines(log: Path, count: int) -> None:
    """Suppliers are closed after the job has completed for its client."""
    done = threading.Event()
    deadline = time.monotonic() + 60
    while log.read_text().count("\n") < count:
        assert time.monotonic() < deadline, log.read_text()
        done.wait(0.01)


def test_close_is_called_exactly_once_on_every_processor_however_the_job_ends(jet: JetInstance, tmp_path: Path) -> None:
    log = tmp_path / "closed"
    log.touch()

    class P(AbstractProcessor):
        def __init__(self, fails: str) -> None:
            self.fails = fails

        def init(self, outbox: Any, context: Any) -> None:
            super().init(outbox, context)
            if self.fails == "init":
                raise ValueError("init fails")

        def complete(self) -> bool:
            if self.fails == "complete":
                raise ValueError("complete fails")
            return self.fails == ""

        def close(self) -> None:
            with log.open("a") as file:
                file.write(f"{self.fails or 'none'}\n")

    for fails in ("", "init", "complete"):
        factory = lambda fails=fails: P(fails)  # noqa: E731
        dag = DAG()
        dag.new_vertex("v", factory, 4)
        if fails:
            with pytest.raises(JobFailedError, match=f"{fails} fails"):
                jet.new_job(dag).run(60)
        else:
            jet.new_job(dag).run(60)
    wait_for_lines(log, 12)
    assert Counter(log.read_text().split()) == {"none": 4, "init": 4, "complete": 4}


def test_an_added_module_travels_by_value_and_is_never_stale(
    jet: JetInstance, out: str, mapping: Callable[..., DAG]
) -> None:
    module = types.ModuleType("edited_by_its_user")
    sys.modules["edited_by_its_user"] = module
    try:
        for version in (1, 2):
            exec(f"def f(x):\n    return (x, {version})", module.__dict__)
            module.f.__module__ = "edited_by_its_user"
            with pytest.raises(JobFailedError, match=r"No module named 'edited_by_its_user': .*\.add_module\(module\)"):
                jet.new_job(mapping(module.f, [7], 1)).run(60)
            jet.new_job(mapping(module.f, [7], 1), JobConfig().add_module(module)).run(60)
    finally:
        del sys.modules["edited_by_its_user"]
    assert list(jet.get_list(out)) == [(7, 1), (7, 2)]


def test_an_attached_file_is_read_as_it_was_when_the_job_was_made(jet: JetInstance, out: str, tmp_path: Path) -> None:
    file = tmp_path / "rates.txt"
    file.write_text("before")

    class Reader(Processor):
        def complete(self) -> bool:
            return self.outbox.offer(self.context.attached_file("rates").read_text())

    dag = DAG()
    dag.edge(between(dag.new_vertex("r", Reader, 1), dag.new_vertex("w", processors.write_list(out), 1)))
    job = jet.new_job(dag, JobConfig().attach_file(file, id="rates"))
    file.write_text("after")
    job.run(60)
    assert list(jet.get_list(out)) == ["before"]


def test_the_client_may_be_anywhere_in_threads(jet: JetInstance, mapping: Callable[..., DAG], out: str) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: jet.new_job(mapping(lambda x: x, range(10), 1)).run(60), range(8)))
    assert len(jet.get_list(out)) == 80


def test_settings_of_another_kind_are_refused_by_name(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    dag, wrong = mapping(lambda x: x), {"name": "primes"}
    with pytest.raises(shmjet.ConfigError, match=r"new_job\(\): config must be a JobConfig, got .*'primes'.* \(dict\)"):
        jet.new_job(dag, wrong)  # type: ignore[arg-type]
    with pytest.raises(shmjet.ConfigError, match=r"new_instance\(\): config must be a JetConfig, got 4 \(int\)"):
        shmjet.new_instance(4)  # type: ignore[arg-type]
    with pytest.raises(shmjet.ConfigError, match=r"new_client\(\): config must be a ClientConfig, got JetConfig\("):
        shmjet.new_client(["localhost:5701"], shmjet.JetConfig())  # type: ignore[arg-type]


def test_a_dag_without_vertices_is_refused(jet: JetInstance) -> None:
    with pytest.raises(shmjet.DagError, match=r"new_job\(\): the DAG has no vertices"):
        jet.new_job(DAG())


def test_an_instance_that_is_shut_down_says_so(mapping: Callable[..., DAG]) -> None:
    jet = shmjet.new_instance(shmjet.JetConfig(cores=1))
    job, ran = jet.new_job(mapping(lambda x: x)), jet.new_job(mapping(lambda x: x))
    ran.run(60)
    jet.shutdown()
    jet.shutdown()
    with pytest.raises(shmjet.ShmjetError, match="has been shut down"):
        job.execute()
    with pytest.raises(shmjet.ShmjetError, match="has been shut down"):
        jet.get_map("m")
    for late in (jet.jobs, lambda: jet.job(name="j"), lambda: jet.cluster.members, ran.metrics):
        with pytest.raises(shmjet.ShmjetError, match="has been shut down") as raised:
            late()
        assert not isinstance(raised.value, shmjet.MemberLostError)
    assert ran.cancel() is False


def test_an_edge_to_an_address_where_no_member_is_fails_the_job_on_one_member_too(jet: JetInstance) -> None:
    def dag_to(address: str) -> DAG:
        dag = DAG()
        source = dag.new_vertex("source", processors.read_items([1, 2, 3]), 1)
        sink = dag.new_vertex("sink", processors.noop(), 1)
        return dag.edge(between(source, sink).all_to_one().distribute_to(address))

    (member,) = jet.cluster.members
    jet.new_job(dag_to(member.address)).run(60)
    with pytest.raises(JobFailedError, match=r"distribute_to\('10\.9\.9\.9:5701'\) names no member") as failed:
        jet.new_job(dag_to("10.9.9.9:5701")).run(60)
    assert isinstance(failed.value.cause, PlanError)
    assert f"the members are {member.address}" in str(failed.value)
