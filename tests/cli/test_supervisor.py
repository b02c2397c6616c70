"""`shmjet member --supervise`: a member that dies is started again, and both end together."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmjet
from shmjet import ClientConfig, JetInstance, JobConfig, ProcessingGuarantee
from shmjet.cli.outcome import CommandError, Outcome
from shmjet.cli.supervisor import AT_ONCE_S, LONGEST_PAUSE_S, MOST_DEATHS, RestartPauses, Supervisor
from tests.cluster.counting import counting, exact

SECRET = "hush"
Eventually = Callable[[Callable[[], object]], None]


def test_pauses_grow_until_it_gives_up_and_begin_anew_after_a_long_life() -> None:
    pauses = RestartPauses()
    found = [pauses.after(0.1) for _ in range(MOST_DEATHS - 1)]
    assert found == [min(0.1 * 2**number, LONGEST_PAUSE_S) for number in range(MOST_DEATHS - 1)]
    assert pauses.after(AT_ONCE_S) == 0.1
    for _ in range(MOST_DEATHS - 2):
        assert pauses.after(0.0) is not None
    assert pauses.after(0.0) is None


def ending(status: int) -> Callable[[], subprocess.Popen[bytes]]:
    return lambda: subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({status})"])


@pytest.mark.parametrize("status", [Outcome.OK, Outcome.USAGE])
def test_what_ends_by_itself_is_not_started_again(status: int) -> None:
    said: list[str] = []
    assert Supervisor(ending(status), said.append).run() == status
    assert said == []


def test_what_dies_again_and_again_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.cli.supervisor.FIRST_PAUSE_S", 0.0)
    said: list[str] = []
    with pytest.raises(CommandError, match=r"has ended with status 3; it has died 10 times soon after its start"):
        Supervisor(ending(3), said.append).run()
    assert len(said) == MOST_DEATHS - 1


class Supervised:
    """A supervised member with a storage."""

    def __init__(self, folder: Path) -> None:
        config, self.log = folder / "member.toml", folder / "member.log"
        config.write_text(f'storage = "{folder / "storage"}"\ncores = 1\nsecret = "{SECRET}"\n')
        config.chmod(0o600)
        command = [sys.executable, "-m", "shmjet", "member", "--supervise", "--bind", "127.0.0.1:0"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, "--config", str(config)], stdout=log, stderr=log)

    def addresses(self) -> list[str]:
        """Return where the member was reached, of each of its lives."""
        return re.findall(r"is reached at (\S+);", self.log.read_text())


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Supervised]:
    found = Supervised(tmp_path)
    try:
        yield found
    finally:
        found.process.terminate()
        found.process.wait(60)


@pytest.mark.slow
def test_a_member_that_is_killed_comes_back_with_its_jobs_and_ends_with_its_supervisor(
    supervised: Supervised, tmp_path: Path, eventually: Eventually
) -> None:
    def client(life: int) -> JetInstance:
        eventually(lambda: len(supervised.addresses()) == life or supervised.process.poll() is not None)
        return shmjet.new_client([supervised.addresses()[-1]], ClientConfig(secret=SECRET))

    file, gate = tmp_path / "result.json", tmp_path / "gate"
    config = JobConfig(name="counting", processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE, snapshot_interval=0.02)
    with client(1) as jet:
        job = jet.new_job(counting(file, 200, gate=gate), config)
        job.execute()
        eventually(lambda: job.metrics().last_snapshot_id > 0)
        first = jet.cluster.members[0].pid
        os.kill(first, signal.SIGKILL)
    with client(2) as jet:
        found = jet.job(name="counting")
        assert found is not None
        assert found.execution is not None
        gate.touch()
        found.execution.result(60)
        second = jet.cluster.members[0].pid
    assert json.loads(file.read_text()) == exact(200)
    assert f"(pid {first}) was killed by SIGKILL; it is started again in 0.1 s" in supervised.log.read_text()
    supervised.process.terminate()
    assert supervised.process.wait(60) == 0
    assert not Path(f"/proc/{second}").exists()
