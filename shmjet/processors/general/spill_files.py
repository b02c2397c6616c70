"""Temporary files for items that memory has no room for: without a name, so that they vanish with their process.

What cannot be made, written or read raises an error that names the folder and what to do about it.
"""

from __future__ import annotations

import mmap
import os
from types import TracebackType
from typing import IO, TYPE_CHECKING

from shmjet.core.job import JobConfig
from shmjet.host.memory_limits import process_memory
from shmjet.ring.pickling import dumps, loads

if TYPE_CHECKING:
    from shmjet.data.batch import Batch


SPILL_SHARE = 0.75
"""Part of a processor's memory that is full when it begins to write; what comes meanwhile needs the rest."""

DEFAULT_SHARE = 0.5
"""Part of the memory that is available at the start, for all processors of a vertex on a member."""


_ALIGNMENT = 64
"""A batch in a file begins at a multiple of these bytes, as its columns want to."""


def spill_folder(given: str | None) -> str:
    """Return where files go: the folder that processor or job name, or that of `tempfile`, which heeds TMPDIR.

    Raises:
        OSError: none of the folders in which `tempfile` looks can be written to; the text names them.
    """
    if given is not None:
        return given
    import tempfile  # with what it needs a fifth of the time that importing all processors takes

    try:
        return tempfile.gettempdir()
    except OSError as error:
        remedy = "set TMPDIR or JobConfig.spill_folder to a folder on a disk"
        raise OSError(error.errno, f"{error.strerror}; {remedy}") from error


def memory_share(config: JobConfig, processors: int) -> float:
    """Return the bytes that one processor of a stage may keep: its share of the job's limit, or of what is available.

    Args:
        config: of the job.
        processors: of the vertex on this member.
    """
    whole = process_memory() * DEFAULT_SHARE if config.memory_limit is None else config.memory_limit
    return max(1, whole / processors)


def spill_file(folder: str, purpose: str, *, limited: bool = False) -> IO[bytes]:
    """Return a new file without a name and without a buffer.

    Args:
        folder: where.
        purpose: who writes, "sort" for example.
        limited: a larger `memory_limit` would help if there is no room.

    Raises:
        OSError: it cannot be made.
    """
    import tempfile

    with SpillErrors(folder, purpose, "make a file", limited=limited):
        file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        return file


class SpilledBatches:
    """Batches in one file, mapped in the end: the kernel keeps of them in memory what there is room for.

    Args:
        folder: where the file is; it must be on a disk to save memory.
        purpose: who writes.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, folder: str, purpose: str) -> None:
        self._folder, self._purpose = folder, purpose
        self._file = spill_file(folder, purpose, limited=True)
        self._extents: list[tuple[int, int]] = []
        self._end = 0

    def add(self, batch: Batch) -> None:
        """Write a batch. Raises OSError when that cannot be."""
        start = self._end
        with SpillErrors(self._folder, self._purpose, "write", limited=True):
            for part in dumps(batch):
                with memoryview(part) as view, view.cast("B") as data:
                    at = 0
                    while at < len(data):
                        at += os.pwrite(self._file.fileno(), data[at:], self._end + at)
                    self._end += at
        self._extents.append((start, self._end))
        self._end = -(-self._end // _ALIGNMENT) * _ALIGNMENT

    def batches(self) -> list[Batch]:
        """Return all batches in the order in which they were written; their columns lie in the file."""
        with SpillErrors(self._folder, self._purpose, "map its file", limited=True):
            mapped = memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        return [loads(mapped[start:end], copy=False) for start, end in self._extents]

    def close(self) -> None:
        """Let go of the file; what is mapped of it stays as long as its batches."""
        self._file.close()


class SpillErrors:
    """Puts folder and remedy into the text of an `OSError` from within.

    Args:
        folder: where the file is.
        purpose: who uses it.
        what: is done with it.
        limited: a larger `memory_limit` would help, too.
    """

    def __init__(self, folder: str, purpose: str, what: str, *, limited: bool = False) -> None:
        self._text = f"{purpose} could not {what} in {folder!r}"
        self._limited = limited

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise OSError(
                error.errno,
                f"{self._text}: {error.strerror or error}; set TMPDIR or JobConfig.spill_folder to a folder on a disk "
                f"with room{', or raise memory_limit' if self._limited else ''}",
            ) from error
