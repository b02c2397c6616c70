"""Jobs without a guarantee that are exported: other jobs go on from there, their own attempts do not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet import (
    DAG,
    Batch,
    Inbox,
    JetConfig,
    JetInstance,
    Job,
    JobConfig,
    JobStateError,
    JobStatus,
    ProcessingGuarantee,
    Processor,
    ShmjetError,
    between,
    from_,
    new_instance,
    processors,
)
from tests.cluster.counting import Numbers, counting, exact

SOON_S = 60.0
Eventually = Callable[..., None]


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with new_instance(JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The file that lets sources end; it is not there yet."""
    return tmp_path / "gate"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a job writes its result."""
    return tmp_path / "result.json"


def runs(jet: JetInstance, dag: DAG, eventually: Eventually, **settings: Any) -> Job:
    """Return a job that runs."""
    job = jet.new_job(dag, JobConfig(**settings))
    job.execute()
    eventually(lambda: job.status is JobStatus.RUNNING)
    return job


def emitted(job: Job, vertex: str) -> int:
    vertices = job.metrics().vertices
    return vertices[vertex].emitted_count if vertex in vertices else 0


def test_other_jobs_go_on_from_an_export(jet: JetInstance, file: Path, gate: Path, eventually: Eventually) -> None:
    job = runs(jet, counting(file, 2000, gate=gate), eventually, name="unguarded")
    first = job.export_snapshot("first")
    assert (first.job_name, sorted(first.vertices)) == ("unguarded", ["counts", "numbers", "result"])
    assert job.status is JobStatus.RUNNING
    eventually(lambda: emitted(job, "numbers") > 400)
    second = job.export_snapshot("second")
    assert second.vertices["counts"].keys == 10
    third = job.cancel_and_export_snapshot("third")
    assert job.status is JobStatus.FAILED
    gate.touch()
    for number, snapshot in enumerate((first, second, third)):
        guarantee = list(ProcessingGuarantee)[number]
        config = JobConfig(processing_guarantee=guarantee, initial_snapshot_name=snapshot.name)
        jet.new_job(counting(file, 2000, gate=gate, counts=1 + number), config).run(SOON_S)
        assert json.loads(file.read_text()) == exact(2000)
        file.unlink()
        snapshot.destroy()


def test_its_own_attempts_begin_anew(jet: JetInstance, file: Path, gate: Path, eventually: Eventually) -> None:
    job = runs(jet, counting(file, 500, gate=gate), eventually)
    eventually(lambda: emitted(job, "numbers") > 100)
    snapshot = job.export_snapshot("x")
    job.suspend()
    eventually(lambda: job.status is JobStatus.SUSPENDED)
    with pytest.raises(JobStateError, match="was suspended without a processing_guarantee; there is nothing to export"):
        job.export_snapshot("y")
    gate.touch()
    job.resume()
    assert job.execution is not None
    job.execution.result(SOON_S)
    assert emitted(job, "numbers") == 1000, "the last attempt has read everything"
    assert json.loads(file.read_text()) == exact(500)
    assert [found.name for found in jet.snapshots()] == ["x"]
    snapshot.destroy()


class Once(Processor):
    """A source that blocks, and ends after one item."""

    is_cooperative = False

    def complete(self) -> bool:
        return self.outbox.offer("once")


def test_sources_that_have_ended_are_not_read_again(
    jet: JetInstance, tmp_path: Path, gate: Path, out: str, eventually: Eventually
) -> None:
    check_ended_sources(jet, tmp_path, gate, out, eventually)


def test_nor_are_sources_in_processes_that_let_go_when_their_tasklets_have_ended(
    tmp_path: Path, gate: Path, out: str, eventually: Eventually
) -> None:
    with new_instance(JetConfig(cores=2, work_stealing=False)) as jet:
        check_ended_sources(jet, tmp_path, gate, out, eventually)


def check_ended_sources(jet: JetInstance, tmp_path: Path, gate: Path, out: str, eventually: Eventually) -> None:
    """Export a job of which all sources but one have ended, and go on from there with two numbers of processors."""
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\nthree\n")

    def dag(readers: int) -> DAG:
        made = DAG()
        sink = made.new_vertex("sink", processors.write_list(out), 1)
        sources = [
            made.new_vertex("items", processors.read_items(["a", "b", "c", "d"]), readers),
            made.new_vertex("lines", processors.read_files(str(lines)), readers),
            made.new_vertex("once", Once, 1),
            made.new_vertex("numbers", lambda: Numbers(50, gate), 1),
        ]
        for ordinal, source in enumerate(sources):
            made.edge(from_(source).to(sink, ordinal))
        return made

    job = runs(jet, dag(2), eventually)
    eventually(lambda: sum(emitted(job, name) for name in ("items", "lines", "once", "numbers")) == 58)
    job.cancel_and_export_snapshot("ended")
    gate.touch()
    for readers in (2, 3):
        jet.new_job(dag(readers), JobConfig(initial_snapshot_name="ended")).run(SOON_S)
        everything = [*range(50), "a", "b", "c", "d", "once", "one", "three", "two"]
        assert sorted(jet.get_list(out), key=lambda item: (isinstance(item, str), item)) == everything
    for snapshot in jet.snapshots():
        snapshot.destroy()


class Slow(Processor):
    """Passes items on, some every millisecond; all at once when a file is there."""

    def __init__(self, gate: Path) -> None:
        self._gate = gate

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.next_call = 0.0 if self._gate.exists() else 0.001
        for _ in range(min(len(inbox), 100)):
            if not self.outbox.offer(inbox.peek()):
                return
            inbox.remove()


@pytest.mark.parametrize("kind", ["map", "files"])
def test_sources_go_on_in_the_middle(
    jet: JetInstance, tmp_path: Path, gate: Path, out: str, eventually: Eventually, kind: str
) -> None:
    count = 30_000
    lines = tmp_path / "lines.txt"
    if kind == "map":
        jet.get_map(out).put_all({number: number for number in range(count)})
    else:
        lines.write_text("".join(f"{number}\n" for number in range(count)))

    def dag(readers: int) -> DAG:
        made = DAG()
        read = processors.read_map(out) if kind == "map" else processors.read_files(str(lines), block_size=4096)
        source, sink = made.new_vertex("source", read, readers), made.new_vertex("sink", processors.write_list(out), 1)
        slow = made.new_vertex("slow", lambda: Slow(gate), 1)
        return made.edge(between(source, slow)).edge(between(slow, sink))

    job = runs(jet, dag(2), eventually)
    eventually(lambda: emitted(job, "slow") > 100)
    snapshot = job.cancel_and_export_snapshot("middle")
    there = len(jet.get_list(out))
    assert 100 < there < count
    gate.touch()
    jet.new_job(dag(3), JobConfig(initial_snapshot_name="middle")).run(SOON_S)
    found = [int(item if kind == "files" else item[0]) for item in jet.get_list(out)]
    assert sorted(found) == list(range(count))
    jet.get_map(out).destroy()
    snapshot.destroy()


class Waits(Processor):
    """A source of one batch that waits for a file after it."""

    def __init__(self, gate: Path) -> None:
        self._gate, self._has_emitted = gate, False

    def complete(self) -> bool:
        self.next_call = 0.001
        self._has_emitted = self._has_emitted or self.outbox.offer(Batch({"k": [1, 2], "w": [3, 4]}))
        return self._has_emitted and self._gate.exists()


class Rows(Processor):
    """A sink that takes anything."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        inbox.clear()


