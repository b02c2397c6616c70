"""Large values that go between processes in pieces: no message is long, and what never got its entry is deleted."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.core.grid_calls import put_once
from shmjet.grid import GridError, GridFullError, blobs
from shmjet.grid.blobs import PIECE_BYTES, STAGED_BYTES, BlobStore
from shmjet.grid.code_free import brings_pickles
from shmjet.grid.errors import PartitionMovedError
from shmjet.grid.operations import StagePiece
from tests.grid.divided import COUNT, Losing, Stores

LARGE = os.urandom(3 * PIECE_BYTES + 7)
IDENT = bytes(range(STAGED_BYTES))


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    stores = Stores(tmp_path, 2)
    yield stores
    stores.close()


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path, tmp_path / "reserve")


def files_of(stores: Stores) -> list[str]:
    return sorted(name for grid in stores.grids.values() for name in os.listdir(grid.opened.blobs.folder))


def test_no_message_brings_much_more_than_a_piece(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    ask = Losing.ask

    def measured(carrier: Losing, member: str, body: bytes) -> bytes:
        nonlocal longest
        answer = ask(carrier, member, body)
        longest = max(longest, len(body), len(answer))
        return answer

    monkeypatch.setattr(Losing, "ask", measured)
    grid = stores.grid()
    jet, items = grid.get_map("m"), grid.get_list("l")
    jet.put("put", LARGE)
    jet.put_all({"all": LARGE, "small": 1, "other": LARGE})
    jet.put_if_absent("absent", LARGE)
    jet.replace("small", LARGE)
    jet.compute("put", lambda value: (value or b"") + b"x")
    put_once(jet, {"once": LARGE}, b"marker", 1)
    items.extend([1, LARGE, 2])
    expected = {"put": LARGE + b"x", **dict.fromkeys(["all", "other", "absent", "small", "once"], LARGE)}
    assert dict(jet.items()) == expected
    assert jet.get_all(expected) == expected
    assert list(items) == [1, LARGE, 2]
    assert items[1] == LARGE
    assert jet.pop("put") == LARGE + b"x"
    assert longest < 2 * PIECE_BYTES


def test_a_member_of_the_last_version_gets_and_gives_values_as_a_whole(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = Losing.ask

    def last_version(carrier: Losing, member: str, body: bytes) -> bytes:
        if b"StagePiece" in body[:20] or b"ReadPiece" in body[:20]:
            body = b"\x91\xa7Unknown"
        return ask(carrier, member, body)

    monkeypatch.setattr(Losing, "ask", last_version)
    grid = stores.grid()
    grid.get_map("m")["key"] = LARGE
    grid.get_list("l").append(LARGE)
    assert grid.get_map("m")["key"] == LARGE
    assert list(grid.get_list("l")) == [LARGE]


def test_values_in_pieces_find_partitions_that_move_and_answers_that_are_lost(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition moves between the pieces of a value and its entry, and some answers are lost."""
    jet, model, chance = stores.grid(seed=3).get_map("m"), dict[int, bytes](), random.Random(5)
    ask = Losing.ask

    def moving(carrier: Losing, member: str, body: bytes) -> bytes:
        if chance.random() < 0.1:
            stores.move(list(range(COUNT)), chance.randrange(2))
        return ask(carrier, member, body)

    monkeypatch.setattr(Losing, "ask", moving)
    for number in range(12):
        value = LARGE + bytes([number])
        assert jet.put(number % 5, value) == model.get(number % 5)
        model[number % 5] = value
    assert dict(jet) == model
    named = [name for name in files_of(stores) if not name.startswith("staged-")]
    assert len(named) == len(model)
    for grid in stores.grids.values():
        grid.opened.blobs.sweep_staged(0)
    assert files_of(stores) == named


def test_pieces_without_their_entry_are_deleted_after_a_while(store: BlobStore) -> None:
    store.stage(IDENT, 0, b"abc")
    assert store.sweep_staged(60)
    assert len(os.listdir(store.folder)) == 1
    assert not store.sweep_staged(0)
    assert not os.listdir(store.folder)
    for late in (lambda: store.stage(IDENT, 3, b"d"), lambda: store.name_staged(IDENT, 3, 7)):
        with pytest.raises(PartitionMovedError, match="pieces of a large value are not here"):
            late()


def test_a_piece_may_come_twice_and_none_may_be_missing(store: BlobStore) -> None:
    for offset, data in ((0, b"abc"), (0, b"abc"), (3, b"de"), (3, b"de")):
        store.stage(IDENT, offset, data)
    with pytest.raises(GridError, match="at 9 came before those in front of it"):
        store.stage(IDENT, 9, b"x")
    with pytest.raises(GridError, match="of 6 bytes came with 5"):
        store.name_staged(IDENT, 6, 7)
    name = store.name_staged(IDENT, 5, 7)
    assert (store.folder / name.decode()).read_bytes() == b"abcde"
    with pytest.raises(GridError, match="damaged: its 5 bytes"):
        store.read(name)


def test_no_piece_is_left_where_there_is_no_room(store: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.stage(IDENT, 0, b"abc")

    def full(*_: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(blobs, "FileIO", full)
    with pytest.raises(GridFullError, match="no room for a value of 5 bytes"):
        store.stage(IDENT, 3, b"de")
    assert not os.listdir(store.folder)


def test_pieces_count_as_code() -> None:
    assert brings_pickles(msgspec.msgpack.encode(StagePiece(IDENT, 0, memoryview(b"x"))))
