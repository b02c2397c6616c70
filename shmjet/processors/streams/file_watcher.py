"""Lines that are appended to the files of a folder, and lines of new files. After Jet's `StreamFilesP`.

A file is known by its inode: renamed, it goes on where it was; another file under its name is new. Each processor reads
the files whose inodes are its own. Must not know: how changes are told, and what a line means (`LineFormat`).
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from stat import S_ISREG
from time import monotonic_ns
from typing import Any

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.processor import ProcessorContext
from shmjet.core.wake_up import wake_up_in
from shmjet.processors.streams.file_tail import FileTail, Lines, SavedTail
from shmjet.processors.streams.folder_changes import FolderChanges, changes_of
from shmjet.processors.streams.line_format import LineFormat
from shmjet.processors.time.timed_items import PartitionItems
from shmjet.processors.time.timed_source import TimedSource

_MOVING_NS = 1_000_000_000
"""A file that has been moved away for so long is forgotten."""


class FileWatcherProcessor(TimedSource):
    """Emits what is appended to its files. It ends when the folder is removed.

    Args:
        folder: absolute path.
        glob: pattern of the names of files.
        format_: how lines become items.
        policy: of its event time; None: it has none.
    """

    state_kind = "file_watcher"

    def __init__(self, folder: str, glob: str, format_: LineFormat, policy: EventTimePolicy | None) -> None:
        super().__init__(policy)
        self._folder = folder
        self._glob = glob
        self._format = format_
        self._changes: FolderChanges | None = None
        self._saved: dict[int, SavedTail] = {}
        self._is_restored = False

    def start(self, context: ProcessorContext) -> None:
        """Listen to the folder, and note what is in its files now, which is left out."""
        self._changes = changes_of(self._folder, wake_up_in(context), context.logger)
        self._found: dict[str, int] = {}
        """The inode of each file that has been seen under a name."""
        self._tails: dict[int, FileTail] = {}
        self._unread: dict[int, None] = {}
        """Files that may have more."""
        self._nameless: dict[int, int] = {}
        """Files that have been moved away, and when; they may come back under another name."""
        self._is_looked_through = False
        self._look(at_start=True)

    def first_partitions(self) -> Sequence[Hashable]:
        """Return one source partition, or none as long as there are no files: then it holds no watermark back."""
        self._begin_files()
        self._is_active = bool(self._tails)
        return super().first_partitions() if self._is_active else ()

    def read(self) -> Iterable[PartitionItems]:
        """Return the lines of one file that has more, or nothing."""
        changes = self._changes
        assert changes is not None
        self._begin_files()
        self._take(changes)
        while self._unread:
            inode = next(iter(self._unread))
            del self._unread[inode]
            tail = self._tails.get(inode)
            lines = None if tail is None else self._lines(tail, inode)
            if tail is None or lines is None or not lines.data:
                continue
            if lines.more:
                self._unread[inode] = None  # behind the others
            if not self._is_active:
                self._is_active = True
                self.add_partitions(*super().first_partitions())
            self.read_again = 0.0
            return [PartitionItems(self._format.items(tail, lines))]
        self.read_again = changes.patience
        return ()

    def saved_positions(self) -> Iterable[tuple[Any, Any]]:
        """Return how far each file has been read, as one entry."""
        self._begin_files()
        tails = tuple((inode, *tail.saved) for inode, tail in self._tails.items())
        return [(BroadcastKey(("files", self.context.global_index)), tails)]

    def restore_positions(self, entries: list[tuple[Any, Any]]) -> None:
        """Take how far the files of all processors have been read."""
        self._is_restored = True
        for _, tails in entries:
            self._saved.update((inode, SavedTail(*saved)) for inode, *saved in tails)

    def close(self) -> None:
        """Stop listening."""
        if self._changes is not None:
            self._changes.close()
            self._changes = None

    # -- files ----------------------------------------------------------------------------------------------------

    def _begin_files(self) -> None:
        """Choose where to begin in each file, once: at what was saved, or behind what was there at the start."""
        if self._is_looked_through:
            return
        self._is_looked_through = True
        self._unread = {}
        if self._is_restored:
            for inode, tail in list(self._tails.items()):
                self._tails[inode] = FileTail(tail.path, inode, self._saved.get(inode))
            self._saved = {}
            self._unread = dict.fromkeys(self._tails)

    def _take(self, source: FolderChanges) -> None:
        """Note what has changed."""
        changes = source.take()
        if changes.gone:
            self.ended = True
            return
        for name in changes.deleted:
            inode = self._found.pop(name, None)
            if inode is not None and inode not in self._found.values():
                self._forget(inode)
        if changes.all:
            self._look()
        for name in changes.names:
            self._look_at(name)
        now = monotonic_ns()
        for inode in [inode for inode, since in self._nameless.items() if now - since > _MOVING_NS]:
            self._forget(inode)

    def _look(self, *, at_start: bool = False) -> None:
        """Look at the whole folder, also for files that have gone."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return  # that it has gone is told, too
        for name in names:
            self._look_at(name, at_start=at_start)
        for name in self._found.keys() - set(names):
            del self._found[name]
        here = set(self._found.values())
        for inode in [inode for inode in self._tails if inode not in here]:
            self._forget(inode)

    def _look_at(self, name: str, *, at_start: bool = False) -> None:
        """Look what is under a name now."""
        path = os.path.join(self._folder, name)
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            self._note(name, None)
            return
        inode = status.st_ino
        if not S_ISREG(status.st_mode) or inode % self.context.total_parallelism != self.context.global_index:
            self._note(name, None)
            return
        is_new_name = self._found.get(name) != inode
        self._note(name, inode)
        tail = self._tails.get(inode)
        if tail is None:
            tail = self._first(path, inode, at_start) if self._is_wanted(name) else None
            if tail is None:
                return
            self._tails[inode] = tail
        if is_new_name and os.path.islink(path) and self._changes is not None:
            self._changes.follow(path)
        if status.st_size != tail.saved.offset:
            self._unread[inode] = None

    def _note(self, name: str, inode: int | None) -> None:
        """Note which file is under a name; None: none of this processor."""
        before = self._found.pop(name, None)
        if inode is not None:
            self._found[name] = inode
            self._nameless.pop(inode, None)
        if before is not None and before != inode and before in self._tails and before not in self._found.values():
            self._nameless[before] = monotonic_ns()

    def _is_wanted(self, name: str) -> bool:
        """Say whether a file of this name is to be read; names that begin with a dot only if the pattern does."""
        return fnmatchcase(name, self._glob) and (self._glob.startswith(".") or not name.startswith("."))

    def _first(self, path: str, inode: int, at_start: bool) -> FileTail | None:
        """Return a file that has not been seen before; None when it has gone."""
        if not at_start:
            return FileTail(path, inode)
        try:
            return FileTail.at_end(path, inode)
        except FileNotFoundError:
            return None

    def _lines(self, tail: FileTail, inode: int) -> Lines | None:
        """Return what a file has more; None when it is not there now."""
        if self._found.get(os.path.basename(tail.path)) != inode:  # it has been renamed
            name = next((name for name, found in self._found.items() if found == inode), None)
            tail.path = tail.path if name is None else os.path.join(self._folder, name)
        try:
            return tail.read()
        except FileNotFoundError:
            return None

    def _forget(self, inode: int) -> None:
        """Forget a file that is not here any more."""
        self._tails.pop(inode, None)
        self._unread.pop(inode, None)
        self._nameless.pop(inode, None)
