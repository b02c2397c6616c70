"""Maps and lists on disk, on a host that loses power: what has returned is there, and nothing that was never written.

Each round starts an instance with a storage that was left by the round before, compares its maps and lists with what
writers have been told is done, lets writers go on, and kills all processes at a random moment. Then what was not synced
is forgotten: files are cut at a random place behind the length that was synced, names of files in folders that were not
synced since are taken away, or are what they were. A library that is preloaded notes what was synced. In a part of the
rounds changes do not wait for the disk (`storage_sync` above 0): then keys may be behind, but each list is a beginning
of what was appended. Every other round is about a cluster of three members, all of which lose power; in half of these
rounds one has been killed before, so that the others went on without it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from _stress import (
    HANG_S,
    Options,
    Tally,
    all_gone,
    is_zombie,
    mark_processes,
    marked,
    name_of,
    parse_options,
    private_shm,
    wait_until,
    watch,
)

import shmjet

KEYS = 4
LARGE = 70_000
REPLACED = ("store.json", "partitions")
"""Files in place of which another one is renamed: one of the two is there."""


class Acknowledged:
    """What writers have been told is done; on a disk that forgets nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()

    def add(self, what: str, number: int) -> None:
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps([what, number]) + "\n")

    def read(self) -> dict[str, int]:
        """Return the last number of each kind."""
        found: dict[str, int] = {}
        if self.path.exists():
            for line in self.path.read_text().split("\n")[:-1]:
                what, number = json.loads(line)
                found[what] = number
        return found


