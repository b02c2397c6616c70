"""Large values, each in a file of its own next to the LMDB environments.

A value of 500 MB inside LMDB would keep the environment's lock for as long as copying it takes and would need as many
adjacent free pages. So a value above `INLINE_LIMIT` is written to a file before the transaction, and the entry names
the file. A writer that dies in between leaves an unnamed file, which goes with the instance's folder; never an
entry without its file. The writer that replaces or removes an entry deletes the file after the commit, so a reader may
find it gone: then the entry has changed too, and the reader looks again.

The file holds a sequence of buffers (a pickle and what it left out of band), because they are written and read without
being joined, and a checksum. Nothing here knows what they mean.

From another host a large file comes in pieces, before the entry that will name it: it is *staged* under a name that no
entry has, and gets its own when the entry comes. It is read in pieces, too. So no message is long.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shmjet.data.checksum import crc32
from shmjet.grid.errors import GridError, GridFullError, PartitionMovedError
from shmjet.host.folders import remove_file

if TYPE_CHECKING:
    from typing_extensions import Buffer

logger = logging.getLogger("shmjet.grid")

INLINE_LIMIT = 64 * 1024
"""Bytes of an encoded value up to which it lies in LMDB."""


PIECE_BYTES = 1 << 20
"""Bytes of a file that one message brings."""
STAGED_BYTES = 16
"""Of the number that stands for a file while it comes in pieces."""
STAGED_S = 60.0
"""How long the next piece, or the entry, of a staged file is waited for."""
_STAGED = "staged-"
_STAGED_IS_LOST = "the pieces of a large value are not here"
A_GONE_FILE: Final = "the file of a large value that is gone"
"""How the log calls it."""
_COUNT = 8
"""Bytes of a number in a file."""

_NAME = re.compile(rb"[0-9a-f]{1,16}-[0-9a-f]{16}")
"""What `write` calls a file: the process that wrote it and a random number."""


_CHECKSUM = struct.Struct("<8sII")
"""The last buffer of a file: `_MAGIC`, CRC-32 of the lengths of the others and of these, CRC-32 of the file's
name (0: it has none).

