"""An instance's folder is private, goes with its owner, and what a janitor missed is swept by the next start."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shmjet import ConfigError
from shmjet.cluster import folder
from shmjet.cluster.folder import InstanceFolder, lock_storage, storage_errors, sweep
from shmjet.host.folders import replace_file


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


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("file", "Not a directory; move that file away, or"),
        ("file/below", "Not a directory; move that file away, or"),
        ("link", "a link to 'nowhere', which is not a folder;"),
        ("loop", "a link to 'loop', which is not a folder;"),
    ],
)
def test_a_storage_that_is_no_folder_is_refused_with_the_reason(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=f"{name}' cannot be used: {reason} give another folder"):
        lock_storage(tmp_path / name)


def test_a_storage_without_permission_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)  # root may do everything
    with pytest.raises(ConfigError, match="cannot be used: Permission denied; let the member's user read and write"):
        lock_storage(tmp_path)


def test_a_storage_stays_locked_when_the_file_with_its_lock_is_removed(tmp_path: Path) -> None:
    held = lock_storage(tmp_path)
    (tmp_path / "lock").unlink()
    for _ in range(2):
        with pytest.raises(ConfigError, match="another member uses"):
            lock_storage(tmp_path)
    for fd in held:
        os.close(fd)
    for fd in lock_storage(tmp_path):
        os.close(fd)


def test_a_full_disk_of_a_storage_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"because of .*/draft: No space left on device; make room on its disk"):  # noqa: SIM117
        with storage_errors(tmp_path):
            replace_file(tmp_path / "file", b"", "draft")
    with pytest.raises(OSError, match="No space left"):  # noqa: SIM117 - of memory, or not known where
        with storage_errors(tmp_path / "storage"):
            replace_file(tmp_path / "file", b"", "draft")
