"""The files that one processor of a sink writes one after the other: its parts, from the first byte to the final name.

A part has a name with a dot while it is written. It is sealed when a snapshot is saved, or when it is large or old
enough. Exactly-once, a sealed part gets its final name when the snapshot that lists it has become valid; otherwise at
once. After a restore the parts that the snapshot lists get their names, unless they have them, and other unfinished
parts of the job are removed. Numbers of parts go on, so no part ever takes the name of an earlier one.

Must not know what is in the files, nor processors.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from threading import Thread
from typing import IO, Final

from shmjet.processors.files.file_blocks import UNFINISHED
from shmjet.processors.files.new_file import path_in_errors
from shmjet.processors.files.paths import Folder

Part = tuple[str, str]
"""The temporary and the final name of a sealed part."""

State = tuple[int, tuple[Part, ...]]
"""What is saved: the next number, and the sealed parts without final names."""

_UNFINISHED_PART: Final = re.compile(r"\.(?P<index>\d+)(?:-(?P<stage>\d+))?_\d+.*")


class PartFiles:
    """The parts of one processor.

    Args:
        folder: where they are; it exists.
        index: of the processor; part of the names.
        stage: which of the stages of a job that write into the folder this is; part of the names unless it is 0.
        suffix: of the names, such as `.csv.gz`.
        job_id: marks unfinished parts as those of the job.
        keeps_back: whether sealed parts wait for `name_sealed`.

    Example:
        >>> parts = PartFiles(Folder("/tmp/out", {}), 0, 0, ".csv", "f00", keeps_back=True)   # doctest: +SKIP
        >>> with parts.open() as file: file.write(b"a,b")                                     # doctest: +SKIP
        >>> parts.seal(); parts.name_sealed(1)         # `0_000000.csv`                       # doctest: +SKIP
    """

    def __init__(self, folder: Folder, index: int, stage: int, suffix: str, job_id: str, *, keeps_back: bool) -> None:
        self._folder = folder
        self._index = index
        self._stage = stage
        self._stem = f"{index}-{stage}" if stage else str(index)
        self._suffix = suffix
        self._ending = f".{job_id}{UNFINISHED}"
        self._keeps_back = keeps_back
        self._next: int | None = None
        self._open: Part | None = None
        self._sealed: list[Part] = []

    @property
    def path(self) -> str:
        """The final path of the part that is open; of the folder when none is."""
        return f"{self._folder.path}/{self._open[1]}" if self._open is not None else self._folder.path

    @property
    def sealed(self) -> int:
        """How many parts wait for their names."""
        return len(self._sealed)

    def recover(self, states: Iterable[State], processors: int) -> None:
        """Finish what a snapshot lists, and remove what was begun after it.

        Args:
            states: those of all processors of the vertex, as they were saved; nothing where there was no snapshot yet.
            processors: how many there are now; each takes care of the parts of indexes that it is dealt.
        """
        own = re.compile(rf"\.?{re.escape(self._stem)}_(\d+).*")
        listed: set[str] = set()
        self._next = 0
        for number, parts in states:
            self._next = max(self._next, number)
            for part in parts:
                listed.add(part[0])
                if self._is_mine(part[0], processors):
                    self._name(part)
        for name in self._folder.names():
            if name.endswith(self._ending) and name not in listed and self._is_mine(name, processors):
                with contextlib.suppress(FileNotFoundError):
                    self._folder.remove(name)
            elif found := own.fullmatch(name):
                self._next = max(self._next, int(found[1]) + 1)

    def open(self) -> IO[bytes]:
        """Begin a part. Raises OSError, which names it."""
        if self._next is None:
            self._next = self._free_number()
        final = f"{self._stem}_{self._next:06d}{self._suffix}"
        self._open = f".{final}{self._ending}", final
        self._next += 1
        return self._folder.open_new(self._open[0])

    def seal(self) -> None:
        """Note that the part is complete; its file has been closed."""
        assert self._open is not None
        self._sealed.append(self._open)
        self._open = None
        if not self._keeps_back:
            self.name_sealed(len(self._sealed))

    def state(self) -> State:
        """Return what belongs to a snapshot."""
        if self._next is None:
            self._next = self._free_number()
        return self._next, tuple(self._sealed)

    def name_sealed(self, count: int) -> None:
        """Give the oldest sealed parts their names.

        Args:
            count: how many of them.
        """
        while count:
            self._name(self._sealed[0])
            self._sealed.pop(0)
            count -= 1

    def unsynced(self) -> list[str]:
        """Return the paths of the sealed parts; none on a file system that is reached through fsspec."""
        return [] if self._folder.is_remote else [f"{self._folder.path}/{name}" for name, _ in self._sealed]

    def drop(self, listed: int) -> None:
        """Remove what no snapshot lists: the part that is open, and sealed ones.

        Args:
            listed: how many of the sealed parts a snapshot may list.
        """
        last = [] if self._open is None else [self._open]
        for name, _ in [*self._sealed[listed:], *last]:
            with contextlib.suppress(Exception):
                self._folder.remove(name)
        self._open = None
        del self._sealed[listed:]

    def _name(self, part: Part) -> None:
        """Give a part its final name, unless that is done."""
        temporary, final = part
        with path_in_errors(f"{self._folder.path}/{final}"):
            if not self._folder.exists(temporary):
                return
            if not self._folder.is_remote and self._folder.exists(final):  # not of this job: it numbers on
                self._next = self._free_number()
                final = f"{self._stem}_{self._next:06d}{self._suffix}"
                self._next += 1
            self._folder.rename(temporary, final)

    def _free_number(self) -> int:
        own = re.compile(rf"\.?{re.escape(self._stem)}_(\d+).*")
        found = (own.fullmatch(name) for name in self._folder.names())
        return max((int(match[1]) + 1 for match in found if match), default=0)

    def _is_mine(self, temporary: str, processors: int) -> bool:
        found = _UNFINISHED_PART.fullmatch(temporary)
        return (
            found is not None
            and int(found["stage"] or 0) == self._stage
            and int(found["index"]) % processors == self._index
        )


class FileSync:
    """Has files and folders written to the disk, in a thread, so that the worker goes on meanwhile.

    Example:
        >>> sync = FileSync()
        >>> sync.begin(["/tmp"])
        >>> while not sync.is_done():
        ...     pass
    """

    def __init__(self) -> None:
        self._thread: Thread | None = None
        self._error: OSError | None = None

    @property
    def is_begun(self) -> bool:
        """Whether `begin` was called and `is_done` has not returned True."""
        return self._thread is not None

    def begin(self, paths: list[str]) -> None:
        """Begin with some paths."""
        self._error = None
        self._thread = Thread(target=self._sync, args=(paths,), name="shmjet-file-sync")
        self._thread.start()

    def is_done(self) -> bool:
        """Say whether all is on the disk. Raises OSError when it cannot be written; it names the path."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()
            if self._error is not None:
                raise self._error
        return self._thread is None

    def wait(self) -> None:
        """Wait for the end of what has begun."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _sync(self, paths: list[str]) -> None:
        try:
            for path in paths:
                with path_in_errors(path):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        os.fsync(fd)
                    finally:
                        os.close(fd)
        except OSError as error:
            self._error = error


def synced_folder(folder: Folder) -> list[str]:
    """Return what has to be synced for names in a folder to last."""
    return [] if folder.is_remote else [folder.path]


__all__ = ["FileSync", "Part", "PartFiles", "State", "synced_folder"]
