"""Processes that are stopped (SIGSTOP): what waits for them waits for so long, and says for what."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import psutil
import pytest

import shmjet
from shmjet import DAG, JetConfig, JetInstance, JobStatus, MemberLostError, Processor, WorkerLostError
from shmjet.cluster import connection, server_silence
from shmjet.cluster.protocol import Ping
from shmjet.cluster.server_silence import ServerSilence

PATIENCE_S = 60.0


class Endless(Processor):
    """Runs until it is cancelled."""

    def complete(self) -> bool:
        return False


class Leaving(Processor):
    """Leaves a file, and ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def complete(self) -> bool:
        self.path.touch()
        return True


def dag_of(make: Callable[[], Processor], parallelism: int = 1) -> DAG:
    dag = DAG()
    dag.new_vertex("only", make, parallelism)
    return dag


@pytest.fixture
def own() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


def test_run_does_not_outlast_its_timeout_when_the_member_is_stopped(
    own: JetInstance, eventually: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_STEP_S", 0.05)
    monkeypatch.setattr(connection, "_SIGN_S", 0.05)
    monkeypatch.setattr(connection, "WARN_SILENCE_S", 0.1)
    monkeypatch.setattr(connection, "MOST_SILENCE_S", 0.5)
    (member,) = own.cluster.members
    job = own.new_job(dag_of(Endless))
    os.kill(member.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError, match=rf"within 0.2 s: it is stopped \(SIGSTOP\); `kill -CONT {member.pid}`"):
            job.run(0.2)
        with pytest.raises(MemberLostError, match=r"has not answered for .* it is stopped"):
            own.jobs()
    finally:
        os.kill(member.pid, signal.SIGCONT)
    monkeypatch.setattr(connection, "MOST_SILENCE_S", PATIENCE_S)
    eventually(lambda: [job.status for job in own.jobs()] == [JobStatus.FAILED])  # it was begun then, and cancelled
    assert {r.levelname for r in caplog.records if "has not answered for" in r.getMessage()} == {"WARNING"}


def test_a_member_that_is_busy_is_waited_for(own: JetInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    pings: list[object] = []
    answer: Future[str] = Future()
    post = own._connection.post

    def posted(make: Callable[[int], object]) -> Future[object]:
        pings.append(make)
        if len(pings) == 3:
            answer.set_result("late")
        return post(make)

    for name, value in (("_STEP_S", 0.02), ("_SIGN_S", 0.02), ("MOST_SILENCE_S", PATIENCE_S)):
        monkeypatch.setattr(connection, name, value)
    monkeypatch.setattr(own._connection, "post", posted)
    assert own._connection._await(answer, None, None) == "late"
    assert pings == [Ping] * 3


def test_a_worker_lost_while_the_fork_server_is_stopped_fails_its_job(
    own: JetInstance, eventually: Callable[..., None], tmp_path: Path
) -> None:
    own.new_job(dag_of(lambda: Leaving(tmp_path / "first"))).run(PATIENCE_S)
    (member,) = own.cluster.members
    server = psutil.Process(member.workers[0]).ppid()
    execution = own.new_job(dag_of(Endless, 2)).execute()
    eventually(lambda: execution.status is JobStatus.RUNNING)
    os.kill(server, signal.SIGSTOP)
    try:
        os.kill(member.workers[0], signal.SIGKILL)
        with pytest.raises(WorkerLostError, match=rf"its fork server \(pid {server}\) is stopped") as lost:
            execution.result(PATIENCE_S)
        assert (lost.value.pid, lost.value.signal) == (member.workers[0], None)
        assert own.cluster.members[0].workers == (member.workers[1],)
    finally:
        os.kill(server, signal.SIGCONT)
    own.new_job(dag_of(lambda: Leaving(tmp_path / "second"), 2)).run(PATIENCE_S)
    assert (tmp_path / "second").exists()


def test_an_instance_ends_with_its_fork_server_stopped(own: JetInstance) -> None:
    (member,) = own.cluster.members
    os.kill(psutil.Process(member.workers[0]).ppid(), signal.SIGSTOP)
    own.shutdown()
    assert not psutil.pid_exists(member.pid)


def test_forks_are_waited_for_so_long(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(server_silence, "_STEP_S", 0.01)
    monkeypatch.setattr(server_silence, "WARN_S", 0.02)
    monkeypatch.setattr(server_silence, "STOPPED_S", 0.05)
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    server.send_signal(signal.SIGSTOP)
    reasons: list[str] = []

    async def wait() -> None:
        silence = ServerSilence(server.pid, lambda: 1, reasons.append)
        silence.watch()
        while not reasons:
            await asyncio.sleep(0.01)
        assert silence.is_long
        silence.reset()
        assert not silence.is_long
        silence.end()

    with caplog.at_level(logging.WARNING):
        asyncio.run(wait())
    server.kill()
    server.communicate()
    assert f"the fork server (pid {server.pid}) of its member is stopped (SIGSTOP), for " in reasons[0]
    texts = [record.getMessage() for record in caplog.records]
    assert texts == [
        f"the fork server (pid {server.pid}) is stopped (SIGSTOP): no process can be started",
        f"the fork server (pid {server.pid}) answers again",
    ]


def test_a_pause_of_everything_is_no_silence(own: JetInstance, tmp_path: Path) -> None:
    (member,) = own.cluster.members
    family = [psutil.Process(member.pid), *psutil.Process(member.pid).children(recursive=True)]
    execution = own.new_job(dag_of(Endless, 2)).execute()
    for process in family:
        process.suspend()
    for process in reversed(family):
        process.resume()
    assert execution.cancel()
    own.new_job(dag_of(lambda: Leaving(tmp_path / "after"))).run(PATIENCE_S)
    assert own.cluster.members[0].workers == member.workers
