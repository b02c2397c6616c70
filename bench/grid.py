"""Maps and lists: entries per second in and out, compared with sqlite3 and a pickle per partition.

    python bench/grid.py [--json] [--quick] [--workers N]

All stores lie on /dev/shm. sqlite3 runs with everything that makes it fast (WAL, no syncs, one transaction per batch).
"A pickle per partition" is the simplest thing that could work: each of 271 partitions is a file with a pickled dict,
read, changed and replaced under a lock for each batch. grid_parallel has several processes write one map, as the word
count's sink does. The raw rates of LMDB under py-lmdb, without keys or objects, are what can be reached at most.
"""

from __future__ import annotations

import fcntl
import itertools
import multiprocessing
import os
import pickle
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import lmdb
from _harness import Bench, Options, Report, parse_options, rate

from shmjet.core.keys import partition_id
from shmjet.grid import Grid

FILLED = ["grid_get", "grid_scan", "grid_dict", "grid_list"]
"""Benches on stores that have been filled before."""
BENCHES = ["grid_put", "grid_parallel", *FILLED]
BATCH = 10_000
PARTITIONS = 271
FORK = multiprocessing.get_context("fork")
Pairs = list[tuple[str, int]]


class Contender(Protocol):
    """A store of (str, int) pairs in a folder; opened anew by each process."""

    def __init__(self, folder: Path) -> None: ...
    def put(self, pairs: Pairs) -> None: ...
    def get(self, keys: list[str]) -> list[int]: ...
    def scan(self) -> dict[str, int]: ...
    def close(self) -> None: ...


class Shmjet:
    """A map of the grid."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "grid.json").exists():
            Grid.create(folder)
        self.grid = Grid.open(folder)
        self.map = self.grid.get_map("bench")

    def put(self, pairs: Pairs) -> None:
        self.map.put_all(pairs)

    def get(self, keys: list[str]) -> list[int]:
        return list(self.map.get_all(keys).values())

    def scan(self) -> dict[str, int]:
        return dict(self.map.items())

    def close(self) -> None:
        self.grid.close()


class Sqlite:
    """One table; writers take turns."""

    def __init__(self, folder: Path) -> None:
        self.db = sqlite3.connect(folder / "db", isolation_level=None, timeout=120)
        for pragma in ("journal_mode=WAL", "synchronous=OFF", "cache_size=-65536", "mmap_size=1073741824"):
            self.db.execute(f"PRAGMA {pragma}")
        self.db.execute("CREATE TABLE IF NOT EXISTS m (k TEXT PRIMARY KEY, v) WITHOUT ROWID")

    def put(self, pairs: Pairs) -> None:
        for at in range(0, len(pairs), BATCH):
            self.db.execute("BEGIN IMMEDIATE")
            self.db.executemany("INSERT OR REPLACE INTO m VALUES (?, ?)", pairs[at : at + BATCH])
            self.db.execute("COMMIT")

    def get(self, keys: list[str]) -> list[int]:
        find = self.db.execute
        return [find("SELECT v FROM m WHERE k = ?", (key,)).fetchone()[0] for key in keys]

    def scan(self) -> dict[str, int]:
        return dict(self.db.execute("SELECT k, v FROM m"))

    def close(self) -> None:
        self.db.close()


class PicklePerPartition:
    """271 files, each a pickled dict."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pairs: Pairs) -> None:
        for at in range(0, len(pairs), BATCH):
            parts: dict[int, dict[str, int]] = {}
            for key, value in pairs[at : at + BATCH]:
                parts.setdefault(partition_id(key), {})[key] = value
            for partition, new in parts.items():
                with (self.folder / f"{partition}.lock").open("a") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    data = self._load(partition)
                    data.update(new)
                    draft = self.folder / f"{partition}.new"
                    draft.write_bytes(pickle.dumps(data, 5))
                    draft.replace(self.folder / f"{partition}")

    def get(self, keys: list[str]) -> list[int]:
        parts: dict[int, list[str]] = {}
        for key in keys:
            parts.setdefault(partition_id(key), []).append(key)
        return [data[key] for partition, wanted in parts.items() for data in (self._load(partition),) for key in wanted]

    def scan(self) -> dict[str, int]:
        return dict(itertools.chain.from_iterable(self._load(partition).items() for partition in range(PARTITIONS)))

    def close(self) -> None:
        pass

    def _load(self, partition: int) -> dict[str, int]:
        try:
            found: dict[str, int] = pickle.loads((self.folder / f"{partition}").read_bytes())
        except FileNotFoundError:
            return {}
        return found


class RawLmdb:
    """LMDB alone: bytes that were made before, one environment."""

    def __init__(self, folder: Path) -> None:
        self.env = lmdb.open(str(folder), map_size=1 << 34, sync=False, meminit=False)

    def put(self, pairs: Pairs) -> None:
        stored = sorted((key.encode(), b"%8d" % value) for key, value in pairs)
        for at in range(0, len(stored), 2048):
            with self.env.begin(write=True) as txn, txn.cursor() as cursor:
                cursor.putmulti(stored[at : at + 2048])

    def get(self, keys: list[str]) -> list[Any]:
        with self.env.begin() as txn, txn.cursor() as cursor:
            return cursor.getmulti([key.encode() for key in keys])

    def scan(self) -> dict[Any, Any]:
        with self.env.begin() as txn, txn.cursor() as cursor:
            return dict(iter(cursor)) if cursor.first() else {}

    def close(self) -> None:
        self.env.close()


