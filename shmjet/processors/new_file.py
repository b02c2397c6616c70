"""A file that is hidden until it is complete, so that whoever sees its name sees all of it.

Must not know: what is written.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, Any

from shmjet.processors.places import UNFINISHED


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

    def keep(self) -> None:
        """Close the file and give it its name, unless that is done or nothing was begun."""
        if self._file is not None:
            self._file.close()
            self._file = None
            os.replace(self._hidden, self._path)

    def drop(self) -> None:
        """Remove what was begun and not kept."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._hidden.unlink()
            self._file.close()
            self._file = None
