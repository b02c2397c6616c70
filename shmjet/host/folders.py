"""Folders and files on disk: to remove them, and to let them reach it.

`shutil` loads compressors and archive formats, which takes longer than most modules here. Every member loads
modules that remove folders, and few members remove one before they are up.
"""

from __future__ import annotations

import os
from pathlib import Path


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is possible; it need not be there."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk."""
    _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Let what a file holds reach the disk. Raises OSError if it is not there, or cannot be brought there."""
    _sync(path)


def replace_file(path: Path, data: bytes, draft: str) -> None:
    """Write a file, whole or not at all; it is on disk when this returns. Raises OSError.

    Args:
        path: of the file; a file that is there is replaced.
        data: what it is to hold.
        draft: name of the file in the same folder that is written first.
    """
    written = path.with_name(draft)
    with written.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(written, path)
    sync_folder(path.parent)


def _sync(path: Path, flags: int = 0) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
