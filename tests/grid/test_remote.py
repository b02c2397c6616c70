"""Remote maps and lists: the same as local ones, and nothing is unpickled on the way."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from shmjet.core.keys import partition_id
from shmjet.data.errors import MemberLostError
from shmjet.grid import Grid, GridError
from shmjet.grid.entries import BLOB_BLOCK, BLOCK_HEAD, COLUMNS_BLOCK
from shmjet.grid.layout import CATALOGUE, LIST_RECORD, MAP_RECORD, MAX_NAME, PARTITION, record_key
from shmjet.grid.operations import (
    NO_PREFIX,
    Add,
    Append,
    BlockOf,
    DeleteBlobs,
    Drop,
    Pop,
    ReadBlob,
    ReadLog,
    Replace,
    Size,
    Sizes,
    Swap,
    Write,
)
from shmjet.grid.service import GridService
from shmjet.grid.times import TIMED, Times, with_times
from tests.grid.remote_grid import RemoteGrid


class Point:
    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Grid.create(tmp_path / "grid", 271, environments=4)
    return tmp_path / "grid"


@pytest.fixture
def service(folder: Path) -> Iterator[GridService]:
    service = GridService(folder)
    yield service
    service.close()


@pytest.fixture
def remote(service: GridService) -> RemoteGrid:
    return RemoteGrid(service.perform)


@pytest.fixture
def local(folder: Path) -> Iterator[Grid]:
    with Grid.open(folder) as grid:
        yield grid


def test_what_is_written_afar_is_read_at_hand_and_the_other_way(remote: RemoteGrid, local: Grid) -> None:
    there, here = remote.get_map("m"), local.get_map("m")
    there.put_all({i: str(i) for i in range(10_000)})
    here["key"] = [1, 2, Point(3)]
    assert len(here) == len(there) == 10_001
    assert there["key"] == [1, 2, Point(3)]
    assert {key: value for key, value in here.items() if key != "key"} == {i: str(i) for i in range(10_000)}
    assert dict(there) == dict(here)


def test_every_operation_of_a_map_means_the_same(remote: RemoteGrid) -> None:
    there = remote.get_map("m")
    assert there.put("a", 1) is None
    assert there.put("a", 2) == 1
    assert there.put_if_absent("a", 3) == 2
    assert there.put_if_absent("b", 3) is None
    assert there.get("missing", 7) == 7
    assert there.get_all(["a", "b", "c"]) == {"a": 2, "b": 3}
    assert ("a" in there, "z" in there) == (True, False)
    assert there.pop("a") == 2
    assert there.remove("a") is None
    with pytest.raises(KeyError):
        there["a"]
    with pytest.raises(KeyError):
        del there["a"]
    there.update({"c": 4}, d=5)
    assert sorted(there.items()) == [("b", 3), ("c", 4), ("d", 5)]
    assert sorted(there.items_of(range(271))) == [("b", 3), ("c", 4), ("d", 5)]
    there.clear()
    assert len(there) == 0
    there["x"] = 1
    there.destroy()
    assert dict(there) == {}


def test_large_values_come_back(remote: RemoteGrid) -> None:
    there = remote.get_map("large")
    there["text"] = "ä" * 300_000
    there.put_all([("bytes", bytes(range(256)) * 2000), ("small", 1)])
    assert there["text"] == "ä" * 300_000
    assert dict(there.items())["bytes"] == bytes(range(256)) * 2000
    assert there.pop("bytes") is not None


def test_a_list_means_the_same(remote: RemoteGrid, local: Grid) -> None:
    there, here = remote.get_list("l"), local.get_list("l")
    there.extend(range(50_000))
    there.append(Point(1))
    here.append("last")
    assert len(there) == 50_002
    assert there[0] == 0
    assert there[49_999] == 49_999
    assert there[-2:] == [Point(1), "last"]
    assert [there[i] for i in range(100)] == list(range(100))
    assert list(there)[:50_000] == list(range(50_000))
    assert there[10:20:3] == [10, 13, 16, 19]
    with pytest.raises(IndexError):
        there[50_002]
    there.clear()
    assert list(there) == []


def test_a_value_that_somebody_else_changes_is_seen(remote: RemoteGrid, local: Grid) -> None:
    there = remote.get_map("m")
    there["a"] = 1
    assert there["a"] == 1
    local.get_map("m")["a"] = 2
    assert there.get("a") == 2


@pytest.mark.parametrize("body", [b"", b"\xc0", b"\x91\xa4Find", b"\x92\xa8ReadBlob\xc4\x09../../etc"])
def test_what_is_no_operation_is_refused(service: GridService, body: bytes) -> None:
    with pytest.raises(GridError):
        service.perform(body)


MAP, LIST = record_key(MAP_RECORD, "m"), record_key(LIST_RECORD, "l")
KEY = PARTITION.pack(4) + b"sk"
ENTRY, BLOCK = msgspec.msgpack.encode(("k", 1)), BLOCK_HEAD.pack(COLUMNS_BLOCK, 1) + b"x"
TIMED_ENTRY = with_times(ENTRY, Times(1, 1, 1))


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (Write(0, LIST, [(NO_PREFIX + KEY, ENTRY)], False), "a list does not do Write"),
        (Replace(0, LIST, KEY, ENTRY, False), "a list does not do Replace"),
        (Add(0, LIST, KEY, ENTRY, False), "a list does not do Add"),
        (Pop(0, LIST, KEY), "a list does not do Pop"),
        (Append(0, MAP, [(1, BLOCK)], False), "a map does not do Append"),
        (BlockOf(0, MAP, 0, None), "a map does not do BlockOf"),
        (BlockOf(0, LIST, -1, None), "not an operation"),
        (BlockOf(0, LIST, 1 << 62, None), "not an operation"),
        (ReadLog(0, MAP, 0), "the map keeps no journal"),
        (ReadLog(0, MAP, None), "the map keeps no journal"),
        (Write(0, MAP, [(NO_PREFIX + KEY, ENTRY), (b"\0\0\0\1" + KEY, ENTRY)], False), "a prefix of its own"),
        (Write(0, MAP, [(NO_PREFIX, ENTRY)], False), "is not a key of a map in environment 0"),
        (Write(1, MAP, [(NO_PREFIX + KEY, ENTRY)], False), "is not a key of a map in environment 1"),
        (Write(0, MAP, [(NO_PREFIX + PARTITION.pack(65532) + b"sk", ENTRY)], False), "is not a key of a map"),
        (Add(0, MAP, KEY + bytes(600), ENTRY, False), "is not a key of a map"),
        (Swap(0, LIST, KEY, None, ENTRY, False), "a list does not do Swap"),
        (Sizes(0, LIST), "a list does not do Sizes"),
        (Write(0, MAP, [(NO_PREFIX + KEY, TIMED_ENTRY)], False), "a remote entry has times"),
        (Replace(0, MAP, KEY, TIMED_ENTRY, False), "a remote entry has times"),
        (Swap(0, MAP, KEY, None, TIMED_ENTRY, False), "a remote entry has times"),
        (Add(0, MAP, KEY, b"", False), "is not an entry of a map"),
        (Add(0, MAP, KEY, b"\x92\xa1k", False), "is not an entry of a map"),
        (Append(0, LIST, [(1, b"")], False), "is not a block of a list"),
        (Append(0, LIST, [(1, BLOCK_HEAD.pack(0xDC, 1) + b"x")], False), "a block of kind 220"),
        (Append(0, LIST, [(2, BLOCK)], False), "1 items was sent as one of 2"),
        (Append(0, LIST, [(-1, BLOCK)], False), "sent as one of -1"),
        (Append(0, LIST, [(0, BLOCK_HEAD.pack(COLUMNS_BLOCK, 0))], False), "sent as one of 0"),
        (Size(4, MAP), "no environment 4"),
        (Size(-1, MAP), "no environment -1"),
        (Size(0, CATALOGUE + b"t"), "the record of no map and no list"),
        (Size(0, MAP_RECORD), "the record of no map and no list"),
        (Pop(0, MAP_RECORD + b"\xff", KEY), "the record of no map and no list"),
        (Size(0, MAP_RECORD + b"\xff"), "the record of no map and no list"),
        (Size(0, MAP + bytes(MAX_NAME)), "the record of no map and no list"),
        (ReadBlob(b"/etc/passwd"), "not the name of a stored value"),
        (ReadBlob(b"../grid.json"), "not the name of a stored value"),
        (ReadBlob(b"1-0123456789abcdef\n"), "not the name of a stored value"),
    ],
)
def test_what_does_not_fit_its_record_is_refused(service: GridService, operation: object, said: str) -> None:
    body = msgspec.msgpack.encode(operation)
    with pytest.raises(GridError, match=said):
        service.perform(body)
    with pytest.raises(GridError, match=said):
        service.perform_if_short(body) or service.perform(body)


def test_a_value_with_a_cut_trailer_of_its_own_goes_as_others_do(service: GridService) -> None:
    cut = msgspec.msgpack.encode(("k", msgspec.msgpack.Ext(TIMED, b"\xdc")))
    for nested in (cut, msgspec.msgpack.encode(("k", [msgspec.msgpack.Ext(TIMED, b"")]))):
        service.perform(msgspec.msgpack.encode(Write(0, MAP, [(NO_PREFIX + KEY, nested)], True)))
        service.perform(msgspec.msgpack.encode(Pop(0, MAP, KEY)))
        service.perform(msgspec.msgpack.encode(Write(0, MAP, [(NO_PREFIX + KEY, nested)], True)))
        service.perform(msgspec.msgpack.encode(Drop(0, MAP, False)))
        assert msgspec.msgpack.decode(service.perform(msgspec.msgpack.encode(Size(0, MAP)))) == 0


def test_only_files_of_the_store_are_deleted(service: GridService, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "1-0123456789abcdef"
    other.touch()
    names = [str(other).encode(), b"../" + other.name.encode(), b"../../" + other.name.encode()]
    service.perform(msgspec.msgpack.encode(DeleteBlobs(names)))
    assert other.exists()


def test_a_block_of_an_unknown_kind_is_no_name_of_a_file(local: Grid, tmp_path: Path) -> None:
    """Even where one has come into the store by another way, nothing of it is opened."""
    body = pickle.dumps(["unpickled"])
    (tmp_path / "evil").write_bytes(struct.pack("<QQ", 1, len(body)) + body)
    items = local.get_list("l")
    table = local.opened.table(partition_id("l") % 4, record_key(LIST_RECORD, "l"))
    for kind, said in ((0xDC, "the unknown kind 220"), (BLOB_BLOCK, "not the name of a stored value")):
        items.clear()
        table.append([(1, BLOCK_HEAD.pack(kind, 1) + str(tmp_path / "evil").encode())], with_blobs=True)
        with pytest.raises(GridError, match=said):
            list(items)
        with pytest.raises(GridError, match=said):
            items[0]
    items.clear()
    assert (tmp_path / "evil").exists(), "what a block names is not deleted either"


def test_nothing_is_unpickled_where_the_store_is(
    service: GridService, remote: RemoteGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = pickle.loads
    performing = False

    def watched(*arguments: object, **options: object) -> object:
        assert not performing, "unpickled in the service"
        return loads(*arguments, **options)  # type: ignore[arg-type]

    def perform(body: bytes) -> bytes:
        nonlocal performing
        performing = True
        try:
            return service.perform(body)
        finally:
            performing = False

    monkeypatch.setattr(pickle, "loads", watched)
    there = RemoteGrid(perform).get_map("m")
    there["a"] = Point(1)
    assert there["a"] == Point(1)
    assert dict(there) == {"a": Point(1)}


class Moving:
    """Carries operations to one store after the other, as a client does whose coordinator is lost."""

    def __init__(self, *services: GridService) -> None:
        self.services = list(services)
        self.asked: list[bytes] = []

    def __call__(self, body: bytes) -> bytes:
        self.asked.append(body)
        return self.services[0].perform(body)

    def lose(self) -> None:
        self.services.pop(0)
        self.asked.clear()


@pytest.fixture
def moving(service: GridService, tmp_path: Path) -> Iterator[Moving]:
    Grid.create(tmp_path / "next", 271, environments=4)
    second = GridService(tmp_path / "next")
    yield Moving(service, second)
    second.close()


@pytest.mark.parametrize("view", ["keys", "values", "items", "items_of"])
def test_an_iteration_over_a_map_that_is_lost_does_not_just_end(moving: Moving, view: str) -> None:
    there = RemoteGrid(moving).get_map("m")
    there.put_all({i: i for i in range(5000)})
    views = {"keys": there, "values": there.values(), "items": there.items(), "items_of": there.items_of(range(271))}
    under_way = iter(views[view])
    next(under_way)
    moving.lose()
    with pytest.raises(MemberLostError, match="lost while it was read"):
        list(under_way)
    assert list(there) == []
    there["new"] = 1
    assert dict(there.items()) == {"new": 1}


def test_an_iteration_over_a_list_that_is_lost_does_not_just_end(moving: Moving) -> None:
    there = RemoteGrid(moving).get_list("l")
    there.extend(bytes([i % 256]) * 20_000 for i in range(200))
    under_way = iter(there)
    next(under_way)
    moving.lose()
    with pytest.raises(MemberLostError, match="lost while it was read"):
        list(under_way)
    assert list(there) == []


def test_what_a_list_remembers_of_a_lost_store_does_not_count(moving: Moving) -> None:
    there = RemoteGrid(moving).get_list("l")
    there.extend([1, 2, 3])
    assert there[1] == 2
    moving.lose()
    there.extend([4, 5, 6])
    assert there[1] == 5
    assert there[2] == 6


def test_the_next_store_gets_the_classes_anew(moving: Moving) -> None:
    class Local:
        pass

    remote = RemoteGrid(moving)
    there = remote.get_map("m")
    there["a"] = Local()
    moving.lose()
    remote.forget()
    there["a"] = Local()
    there["b"] = Local()
    assert sum(b"KeepClass" in body for body in moving.asked) == 1
