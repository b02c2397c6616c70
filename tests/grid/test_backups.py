"""Maps and lists with backups on other members, when members are lost at any moment."""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw
from msgspec.msgpack import encode
from msgspec.structs import replace

from shmjet.core.grid_calls import journal_reader, put_once
from shmjet.core.keys import partition_id
from shmjet.data.errors import MemberLostError
from shmjet.grid import Grid, GridError
from shmjet.grid.change_log import read_records
from shmjet.grid.disk.store_on_disk import StoreOnDisk
from shmjet.grid.ownership import Opening, close_partitions, count_backups, open_here, opening
from shmjet.grid.partition_copy import File, PartitionCopy
from shmjet.grid.partition_sums import sums
from shmjet.grid.replica import Replica, Sent
from shmjet.grid.routed import RoutedGrid
from tests.examples import EXPLORES, seeds
from tests.grid.backed import BackedStores
from tests.grid.divided import CONFIGS, COUNT, Losing
from tests.grid.linearisability import Operation, is_linearisable
from tests.grid.test_divided import Point
from tests.grid.test_histories import KEYS, KINDS, do


def replayed(there: Any) -> dict[Any, Any]:
    """Return what the whole journal of a map says that is there."""
    found: dict[Any, Any] = {}
    for event in (event for some in iter(journal_reader(there, "oldest").read, []) for event in some):
        assert event.kind != "lost"
        assert found.pop(event.key, None) == event.old
        if event.new is not None:
            found[event.key] = event.new
    return found


@pytest.mark.parametrize(
    ("backups", "is_local", "on_disk"), [(1, False, True), (2, True, False)], ids=["one-disk", "two-worker"]
)
@pytest.mark.parametrize("name", ["plain", "journal", "limited"])
@pytest.mark.parametrize("seed", range(30 if EXPLORES else 1))
def test_every_operation_is_there_when_members_are_lost(
    tmp_path: Path, name: str, backups: int, is_local: bool, on_disk: bool, seed: int
) -> None:
    chance = random.Random(seed)
    stores = BackedStores(tmp_path, 7, backups, tmp_path / "disk" if on_disk else None)
    grid = stores.grid(is_local=is_local)
    jet, items, model, expected = grid.get_map(name), grid.get_list("items"), dict[Any, Any](), list[Any]()
    for number in range(400):
        key = chance.choice([chance.randrange(6), str(chance.randrange(6)), "k" * 600])
        match chance.randrange(11):
            case 0:
                assert jet.put(key, number) == model.get(key)
                model[key] = number
            case 1:
                assert jet.put_if_absent(key, "x" * 70_000) == model.get(key)
                model.setdefault(key, "x" * 70_000)
            case 2:
                assert jet.replace(key, Point(number)) == model.get(key)
                model.update({key: Point(number)} if key in model else {})
            case 3:
                assert jet.pop(key, None) == model.pop(key, None)
            case 4:
                assert jet.compute(key, lambda old, number=number: [old, number][1:]) == [number]
                model[key] = [number]
            case 5:
                more_items = [number, "y" * 70_000 if number % 3 else "z"]
                items.extend(more_items)
                expected += more_items
            case 6:
                more = {chance.randrange(20): number for _ in range(5)}
                jet.put_all(more)
                model.update(more)
            case 7:
                put_once(jet, {key: number, 1: None}, b"writer", number + 1)
                model[key] = number
                model.pop(1, None)
            case 8 if number % 8 == 0:
                items.clear()
                expected.clear()
            case 9 if number % 8 == 0:
                jet.clear()
                model.clear()
            case 10:
                stores.hand_over(chance.randrange(COUNT), chance)
        if number % 90 == 60:
            others = [member for member in stores.alive if member != "0"]
            stores.kill(chance.sample(others, min(backups, len(others) - 1)), chance)
            if len(stores.alive) > backups:
                stores.repair()
        if number % 30 == 0:
            assert dict(jet.items()) == model
            assert len(jet) == len(model)
            assert sum(jet.partition_sizes().values()) == len(model)
            assert jet.get_all([*range(20), "missing"]) == {key: model[key] for key in range(20) if key in model}
            assert list(items) == expected
            assert len(items) == len(expected)
    assert len(stores.alive) < 7 - backups
    if name == "journal":
        assert replayed(jet) == model
    for number, member in enumerate(stores.on_disk):
        stores.on_disk[member].sync()
        copy, folder = tmp_path / f"copy{number}", tmp_path / f"again{number}"
        shutil.copytree(tmp_path / "disk" / member, copy)
        again = StoreOnDisk(folder, copy, COUNT, CONFIGS, 0.01, is_divided=True)
        with Grid.open(folder) as there:
            (files, *entries), (before, *others) = contents(there.opened), contents(stores.grids[member].opened)
            assert entries == others
            assert files.items() <= before.items()  # a start removes files without a name in an entry
        again.close()
    stores.close()


