"""Maps and lists: entries per second in and out, beside sqlite3 and a pickle per partition.

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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import lmdb
from _harness import Bench, Report, parse_options, rate

from shmjet.core.keys import partition_id
from shmjet.grid import Grid

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


def fresh(kind: type[Contender], base: Path, numbers: Iterator[int]) -> tuple[Contender, Path]:
    """Return an empty store and its folder."""
    folder = base / str(next(numbers))
    folder.mkdir()
    return kind(folder), folder


def main() -> int:
    """Run the benches asked for."""
    names = ["grid_put", "grid_get", "grid_scan", "grid_dict", "grid_parallel", "grid_list"]
    options = parse_options(__doc__, names)
    count = 100_000 if options.quick else 500_000
    pairs, report, numbers = pairs_of(count), Report(options), itertools.count()
    keys = [key for key, _ in random.Random(2).sample(pairs, count // 5)]
    kinds: dict[str, type[Contender]] = {"shmjet": Shmjet, **PEERS}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as name:
        base = Path(name)

        def timed_put(kind: type[Contender]) -> float:
            store, folder = fresh(kind, base, numbers)
            result = rate(count, lambda: store.put(pairs))
            store.close()
            shutil.rmtree(folder)
            return result

        def parallel_put(kind: type[Contender]) -> float:
            store, folder = fresh(kind, base, numbers)
            store.close()
            parts = [pairs[index :: options.workers] for index in range(options.workers)]
            start = FORK.Barrier(options.workers + 1)

            def write(part: Pairs) -> None:
                own = kind(folder)
                start.wait()
                for at in range(0, len(part), BATCH):
                    own.put(part[at : at + BATCH])
                own.close()

            processes = [FORK.Process(target=write, args=(part,)) for part in parts]
            for process in processes:
                process.start()
            start.wait()
            begin = time.perf_counter()
            for process in processes:
                process.join()
            result = count / (time.perf_counter() - begin)
            shutil.rmtree(folder)
            return result

        def compare(bench_name: str, run: Callable[[type[Contender]], float]) -> None:
            with Bench(bench_name, "entries/s") as bench:
                bench.facts["entries"] = count
                bench.ours(lambda: run(Shmjet))
                for peer, kind in PEERS.items():
                    bench.peer(peer, partial(run, kind))
                report.add(bench.measure(rounds=options.rounds))

        if options.wants("grid_put"):
            compare("grid_put", timed_put)
        if options.wants("grid_parallel"):
            compare("grid_parallel", parallel_put)
        filled: dict[type[Contender], Contender] = {}
        for kind in kinds.values():
            filled[kind], _ = fresh(kind, base, numbers)
            filled[kind].put(pairs)
        if options.wants("grid_get"):
            compare("grid_get", lambda kind: rate(len(keys), lambda: filled[kind].get(keys)))
        if options.wants("grid_scan"):
            compare("grid_scan", lambda kind: rate(count, filled[kind].scan))
        ours = filled[Shmjet]
        assert isinstance(ours, Shmjet)
        if options.wants("grid_dict"):
            with Bench("grid_dict", "entries/s") as bench:
                bench.ours(lambda: rate(count, lambda: dict(ours.map)))
                bench.peer("sqlite3", lambda: rate(count, filled[Sqlite].scan))
                report.add(bench.measure(rounds=options.rounds))
        if options.wants("grid_list"):
            items = ours.grid.get_list("bench")

            def in_and_out() -> float:
                items.clear()

                def both() -> list[Any]:
                    items.extend(pairs)
                    return list(items)

                return rate(count, both)

            def pickled() -> float:
                path = base / "list"
                path.unlink(missing_ok=True)

                def run() -> list[tuple[str, int]]:
                    with path.open("ab") as file:
                        for at in range(0, count, 1024):
                            pickle.dump(pairs[at : at + 1024], file, 5)
                    found: list[tuple[str, int]] = []
                    with path.open("rb") as file:
                        while len(found) < count:
                            found += pickle.load(file)
                    return found

                return rate(count, run)

            with Bench("grid_list", "items/s") as bench:
                bench.ours(in_and_out)
                bench.peer("file of pickles", pickled)
                report.add(bench.measure(rounds=options.rounds))
        for store in filled.values():
            store.close()
    return report.finish()


if __name__ == "__main__":
    raise SystemExit(main())
