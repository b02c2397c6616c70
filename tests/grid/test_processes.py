"""A store between processes: writers in parallel, killed writers and readers, forks, full file systems, classes."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import lmdb
import pytest

from shmjet.grid import Grid, GridError, GridFullError
from shmjet.grid.layout import MAP_RECORD, Layout, record_key
from shmjet.grid.scan import pages
from tests.grid.conftest import FORK, in_processes, run_script


def test_several_processes_write_one_map_and_nothing_is_lost(folder: Path) -> None:
    def work(grid: Grid, index: int) -> None:
        jet = grid.get_map("m")
        for batch in range(20):
            jet.put_all(((index, batch, i), "x" * (i % 50)) for i in range(100))
            jet[f"{index}-{batch}"] = batch

    assert in_processes(folder, work, 4) == [0] * 4
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        assert len(jet) == 4 * 20 * 101 == len(set(jet)) == len(dict(jet))


def test_a_list_keeps_the_order_of_each_of_its_writers(folder: Path) -> None:
    def work(grid: Grid, index: int) -> None:
        for start in range(0, 2000, 40):
            grid.get_list("l").extend((index, i) for i in range(start, start + 40))

    assert in_processes(folder, work, 3) == [0] * 3
    with Grid.open(folder) as grid:
        items = list(grid.get_list("l"))
    assert len(items) == 6000
    for index in range(3):
        assert [i for writer, i in items if writer == index] == list(range(2000))


def test_put_if_absent_lets_exactly_one_process_win_each_key(folder: Path) -> None:
    def work(grid: Grid, index: int) -> None:
        jet = grid.get_map("m")
        won = sum(jet.put_if_absent(key, index) is None for key in range(500))
        grid.get_list("won").append(won)

    assert in_processes(folder, work, 4) == [0] * 4
    with Grid.open(folder) as grid:
        assert sum(grid.get_list("won")) == 500 == len(grid.get_map("m"))


def test_pop_gives_each_entry_to_exactly_one_process(folder: Path) -> None:
    with Grid.open(folder) as grid:
        grid.get_map("m").put_all((i, i) for i in range(1000))

    def work(grid: Grid, _: int) -> None:
        jet = grid.get_map("m")
        grid.get_list("taken").extend([key for key in range(1000) if jet.pop(key, None) is not None])

    assert in_processes(folder, work, 3) == [0] * 3
    with Grid.open(folder) as grid:
        assert sorted(grid.get_list("taken")) == list(range(1000))


def test_clear_destroy_and_put_from_several_processes_leave_a_consistent_map(folder: Path) -> None:
    def work(grid: Grid, index: int) -> None:
        jet = grid.get_map("m")
        for turn in range(15):
            jet.put_all((f"{index}-{i}", "x" * (100_000 if i == 0 else 1)) for i in range(200))
            if turn % 5 == index:
                jet.clear() if turn % 2 else jet.destroy()

    assert in_processes(folder, work, 3) == [0] * 3
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        assert len(jet) == len(list(jet)) == len(dict(jet.items()))
        assert all(jet[key] == value for key, value in jet.items())
        jet.destroy()
        grid.after_worker_death()
        assert list((folder / "blobs").iterdir()) == []


@pytest.mark.slow
def test_killed_writers_leave_the_store_whole_and_the_others_writing(folder: Path) -> None:
    def work(index: int) -> None:
        with Grid.open(folder) as grid:
            jet = grid.get_map("m")
            turn = 0
            while True:
                turn += 1
                jet.put_all(((index, i), (turn, "v" * (i % 300))) for i in range(3000))

    for victim in range(8):
        process = FORK.Process(target=work, args=(victim,))
        process.start()
        with_entries = _eventually(lambda victim=victim: _has_key(folder, (victim, 5)))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        process.close()
        assert with_entries
        with Grid.open(folder) as grid:
            grid.after_worker_death()
            jet = grid.get_map("m")
            jet["mine"] = victim  # the lock was passed on
            assert len(jet) == len(list(jet.items()))
            assert all(key == "mine" or len(value[1]) == key[1] % 300 for key, value in jet.items())


def _has_key(folder: Path, key: Any) -> bool:
    with Grid.open(folder) as grid:
        return key in grid.get_map("m")


def _eventually(condition: Any, timeout: float = 60.0) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
    return True


def stored_values(grid: Grid, name: str) -> list[bytes]:
    """Return the values of a map as they are stored."""
    tables = grid.opened.parts_of(record_key(MAP_RECORD, name))
    return [value for table in tables for page in pages(table.env, table.record_key) for value in page.values]


def test_a_killed_reader_does_not_keep_old_pages(folder: Path) -> None:
    reading, done = FORK.Pipe(duplex=False)

    def read() -> None:
        with Grid.open(folder) as grid, grid.opened.environment(0).begin() as txn:
            txn.get(record_key(MAP_RECORD, "m"))
            done.send("reading")
            signal.pause()

    with Grid.open(folder) as grid:
        grid.get_map("m").put_all((i, "x" * 100) for i in range(5000))
    process = FORK.Process(target=read)
    process.start()
    assert reading.recv() == "reading"
    assert process.pid is not None
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        jet["a"] = 1
        os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        process.close()
        assert grid.opened.environment(0).check_readers() == 1
        sizes = []
        for turn in range(12):
            jet.put_all((i, str(turn % 10) * 100) for i in range(5000))
            sizes.append((folder / "0" / "data.mdb").stat().st_size)
        assert sizes[-1] == sizes[6]
    reading.close()
    done.close()


def test_a_sweep_that_died_half_way_is_finished_later(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    jet = grid.get_map("m")
    jet.put_all((i, "x" * 70_000 if i < 5 else i) for i in range(1000))
    monkeypatch.setattr("shmjet.grid.table.sweep", lambda *_: None)
    jet.clear()
    assert len(jet) == 0
    assert len(list((grid.folder / "blobs").iterdir())) == 5
    grid.after_worker_death()
    assert list((grid.folder / "blobs").iterdir()) == []
    assert stored_values(grid, "m") == []


def test_a_grid_opened_before_a_fork_says_so_in_the_child_and_lives_on_in_the_parent(grid: Grid) -> None:
    jet = grid.get_map("m")
    jet["a"] = 1

    def child() -> None:
        with pytest.raises(GridError, match="before this process was forked"):
            jet["a"]

    process = FORK.Process(target=child)
    process.start()
    process.join(60)
    assert process.exitcode == 0
    process.close()
    jet["a"] = 2
    assert jet["a"] == 2


def test_two_grids_of_one_folder_share_what_is_open(folder: Path) -> None:
    with Grid.open(folder) as one:
        with Grid.open(folder.parent / "grid") as two:
            two.get_map("m")["a"] = 1
        assert one.get_map("m")["a"] == 1


def test_a_limit_of_file_sizes_is_not_taken_for_a_full_file_system(folder: Path) -> None:
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            with pytest.raises(GridFullError, match=r"map 'm'.*files of 0 bytes at most \(RLIMIT_FSIZE"):
                jet["a"] = 1
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        jet["a"] = 2
        assert jet["a"] == 2


def test_a_full_environment_names_limit_and_remedy_and_stays_usable(tmp_path: Path) -> None:
    place = tmp_path / "small"
    Grid.create(place, environments=1, map_size=1 << 20)
    with Grid.open(place) as grid:
        jet = grid.get_map("m")
        jet["first"] = 1
        with pytest.raises(GridFullError, match=r"map 'm'.*limit of 1048576 bytes.*clear or destroy"):
            jet.put_all((i, "x" * 1000) for i in range(100_000))
        assert jet["first"] == 1
        assert len(jet) == len(list(jet.items()))
        jet.clear()
        jet["again"] = 2
        assert dict(jet) == {"again": 2}


@pytest.mark.parametrize(("limit", "each"), [(8 << 30, 256 << 20), (resource.RLIM_INFINITY, 64 << 30)])
def test_all_environments_take_a_quarter_of_a_limited_address_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, each: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, resource.RLIM_INFINITY))
    Grid.create(tmp_path / "grid", environments=8)
    assert Layout.read(tmp_path / "grid").map_size == each


def test_a_full_file_system_is_an_error_and_leaves_the_store_whole(folder: Path) -> None:
    def work(grid: Grid, _: int) -> None:
        jet = grid.get_map("m")
        jet["first"] = 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # writes beyond fail, as on a full file system
        with pytest.raises(GridFullError, match=r"map 'm'.*full"):
            jet.put_all((i, "x" * 1000) for i in range(100_000))
        with pytest.raises(GridFullError, match="value of"):
            jet["large"] = "x" * (2 << 20)
        with pytest.raises(GridFullError, match="map 'm'"):
            jet.put_all((-i, "x" * 65_000 if i % 100 else "y" * 70_000) for i in range(1, 200))
        assert all(jet[key] == value for key, value in jet.items())
        jet["first"] = 1
        large = [value for value in jet.values() if isinstance(value, str) and len(value) == 70_000]
        assert len(list((folder / "blobs").iterdir())) == len(large)
        assert len(jet) == len(list(jet.items()))
        jet.clear()

    assert in_processes(folder, work, 1) == [0]
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        jet["after"] = 1
        assert len(jet) == len(list(jet))
        assert list((folder / "blobs").iterdir()) == []


def test_a_missing_store_and_one_of_another_version_are_named(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(GridError, match="is the instance that owned it gone"):
        Grid.open(tmp_path / "nothing")
    with pytest.raises(GridError, match="holds a store"):
        Grid.create(folder)
    (folder / "grid.json").write_text('{"version": 99}')
    with pytest.raises(GridError, match="version 99"):
        Grid.open(folder)


DEFINE = """
class Point:
    def __init__(self, x): self.x = x
    def double(self): return 2 * self.x