def contents(store: Any) -> list[Any]:
    """Return all that a store has, but for the moments at which it was read."""
    pieces = list(PartitionCopy(store).pieces(range(COUNT)))
    files = {(piece.name, piece.offset): piece.data for piece in pieces if isinstance(piece, File)}
    others = [piece for piece in pieces if not isinstance(piece, File)]
    return [files, *(replace(piece, moment=0) if hasattr(piece, "moment") else piece for piece in others)]


@pytest.mark.parametrize("seed", seeds(30 if EXPLORES else 3))
def test_histories_have_one_order_when_members_are_lost(tmp_path: Path, seed: int) -> None:
    stores = BackedStores(tmp_path, 8, 2)
    found: dict[int, list[Operation]] = defaultdict(list)
    failed: list[BaseException] = []
    appended: set[tuple[int, int]] = set()
    tried: set[tuple[int, int]] = set()
    steps = threading.Semaphore(0)

    def use(index: int) -> None:
        local = index % 2 == 1
        grid = stores.grid(index if local else 0, is_local=local, seed=7 * seed + index + 1)
        jet, items = grid.get_map("m"), grid.get_list("items")
        kind, value, begin, key = "get", 0, 0, 0
        try:
            for number in range(80):
                kind, key = KINDS[(number + 3 * index) % len(KINDS)], number % KEYS
                value = 1 if kind == "increment" else (index + 1) * 1000 + number
                begin = time.monotonic_ns()
                answer = do(jet, kind, key, value)
                found[key].append(Operation(kind, value, answer, begin, time.monotonic_ns()))
                kind = ""
                tried.add((index, number))
                items.append((index, number))
                appended.add((index, number))
                steps.release()
        except MemberLostError:  # this one was in the member
            if kind:
                found[key].append(Operation(kind, value, None, begin))
        except BaseException as error:
            failed.append(error)
        finally:
            for _ in range(80):
                steps.release()

    users = [threading.Thread(target=use, args=(index,)) for index in range(4)]
    for thread in users:
        thread.start()
    chance = random.Random(seed)
    for victims in (["1", "4"], ["3", "5"], ["6"], ["7"]):
        for _ in range(30):
            steps.acquire()
        stores.kill(victims, chance)
        stores.repair()
    for thread in users:
        thread.join()
    assert not failed
    grid = stores.grid()
    for key in found:
        last = max(operation.begin for operation in found[key]) + 10**12
        found[key].append(Operation("get", None, grid.get_map("m").get(key), last, last))
    assert all(map(is_linearisable, found.values()))
    items = list(grid.get_list("items"))
    assert len(items) == len(set(items))
    assert appended <= set(items) <= tried
    for index in range(4):
        own = [number for other, number in items if other == index]
        assert own == sorted(own)
    stores.close()


def test_what_backups_have_of_times_ends_there_too(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 3, 1)
    there = stores.grid().get_map("m")
    for number in range(30):
        there.put(number, 1, ttl=0.5 if number % 2 else 600)
    there.put(1, 2, ttl=600)
    stores.kill(["1"], random.Random(1))
    assert there[1] == 2
    deadline = time.monotonic() + 60
    while len(there) > 16:
        assert time.monotonic() < deadline
    assert sorted(there) == sorted([1, *range(0, 30, 2)])
    stores.close()


def test_a_backup_keeps_entries_that_have_ended_until_its_primary_removes_them(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 3, 1)
    there = stores.grid().get_map("m")
    for number in range(60):
        there.put(number, 1, ttl=0.2)  # none ends before all are there: a put removes what has ended
    deadline = time.monotonic() + 60
    while len(there):
        assert time.monotonic() < deadline
    mine = [number for number in range(1000, 1040) if stores.primaries[partition_id(number, COUNT)] == 0]
    there.put_all(dict.fromkeys(mine, 2))
    stores.ship("0")
    here, other = stores.grids["0"].opened, stores.grids["2"].opened
    backups = [partition for partition in range(COUNT) if stores.rows[partition] == ["2", "0"]]
    kept = [[one for one in sums(here, partition) if one] for partition in backups]
    assert kept == [[one for one in sums(other, partition) if one] for partition in backups]
    assert sum(one.pieces for some in kept for one in some) > 5
    stores.kill(["2"], random.Random(1))
    there.put_all(dict.fromkeys(mine, 3))
    assert not [one for partition in backups for one in sums(here, partition) if one], "now they are its own"
    stores.close()


@pytest.mark.parametrize("name", ["m", "journal"])
def test_what_has_ended_goes_on_all_members_though_nothing_is_written(tmp_path: Path, name: str) -> None:
    stores = BackedStores(tmp_path, 3, 1)
    there = stores.grid().get_map(name)
    for number in range(60):
        there.put(number, "x" * 70_000 if number % 9 == 0 else 1, ttl=0.3 if number % 2 else 600)
    deadline = time.monotonic() + 60
    while len(there) > 30:
        assert time.monotonic() < deadline
    for member in stores.names:
        while stores.grids[member].opened.end_some():
            pass
        stores.ship(member)
    members = [grid.opened for grid in stores.grids.values()]
    found = [one for member in members for partition in range(COUNT) for one in sums(member, partition) if one]
    assert sum(one.pieces for one in found) == 2 * 30
    files = [name for member in members for name in os.listdir(member.blobs.folder)]
    assert len(files) == 2 * (4 if name == "m" else 7), "events of a journal have their values"
    assert sorted(there) == list(range(0, 60, 2))
    stores.close()


