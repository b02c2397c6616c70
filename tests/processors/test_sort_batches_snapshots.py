"""Sorted batches in snapshots: what has not been emitted is saved run by run, also from a file, and stays stable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.core import BroadcastKey
from shmjet.core.state_placement import StatePlacement
from shmjet.processors import sort_batches
from shmjet.processors.columns import saving
from shmjet.testing import verify_processor
from tests.examples import examples

from .restoring import Entries, Stage

KEYS = st.integers(0, 3) | st.none() | st.sampled_from([0.0, -0.0, float("nan"), 2.0])


def rows_of(output: Sequence[Batch]) -> list[Any]:
    return [repr(row) for batch in output for row in batch.tuples()]


def batches(keys: Sequence[Sequence[Any]]) -> list[Batch]:
    """Return batches in which each row has a number."""
    ends = [sum(map(len, keys[:at])) for at in range(len(keys))]
    return [
        Batch({"k": list(own), "at": list(range(end, end + len(own)))}) for own, end in zip(keys, ends, strict=True)
    ]


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.columns.sort_batches.RUN_ROWS", 7)
    monkeypatch.setattr("shmjet.columns.sort.LEAST_STEP", 1)
    monkeypatch.setattr("shmjet.processors.columns.saving.PIECE_BYTES", 40)


@examples(60)
@given(
    st.lists(st.lists(KEYS, min_size=1, max_size=9), min_size=1, max_size=5),
    st.integers(0, 5),
    st.integers(0, 6),
    st.none() | st.integers(0, 12),
    st.integers(1, 3),
)
def test_a_restored_sort_gives_what_one_without_a_snapshot_gives(
    keys: list[list[Any]], cut: int, calls: int, limit: int | None, overdue_after: int
) -> None:
    supplier = sort_batches("k", limit=limit, batch_rows=3)
    plain, stage = Stage(supplier), Stage(supplier, room=1, overdue_after=overdue_after)
    plain.feed(0, batches(keys))
    stage.feed(0, batches(keys)[:cut])
    stage = stage.restored(room=1).restored(room=1)
    stage.feed(0, batches(keys)[cut:])
    stage.complete(calls)
    found, expected = stage.restored().complete(), plain.complete()
    assert rows_of(found) == rows_of(expected)
    assert [batch.schema for batch in found][:1] == [batch.schema for batch in expected][:1]


@pytest.mark.parametrize("calls", [0, 1, 5])
def test_runs_in_a_file_are_saved_too(calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.columns.sort_batches.memory_share", lambda *_: 200)
    monkeypatch.setattr("shmjet.processors.columns.sort_batches.spill_folder", lambda _: str(tmp_path))
    stage = Stage(sort_batches("k", batch_rows=2), room=1)
    stage.feed(0, batches([[n * 7 % 11 for n in range(100)]]))
    stage.complete(calls)
    stage = stage.restored(room=1).restored()
    found = [row for batch in stage.complete() for row in batch.tuples()]
    assert found == sorted(((n * 7 % 11, n) for n in range(100)), key=lambda row: row[0])
    stage.close()


def test_the_kinds_of_rows_that_a_limit_has_dropped_are_kept() -> None:
    stage = Stage(sort_batches("k", limit=2))
    stage.feed(
        0, [Batch({"k": [1, 2, 3], "v": [None, None, 0.5]}), Batch({"k": [0, 0, 4, 5, 6], "v": [1, 2, 3, 4, 5]})]
    )
    assert [str(batch.schema["v"]) for batch in stage.restored().restored().complete()] == ["float64"]


@pytest.mark.parametrize("counts", [(3, 1), (1, 3), (3, 2, 4, 1)])
def test_places_are_dealt_to_the_processors_there_are(counts: tuple[int, ...]) -> None:
    stage = Stage(sort_batches("k"), counts[0], StatePlacement(271, is_partitioned=False))
    for count in (*counts[1:], counts[-1]):
        stage.feed(len(stage.processors) - 1, batches([[5, 3, 4]]))
        stage = stage.restored(count)
    assert sorted(rows_of(stage.complete())) == sorted(rows_of(batches([[5, 3, 4]])) * len(counts))


def test_entries_may_come_in_any_order() -> None:
    stage = Stage(sort_batches("k"))
    stage.feed(0, batches([[1] * 30]))
    entries: Entries = stage.save()
    assert len(entries) > 10
    assert all(isinstance(key, BroadcastKey) for key, _ in entries)
    other = Stage(sort_batches("k"))
    other.restore(entries[::-1])
    assert [at for batch in other.complete() for _, at in batch.tuples()] == list(range(30))


def test_a_batch_is_cut_into_pieces_of_bounded_size() -> None:
    [batch] = batches([[1] * 50])
    assert sum(piece.num_rows for piece in saving.cut(batch)) == 50
    assert max(piece.num_rows for piece in saving.cut(batch)) == 2
    assert [piece.num_rows for piece in saving.cut(batch[:0])] == [0]


def test_a_sort_passes_all_modes() -> None:
    expected = Batch({"k": [1, 1, 2, 3, None], "at": [1, 4, 2, 0, 3]})
    given_ = batches([[3, 1], [2, None, 1]])
    verify_processor(sort_batches("k", batch_rows=2)).inputs(given_).expect([expected])
