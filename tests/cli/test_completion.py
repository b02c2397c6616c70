"""The shells' completion: the script, and what `shmjet` answers to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shmjet.cli.completion import SHELLS
from shmjet.cli.main import run
from shmjet.cli.outcome import CommandError


def test_there_is_a_script_for_each_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert run(["completion", shell]) == 0
        assert "_SHMJET_COMPLETE" in capsys.readouterr().out


def test_the_shell_is_the_one_that_one_has(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run(["completion"]) == 0
    assert "--command shmjet" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/ed")
    with pytest.raises(CommandError, match="no completion for 'ed'; say one of bash, zsh, fish"):
        run(["completion"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "found"),
    [("shmjet wordc", "wordcount"), ("shmjet top --js", "--json"), ("shmjet completion z", "zsh")],
)
def test_bash_completes(environment: dict[str, str], tmp_path: Path, line: str, found: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "shmjet"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shmjet "$@"\n')
    program.chmod(0o755)
    words = line.split(" ")
    script = (
        'eval "$(shmjet completion bash)"\n'
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        '_shmjet_completion shmjet; echo "${COMPREPLY[@]}"\n'
    )
    given = {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run([bash, "-c", script], env=given, capture_output=True, text=True, timeout=60, check=True)
    assert found in answer.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "script"),
    [
        ("fish", 'shmjet completion fish | source; complete -C "shmjet wordc"'),
        (
            "zsh",
            'autoload -U compinit; compinit -D -u; eval "$(shmjet completion zsh)"; test -n "$_comps[shmjet]" && '
            'env _SHMJET_COMPLETE=zsh_complete COMP_WORDS="shmjet wordc" COMP_CWORD=1 shmjet',
        ),
    ],
)
def test_fish_and_zsh_complete(environment: dict[str, str], tmp_path: Path, shell: str, script: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell}")
    shmjet = tmp_path / "shmjet"
    shmjet.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m shmjet "$@"\n')
    shmjet.chmod(0o755)
    given = {**environment, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    options = ["-f"] if shell == "zsh" else []
    answer = subprocess.run(
        [program, *options, "-c", script], env=given, capture_output=True, text=True, timeout=60, check=True
    )
    assert "wordcount" in answer.stdout
