"""Built sinks that publish: nothing before the whole job has succeeded, on all members, and all of it then."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmjet
from shmjet import (
    JetConfig,
    JobConfig,
    JobFailedError,
    MemberLostError,
    Pipeline,
    PlanError,
    WorkerLostError,
    processors,
    sinks,
    sources,
)


class Publisher:
    """A file that gets its name when the job has succeeded; a journal has all that happens, one line each."""

    def __init__(self, folder: Path, context: Any) -> None:
        self.folder = folder
        self.index = context.global_index
        self.hidden = folder / f".{self.index}"
        self.file = self.hidden.open("w")
        self.note(f"pid {os.getpid()}")

    def note(self, what: str) -> None:
        with (self.folder / "journal").open("a") as journal:
            journal.write(f"{self.index} {what}\n")

    def receive(self, item: Any) -> None:
        self.file.write(f"{item}\n")
        self.note("receive")

    def commit(self) -> None:
        self.note("commit")
        self.file.flush()
        self.hidden.rename(self.folder / str(self.index))

    def abort(self) -> None:
        self.note("abort")
        self.hidden.unlink()

    def destroy(self) -> None:
        self.note("destroy")
        self.file.close()


def publishing(folder: Path, parallelism: int = 1, name: str = "publisher") -> Any:
    folder.mkdir(exist_ok=True)
    return (
        sinks.builder(name, lambda context: Publisher(folder, context))
        .receive_fn(Publisher.receive)
        .commit_fn(Publisher.commit)
        .abort_fn(Publisher.abort)
        .destroy_fn(Publisher.destroy)
        .preferred_local_parallelism(parallelism)
    )


def journal(folder: Path) -> list[str]:
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def ends(folder: Path, index: int = 0) -> list[str]:
    """Return what happened to one object after it had been made and had its items."""
    mine = [line.partition(" ")[2] for line in journal(folder) if line.startswith(f"{index} ")]
    return [what for what in mine if what != "receive" and not what.startswith("pid")]


def published(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.isdigit())


SAID_BY_AN_ORPHAN = ([], ["abort"], ["abort", "destroy"])
"""What an object says whose member is killed: its worker ends what it runs, until the kernel kills it."""


def pid_of(folder: Path, index: int = 0) -> int:
    return next(int(line.split()[2]) for line in journal(folder) if line.startswith(f"{index} pid"))


def pipeline(sink: Any, items: Any = range(4)) -> Pipeline:
    p = Pipeline()
    p.read_from(sources.items(items)).write_to(sink)
    return p


def parallel_branch(p: Pipeline, fill: Callable[[Any, Any], Any]) -> None:
    """Add a branch of its own, whose source calls `fill(None, buffer)`."""
    source = sources.builder("other", lambda _: None).fill_buffer_fn(fill).build()
    p.read_from(source).write_to(sinks.noop())


def once_received(folder: Path, then: Callable[[], None]) -> Callable[[Any, Any], None]:
    """Return what does something as soon as an object has all its items."""

    def fill(_: Any, buffer: Any) -> None:
        if sum(line.endswith("receive") for line in journal(folder)) >= 4:
            then()
            buffer.close()

    return fill


def fail() -> None:
    raise ValueError("the other branch")


def test_all_is_published_once_the_job_has_succeeded(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    jet.new_job(pipeline(publishing(tmp_path, 2).build())).run(60)
    assert published(tmp_path) == ["0", "1"]  # when run returns
    eventually(lambda: ends(tmp_path, 0) == ends(tmp_path, 1) == ["commit", "destroy"])
    lines = [line.partition(" ")[2] for line in journal(tmp_path)]
    assert lines.index("commit") > max(place for place, line in enumerate(lines) if line == "receive")
    assert sorted("".join((tmp_path / name).read_text() for name in "01").split()) == ["0", "1", "2", "3"]


def test_nothing_is_published_when_another_branch_fails_later(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    p = pipeline(publishing(tmp_path).build())
    parallel_branch(p, once_received(tmp_path, fail))
    with pytest.raises(JobFailedError, match="the other branch"):
        jet.new_job(p).run(60)
    eventually(lambda: ends(tmp_path) == ["abort", "destroy"])
    assert published(tmp_path) == []


def test_nothing_is_published_when_the_job_is_cancelled(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    p = pipeline(publishing(tmp_path, 2).build())
    parallel_branch(p, lambda *_: threading.Event().wait(0.01))
    execution = jet.new_job(p).execute()
    eventually(lambda: sum(line.endswith("receive") for line in journal(tmp_path)) == 4)
    execution.cancel()
    eventually(lambda: ends(tmp_path, 0) == ends(tmp_path, 1) == ["abort", "destroy"])
    assert published(tmp_path) == []


def test_an_error_of_the_sink_itself_aborts(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    def refuse(publisher: Publisher, item: int) -> None:
        raise ValueError(f"not {item}")

    with pytest.raises(JobFailedError, match="not 0"):
        jet.new_job(pipeline(publishing(tmp_path).receive_fn(refuse).build())).run(60)
    eventually(lambda: ends(tmp_path) == ["abort", "destroy"])


def test_an_error_of_commit_fails_the_job_and_aborts_what_is_not_committed(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    def refuse(publisher: Publisher) -> None:
        publisher.note("commit")
        if publisher.index == 1:
            raise OSError(28, "no room", "/there")

    with pytest.raises(JobFailedError, match="no room") as failed:
        jet.new_job(pipeline(publishing(tmp_path, 2).commit_fn(refuse).build())).run(60)
    assert (failed.value.vertex, failed.value.processor_index) == ("publisher", 1)
    eventually(lambda: ends(tmp_path, 1) == ["commit", "abort", "destroy"])
    eventually(lambda: ends(tmp_path, 0)[-1:] == ["destroy"])


def test_what_abort_and_destroy_raise_is_logged(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(publisher: Publisher) -> None:
        raise ValueError("abort refuses")

    p = pipeline(publishing(tmp_path).abort_fn(refuse).build())
    parallel_branch(p, once_received(tmp_path, fail))
    with caplog.at_level(logging.WARNING), pytest.raises(JobFailedError, match="the other branch"):
        jet.new_job(p).run(60)
    eventually(lambda: ends(tmp_path) == ["destroy"])


@pytest.mark.parametrize("which", ["its own process", "a worker"])
def test_nothing_is_published_when_a_process_is_killed(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any, which: str
) -> None:
    p = pipeline(publishing(tmp_path, 2).build())
    parallel_branch(p, lambda *_: threading.Event().wait(0.01))
    execution = jet.new_job(p).execute()
    eventually(lambda: sum(line.endswith("receive") for line in journal(tmp_path)) == 4)
    os.kill(pid_of(tmp_path) if which == "its own process" else jet.cluster.members[0].workers[0], signal.SIGKILL)
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        execution.result(60)
    eventually(lambda: ends(tmp_path, 1) == ["abort", "destroy"])
    eventually(lambda: ends(tmp_path, 0) == ([] if which == "its own process" else ["abort", "destroy"]))
    assert published(tmp_path) == []
    eventually(lambda: len(jet.cluster.members[0].workers) == 2)


def test_a_process_that_dies_while_it_commits_fails_the_job(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    def die(publisher: Publisher) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerLostError, match="SIGKILL"):
        jet.new_job(pipeline(publishing(tmp_path).commit_fn(die).build())).run(60)
    jet.new_job(pipeline(publishing(tmp_path).build())).run(60)
    assert published(tmp_path) == ["0"]


@pytest.mark.parametrize("end", ["shut down", "killed"])
def test_nothing_is_published_when_the_instance_ends(tmp_path: Path, eventually: Any, end: str) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        p = pipeline(publishing(tmp_path).build())
        parallel_branch(p, lambda *_: threading.Event().wait(0.01))
        jet.new_job(p).execute()
        eventually(lambda: sum(line.endswith("receive") for line in journal(tmp_path)) == 4)
        if end == "killed":
            os.kill(jet.cluster.members[0].pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(pid_of(tmp_path)))
    told = ["abort", "destroy"]
    assert ends(tmp_path) in ([told] if end == "shut down" else SAID_BY_AN_ORPHAN)
    assert published(tmp_path) == []


def test_a_sink_that_only_aborts_is_not_asked_to_commit(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    only = sinks.builder("only", lambda context: Publisher(tmp_path, context)).receive_fn(Publisher.receive)
    jet.new_job(pipeline(only.abort_fn(Publisher.abort).destroy_fn(Publisher.destroy).build())).run(60)
    eventually(lambda: ends(tmp_path) == ["destroy"])


def test_a_wrapped_sink_commits_too(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    dag = shmjet.DAG()
    source = dag.new_vertex("source", processors.read_items(range(4)), 1)
    sink = dag.new_vertex("sink", processors.peek_input(publishing(tmp_path).build().supplier))
    jet.new_job(dag.edge(shmjet.between(source, sink))).run(60)
    assert published(tmp_path) == ["0"]


def test_spark_refuses_it(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(PlanError, match="publisher: a sink with commit_fn or abort_fn"):
        pipeline(publishing(tmp_path).build()).explain(target="spark")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[shmjet.JetInstance, shmjet.JetInstance]]:
    """Two members with a worker each; the first coordinates."""
    settings: dict[str, Any] = {"cores": 1, "bind": "127.0.0.1:0", "secret": "a secret of these tests"}
    with shmjet.new_instance(JetConfig(**settings)) as first:
        address = first.cluster.members[0].address
        with shmjet.new_instance(JetConfig(**settings, members=[address])) as second:
            yield first, second


def test_all_members_publish(pair: Any, tmp_path: Path, eventually: Any) -> None:
    pair[1].new_job(pipeline(publishing(tmp_path).build())).run(60)
    assert published(tmp_path) == ["0", "1"]
    eventually(lambda: ends(tmp_path, 0) == ends(tmp_path, 1) == ["commit", "destroy"])


def test_an_error_of_commit_on_another_member_fails_the_job(pair: Any, tmp_path: Path, eventually: Any) -> None:
    def refuse(publisher: Publisher) -> None:
        publisher.note("commit")
        if publisher.index == 1:
            raise OSError(28, "no room", "/there")

    with pytest.raises(JobFailedError, match="no room") as failed:
        pair[0].new_job(pipeline(publishing(tmp_path).commit_fn(refuse).build())).run(60)
    assert (failed.value.vertex, failed.value.processor_index) == ("publisher", 1)
    eventually(lambda: ends(tmp_path, 1) == ["commit", "abort", "destroy"])
    eventually(lambda: ends(tmp_path, 0)[-1:] == ["destroy"])


def test_no_member_publishes_when_one_fails(pair: Any, tmp_path: Path, eventually: Any) -> None:
    p = pipeline(publishing(tmp_path).build())
    parallel_branch(p, once_received(tmp_path, fail))
    with pytest.raises(JobFailedError, match="the other branch"):
        pair[0].new_job(p).run(60)
    eventually(lambda: ends(tmp_path, 0) == ends(tmp_path, 1) == ["abort", "destroy"])
    assert published(tmp_path) == []


def test_no_member_publishes_when_one_is_killed(tmp_path: Path, eventually: Any) -> None:
    settings: dict[str, Any] = {"cores": 1, "bind": "127.0.0.1:0", "secret": "a secret of these tests"}
    with shmjet.new_instance(JetConfig(**settings)) as first:
        address = first.cluster.members[0].address
        second = shmjet.new_instance(JetConfig(**settings, members=[address]))
        p = pipeline(publishing(tmp_path).build())
        parallel_branch(p, lambda *_: threading.Event().wait(0.01))
        execution = first.new_job(p, JobConfig(auto_scaling=False)).execute()
        eventually(lambda: sum(line.endswith("receive") for line in journal(tmp_path)) == 4)
        eventually(lambda: sum(" pid " in line for line in journal(tmp_path)) == 2)
        os.kill(second.cluster.members[1].pid, signal.SIGKILL)
        with pytest.raises(MemberLostError):
            execution.result(60)
        eventually(lambda: ends(tmp_path, 0) == ["abort", "destroy"])
        eventually(lambda: not psutil.pid_exists(pid_of(tmp_path, 1)))
        assert ends(tmp_path, 1) in SAID_BY_AN_ORPHAN
        assert published(tmp_path) == []
        second.shutdown()
