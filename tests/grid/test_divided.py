"""Maps and lists on the stores of several members, while partitions move between them."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.msgpack import encode

from shmjet.core.grid_calls import journal_reader, put_once
from shmjet.core.keys import partition_id
from shmjet.data.errors import MemberLostError
from shmjet.grid import Grid, GridError, routes
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.layout import MAP_RECORD, PARTITION, record_key
from shmjet.grid.operations import KeepClass
from shmjet.grid.partition_copy import Classes, PartitionCopy
from tests.grid.divided import COUNT, Losing, Stores
from tests.grid.linearisability import Operation, is_linearisable
from tests.grid.test_histories import KEYS, KINDS, do


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path, 3)
    yield stores
    stores.close()


@pytest.mark.parametrize("is_local", [False, True], ids=["client", "worker"])
@pytest.mark.parametrize("name", ["plain", "journal", "limited"])
def test_every_operation_means_the_same_wherever_partitions_are(stores: Stores, name: str, is_local: bool) -> None:
    grid = stores.grid(is_local=is_local)
    jet, items, model, expected = grid.get_map(name), grid.get_list("items"), dict[Any, Any](), list[Any]()
    chance = random.Random(7)
    for number in range(400):
        key = chance.choice([chance.randrange(6), str(chance.randrange(6)), "k" * 600])
        match chance.randrange(10):
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
            case _:
                stores.move(chance.sample(range(COUNT), 4), chance.randrange(3))
        if number % 40 == 0:
            assert dict(jet.items()) == model
            assert len(jet) == len(model)
            assert sum(jet.partition_sizes().values()) == len(model)
            assert jet.get_all([*range(20), "missing"]) == {key: model[key] for key in range(20) if key in model}
            assert list(items) == expected
            assert len(items) == len(expected)
    assert dict(jet) == model
    if name == "journal":
        events = list(iter(journal_reader(jet, "oldest").read, []))
        replayed: dict[Any, Any] = {}
        for event in (event for some in events for event in some):
            assert event.kind != "lost"
            assert replayed.pop(event.key, None) == event.old
            if event.new is not None:
                replayed[event.key] = event.new
        assert replayed == model
    items.clear()
    jet.clear()
    assert (len(jet), list(jet), len(items)) == (0, [], 0)


def test_histories_of_clients_and_workers_have_one_order_while_partitions_move(stores: Stores) -> None:
    found: dict[int, list[Operation]] = defaultdict(list)
    failed: list[BaseException] = []
    done = threading.Event()

    def use(index: int) -> None:
        try:
            grid = stores.grid(index % 3, is_local=index % 2 == 1, seed=index + 1)
            jet, items = grid.get_map("m"), grid.get_list("items")
            for number in range(60):
                kind, key = KINDS[(number + 3 * index) % len(KINDS)], number % KEYS
                value = 1 if kind == "increment" else (index + 1) * 1000 + number
                begin = time.monotonic_ns()
                answer = do(jet, kind, key, value)
                found[key].append(Operation(kind, value, answer, begin, time.monotonic_ns()))
                items.append((index, number))
        except BaseException as error:
            failed.append(error)

    def move() -> None:
        chance = random.Random(3)
        while not done.is_set():
            stores.move(chance.sample(range(COUNT), 3), chance.randrange(3))

    users = [threading.Thread(target=use, args=(index,)) for index in range(4)]
    mover = threading.Thread(target=move)
    for thread in (*users, mover):
        thread.start()
    for user in users:
        user.join()
    done.set()
    mover.join()
    assert not failed
    assert all(map(is_linearisable, found.values()))
    items = list(stores.grid().get_list("items"))
    assert len(items) == len(set(items)) == 240
    assert all([n for i, n in items if i == index] == list(range(60)) for index in range(4))


def test_entries_that_miss_two_members_are_counted_by_the_third(stores: Stores) -> None:
    grid = stores.grid(2, is_local=True)
    there = grid.get_map("plain")
    assert there.get("nothing") is None  # now it knows where partitions are, and they move
    stores.move(list(range(COUNT)), 2)
    entries = {f"key {number}": number for number in range(500)}
    there.put_all(entries)
    assert dict(stores.grid().get_map("plain")) == entries
    same = stores.grid().get_map("same")
    same.put_all(entries)
    assert there.partition_sizes() == same.partition_sizes()
    there.clear()
    assert len(there) == 0


@pytest.mark.parametrize("name", ["plain", "journal"])
def test_an_iteration_is_exact_while_partitions_move(stores: Stores, name: str) -> None:
    grid, chance = stores.grid(), random.Random(5)
    there, items = grid.get_map(name), grid.get_list("items")
    there.put_all({key: key for key in range(6_000)})
    items.extend(range(20_000))
    seen = []
    for key, value in there.items():
        seen.append(key)
        assert key == value
        if len(seen) % 1000 == 0:
            stores.move(list(range(COUNT)), chance.randrange(3))
    assert len(seen) == len(set(seen)) == 6_000
    read = []
    for item in items:
        read.append(item)
        if len(read) % 6_000 == 0:
            stores.move(list(range(COUNT)), chance.randrange(3))
    assert read == list(range(20_000))


def test_an_iteration_over_a_partition_that_is_lost_does_not_just_end(stores: Stores) -> None:
    there = stores.grid().get_map("m")
    there.put_all({key: key for key in range(6_000)})
    under_way = iter(there.items())
    next(under_way)
    for partition in range(COUNT):
        if stores.primaries[partition] == 2:
            stores.lose(partition, 1)
    with pytest.raises(MemberLostError, match="lost while it was read"):
        list(under_way)
    assert 0 < len(there) == len(list(there)) < 6_000


def test_a_journal_of_a_lost_member_does_not_just_go_on(stores: Stores) -> None:
    there = stores.grid().get_map("journal")
    there["a"] = 1
    reader = journal_reader(there, "oldest")
    assert [event.new for event in reader.read()] == [1]
    stores.lose(partition_id("journal", COUNT), 2)
    with pytest.raises(MemberLostError, match="journal of map 'journal'"):
        reader.read()


def test_times_of_entries_go_where_their_partition_goes(stores: Stores) -> None:
    there = stores.grid().get_map("m")
    there.put("short", 1, ttl=0.5)
    there.put("long", 2, ttl=600)
    stores.move(list(range(COUNT)), 1)
    stores.move(list(range(COUNT)), 2)
    assert there["long"] == 2
    deadline = time.monotonic() + 60
    while "short" in there:
        assert time.monotonic() < deadline
    assert len(there) == 1


def test_nothing_stays_where_a_partition_was(stores: Stores) -> None:
    grid = stores.grid(seed=1)
    there, journal, items = grid.get_map("m"), grid.get_map("journal"), grid.get_list("l")
    for map_ in (there, journal):
        map_.put_all(dict.fromkeys(range(20), b"x" * 70_000))
        map_.put("ends", 1, ttl=600)
    items.extend([1, b"y" * 70_000])
    stores.move(list(range(COUNT)), 1)
    for name in "02":
        opened = stores.grids[name].opened
        assert list(opened.blobs.folder.iterdir()) == []
        assert list(PartitionCopy(opened).pieces(range(COUNT))) == []
    files = len(list(stores.grids["1"].opened.blobs.folder.iterdir()))
    assert files == 41
    there.clear()
    items.clear()
    assert len(list(stores.grids["1"].opened.blobs.folder.iterdir())) == 20, "those of the journal's events"


def test_the_size_of_a_store_is_that_of_its_entries_and_files(stores: Stores) -> None:
    sizes = [PartitionCopy(stores.grids["0"].opened).size()]
    there = stores.grid().get_map("m")
    for number, value in enumerate((b"x" * 20_000, b"y" * 200_000)):  # with the entries, and in files of their own
        there.put_all(dict.fromkeys(range(100 * number, 100 * number + 10), value))
        sizes.append(sum(PartitionCopy(grid.opened).size() for grid in stores.grids.values()))
    empty, small, large = sizes
    assert empty < 100_000, "so little that all partitions of it are copied at once"
    assert 200_000 <= small < 700_000
    assert 2_000_000 <= large - small < 2_200_000


def test_a_partition_that_nobody_has_is_an_error_in_the_end(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PATIENCE_S", 0.05)
    stores.primaries[:] = [1] * COUNT  # the table is wrong, and stays so
    there = stores.grid().get_map("m")
    with pytest.raises(GridError, match="no member has had a partition"):
        there.put_all({key: key for key in range(100)})


def test_partitions_are_numbers_of_any_kind(stores: Stores) -> None:
    jet, expected = stores.grid().get_map("plain"), {number: str(number) for number in range(100)}
    jet.put_all(expected)
    assert dict(jet.items_of(np.arange(COUNT))) == expected
    assert set(jet.items_of([True])) == {pair for pair in expected.items() if partition_id(pair[0], COUNT) == 1}
    with pytest.raises(ValueError, match="partition 13 is not one of 0 to 12"):
        list(jet.items_of([COUNT]))
    with pytest.raises(TypeError, match="integer"):
        list(jet.items_of(["1"]))  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["plain", "journal"])
def test_what_was_put_is_read_also_where_keys_were_iterated_over_before(stores: Stores, name: str) -> None:
    jet = stores.grid().get_map(name)
    other = stores.grid(1).get_map(name)
    jet.put_all(dict.fromkeys(range(300), 0))
    first, second, third = list(jet)[:3]
    assert jet[first] == 0
    jet[second] = 1
    other[third] = 2
    assert (jet[second], jet[third]) == (1, 2)
    assert jet[next(iter(jet))] == 0
    del jet[second]
    with pytest.raises(KeyError):
        jet[second]
    for key in jet:
        other[key] = 3
        assert jet[key] == 3


def test_a_dict_of_a_map_is_made_of_a_few_pages(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = Losing.ask
    monkeypatch.setattr(Losing, "ask", lambda self, member, body: [asked.append(member), ask(self, member, body)][1])
    jet, expected = stores.grid().get_map("plain"), {number: str(number) for number in range(2000)}
    jet.put_all(expected)
    asked.clear()
    assert dict(jet) == expected
    assert {**jet} == expected
    assert len(asked) < 400


def test_a_class_is_kept_on_members_that_have_come_since_the_table_was_fetched(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local:
        pass

    refusing = ["2"]
    owners = Losing.owners
    monkeypatch.setattr(Losing, "owners", lambda self: owners(self)._replace(members=("0",), primaries=(0,) * COUNT))
    grid = stores.grid()
    jet = grid.get_map("plain")
    with contextlib.suppress(GridError, PartitionMovedError):
        jet.get(0)
    monkeypatch.undo()
    ask = Losing.ask

    def refuse(self: Losing, member: str, body: bytes) -> bytes:
        if member in refusing and KeepClass.__name__.encode() in body:
            refusing.remove(member)
            raise PartitionMovedError("the connection was lost")
        return ask(self, member, body)

    monkeypatch.setattr(Losing, "ask", refuse)
    jet[0] = Local()
    assert type(jet[0]) is Local
    assert refusing == []
    (class_id,) = {key for key, _ in kept_classes(stores.grids["0"])}
    assert all(store.opened.load_class(class_id.decode()) is not None for store in stores.grids.values())


def kept_classes(grid: Grid) -> list[tuple[bytes, bytes]]:
    piece = PartitionCopy(grid.opened).classes()
    assert isinstance(piece, Classes)
    return piece.classes


def test_a_portion_is_stored_as_a_whole_or_not_at_all_where_a_partition_has_moved(stores: Stores) -> None:
    """However large it is: else what was stored is stored again, over what others have put meanwhile."""
    stores.grid().get_map("plain")["some"] = 1
    here = stores.grids["0"].opened.divided_table(0, record_key(MAP_RECORD, "plain"))
    keys = [*(PARTITION.pack(0) + b"i%d" % number for number in range(20)), PARTITION.pack(6) + b"i0"]
    stores.move([6], 1)
    entries = [(bytes(4) + key, encode((1, b"x" * 60_000))) for key in keys]
    with pytest.raises(PartitionMovedError):
        here.write(entries, with_blobs=False)
    stores.move([6], 0)
    assert [here.find(key) for key in keys] == [None] * 21
    here.write(entries, with_blobs=False)
    assert [here.find(key) for key in keys] == [entries[0][1]] * 21
