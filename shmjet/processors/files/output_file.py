"""The base of sinks that write files: one file, or one part after the other.

Without a guarantee a processor writes one file, which is kept when it has all its items. Under a guarantee, and where
files are rolled, it writes parts (`part_files`): a snapshot seals the part that is open and lists it, and when the
snapshot is valid the part gets its name. Must not know what is in the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic
from typing import IO, Any, Protocol

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.inbox import Inbox
from shmjet.core.job import ProcessingGuarantee
from shmjet.core.processor import ProcessorContext
from shmjet.processors.files.compression import packing
from shmjet.processors.files.new_file import path_in_errors
from shmjet.processors.files.part_files import FileSync, PartFiles, State, synced_folder
from shmjet.processors.files.paths import Folder
from shmjet.processors.general.base import BulkProcessor

_SYNC_POLL = 0.001
"""Seconds between two looks whether files are on the disk."""


@dataclass(frozen=True)
class PartOptions:
    """When parts end, and when they get their names.

    Args:
        exactly_once: in an EXACTLY_ONCE job, when a snapshot is valid; else as soon as they are complete.
        roll_by_size: bytes from which on a part is complete; None: however large.
        roll_by_time: seconds after which a part is complete; None: however old.
    """

    exactly_once: bool = True
    roll_by_size: int | None = None
    roll_by_time: float | None = None

    @property
    def rolls(self) -> bool:
        """Whether parts end before the job does, also without a guarantee."""
        return self.roll_by_size is not None or self.roll_by_time is not None


class SingleFile(Protocol):
    """The file of a processor that writes only one."""

    @property
    def path(self) -> str:
        """Its final path."""

    def open(self) -> IO[bytes]:
        """Begin to write."""

    def keep(self) -> None:
        """Keep it, complete; what was opened is closed."""

    def drop(self) -> None:
        """Remove it, unless it was kept."""


class FileSink(BulkProcessor):
    """Writes what `encode` makes of items. A subclass says that, and which files they are."""

    state_kind = "files written in parts"

    opens_at_once = True
    """Whether the single file is there without an item, too."""

    suffix = ""
    """Of the names of parts."""

    stage = 0
    """Which of the stages of a job that write into the folder this is."""

    compression: str | None = None

    def __init__(self, folder: Folder, options: PartOptions) -> None:
        self._folder = folder
        self._options = options
        self._parts: PartFiles | None = None
        self._single: SingleFile | None = None
        self._file: IO[bytes] | None = None
        self._target: IO[bytes] | None = None
        self._opened_at = 0.0
        self._item_size = 0.0
        self._most = 1
        self._listed = 0
        self._named = 0
        self._is_recovered = False
        self._states: list[State] = []
        self._sync = FileSync()

    def single_file(self, context: ProcessorContext) -> SingleFile:
        """Return the file of a processor that writes only one."""
        raise NotImplementedError

    def begin_file(self) -> None:
        """Get ready for the first items of a file."""

    def encode(self, items: list[Any]) -> Iterable[Any]:
        """Return the bytes of a list of items, in pieces."""
        raise NotImplementedError

    def end_file(self, file: IO[bytes]) -> None:
        """Write what can only be written at the end of a file."""

    def start(self, context: ProcessorContext) -> None:
        """Choose between one file and parts; make the folder."""
        self._folder.create()
        self.next_call = math.inf
        if not (context.snapshotting_enabled or self._options.rolls):
            self._single = self.single_file(context)
            if self.opens_at_once:
                self._open()
            return
        is_exact = context.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE and self._options.exactly_once
        self._parts = PartFiles(
            self._folder, context.global_index, self.stage, self.suffix, context.job_id, keeps_back=is_exact
        )

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write a list; where a size ends parts, in slices after which the size is looked at."""
        if self._parts is None or self._options.roll_by_size is None:
            self._write(items)
            return
        begin = 0
        while begin < len(items):
            part = items[begin : begin + self._fitting(self._options.roll_by_size)]
            mean = self._write(part) / len(part)
            self._item_size = max(mean, (mean + self._item_size) / 2)  # a few short items do not make it small at once
            self._most = 2 * len(part)
            begin += len(part)

    def try_process(self) -> bool:
        """Seal a part that is old enough."""
        self._roll()
        return True

    def save_to_snapshot(self) -> bool:
        """Seal the part that is open, and list the parts without a name yet."""
        if self._parts is None:
            return True
        self._recover()
        self._seal()
        if not self.outbox.offer_to_snapshot(BroadcastKey(self.context.global_index), self._parts.state()):
            return False
        self._listed = self._parts.sealed
        return True

    def snapshot_commit_prepare(self) -> bool:
        """Have the listed parts written to the disk."""
        return self._parts is None or self._synced(self._parts.unsynced())

    def snapshot_commit_finish(self, success: bool) -> bool:
        """Give the listed parts their names; without success they are listed by the next snapshot, too."""
        if self._parts is None or not success:
            return True
        if self._listed:
            self._parts.name_sealed(self._listed)
            self._listed, self._named = 0, 1
        if self._named and not self._synced(synced_folder(self._folder)):
            return False
        self._named = 0
        return True

    def restore_from_snapshot(self, inbox: Inbox) -> None:
        """Take the lists of all processors."""
        self._states += [state for _, state in inbox.take()]

    def finish_snapshot_restore(self) -> bool:
        """Name what the snapshot lists, and remove what it does not."""
        self._recover()
        return True

    def finish(self) -> bool:
        """Keep what is written."""
        if self._parts is not None:
            self._recover()
            self._seal()
            self._parts.name_sealed(self._parts.sealed)
        elif self._single is not None and self._target is not None:
            self._close_file()
            self._single.keep()
        self._single = None
        return True

    def close(self) -> None:
        """Remove what is unfinished, but for what a snapshot may list."""
        self._sync.wait()
        target, file, self._target, self._file = self._target, self._file, None, None
        for opened in (target, file):
            if opened is not None:
                try:
                    opened.close()
                except Exception:  # what it has not written is not wanted
                    self.context.logger.debug("closing %s", self._path, exc_info=True)
        if self._parts is not None:
            self._parts.drop(self._listed)
        elif self._single is not None:
            self._single.drop()

    @property
    def _path(self) -> str:
        if self._parts is not None:
            return self._parts.path
        return self._single.path if self._single is not None else self._folder.path

    def _open(self) -> None:
        self._file = self._target = self._parts.open() if self._parts is not None else self._single_open()
        if self.compression is not None:
            self._target = packing(self._file, self.compression)
        self._opened_at = monotonic()
        self.begin_file()

    def _fitting(self, size: int) -> int:
        """Return how many items are written before the size of a part is looked at again; at least one.

        They would fill at most half of what is left if they were as long as the ones before; they may be longer. And
        they are at most twice as many as the ones before.
        """
        room = size - (0 if self._file is None else self._file.tell())
        return max(1, min(self._most, int(room / (2 * self._item_size)))) if self._item_size else 1

    def _write(self, items: list[Any]) -> int:
        """Write items into the file that is open, or a new one. Returns how many bytes they are, before compression."""
        if self._target is None:
            self._recover()
            self._open()
        target = self._target
        assert target is not None
        written = 0
        for piece in self.encode(items):
            with path_in_errors(self._path):
                target.write(piece)
            written += memoryview(piece).nbytes
        self._roll()
        return written

    def _single_open(self) -> IO[bytes]:
        assert self._single is not None
        return self._single.open()

    def _close_file(self) -> None:
        """Close the file; what cannot be written to a full disk is known then."""
        file, target = self._file, self._target
        assert file is not None
        assert target is not None
        with path_in_errors(self._path):
            self.end_file(file)
            if target is not file:
                target.close()
            file.close()
        self._file = self._target = None

    def _seal(self) -> None:
        if self._parts is not None and self._target is not None:
            self._close_file()
            self._parts.seal()

    def _roll(self) -> None:
        """Seal a part that is large or old enough, and say when the next one will be old enough."""
        size, seconds = self._options.roll_by_size, self._options.roll_by_time
        if self._file is not None and self._parts is not None:
            is_large = size is not None and self._file.tell() >= size
            if is_large or (seconds is not None and monotonic() - self._opened_at >= seconds):
                self._seal()
        is_timed = seconds is not None and self._target is not None
        self.next_call = max(0.0, self._opened_at + (seconds or 0.0) - monotonic()) if is_timed else math.inf

    def _recover(self) -> None:
        """Once, before the first part: finish what earlier attempts have left."""
        if self._parts is not None and self.context.snapshotting_enabled and not self._is_recovered:
            self._parts.recover(self._states, self.context.total_parallelism)
            self._states = []
        self._is_recovered = True

    def _synced(self, paths: list[str]) -> bool:
        """Sync paths in the background where that is promised; True when that is done."""
        is_exact = self.context.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE and self._options.exactly_once
        if not self._sync.is_begun:
            if not paths or not is_exact:
                return True
            self._sync.begin(paths)
        self.next_call = _SYNC_POLL
        if not self._sync.is_done():
            return False
        self._roll()
        return True
