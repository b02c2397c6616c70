"""An instance's folder is private, goes with its owner, and what a janitor missed is swept by the next start."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from shmjet.cluster import folder
from shmjet.cluster.folder import InstanceFolder, sweep


def test_the_folder_is_private_and_removed(tmp_path: Path) -> None:
    made = InstanceFolder(tmp_path)
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o700
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_removes_only_what_nobody_locks(tmp_path: Path) -> None:
    alive = InstanceFolder(tmp_path)
    dead = tmp_path / f"shmjet-{os.getuid()}-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "data").write_text("x")
    starting = tmp_path / f"shmjet-{os.getuid()}-starting"
    starting.mkdir()
    foreign = tmp_path / "something-else"
    foreign.mkdir()
    assert sweep(tmp_path) == [dead]
    assert sorted(tmp_path.iterdir()) == sorted([alive.path, starting, foreign])
    alive.remove()


def test_the_janitor_removes_the_folder_of_an_owner_that_is_killed(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    program = (
        "import os, sys; from pathlib import Path; from shmjet.cluster.folder import InstanceFolder\n"
        "made = InstanceFolder(Path(sys.argv[1])); (made.path / 'data').write_text('x')\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    eventually(lambda: list(tmp_path.iterdir()) == [])


def test_the_base_is_a_folder_one_can_write_to(tmp_path: Path) -> None:
    assert os.access(folder.base_folder(), os.W_OK)
