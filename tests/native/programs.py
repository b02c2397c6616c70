"""The tests that are written in C: compiled with strict warnings, and run, plainly or under sanitizers.

A program that has no threads is run once, under sanitizers: they see all that a plain run sees. What is shipped, which
all other tests use, is optimised more than they are.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "shmjet" / "_native"
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
WELL = (0, "ok\n", "")
"""What a program returns and prints in which everything held."""

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
in_c = [pytest.mark.slow, needs_compiler]


def run(folder: Path, name: str, *options: str, argument: int = 0) -> tuple[int, str, str]:
    """Compile a test into a folder and run it.

    Args:
        folder: for the program.
        name: of the source, without its suffix.
        options: of the compiler.
        argument: of the program.

    Returns:
        Its status, and what it printed to both outputs.
    """
    program = folder / name
    command = [str(COMPILER), "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *options]
    subprocess.run([*command, "-o", str(program), str(HERE / f"{name}.c"), "-pthread", "-lm"], check=True)
    done = subprocess.run([str(program), str(argument)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def run_sanitized(
    folder: Path,
    name: str,
    *options: str,
    argument: int = 0,
    sanitizers: str = "address,undefined",
    level: str = "-O0",
) -> tuple[int, str, str]:
    """`run` under sanitizers, which end the program at the first finding; plainly where there are none.

    Args:
        level: of optimisation: most programs take ten times as long to optimise as to run; "-O1" for the others.
    """
    if not _have(sanitizers):
        return run(folder, name, level, *options, argument=argument)
    sanitizing = (level, "-g1", f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all")
    return run(folder, name, *sanitizing, *options, argument=argument)


@functools.cache
def _have(sanitizers: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "probe.c"), Path(folder, "probe")
        source.write_text("int main(void) { return 0; }\n")
        command = [str(COMPILER), f"-fsanitize={sanitizers}", "-o", str(program), str(source)]
        built = subprocess.run(command, capture_output=True).returncode == 0
        return built and subprocess.run([str(program)], capture_output=True).returncode == 0
