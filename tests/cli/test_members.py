"""`shmjet jobs`, `cluster`, `cancel`, `top` and `dump` for an instance with a job that stands still."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest

import shmjet as package
from shmjet import Execution, JetConfig, JetInstance, JobConfig
from shmjet.cli.completion import running_jobs
from shmjet.cli.main import run
from shmjet.cli.outcome import CommandError
from shmjet.cluster.monitor import local
from shmjet.cluster.monitor.dump import without_secrets
from shmjet.host import stacks
from tests.cluster.held import held_dag

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with package.new_instance(JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture(autouse=True)
def _only_this_instance(jet: JetInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave other members of this user alone: they may be of another test run, and busy."""
    monkeypatch.setattr(local, "running_folders", lambda: [jet.folder])


@pytest.fixture
def held(jet: JetInstance, tmp_path: Path, eventually: Eventually) -> Iterator[Execution]:
    """A job named `held [x]` whose only edge is full."""
    execution = jet.new_job(held_dag(tmp_path / "gate"), JobConfig(name="held [x]")).execute()

    def is_full() -> bool:
        edges = execution.metrics().edges
        return bool(edges) and edges[0].waited_ns > 0

    eventually(is_full)
    yield execution
    (tmp_path / "gate").unlink(missing_ok=True)
    if not execution.cancelled():
        execution.result(60)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`said("jobs", "--json")` runs a command in this process and returns what it printed."""

    def call(*arguments: object) -> str:
        capsys.readouterr()
        assert run([str(argument) for argument in arguments]) == 0
        return capsys.readouterr().out

    return call


def mine(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of this process' member: others of this user may be running too."""
    (row,) = [row for row in rows if row["client_pid"] == os.getpid()]
    return row


def test_names_of_running_jobs_are_completed(jet: JetInstance, held: Execution) -> None:
    assert "held [x]" in running_jobs("he")
    assert running_jobs("no job is called so") == []


def test_jobs_lists_what_runs_and_with_all_what_has_ended(
    jet: JetInstance, held: Execution, said: Callable[..., str]
) -> None:
    pid = jet.cluster.members[0].pid
    rows = [row for row in json.loads(said("jobs", "--json")) if row["member_pid"] == pid]
    assert [(row["name"], row["status"]) for row in rows] == [("held [x]", "running")]
    lines = said("jobs").splitlines()
    assert lines[0].split() == ["id", "name", "status", "time", "member", "error"]
    assert any("held [x]" in line and "running" in line for line in lines)
    held.cancel()
    with pytest.raises(CancelledError):
        held.result(60)
    assert "held [x]" not in said("jobs")
    rows = [row for row in json.loads(said("jobs", "-a", "--json")) if row["member_pid"] == pid]
    assert rows[-1]["status"] == "cancelled"


def test_cluster_lists_members(jet: JetInstance, held: Execution, said: Callable[..., str]) -> None:
    row = mine(json.loads(said("cluster", "--json")))
    assert row["pid"] == jet.cluster.members[0].pid
    assert (len(row["workers"]), row["running_jobs"], row["cluster"]) == (2, 1, "dev")
    assert str(row["pid"]) in said("cluster")


def test_cancel_by_name_ends_a_job(held: Execution, said: Callable[..., str]) -> None:
    assert "is being cancelled" in said("cancel", "held [x]")
    with pytest.raises(CancelledError):
        held.result(60)


def test_cancel_tells_a_program_what_it_did(held: Execution, said: Callable[..., str]) -> None:
    told = json.loads(said("cancel", "held [x]", "--json"))
    assert (told["name"], told["status"], len(told["id"])) == ("held [x]", "cancelling", 16)
    with pytest.raises(CancelledError):
        held.result(60)


def test_cancel_of_nothing_says_so_in_a_line(held: Execution) -> None:
    with pytest.raises(CommandError, match=r"no running job is called 'nonsense'.*`shmjet jobs`"):
        run(["cancel", "nonsense"])
    with pytest.raises(CommandError, match="no running job"):
        run(["cancel", ""])


def test_top_shows_the_full_edge_once_where_nobody_looks(held: Execution, said: Callable[..., str]) -> None:
    text = said("top", "--pid", os.getpid())
    assert "held [x]" in text
    assert "full: source → sink" in text
    assert "started by" in text