PEERS: dict[str, type[Contender]] = {
    "sqlite3": Sqlite,
    "pickle per partition": PicklePerPartition,
    "raw LMDB": RawLmdb,
}


def pairs_of(count: int, seed: int = 1) -> Pairs:
    """Distinct words of 5 to 13 letters in no order, each with a count."""
    rng = random.Random(seed)
    words = [f"w{number:x}{'abcdefgh'[: number % 9]}" for number in range(count)]
    rng.shuffle(words)
    return list(zip(words, itertools.count(1)))


class Measuring:
    """The benches on the same entries, all stores in folders of their own below one.

    Args:
        options: of the command line.
        base: folder in which stores are made.
    """

    def __init__(self, options: Options, base: Path) -> None:
        self._options = options
        self._base = base
        self._report = Report(options)
        self._count = 100_000 if options.quick else 500_000
        self._pairs = pairs_of(self._count)
        self._keys = [key for key, _ in random.Random(2).sample(self._pairs, self._count // 5)]
        self._numbers = itertools.count()

    def run(self) -> int:
        """Run what is asked for; return the script's exit status."""
        wants = self._options.wants
        if wants("grid_put"):
            self._compare("grid_put", self._put)
        if wants("grid_parallel"):
            self._compare("grid_parallel", self._put_in_parallel)
        if any(map(wants, FILLED)):
            kinds: list[type[Contender]] = [Shmjet, *PEERS.values()]
            filled = {kind: self._filled(kind) for kind in kinds}
            self._read(filled)
            for store in filled.values():
                store.close()
        return self._report.finish()

    def _read(self, filled: dict[type[Contender], Contender]) -> None:
        """Run the benches that need full stores."""
        ours, wants = filled[Shmjet], self._options.wants
        assert isinstance(ours, Shmjet)
        if wants("grid_get"):
            self._compare("grid_get", lambda kind: rate(len(self._keys), lambda: filled[kind].get(self._keys)))
        if wants("grid_scan"):
            self._compare("grid_scan", lambda kind: rate(self._count, filled[kind].scan))
        if wants("grid_dict"):
            with Bench("grid_dict", "entries/s") as bench:
                bench.ours(lambda: rate(self._count, lambda: dict(ours.map)))
                bench.peer("sqlite3", lambda: rate(self._count, filled[Sqlite].scan))
                self._report.add(bench.measure(rounds=self._options.rounds))
        if wants("grid_list"):
            with Bench("grid_list", "items/s") as bench:
                bench.ours(lambda: self._list_in_and_out(ours.grid.get_list("bench")))
                bench.peer("file of pickles", self._pickles_in_and_out)
                self._report.add(bench.measure(rounds=self._options.rounds))

    def _compare(self, name: str, run: Callable[[type[Contender]], float]) -> None:
        with Bench(name, "entries/s") as bench:
            bench.facts["entries"] = self._count
            bench.ours(lambda: run(Shmjet))
            for peer, kind in PEERS.items():
                bench.peer(peer, partial(run, kind))
            self._report.add(bench.measure(rounds=self._options.rounds))

    def _fresh(self, kind: type[Contender]) -> tuple[Contender, Path]:
        """Return an empty store and its folder."""
        folder = self._base / str(next(self._numbers))
        folder.mkdir()
        return kind(folder), folder

    def _filled(self, kind: type[Contender]) -> Contender:
        store, _ = self._fresh(kind)
        store.put(self._pairs)
        return store

    def _put(self, kind: type[Contender]) -> float:
        store, folder = self._fresh(kind)
        result = rate(self._count, lambda: store.put(self._pairs))
        store.close()
        shutil.rmtree(folder)
        return result

    def _put_in_parallel(self, kind: type[Contender]) -> float:
        store, folder = self._fresh(kind)
        store.close()
        workers = self._options.workers
        start = FORK.Barrier(workers + 1)

        def write(part: Pairs) -> None:
            own = kind(folder)
            start.wait()
            for at in range(0, len(part), BATCH):
                own.put(part[at : at + BATCH])
            own.close()

        processes = [FORK.Process(target=write, args=(self._pairs[index::workers],)) for index in range(workers)]
        for process in processes:
            process.start()
        start.wait()
        begin = time.perf_counter()
        for process in processes:
            process.join()
        result = self._count / (time.perf_counter() - begin)
        shutil.rmtree(folder)
        return result

    def _list_in_and_out(self, items: Any) -> float:
        items.clear()

        def run() -> list[Any]:
            items.extend(self._pairs)
            return list(items)

        return rate(self._count, run)

    def _pickles_in_and_out(self) -> float:
        path = self._base / "list"
        path.unlink(missing_ok=True)

        def run() -> Pairs:
            with path.open("ab") as file:
                for at in range(0, self._count, 1024):
                    pickle.dump(self._pairs[at : at + 1024], file, 5)
            found: Pairs = []
            with path.open("rb") as file:
                while len(found) < self._count:
                    found += pickle.load(file)
            return found

        return rate(self._count, run)


def main() -> int:
    """Run the benches asked for."""
    options = parse_options(__doc__, BENCHES)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as base:
        return Measuring(options, Path(base)).run()


if __name__ == "__main__":
    raise SystemExit(main())