It is a buffer more because versions that know nothing of it do not look at buffers that the pickle does not ask for.
"""
_MAGIC = b"shmjetBC"
_OF_NAME = 4
"""Bytes of the last field."""


def contents(parts: Sequence[Buffer]) -> list[Buffer]:
    """Return what a file of some buffers consists of, in pieces."""
    views: list[Buffer] = [memoryview(part).cast("B") for part in parts]
    views.append(_CHECKSUM.pack(_MAGIC, _checksum(views), 0))
    return [len(views).to_bytes(8, "little") + _lengths(views), *views]


def _bind(file: FileIO, name: str) -> None:
    """Note in a file that was written as `contents` says what it is called, so that it is not taken for another one."""
    end = file.seek(0, os.SEEK_END)
    if end >= _CHECKSUM.size and os.pread(file.fileno(), len(_MAGIC), end - _CHECKSUM.size) == _MAGIC:
        os.pwrite(file.fileno(), crc32(name.encode()).to_bytes(_OF_NAME, "little"), end - _OF_NAME)


def _lengths(parts: Sequence[Buffer]) -> bytes:
    return b"".join([len(memoryview(part)).to_bytes(8, "little") for part in parts])


def _checksum(parts: Sequence[Buffer]) -> int:
    found = crc32(_lengths(parts))
    for part in parts:
        found = crc32(part, found)
    return found


def read_contents(read_into: Callable[[memoryview], int | None], size: int, path: str) -> list[bytearray]:
    """Return the buffers of a file from its `contents`, each in fresh writable memory.

    Args:
        read_into: reads the next bytes into a buffer, and returns how many; 0 at the end.
        size: of the file.
        path: of the file, or its name.

    Raises:
        GridError: the file is not as long as it says, its checksum does not fit, or it is that of another value. Files
            of older versions have no checksum, or no name.
    """

    def filled(length: int) -> bytearray:
        part = bytearray(length)
        view = memoryview(part)
        while view:
            got = read_into(view)
            if not got:
                raise _too_few(path, size)
            view = view[got:]
        return part

    count = int.from_bytes(filled(_COUNT), "little") if size >= _COUNT else 0
    if not 0 < count <= size // _COUNT - 1:
        raise _too_few(path, size)
    lengths = filled(_COUNT * count)
    sizes = [int.from_bytes(lengths[at : at + _COUNT], "little") for at in range(0, len(lengths), _COUNT)]
    if _COUNT * (1 + count) + sum(sizes) != size:
        raise _too_few(path, size)
    parts = [filled(length) for length in sizes]
    if len(parts[-1]) == _CHECKSUM.size and parts[-1].startswith(_MAGIC):
        _, noted, named = _CHECKSUM.unpack(parts.pop())
        if not parts or _checksum(parts) != noted:
            raise _damaged(path, "its checksum does not fit, a byte of it has changed")
        if named and named != crc32(path.rpartition("/")[2].encode()):
            raise _damaged(path, "its checksum does not fit its name, it is the file of another value")
    return parts


class Pieces:
    """Reads a file in pieces, for `read_contents`.

    Args:
        first: the first piece.
        piece: gives that at an offset.
    """

    def __init__(self, first: bytes, piece: Callable[[int], bytes]) -> None:
        self._left = memoryview(first)
        self._read = 0
        self._piece = piece

    def read_into(self, view: memoryview) -> int:
        """Read the next bytes, and return how many; 0 at the end."""
        if not self._left:
            self._left = memoryview(self._piece(self._read))
        count = min(len(view), len(self._left))
        view[:count] = self._left[:count]
        self._left = self._left[count:]
        self._read += count
        return count


def _new_name(number: int) -> str:
    return f"{number:x}-{os.urandom(8).hex()}"


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


def _damaged(path: str, how: str) -> GridError:
    return GridError(
        f"{path}, the file of a large value, is damaged: {how}; bring it back from a copy, or store the value anew"
    )


def _too_few(path: str, size: int) -> GridError:
    return _damaged(path, f"its {size} bytes are not as many as it should have")


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
            GridError: it cannot be written for another reason: the folder is gone, say, or this user may not.
        """
        return self.write_contents(contents(parts), os.getpid())

    def write_contents(self, parts: Sequence[Buffer], number: int) -> bytes:
        """Write a file from its `contents`, and return its name, which begins with a number; raises as `write`."""
        name = _new_name(number)
        path = self.folder / name
        views = [memoryview(part).cast("B") for part in parts]
        try:
            with path.open("x+b", buffering=0) as file:
                for view in views:
                    done = 0
                    while done < len(view):
                        done += file.write(view[done:])
                _bind(file, name)
        except BaseException as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            self._refuse(error, sum(map(len, views)))
            raise
        return name.encode()

    def _refuse(self, error: BaseException, size: int) -> None:
        """Raise GridFullError where an error says that there is no room for a value, GridError for others."""
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            more = "/dev/shm more (`mount -o remount,size=...`, docker's --shm-size)"
            raise GridFullError(
                f"no room for a value of {size} bytes in {self.folder}: {error}; clear or destroy "
                f"what is not needed, or give {more if self.gone is None else 'the disk more room'}"
            ) from error
        if isinstance(error, OSError):
            raise GridError(f"a value of {size} bytes cannot be written to {self.folder}: {error}") from error

    # -- files that come in pieces ------------------------------------------------------------------------------

    def stage(self, ident: bytes, offset: int, data: Buffer) -> None:
        """Take a piece of a file that gets its name later (`name_staged`); the same one may come twice.

        Args:
            ident: a random number of `STAGED_BYTES` that stands for the file.
            offset: of the piece; pieces come in their order.
            data: of the piece.

        Raises:
            PartitionMovedError: what came before is not here, as this is another store, or it was too long ago.
            GridFullError: the file system is full; no part of the file is left.
        """
        path, view = self._staged(ident), memoryview(data).cast("B")
        try:
            with self._open_staged(path, offset) as file:
                if file.seek(0, os.SEEK_END) < offset:
                    raise GridError(f"a piece of a large value at {offset} came before those in front of it")
                file.seek(offset)
                while view:
                    view = view[file.write(view) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            self._refuse(error, offset + len(memoryview(data).cast("B")))
            raise

    def _open_staged(self, path: Path, offset: int) -> FileIO:
        if offset == 0:
            return FileIO(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
        try:
            return FileIO(path, "r+")
        except FileNotFoundError:
            raise PartitionMovedError(_STAGED_IS_LOST) from None

    def name_staged(self, ident: bytes, size: int, number: int) -> bytes:
        """Give a staged file its name, as `write_contents` does, and return that.

        Raises:
            PartitionMovedError: it is not here.
            GridError: it is not as long as it should be.
        """
        path, name = self._staged(ident), _new_name(number)
        try:
            found = path.stat().st_size
            if found != size:
                raise GridError(f"a large value of {size} bytes came with {found}")
            with FileIO(path, "r+") as file:
                _bind(file, name)
            path.rename(self.folder / name)
        except FileNotFoundError:
            raise PartitionMovedError(_STAGED_IS_LOST) from None
        return name.encode()

    def sweep_staged(self, seconds: float = STAGED_S) -> bool:
        """Delete staged files of which nothing has come for so long, and say whether there are others."""
        is_left = False
        for path in self.folder.glob(_STAGED + "*"):
            with contextlib.suppress(FileNotFoundError):  # it has got its name
                if time.time() - path.stat().st_mtime < seconds:
                    is_left = True
                else:
                    path.unlink()
        return is_left

    def _staged(self, ident: bytes) -> Path:
        return self.folder / (_STAGED + ident.hex())

    def read_piece(self, name: bytes, offset: int) -> tuple[int, bytes]:
        """Return the bytes of a file, and those of one piece of it; raises as `read`."""
        with self._opened(name) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(offset)
            return size, file.read(PIECE_BYTES)

    # -----------------------------------------------------------------------------------------------------------

    def read(self, name: bytes) -> list[bytearray]:
        """Return the buffers of a file, each in fresh writable memory.

        Raises:
            BlobVanishedError: it has been deleted.
            GridError: it is not a name that `write` makes, the file is not as long as it says, or its checksum does not
                fit. Files of older versions have none.
        """
        with self._opened(name) as file:
            size = os.fstat(file.fileno()).st_size
            return read_contents(file.readinto, size, str(self.folder / name.decode()))

    def _opened(self, name: bytes) -> FileIO:
        if _NAME.fullmatch(name) is None:
            raise GridError(f"{name[:80]!r} is not the name of a stored value; was it written by another version?")
        try:
            return FileIO(self.folder / name.decode())
        except FileNotFoundError:
            raise BlobVanishedError(name.decode()) from None
        except IsADirectoryError as error:
            raise _damaged(str(self.folder / name.decode()), f"its file cannot be read: {error.strerror}") from None

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
        """Delete files; files that are gone already, and names that `write` does not make, do not matter.

        A file that cannot be deleted is logged: a store on disk removes it when it is started anew.
        """
        for name in names:
            if not self.is_name(name):
                continue
            path = self.folder / name.decode()
            if self.gone is None:
                remove_file(path, A_GONE_FILE)
            else:
                try:
                    path.rename(self.gone / path.name)
                except FileNotFoundError:
                    continue
                except OSError as error:  # what it belonged to is gone, and the change that did so is made
                    logger.warning("%s cannot be removed, and stays: %s", A_GONE_FILE, error)
