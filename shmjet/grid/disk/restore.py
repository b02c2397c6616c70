"""Makes a store from what is on disk: the newest checkpoint, and the records of the logs behind it.

A checkpoint has, for each environment, all that the logs before it have, and perhaps more; records say what is so now,
and records that an environment has already are left out by their numbers. Times count from the host's boot: where the
host has been started anew, they are moved so that an entry ends at the same time of day as before.
"""

from __future__ import annotations

import logging
import mmap
import os
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Literal

import lmdb
import msgspec

from shmjet.core.map_config import MapConfig, config_of
from shmjet.data.decoders import from_json, msgpack_decoder
from shmjet.data.errors import ConfigError
from shmjet.grid.blobs import A_GONE_FILE
from shmjet.grid.change_log import decode_changes, last_number, trim
from shmjet.grid.changes import Changes, Entry, Rules, flags_of
from shmjet.grid.commit_counters import BACKED_UP, LOGGED, ON_DISK
from shmjet.grid.disk.checksums import CHANGED, of_file
from shmjet.grid.disk.files import (
    CHECKPOINT,
    CLOCK,
    LOG,
    STORE_FILE,
    UNFINISHED,
    CheckpointFile,
    Clock,
    StoreFile,
    damaged,
    frames,
    generations,
)
from shmjet.grid.disk.writer import CLOCK_FILE
from shmjet.grid.environment import Environment, Transaction, behind
from shmjet.grid.errors import GridError
from shmjet.grid.layout import (
    BLOB_FOLDER,
    GONE_FOLDER,
    HAS_BLOBS,
    HAS_TIMES,
    INCARNATION,
    INDEX,
    LAST_CHANGE,
    LIST_RECORD,
    MAP_RECORD,
    RESERVE_FILE,
    VERSION,
    Layout,
    Record,
)
from shmjet.grid.ownership import close_partitions
from shmjet.grid.replica import apply_changes
from shmjet.grid.side_by_side import SideBySide
from shmjet.grid.store import ENVIRONMENTS_OF_A_CLUSTER, Grid, Opened
from shmjet.grid.sweeping import EVENTS
from shmjet.host.folders import remove_file, usable_folder

_PORTION = 64
"""Records that are applied in one transaction."""
_COPIED = 64 << 20
"""Bytes of a checkpoint that are copied at once."""
_MOST_THREADS = 4
"""Which copy a checkpoint: more of them wait for the disk or the memory."""
_HEAD = 4096
"""Bytes of a log that have its first frame."""
_TELL_S = 5.0
_MOVED = 1024
"""Entries whose times are moved in one transaction."""
_decode_record = msgpack_decoder(list[tuple[int, msgspec.Raw]]).decode

logger = logging.getLogger("shmjet.member")


