"""User code that forks harms neither its job nor the instance, in workers and in the user's process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import psutil
import pytest

import shmjet
from shmjet import DAG, JetConfig, JetInstance, ShmjetError, WorkerLostError

SLACK = Path("/proc/self/timerslack_ns")


def test_a_copy_of_a_worker_that_user_code_forks_cannot_go_on_as_a_second_one(
    jet: JetInstance, mapping: Callable[..., DAG], out: str
) -> None:
    def forked(x: int) -> int:
        os.fork()
        return x

    jet.new_job(mapping(forked, range(2), 1)).run(60)
    assert sorted(jet.get_list(out)) == [0, 1]
    jet.new_job(mapping(lambda x: x)).run(60)
    assert len(jet.get_list(out)) == 102


def test_what_user_code_has_started_and_left_goes_with_its_worker(
    jet: JetInstance, mapping: Callable[..., DAG], out: str, eventually: Callable[..., None]
) -> None:
    def leave(x: int) -> int:
        return subprocess.Popen(["sleep", "1000"]).pid

    jet.new_job(mapping(leave, range(1), 1)).run(60)
    (left,) = jet.get_list(out)
    os.kill(psutil.Process(left).ppid(), signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE)


@pytest.mark.skipif(not SLACK.exists(), reason="the kernel does not show the slack of timers")
def test_timers_of_workers_run_out_in_time(jet: JetInstance, mapping: Callable[..., DAG], out: str) -> None:
    slack = str(SLACK)
    jet.new_job(mapping(lambda x: Path(slack).read_text(), range(1), 1)).run(60)
    assert [int(text) for text in jet.get_list(out)] == [1_000]


def test_a_forked_child_is_told_that_the_instance_is_its_parents(jet: JetInstance, mapping: Callable[..., DAG]) -> None:
    job = jet.new_job(mapping(lambda x: x))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            job.execute()
        except ShmjetError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    text = os.read(reader, 1000).decode()
    os.close(reader)
    os.waitpid(pid, 0)
    assert text.startswith(f"this instance belongs to process {os.getpid()}, from which this one ({pid}) was forked")
    job.run(60)


def test_a_new_instance_tells_the_pids_of_all_its_workers_at_once() -> None:
    with shmjet.new_instance(JetConfig(cores=4)) as jet:
        workers = jet.cluster.members[0].workers
        assert len(set(workers)) == 4
        assert all(psutil.pid_exists(pid) and pid > 0 for pid in workers)


def test_a_worker_that_is_killed_as_it_starts_is_replaced_and_its_jobs_fail(
    mapping: Callable[..., DAG], eventually: Callable[..., None]
) -> None:
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        victim = jet.cluster.members[0].workers[1]
        os.kill(victim, signal.SIGKILL)
        executions = [jet.new_job(mapping(lambda x: x)).execute() for _ in range(3)]
        for execution in executions:
            try:
                assert execution.exception(60) is None or isinstance(execution.exception(0), WorkerLostError)
            except CancelledError:
                pytest.fail("it was not cancelled by a caller")
        eventually(lambda: victim not in jet.cluster.members[0].workers)
        jet.new_job(mapping(lambda x: x)).run(60)
