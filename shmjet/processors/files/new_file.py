"""A file that is hidden until it is complete, so that no reader sees a part of it.

Must not know: what is written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from shmjet.processors.files.file_blocks import UNFINISHED
from shmjet.processors.files.paths import make_folder


@contextlib.contextmanager
def path_in_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name a file in an `OSError` from within that names none: that of a full disk, for example."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


class NewFile:
    """One file of a sink on this host; a file of the same name is replaced when this one is complete.

    Args:
        folder: made when it is missing.
        name: what the file is called in the end.

    Raises:
        OSError: the folder cannot be made.
    """

    def __init__(self, folder: Path, name: str) -> None:
        make_folder(folder)
        self.path = str(folder / name)
        """What it is called in the end."""
        self._hidden = folder / f".{name}{UNFINISHED}"
        self._is_begun = False

    def open(self) -> IO[bytes]:
        """Begin to write. Raises OSError when that cannot be."""
        self._is_begun = True
        return open(self._hidden, "wb")

    def keep(self) -> None:
        """Give the file its name, unless that is done or nothing was begun; it has been closed."""
        if self._is_begun:
            os.replace(self._hidden, self.path)
            self._is_begun = False

    def drop(self) -> None:
        """Remove what was begun and not kept."""
        if self._is_begun:
            with contextlib.suppress(OSError):
                self._hidden.unlink()
            self._is_begun = False
