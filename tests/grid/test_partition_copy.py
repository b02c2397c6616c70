"""What is read of a store when partitions are copied."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shmjet.grid import Grid
from shmjet.grid.environment import Transaction, behind
from shmjet.grid.layout import (
    END_RECORD,
    INCARNATION,
    MAP_RECORD,
    PARTITION,
    PARTITION_RECORD,
    Record,
    Sizes,
    record_key,
)
from shmjet.grid.ownership import open_partitions
from shmjet.grid.parcels import decode_parcel, parcels
from shmjet.grid.partition_copy import PIECE_BYTES, Entries, PartitionCopy, portions_behind, portions_between
from tests.grid.divided import Stores

COUNT = 300
RECORD = record_key(MAP_RECORD, "map")


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    Grid.create(tmp_path / "grid", COUNT, environments=2, is_divided=True)
    with Grid.open(tmp_path / "grid") as grid:
        open_partitions(grid.opened.environments, dict.fromkeys(range(COUNT), 7))
        yield grid


def fill(grid: Grid, sizes: list[int]) -> dict[bytes, bytes]:
    """Put entries of some sizes into each partition, and return them."""
    copy = PartitionCopy(grid.opened)
    entries: dict[bytes, bytes] = {}
    for partition in range(COUNT):
        some = [(PARTITION.pack(partition) + b"%d" % at, bytes([at]) * size) for at, size in enumerate(sizes)]
        copy.take(Entries(partition % 2, RECORD, 0, 0, some))
        entries.update(some)
    return entries


def copied(grid: Grid, partitions: list[int]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for parcel in parcels(PartitionCopy(grid.opened).pieces(partitions)):
        for piece in decode_parcel(parcel):
            assert isinstance(piece, Entries)
            assert all(PARTITION.unpack(key[: PARTITION.size])[0] % 2 == piece.environment for key, _ in piece.entries)
            assert not found.keys() & dict(piece.entries).keys()
            found.update(piece.entries)
    return found


@pytest.mark.parametrize(
    "sizes", [[10] * 3, [1, 60_000], [60_000, 1], []], ids=["small", "then-large", "then-small", "none"]
)
def test_a_copy_has_the_entries_of_its_partitions_and_no_others(grid: Grid, sizes: list[int]) -> None:
    entries, chance = fill(grid, sizes), random.Random(3)
    chosen = [chance.sample(range(COUNT), 20), [255], [254, 255, 256, 257], [0, 2, 4, 8, 10, 299], [*range(90, 110)]]
    for partitions in chosen:
        there = {
            key: value for key, value in entries.items() if PARTITION.unpack(key[: PARTITION.size])[0] in partitions
        }
        assert copied(grid, partitions) == there


def test_pieces_are_as_small_as_is_asked_for_at_each_step(grid: Grid) -> None:
    entries, chance = fill(grid, [900] * 20), random.Random(8)
    asked: list[int] = []

    def piece_bytes() -> int:
        asked.append(PIECE_BYTES if chance.random() < 0.1 else PIECE_BYTES // 16)
        return asked[-1]

    copy = PartitionCopy(grid.opened, piece_bytes)
    sent = list(parcels(copy.pieces(range(COUNT)), piece_bytes))
    found = [entry for parcel in sent for piece in decode_parcel(parcel) for entry in piece.entries]  # type: ignore[union-attr]
    assert len(found) == len(entries)
    assert dict(found) == entries
    small = [len(parcel) for parcel in sent if len(parcel) < PIECE_BYTES // 8]
    assert len(small) > len(sent) // 2
    before = grid.opened.environment(0).announced[0]
    copy.drop(range(COUNT))
    assert grid.opened.environment(0).announced[0] - before > len(entries) // 2 // 512
    assert copied(grid, list(range(COUNT))) == {}


def _delete(key: bytes, txn: Transaction) -> None:
    txn.delete(key)


def test_what_is_read_goes_on_behind_an_entry_that_is_gone(grid: Grid) -> None:
    env = grid.opened.environment(0)
    keys = [b"~%06d" % number for number in range(10_000)]

    def put(txn: Transaction) -> None:
        for key in keys:
            txn.put(key, b"")

    env.write(put, "keys")
    found: list[bytes] = []
    for portion in portions_behind(env, b"~"):
        found += [b"~" + key for key, _ in portion]
        assert portion
        env.write(partial(_delete, found[-1]), "a key")
    assert found == keys


@pytest.mark.parametrize("size", [100, 5000, 60_000])
def test_a_portion_is_about_a_megabyte_and_none_is_read_behind_the_bound(grid: Grid, size: int) -> None:
    env = grid.opened.environment(0)
    keys = [b"~%06d" % number for number in range(3 * PIECE_BYTES // size)]

    def put(txn: Transaction) -> None:
        for key in keys:
            txn.put(key, b"x" * size)

    env.write(put, "keys")
    portions = list(portions_between(env, keys[1], keys[-1], 1))
    assert [key for portion in portions for key, _ in portion] == [key[1:] for key in keys[1:-1]]
    assert all(size * len(portion) < 2 * PIECE_BYTES for portion in portions)


class Aborted(Exception):
    """A transaction is given up, as when there is no room."""


@pytest.mark.parametrize("aborts", [False, True], ids=["at-once", "each-transaction-again"])
def test_what_is_removed_is_gone_and_nothing_else(grid: Grid, monkeypatch: pytest.MonkeyPatch, *, aborts: bool) -> None:
    entries, chance = fill(grid, [10] * 30), random.Random(4)
    for env in grid.opened.environments if aborts else ():

        def write(work: Callable[[Transaction], Any], what: str, write: Any = env.write) -> Any:
            def aborted(txn: Transaction) -> None:
                work(txn)
                raise Aborted

            with contextlib.suppress(Aborted):
                write(aborted, what)
            return write(work, what)

        monkeypatch.setattr(env, "write", write)
    gone = {*chance.sample(range(COUNT), 60), 7, 255, 256}
    PartitionCopy(grid.opened).drop(gone)
    there = {key: value for key, value in entries.items() if PARTITION.unpack(key[: PARTITION.size])[0] not in gone}
    assert copied(grid, sorted(gone)) == {}
    assert copied(grid, [*range(COUNT)]) == there
    sizes = []
    for env in grid.opened.environments:
        with env.begin() as txn:
            sizes.append(Record.unpack(txn.get(RECORD) or b"").size)
            prefix = (txn.get(RECORD) or b"")[: INCARNATION.size]
            counts = {key: Sizes.unpack(data).entries for key, data in behind(txn, PARTITION_RECORD + prefix)}
        assert all(count == (0 if PARTITION.unpack(key)[0] in gone else 30) for key, count in counts.items())
    assert sum(sizes) == len(there)


def test_the_times_of_what_is_removed_are_gone_too(tmp_path: Path) -> None:
    stores = Stores(tmp_path, 1)
    there = stores.grid().get_map("map")
    for number in range(40):
        there.put(number, number, ttl=600 if number % 2 else None)
    PartitionCopy(stores.grids["0"].opened).drop(range(0, 13, 2))
    partitions: set[int] = set()
    for env in stores.grids["0"].opened.environments:
        with env.begin() as txn:
            partitions |= {PARTITION.unpack(tail[: PARTITION.size])[0] for _, tail in behind(txn, END_RECORD)}
    stores.close()
    assert partitions <= set(range(1, 13, 2))
    assert partitions
