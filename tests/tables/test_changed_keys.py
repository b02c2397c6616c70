"""Keys that change between two stages by them: rows lie by the old key then, and must move again."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, column, literal, sources
from shmjet.columns import count, max_, sum_
from tests.pipeline.running import results_of

WORKERS = pytest.mark.parametrize("workers", [1, 3])
RANDOM = np.random.default_rng(11)
ROWS = [
    (None if RANDOM.random() < 0.1 else int(RANDOM.integers(-4, 5)), int(RANDOM.integers(0, 4))) for _ in range(300)
]
GIVEN = [
    Batch({"k": [k for k, _ in part], "g": [g for _, g in part]}) for part in (ROWS[:110], ROWS[110:120], ROWS[120:])
]
COUNTS = Counter(k for k, _ in ROWS)


def rows_of(build: Any, workers: int) -> list[tuple[Any, ...]]:
    found = results_of(lambda p: build(lambda: p.read_from(sources.items(GIVEN))), workers)
    return sorted((row for batch in found for row in batch.tuples()), key=repr)


def sorted_rows(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def summed(key_of: Any) -> list[tuple[Any, ...]]:
    totals: dict[Any, int] = defaultdict(int)
    for k, n in COUNTS.items():
        totals[None if k is None else key_of(k)] += n
    return sorted_rows(totals.items())


@WORKERS
@pytest.mark.parametrize(
    ("expression", "of"),
    [
        (column("k") % 2, lambda k: k % 2),
        (column("k").cast(str).str.slice(0, 1), lambda k: str(k)[:1]),
        (column("k").cast(float) / 2, lambda k: k / 2),
        (column("k") > 0, lambda k: k > 0),
    ],
    ids=["remainder", "text", "float", "bool"],
)
def test_groups_of_groups_by_a_key_that_was_computed_anew(expression: Any, of: Any, workers: int) -> None:
    def build(rows: Any) -> Any:
        groups = rows().group_by("k").agg(n=count()).with_columns(k=expression)
        return groups.group_by("k").agg(n=sum_("n"))

    assert rows_of(build, workers) == summed(of)


@WORKERS
def test_distinct_keys_whose_nulls_are_filled(workers: int) -> None:
    def build(rows: Any) -> Any:
        return rows().distinct("k").select(k=column("k").fill_null(3)).distinct()

    assert rows_of(build, workers) == sorted_rows({(3 if k is None else k,) for k in COUNTS})


@WORKERS
def test_columns_that_swap_their_names(workers: int) -> None:
    def build(rows: Any) -> Any:
        swapped = rows().group_by("k").agg(g=max_("g")).select(k=column("g"), g=column("k"))
        return swapped.group_by("k").agg(n=count())

    most = {k: max(g for other, g in ROWS if other == k) for k in COUNTS}
    assert rows_of(build, workers) == sorted_rows(Counter(most.values()).items())


@WORKERS
@pytest.mark.parametrize("swaps", [False, True])
def test_joins_of_groups_by_keys_in_another_order(swaps: bool, workers: int) -> None:
    right = ["g", "k"] if swaps else ["k", "g"]

    def build(rows: Any) -> Any:
        left = rows().group_by("k", "g").agg(n=count())
        return left.join(rows().group_by("g", "k").agg(m=count()), left_on=["k", "g"], right_on=right)

    pairs = Counter(ROWS)
    wanted = [
        (k, g, n, pairs[(g, k) if swaps else (k, g)])
        for (k, g), n in pairs.items()
        if k is not None and ((g, k) if swaps else (k, g)) in pairs
    ]
    assert rows_of(build, workers) == sorted_rows(wanted)


@WORKERS
def test_a_key_of_another_type_joins_where_values_are_equal(workers: int) -> None:
    def build(rows: Any) -> Any:
        floats = rows().group_by("k").agg(n=count()).with_columns(k=column("k").cast(float))
        return floats.join(rows().group_by("k").agg(m=count()), on="k")

    assert rows_of(build, workers) == sorted_rows((float(k), n, n) for k, n in COUNTS.items() if k is not None)


@WORKERS
def test_a_table_joins_and_follows_its_own_groups(workers: int) -> None:
    def build(rows: Any) -> Any:
        groups = rows().group_by("k", "g").agg(n=count())
        joined = groups.join(groups.select("k", m=column("n")), on="k")
        every = joined.union(groups.with_columns(m=literal(0)))
        return every.group_by("k").agg(n=sum_("n"), m=sum_("m"))

    def total(k: Any) -> tuple[int, int]:
        of_key = [n for (other, _), n in Counter(ROWS).items() if other == k]
        matches = 0 if k is None else len(of_key)
        return sum(of_key) * (1 + matches), sum(of_key) * matches

    assert rows_of(build, workers) == sorted_rows((k, *total(k)) for k in COUNTS)