def value_of(number: int) -> Any:
    """Return a value that tells its number; every seventh is a file of its own."""
    return number if number % 7 else number.to_bytes(8) * (LARGE // 8)


def number_of(value: Any) -> int:
    """Return the number of a value. Raises ValueError for a value that was never written."""
    if isinstance(value, int):
        return value
    number = int.from_bytes(value[:8])
    if value != value_of(number):
        raise ValueError(f"a value of {len(value)} bytes that was never written")
    return number


def complaint(jet: shmjet.JetInstance, told: dict[str, int], waits: bool) -> str:
    """Return what is wrong with the maps and lists, empty when nothing is."""
    values = dict(jet.get_map("values"))
    for key in range(KEYS):
        found = number_of(values[key]) if key in values else 0
        least, most = (told.get(f"key {key}", 0) if waits else 0), told.get(f"begun {key}", 0)
        if not least <= found <= most:
            return f"key {key} has {found}, and {least} to {most} were written"
    items = list(jet.get_list("items"))
    if items != list(range(1, len(items) + 1)):
        return f"the list is not a beginning of what was appended: {items[:5]}... {items[-5:]}"
    least, most = (told.get("list", 0) if waits else 0), told.get("begun list", 0)
    if not least <= len(items) <= most:
        return f"the list has {len(items)} items, and {least} to {most} were appended"
    return ""


def started(storage: str, sync: float, count: int) -> list[shmjet.JetInstance]:
    """Return an instance without a network, or the members of a cluster, in any order."""
    if count == 1:
        return [shmjet.new_instance(shmjet.JetConfig(cores=1, storage=storage, storage_sync=sync))]
    members: list[shmjet.JetInstance] = []
    for number in random.sample(range(count), count):
        place = str(Path(storage) / str(number))
        config = shmjet.JetConfig(
            cores=1,
            storage=place,
            storage_sync=sync,
            bind="127.0.0.1:0",
            secret="power",
            members=[members[0].cluster.members[0].address] if members else [],
        )
        members.append(shmjet.new_instance(config))
    return members


def host(storage: str, acknowledged: str, sync: str, count: str) -> None:
    """Check what is there, say so, and write until the power is lost. Runs in a process of its own."""
    told, waits = Acknowledged(Path(acknowledged)), float(sync) == 0
    members = started(storage, float(sync), int(count))
    wrong = complaint(members[0], told.read(), waits)
    if not wrong and not wait_until(lambda: members[0].cluster.is_safe):
        wrong = "its partitions have no backups"
    print(wrong or "as it should be", flush=True)
    values, items = members[0].get_map("values"), members[0].get_list("items")

    def write(key: int) -> None:
        number = number_of(values.get(key, 0))
        while True:
            number += 1
            told.add(f"begun {key}", number)
            with contextlib.suppress(shmjet.MemberLostError):
                values[key] = value_of(number)
                told.add(f"key {key}", number)

    def append() -> None:
        while True:
            number = len(items) + 1
            told.add("begun list", number)
            with contextlib.suppress(shmjet.MemberLostError):
                items.append(number)
                told.add("list", number)

    for work in [append, *(lambda key=key: write(key) for key in range(KEYS))]:
        threading.Thread(target=work, daemon=True).start()
    if len(members) > 1 and random.random() < 0.5:
        time.sleep(0.2)
        lost = members[0].cluster.members[random.randrange(3)]
        if not lost.is_local:
            psutil.Process(lost.pid).kill()
    time.sleep(HANG_S)


def grids(storage: Path) -> list[Path]:
    """Return the folders of the stores in the storage of an instance, or of members."""
    return [grid for grid in (storage / "grid", *storage.glob("*/grid")) if grid.exists()]


def on_disk(storage: Path) -> tuple[dict[int, int], dict[Path, dict[str, int]]]:
    """Return the lengths of files by inode, and what folders have; before anything changes all of it is on disk."""
    found = [path for grid in grids(storage) for path in (grid, *grid.rglob("*"))]
    lengths = {path.stat().st_ino: path.stat().st_size for path in found if path.is_file()}
    return lengths, {path: {one.name: one.stat().st_ino for one in path.iterdir()} for path in found if path.is_dir()}


def forget(storage: Path, syncs: Path, before: Any, rng: random.Random) -> int:
    """Take away what was not synced; returns how many files were changed or gone.

    Args:
        storage: of the member.
        syncs: what the preloaded library has noted.
        before: `on_disk` when the member was started.
        rng: chooses.
    """
    lengths, folders = before
    ever = {(name, inode): folder for folder, names in folders.items() for name, inode in names.items()}
    for line in syncs.read_text().splitlines():
        kind, rest = line[0], line[2:]
        if kind == "F":
            inode, size = map(int, rest.split())
            lengths[inode] = size
        else:
            path, *entries = rest.split("\t")
            names = {name: int(inode) for name, inode in (entry.rsplit(" ", 1) for entry in entries)}
            folders[Path(path)] = names
            ever |= {(name, inode): Path(path) for name, inode in names.items()}
    changed = 0
    for folder in [path for grid in grids(storage) for path in (grid, *grid.rglob("*")) if path.is_dir()]:
        known = folders.get(folder, {})
        for path in list(folder.iterdir()):
            if not path.is_file():
                continue
            inode, size = path.stat().st_ino, path.stat().st_size
            if known.get(path.name) != inode and path.name not in REPLACED and rng.random() < 0.5:
                changed += 1
                if (path.name, inode) in ever:  # it was moved; file systems do that as one step
                    path.rename(ever[path.name, inode] / path.name)
                else:
                    path.unlink()
                continue
            synced = min(lengths.get(inode, 0), size)
            if synced < size:
                changed += 1
                with path.open("r+b") as file:
                    file.truncate(rng.randint(synced, size))
    return changed


def end_at_once(host: psutil.Process) -> list[psutil.Process]:
    """Kill a process and all below it, so that none sees another end; returns what was killed.

    A member that sees the other two end before it is killed goes on without them, which loses what only they had.
    """
    stopped: list[psutil.Process] = []
    while more := [process for process in (host, *host.children(recursive=True)) if process not in stopped]:
        for process in more:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()
        stopped += more
    for process in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return stopped


def one_round(place: Path, sync: float, count: int, rng: random.Random, options: Options) -> str:
    """Start, check, write, lose power. Returns what is wrong, empty when nothing is."""
    storage, syncs = place / "storage", place / "syncs"
    before = on_disk(storage)
    syncs.write_text("")
    environment = {**os.environ, "LD_PRELOAD": str(place / "forgetful.so"), "SHMJET_SYNCS": str(syncs)}
    arguments = [sys.executable, __file__, "--host", str(storage), str(place / "acknowledged"), str(sync), str(count)]
    with subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        assert child.stdout is not None
        said = child.stdout.readline().strip()
        time.sleep(rng.random() * (0.4 if count == 1 else 3.0))
        processes = end_at_once(psutil.Process(child.pid))
        child.wait()
    if not wait_until(lambda: all(is_zombie(process.pid) for process in processes)):
        return "its processes have not ended"
    if said != "as it should be":
        return said or "it did not start"
    changed = forget(storage, syncs, before, rng)
    options.say(f"forgotten: {changed} files; acknowledged: {Acknowledged(place / 'acknowledged').read()}")
    return ""


def main() -> int:
    if sys.argv[1:2] == ["--host"]:
        host(*sys.argv[2:])
        return 0
    options = parse_options(__doc__, count=500, ci=10)
    private_shm()
    mark = mark_processes()
    tally = Tally("power_loss", options)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        library = Path(name) / "forgetful.so"
        compiler = sysconfig.get_config_var("CC") or "cc"
        source = Path(__file__).with_name("forgetful.c")
        subprocess.run([*compiler.split(), "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        places = {}
        for sync, members in itertools.product((0.0, 0.01), (1, 3)):
            places[sync, members] = Path(name) / f"sync{sync}-{members}"
            places[sync, members].mkdir()
            os.link(library, places[sync, members] / library.name)
        for number in range(options.count):
            watch(HANG_S)
            sync, members = 0.0 if number % 3 else 0.01, 3 if number % 2 else 1
            wrong = one_round(places[sync, members], sync, members, rng, options)
            if wrong:
                tally.complain(f"round {number}, storage_sync={sync}, members {members}: {wrong}")
                break
            tally.done += 1
        tally.check(all_gone(mark), f"left behind: {[(pid, name_of(pid)) for pid in marked(mark)]}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
