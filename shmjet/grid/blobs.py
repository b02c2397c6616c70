"""Large values, each in a file of its own next to the LMDB environments.

A value of 500 MB inside LMDB would keep the environment's lock for as long as copying it takes and would need as many
adjacent free pages. So a value above `INLINE_LIMIT` is written to a file before the transaction, and the entry names
the file. A writer that dies in between leaves an unnamed file, which goes with the instance's folder; never an
entry without its file. The writer that replaces or removes an entry deletes the file after the commit, so a reader may
find it gone: then the entry has changed too, and the reader looks again.

The file holds a sequence of buffers (a pickle and what it left out of band), because they are written and read without
being joined. Nothing here knows what they mean.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shmjet.grid.errors import GridError, GridFullError

if TYPE_CHECKING:
    from typing_extensions import Buffer

INLINE_LIMIT = 64 * 1024
"""Bytes of an encoded value up to which it lies in LMDB."""


_NAME = re.compile(rb"[0-9a-f]{1,16}-[0-9a-f]{16}")
"""What `write` calls a file: the process that wrote it and a random number."""


def contents(parts: Sequence[Buffer]) -> list[Buffer]:
    """Return what a file of some buffers consists of, in pieces."""
    views = [memoryview(part).cast("B") for part in parts]
    return [b"".join(number.to_bytes(8, "little") for number in (len(views), *map(len, views))), *views]


class BlobVanishedError(Exception):
    """The file was deleted because its entry was replaced or removed meanwhile. Never leaves this package."""


class Vanished:
    """Tells an entry that has changed while its file was read from an entry whose file is lost: that names it again."""

    def __init__(self) -> None:
        self._last = ""

    def note(self, error: BlobVanishedError, label: str) -> None:
        """Take that the file of an entry is gone, which is read anew then. Raises GridError the second time."""
        if str(error) == self._last:
            raise missing(error, f"{label}; store it anew") from error
        self._last = str(error)


def missing(error: BlobVanishedError, label: str) -> GridError:
    """Return the error for a file that should be there."""
    return GridError(f"the file {error} of a large value is missing, and with it {label}")


def _damaged(path: str, size: int) -> GridError:
    return GridError(
        f"{path}, the file of a large value, is damaged: its {size} bytes are not as many as it should have; bring it "
        "back from a copy, or store the value anew"
    )


class BlobStore:
    """The folder of large values. Names are never used twice, so no lock is needed.

    Args:
        folder: an existing folder.
        reserve: a file that only takes up room, for `give_up_reserve`.
        gone: where deleted files go until the disk knows that nothing names them; None: they are deleted at once.
    """

    def __init__(self, folder: Path, reserve: Path, gone: Path | None = None) -> None:
        self.folder = folder
        self.gone = gone
        self._reserve = reserve

    def give_up_reserve(self) -> bool:
        """Make a little room on a full file system, once in a store's life; False when that has been done before.

        LMDB never overwrites, so deleting entries takes a few new pages before it frees many old ones.
        """
        try:
            self._reserve.unlink()
        except FileNotFoundError:
            return False
        return True

    def write(self, parts: Sequence[Buffer]) -> bytes:
        """Write the buffers and return the name of the new file.

        Raises:
            GridFullError: the file system is full; no file is left behind.
        """
        return self.write_contents(contents(parts), os.getpid())

    def write_contents(self, parts: Sequence[Buffer], number: int) -> bytes:
        """Write a file from its `contents`, and return its name, which begins with a number; raises as `write`."""
        name = f"{number:x}-{os.urandom(8).hex()}"
        path = self.folder / name
        views = [memoryview(part).cast("B") for part in parts]
        try:
            with path.open("xb", buffering=0) as file:
                for view in views:
                    done = 0
                    while done < len(view):
                        done += file.write(view[done:])
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                more = "/dev/shm more (`mount -o remount,size=...`, docker's --shm-size)"
                raise GridFullError(
                    f"no room for a value of {sum(map(len, views))} bytes in {self.folder}: {error}; clear or destroy "
                    f"what is not needed, or give {more if self.gone is None else 'the disk more room'}"
                ) from error
            raise
        return name.encode()

    def read(self, name: bytes) -> list[bytearray]:
        """Return the buffers of a file, each in fresh writable memory.

        Raises:
            BlobVanishedError: it has been deleted.
            GridError: it is not a name that `write` makes, or the file is not as long as it says.
        """
        if _NAME.fullmatch(name) is None:
            raise GridError(f"{name[:80]!r} is not the name of a stored value; was it written by another version?")
        try:
            file = (self.folder / name.decode()).open("rb", buffering=0)
        except FileNotFoundError:
            raise BlobVanishedError(name.decode()) from None
        with file:
            size, count = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
            lengths = file.read(8 * count) if size >= 8 and count <= size // 8 else b""
            sizes = [int.from_bytes(lengths[at : at + 8], "little") for at in range(0, len(lengths), 8)]
            if not count or 8 * (1 + count) + sum(sizes) != size:
                raise _damaged(file.name, size)
            parts = [bytearray(length) for length in sizes]
            for part in parts:
                view = memoryview(part)
                while view:
                    got = file.readinto(view)
                    if not got:
                        raise _damaged(file.name, size)
                    view = view[got:]
        return parts

    def size(self, name: bytes) -> int:
        """Return the bytes of a file, 0 when it is gone."""
        if _NAME.fullmatch(name) is None:
            return 0
        try:
            return (self.folder / name.decode()).stat().st_size
        except FileNotFoundError:
            return 0

    @staticmethod
    def is_name(name: bytes) -> bool:
        """Say whether `write` makes such names."""
        return _NAME.fullmatch(name) is not None

    def delete(self, names: Iterable[bytes]) -> None:
        """Delete files; files that are gone already, and names that `write` does not make, do not matter."""
        for name in names:
            if self.is_name(name):
                path = self.folder / name.decode()
                if self.gone is None:
                    path.unlink(missing_ok=True)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        path.rename(self.gone / path.name)
