"""First stages that pass rows on where keys do not repeat: what they emit, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column, processors
from shmjet.columns import Aggregate, count, first, last, max_, max_by, mean, min_, n_unique, sum_, var
from shmjet.processors.columns.distinct_rows import ROW_HASH, distinct_rows
from shmjet.processors.columns.reduction import PASSED, Reduction
from tests.examples import examples

from .driving import Driver, processors_of

EVERYTHING: dict[str, Aggregate] = {
    "n": count(),
    "known": count("v"),
    "total": sum_("v"),
    "mean": mean("v"),
    "spread": var("w"),
    "least": min_("w"),
    "most": max_("s"),
    "begin": first("v"),
    "end": last("s"),
    "kinds": n_unique("s"),
    "heaviest": max_by("s", "w"),
    "doubled": sum_(column("w") * 2),
}


@pytest.fixture(autouse=True)
def decides_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let first stages decide after 16 rows, or after four where it is clear."""
    for place in ("group_by", "distinct_rows"):
        monkeypatch.setattr(f"shmjet.processors.columns.{place}.MEASURED_ROWS", 16)


def driver(supplier: Any, room: int = 2048) -> Driver:
    return Driver(processors_of(supplier)[0], room=room)


def numbers(*values: int) -> Batch:
    return Batch({"k": list(values), "v": [value * 10 for value in values], "x": ["unused"] * len(values)})


def test_a_table_that_makes_nothing_fewer_is_emitted_and_rows_pass() -> None:
    grouping = processors.group_by("k").agg(total=sum_("v"))
    stage = driver(grouping.accumulate)
    assert stage.feed([numbers(1, 2), numbers(3)]).output == []
    head, states = stage.feed([numbers(4)]).output
    assert (head.num_rows, states.num_rows) == (0, 4)
    stage.output.clear()
    stage.feed([numbers(5, 6), numbers(6)])
    assert stage.output == [numbers(5, 6).select("k", "v"), numbers(6).select("k", "v")]
    combine = driver(grouping.combine).feed([head, states, *stage.output])
    assert Batch.concat(combine.complete()) == Batch({"k": [1, 2, 3, 4, 5, 6], "total": [10, 20, 30, 40, 50, 120]})


def test_a_table_that_makes_rows_fewer_is_kept() -> None:
    stage = driver(processors.group_by("k").agg(n=count()).accumulate)
    stage.feed([numbers(1, 2, 3, 3)]).feed([numbers(4, 5, 6, 6)])
    assert stage.output == []
    assert sum(states.num_rows for states in stage.complete()) == 6


def test_rows_of_few_keys_pass_where_their_values_do_not_repeat() -> None:
    grouping = processors.group_by("k").agg(kinds=n_unique("v"), n=count())
    rows = [Batch({"k": [1] * 4, "v": values}) for values in ([1, 2, 3, 4], [5, 6, 7, 7], [1, None, 1, 9])]
    stage = driver(grouping.accumulate).feed(rows)
    assert stage.output[-2:] == rows[1:]
    found = Batch.concat(driver(grouping.combine).feed(stage.complete()).complete())
    assert found == Batch({"k": [1], "kinds": [8], "n": [12]})


def test_distinct_values_that_repeat_are_kept() -> None:
    stage = driver(processors.group_by("k").agg(kinds=n_unique("v")).accumulate)
    stage.feed([Batch({"k": [1] * 4, "v": [1, 1, 2, 3]}), Batch({"k": [1] * 4, "v": [4, 4, None, 3]})])
    assert stage.output == []
    assert sum(states.num_rows for states in stage.complete()) == 1


def test_the_rest_of_a_batch_passes_after_the_states_of_its_first_rows() -> None:
    grouping = processors.group_by("k").agg(begin=first("v"), end=last("v"))
    stage = driver(grouping.accumulate, room=1)
    stage.feed([numbers(1, 2), numbers(*range(3, 90)), {"k": 1, "v": 5}, numbers(7), Batch({"k": [1], "v": [6]})])
    head, states, *rows = stage.complete()
    assert (head.num_rows, states["k"].tolist()) == (0, [1, 2, 3, 4])
    assert Batch.concat(rows)["k"].tolist() == [*range(5, 90), 1, 7, 1]
    found = Batch.concat(driver(grouping.combine).feed([head, states, *rows]).complete())
    assert list(found.tuples())[:2] == [(1, 10, 6), (2, 20, 20)]


def test_more_rows_are_grouped_where_a_few_repeat() -> None:
    reduction = Reduction(100)
    assert (reduction.undecided_rows, reduction.grouped(25, 24)) == (25, False)
    assert (reduction.undecided_rows, reduction.grouped(65, 81)) == (0, False)
    assert (reduction.grouped(10, 90), reduction.is_poor) == (True, True)


