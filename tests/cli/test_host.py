"""What `shmjet doctor` reads from the kernel, held against made-up machines."""

from __future__ import annotations

from pathlib import Path

from shmjet.cli.host import installed_version, shared_memory


def test_shared_memory_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert shared_memory(tmp_path) is None
    (tmp_path / "dev/shm").mkdir(parents=True)
    space = shared_memory(tmp_path)
    assert space is not None
    assert space[0] >= space[1] > 0


def test_what_is_not_installed_has_no_version() -> None:
    assert installed_version("no-such-distribution-at-all") is None
    assert installed_version("pytest")
