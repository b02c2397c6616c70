"""`shmjet member`, and the commands that talk to a running cluster."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import until

pytestmark = pytest.mark.slow

SECRET = "a secret of these tests"
SCRIPT = """
    import shmjet
    from shmjet import DAG, JobConfig, Processor, between, processors

    class Forever(Processor):
        def complete(self):
            return False

    with shmjet.new_instance() as jet:
        dag = DAG()
        source = dag.new_vertex("items", processors.read_items(range(10)))
        dag.edge(between(source, dag.new_vertex("sink", processors.write_list("out"))))
        jet.new_job(dag, JobConfig(name="short")).run()
        print(sorted(jet.get_list("out")))
        dag = DAG()
        dag.new_vertex("forever", Forever)
        jet.new_job(dag, JobConfig(name="long")).execute()
"""


def shmjet(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shmjet", *words],
        env={**os.environ, "SHMJET_SECRET": SECRET, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A member of its own, which is asked to leave at the end."""
    folder = tmp_path_factory.mktemp("member")
    (folder / "secret").write_text(SECRET + "\n")
    (folder / "secret").chmod(0o600)
    (folder / "member.toml").write_text(f'cores = 1\nbind = "127.0.0.1:0"\nsecret = "file:{folder}/secret"\n')
    process = subprocess.Popen(
        [sys.executable, "-m", "shmjet", "member", "--config", str(folder / "member.toml")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        while not (found := re.search(r"is reached at (\S+);", "".join(said))):
            line = process.stdout.readline()
            assert line, f"the member ended: {said}"
            said.append(line)
        yield found.group(1)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        process.stdout.close()


def test_a_member_that_is_stopped_while_it_opens_its_port_ends_in_good_order() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "shmjet", "member", "--bind", "127.0.0.1:0", "--cores", "1"],
        env={**os.environ, "SHMJET_SECRET": SECRET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def has_link() -> bool:
        return any("shmjet: link" in " ".join(child.cmdline()) for child in psutil.Process(process.pid).children(True))

    with contextlib.suppress(psutil.NoSuchProcess):
        until(has_link)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def test_a_cluster_shows_its_members(address: str) -> None:
    shown = json.loads(shmjet("cluster", "--address", address, "--json").stdout)
    assert [(row["address"], row["is_coordinator"]) for row in shown] == [(address, True)]
    assert len(shown[0]["workers"]) == 1
    assert address in shmjet("cluster", SHMJET_ADDRESS=address).stdout


def test_a_script_is_submitted_and_its_jobs_are_listed_and_cancelled(address: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = shmjet("submit", "--address", address, str(script))
    assert (done.returncode, done.stdout.strip()) == (0, str(list(range(10)))), done.stderr
    listed = json.loads(shmjet("jobs", "--address", address, "--json").stdout)
    assert [(row["name"], row["status"]) for row in listed] == [("long", "running")]
    cancelled = shmjet("cancel", "--address", address, "long", "--json")
    assert cancelled.returncode == 0, cancelled.stderr
    assert json.loads(cancelled.stdout)["status"] == "cancelled"
    everything = json.loads(shmjet("jobs", "-a", "--address", address, "--json").stdout)
    assert {row["name"]: row["status"] for row in everything} == {"short": "completed", "long": "failed"}
    again = shmjet("cancel", "--address", address, "unknown")
    assert again.returncode == 1
    assert "no job 'unknown'" in again.stderr


def test_what_cannot_be_reached_is_said_in_a_line(address: str) -> None:
    wrong = shmjet("jobs", "--address", address, SHMJET_SECRET="wrong")
    assert wrong.returncode == 1
    assert "secret" in wrong.stderr
    unreachable = shmjet("jobs", "--address", "127.0.0.1:1")
    assert unreachable.returncode == 1
    assert "no member can be reached" in unreachable.stderr
    assert len(unreachable.stderr.splitlines()) == 1


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "member.toml"
    config.write_text('bind = "127.0.0.1:0"\nsecret = "hunter2hunter2"\n')
    config.chmod(0o644)
    done = shmjet("member", "--config", str(config))
    assert done.returncode == 2
    assert "chmod 600" in done.stderr
    assert "hunter2" not in done.stderr


def test_no_secret_is_in_the_list_of_processes(address: str) -> None:
    secrets = [path for path in Path("/proc").glob("[0-9]*/cmdline") if SECRET.encode() in _read(path)]
    assert secrets == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
