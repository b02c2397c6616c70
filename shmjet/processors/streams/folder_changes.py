"""What changes in a folder: told by inotify where that is possible, else found by looking.

Both kinds say which names may have changed; what has changed there is for the caller to find out. inotify (through the
package inotify_simple) tells at once and costs nothing meanwhile; without the package the folder is looked at ten times
a second. Changes that other hosts make on a network file system are not told by inotify.
"""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from shmjet.processors.streams.readable import ReadableThread

LOOK_EVERY = 0.1
"""Seconds between two looks at a folder where no changes are told."""


class Changes(NamedTuple):
    """What may have changed since the last time."""

    names: tuple[str, ...] = ()
    """Entries of the folder that were made, written to or moved."""
    deleted: frozenset[str] = frozenset()
    """Names whose file was deleted at least once since then."""
    all: bool = False
    """Anything may have changed: the whole folder has to be looked at."""
    gone: bool = False
    """The folder itself is not there any more."""


class FolderChanges(Protocol):
    """Tells what changes in a folder."""

    patience: float
    """Seconds after which it wants to be asked again; `math.inf`: it wakes the processor up."""

    def take(self) -> Changes:
        """Return what may have changed since the last call."""

    def follow(self, path: str) -> None:
        """Have changes of a file told that lies elsewhere, to which a link in the folder leads."""

    def close(self) -> None:
        """Let go of what it has opened."""


class ToldChanges:
    """Changes that inotify tells.

    Args:
        inotify: the module inotify_simple.
        folder: whose.
        wake_up: called when there is something to take.
    """

    patience = math.inf

    def __init__(self, inotify: Any, folder: str, wake_up: Callable[[], None]) -> None:
        flags = self._flags = inotify.flags
        self._gone = flags.DELETE_SELF | flags.MOVE_SELF | flags.UNMOUNT
        self._inotify = inotify.INotify(nonblocking=True)
        mask = flags.CREATE | flags.MODIFY | flags.MOVED_FROM | flags.MOVED_TO | flags.DELETE | flags.ONLYDIR
        try:
            self._folder = self._inotify.add_watch(folder, mask | flags.DELETE_SELF | flags.MOVE_SELF)
        except BaseException:
            self._inotify.close()
            raise
        self._links: dict[int, str] = {}
        self._thread = ReadableThread(self._inotify.fileno(), wake_up)

    def take(self) -> Changes:
        """Return what was told; then wake up at the next change."""
        flags = self._flags
        names: dict[str, None] = {}
        deleted: set[str] = set()
        everything = gone = False
        for event in self._inotify.read(timeout=0):
            if event.wd != self._folder:
                everything = everything or bool(event.mask & flags.Q_OVERFLOW)
                if event.wd in self._links:
                    names[self._links[event.wd]] = None
            elif event.mask & (self._gone | flags.IGNORED):
                gone = True
            else:
                names[event.name] = None
                if event.mask & flags.DELETE:
                    deleted.add(event.name)
        self._thread.arm()
        return Changes(tuple(names), frozenset(deleted), everything, gone)

    def follow(self, path: str) -> None:
        """Watch a file that lies elsewhere."""
        with suppress(FileNotFoundError):  # it has just gone
            self._links[self._inotify.add_watch(path, self._flags.MODIFY)] = os.path.basename(path)

    def close(self) -> None:
        """Stop the thread, and let go of the watch."""
        self._thread.close()
        self._inotify.close()


class FoundChanges:
    """Changes that are found by looking.

    Args:
        folder: whose.
    """

    patience = LOOK_EVERY

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def take(self) -> Changes:
        """Have the folder looked at."""
        gone = not os.path.isdir(self._folder)
        return Changes(all=not gone, gone=gone)

    def follow(self, path: str) -> None:
        """Do nothing: it is looked at with the others."""

    def close(self) -> None:
        """Do nothing."""


def changes_of(folder: str, wake_up: Callable[[], None], logger: logging.Logger) -> FolderChanges:
    """Return what tells the changes of a folder, from now on.

    Where inotify has reached a limit of the host the folder is looked at, and a warning names the limits.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder; the text says so.
    """
    if not os.path.isdir(folder):
        kind = NotADirectoryError if os.path.exists(folder) else FileNotFoundError
        raise kind(f"file_watcher: there is no folder {folder!r}; make it before the job starts")
    try:
        import inotify_simple  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ModuleNotFoundError:
        return FoundChanges(folder)
    try:
        return ToldChanges(inotify_simple, folder, wake_up)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENOSPC):
            raise
        logger.warning(
            "file_watcher: %s is looked at %g times a second, as inotify cannot watch it: %s; raise "
            "fs.inotify.max_user_instances or fs.inotify.max_user_watches with sysctl",
            *(folder, 1 / LOOK_EVERY, error),
        )
        return FoundChanges(folder)