def restore(
    folder: Path,
    disk: Path,
    partition_count: int,
    maps: Mapping[str, MapConfig],
    *,
    waits_for_disk: bool,
    is_divided: bool = False,
    phase: Callable[[str], None] = lambda _: None,
) -> None:
    """Make the store of a member that is kept on disk, with all that is there.

    Args:
        folder: of the store in memory; it must not be there.
        disk: where it is kept; it is made if it is not there.
        partition_count: of maps; that on disk has to be the same.
        maps: settings of maps, by name or pattern.
        waits_for_disk, is_divided: see `shmjet.grid.layout.Layout`. No partition is open afterwards.
        phase: takes what is being done.

    Raises:
        ConfigError: what is there was made with other settings, or by another version.
        GridError: it is damaged, or there is no room for it in memory.
        OSError: it cannot be read, or the folder cannot be made.
    """
    for place in (disk, disk / BLOB_FOLDER, disk / GONE_FOLDER):
        usable_folder(place)
    found = StoreFile.read(disk, VERSION)
    _look_for_lost_files(disk, is_described=found is not None)
    if found is not None and found.partition_count != partition_count:
        raise ConfigError(
            f"JetConfig.partition_count is {partition_count}, but the maps and lists in {disk} have "
            f"{found.partition_count} partitions: give that number, or another folder as storage"
        )
    if found is not None and found.is_divided != is_divided:
        way = "with" if found.is_divided else "without"
        raise ConfigError(
            f"the maps and lists in {disk} were written {way} JetConfig.bind: start it {way} bind, or give another "
            "folder as storage"
        )
    environments = ENVIRONMENTS_OF_A_CLUSTER if is_divided else None
    Grid.create(
        folder,
        partition_count,
        environments=environments if found is None else found.environments,
        maps=maps,
        is_divided=is_divided,
        disk=disk,
        waits_for_disk=waits_for_disk,
    )
    layout = Layout.read(folder)
    made = StoreFile(partition_count, layout.environments, dict(maps), VERSION, is_divided=is_divided)
    if found is None:
        made.write(disk)
        return
    progress = _Progress(phase, disk)
    for path in disk.glob(f"{UNFINISHED}*"):
        shutil.rmtree(path, ignore_errors=True)
    checkpoint = max(generations(disk, CHECKPOINT), default=0)
    clock = None
    if checkpoint:
        clock = _copy(disk / f"{CHECKPOINT}{checkpoint}", folder, layout, progress)
    logs = [disk / f"{LOG}{generation}" for generation in generations(disk, LOG) if generation >= checkpoint]
    clocks = _newest_clocks(clock, logs)
    opened = Opened(folder, layout, is_restoring=True)
    try:
        if clock is not None and (later := clocks.get(clock.boot, clock).later()):
            _move_times(opened, later)
        for path in logs:
            _apply(opened, path, clocks, progress)
        for env in opened.environments:
            if is_divided:
                close_partitions([env], range(partition_count))
            with env.begin() as txn:
                last = last_number(txn)
            for word in (LOGGED, ON_DISK, *((BACKED_UP,) if is_divided else ())):
                env.announced[word] = last
            trim(env)
        _check_limits(opened, found.maps, maps)
        made.write(disk)
        _sort_files(opened, disk)
    finally:
        opened.close()


def _look_for_lost_files(disk: Path, *, is_described: bool) -> None:
    """Raise GridError where files that belong to what is there are not there: all would begin empty, and go on so.

    What describes a store is written before its first log, a log before the checkpoint that goes with it, and the file
    that keeps room after the first log.
    """
    checkpoints, logs = generations(disk, CHECKPOINT), generations(disk, LOG)
    if not is_described:
        lost = STORE_FILE if checkpoints or logs else ""
    elif checkpoints and (not logs or logs[-1] < checkpoints[-1]):
        lost = f"{LOG}{checkpoints[-1]}"
    else:
        lost = "" if logs or not (disk / RESERVE_FILE).exists() else f"all of {LOG}*"
    if lost:
        raise GridError(
            f"{disk} lacks {lost}, without which its maps and lists cannot be read: bring it back from a copy, or give "
            "another folder as storage to begin without them"
        )


class _Progress:
    """Says now and then what is being done, so that who waits for the member sees that it goes on."""

    def __init__(self, phase: Callable[[str], None], disk: Path) -> None:
        self._phase = phase
        self._what = f"bringing its maps and lists back from {disk}"
        self._last = time.monotonic()
        phase(self._what)

    def at(self, file: Path, done: int) -> None:
        """Take that so many bytes of a file are done."""
        if time.monotonic() - self._last > _TELL_S:
            self._last = time.monotonic()
            self._phase(f"{self._what}: {done >> 20} MB of {file.name}")


def _copy(checkpoint: Path, folder: Path, layout: Layout, progress: _Progress) -> Clock:
    """Put the environments of a checkpoint where those of an empty store are; returns their clock."""
    described = CheckpointFile.read(checkpoint / CLOCK_FILE)

    def copy(index: int) -> None:
        source, target, done = checkpoint / str(index), folder / str(index) / "data.mdb", 0
        noted = described.environments[index] if described.environments else None
        with _opened(source, "rb") as read, target.open("wb", 0) as written:
            while copied := os.sendfile(written.fileno(), read.fileno(), done, _COPIED):
                done += copied
                progress.at(source, done)
            if noted is None:
                _look_at(source, target, done)
            elif done != noted[0]:
                raise damaged(source, f"it has {done} bytes, and should have {noted[0]}")
            elif of_file(read) != noted[1]:
                raise damaged(source, CHANGED)

    if described.environments and len(described.environments) != layout.environments:
        raise damaged(checkpoint / CLOCK_FILE, f"it is of a store with {len(described.environments)} environments")
    threads = SideBySide(min(layout.environments, _MOST_THREADS, len(os.sched_getaffinity(0))))
    try:
        threads.do_all([partial(copy, index) for index in range(layout.environments)])
    finally:
        threads.close()
    return described


