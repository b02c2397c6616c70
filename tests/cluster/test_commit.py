"""What a meta-supplier commits: after the last processor, before the job counts as completed, and only then."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import DAG, JobFailedError, JobStatus, ProcessorMetaSupplier, ProcessorSupplier, WorkerLostError, processors


class Committing(ProcessorMetaSupplier):
    """Emits, and writes what is called into a file."""

    preferred_local_parallelism = 1

    def __init__(self, journal: Path, then: Any = None, source: Any = None) -> None:
        self.journal = journal
        self.then = then
        self.source = source

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        return dict.fromkeys(addresses, ProcessorSupplier.of(self.source or processors.generate(lambda *_: [1])))

    def commit(self) -> None:
        self._write("commit")
        if self.then is not None:
            self.then()

    def close(self, error: BaseException | None) -> None:
        self._write("close" if error is None else "close after an error")

    def _write(self, text: str) -> None:
        with self.journal.open("a") as file:
            print(text, file=file)


@pytest.fixture(scope="module")
def jet() -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as instance:
        yield instance


def job_of(jet: shmjet.JetInstance, *suppliers: Committing) -> shmjet.Job:
    dag = DAG()
    for number, supplier in enumerate(suppliers):
        source = dag.new_vertex(f"v{number}", supplier)
        dag.edge(shmjet.between(source, dag.new_vertex(f"end{number}", processors.noop())))
    return jet.new_job(dag)


def fail(*_: int) -> Iterator[int]:
    yield 1
    raise ValueError("no more")


def test_the_results_are_committed_when_run_returns(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    for round_ in range(1, 20):
        job_of(jet, Committing(tmp_path / "a"), Committing(tmp_path / "b")).run(60)
        for name in "ab":
            assert (tmp_path / name).read_text().split("\n").count("commit") == round_


def test_a_job_is_completing_while_it_commits(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    go_on = tmp_path / "go on"
    os.mkfifo(go_on)
    job = job_of(jet, Committing(tmp_path / "a", then=lambda: go_on.read_text()))
    execution = job.execute()
    eventually(lambda: execution.status is JobStatus.COMPLETING)
    assert job.status is JobStatus.COMPLETING
    assert execution.running()
    assert execution.cancel()  # it asks, and nothing comes of it
    go_on.write_text("now")
    execution.result(60)
    assert job.status is JobStatus.COMPLETED


def test_nothing_is_committed_when_a_processor_fails(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    journal = tmp_path / "a"
    failing = Committing(tmp_path / "b", source=processors.generate(fail))
    with pytest.raises(JobFailedError, match="no more"):
        job_of(jet, Committing(journal), failing).run(60)
    eventually(lambda: journal.exists() and journal.read_text() == "close after an error\n")


def test_nothing_is_committed_when_the_job_is_cancelled(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    journal = tmp_path / "a"
    endless = processors.generate(lambda *_: iter(int, 1))
    execution = job_of(jet, Committing(journal, source=endless)).execute()
    eventually(lambda: execution.status is shmjet.JobStatus.RUNNING)
    execution.cancel()
    eventually(execution.cancelled)
    eventually(lambda: journal.exists() and journal.read_text() == "close after an error\n")


def test_an_error_of_commit_fails_the_job_and_names_the_vertex(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    def refuse() -> None:
        raise PermissionError(13, "not there", "/out")

    journal = tmp_path / "a"
    with pytest.raises(JobFailedError, match=r"'v0'.*PermissionError") as caught:
        job_of(jet, Committing(journal, refuse)).run(60)
    assert caught.value.vertex == "v0"
    assert isinstance(caught.value.cause, PermissionError)
    eventually(lambda: journal.read_text() == "commit\nclose after an error\n")
    job_of(jet, Committing(tmp_path / "b")).run(60)


def test_a_worker_that_dies_while_it_commits_fails_the_job(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerLostError, match="SIGKILL"):
        job_of(jet, Committing(tmp_path / "a", die)).run(60)
    job_of(jet, Committing(tmp_path / "b")).run(60)


def test_a_wrapped_meta_supplier_commits_too(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    dag = DAG()
    dag.new_vertex("v", processors.peek_output(Committing(tmp_path / "a")))
    jet.new_job(dag).run(60)
    assert (tmp_path / "a").read_text().startswith("commit\n")
