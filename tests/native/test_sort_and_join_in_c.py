"""Compiles and runs the tests of the kernels for sorting and joining that are written in C, also under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
PROGRAMS = ["test_sort", "test_join"]
SANITIZER = "-fsanitize=address,undefined"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


def run(folder: Path, name: str, *options: str) -> tuple[int, str, str]:
    program = folder / name
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / f"{name}.c"), "-lm"], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_do_what_their_plain_counterparts_do(tmp_path: Path, name: str) -> None:
    assert run(tmp_path, name, "-O3") == (0, "ok\n", "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_kernels_are_clean_under_sanitizers(tmp_path: Path, name: str) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    command = [str(COMPILER), SANITIZER, "-o", str(tmp_path / "probe"), str(probe)]
    if subprocess.run(command, capture_output=True).returncode or subprocess.run([tmp_path / "probe"]).returncode:
        pytest.skip("no address sanitizer on this machine")
    assert run(tmp_path, name, "-O1", "-g", SANITIZER, "-fno-sanitize-recover=all") == (0, "ok\n", "")