def _look_at(source: Path, copy: Path, size: int) -> None:
    """Raise GridError where an environment without a checksum is shorter than it says.

    LMDB makes an empty file anew, and maps others.
    """
    try:
        with lmdb.open(str(copy), subdir=False, readonly=True, lock=False) as env:
            wanted = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    except lmdb.Error as error:
        raise damaged(source, str(error)) from error
    if size < wanted:
        raise damaged(source, f"it has {size} bytes, and should have {wanted}")


def _check_limits(opened: Opened, before: Mapping[str, MapConfig], maps: Mapping[str, MapConfig]) -> None:
    """Refuse settings with which the entries of a map, as they are stored, do not go."""
    for name in opened.names(MAP_RECORD):
        old, new = config_of(name, before), config_of(name, maps)
        if _kind(old) != _kind(new):
            raise ConfigError(
                f"JetConfig.maps: the map {name!r} is on disk with {old}, and cannot be used with {new}: whether it "
                "has a limit, evicts, or has a journal stays as it is; to change that, destroy it under the old ones"
            )


def _kind(config: MapConfig) -> tuple[bool, bool, bool]:
    return config.max_bytes is not None, config.eviction == "lru", config.journal_capacity > 0


# -- logs ---------------------------------------------------------------------------------------------------------


def _opened(path: Path, mode: Literal["rb", "r+b"]) -> FileIO:
    """Open a file without a buffer. Raises GridError if it is not there, or is a folder."""
    try:
        return FileIO(path, mode)
    except FileNotFoundError:
        raise damaged(path, "it is not there") from None
    except (IsADirectoryError, NotADirectoryError) as error:
        raise damaged(path, f"it cannot be read: {error.strerror}") from error


def _newest_clocks(checkpoint: Clock | None, logs: list[Path]) -> dict[str, Clock]:
    """Return the last clock that is noted of each boot: the wall clock may have been set after the first one.

    Args:
        checkpoint: the clock of the checkpoint, which was made after the first of the logs was begun.
        logs: files, the oldest first.
    """
    clocks: dict[str, Clock] = {}
    for index, path in enumerate(logs):
        with _opened(path, "rb") as file:
            first = next(frames(file.read(_HEAD), path), None)
        if first is not None and first.environment == CLOCK:
            found = from_json(first.record, Clock)
            clocks[found.boot] = found
        if index == 0 and checkpoint is not None:
            clocks[checkpoint.boot] = checkpoint
    return clocks


def _apply(opened: Opened, path: Path, clocks: Mapping[str, Clock], progress: _Progress) -> None:
    size = path.stat().st_size
    if not size:
        return
    with _opened(path, "r+b") as file:
        data = mmap.mmap(file.fileno(), size, mmap.MAP_SHARED | mmap.MAP_POPULATE, mmap.PROT_READ)
        end = _apply_frames(opened, memoryview(data), path, clocks, progress)
        if end < size:
            logger.warning(
                "%s ends in the middle of a change, at offset %d of %d: the rest is cut off", path, end, size
            )
            os.ftruncate(file.fileno(), end)
            os.fsync(file.fileno())


def _apply_frames(
    opened: Opened, view: memoryview, path: Path, clocks: Mapping[str, Clock], progress: _Progress
) -> int:
    later, end = 0, 0
    waiting: dict[int, list[tuple[int, memoryview]]] = {}
    reached = []
    for env in opened.environments:
        with env.begin() as txn:
            reached.append(last_number(txn))
    for found in frames(view, path):
        end = found.end
        progress.at(path, end)
        if found.environment == CLOCK:
            clock = from_json(found.record, Clock)
            later = clocks.get(clock.boot, clock).later()
            continue
        if found.environment >= len(reached):
            raise damaged(path, f"before offset {end}, there is no environment {found.environment}")
        if found.number <= reached[found.environment]:
            continue
        if found.number != reached[found.environment] + 1:
            raise GridError(
                f"{path}: changes {reached[found.environment] + 1} to {found.number - 1} are missing before offset "
                f"{end}; bring back the files that are missing from a copy, or give another folder as storage"
            )
        reached[found.environment] = found.number
        records = waiting.setdefault(found.environment, [])
        records.append((found.number, found.record))
        if len(records) >= _PORTION:
            _apply_records(opened, found.environment, waiting.pop(found.environment), later)
    for environment, records in waiting.items():
        _apply_records(opened, environment, records, later)
    return end


