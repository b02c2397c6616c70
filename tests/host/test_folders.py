"""Folders of a storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from shmjet.host.folders import usable_folder


def test_a_folder_is_made_with_those_above_it_and_may_be_there(tmp_path: Path) -> None:
    for _ in range(2):
        usable_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as caught:
        usable_folder(tmp_path / name)
    assert caught.value.filename == str(tmp_path / name)
