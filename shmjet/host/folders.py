"""Folders and files on disk: to remove them, and to let them reach it.

`shutil` loads compressors and archive formats, which takes longer than most modules here. Every member loads
modules that remove folders, and few members remove one before they are up.
"""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

logger = logging.getLogger("shmjet.host")

_staying: set[Path] = set()
"""Files that could not be removed: the log has named them."""


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is possible; it need not be there."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def remove_file(path: Path, what: str) -> bool:
    """Remove a file, or the folder that is in its place, if there is one.

    A file that cannot be removed stays, and the log says so once.

    Args:
        path: of the file.
        what: how the log calls it.

    Returns:
        whether it is gone.
    """
    try:
        path.unlink(missing_ok=True)
    except IsADirectoryError:
        remove_folder(path)
    except OSError as error:
        if path not in _staying:
            _staying.add(path)
            logger.warning("%s cannot be removed, and stays: %s", what, error)
        return False
    return True


def usable_folder(folder: Path) -> None:
    """Make a folder for this user alone, if it is not there, and see that files can be read, made and removed in it.

    Raises:
        OSError: it cannot be made or used; `filename` is the path that is to blame.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        if os.path.islink(folder):
            raise OSError(
                errno.ENOENT, f"a link to {os.readlink(folder)!r}, which is not a folder", str(folder)
            ) from None
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
        number = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number), str(folder))


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
    try:
        with written.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = error.filename or str(written)  # neither a write nor a sync says which file it was
        raise
    os.replace(written, path)
    sync_folder(path.parent)


def _sync(path: Path, flags: int = 0) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
