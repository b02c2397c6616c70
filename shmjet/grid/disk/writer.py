"""The thread of a member that brings the changes of its store to disk.

It follows the log of changes (`grid.change_log`) of all environments and appends the records to one file, which it
syncs once for all that has been changed meanwhile. A word of each environment tells up to which number its records are
on disk (`CommitCounters`): records behind it stay in the store. When a log has become long, a new
one is begun, and a second thread copies the environments; when the copy is on disk, older files go.

An error of the disk is tried again until it is over. What was being written then begins anew in another file, because
after an error of a sync it is not known what of the old one is on disk.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Final

import msgspec

from shmjet.data.decoders import msgpack_decoder
from shmjet.grid.blobs import A_GONE_FILE
from shmjet.grid.change_log import NewBlocks, NewEvents, Puts, decode_changes, raw_records
from shmjet.grid.commit_counters import DISK_ERROR, LOGGED, ON_DISK
from shmjet.grid.disk.checksums import of_file
from shmjet.grid.disk.files import (
    CHECKPOINT,
    CLOCK,
    LOG,
    UNFINISHED,
    CheckpointFile,
    Clock,
    frame,
    generations,
)
from shmjet.grid.errors import GridError
from shmjet.grid.layout import HAS_BLOBS, RESERVE_FILE
from shmjet.grid.store import Opened
from shmjet.host.folders import remove_file, sync_file, sync_folder

CLOCK_FILE: Final = "clock.json"
_READ: Final = 4 << 20
"""Bytes of records that are read at once."""
_LOOK_NS: Final = 500_000_000
"""When it is looked whether a process has died between a change and telling of it."""
_RETRY_S: Final = 0.5
_LEAST_LOG: Final = 64 << 20
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_RESERVE: Final = 2 << 20
"""Room on disk that is kept for a checkpoint that makes more of it."""
_CLOCK_SET_NS: Final = 1_000_000_000
"""By how much the wall clock has to have been set that a new log says so."""
_EMPTY: Final = 64 << 10
"""What a copy of an environment takes at most for itself."""

_decode_record = msgpack_decoder(list[tuple[int, msgspec.Raw]]).decode

logger = logging.getLogger("shmjet.member")


def give_up_reserve(folder: Path) -> None:
    """Give up the room that is kept on disk where there is no other one left: a store can be brought back with it."""
    reserve = folder / RESERVE_FILE
    if reserve.exists():
        found = os.statvfs(folder)
        if found.f_bavail * found.f_frsize < _EMPTY:
            reserve.unlink()


class DiskWriter:
    """See the module.

    Args:
        opened: the store.
        folder: where its files are; `restore` has been there.
        sync_s: about how many seconds a change may be in memory alone; 0: it is written at once.
        log_bytes: length of a log from which on a new one is begun.
    """

    def __init__(self, opened: Opened, folder: Path, sync_s: float, *, log_bytes: int = _LEAST_LOG) -> None:
        assert opened.disk is not None
        self._opened = opened
        self._folder = folder
        self._pause = sync_s / 2
        self._least = log_bytes
        self._reserve = folder / RESERVE_FILE
        self._bell = opened.disk.bell
        self._at = [env.announced[ON_DISK] for env in opened.environments]
        self._generation = max([*generations(folder, LOG), *generations(folder, CHECKPOINT)], default=0)
        self._fd = -1
        self._synced = 0
        """Bytes of the log that are on disk."""
        self._offset = 0
        """Of the host's clock, as the log says."""
        self._since = sum((folder / f"{LOG}{number}").stat().st_size for number in generations(folder, LOG))
        """Bytes of all logs that are behind the last checkpoint."""
        self._limit = max(log_bytes, _size_of_checkpoint(folder) // 4)
        self._has_appended = False
        """Whether anything has changed since the start: what was there before is not copied anew for nothing."""
        self._copying: threading.Thread | None = None
        self._stopping = threading.Event()
        self._turn = threading.Lock()
        """Held while the thread, or who waits for all to be on disk, writes."""
        self._thread = threading.Thread(target=self._run, name="shmjet-disk", daemon=True)

    def start(self) -> None:
        """Begin.

        Raises:
            OSError: nothing can be written there.
        """
        self._begin_log()
        self._keep_reserve()
        self._thread.start()

    def sync(self) -> None:
        """Return when all changes that have been committed are on disk. For any thread.

        Raises:
            OSError: they cannot be written.
        """
        with self._turn:
            try:
                self._write()
            except GridError as error:
                raise OSError(errno.EIO, f"maps and lists cannot be written to disk: {error}") from error

    def stop(self) -> None:
        """Bring what is left to disk, and end. No process may change the store any more."""
        self._stopping.set()
        self._bell.post()
        self._thread.join()
        if self._copying is not None:
            self._copying.join()
        try:
            self.sync()
        except OSError as error:
            logger.error("the last changes of maps and lists are not on disk: %s: %s", self._folder, str(error))
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _run(self) -> None:
        failed = False
        while not self._stopping.is_set():
            seen = self._bell.commands
            try:
                with self._turn:
                    self._write()
                    self._rotate_if_long()
                if failed:
                    self._keep_reserve()
                    logger.warning("maps and lists are written to %s again", self._folder)
                failed = False
            except Exception as error:
                if not isinstance(error, OSError | GridError):
                    logger.exception("the writer of maps and lists to disk has failed, and goes on")
                self._words()[DISK_ERROR] = (error.errno if isinstance(error, OSError) else None) or errno.EIO
                if not failed:
                    logger.error(
                        "maps and lists cannot be written to %s (%s); what changes is in memory alone until they can",
                        self._folder,
                        str(error),  # the error itself would keep the store from being let go of
                    )
                failed = True
                if not self._make_room(error):
                    self._stopping.wait(_RETRY_S)
                continue
            self._bell.wait([], seen, 0, _LOOK_NS)
            if self._pause:
                self._stopping.wait(self._pause)

    def _words(self) -> memoryview:
        return self._opened.environment(0).announced

    # -- the log ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Append what there is, sync it, and tell writers."""
        gone = self._gone_files()
        reached = list(self._at)
        if self._fd < 0:
            self._begin_log()
        elif abs(Clock.offset_of_host() - self._offset) > _CLOCK_SET_NS:
            self._replace_log()
        try:
            for index, env in enumerate(self._opened.environments):
                while env.announced[LOGGED] != reached[index]:
                    records, reached[index] = raw_records(env, reached[index], _READ)
                    if not records:  # not committed, or given up
                        break
                    if self._has_large_values():  # looked at when the records are known: files come before them
                        self._sync_large_values(records)
                    self._append(b"".join([frame(index, number, record) for number, record in records]))
        except BaseException:
            os.ftruncate(self._fd, self._synced)
            raise
        if reached != self._at:
            self._sync()
            self._has_appended = True
        self._words()[DISK_ERROR] = 0
        for env, number in zip(self._opened.environments, reached, strict=True):
            env.announced[ON_DISK] = number
        self._at = reached
        for path in gone:
            remove_file(path, A_GONE_FILE)

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def _sync_large_values(self, records: list[tuple[int, bytes]]) -> None:
        """Let the files that records name reach the disk: before the records, which may get there at any time."""
        names = {name for _, record in records for name in self._large_values(record)}
        if not names:
            return
        blobs = self._opened.blobs
        assert blobs.gone is not None
        for folder in (blobs.folder, blobs.gone):  # it may have been replaced already, by a change of a later record
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    sync_file(folder / name.decode())
            sync_folder(folder)

    def _sync(self) -> None:
        """Let the log reach the disk."""
        end = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            os.fdatasync(self._fd)
        except OSError:  # what of it is on disk is not known: it begins anew in another file
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.ftruncate(fd, self._synced)
            os.close(fd)
            raise
        self._since += end - self._synced
        self._synced = end

    def _begin_log(self) -> None:
        generation = self._generation + 1
        path = self._folder / f"{LOG}{generation}"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        clock = Clock.of_host()
        head = frame(CLOCK, 0, msgspec.json.encode(clock))
        try:
            if os.write(fd, head) < len(head):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fdatasync(fd)
            sync_folder(self._folder)
        except BaseException as error:
            os.close(fd)
            if isinstance(error, OSError):
                error.filename = error.filename or str(path)
            raise
        self._fd, self._synced, self._generation, self._offset = fd, len(head), generation, clock.offset

    def _replace_log(self) -> None:
        """Begin a new log, and close the one before, all of which is on disk."""
        before = self._fd
        self._begin_log()
        os.close(before)

    def _has_large_values(self) -> bool:
        blobs = self._opened.blobs
        for folder in (blobs.folder, blobs.gone):
            assert folder is not None
            with os.scandir(folder) as found:
                if next(found, None) is not None:
                    return True
        return False

    def _large_values(self, record: bytes) -> list[bytes]:
        """Return the names of the files that a record needs."""
        names: list[bytes] = []
        codec = self._opened.codec
        for _, changes in _decode_record(record):
            for change in decode_changes(changes):
                if isinstance(change, Puts) and change.flags & HAS_BLOBS:
                    for _, stored in change.entries:
                        names += codec.blobs_of(stored)
                elif isinstance(change, NewBlocks) and change.flags & HAS_BLOBS:
                    for _, block in change.blocks:
                        names += codec.blobs_of_block(block)
                elif isinstance(change, NewEvents):
                    for _, event in change.events:
                        names += codec.blobs_of_event(event)
        return names

    def _gone_files(self) -> list[Path]:
        """Return the files that no entry names any more; what says so is in the log already."""
        gone = self._opened.blobs.gone
        return [] if gone is None else [gone / name for name in os.listdir(gone)]

    # -- checkpoints --------------------------------------------------------------------------------------------

    def _rotate_if_long(self) -> None:
        if self._since < self._limit or not self._has_appended or self._stopping.is_set():
            return
        if self._copying is not None:
            if self._copying.is_alive():
                return
            self._copying.join()
        self._replace_log()
        self._since = 0
        self._copying = threading.Thread(target=self._copy, args=(self._generation,), name="shmjet-checkpoint")
        self._copying.start()

    def _make_room(self, error: Exception) -> bool:
        """Have a checkpoint take the place of the logs of a full disk, where that makes much room; say whether it did.

        All that was to be appended to a log is in the checkpoint, too.
        """
        is_copying = self._copying is not None and self._copying.is_alive()
        if not isinstance(error, OSError) or error.errno not in _FULL or is_copying:
            return False
        size = sum(env.size() for env in self._opened.environments)
        found = os.statvfs(self._folder)
        free = found.f_bavail * found.f_frsize + (_RESERVE if self._reserve.exists() else 0)
        if size > self._since // 2 or size + _EMPTY * len(self._opened.environments) > free:
            return False
        self._reserve.unlink(missing_ok=True)
        with self._turn:
            before = self._fd
            try:
                self._begin_log()
            except OSError:
                return False
            if before >= 0:
                os.close(before)
            self._since = 0
        return self._copy(self._generation)

    def _keep_reserve(self) -> None:
        try:
            with self._reserve.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE)
        except OSError:  # as much as there is
            return

    def _copy(self, generation: int) -> bool:
        """Copy all environments: they have what all logs before a generation have. Says whether that is on disk."""
        making = self._folder / f"{UNFINISHED}{generation}"
        try:
            shutil.rmtree(making, ignore_errors=True)
            making.mkdir(mode=0o700)
            written = []
            for index, env in enumerate(self._opened.environments):
                if self._stopping.is_set():
                    raise InterruptedError(errno.EINTR, "the member ends")
                with (making / str(index)).open("x+b", 0) as file:
                    env.copy_to(file.fileno())
                    written.append((os.fstat(file.fileno()).st_size, of_file(file)))
                    os.fsync(file.fileno())
            clock = Clock.of_host()
            CheckpointFile(clock.boot, clock.offset, written).write(making / CLOCK_FILE)
            sync_folder(making)
            os.rename(making, self._folder / f"{CHECKPOINT}{generation}")
            sync_folder(self._folder)
            self._limit = max(self._least, sum(size for size, _ in written) // 4)
            self._remove_before(generation)
            return True
        except (OSError, GridError) as error:  # all logs stay, so nothing is lost
            if not self._stopping.is_set():
                logger.warning("no checkpoint of maps and lists could be made in %s: %s", self._folder, str(error))
            shutil.rmtree(making, ignore_errors=True)
            return False

    def _remove_before(self, generation: int) -> None:
        for number in generations(self._folder, LOG):
            if number < generation:
                remove_file(self._folder / f"{LOG}{number}", "a log of maps and lists that is not needed any more")
        for number in generations(self._folder, CHECKPOINT):
            if number < generation:
                shutil.rmtree(self._folder / f"{CHECKPOINT}{number}", ignore_errors=True)


def _size_of_checkpoint(folder: Path) -> int:
    """Return the bytes of the environments in the newest checkpoint."""
    newest = max(generations(folder, CHECKPOINT), default=0)
    if not newest:
        return 0
    return sum(path.stat().st_size for path in (folder / f"{CHECKPOINT}{newest}").iterdir())
