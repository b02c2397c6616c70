"""Folders of a storage."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shmjet.host.folders import remove_file, usable_folder


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


def test_a_file_that_cannot_be_removed_is_logged_once_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, "immutable", str(path))

    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        for _ in range(3):
            remove_file(file, "a log")
    assert [record.getMessage() for record in caplog.records] == [
        f"a log cannot be removed, and stays: [Errno {errno.EPERM}] immutable: {str(file)!r}"
    ]
    (folder / "below").mkdir(parents=True)
    for path in (file, folder, tmp_path / "missing"):
        remove_file(path, "a log")
        assert not path.exists()
