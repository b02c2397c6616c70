"""Aggregates that keep the rows of groups are like Python, in whatever cuts, merged, saved or pickled."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column
from shmjet.columns import count, custom, first, max_by, median, min_, min_by, n_unique, quantile, std, sum_, var
from shmjet.columns.group_export import RestoredGroups, slices
from shmjet.columns.groups import Groups
from shmjet.data.column_keys import hash_rows
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from shmjet.processors import group_by
from shmjet.testing import verify_processor
from tests.examples import examples

FLOATS = st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e308, -1e308])
TEXTS = ["", "a", "a\0", "ü" * 50]


def spread(rows: Batch) -> str:
    """Tell the rows of a group, so that nothing in them is missed."""
    return repr(sorted(map(repr, rows.tuples())))


AGGREGATES = {
    "n": count(),
    "unique": n_unique("v"),
    "texts": n_unique("t"),
    "mid": median("v"),
    "high": quantile("v", 0.9),
    "least": quantile("f", 0),
    "most": quantile("f", 1),
    "floats": n_unique("f"),
    "text_of_most": max_by("t", "f"),
    "v_of_least": min_by("v", "f"),
    "v_of_text": max_by("v", "t"),
    "most_v": max_by("v", "v"),
    "rows": custom(spread),
    "text": min_("t"),
}


@st.composite
def tables(draw: st.DrawFn) -> list[Batch]:
    batches = []
    for rows in draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)):
        columns: dict[str, Any] = {
            "k": np.array([draw(st.integers(0, 3)) for _ in range(rows)], np.int64),
            "v": np.array([draw(st.integers(-3, 3)) for _ in range(rows)], draw(st.sampled_from(["i1", "i8", "f4"]))),
            "f": np.array([draw(FLOATS) for _ in range(rows)], np.float64),
            "t": Text.of(["", *(draw(st.sampled_from(TEXTS)) for _ in range(rows))])[1:],
        }
        masks = {name: np.array([draw(st.booleans()) for _ in range(rows)], np.bool_) for name in columns}
        batches.append(Batch(columns, masks if draw(st.booleans()) else {}))
    return batches


def expected(batches: list[Batch]) -> dict[Any, tuple[Any, ...]]:
    groups: dict[Any, list[tuple[Any, ...]]] = {}
    for batch in batches:
        for row in batch.tuples():
            groups.setdefault(row[0], []).append(row)
    found = {}
    for key, rows in groups.items():
        v = sorted(float(row[1]) for row in rows if row[1] is not None)
        f = sorted((row[2] for row in rows if row[2] is not None), key=lambda value: (value != value, value))
        distinct = {"nan" if value != value else value for value in f}
        found[key] = (
            len(rows),
            len(set(v)),
            len({row[3] for row in rows if row[3] is not None}),
            float(np.quantile(v, 0.5)) if v else None,
            float(np.quantile(v, 0.9)) if v else None,
            f[0] if f else None,
            f[-1] if f else None,
            len(distinct),
            extreme(rows, 3, 2, 1),
            extreme(rows, 1, 2, -1),
            extreme(rows, 1, 3, 1),
            max((row[1] for row in rows if row[1] is not None), default=None),
        )
    return found


def extreme(rows: list[tuple[Any, ...]], wanted: int, by: int, sign: int) -> Any:
    """The value at one place in the first of the rows that are extreme at another."""
    found, best = None, None
    for row in rows:
        value = row[by]
        rank = (True, 0.0) if value != value else (False, value)  # NaN is greater than all others
        if value is not None and (best is None or (rank > best if sign > 0 else rank < best)):
            found, best = row[wanted], rank
    return found


def results(groups: Groups) -> dict[Any, tuple[Any, ...]]:
    found: dict[Any, tuple[Any, ...]] = {}
    position = 0
    while position >= 0 and len(groups):
        batch, position = groups.results(position, 3)
        for row in batch.tuples():
            found[row[0]] = row[1:]
    return found


def same(one: dict[Any, tuple[Any, ...]], two: dict[Any, tuple[Any, ...]]) -> None:
    assert one.keys() == two.keys()
    for key, row in one.items():
        for mine, other in zip(row, two[key], strict=False):
            close = (
                isinstance(mine, float)
                and isinstance(other, float)
                and (mine == other or math.isclose(mine, other, abs_tol=1e-12) or (mine != mine and other != other))
            )
            assert mine == other or close, (key, row, two[key])


@examples(80)
@given(tables(), st.data())
def test_groups_with_rows_are_what_python_finds(batches: list[Batch], data: st.DataObject) -> None:
    whole = Groups(["k"], AGGREGATES)
    for batch in batches:
        whole.add(batch)
    wanted = expected(batches)
    same(results(whole), wanted)
    parts = [Groups(["k"], AGGREGATES) for _ in range(2)]
    of_parts: list[list[Batch]] = [[], []]
    for batch in batches:
        which = data.draw(st.integers(0, 1))
        parts[which].add(batch)
        of_parts[which].append(batch)
    merged = Groups(["k"], AGGREGATES)
    for part in parts:
        head = part.head()
        if head is not None:
            merged.merge(head)
        position = 0
        while position >= 0 and len(part):
            states, position = part.states(position, 2)
            merged.merge(pickle.loads(pickle.dumps(states)))
    same(results(merged), expected(of_parts[0] + of_parts[1]))
    restored, partitions = Groups(["k"], AGGREGATES), data.draw(st.integers(1, 4))
    again = RestoredGroups(restored)
    head = whole.head()
    if head is not None:
        restored.merge(head)
    for partition in range(partitions if partitions > 1 else 0):  # each takes some rows
        for states, positions in slices(whole):
            chosen = hash_rows(states, ["k"]) % np.uint32(partitions) == partition
            again.merge(states.filter(chosen), np.asarray(positions, np.uint32)[chosen])
    for piece in slices(whole) if partitions == 1 else ():
        again.merge(*piece, are_new=True)
    again.finish()
    assert list(results(restored)) == list(results(whole))
    same(results(restored), wanted)
    for batch in batches:  # the table may be made anew, and its groups move
        restored.add(batch.with_columns({"k": np.asarray(batch.parts()[0]["k"], np.float64)}, dict(batch.parts()[1])))
    same({key: row[1:3] for key, row in results(restored).items()}, {key: row[1:3] for key, row in wanted.items()})
    copied = pickle.loads(pickle.dumps(whole))
    same(results(copied), wanted)


def test_aggregates_take_expressions() -> None:
    batch = Batch({"k": [1, 1, 2], "a": [1, 2, None], "b": [10, 20, 30]})
    aggregates = {
        "total": sum_(column("a") * column("b")),
        "same": sum_(column("b")),
        "mid": median(column("b") / 2),
        "low": n_unique(column("b") > 15),
        "names": custom(lambda rows: ",".join(rows.names)),
    }
    groups = Groups(["k"], aggregates)
    groups.add(batch)
    assert groups.results(0, 9)[0].to_dict() == {
        "k": [1, 2],
        "total": [50, None],
        "same": [30, 30],
        "mid": [7.5, 15.0],
        "low": [2, 1],
        "names": ["k,a,b", "k,a,b"],
    }


def test_a_deviation_is_the_root_of_a_variance() -> None:
    groups = Groups([], {"std": std("v"), "var": var("v"), "huge": std("h"), "one": std("o")})
    groups.add(Batch({"v": [1, 2, 4], "h": [1e200, 3e200, 5e200], "o": [1, None, None]}))
    (row,) = groups.results(0, 1)[0].rows()
    assert row == {"std": pytest.approx(1.5275252316519468), "var": pytest.approx(7 / 3), "huge": 2e200, "one": None}


def test_columns_without_values_have_nulls_and_zeros() -> None:
    groups = Groups(["k"], {"mid": median("v"), "n": n_unique("v"), "first": first("v")})
    groups.add(Batch({"k": [1, 2], "v": [None, None]}))
    assert groups.results(0, 9)[0].to_dict() == {"k": [1, 2], "mid": [None, None], "n": [0, 0], "first": [None, None]}


def test_what_has_no_quantile_is_named() -> None:
    with pytest.raises(BatchError, match=r"column 'v' of dtype text has no quantile \(result 'm'\)"):
        Groups([], {"m": median("v")}).add(Batch({"v": ["a"]}))
    with pytest.raises(BatchError, match="expected a column 'w'"):
        Groups([], {"m": median("w")}).add(Batch({"v": ["a"]}))
    with pytest.raises(ValueError, match="q must be a number from 0 to 1, got 2"):
        quantile("v", 2)
    with pytest.raises(BatchError, match=r"custom\(\.\.\.\) of the result 'm' must return one value a group"):
        groups = Groups([], {"m": custom(lambda _: object())})
        groups.add(Batch({"v": [1]}))
        groups.results(0, 1)


@pytest.mark.parametrize("aggregates", [{"n": n_unique("v"), "s": sum_("v")}, {"m": median("v"), "t": custom(spread)}])
def test_both_stages_pass_all_modes(aggregates: dict[str, Any]) -> None:
    rows = Batch({"k": [1, 2, 1, 1], "v": [5, 6, 5, None]})
    groups = Groups(["k"], aggregates)
    groups.add(rows)
    grouping = group_by("k").agg(**aggregates)
    verify_processor(grouping).inputs([rows[:2], rows[2:]]).expect([groups.results(0, 9)[0]])
    items = list(rows.rows())
    verify_processor(grouping).inputs(items).expect([groups.results(0, 9)[0]])


def test_rows_of_batches_with_different_columns_have_nulls_and_no_hidden_columns() -> None:
    def shown(rows: Batch) -> str:
        return str([sorted(rows.names), *sorted(map(str, rows.select("a", "b").tuples()))])

    batches = [Batch({"k": [1], "a": [1], "\0hidden": [7]}), Batch({"\0hidden": [5], "b": ["x"], "k": [1]})]
    wanted = {"k": [1], "rows": [str([["a", "b", "k"], "(1, None)", "(None, 'x')"])]}
    whole, merged = (Groups(["k"], {"rows": custom(shown)}) for _ in range(2))
    for batch in batches:
        whole.add(batch)
        part = Groups(["k"], {"rows": custom(shown)})
        part.add(batch)
        merged.merge(part.states(0, 1)[0])
    assert whole.results(0, 9)[0].to_dict() == merged.results(0, 9)[0].to_dict() == wanted