def test_a_map_that_must_have_backups_is_not_written_without(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    there = stores.grid().get_map("two")
    with pytest.raises(GridError, match=r"only with 2 backups .* has 1 now"):
        there.put_all({1: 1})
    assert len(there) == 0
    there = stores.grid().get_map("one")
    there.put(1, 1)
    stores.kill(["1"], random.Random(1))
    for work in (lambda: there.put(1, 2), lambda: there.pop(1), lambda: there.update({2: 2})):
        with pytest.raises(GridError, match=r"only with 1 backups .* has 0 now"):
            work()
    assert dict(there) == {1: 1}
    stores.close()


def test_nothing_is_logged_where_there_are_no_backups(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    there = stores.grid().get_map("m")
    there.put_all(dict.fromkeys(range(100), 1))
    stores.kill(["1"], random.Random(1))
    opened = stores.grids["0"].opened
    before = [read_records(env, 0)[1] for env in opened.environments]
    there.put_all(dict.fromkeys(range(200), 1))
    assert [read_records(env, 0)[1] for env in opened.environments] == before
    stores.close()


def test_the_log_keeps_what_backups_lack_and_little_more(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    there = stores.grid().get_map("m")
    for number in range(300):
        there.put(number % 7, number)
    for name in "01":
        for env in stores.grids[name].opened.environments:
            assert len(read_records(env, 0)[0]) < 12
    stores.close()


def test_no_file_stays_that_no_entry_needs(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    grid = stores.grid()
    there, items = grid.get_map("m"), grid.get_list("l")
    there.put_all(dict.fromkeys(range(20), b"x" * 70_000))
    items.extend([1, b"y" * 70_000])
    folders = [stores.grids[name].opened.blobs.folder for name in "01"]
    assert [len(list(folder.iterdir())) for folder in folders] == [21, 21]
    for number in range(10):
        there.put(number, number)
    there.pop(10)
    items.clear()
    stores.ship("0")
    stores.ship("1")
    assert [len(list(folder.iterdir())) for folder in folders] == [9, 9]
    stores.close()


@pytest.mark.parametrize("lucky", ["1", "2"])
def test_backups_of_a_lost_member_agree_on_what_only_one_of_them_has(tmp_path: Path, lucky: str) -> None:
    stores = BackedStores(tmp_path, 3, 2)
    items, there = stores.grid(2).get_list("items"), stores.grid(2).get_map("m")
    items.append(0)
    names = [name for name in range(40) if stores.primaries[partition_id(name, COUNT)] == 0]
    there.put_all(dict.fromkeys(names, "old"))
    stores.hand_over_to(partition_id("items", COUNT), "0")
    unsettled = RoutedGrid(Losing(stores, "2", 0))
    unsettled.get_list("items").append(1)
    unsettled.get_map("m").put_all(dict.fromkeys(names, "new"))
    stores.deliver("0", lucky)
    stores.kill(["0"], random.Random(1), delivers=False)
    seen = dict(there), list(items)
    assert seen == (dict.fromkeys(names, "new"), [0, 1])
    stores.kill(["1"], random.Random(1), delivers=False)
    assert (dict(there), list(items)) == seen
    stores.close()


def test_what_is_read_when_a_partition_is_opened_again_is_on_its_backups(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    partition = partition_id("key", COUNT)
    primary, other = (stores.names[place ^ stores.primaries[partition]] for place in range(2))
    there = stores.grid(stores.names.index(other)).get_map("m")
    there.put("key", "old")
    RoutedGrid(Losing(stores, other, 0)).get_map("m").put("key", "new")  # waits for no backup
    close_partitions(stores.grids[primary].opened.environments, [partition])
    stores.open(primary, [partition])
    assert there.get("key") == "new"
    stores.kill([primary], random.Random(1), delivers=False)
    assert there.get("key") == "new"
    stores.close()


def test_a_closed_partition_stays_closed_when_its_backups_are_counted(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    environments = stores.grids["0"].opened.environments
    close_partitions(environments, [0])
    count_backups(environments, {0: 1, 2: 0})
    for env in environments:
        with env.begin() as txn:
            assert 0 not in open_here(txn)
            assert opening(txn, (2).to_bytes(2, "big")) == Opening(102)
    stores.close()


def test_a_backup_takes_nothing_of_a_primary_that_another_one_has_followed(tmp_path: Path) -> None:
    stores = BackedStores(tmp_path, 2, 1)
    sent = [Sent(0, 5, [(0, (1, 0), Raw(encode([])))])]
    replica = Replica(stores.grids["1"].opened)
    replica.take("0", [0, 0], sent, 0)
    assert replica.position(0, 0) == ((1, 0), 5)
    replica.begin(0, (2, 0), [1, 1])
    with pytest.raises(GridError, match="partition 0 has had another primary since"):
        replica.take("0", [0, 0], sent, 0)
    stores.close()
