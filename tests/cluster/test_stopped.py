"""Processes that are stopped (SIGSTOP): what waits for them waits for so long, and says for what."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

import shmjet
from shmjet import DAG, JetConfig, JetInstance, JobStatus, MemberLostError, Processor, WorkerLostError
from shmjet.cluster.client import connection
from shmjet.cluster.client.backend import LocalEndpoint
from shmjet.cluster.client.connection import Connection
from shmjet.cluster.processes import fork_server_silence
from shmjet.cluster.processes.fork_server_silence import SILENT_S, STOPPED_S, ServerSilence
from shmjet.cluster.processes.worker_silence import WorkerSilence
from shmjet.cluster.protocol import Ping
from shmjet.cluster.settings import SOCKET_NAME
from shmjet.execution import control
from tests.cluster.raw_client import connected
from tests.stopping import stop

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
    monkeypatch.setattr(connection, "STEP_S", 0.05)
    monkeypatch.setattr(connection, "SIGN_S", 0.05)
    monkeypatch.setattr(connection, "WARN_SILENCE_S", 0.1)
    monkeypatch.setattr(connection, "MOST_SILENCE_S", 0.5)
    (member,) = own.cluster.members
    job = own.new_job(dag_of(Endless))
    stop(member.pid)
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


class Silence:
    """Leads to a member that never says anything."""

    patience, gone, trouble = None, "it is gone", ": the cause is unknown"

    def connect(self) -> Any:
        ours, self.theirs = socket.socketpair()
        return ours, b"", lambda: None

    def connect_again(self, stopped: Callable[[], bool]) -> None:
        return None


class Clock:
    """Gives the time, which passes while a reply is waited for."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def reply(self) -> Future[str]:
        """Return a reply that never comes."""

        def result(timeout: float) -> str:
            self.now += timeout
            raise TimeoutError

        future: Any = Future()
        future.result = result
        return future  # type: ignore[no-any-return]


def test_a_member_that_says_nothing_is_given_up_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, endpoint = Clock(), Silence()
    asking = Connection(endpoint, lambda _: None, lambda: None, lambda: None)
    try:
        monkeypatch.setattr(connection, "time", clock)
        with pytest.raises(MemberLostError, match=r"^the member has not answered for 60 s: the cause is unknown$"):
            asking.wait_for(clock.reply(), None, None)
        assert clock.now == 1061  # counted from the first look on, after a second
        with pytest.raises(TimeoutError, match=r"within 7\.5 s: the cause is unknown$"):
            asking.wait_for(clock.reply(), 7.5, None)
        assert clock.now == 1068.5
    finally:
        asking.close()
        endpoint.theirs.close()
    assert [record.getMessage() for record in caplog.records] == [
        "the member has not answered for 5 s: the cause is unknown"
    ] * 2


