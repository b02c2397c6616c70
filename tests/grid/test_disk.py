"""A store that is kept on disk: what is there after a restart, a crash, damage, and errors of the disk."""

from __future__ import annotations

import errno
import json
import logging
import os
import pickle
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shmjet import MapConfig
from shmjet.data.errors import ConfigError
from shmjet.grid import Grid, GridError
from shmjet.grid.blobs import contents
from shmjet.grid.disk import files
from shmjet.grid.disk.restore import restore
from shmjet.grid.disk.store_on_disk import StoreOnDisk
from shmjet.grid.disk.writer import DiskWriter
from shmjet.grid.errors import NotOnDiskError
from shmjet.grid.layout import RESERVE_FILE
from tests.waiting import until

MAPS = {
    "journal": MapConfig(journal_capacity=100),
    "limited": MapConfig(max_bytes=1 << 24, eviction="lru"),
}


class Disk:
    """A folder on disk, and stores made from it one after the other."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.folder = place / "disk"
        self._made = 0

    @contextmanager
    def store(self, *, waits: bool = False, log_bytes: int = 1 << 26, folder: Path | None = None) -> Iterator[Opened]:
        self._made += 1
        memory, disk = self.place / f"memory{self._made}", folder or self.folder
        restore(memory, disk, 7, MAPS, waits_for_disk=waits)
        with Grid.open(memory) as grid:
            writer = DiskWriter(grid.opened, disk, 0.0 if waits else 0.002, log_bytes=log_bytes)
            writer.start()
            try:
                yield Opened(grid, writer)
            finally:
                writer.stop()

    def copy(self) -> Path:
        """Return a copy of the folder as it is now."""
        self._made += 1
        target = self.place / f"copy{self._made}"
        shutil.copytree(self.folder, target)
        return target

    def logs(self, folder: Path | None = None) -> list[Path]:
        place = folder or self.folder
        return [place / f"{files.LOG}{number}" for number in files.generations(place, files.LOG)]


class Opened:
    def __init__(self, grid: Grid, writer: DiskWriter) -> None:
        self.grid = grid
        self.writer = writer

    def all(self) -> dict[str, Any]:
        """Return all maps and lists as plain values."""
        found: dict[str, Any] = {name: dict(self.grid.get_map(name)) for name in self.grid.map_names()}
        return found | {f"list {name}": list(self.grid.get_list(name)) for name in self.grid.list_names()}


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def fill(grid: Grid) -> None:
    grid.get_map("plain").put_all({number: str(number) for number in range(3000)})
    grid.get_map("plain")["tuple"] = (1, None, 2.5)
    del grid.get_map("plain")[5]
    journal = grid.get_map("journal")
    journal["a"] = 1
    journal["a"] = 2
    del journal["a"]
    journal["b"] = b"old" * 30_000
    journal["b"] = b"new" * 30_000
    journal["end"] = 1
    grid.get_map("limited").put("x", 1)
    grid.get_map("times").put("later", 1, ttl=1000)
    grid.get_map("large")["kept"] = b"x" * 100_000
    grid.get_map("large")["replaced"] = b"y" * 100_000
    grid.get_map("large")["replaced"] = b"z" * 100_000
    grid.get_map("destroyed")["a"] = b"w" * 100_000
    grid.get_map("destroyed").destroy()
    grid.get_map("cleared")["a"] = 1
    grid.get_map("cleared").clear()
    grid.get_list("list").extend(range(1000))
    grid.get_list("list").append(b"v" * 100_000)


def test_all_that_a_store_has_is_there_after_a_restart(disk: Disk) -> None:
    with disk.store() as first:
        fill(first.grid)
        wanted = first.all()
        events = read(first.grid, "end")
    for _ in range(2):
        with disk.store() as again:
            assert again.all() == wanted
            assert read(again.grid, "end") == events
            assert again.grid.get_map("large")["replaced"] == b"z" * 100_000
    assert len(list((disk.folder / "blobs").iterdir())) == 5  # of `large`, the list, and `journal` with its old value
    with disk.store() as again:
        again.grid.get_map("plain")["more"] = 1
        for number in range(200):
            again.grid.get_map("journal")[number] = number
    with disk.store() as again:
        assert again.grid.get_map("plain")["more"] == 1
        assert len(again.grid.get_map("plain")) == 3001
        kinds = [event[0] for event in read(again.grid, 199)]
        assert kinds.count("added") <= 107
        assert set(kinds) == {"added", "lost"}


def read(grid: Grid, last: object) -> list[tuple[str, Any, Any, Any]]:
    """Return the events that a journal has, up to the first of a key."""
    found = []
    with closing(grid.get_map("journal").journal()) as journal:
        for event in journal:
            found.append((event.kind, event.key, event.old, event.new))
            if event.key == last:
                break
    return found


def test_a_checkpoint_takes_the_place_of_logs(disk: Disk) -> None:
    with disk.store(log_bytes=1 << 18) as first:
        for turn in range(8):
            first.grid.get_map("m").put_all({number: "v" * 50 + str(turn) for number in range(2000)})
            first.writer.sync()
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
        first.grid.get_map("m")["last"] = 1
        first.grid.get_list("l").extend("abc")
        wanted = first.all()
    assert len(files.generations(disk.folder, files.CHECKPOINT)) == 1
    assert files.generations(disk.folder, files.LOG)[0] == files.generations(disk.folder, files.CHECKPOINT)[0]
    (disk.folder / f"{files.UNFINISHED}99").mkdir()  # of a checkpoint that was being made at a crash
    with disk.store() as again:
        assert again.all() == wanted
    assert not list(disk.folder.glob(f"{files.UNFINISHED}*"))


def test_a_start_copies_nothing_until_something_changes(disk: Disk) -> None:
    with disk.store() as opened:
        opened.grid.get_map("m").put_all(dict.fromkeys(range(2000), "v" * 50))
    logs = len(disk.logs())
    with disk.store(log_bytes=1) as again:
        assert len(again.grid.get_map("m")) == 2000
        again.writer.sync()
        assert len(disk.logs()) == logs + 1
    assert not files.generations(disk.folder, files.CHECKPOINT)
    with disk.store(log_bytes=1) as again:
        again.grid.get_map("m")["new"] = 1
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))


def history(disk: Disk) -> list[dict[str, Any]]:
    """Make a store with a history on disk; returns what it had after each change, all in one environment."""
    states: list[dict[str, Any]] = [{}]
    with disk.store() as opened:
        for number in range(12):
            opened.grid.get_list("l").append(number)
            states.append(opened.all())
    return states


def test_a_log_that_is_cut_anywhere_gives_what_there_was_before(disk: Disk) -> None:
    states = history(disk)
    whole = disk.logs()[0].read_bytes()
    cuts = random.Random(5).sample(range(len(whole)), 15)
    reached = set()
    for cut in [*cuts, len(whole)]:
        folder = disk.copy()
        disk.logs(folder)[0].write_bytes(whole[:cut])
        with disk.store(folder=folder) as opened:
            assert opened.all() in states
            reached.add(len(opened.all().get("list l", ())))
            opened.grid.get_list("l").append("more")
            after = opened.all()
        with disk.store(folder=folder) as opened:
            assert opened.all() == after
    assert len(reached) > 4
    assert max(reached) == 12


def test_a_log_with_a_changed_byte_is_refused_or_cut_but_never_another_store(disk: Disk) -> None:
    states = history(disk)
    whole = disk.logs()[0].read_bytes()
    refused = []
    for at in random.Random(6).sample(range(len(whole)), 30):
        folder = disk.copy()
        changed = bytearray(whole)
        changed[at] ^= 0x41
        disk.logs(folder)[0].write_bytes(changed)
        try:
            with disk.store(folder=folder) as opened:
                assert opened.all() in states
        except GridError as error:
            refused.append((str(disk.logs(folder)[0]), str(error)))
    assert all(path in text and "offset" in text for path, text in refused)
    assert len(refused) > 15


def test_another_file_in_place_of_a_log_is_an_error_and_nothing_begins_empty(disk: Disk) -> None:
    history(disk)
    (log,) = disk.logs()
    other = os.urandom(1 << 12)
    log.write_bytes(other)
    with pytest.raises(GridError, match=r"log-1 is damaged at offset 0: what is there cannot be read"), disk.store():
        pass
    assert log.read_bytes() == other


def test_a_missing_log_is_named(disk: Disk) -> None:
    for turn in range(3):
        with disk.store() as opened:
            opened.grid.get_list("l").append(turn)
    disk.logs()[1].unlink()
    with pytest.raises(GridError, match=r"log-3: changes 2 to 2 are missing"), disk.store():
        pass


def test_what_is_lost_of_a_folder_is_named_and_nothing_begins_empty(disk: Disk) -> None:
    with disk.store() as opened:
        opened.grid.get_map("m")["a"] = b"x" * 100_000
    with disk.store(log_bytes=1) as opened:
        opened.grid.get_map("m")["b"] = 1
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
    checkpoint = files.generations(disk.folder, files.CHECKPOINT)[0]

    def lost(pattern: str, text: str) -> None:
        copy = disk.copy()
        for path in copy.glob(pattern):
            path.unlink()
        with pytest.raises(GridError, match=text), disk.store(folder=copy):
            pass

    lost("store.json", r"lacks store\.json, without which")
    lost("log-*", rf"lacks log-{checkpoint}, without which")
    lost("blobs/*", r"lacks the files of 1 large values")
    for path in disk.folder.glob(f"{files.CHECKPOINT}*"):
        shutil.rmtree(path)
    lost("log-*", r"lacks all of log-\*")


@pytest.mark.parametrize("name", ["0", "clock.json"])
@pytest.mark.parametrize("size", [None, 0, 4096, 60_000])
def test_a_checkpoint_that_is_too_short_is_an_error_that_names_the_file(
    disk: Disk, name: str, size: int | None
) -> None:
    with disk.store(log_bytes=1) as opened:
        opened.grid.get_map("m").put_all({number: "v" * 100 + str(number) for number in range(3000)})
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
    (checkpoint,) = disk.folder.glob(f"{files.CHECKPOINT}*")
    if size is None:
        (checkpoint / name).unlink()
    else:
        os.truncate(checkpoint / name, min(size, (checkpoint / name).stat().st_size - 1))
    with pytest.raises(GridError, match=rf"{checkpoint.name}/{name} is damaged: .*Bring the file back"), disk.store():
        pass


def test_a_changed_byte_of_a_checkpoint_is_an_error_that_names_its_file(disk: Disk) -> None:
    with disk.store(log_bytes=1) as opened:
        opened.grid.get_map("m").put_all({number: "v" * 100 + str(number) for number in range(3000)})
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
        wanted = opened.all()
    (checkpoint,) = disk.folder.glob(f"{files.CHECKPOINT}*")
    chance = random.Random(7)
    for path in [*checkpoint.iterdir(), disk.folder / files.STORE_FILE]:
        whole = path.read_bytes()
        for at in {0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(6))}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
            said = ""
            try:
                with disk.store() as opened:  # the name of a checksum has changed, so there is none
                    assert path.suffix == ".json"
                    assert opened.all() == wanted
            except (GridError, ConfigError) as error:
                said = str(error)
            assert not said or str(path) in said
        path.write_bytes(whole)
    first, second = checkpoint / "0", checkpoint / "1"
    if second.exists():
        first.rename(checkpoint / "other")
        second.rename(first)
        (checkpoint / "other").rename(second)
        with pytest.raises(GridError, match=rf"{checkpoint}/[01] is damaged: "), disk.store():
            pass


@pytest.mark.parametrize("name", ["store.json", "log-1", "checkpoint-*/0", "checkpoint-*/clock.json"])
def test_a_folder_in_place_of_a_file_is_an_error_that_names_it(disk: Disk, name: str) -> None:
    with disk.store(log_bytes=1 if name.startswith("checkpoint") else 1 << 26) as opened:
        opened.grid.get_map("m")["a"] = 1
        until(lambda: bool(list(disk.folder.glob(name))))
    (path,) = disk.folder.glob(name)
    path.unlink()
    path.mkdir()
    with pytest.raises(GridError, match=rf"{path} is damaged: it cannot be read: Is a directory\. "), disk.store():
        pass


@pytest.mark.parametrize("name", ["", "blobs", "gone"])
def test_a_file_in_place_of_a_folder_is_an_error_that_names_it(disk: Disk, name: str) -> None:
    if name:
        disk.folder.mkdir()
    path = disk.folder / name
    path.touch()
    with pytest.raises(NotADirectoryError) as caught, disk.store():
        pass
    assert caught.value.filename == str(path)


def test_the_number_of_environments_of_a_store_has_a_checksum(disk: Disk) -> None:
    with disk.store() as opened:
        opened.grid.get_map("m").put_all(dict.fromkeys(range(100), 1))
    path = disk.folder / files.STORE_FILE
    whole = path.read_text()
    path.write_text(re.sub('"environments":[0-9]', '"environments":7', whole))
    wanted = r"store\.json is damaged: its checksum does not fit.*Bring the file back"
    with pytest.raises(GridError, match=wanted), disk.store():
        pass


def test_a_checkpoint_of_an_older_version_is_read(disk: Disk) -> None:
    with disk.store(log_bytes=1) as opened:
        opened.grid.get_map("m")["a"] = 1
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
    (checkpoint,) = disk.folder.glob(f"{files.CHECKPOINT}*")
    described = json.loads((checkpoint / "clock.json").read_bytes())
    assert len(described["environments"]) == len(list(checkpoint.iterdir())) - 1
    (checkpoint / "clock.json").write_text(json.dumps({name: described[name] for name in ("boot", "offset")}))
    store = disk.folder / files.STORE_FILE
    store.write_text(re.sub(',"checksum":"[0-9a-f]{8}"', "", store.read_text()))
    with disk.store() as again:
        assert again.all() == {"m": {"a": 1}}


def test_a_large_value_whose_file_is_too_short_is_an_error_that_names_it(disk: Disk) -> None:
    with disk.store() as opened:
        there = opened.grid.get_map("m")
        there["a"] = b"x" * 100_000
        (file,) = (disk.folder / "blobs").iterdir()
        whole = file.read_bytes()
        for damaged in (b"", whole[:5], whole[:30], whole[:-1], b"\xff" * 64 + whole, bytes(100), whole + b"y"):
            file.write_bytes(damaged)
            with pytest.raises(GridError, match=rf"{file.name}, the file of a large value, is damaged: its"):
                there.get("a")
        there["a"] = 1
        assert opened.all() == {"m": {"a": 1}}


def test_a_changed_byte_of_a_large_value_is_an_error_that_names_its_file(disk: Disk) -> None:
    value = {"text": "x" * 100_000, "buffer": np.arange(20_000)}
    with disk.store() as opened:
        there, listed = opened.grid.get_map("m"), opened.grid.get_list("l")
        there["a"] = value
        listed.append("y" * 100_000)
        for file in (disk.folder / "blobs").iterdir():
            whole = file.read_bytes()
            for at in (0, 9, 17, 40, 300, len(whole) // 2, len(whole) - 20, len(whole) - 17, len(whole) - 6):
                file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
                with pytest.raises(GridError, match=rf"{file.name}, the file of a large value, is damaged: its"):
                    there.get("a"), list(listed)
            file.write_bytes(whole)
        assert there["a"]["buffer"].sum() == value["buffer"].sum()


def test_a_folder_in_place_of_the_file_of_a_large_value_is_an_error_that_names_it(disk: Disk) -> None:
    with disk.store() as opened:
        opened.grid.get_map("m")["a"] = b"x" * 100_000
        (file,) = (disk.folder / "blobs").iterdir()
        file.unlink()
        file.mkdir()
        with pytest.raises(GridError, match=rf"{file.name}, .* is damaged: its file cannot be read: Is a directory"):
            opened.grid.get_map("m").get("a")
        file.rmdir()


def test_the_file_of_another_large_value_is_an_error_that_names_it(disk: Disk) -> None:
    with disk.store() as opened:
        there = opened.grid.get_map("m")
        there["a"], there["b"] = b"x" * 100_000, b"y" * 100_000
        blobs = opened.grid.opened.blobs
        file_bytes = b"".join(map(bytes, contents([b"staged"])))
        blobs.stage(b"i" * 16, 0, file_bytes)
        staged = blobs.name_staged(b"i" * 16, len(file_bytes), 3)
        assert blobs.read(staged) == [b"staged"]
        one, two, three = sorted((disk.folder / "blobs").iterdir())
        whole = one.read_bytes(), two.read_bytes(), three.read_bytes()
        one.write_bytes(whole[1])
        two.write_bytes(whole[2])
        three.write_bytes(whole[0])
        for file in (one, two, three):
            with pytest.raises(GridError, match=rf"{file.name}, .* is damaged: its .* it is the file of another value"):
                blobs.read(file.name.encode())
        of_an_older_version = whole[0][:-4] + bytes(4)
        one.write_bytes(of_an_older_version)
        assert blobs.read(one.name.encode())


def test_files_of_large_values_go_from_version_to_version(disk: Disk) -> None:
    pickled, arrays = pickle.dumps(["x" * 100_000]), [b"a", b"b" * 9]
    parts = [pickled, *arrays]
    old = b"".join([number.to_bytes(8, "little") for number in (len(parts), *map(len, parts))] + parts)
    with disk.store() as opened:
        blobs = opened.grid.opened.blobs
        name = blobs.write([b""])
        (disk.folder / "blobs" / name.decode()).write_bytes(old)  # as the last version wrote it
        assert blobs.read(name) == parts
        (disk.folder / "blobs" / name.decode()).write_bytes(b"".join(map(bytes, contents(parts))))
        assert blobs.read(name) == parts
        (disk.folder / "blobs" / name.decode()).write_bytes(b"".join(map(bytes, contents([]))))
        with pytest.raises(GridError, match="damaged"):
            blobs.read(name)
    *others, checksum = contents(parts)[1:]  # what the last version reads of a file of this one
    assert others == parts
    assert pickle.loads(pickled, buffers=[*arrays, checksum]) == ["x" * 100_000]


def test_a_missing_file_of_a_large_value_is_named(disk: Disk) -> None:
    with disk.store() as opened:
        opened.grid.get_map("m").update(a=b"x" * 100_000, b=b"y" * 100_000)
    (one, _) = (disk.folder / "blobs").iterdir()
    moved = one.rename(disk.folder / "gone" / one.name)
    with disk.store() as opened:
        assert len(opened.all()["m"]) == 2
    assert one.exists()
    one.rename(moved)
    moved.unlink()
    with pytest.raises(GridError, match=f"lacks the files of 1 large values, {one.name}"), disk.store():
        pass


def test_with_waiting_a_change_is_on_disk_when_it_returns(disk: Disk) -> None:
    with disk.store(waits=True) as opened:
        for number in range(5):
            opened.grid.get_map("m")[number] = b"x" * 70_000 * (number % 2)
            copied = disk.copy()
            with disk.store(folder=copied) as crashed:
                assert list(crashed.grid.get_map("m")) == list(opened.grid.get_map("m"))
                assert crashed.all() == opened.all()


def test_many_writers_wait_for_the_disk_together(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    real, goes_on, interrupted = os.fdatasync, threading.Event(), threading.Event()
    goes_on.set()

    def waiting(fd: int) -> None:
        goes_on.wait()
        real(fd)

    def sleep(_: float) -> None:
        if not goes_on.is_set() and not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt  # of the thread that looks for all: another one does so then
        time.sleep(0.0002)

    monkeypatch.setattr(os, "fdatasync", waiting)
    monkeypatch.setattr("shmjet.grid.disk_link.time", SimpleNamespace(sleep=sleep))
    with disk.store(waits=True) as opened:
        stored = opened.grid.get_map("m")
        stored["first"] = 0
        goes_on.clear()

        def write(number: int) -> None:
            with suppress(KeyboardInterrupt):
                stored[number] = number
                assert goes_on.is_set()
                stored[number, "again"] = number
                returned.append(number)

        returned: list[int] = []
        threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(stored) == 9 and interrupted.is_set())
        assert returned == []
        goes_on.set()
        for thread in threads:
            thread.join()
        assert len(returned) == 7
        assert len(stored) == 9 + 7


@pytest.mark.parametrize("call", ["fdatasync", "write"])
def test_an_error_of_the_disk_is_named_and_overcome(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    real, broken = getattr(os, call), [False]

    def failing(fd: int, *args: Any) -> Any:
        if broken[0] and str(disk.folder) in os.readlink(f"/proc/self/fd/{fd}"):
            if call == "write":
                real(fd, args[0][: len(args[0]) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, *args)

    monkeypatch.setattr(os, call, failing)
    caplog.set_level(logging.WARNING, "shmjet.member")
    with disk.store() as opened:
        opened.grid.get_map("m")["before"] = 1
        opened.writer.sync()
        broken[0] = True
        opened.grid.get_map("m")["meanwhile"] = 2
        with pytest.raises(OSError, match="No space left"):
            opened.writer.sync()
        until(lambda: "maps and lists cannot be written to" in caplog.text)
        assert str(disk.folder) in caplog.text
        broken[0] = False
        opened.grid.get_map("m")["after"] = 3
        until(lambda: "are written to" in caplog.text)
    with disk.store() as again:
        assert again.all() == {"m": {"before": 1, "meanwhile": 2, "after": 3}}


def test_a_waiting_writer_is_told_of_a_full_disk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    real, broken = os.fdatasync, [False]

    def failing(fd: int) -> None:
        if broken[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", failing)
    with disk.store(waits=True) as opened:
        opened.grid.get_map("m")["before"] = 1
        broken[0] = True
        with pytest.raises(GridError, match=r"cannot be written to disk .*the change is in memory"):
            opened.grid.get_map("m")["meanwhile"] = 2
        assert opened.grid.get_map("m")["meanwhile"] == 2
        broken[0] = False
        opened.writer.sync()
        opened.grid.get_map("m")["after"] = 3
    with disk.store() as again:
        assert again.all() == {"m": {"before": 1, "meanwhile": 2, "after": 3}}


@pytest.mark.parametrize("name", ["m", "journal"])
def test_a_large_value_that_a_full_disk_does_not_take_stays(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real, broken = os.fdatasync, [False]

    def failing(fd: int) -> None:
        if broken[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", failing)
    wanted = {key: key * 70_000 for key in "abcde"}
    with disk.store(waits=True) as opened:
        jet = opened.grid.get_map(name)
        jet["c"], jet["d"] = "before", "before"
        broken[0] = True
        for write in (
            lambda: jet.update(e=wanted["e"]),
            lambda: jet.put_if_absent("a", wanted["a"]),
            lambda: jet.put("b", wanted["b"]),
            lambda: jet.replace("c", wanted["c"]),
            lambda: jet.compute("d", lambda _: wanted["d"]),
        ):
            with pytest.raises(GridError, match=r"cannot be written to disk .*the change is in memory"):
                write()
        with pytest.raises(GridError, match="the change is in memory"):
            opened.grid.get_list("l").append(wanted["a"])
        assert opened.all() == {name: wanted, "list l": [wanted["a"]]}
        broken[0] = False
        opened.writer.sync()
    with disk.store() as again:
        assert again.all() == {name: wanted, "list l": [wanted["a"]]}


@pytest.mark.parametrize("name", ["m", "journal"])
def test_what_a_full_disk_does_not_take_is_in_memory_as_a_whole(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Not only the first portion, and the error has what the call would have returned."""
    real, broken = os.fdatasync, [False]

    def failing(fd: int) -> None:
        if broken[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(fd)

    def result_of(call: Callable[[], object]) -> object:
        with pytest.raises(NotOnDiskError, match="the change is in memory") as raised:
            call()
        return raised.value.result

    monkeypatch.setattr(os, "fdatasync", failing)
    large = "x" * 70_000
    with disk.store(waits=True) as opened:
        jet, items = opened.grid.get_map(name), opened.grid.get_list("l")
        jet.update(dict.fromkeys("abcdef", large))
        broken[0] = True
        assert result_of(lambda: jet.put("a", 1)) == large
        assert result_of(lambda: jet.replace("a", 2)) == 1
        assert result_of(lambda: jet.pop("b")) == large
        assert jet.pop("b", 7) == 7  # which changes nothing
        assert result_of(lambda: jet.compute("c", lambda _: 3)) == 3
        assert result_of(lambda: jet.remove("d")) == large
        result_of(lambda: jet.__delitem__("e"))
        taken = result_of(jet.popitem)
        assert taken in [("a", 2), ("c", 3), ("f", large)]
        result_of(lambda: jet.update({number: number for number in range(100)}, more=1))
        result_of(lambda: items.extend(["y" * 300_000, large, *range(40_000)]))
        left = {"a": 2, "c": 3, "f": large, **{number: number for number in range(100)}, "more": 1}
        del left[taken[0]]  # type: ignore[index]
        assert dict(jet) == left
        assert list(items) == ["y" * 300_000, large, *range(40_000)]
        broken[0] = False
        opened.writer.sync()
        wanted = opened.all()
    with disk.store() as again:
        assert again.all() == wanted


def test_to_clear_a_map_makes_room_on_a_full_disk(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    real, is_full = os.write, [False]

    def failing(fd: int, data: bytes) -> int:
        if is_full[0] and len(data) > 500 and str(disk.folder) in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr(os, "write", failing)
    with disk.store(waits=True) as opened:
        opened.grid.get_map("kept")["a"] = 1
        for number in range(300):
            opened.grid.get_map("large")[number] = os.urandom(30_000)
        is_full[0] = True
        with pytest.raises(GridError, match="cannot be written to disk"):
            opened.grid.get_map("large")["more"] = os.urandom(30_000)
        with suppress(GridError):  # it is not on disk yet
            opened.grid.get_map("large").clear()
        until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
        until(lambda: files.generations(disk.folder, files.LOG)[0] > 1)
        is_full[0] = False  # as the log before the checkpoint has gone
        opened.writer.sync()
        opened.grid.get_map("kept")["b"] = 2
        wanted = opened.all()
        assert wanted == {"kept": {"a": 1, "b": 2}, "large": {}}
    with disk.store() as again:
        assert again.all() == wanted


def test_a_store_on_a_full_disk_is_brought_back_with_the_room_that_is_kept(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with disk.store() as opened:
        opened.grid.get_map("plain")["a"] = 1
    reserve = disk.folder / RESERVE_FILE
    phases: list[bool] = []

    def restored(name: str) -> None:
        phases.clear()
        place = StoreOnDisk(
            tmp_path / name, disk.folder, 7, MAPS, 0.002, phase=lambda _: phases.append(reserve.exists())
        )
        with Grid.open(tmp_path / name) as grid:
            assert dict(grid.get_map("plain")) == {"a": 1}
        place.close()

    restored("a")
    assert phases[0]
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=15, f_frsize=4096))
    restored("b")
    assert not phases[0]
    assert reserve.exists()  # there is room again


@pytest.mark.parametrize("log_bytes", [1 << 26, 1])
def test_entries_end_at_the_same_time_after_the_host_was_started_anew(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, log_bytes: int
) -> None:
    here = files.Clock.of_host()
    hour = 3600 * 10**9
    monkeypatch.setattr(files.Clock, "of_host", staticmethod(lambda: files.Clock("before", here.offset + hour)))
    with disk.store(log_bytes=log_bytes) as opened:  # the clock since boot was an hour behind what it is now
        opened.grid.get_map("m").put("long", 1, ttl=7200)
        opened.grid.get_map("m").put("short", 1, ttl=1800)
        opened.grid.get_map("m")["always"] = 1
        opened.writer.sync()
        if log_bytes == 1:
            until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
    monkeypatch.setattr(files.Clock, "of_host", staticmethod(lambda: files.Clock("now", here.offset)))
    with disk.store() as again:
        assert set(again.grid.get_map("m")) == {"long", "short", "always"}
    monkeypatch.setattr(files.Clock, "of_host", staticmethod(lambda: files.Clock("later", here.offset + 2 * hour)))
    with disk.store() as again:
        assert set(again.grid.get_map("m")) == {"long", "always"}


@pytest.mark.parametrize("log_bytes", [1 << 26, 1])
def test_times_to_live_hold_where_the_wall_clock_was_set_before_the_host_was_started_anew(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, log_bytes: int
) -> None:
    right, hour = files.Clock.offset_of_host(), 3600 * 10**9
    offset, boot = [right - hour], ["before"]
    monkeypatch.setattr(files.Clock, "offset_of_host", staticmethod(lambda: offset[0]))
    monkeypatch.setattr(files.Clock, "of_host", staticmethod(lambda: files.Clock(boot[0], offset[0])))
    with disk.store(log_bytes=log_bytes) as opened:
        opened.grid.get_map("m").put("early", 1, ttl=1800)
        opened.writer.sync()
        if log_bytes == 1:
            until(lambda: bool(files.generations(disk.folder, files.CHECKPOINT)))
        offset[0] = right  # the host has learned what time it is
        opened.grid.get_map("m").put("late", 1, ttl=1800)
        opened.writer.sync()
    boot[0] = "now"
    with disk.store() as again:
        assert set(again.grid.get_map("m")) == {"early", "late"}
    boot[0], offset[0] = "later", right + hour
    with disk.store() as again:
        assert set(again.grid.get_map("m")) == set()


def test_other_settings_are_refused(disk: Disk, tmp_path: Path) -> None:
    with disk.store() as opened:
        opened.grid.get_map("plain")["a"] = 1
    with pytest.raises(ConfigError, match=r"partition_count is 9, but the maps and lists in .* have 7 partitions"):
        restore(tmp_path / "a", disk.folder, 9, MAPS, waits_for_disk=False)
    with pytest.raises(ConfigError, match="the map 'plain' is on disk with MapConfig"):
        restore(tmp_path / "b", disk.folder, 7, {"plain": MapConfig(max_bytes=1000)}, waits_for_disk=False)
    store = disk.folder / files.STORE_FILE
    before = store.read_text()
    of_an_older_version = re.sub(',"checksum":"[0-9a-f]{8}"', "", before)
    assert of_an_older_version != before
    store.write_text(of_an_older_version.replace('"format":2', '"format":7'))
    with pytest.raises(ConfigError, match=r"in format 7\.5; this shmjet reads 1\.5 and 2\.5"):
        restore(tmp_path / "c", disk.folder, 7, MAPS, waits_for_disk=False)
    store.write_text("{}")
    with pytest.raises(ConfigError, match=r"format 0\.0"):
        restore(tmp_path / "d", disk.folder, 7, MAPS, waits_for_disk=False)
    store.write_text(of_an_older_version)
    said: list[str] = []
    restore(tmp_path / "e", disk.folder, 7, MAPS, waits_for_disk=False, phase=said.append)
    assert said == [f"bringing its maps and lists back from {disk.folder}"]
    with disk.store() as again:
        assert again.all() == {"plain": {"a": 1}}


@pytest.mark.parametrize("seed", range(2))
def test_random_operations_over_restarts_are_those_on_dicts_and_lists(disk: Disk, seed: int) -> None:
    rng = random.Random(seed)
    model: dict[str, Any] = {}

    def value() -> Any:
        size = rng.choice([0, 3, 3, 3, 70_000])
        return rng.choice([rng.randrange(100), "text", 2.5, (1, "a")]) if not size else rng.randbytes(size)

    def change(grid: Grid) -> None:
        name, key = rng.choice(["plain", "journal", "limited", "other"]), rng.randrange(30)
        entries = grid.get_map(name)
        match rng.randrange(9):
            case 0 | 1 | 2:
                entries[key] = found = value()
                model.setdefault(name, {})[key] = found
            case 3:
                many = {rng.randrange(30): value() for _ in range(rng.randrange(40))}
                entries.update(many)
                if many:
                    model.setdefault(name, {}).update(many)
            case 4:
                assert entries.pop(key, "nothing") == model.get(name, {}).pop(key, "nothing")
            case 5:
                entries.put(key, 1, ttl=10_000)
                model.setdefault(name, {})[key] = 1
            case 6 if rng.random() < 0.3:
                entries.clear()
                model[name] = {}
            case 7 if rng.random() < 0.3:
                entries.destroy()
                model.pop(name, None)
            case _:
                items = [value() for _ in range(rng.randrange(5))]
                grid.get_list("l").extend(items)
                if items:
                    model.setdefault("list l", []).extend(items)

    for _ in range(6):
        with disk.store(log_bytes=rng.choice([1 << 16, 1 << 20, 1 << 26])) as opened:
            assert {name: found for name, found in opened.all().items() if found} == {
                name: found for name, found in model.items() if found
            }
            for _ in range(rng.randrange(60)):
                change(opened.grid)
                if rng.random() < 0.1:
                    opened.writer.sync()