class Locked(Processor):
    """Cannot be saved."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        inbox.clear()

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot("state", threading.Lock())


class Broken(Locked):
    """Raises when it is to be saved."""

    def save_to_snapshot(self) -> bool:
        raise ValueError("not today")


@pytest.mark.parametrize(
    ("sink", "text"),
    [(Locked, "EntryError: the entry of key 'state' cannot be saved"), (Broken, "ValueError: not today")],
)
def test_an_error_fails_the_export_and_not_the_job(
    jet: JetInstance, gate: Path, eventually: Eventually, sink: type[Processor], text: str
) -> None:
    dag = DAG()
    numbers, end = dag.new_vertex("numbers", lambda: Numbers(50, gate), 1), dag.new_vertex("end", sink, 1)
    job = runs(jet, dag.edge(between(numbers, end)), eventually)
    for export in (job.export_snapshot, job.cancel_and_export_snapshot, job.export_snapshot):
        with pytest.raises(ShmjetError, match=f"the state of vertex 'end' cannot be saved: {text}"):
            export("x")
    assert job.status is JobStatus.RUNNING
    gate.touch()
    assert job.execution is not None
    job.execution.result(SOON_S)


def test_state_that_is_not_kept_is_named_and_the_job_goes_on(
    jet: JetInstance, gate: Path, eventually: Eventually
) -> None:
    dag = DAG()
    built = dag.new_vertex("built", processors.read_items([Batch({"k": [1], "v": [2]})]), 1)
    stream, end = dag.new_vertex("stream", lambda: Waits(gate), 1), dag.new_vertex("end", Rows, 1)
    join = dag.new_vertex("join", processors.hash_join_batches("k"), 1)
    dag.edge(from_(stream).to(join, 0)).edge(from_(built).to(join, 1).priority(-1)).edge(between(join, end))
    job = runs(jet, dag, eventually)
    eventually(lambda: emitted(job, "join") == 1)
    for export in (job.export_snapshot, job.cancel_and_export_snapshot):
        with pytest.raises(ShmjetError, match="the state of vertex 'join' cannot be saved: the keys of a join's"):
            export("joined")
    assert job.status is JobStatus.RUNNING
    gate.touch()
    assert job.execution is not None
    job.execution.result(SOON_S)
    assert "joined" not in [snapshot.name for snapshot in jet.snapshots()]
