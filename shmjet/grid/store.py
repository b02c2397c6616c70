"""Grid: the folder of maps and lists of an instance, as one process sees it.

The member creates the folder, and every process that wants maps or lists opens it: workers after their fork, carriers,
the client. There is no server in between: readers and writers meet in shared memory. LMDB wants an environment to be
opened once per process, so all `Grid` objects of a process that name the same folder share what is open.
"""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from shmjet.core.map_config import PLAIN, MapConfig, config_of
from shmjet.grid.blobs import INLINE_LIMIT, BlobStore
from shmjet.grid.change_log import Recorder
from shmjet.grid.changes import Rules, flags_of
from shmjet.grid.commit_counters import ALL, BACKED_UP, ON_DISK, CommitCounters
from shmjet.grid.disk_link import DiskLink
from shmjet.grid.divided_blobs import DividedBlobs
from shmjet.grid.divided_table import DividedTable
from shmjet.grid.entries import EntryCodec
from shmjet.grid.environment import Environment, Transaction
from shmjet.grid.errors import GridError
from shmjet.grid.ilist import IList
from shmjet.grid.imap import IMap
from shmjet.grid.journal import Listeners
from shmjet.grid.layout import (
    ANNOUNCEMENTS_FILE,
    BLOB_FOLDER,
    GONE_FOLDER,
    HAS_ENDS,
    LIST_RECORD,
    MAP_RECORD,
    MOST_MAP_SIZE,
    PARTITION,
    RESERVE_FILE,
    RESERVE_SIZE,
    TYPE_RECORD,
    USES_FILE,
    Layout,
    name_of,
    record_key,
)
from shmjet.grid.pickles import ObjectCodec
from shmjet.grid.sweeping import EVENTS, NamesIn, garbage, sweep
from shmjet.grid.table import Table
from shmjet.grid.times import Uses
from shmjet.host.process_limits import lack_text

_MOST_TABLES = 1024
"""Tables that are remembered: looking up the settings and the partition of a map takes as long as a short operation."""
ENVIRONMENTS_OF_A_CLUSTER = 8
"""The same on all members, however many cores they have: clients go on with the store of another one."""


