"""Running the command line as a user does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shmjet.cluster.monitor import base, local
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

Shmjet = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _members_may_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands that run in this process wait for members of a machine that is busy with other tests."""
    monkeypatch.setattr(base, "ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(local, "PATIENCE_S", PATIENCE_S)


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of a command: this one, with the tree under test on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.fixture
def shmjet(environment: dict[str, str], tmp_path: Path) -> Shmjet:
    """`shmjet("doctor", "--json")` runs the command line in a process of its own, in an empty folder."""

    def run(*arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "shmjet", *map(str, arguments)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


@contextmanager
def started(
    environment: dict[str, str], *arguments: object, stdout: int, stderr: int
) -> Iterator[subprocess.Popen[str]]:
    """A command that runs in a process group of its own, as a terminal would start it; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "shmjet", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        text=True,
        env=environment,
        start_new_session=True,
    ) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def press_ctrl_c(child: subprocess.Popen[str]) -> None:
    """Send what the terminal sends: SIGINT to the whole group."""
    os.killpg(child.pid, signal.SIGINT)
