"""The page docs/formats/pool.md holds what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shmjet._native import CLAIMS_HEADER, DOORBELL_SIZE, RING_HEADER
from shmjet.pool import layout, worker_handles
from shmjet.pool.layout import CELLS, HEAD, QUEUE, Layout

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "pool.md").read_text()


def tables() -> list[dict[str, tuple[str, ...]]]:
    """Return each table of the page: the first column -> the others."""
    found = []
    for block in re.split(r"\n(?!\|)", PAGE):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]
            found.append({row[0]: row[1:] for row in rows})
    return found


def test_the_slot_has_its_offsets() -> None:
    arena, slot, _, _, _ = tables()
    assert arena["0"][0] == str(DOORBELL_SIZE)
    assert str(DOORBELL_SIZE) in arena
    for workers in (1, 2, 7, 100):
        where = Layout(workers).slot(0)
        assert where.doorbell == DOORBELL_SIZE
        claims, tasks = where.claims - where.doorbell, where.tasks - where.doorbell
        assert slot[str(claims)][1] == "its claims"
        assert slot[str(claims)][0] == str(tasks - claims)
        assert slot[str(tasks)] == (f"{RING_HEADER} + capacity", "the ring of tasks, written by the client")
        capacity = Layout(workers).ring_capacity
        assert f"{where.results - where.doorbell - capacity} + capacity" in slot
        if workers > 1:
            assert Layout(workers).slot(1).doorbell == where.results + RING_HEADER + capacity


@pytest.mark.parametrize("workers", [1, 2, 8, 9, 64, 512, 513, 5000])
def test_the_capacity_is_what_the_page_says(workers: int) -> None:
    wanted = (64 << 20) // (2 * workers)
    power = max(64 << 10, min(4 << 20, 1 << (wanted.bit_length() - 1)))
    assert Layout(workers).ring_capacity == power
    assert Layout(workers).size == Layout(workers).slot(workers).doorbell
    assert f"at most {QUEUE} records" in PAGE


def test_claims_and_the_head_of_records_have_their_offsets() -> None:
    _, _, claims, head, _ = tables()
    assert claims[str(CLAIMS_HEADER)][1].startswith(f"{CELLS} cells")
    assert (HEAD.size, len(HEAD.unpack(bytes(HEAD.size)))) == (32, 4)
    assert list(head) == ["0", "8", "16", "24"]


def test_every_kind_of_record_is_on_the_page() -> None:
    kinds = tables()[-1]
    named = {name: value for name, value in vars(layout).items() if name.startswith("KIND_")}
    assert {str(value) for value in named.values()} == set(kinds)
    to = dict.fromkeys(("CALL", "CHUNK", "FUNCTION", "FORGET", "ITEMS"), "worker")
    for name, value in named.items():
        assert kinds[str(value)][0] == to.get(name.removeprefix("KIND_"), "client")
    assert f"at most {('no', 'one', 'two')[worker_handles.MOST_FILES]} such payloads" in PAGE
