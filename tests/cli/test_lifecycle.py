"""`shmjet suspend`, `resume`, `restart`, `save-snapshot` and `snapshots`, on this host and with an address."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

import shmjet as package
from shmjet import Execution, JetConfig, JetInstance, JobConfig, JobStatus, ShmjetError
from shmjet.cli.main import run
from shmjet.cli.outcome import CommandError
from shmjet.cluster.monitor import local
from tests.cluster.held import held_dag

SECRET = "a secret of these tests"


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with package.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET)) as instance:
        yield instance


@pytest.fixture(params=["here", "address"])
def where(jet: JetInstance, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is added to a command: nothing, or an address."""
    monkeypatch.setattr(local, "running_folders", lambda: [jet.folder])
    monkeypatch.setenv("SHMJET_SECRET", SECRET)
    return [] if request.param == "here" else ["--address", jet.cluster.members[0].address]


@pytest.fixture
def held(jet: JetInstance, tmp_path: Path) -> Iterator[Execution]:
    """A job named `clicks` that runs until it is cancelled."""
    execution = jet.new_job(held_dag(tmp_path / "gate"), JobConfig(name="clicks")).execute()
    yield execution
    execution.cancel()
    wait([execution], 30)


@pytest.fixture
def said(where: list[str], capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """`said("jobs", "--json")` runs a command in this process and returns what it printed."""

    def call(*arguments: str) -> str:
        capsys.readouterr()
        assert run([*arguments, *where]) == 0
        return capsys.readouterr().out

    return call


def test_a_job_is_suspended_resumed_and_restarted(
    held: Execution, said: Callable[..., str], eventually: Callable[[Callable[[], object]], None]
) -> None:
    assert said("suspend", "clicks") == "job clicks suspended\n"
    eventually(lambda: held.status is JobStatus.SUSPENDED)  # the command has a connection of its own
    (row,) = json.loads(said("jobs", "--json"))
    assert (row["status"], row["suspended_by"], row["attempts"]) == ("suspended", "user", 1)
    assert "suspended by a user" in said("jobs")
    assert json.loads(said("resume", "clicks", "--json"))["status"] == "running"
    told = json.loads(said("restart", row["id"][:9], "--json"))
    assert (told["name"], told["status"], told["attempts"]) == ("clicks", "running", 3)
    assert said("restart", "clicks", "--force") == "job clicks restarted\n"
    assert not held.done()


def test_what_does_not_fit_the_status_is_said_in_a_line(
    held: Execution, said: Callable[..., str], where: list[str]
) -> None:
    with pytest.raises(ShmjetError, match="only a suspended job can be resumed"):
        run(["resume", "clicks", *where])
    said("suspend", "clicks")
    for command in ("suspend", "restart"):
        with pytest.raises(ShmjetError, match="SUSPENDED"):
            run([command, "clicks", *where])
    with pytest.raises(CommandError, match="no running job is called 'nonsense'"):
        run(["suspend", "nonsense", *where])


def test_what_cannot_be_saved_is_said(held: Execution, said: Callable[..., str], where: list[str]) -> None:
    with pytest.raises(package.ConfigError, match="must not begin with a dot"):
        run(["save-snapshot", "clicks", "../before", *where])
    assert said("snapshots") == "there is no exported snapshot\n"
    assert json.loads(said("snapshots", "--json")) == []
    with pytest.raises(CommandError, match="there is no snapshot 'before'"):
        run(["snapshots", "--destroy", "before", *where])
