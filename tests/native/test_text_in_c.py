"""Compiles and runs the tests of the text kernels that are written in C, also without SIMD and under sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


def run(folder: Path, texts: int, *options: str) -> subprocess.CompletedProcess[str]:
    program = folder / "test_text"
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / "test_text.c")], check=True)
    return subprocess.run([str(program), str(texts)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("options", [["-O3"], ["-O2", "-DSHMJET_NO_SIMD"]], ids=["simd", "no simd"])
def test_words_are_split_folded_and_counted_as_slow_code_does(tmp_path: Path, options: list[str]) -> None:
    done = run(tmp_path, 600, *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@pytest.mark.parametrize("options", [[], ["-DSHMJET_NO_SIMD"]], ids=["simd", "no simd"])
def test_the_text_kernels_are_clean_under_sanitizers(tmp_path: Path, options: list[str]) -> None:
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    sanitizer = "-fsanitize=address,undefined"
    built = subprocess.run([str(COMPILER), sanitizer, "-o", str(tmp_path / "probe"), str(probe)], capture_output=True)
    if built.returncode or subprocess.run([str(tmp_path / "probe")], capture_output=True).returncode:
        pytest.skip("no address sanitizer on this machine")
    done = run(tmp_path, 200, "-O1", "-g", sanitizer, "-fno-sanitize-recover", *options)
    assert (done.returncode, done.stderr) == (0, "")
