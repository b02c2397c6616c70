"""Compiles and runs the tests of `csv.h`, `lines.h` and `csv_write.h` in C, also under the address sanitizer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]


WAYS = pytest.mark.parametrize(
    ("test", "options"),
    [("test_csv", ()), ("test_csv", ("-DCSV_WITHOUT_SIMD",)), ("test_csv_write", ())],
    ids=["simd", "words", "write"],
)


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = folder / test
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / f"{test}.c"), "-lm"], check=True)
    return subprocess.run([str(program)], capture_output=True, text=True, timeout=120)


@WAYS
def test_csv_is_read_and_written_the_same_in_every_way(tmp_path: Path, test: str, options: tuple[str, ...]) -> None:
    done = run(tmp_path, test, "-O2", *options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@WAYS
def test_csv_is_clean_under_sanitizers(tmp_path: Path, test: str, options: tuple[str, ...]) -> None:
    sanitizers = "-fsanitize=address,undefined"
    probe = tmp_path / "probe.c"
    probe.write_text("int main(void) { return 0; }\n")
    built = subprocess.run([str(COMPILER), sanitizers, "-o", str(tmp_path / "probe"), str(probe)], capture_output=True)
    if built.returncode or subprocess.run([str(tmp_path / "probe")], capture_output=True).returncode:
        pytest.skip("no address and undefined sanitizers on this machine")
    done = run(tmp_path, test, "-O1", "-g", "-fno-sanitize-recover=all", sanitizers, *options)
    assert (done.returncode, done.stderr) == (0, "")
