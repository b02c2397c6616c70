"""Histories of single keys, recorded by several processes of which some are killed, are linearisable."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from shmjet.core import MapConfig
from shmjet.grid import Grid
from tests.grid.conftest import FORK
from tests.grid.linearisability import Operation, is_linearisable

KEYS = 3
KINDS = ("put", "get", "add", "increment", "replace", "pop", "increment", "get")
ROUNDS = 60


def test_the_checker_tells_right_histories_from_wrong_ones() -> None:
    first = Operation("put", 1, None, 0, 1)
    assert is_linearisable([first, Operation("get", None, 1, 2, 3)])
    assert not is_linearisable([first, Operation("get", None, None, 2, 3)]), "the put had ended"
    assert is_linearisable([first, Operation("get", None, None, 0.5, 3)]), "the two were under way at once"
    both = [Operation("add", 1, None, 0, 2), Operation("add", 2, None, 0, 2)]
    assert not is_linearisable(both), "only one may win"
    assert is_linearisable([Operation("add", 1, None, 0, 2), Operation("add", 2, 1, 0, 2)])
    lost = Operation("increment", 1, None, 0)
    for sum_ in (1, 2):
        assert is_linearisable([lost, Operation("increment", 1, sum_, 1, 2)])
    assert not is_linearisable([lost, Operation("increment", 1, 3, 1, 2)])
    assert not is_linearisable([Operation("increment", 1, 1, 0, 1), Operation("increment", 1, 1, 0.5, 2)])


def do(jet: Any, kind: str, key: int, value: int) -> Any:
    """Do one operation and return its answer."""
    match kind:
        case "get":
            return jet.get(key)
        case "put":
            return jet.put(key, value)
        case "add":
            return jet.put_if_absent(key, value)
        case "replace":
            return jet.replace(key, value)
        case "pop":
            return jet.pop(key, None)
    return jet.compute(key, lambda old: (old or 0) + value)


def record(folder: Path, index: int) -> None:
    """Do operations, and write down each begin and each end before the next one."""
    with Grid.open(folder) as grid, (folder.parent / f"history-{index}").open("w", buffering=1) as file:
        jet = grid.get_map("m")
        for number in range(ROUNDS):
            kind, key = KINDS[(number + 3 * index) % len(KINDS)], number % KEYS
            value = 1 if kind == "increment" else (index + 1) * 1000 + number
            file.write(json.dumps([kind, key, value, time.monotonic_ns()]) + "\n")
            answer = do(jet, kind, key, value)
            file.write(json.dumps([time.monotonic_ns(), answer]) + "\n")


def histories(folder: Path) -> dict[int, list[Operation]]:
    """Return what was recorded, by key; the last operation of a killed process has no end."""
    found: dict[int, list[Operation]] = defaultdict(list)
    for path in folder.glob("history-*"):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]
        for at in range(0, len(lines), 2):
            kind, key, value, begin = lines[at]
            end, answer = lines[at + 1] if at + 1 < len(lines) else (math.inf, None)
            found[key].append(Operation(kind, value, answer, begin, end))
    return found


@pytest.mark.parametrize(
    "config",
    [MapConfig(), MapConfig(journal_capacity=1 << 20), MapConfig(max_bytes=1 << 30, eviction="lru")],
    ids=["plain", "journal", "limit"],
)
def test_what_processes_see_of_a_key_has_one_order_though_some_are_killed(tmp_path: Path, config: MapConfig) -> None:
    folder = tmp_path / "grid"
    Grid.create(folder, environments=2, map_size=1 << 30, maps={"m": config})
    writers = [FORK.Process(target=record, args=(folder, index)) for index in range(4)]
    for writer in writers:
        writer.start()
    victim, path = writers[0], tmp_path / "history-0"
    deadline = time.monotonic() + 60
    while victim.is_alive() and time.monotonic() < deadline:
        if path.exists() and path.stat().st_size > 1500:
            os.kill(victim.pid or 0, signal.SIGKILL)
            break
    for writer in writers:
        writer.join(60)
        writer.close()
    found = histories(tmp_path)
    assert len(found) == KEYS
    assert sum(map(len, found.values())) >= 3 * ROUNDS
    with Grid.open(folder) as grid:
        for key, history in found.items():
            last = max(operation.begin for operation in history) + 1e12
            history.append(Operation("get", None, grid.get_map("m").get(key), last, last))
            assert is_linearisable(history), f"key {key}: {history}"
