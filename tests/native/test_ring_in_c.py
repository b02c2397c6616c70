"""Compiles and runs the tests of `ring.h`, `doorbell.h`, `slab.h` and `packet.h` in C, also under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


def run(folder: Path, name: str, *options: str, seconds: int = 0) -> subprocess.CompletedProcess[str]:
    program = folder / name
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / f"{name}.c"), "-pthread"], check=True)
    return subprocess.run([str(program), str(seconds)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ["test_ring", "test_slab", "test_packet"])
def test_promises_are_kept_between_threads(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, name, "-O2", seconds=2)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("name", ["test_ring", "test_slab", "test_packet"])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_they_are_clean_under_sanitizers(tmp_path: Path, sanitizer: str, name: str) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(
        [str(COMPILER), f"-fsanitize={sanitizer}", "-o", str(tmp_path / "probe"), str(probe)], capture_output=True
    )
    if built.returncode or subprocess.run([str(tmp_path / "probe")], capture_output=True).returncode:
        pytest.skip(f"no {sanitizer} sanitizer on this machine")
    done = run(tmp_path, name, "-O1", "-g", "-Wno-tsan", f"-fsanitize={sanitizer}")
    assert (done.returncode, done.stderr) == (0, "")