def test_top_as_json_has_workers_and_flows(jet: JetInstance, held: Execution, said: Callable[..., str]) -> None:
    (member,) = json.loads(said("top", "--json", "--pid", os.getpid()))
    assert [worker["pid"] for worker in member["workers"]] == list(jet.cluster.members[0].workers)
    assert all(worker["rss"] > 1 << 20 and 0 <= worker["busy"] <= 1 for worker in member["workers"])
    (job,) = member["jobs"]
    assert (job["name"], job["bottleneck"]) == ("held [x]", "source → sink")
    assert job["edges"][0]["waiting"] > 0.5
    assert job["vertices"][0]["work"]["total"] == 1_000_000


def test_a_pid_that_is_no_member_is_wrong_usage(jet: JetInstance) -> None:
    with pytest.raises(CommandError, match=f"no member of yours has the pid {os.getppid()}; running members: "):
        run(["top", "--pid", str(os.getppid())])


def test_dump_has_all_that_a_report_needs(held: Execution, jet: JetInstance, said: Callable[..., str]) -> None:
    report = json.loads(said("dump", "--json", "--pid", os.getpid()))
    assert report["versions"]["shmjet"] == package.__version__
    assert {fact["name"] for fact in report["machine"]} >= {"cores", "/dev/shm", "cpu quota"}
    (member,) = report["members"]
    assert member["settings"]["cores"] == [0, 1] or len(member["settings"]["cores"]) == 2
    execution = member["executions"][-1]
    assert (execution["job_name"], execution["status"]) == ("held [x]", "running")
    assert {vertex["name"] for vertex in execution["plan"]["vertices"]} == {"source", "sink"}
    assert execution["vertices"]["sink"]["processors"][0]["state"] == "process_inbox"
    assert execution["edges"][0]["waited_ns"] > 0
    assert all(ring["bytes"] <= ring["capacity"] for ring in execution["rings"])
    by_name = {process["name"]: process for process in member["processes"]}
    assert {"member", "worker 0", "worker 1"} <= set(by_name)
    for name in ("member", "worker 0", "worker 1"):
        assert "File " in by_name[name]["stacks"] or by_name[name]["stacks_by"] == "py-spy"
        assert by_name[name]["rss"] > 1 << 20
    assert len(member["workers"]) == 2
    assert all(worker["heartbeat_age_s"] < 60 for worker in member["workers"])
    assert all(pid in jet.cluster.members[0].workers for pid in (worker["pid"] for worker in member["workers"]))


def test_dump_for_people_goes_into_a_file(held: Execution, said: Callable[..., str], tmp_path: Path) -> None:
    assert said("dump", "-o", tmp_path / "report.txt", "--pid", os.getpid()) == f"wrote {tmp_path / 'report.txt'}\n"
    text = (tmp_path / "report.txt").read_text()
    for part in ("versions", "machine", "job_name held [x]", "vertex 'sink'", "edge source source", "plan: 2 workers"):
        assert part in text


def test_the_jobs_go_on_after_they_were_looked_at(jet: JetInstance, held: Execution, said: Callable[..., str]) -> None:
    before = jet.cluster.members[0].workers
    said("dump", "--pid", os.getpid())
    assert jet.cluster.members[0].workers == before
    assert held.running()


# -- stacks and secrets -----------------------------------------------------------------------------------------------


def test_py_spy_is_preferred_where_it_may_look(
    jet: JetInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    program = tmp_path / "py-spy"
    program.write_text('#!/bin/sh\necho "looked at $4 with $1"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    pid = jet.cluster.members[0].workers[0]
    assert stacks.stacks_of(pid, jet.folder) == ("py-spy", f"looked at {pid} with dump")
    program.write_text("#!/bin/sh\necho 'Permission denied' >&2; exit 1\n")
    assert stacks.stacks_of(pid, jet.folder)[0] == "faulthandler"
    eventually(lambda: "in wait_for_work" in stacks.stacks_of(pid, jet.folder)[1])  # it may still be starting


def test_a_process_that_does_not_answer_the_signal_is_not_sent_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "py_spy", lambda: None)
    assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    source, text = stacks.stacks_of(os.getpid(), tmp_path)
    assert source == "none"
    assert "does not answer" in text


def test_secrets_are_crossed_out() -> None:
    found = without_secrets({"secret": "abc", "SHMJET_TOKEN": "x", "cores": 2, "tls_key": None})
    assert found == {"secret": "***", "SHMJET_TOKEN": "***", "cores": 2, "tls_key": None}
