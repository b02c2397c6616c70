"""An empty store for each test, and other processes that use it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet.grid import Grid

ROOT = Path(__file__).resolve().parents[2]
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with two environments, none of them opened."""
    place = tmp_path / "grid"
    Grid.create(place, environments=2, map_size=1 << 30)
    return place


@pytest.fixture
def grid(folder: Path) -> Iterator[Grid]:
    """The same, opened."""
    with Grid.open(folder) as opened:
        yield opened


def in_processes(folder: Path, work: Callable[[Grid, int], Any], count: int) -> list[int]:
    """Run `work(grid, index)` in `count` processes at once and return their exit codes.

    The calling process must not have the store open.
    """

    def main(index: int) -> None:
        with Grid.open(folder) as grid:
            work(grid, index)

    processes = [FORK.Process(target=main, args=(index,)) for index in range(count)]
    for process in processes:
        process.start()
    codes = []
    for process in processes:
        process.join(60)
        codes.append(process.exitcode)
        process.close()
    return [code if code is not None else 1 for code in codes]


def run_script(folder: Path, text: str) -> str:
    """Run a script with `grid` open on the store, as `__main__` of a process of its own; return what it prints."""
    script = folder.parent / f"script{len(list(folder.parent.iterdir()))}.py"
    script.write_text(
        "import pathlib\nfrom shmjet.grid import Grid\n"
        f"grid = Grid.open(pathlib.Path({str(folder)!r}))\n{text}\ngrid.close()\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