def _apply_records(opened: Opened, environment: int, records: list[tuple[int, memoryview]], later: int) -> None:
    todo = [decode_changes(changes) for _, record in records for _, changes in _decode_record(record)]
    number = records[-1][0]

    def done(txn: Transaction) -> None:
        txn.put(LAST_CHANGE, INDEX.pack(number))

    apply_changes(opened, environment, todo, later, done)


# -- times ----------------------------------------------------------------------------------------------------------


def _move_times(opened: Opened, later: int) -> None:
    """Move the times of all entries of a checkpoint; those of journals stay, as they only tell an order."""
    for index, env in enumerate(opened.environments):
        for key in _records_with(opened, index, MAP_RECORD, HAS_TIMES):
            rules = opened.table(index, key).rules
            low = b""
            while entries := _entries_from(env, key, low):
                low = entries[-1][0] + b"\0"
                env.write(partial(_take_over, env, key, rules, entries, later), "times of entries")


def _take_over(env: Environment, key: bytes, rules: Rules, entries: list[Entry], later: int, txn: Transaction) -> None:
    changes = Changes(txn, env, key, rules)
    for tail, stored in entries:
        changes.take_over(tail, stored, later, with_blobs=False)
    changes.close(ends=False)


def _entries_from(env: Environment, record_key: bytes, low: bytes) -> list[Entry]:
    """Return some entries of a map, by their keys without incarnation, from one on."""
    found: list[Entry] = []
    with env.begin() as txn, txn.cursor() as cursor:
        head = (txn.get(record_key) or b"")[: INCARNATION.size]
        if head and cursor.set_range(head + low):
            for key, stored in cursor.iternext():
                if key[: len(head)] != head or len(found) == _MOVED:
                    break
                found.append((key[len(head) :], stored))
    return found


def _records_with(opened: Opened, index: int, kind: bytes, flag: int) -> list[bytes]:
    """Return the keys of the maps or lists of an environment that have a flag."""
    with opened.environment(index).begin() as txn:
        return [kind + name for name, record in behind(txn, kind) if flags_of(record) & flag]


# -- files ----------------------------------------------------------------------------------------------------------


def _sort_files(opened: Opened, disk: Path) -> None:
    """Bring back files of large values that are named after all, and remove files that nothing names."""
    blobs, gone = disk / BLOB_FOLDER, disk / GONE_FOLDER
    here, away = set(os.listdir(blobs)), set(os.listdir(gone))
    named = _named_files(opened)
    missing = named - here - away
    if missing:
        raise GridError(
            f"{blobs} lacks the files of {len(missing)} large values, {min(missing)} for one: bring them back from a "
            "copy, or give another folder as storage to begin without these maps and lists"
        )
    for name in away:
        if name in named and name not in here:
            (gone / name).rename(blobs / name)
        else:
            remove_file(gone / name, A_GONE_FILE)
    for name in here - named:
        remove_file(blobs / name, A_GONE_FILE)


def _named_files(opened: Opened) -> set[str]:
    found: set[str] = set()
    for index, env in enumerate(opened.environments):
        for kind, letter in ((MAP_RECORD, b"m"), (LIST_RECORD, b"l")):
            for key in _records_with(opened, index, kind, HAS_BLOBS):
                with env.begin() as txn:
                    record = Record.unpack(txn.get(key) or b"")
                    heads = [(INCARNATION.pack(record.incarnation), letter)]
                    heads += [(INCARNATION.pack(record.log), EVENTS)] if record.log else []
                    for head, of in heads:
                        names_in = opened.names_in(of)
                        for _, stored in behind(txn, head):
                            found.update(name.decode() for name in names_in(bytes(stored)))
    return found