"""


def test_instances_of_main_s_classes_are_read_by_their_owner_and_by_others(folder: Path) -> None:
    out = run_script(
        folder,
        DEFINE + "m = grid.get_map('m')\nm['p'] = Point(3)\nm.put_all((i, Point(i)) for i in range(100))\n"
        "grid.get_list('l').extend([Point(7), [Point(8)]])\n"
        "print(type(m['p']) is Point, m['p'].double(), all(type(v) is Point for v in m.values()))",
    )
    assert out == "True 6 True"
    # another process, which has another class of that name
    out = run_script(
        folder,
        "class Point: pass\nm = grid.get_map('m')\np = m['p']\n"
        "print(type(p) is Point, p.double(), type(p) is type(m[5]), grid.get_list('l')[1][0].double())\nm['q'] = p",
    )
    assert out == "False 6 True 16"
    assert run_script(folder, "print(grid.get_map('m')['q'].double(), len(grid.get_map('m')))") == "6 102"


def test_the_class_of_main_is_stored_once_and_not_with_each_value(folder: Path) -> None:
    run_script(folder, DEFINE + "grid.get_map('m').put_all((i, Point(i)) for i in range(50))")
    with Grid.open(folder) as grid:
        stored = stored_values(grid, "m")
    assert len(stored) == 50
    assert max(map(len, stored)) < 150


def test_functions_of_main_can_be_values(folder: Path) -> None:
    run_script(folder, "k = 5\ngrid.get_map('m')['f'] = lambda x: x * k")
    with Grid.open(folder) as grid:
        assert grid.get_map("m")["f"](4) == 20


@pytest.mark.slow
def test_a_value_of_a_hundred_megabytes_goes_in_and_out(folder: Path) -> None:
    with Grid.open(folder) as grid:
        jet = grid.get_map("m")
        value = os.urandom(1 << 20) * 100
        jet["large"] = value
        assert jet["large"] == value
        assert jet.pop("large") == value
        assert list((folder / "blobs").iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (
            lmdb.DiskError,
            "No space left on device",
            "No space left on device; the file system is full, or has no inode left",
        ),
        (lmdb.Error, os.strerror(errno.EMFILE), r"descriptors open: raise RLIMIT_NOFILE \(`ulimit -n`\)"),
        (lmdb.Error, "Cannot allocate memory", r"bytes of address space \(`ulimit -v`\)"),
    ],
)
def test_a_store_that_cannot_be_opened_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[lmdb.Error], text: str, said: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise kind(text)

    monkeypatch.setattr(lmdb, "open", refuse)
    with pytest.raises(GridError, match=said):
        Grid.create(tmp_path / "grid", 3)