def _usable_map_size(environments: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return MOST_MAP_SIZE
    share = 4 if limit >= 1 << 30 else 32  # below a gigabyte the process itself needs nearly all
    pages = limit // share // environments // mmap.PAGESIZE
    return min(MOST_MAP_SIZE, max(1, pages) * mmap.PAGESIZE)


class Grid:
    """The maps and lists of an instance. Fulfils `shmjet.core.context.DataGrid`.

    Make one with `Grid.open`; it is a context manager, and may be shared between threads but not over a fork.

    Example:
        >>> import pathlib, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> Grid.create(pathlib.Path(folder.name))
        >>> with Grid.open(pathlib.Path(folder.name)) as grid:
        ...     grid.get_map("counts")["a"] = 1
        ...     dict(grid.get_map("counts"))
        {'a': 1}
        >>> folder.cleanup()
    """

    def __init__(self, opened: Opened) -> None:
        self._opened: Opened | None = opened
        self._listeners = Listeners()

    @staticmethod
    def create(
        folder: Path,
        partition_count: int = 271,
        *,
        environments: int | None = None,
        map_size: int | None = None,
        maps: Mapping[str, MapConfig] | None = None,
        is_divided: bool = False,
        disk: Path | None = None,
        waits_for_disk: bool = False,
    ) -> None:
        """Make an empty store. Called once, by the member; nothing stays open.

        Args:
            folder: made if it is not there; on `/dev/shm` for a store in memory, anywhere else works too.
            partition_count: partitions of each map.
            environments: writers that can write at the same time; None: twice the number of cores, from 4 to 32.
            map_size: bytes that each environment may hold at most; address space, not memory. None: 64 GiB, or as much
                as lets all of them together take a quarter of what the process may have (RLIMIT_AS).
            maps: settings of maps, by name or pattern.
            is_divided: partitions come and go; none is open at first.
            disk: an existing folder where it is kept on disk, see `shmjet.grid.disk`.
            waits_for_disk: whether a change counts only when it is there.

        Raises:
            GridError: there is a store already, or the file system has no room for an empty one.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if (folder / "grid.json").exists():
            raise GridError(f"{folder} holds a store of maps and lists already")
        if environments is None:
            environments = min(32, max(4, 2 * len(os.sched_getaffinity(0))))
        map_size = map_size or _usable_map_size(environments)
        layout = Layout(
            partition_count,
            environments,
            map_size,
            maps=dict(maps or {}),
            is_divided=is_divided,
            disk="" if disk is None else str(disk),
            waits_for_disk=waits_for_disk,
        )
        if disk is None:
            (folder / BLOB_FOLDER).mkdir(mode=0o700)
        else:
            DiskLink.create(folder)
        CommitCounters.create(folder / ANNOUNCEMENTS_FILE, environments)
        announcements = CommitCounters(folder / ANNOUNCEMENTS_FILE, environments)
        for index in range(environments):
            place = folder / str(index)
            place.mkdir(mode=0o700)
            env = Environment(place, map_size, announcements.of(index))
            env.announced[ON_DISK] = ALL if disk is None else 0
            env.announced[BACKED_UP] = 0 if is_divided else ALL
            env.open()
            env.close()
            _reserve(place / "lock.mdb", (place / "lock.mdb").stat().st_size)
        if any(config.eviction == "lru" for config in layout.maps.values()):
            _make(Uses.create, folder / USES_FILE)
        (folder / RESERVE_FILE).touch(mode=0o600)
        _reserve(folder / RESERVE_FILE, RESERVE_SIZE)
        layout.write(folder)

    @staticmethod
    def open(folder: Path) -> Grid:
        """Open the store in `folder`; cheap, because environments are opened when they are first used.

        Raises:
            GridError: there is none.
        """
        with _registry_lock:
            key = os.path.realpath(folder)
            opened = _registry.get(key)
            if opened is None:
                opened = _registry[key] = Opened(Path(key), Layout.read(Path(key)))
            opened.users += 1
            return Grid(opened)

    @property
    def opened(self) -> Opened:
        """What this process has open of the store; for `service`.

        Raises:
            GridError: this `Grid` is closed.
        """
        return self._in_use()

    @property
    def folder(self) -> Path:
        """Where the store is."""
        return self._in_use().folder

    @property
    def partition_count(self) -> int:
        """Partitions of each map."""
        return self._in_use().layout.partition_count

    def get_map(self, name: str) -> IMap[Any, Any]:
        """Return the map `name`; it comes into being with its first entry.

        Raises:
            TypeError, ValueError: the name is not text, empty, or longer than 400 bytes of UTF-8.
        """
        opened = self._in_use()
        tables = opened.parts_of(record_key(MAP_RECORD, name))
        return IMap(name, tables, opened.codec, config_of(name, opened.layout.maps), self._listeners)

    def get_list(self, name: str) -> IList[Any]:
        """Return the list `name`; it comes into being with its first item.

        Raises:
            TypeError, ValueError: as `get_map`.
        """
        opened = self._in_use()
        partition, _ = opened.codec.key(name)
        key = record_key(LIST_RECORD, name)
        return IList(name, opened.table(partition % opened.layout.environments, key), opened.codec)

    def map_names(self) -> list[str]:
        """Return the names of the maps that have had an entry and have not been destroyed, sorted."""
        return self._in_use().names(MAP_RECORD)

    def list_names(self) -> list[str]:
        """Return the names of the lists that have had an item and have not been destroyed, sorted."""
        return self._in_use().names(LIST_RECORD)

    def names(self) -> list[str]:
        """Return the names of all maps and lists, sorted."""
        return sorted({*self.map_names(), *self.list_names()})

    def after_worker_death(self) -> None:
        """Clean up behind processes that were killed: reader slots that keep old pages, and sweeps left half done.

        Called by the member whenever a process that may have opened the store has died.
        """
        opened = self._in_use()
        for index in range(opened.layout.environments):
            env = opened.environment(index)
            env.check_readers()
            for prefix, kind in garbage(env):
                sweep(env, prefix, opened.blobs, opened.names_in(kind))

    def end_listeners(self) -> None:
        """End the listeners of maps got from here."""
        self._listeners.close()

    def close(self) -> None:
        """Let go of the store; maps and lists got from here must not be used any more. May be called twice."""
        self.end_listeners()
        with _registry_lock:
            opened, self._opened = self._opened, None
            if opened is None:
                return
            opened.users -= 1
            if opened.users == 0:
                _registry.pop(str(opened.folder), None)
                opened.close()

    def __enter__(self) -> Grid:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _in_use(self) -> Opened:
        if self._opened is None:
            raise GridError("this Grid is closed")
        return self._opened


class Opened:
    """What a process has open of one store; all `Grid` objects of the process that name its folder share it."""

    def __init__(self, folder: Path, layout: Layout, *, is_restoring: bool = False) -> None:
        self.folder = folder
        self.layout = layout
        self.partition_count = layout.partition_count
        self.is_divided = layout.is_divided
        self.is_on_disk = bool(layout.disk) and not is_restoring
        self.users = 0
        self.blobs = self._made_blobs()
        objects = ObjectCodec(INLINE_LIMIT, self.load_class, self.keep_class)
        self.codec = EntryCodec(objects, self.blobs, layout.partition_count)
        limited = any(config.eviction == "lru" for config in layout.maps.values())
        self.uses = Uses(folder / USES_FILE) if limited else None
        announcements = CommitCounters(folder / ANNOUNCEMENTS_FILE, layout.environments)
        self._environments = [
            Environment(folder / str(index), layout.map_size, announcements.of(index))
            for index in range(layout.environments)
        ]
        if isinstance(self.blobs, DividedBlobs):
            self.blobs.environments = self._environments
        self.disk: DiskLink | None = None
        """What leads to the disk, where the store is kept there."""
        if self.is_on_disk:
            self.disk = DiskLink(folder, announcements.of(0), layout.disk, waits=layout.waits_for_disk)
            for env in self._environments:
                env.follower = self.disk
        self._tables: dict[tuple[int, bytes], Table] = {}

    def _made_blobs(self) -> BlobStore:
        kind = DividedBlobs if self.is_divided else BlobStore
        reserve = self.folder / RESERVE_FILE
        if self.layout.disk:
            disk = Path(self.layout.disk)
            return kind(disk / BLOB_FOLDER, reserve, disk / GONE_FOLDER)
        return kind(self.folder / BLOB_FOLDER, reserve)

    @property
    def environments(self) -> list[Environment]:
        """All of them."""
        return self._environments

    def environment(self, index: int) -> Environment:
        return self._environments[index]

    def table(self, index: int, key: bytes) -> Table:
        """Return one map or list in one environment."""
        known = self._tables.get((index, key))
        if known is None:
            name = name_of(key)
            is_map = key.startswith(MAP_RECORD)
            rules = Rules(config_of(name, self.layout.maps) if is_map else PLAIN, self._bytes_of_files)
            kind = DividedTable if self.is_divided else Table
            label = f"{'map' if is_map else 'list'} {name!r}"
            if len(self._tables) >= _MOST_TABLES:
                self._tables = {}
            known = self._tables[index, key] = kind(self._environments[index], key, label, self.blobs, rules, self)
        return known.twin()

    def divided_table(self, index: int, key: bytes) -> DividedTable:
        """Return one map or list in one environment of a store that is divided among members.

        Raises:
            GridError: it is not.
        """
        table = self.table(index, key)
        if not isinstance(table, DividedTable):
            raise GridError(f"the store in {self.folder} is not divided among members")
        table.index, table.environments = index, self.layout.environments
        return table

    def parts_of(self, record_key: bytes) -> list[Table]:
        """Return the tables of one map, one for each environment."""
        return [self.table(index, record_key) for index in range(self.layout.environments)]

    def names_in(self, kind: bytes) -> NamesIn:
        """Return what gives the names of the blobs that a stored value needs, by kind of garbage."""
        return {b"l": self.codec.blobs_of_block, EVENTS: self.codec.blobs_of_event}.get(kind, self.codec.blobs_of)

    def end_entries(self, env: Environment) -> int:
        """Remove the entries of all maps whose time is over, in one environment, and return how many."""
        index = self._environments.index(env)
        return sum(self.table(index, key).end_entries() for key in self._maps_with_ends(env))

    def end_some(self) -> int:
        """Remove some entries of open partitions whose time is over, where the store is divided; return how many."""
        return sum(
            table.end_some()
            for index, env in enumerate(self._environments)
            for key in self._maps_with_ends(env)
            if (table := self.divided_table(index, key)).has_ended()
        )

    def _maps_with_ends(self, env: Environment) -> list[bytes]:
        with env.begin() as txn, txn.cursor() as cursor:
            keys = []
            if cursor.set_range(MAP_RECORD):
                for key, record in cursor.iternext():
                    if not key.startswith(MAP_RECORD):
                        break
                    if flags_of(record) & HAS_ENDS:
                        keys.append(key)
        return keys

    def _bytes_of_files(self, stored: bytes) -> int:
        return sum(map(self.blobs.size, self.codec.blobs_of(stored)))

    def names(self, kind: bytes) -> list[str]:
        found: set[str] = set()
        for env in self._environments:
            with env.begin() as txn, txn.cursor() as cursor:
                if cursor.set_range(kind):
                    for key in cursor.iternext(keys=True, values=False):
                        if not key.startswith(kind):
                            break
                        found.add(key[len(kind) :].decode("utf-8", "surrogatepass"))
        return sorted(found)

    def close(self) -> None:
        self._tables = {}
        for env in self._environments:
            env.close()
        if self.uses is not None:
            self.uses.close()
        if self.disk is not None:
            self.disk.close()

    def forked(self) -> None:
        for env in self._environments:
            env.forked()

    def recorder(self, txn: Transaction, env: Environment) -> Recorder | None:
        """Return what notes for the disk what a transaction does to partitions that are not open; None without one."""
        return Recorder(txn, env, notes_all=True) if self.is_on_disk else None

    def load_class(self, class_id: str) -> bytes | None:
        """Return the pickle of a class, or None."""
        with self._environments[0].begin() as txn:
            return txn.get(TYPE_RECORD + class_id.encode())

    def keep_class(self, class_id: str, data: bytes) -> None:
        """Keep the pickle of a class, unless it is there."""

        key = TYPE_RECORD + class_id.encode()

        def work(txn: Transaction) -> None:
            recorder = self.recorder(txn, self._environments[0])
            if txn.put(key, data, overwrite=False) and recorder is not None:
                recorder.catalogued(PARTITION.pack(0), key, data)
                recorder.close()

        self._environments[0].write(work, "a class")


def _make(create: Callable[[Path], None], path: Path) -> None:
    try:
        create(path)
    except OSError as error:
        raise GridError(f"no room for an empty store of maps and lists in {path.parent}: {lack_text(error)}") from error


def _reserve(path: Path, size: int) -> None:
    """Give a file its pages now. Lock files are mapped for writing: a page that a full /dev/shm lacks is a SIGBUS."""
    try:
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        raise GridError(f"no room for an empty store of maps and lists in {path.parent}: {lack_text(error)}") from error


def _after_fork() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for opened in _registry.values():
        opened.forked()
    _registry.clear()


_registry: dict[str, Opened] = {}
_registry_lock = threading.Lock()
os.register_at_fork(after_in_child=_after_fork)
