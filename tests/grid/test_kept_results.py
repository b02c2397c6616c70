"""Operations that are asked again as an answer was lost: each is done once, and the retry gets the first result."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet.core import MapConfig
from shmjet.core.grid_calls import extend_once
from shmjet.grid import Grid, GridError, kept_results
from shmjet.grid.layout import CLIENT_RECORD
from shmjet.grid.service import GridService
from tests.grid.linearisability import Operation, is_linearisable
from tests.grid.remote_grid import RemoteGrid
from tests.grid.test_histories import KEYS, KINDS, do

CONFIGS = {"j*": MapConfig(journal_capacity=1 << 20), "l*": MapConfig(max_bytes=1 << 30, eviction="lru")}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[GridService]:
    Grid.create(tmp_path / "grid", environments=2, map_size=1 << 30, maps=CONFIGS)
    service = GridService(tmp_path / "grid")
    yield service
    service.close()


class Losing:
    """Carries operations, some of them several times: the first answers are lost.

    Args:
        service: performs them.
        seed: decides which.
    """

    def __init__(self, service: GridService, seed: int = 0) -> None:
        self._service = service
        self._random = random.Random(seed)
        self.bodies: list[bytes] = []

    def __call__(self, body: bytes) -> bytes:
        self.bodies.append(body)
        for _ in range(self._random.randint(0, 2)):
            self._service.perform(body)
        return self._service.perform(body)


@pytest.mark.parametrize("name", ["plain", "journal", "limited"])
def test_each_operation_is_done_once_and_has_its_first_result(service: GridService, name: str) -> None:
    grid = RemoteGrid(Losing(service))
    jet, items, model = grid.get_map(name), grid.get_list("items"), dict[int, Any]()
    chance, expected = random.Random(1), []
    for number in range(300):
        key = chance.randrange(4)
        match chance.randrange(7):
            case 0:
                assert jet.put(key, number) == model.get(key)
                model[key] = number
            case 1:
                assert jet.put_if_absent(key, number) == model.get(key)
                model.setdefault(key, number)
            case 2:
                assert jet.replace(key, number) == model.get(key)
                model.update({key: number} if key in model else {})
            case 3:
                assert jet.pop(key, None) == model.pop(key, None)
            case 4:
                model[key] = model.get(key, 0) + 1
                assert jet.compute(key, lambda old: (old or 0) + 1) == model[key]
            case 5:
                items.extend(range(number % 5))
                expected += range(number % 5)
            case _:
                assert extend_once(items, [number], b"w", number + 1)
                expected.append(number)
    assert dict(jet) == model
    assert list(items) == expected
    jet.put_all((key, "x" * 300) for key in range(9000))
    assert len(jet) == 9000
    jet.clear()
    assert len(jet) == 0


def test_a_large_value_that_is_put_again_is_still_there(service: GridService) -> None:
    jet = RemoteGrid(Losing(service)).get_map("m")
    for letter in b"abc":
        before = jet.get("key")
        assert jet.put("key", bytes([letter]) * 200_000) == before
        assert jet["key"] == bytes([letter]) * 200_000


def test_histories_of_clients_that_ask_again_have_one_order(service: GridService) -> None:
    found: dict[int, list[Operation]] = defaultdict(list)

    def use(index: int) -> None:
        jet = RemoteGrid(Losing(service, index)).get_map("m")
        for number in range(60):
            kind, key = KINDS[(number + 3 * index) % len(KINDS)], number % KEYS
            value = 1 if kind == "increment" else (index + 1) * 1000 + number
            begin = time.monotonic_ns()
            answer = do(jet, kind, key, value)
            found[key].append(Operation(kind, value, answer, begin, time.monotonic_ns()))

    clients = [threading.Thread(target=use, args=(index,)) for index in range(4)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert sum(map(len, found.values())) == 240
    assert all(map(is_linearisable, found.values()))


def test_a_late_copy_of_an_answered_operation_does_nothing(service: GridService) -> None:
    losing = Losing(service)
    items = RemoteGrid(losing).get_list("items")
    items.append(1)
    late = losing.bodies[-1]
    items.append(2)
    with pytest.raises(GridError, match="comes too late"):
        service.perform(late)
    assert list(items) == [1, 2]


def client_records(folder: Path) -> int:
    """Return how many clients and results the store knows."""
    with Grid.open(folder) as grid:
        count = 0
        for index in range(2):
            with grid.opened.environment(index).begin() as txn, txn.cursor() as cursor:
                if cursor.set_range(CLIENT_RECORD):
                    keys = cursor.iternext(keys=True, values=False)
                    count += sum(1 for key in keys if key.startswith(CLIENT_RECORD))
        return count


def test_results_go_when_they_have_been_answered_or_are_old(
    service: GridService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losing = Losing(service)
    items = RemoteGrid(losing).get_list("items")
    for number in range(50):
        items.append(number)
    assert client_records(tmp_path / "grid") == 2, "of the client, and of its last operation"
    for _ in range(10):
        RemoteGrid(service.perform).get_list("items").append(0)
    assert client_records(tmp_path / "grid") == 22
    last = losing.bodies[-1]
    monkeypatch.setattr(kept_results, "KEEP_NS", 0)
    RemoteGrid(service.perform).get_list("items").append(0)
    assert client_records(tmp_path / "grid") == 11 + 2
    with pytest.raises(GridError, match="outcome is unknown"):
        service.perform(last)
    monkeypatch.setattr(kept_results, "FORGET_NS", 0)
    RemoteGrid(service.perform).get_list("items").append(0)
    assert client_records(tmp_path / "grid") == 2
    assert len(items) == 62


def test_only_what_changes_something_is_kept(service: GridService, tmp_path: Path) -> None:
    jet = RemoteGrid(service.perform).get_map("m")
    assert jet.pop("missing", None) is None
    assert jet.replace("missing", 1) is None
    assert jet.get("missing") is None
    assert client_records(tmp_path / "grid") == 0