def test_a_member_that_is_busy_is_waited_for(own: JetInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    pings: list[object] = []
    answer: Future[str] = Future()
    post = Connection.post

    def posted(asking: Connection, make: Callable[[int], object]) -> Future[object]:
        pings.append(make)
        if len(pings) == 3:
            answer.set_result("late")
        return post(asking, make)

    for name, value in (("STEP_S", 0.02), ("SIGN_S", 0.02), ("MOST_SILENCE_S", PATIENCE_S)):
        monkeypatch.setattr(connection, name, value)
    with connected(LocalEndpoint(own.folder / SOCKET_NAME, own.cluster.members[0].pid)) as asking:
        monkeypatch.setattr(Connection, "post", posted)
        assert asking.wait_for(answer, None, None) == "late"
    assert pings == [Ping] * 3


def test_a_worker_lost_while_the_fork_server_is_stopped_fails_its_job(
    own: JetInstance, eventually: Callable[..., None], tmp_path: Path
) -> None:
    own.new_job(dag_of(lambda: Leaving(tmp_path / "first"))).run(PATIENCE_S)
    (member,) = own.cluster.members
    server = psutil.Process(member.workers[0]).ppid()
    execution = own.new_job(dag_of(Endless, 2)).execute()
    eventually(lambda: execution.status is JobStatus.RUNNING)
    stop(server)
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
    stop(psutil.Process(member.workers[0]).ppid())
    own.shutdown()
    assert not psutil.pid_exists(member.pid)


def test_forks_are_waited_for_so_long(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(fork_server_silence, "STEP_S", 0.01)
    monkeypatch.setattr(fork_server_silence, "WARN_S", 0.02)
    monkeypatch.setattr(fork_server_silence, "STOPPED_S", 0.05)
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stop(server.pid)
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
        f"the fork server (pid {server.pid}) is up",
    ]


def test_a_fork_server_that_comes_up_late_is_not_said_to_be_silent(caplog: pytest.LogCaptureFixture) -> None:
    silence = ServerSilence(os.getpid(), lambda: 1, lambda reason: None)
    with caplog.at_level(logging.WARNING):
        for base in (1000.0, 2000.0):
            for step in range(8):
                silence.look(base + step / 2)
            silence.reset()
    first, up, second, again = (record.getMessage().partition(") ")[2] for record in caplog.records)
    assert first == "is not up after 2 s: it imports much, and the machine may be busy"
    assert (up, second, again) == ("is up", "does not answer: no process can be started", "answers again")


class Stopped:
    """A process that is stopped, and ends with the test."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        self.pid = self.process.pid
        stop(self.pid)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def stopped() -> Iterator[Stopped]:
    process = Stopped()
    yield process
    process.end()


def test_a_fork_server_that_runs_is_waited_for_longer_than_one_that_is_stopped(stopped: Stopped) -> None:
    for pid, bound, said in ((os.getpid(), SILENT_S, "does not answer"), (stopped.pid, STOPPED_S, "is stopped")):
        reasons: list[str] = []
        silence = ServerSilence(pid, lambda: 1, reasons.append)
        seconds = 0.0
        while not reasons:
            assert seconds <= bound
            assert not silence.is_long
            silence.look(1000 + seconds)
            seconds += 0.5
        assert seconds == bound + 0.5
        assert silence.is_long
        assert said in reasons[0]
        assert reasons[0].endswith(f"for {bound:.0f} s")


class Silent:
    """A process that shows no sign of life after the first."""

    lost = stopping = False

    def __init__(self, index: int, pid: int, running: int = 0, *, is_carrier: bool = False) -> None:
        self.index, self.pid, self.is_carrier = index, pid, is_carrier
        self.words = {control.HEARTBEAT_NS: 1, control.CURRENT_EXECUTION: running}
        self.block = self


def test_the_log_says_which_worker_has_not_answered_for_how_long(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    own = os.getpid()
    children: Any = [Silent(0, stopped.pid), Silent(1, own, 7), Silent(2, own, 7, is_carrier=True)]
    silence = WorkerSilence(lambda: children, lambda: True, {7: "'slow'"}.get)
    for second in range(60):
        silence.look(float(second))
    for child in children:
        child.words[control.HEARTBEAT_NS] = 2
    silence.look(60.0)
    silence.look(61.0)
    still = f"worker 0 (pid {stopped.pid}) is stopped (SIGSTOP), and has not answered for"
    wait = f"jobs that need it wait; `kill -CONT {stopped.pid}` lets it go on"
    assert [record.getMessage() for record in caplog.records] == [
        f"{still} 3 s: {wait}",
        f"{still} 30 s: {wait}",
        f"worker 1 (pid {own}) has not come back from code of job 'slow' for 30 s: all else that it has to do waits",
        f"worker 0 (pid {stopped.pid}) answers again, after 60 s",
        f"worker 1 (pid {own}) answers again, after 60 s",
    ]


def test_time_in_which_the_member_itself_was_away_does_not_count(
    stopped: Stopped, caplog: pytest.LogCaptureFixture
) -> None:
    child: Any = Silent(0, stopped.pid)
    silence = WorkerSilence(lambda: [child], lambda: True, lambda _: None)
    for second in (0.0, 1000.0):
        silence.look(second)
    assert caplog.records == []


def test_who_runs_a_job_hears_of_a_worker_that_is_stopped(
    own: JetInstance,
    eventually: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    (member,) = own.cluster.members
    stop(member.workers[1])
    try:
        execution = own.new_job(dag_of(lambda: Leaving(tmp_path / "there"), 2)).execute()
        eventually(lambda: f"worker 1 (pid {member.workers[1]}) is stopped (SIGSTOP)" in caplog.text)
        assert execution.status is JobStatus.STARTING
    finally:
        os.kill(member.workers[1], signal.SIGCONT)
    execution.result(PATIENCE_S)
    assert (tmp_path / "there").exists()


def test_a_pause_of_everything_is_no_silence(own: JetInstance, tmp_path: Path, eventually: Callable[..., None]) -> None:
    eventually(lambda: len(own.cluster.members[0].workers) == 2)  # they may start after the member
    (member,) = own.cluster.members
    family = [psutil.Process(member.pid), *psutil.Process(member.pid).children(recursive=True)]
    execution = own.new_job(dag_of(Endless, 2)).execute()
    # While a worker imports this module it cannot be stopped; on a busy machine that may take longer than it is given.
    eventually(lambda: execution.status is JobStatus.RUNNING)
    for process in family:
        process.suspend()
    for process in reversed(family):
        process.resume()
    assert execution.cancel()
    own.new_job(dag_of(lambda: Leaving(tmp_path / "after"))).run(PATIENCE_S)
    assert own.cluster.members[0].workers == member.workers
