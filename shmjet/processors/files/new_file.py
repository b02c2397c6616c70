"""A file that is hidden until it is complete, so that no reader sees a part of it.

Must not know: what is written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from shmjet.processors.files.file_blocks import UNFINISHED


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
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / name
        self._hidden = folder / f".{name}{UNFINISHED}"
        self._file: IO[Any] | None = None

    def open(self, mode: str = "wb", *, encoding: str | None = None, newline: str | None = None) -> IO[Any]:
        """Begin to write; the arguments are those of `open`. Raises OSError when that cannot be."""
        self._file = open(self._hidden, mode, encoding=encoding, newline=newline)  # noqa: SIM115
        return self._file

    def write(self, data: Any) -> None:
        """Write text or bytes. Raises OSError, which names the file, when there is no room."""
        assert self._file is not None
        with path_in_errors(self._path):
            self._file.write(data)

    def keep(self) -> None:
        """Close the file and give it its name, unless that is done or nothing was begun.

        Raises:
            OSError: what was left to write cannot be written; it names the file.
        """
        if self._file is not None:
            with path_in_errors(self._path):
                self._file.flush()
                self._file.close()
            self._file = None
            os.replace(self._hidden, self._path)

    def drop(self) -> None:
        """Remove what was begun and not kept."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._hidden.unlink()
            with contextlib.suppress(OSError):  # what it has not written is not wanted
                self._file.close()
            self._file = None
