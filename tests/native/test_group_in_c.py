"""Compiles and runs the tests of `group.h` that are written in C, also under the address and undefined sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
SANITIZERS = "-fsanitize=address,undefined"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


def run(folder: Path, *options: str) -> tuple[int, str, str]:
    program = folder / "test_group"
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / "test_group.c")], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def test_groups_are_right(tmp_path: Path) -> None:
    assert run(tmp_path, "-O3") == (0, "ok\n", "")


def test_groups_are_clean_under_sanitizers(tmp_path: Path) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    built = subprocess.run([str(COMPILER), SANITIZERS, "-o", str(tmp_path / "probe"), str(probe)], capture_output=True)
    if built.returncode or subprocess.run([str(tmp_path / "probe")], capture_output=True).returncode:
        pytest.skip("no address and undefined sanitizers on this machine")
    assert run(tmp_path, "-O1", "-g", "-fno-sanitize-recover=all", SANITIZERS) == (0, "ok\n", "")
