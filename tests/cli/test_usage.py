"""What every command has in common: help, version, wrong usage."""

from __future__ import annotations

import subprocess
import sys

import pytest

import shmjet as package
from shmjet.cli.main import run
from shmjet.cli.outcome import guarded
from tests.cli.conftest import Shmjet


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shmjet:
    """Runs the command line in this process, which is enough where nothing is started."""
    for name, value in (("COLUMNS", "100"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)

    def run_here(*arguments: object, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        status = int(guarded(lambda: run(list(map(str, arguments)))))
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, status, said.out, said.err)

    return run_here


def test_version_is_one_line(shmjet: Shmjet) -> None:
    answer = shmjet("--version")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"shmjet {package.__version__}\n", "")


@pytest.mark.parametrize("command", ["wordcount", "run", "dag", "doctor", "console"])
def test_every_command_explains_itself(here: Shmjet, command: str) -> None:
    answer = here(command, "--help")
    assert answer.returncode == 0
    assert f"shmjet {command}" in answer.stdout


def test_help_names_the_commands_and_the_exit_statuses(here: Shmjet) -> None:
    answer = here("--help")
    assert answer.returncode == 0
    for word in ("wordcount", "run", "dag", "doctor", "130 interrupted"):
        assert word in answer.stdout


def test_version_and_help_import_neither_numpy_nor_the_engine(environment: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from shmjet.cli.main import run\n"
        "run(['--version']); run(['wordcount', '--help'])\n"
        "heavy = {'numpy', 'psutil', 'lmdb', 'cloudpickle', 'shmjet.core', 'shmjet.cluster', 'asyncio'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert "heavy: []" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["frobnicate"], "frobnicate"),
        (["wordcount"], "PATH"),
        (["wordcount", "--top", "many", "."], "--top"),
        (["wordcount", "--cores", "0", "."], "--cores"),
        (["run"], "SCRIPT"),
        (["doctor", "--nonsense"], "--nonsense"),
        (["console", "--port", "99999"], "--port"),
    ],
)
def test_wrong_usage_is_status_2_and_names_what_is_wrong(here: Shmjet, arguments: list[str], named: str) -> None:
    answer = here(*arguments)
    assert answer.returncode == 2
    assert named in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stderr.startswith("shmjet: ")
    assert "--help`" in answer.stderr
