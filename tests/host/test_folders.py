"""Folders of a storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet.data.errors import ConfigError
from shmjet.host.folders import make_folder


def test_a_folder_is_made_with_those_above_it_and_may_be_there(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=rf"^{tmp_path / name} has to be a folder, .*: move that file away, or give"):
        make_folder(tmp_path / name)
