"""Compiles and runs the tests of `ring.h` and `doorbell.h` that are written in C, also under the address sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


def run(folder: Path, *options: str, seconds: int = 0) -> subprocess.CompletedProcess[str]:
    program = folder / "test_ring"
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / "test_ring.c"), "-pthread"], check=True)
    return subprocess.run([str(program), str(seconds)], capture_output=True, text=True, timeout=120)


def test_the_ring_keeps_its_promises_between_threads(tmp_path: Path) -> None:
    done = run(tmp_path, "-O2", seconds=2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_ring_is_clean_under_sanitizers(tmp_path: Path, sanitizer: str) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(
        [str(COMPILER), f"-fsanitize={sanitizer}", "-o", str(tmp_path / "probe"), str(probe)], capture_output=True
    )
    if built.returncode or subprocess.run([str(tmp_path / "probe")], capture_output=True).returncode:
        pytest.skip(f"no {sanitizer} sanitizer on this machine")
    done = run(tmp_path, "-O1", "-g", "-Wno-tsan", f"-fsanitize={sanitizer}")
    assert (done.returncode, done.stderr) == (0, "")