def test_after_some_time_rows_are_grouped_again() -> None:
    stage = driver(processors.group_by("k").agg(n=count()).accumulate)
    stage.feed([numbers(1, 2, 3, 4)]).feed([numbers(*range(PASSED * 16))])
    passed = stage.output[-1]
    assert passed == Batch({"k": range(PASSED * 16)})
    stage.feed([numbers(*[5] * 50)])
    assert stage.output[-1] is passed
    assert stage.complete()[-1].num_rows == 1


def test_wide_values_stay_where_their_states_are_small() -> None:
    stage = driver(processors.group_by("k").agg(n=count("x")).accumulate)
    stage.feed([numbers(1, 2, 3, 4)])
    before = len(stage.output)
    stage.feed([Batch({"k": [5, 6], "x": ["a" * 500, None]})])
    assert len(stage.output) == before
    assert stage.complete()[-1].names == ("k", "n#n")


def test_a_column_called_as_a_state_is_none() -> None:
    grouping = processors.group_by("k").agg(n=count("n#n"))
    batch = Batch({"k": range(9), "n#n": [None, *range(8)]})
    states = driver(grouping.accumulate).feed([batch, batch]).complete()
    found = Batch.concat(driver(grouping.combine).feed(states).complete())
    assert found.to_dict() == {"k": list(range(9)), "n": [0] + [2] * 8}


def test_states_and_rows_wait_for_room_and_barriers_for_both() -> None:
    grouping = processors.group_by("k").agg(total=sum_("v"))
    stage = driver(grouping.accumulate, room=1)
    for at in range(0, 40, 4):
        stage.feed([numbers(at, at + 1), {"k": at + 2, "v": 1}, numbers(at + 3)])
        assert stage.save() == []
    found = Batch.concat(driver(grouping.combine).feed(stage.complete()).complete())
    assert sorted(found["k"].tolist()) == list(range(40))


@pytest.mark.parametrize("names", [(), ("k",)])
def test_distinct_rows_are_not_looked_for_where_none_repeats(names: tuple[str, ...]) -> None:
    local = driver(distinct_rows(names, "first"))
    given_rows = [numbers(1, 2, 3, 4), numbers(1, 5), numbers(1, 5)]
    local.feed(given_rows)
    assert [batch.num_rows for batch in local.output] == [4, 2, 2]
    assert all((ROW_HASH in batch) == (not names) for batch in local.output)
    found = driver(distinct_rows(names, "last")).feed(local.complete()).complete()
    assert Batch.concat(found) == numbers(1, 2, 3, 4, 5)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 60) | st.none(),
        st.integers(-9, 9) | st.none(),
        st.sampled_from([0.5, -0.0, 3.0]) | st.none(),
        st.sampled_from(["", "a", "b" * 30]) | st.none(),
    ),
    max_size=24,
)


@examples(40)
@given(st.lists(ROWS, min_size=1, max_size=5), st.sampled_from([("k",), ("k", "s")]), st.sampled_from([1, 9]))
def test_two_stages_give_what_one_stage_gives(
    parts: list[list[tuple[Any, ...]]], keys: tuple[str, ...], room: int
) -> None:
    schema = {"k": float, "v": int, "w": float, "s": str}
    batches = [
        Batch(dict(zip(schema, zip(*rows, strict=True), strict=True)), schema=schema) if rows else _none(schema)
        for rows in parts
    ]
    grouping = processors.group_by(*keys).agg(**EVERYTHING)
    passed = driver(grouping.accumulate, room).feed(batches).complete()
    two = driver(grouping.combine).feed(passed).complete()
    one = driver(grouping).feed(batches).complete()
    assert [batch.schema for batch in two] == [batch.schema for batch in one]
    assert sorted(map(repr, Batch.concat(two).tuples() if two else [])) == sorted(
        map(repr, Batch.concat(one).tuples() if one else [])
    )


def _none(schema: dict[str, Any]) -> Batch:
    row = dict.fromkeys(schema)
    return Batch({name: [value] for name, value in row.items()}, schema=schema)[:0]


def test_keys_that_come_in_turn_are_noticed() -> None:
    reduction = Reduction(1_000)
    seen: set[int] = set()
    grouped = 0
    for start in range(0, 100_000, 100):
        rows = np.arange(start, start + 100) % 5_000
        if reduction.is_poor:
            reduction.passed(100)
            continue
        grouped += 100
        seen.update(rows.tolist())
        if reduction.grouped(100, len(seen)):
            seen.clear()
            reduction.emptied()
    assert not reduction.is_poor
    assert grouped > 30_000
