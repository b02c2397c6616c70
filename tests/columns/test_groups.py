"""Groups against group-by in plain Python: all kinds of keys and aggregates, nulls, merging, growth, errors."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from shmjet.columns.aggregates import Aggregate, count, first, last, max_, mean, min_, sum_, var
from shmjet.columns.groups import Groups
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.text import Text
from tests.columns.reference import NUMBERS, VALUES, alike, batch_of, column, grouped, plain, some_values
from tests.examples import examples

thorough = examples(60, suppress_health_check=[HealthCheck.too_slow])

COLUMN_AGGREGATES = [min_, max_, first, last, count]
NUMBER_AGGREGATES = [sum_, mean, var, lambda name: var(name, ddof=0)]


def read(groups: Groups, step: int = 3) -> tuple[list[tuple[Any, ...]], Batch]:
    """All results in steps: rows of plain values, and the batch."""
    parts, position = [], 0
    while position >= 0:
        part, position = groups.results(position, step)
        parts.append(part)
    batch = Batch.concat(parts)
    return list(zip(*(plain(batch, name) for name in batch.names), strict=True)), batch


def check(groups: Groups, batches: list[Batch], keys: list[str], aggregates: dict[str, Aggregate]) -> None:
    expected = [key + tuple(results) for key, results in grouped(batches, keys, aggregates).items()]
    rows, batch = read(groups)
    assert len(groups) == len(rows) == len(expected)
    assert batch.names == (*keys, *aggregates)
    for row, wanted in zip(rows, expected, strict=True):
        assert all(map(alike, row, wanted)), (row, wanted)


def merged(parts: list[Groups], keys: list[str], aggregates: dict[str, Aggregate], step: int = 2) -> Groups:
    whole = Groups(keys, aggregates)
    for part in parts:
        position = 0
        while position >= 0 and len(part):
            states, position = part.states(position, step)
            whole.merge(states)
    return whole


@st.composite
def some_batches(draw: st.DrawFn) -> tuple[list[Batch], list[str], dict[str, Aggregate]]:
    keys = {f"k{i}": kind for i, kind in enumerate(draw(st.lists(st.sampled_from(list(VALUES)), max_size=3)))}
    values = {f"v{i}": kind for i, kind in enumerate(draw(st.lists(st.sampled_from(list(VALUES)), max_size=3)))}
    aggregates: dict[str, Aggregate] = {"rows": count()}
    sums: dict[str, str] = {}
    for name in values:
        for make in draw(st.lists(st.sampled_from(COLUMN_AGGREGATES), max_size=3, unique=True)):
            aggregates[f"{name}.{len(aggregates)}"] = make(name)
    for i, kind in enumerate(draw(st.lists(st.sampled_from(NUMBERS), max_size=2))):
        sums[f"n{i}"] = kind
        for make in draw(st.lists(st.sampled_from(NUMBER_AGGREGATES), max_size=3, unique=True)):
            aggregates[f"n{i}.{len(aggregates)}"] = make(f"n{i}")
    batches = []
    for rows in draw(st.lists(st.integers(0, 12), min_size=1, max_size=4)):
        columns: dict[str, tuple[str, list[Any]]] = {"any": ("?", [True] * rows)}
        for name, kind in (*keys.items(), *values.items(), *sums.items()):
            columns[name] = kind, draw(some_values(kind, rows, nulls=draw(st.booleans()), calm=name in sums))
        batches.append(batch_of(columns))
    return batches, list(keys), aggregates


@thorough
@given(some_batches())
def test_groups_are_those_of_a_dict(given_: tuple[list[Batch], list[str], dict[str, Aggregate]]) -> None:
    batches, keys, aggregates = given_
    groups = Groups(keys, aggregates)
    for batch in batches:
        groups.add(batch)
    check(groups, batches, keys, aggregates)


@examples(40)
@given(st.data())
def test_many_rows_of_one_group_in_a_row_are_those_of_a_dict(data: st.DataObject) -> None:
    columns: dict[str, tuple[str, list[Any]]] = {}
    aggregates: dict[str, Aggregate] = {"rows": count()}
    rows = data.draw(st.sampled_from([31, 32, 33, 255, 256, 257, 600]))
    for i, kind in enumerate(data.draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3))):
        few = data.draw(some_values(kind, 11, nulls=data.draw(st.booleans()), calm=True))
        columns[f"n{i}"] = kind, [few[row % 11] for row in range(rows)]
        aggregates |= {f"{make.__name__}{i}": make(f"n{i}") for make in (sum_, mean, var, min_, max_, count)}
        aggregates[f"last{i}"] = last(f"n{i}")
    few = data.draw(some_values("f8", 7, nulls=False))
    columns["wild"] = "f8", [0.25] * (rows - 7) + few
    aggregates |= {"least": min_("wild"), "most": max_("wild"), "sum": sum_("wild")}
    columns["k"] = "i8", [1] * (rows - 3) + [1, 2, 1] if data.draw(st.booleans()) else [1] * rows
    keys = data.draw(st.sampled_from([[], ["k"]]))
    batches = [batch_of(columns), batch_of(columns)]
    groups = Groups(keys, aggregates)
    for batch in batches:
        groups.add(batch)
    check(groups, batches, keys, aggregates)


@thorough
@given(some_batches())
def test_merged_parts_give_what_one_pass_gives(given_: tuple[list[Batch], list[str], dict[str, Aggregate]]) -> None:
    batches, keys, aggregates = given_
    parts = []
    for batch in batches:
        parts.append(Groups(keys, aggregates))
        parts[-1].add(batch)
    if not any(batch.num_rows for batch in batches):
        return
    whole = merged(parts, keys, aggregates)
    check(whole, batches, keys, aggregates)
    check(merged([whole], keys, aggregates), batches, keys, aggregates)


@pytest.mark.parametrize("kind", list(VALUES))
def test_keys_come_out_in_the_dtype_they_came_in(kind: str) -> None:
    values = VALUES[kind]
    groups = Groups(["k"], {"n": count(), "least": min_("k"), "first": first("k")})
    batch = Batch({"k": column(kind, values * 2)})
    groups.add(batch)
    found, end = groups.results(0, 1000)
    assert end == -1
    assert found.schema == {
        "k": batch.schema["k"],
        "n": np.dtype(np.int64),
        "least": batch.schema["k"],
        "first": batch.schema["k"],
    }
    wanted = [value for i, value in enumerate(plain(batch, "k")) if value not in plain(batch, "k")[:i]]
    assert plain(found, "k") == wanted
    assert found["k"][:0].dtype == batch["k"].dtype


def test_first_and_last_take_any_fixed_width_column() -> None:
    point = np.dtype([("x", "f8"), ("n", "i2")])
    batch = Batch(
        {
            "k": [1, 1, 2, 2],
            "z": np.array([1j, 2, 3, 4]),
            "p": np.array([(1, 1), (2, 2), (3, 3), (4, 4)], point),
            "g": np.arange(4, dtype=np.longdouble) / 3,
        },
        {"z": np.array([False, True, True, True])},
    )
    groups = Groups(["k"], {f"{make.__name__} {name}": make(name) for name in "zpg" for make in (first, last)})
    groups.add(batch)
    found = groups.results(0, 9)[0]
    assert found["first z"].tolist() == [2, 3]
    assert found["last z"].tolist() == [2, 4]
    assert found["first p"].tolist() == [(1, 1), (3, 3)]
    assert found["last p"].dtype == point
    assert found["last g"].tolist() == batch["g"][[1, 3]].tolist()


# -- growth ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "keys"), [(np.int64, 1_000_000), (np.float64, 300_000), ("text", 300_000)])
def test_a_million_keys(dtype: Any, keys: int) -> None:
    block = 1 << 17
    order = np.random.default_rng(7).permutation(np.repeat(np.arange(keys), 2))
    groups = Groups(["k"], {"total": sum_("v"), "n": count(), "first": first("v")})
    for start in range(0, len(order), block):
        numbers = order[start : start + block]
        column: Any = numbers.astype(dtype) if dtype != "text" else _digits(numbers)
        groups.add(Batch({"k": column, "v": numbers}))
    assert len(groups) == keys
    found, end = groups.results(0, keys)
    assert end == -1
    _, places = np.unique(order, return_index=True)
    firsts = order[np.sort(places)]
    assert (found["first"] == firsts).all()
    assert (found["total"] == 2 * firsts).all()
    assert (found["n"] == 2).all()
    assert bool((found["k"] == (firsts if dtype != "text" else _digits(firsts))).all())


def _digits(numbers: Any) -> Text:
    """Each number as 16 letters, more than fit into a row."""
    data = (numbers[:, None] >> (4 * np.arange(16)) & 15).astype(np.uint8) + 97
    return Text(np.arange(len(numbers) + 1) * 16, data.reshape(-1))


@pytest.mark.parametrize("stride", [1, 1 << 20, 1 << 32, 1 << 44, -3])
def test_keys_at_regular_distances_do_not_collide(stride: int) -> None:
    keys = np.arange(20_000, dtype=np.int64) * stride
    groups = Groups(["k", "half"], {"n": count()})
    for _ in range(2):
        groups.add(Batch({"k": keys, "half": keys % 2 == 0}))
    found = groups.results(0, 20_000)[0]
    assert found.num_rows == len(np.unique(keys))
    assert (found["k"] == np.unique(keys, return_index=False)[:: 1 if stride > 0 else -1]).all()


@pytest.mark.parametrize("start", [0, -5_000, 2**63 - 30_000, -(2**63), 10**15])
def test_keys_that_lie_close_together_and_drift(start: int) -> None:
    random = np.random.default_rng(3)
    parts = [start + drift + random.integers(0, 20_000, 5_000) for drift in (0, 0, 9_000, 9_000, 0)]
    parts += [random.integers(-(2**63), 2**63 - 1, 5_000), parts[0], np.array([start, 2**63 - 1, -(2**63)])]
    groups = Groups(["k"], {"n": count(), "rank": first("v")})
    for part in parts:
        groups.add(Batch({"k": part, "v": part % 1_000}))
    groups.add(Batch({"k": np.zeros(4, np.int64), "v": np.zeros(4, np.int64)}, {"k": np.zeros(4, np.bool_)}))
    found = groups.results(0, 1 << 20)[0]
    valid = found.validity("k")
    assert valid is not None
    unique, counts = np.unique(np.concatenate(parts), return_counts=True)
    keys = found["k"].drop_null()
    order = np.argsort(keys)
    assert (keys[order] == unique).all()
    assert (found["n"][valid][order] == counts).all()
    assert (found["rank"][valid] == keys % 1_000).all()
    assert found["n"][~valid].tolist() == [4]


def test_text_that_is_replaced_often_keeps_its_room() -> None:
    groups = Groups([], {"last": last("t"), "least": min_("t")})
    rows = [f"{999_999 - i:06d}" + "x" * (i % 50) for i in range(3_000)]
    for _ in range(30):
        groups.add(Batch({"t": rows}))
    assert groups.nbytes < 200_000
    assert groups.results(0, 1)[0].to_dict() == {"last": [rows[-1]], "least": [rows[-1]]}


# -- dtypes that change ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("i4", "i8", "i8"),
        ("i8", "i4", "i8"),
        ("u4", "i4", "i8"),
        ("u4", "u8", "u8"),
        ("?", "i2", "i2"),
        ("f4", "f8", "f8"),
        ("f2", "f4", "f4"),
        ("M8[s]", "M8[us]", "M8[us]"),
        ("M8[us]", "M8[s]", "M8[us]"),
        ("S3", "S5", "S5"),
        ("U5", "U3", "U5"),
    ],
)
def test_dtypes_widen(one: str, two: str, both: str) -> None:
    aggregates = {"least": min_("k"), "most": max_("k"), "first": first("k"), "n": count("k")}
    groups = Groups(["k"], aggregates)
    for dtype in (one, two, one):
        values = np.array([0, 1, 1], "i8")
        groups.add(Batch({"k": values.astype("M8[s]").astype(dtype) if "M" in dtype else values.astype(dtype)}))
    found = groups.results(0, 9)[0]
    assert [found.schema[name] for name in ("k", "least", "most", "first")] == [np.dtype(both)] * 4
    wide = np.array([0, 1], "i8")
    expected = wide.astype("M8[s]").astype(both) if "M" in both else wide.astype(both)
    for name in ("k", "least", "most", "first"):
        assert found[name].tolist() == expected.tolist()
    assert found["n"].tolist() == [3, 6]


@pytest.mark.parametrize(
    ("one", "two", "text"),
    [
        ("i8", "text", "has values of numbers and of text, which no column holds together"),
        ("text", "i8", "has values of numbers and of text, which no column holds together"),
        ("text", "bytes", "has values of bytes and of text"),
        ("i8", "M8[us]", "has values of datetime64[us] and of numbers"),
        ("S5", "U2", "has values of bytes and of text"),
        ("i8", "f8", "has 9223372036854775807 as well as floats, and float64 does not hold both"),
        ("u8", "i8", "as well as integers of uint64, and uint64 does not hold both"),
    ],
)
def test_keys_that_no_column_holds_are_an_error_whichever_comes_first(one: str, two: str, text: str) -> None:
    for kinds in ((one, two), (two, one)):
        groups = Groups(["k"], {"n": count()})
        groups.add(Batch({"k": column(kinds[0], VALUES[kinds[0]])}))
        with pytest.raises(BatchError, match=re.escape(f"column 'k' {text}" if text[0] == "h" else text)):
            groups.add(Batch({"k": column(kinds[1], VALUES[kinds[1]])}))


@pytest.mark.parametrize(("one", "two"), [("M8[D]", "M8[s]"), ("M8[ns]", "M8[us]"), ("m8[s]", "m8[ns]")])
def test_dates_and_times_are_keys_of_different_kinds_but_values_of_one(one: str, two: str) -> None:
    groups = Groups(["k"], {"most": max_("v")})
    groups.add(Batch({"k": np.zeros(1, one), "v": np.zeros(1, one)}))
    with pytest.raises(BatchError, match=r"column 'k' has values of (date|time)"):
        groups.add(Batch({"k": np.zeros(1, two), "v": np.zeros(1, one)}))
    groups.add(Batch({"k": np.zeros(1, one), "v": np.ones(1, two)}))
    assert groups.results(0, 10)[0]["most"].tolist() == np.ones(1, two).astype(np.result_type(one, two)).tolist()


@pytest.mark.parametrize("kind", ["i8", "text", "M8[us]", "S5"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_column_that_is_all_null_has_any_dtype(kind: str, is_first: bool) -> None:
    empty = Batch({"k": [None, None], "v": [None, None]})
    full = Batch({"k": column(kind, VALUES[kind][:2]), "v": column(kind, VALUES[kind][:2])})
    aggregates = {"n": count(), "least": min_("v"), "last": last("v")}
    if kind == "i8":
        aggregates["sum"] = sum_("v")
    batches = [empty, full] if is_first else [full, empty]
    one, parts = Groups(["k"], aggregates), []
    for batch in batches:
        one.add(batch)
        parts.append(Groups(["k"], aggregates))
        parts[-1].add(batch)
    expected = grouped(batches, ["k"], aggregates)
    for groups in (one, merged(parts, ["k"], aggregates)):
        rows, found = read(groups)
        assert {row[0]: list(row[1:]) for row in rows} == {key[0]: results for key, results in expected.items()}
        assert found.schema["k"] == full.schema["k"]


def test_an_all_null_integer_sum_merges_into_a_sum_of_floats() -> None:
    floats, integers = Groups([], {"s": sum_("v")}), Groups([], {"s": sum_("v")})
    floats.add(Batch({"v": [0.5]}))
    integers.add(Batch({"v": np.zeros(1, np.int64)}, {"v": np.array([False])}))
    assert merged([floats, integers], [], {"s": sum_("v")}).results(0, 1)[0].to_dict() == {"s": [0.5]}


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregate", "kind", "text"),
    [
        (
            sum_("v"),
            "text",
            r"column 'v' of dtype text has no sum \(result 'r'\): expected a column of bool, int",
        ),
        (mean("v"), "M8[us]", r"column 'v' of dtype datetime64\[us\] has no mean"),
        (var("v"), "S5", r"column 'v' of dtype \|S5 has no var"),
    ],
)
def test_an_aggregate_on_a_wrong_dtype_names_it(aggregate: Aggregate, kind: str, text: str) -> None:
    with pytest.raises(BatchError, match=text):
        Groups([], {"r": aggregate}).add(Batch({"v": column(kind, VALUES[kind])}))


def test_other_wrong_columns_are_named() -> None:
    groups = Groups(["k"], {"n": count("v")})
    with pytest.raises(BatchError, match=r"expected a column 'v', found \['k'\]"):
        groups.add(Batch({"k": [1]}))
    with pytest.raises(BatchError, match=r"expected a column 'k', found \['v'\]"):
        groups.add(Batch({"v": [1]}))
    with pytest.raises(BatchError, match=r"expected states of the groups with the result 'n', found columns \['k'\]"):
        groups.merge(Batch({"k": [1]}))
    with pytest.raises(BatchError, match=r"column 'k' cannot be a key: expected bool, .*, found complex128"):
        groups.add(Batch({"k": np.array([1j]), "v": [1]}))
    with pytest.raises(BatchError, match="has no max"):
        Groups([], {"m": max_("k")}).add(Batch({"k": np.array([1j])}))


def test_names_that_collide_are_refused() -> None:
    with pytest.raises(BatchError, match="result 'k' would have the name of the key column 'k'"):
        Groups(["k"], {"k": count()})
    with pytest.raises(BatchError, match="named twice"):
        Groups(["k", "k"], {})
    with pytest.raises(BatchError, match="must be an aggregate such as"):
        Groups(["k"], {"n": "count"})  # type: ignore[dict-item]
    with pytest.raises(BatchError, match="non-empty str"):
        Groups(["k"], {"": count()})


_PARTS = ("n", "low", "high", "sum", "error", "near", "mean", "squares", "min", "max", "first", "last", "rest", "as")
HOSTILE = ["#", "##", "r#", "#r", "é", "e\u0301", "a.b", ".", " ", "\0", "k" * 1000, "0", "_", "'", '"', "r##as"]


@pytest.mark.parametrize(
    "keys", [["k", "k#as", "k##as"], [f"r#{part}" for part in _PARTS], [f"r{'#' * n}n" for n in range(1, 6)], HOSTILE]
)
def test_no_name_of_a_user_is_that_of_a_state(keys: list[str]) -> None:
    results = {name: each("v") for name, each in zip(["r", "r###", "#n", "n"], (mean, max_, sum_, var), strict=True)}
    results |= {"k" * 999: count(), "e" + "\u0301" * 2: min_("v")}
    rows = {name: [i % 2 + place for i in range(6)] for place, name in enumerate(keys)}
    rows["v"] = [1, 2, 3, 4, 5, 2**60]
    whole, parts_ = Groups(keys, results), Groups(keys, results)
    whole.add(Batch(rows))
    for start in (0, 3):
        part = Groups(keys, results)
        part.add(Batch({name: values[start : start + 3] for name, values in rows.items()}))
        states = part.states(0, 10)[0]
        assert len(states.parts()[0]) >= len(keys) + len(results), "a state has taken the place of another column"
        parts_.merge(states)
    assert parts_.results(0, 10)[0].to_dict() == whole.results(0, 10)[0].to_dict()


def test_keys_of_mixed_signs_may_have_any_names() -> None:
    keys = ["k", "k#as"]
    whole = Groups(keys, {"n": count()})
    for values in ([-1, 2], [2**63, 2**63 + 2048], [0.5, -1.0]):
        part = Groups(keys, {"n": count()})
        part.add(Batch({name: np.array(values) for name in keys}))
        whole.merge(part.states(0, 10)[0])
    found = whole.results(0, 10)[0]
    assert dict(zip(found["k#as"].tolist(), found["n"].tolist(), strict=True)) == {
        -1.0: 2,
        2.0: 1,
        2.0**63: 1,
        2.0**63 + 2048: 1,
        0.5: 1,
    }


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([2**63 - 1, 1]), "int64"),
        (np.array([-(2**63), -1]), "int64"),
        (np.array([2**63, 2**63], np.uint64), "uint64"),
    ],
)
def test_a_sum_of_integers_that_leaves_its_dtype_is_an_error(values: Any, dtype: str) -> None:
    aggregates = {"n": count(), "s": sum_("v")}
    groups, parts = Groups([], aggregates), [Groups([], aggregates) for _ in values]
    groups.add(Batch({"v": values}))
    for row, part in enumerate(parts):
        part.add(Batch({"v": values[row : row + 1]}))
    for each in (groups, merged(parts, [], aggregates)):
        with pytest.raises(BatchError, match=rf"the sum of column 'v' \(result 's'\) leaves {dtype}"):
            each.results(0, 1)


def test_a_sum_may_leave_its_dtype_on_the_way() -> None:
    for values in itertools.permutations([2**63 - 1, 2**63 - 1, -(2**63), -(2**63) + 5]):
        groups = Groups([], {"s": sum_("v"), "m": mean("v")})
        groups.add(Batch({"v": list(values)}))
        assert groups.results(0, 1)[0].to_dict() == {"s": [3], "m": [0.75]}
    for values in itertools.permutations([1.5e308, 1.5e308, 1e308, -1.7e308, -1.7e308]):
        groups, parts = Groups([], {"s": sum_("v"), "m": mean("v")}), []
        groups.add(Batch({"v": list(values)}))
        for value in values:
            parts.append(Groups([], {"s": sum_("v"), "m": mean("v")}))
            parts[-1].add(Batch({"v": [value]}))
        for each in (groups, merged(parts, [], {"s": sum_("v"), "m": mean("v")})):
            assert each.results(0, 1)[0].to_dict() == {"s": [pytest.approx(6e307)], "m": [pytest.approx(1.2e307)]}


@pytest.mark.parametrize(
    "values",
    [
        [1e308, -1e308],
        [1e308, -1e308, 1e308, 0.0],
        [1.5e308, 1.4e308],
        [1e154] * 5 + [-1e154] * 5,
        [1e200, 1e200],
        [1e200, 1e200, 1e200 * (1 + 2**-52)],
        [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16],
        [1e16, 1e16 + 2, 1e16 + 4],
        [5e-324, 1e-323],
        [2**63 - 1, 2**63 - 2, 2**63 - 4],
        [-(2**63), -(2**63) + 1],
        [2**64 - 1, 2**64 - 3, 0, 2**63],
        [-(2**63), 2**63 - 1],
        [True, False, False],
        [math.inf, 1.0],
        [1.0, math.inf, 1.0],
        [math.nan, 1e308, -1e308],
    ],
)
def test_variance_and_mean_are_those_of_exact_fractions(values: list[Any]) -> None:
    aggregates = {"v": var("x"), "p": var("x", ddof=0), "m": mean("x")}
    for order in (values, values[::-1]):
        whole, parts = Groups([], aggregates), []
        whole.add(Batch({"x": order}))
        kind = Batch({"x": order}).schema["x"]
        for at in range(0, len(order), 2):
            parts.append(Groups([], aggregates))
            parts[-1].add(Batch({"x": np.array(order[at : at + 2], kind)}))
        for groups in (whole, merged(parts, [], aggregates)):
            found = {name: column[0] for name, column in groups.results(0, 1)[0].to_dict().items()}
            if all(map(math.isfinite, values)):
                exact = [Fraction(value) for value in values]
                middle = sum(exact) / len(exact)
                squares = sum((value - middle) ** 2 for value in exact)
                assert found["m"] == pytest.approx(float(middle), rel=1e-12, abs=5e-324)
                for name, ddof in (("v", 1), ("p", 0)):
                    assert found[name] == pytest.approx(_nearest(squares / (len(values) - ddof)), rel=1e-9, abs=5e-324)
            else:
                assert math.isnan(found["v"])
                assert math.isnan(found["p"])


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def orders(values: list[Any]) -> list[list[Any]]:
    """Some orders, in each of which another value comes first and last."""
    turned = [values[at:] + values[:at] for at in range(len(values))]
    return turned + [values[::-1]]


MIXTURES: list[list[Any]] = [
    [1, 0.5, True, None],
    [2**53 + 1, 0.5, -3],
    [2**63, 1, 2**63 - 1],
    [2**63, -1, 5],
    [2**62 + 1, 2**62, 1.5, -(2**63)],
    [2**64 - 1, 0.25, -1.0, math.nan],
    [False, 2**63, 1e300, -math.inf],
    [None, None, 7],
]


@pytest.mark.parametrize("values", MIXTURES)
def test_results_of_mixed_columns_do_not_depend_on_how_rows_are_cut(values: list[Any]) -> None:
    aggregates: dict[str, Aggregate] = {
        "sum": sum_("v"),
        "mean": mean("v"),
        "var": var("v"),
        "least": min_("v"),
        "most": max_("v"),
        "n": count("v"),
    }
    for name in aggregates:
        outcomes = set()
        for order in orders(values):
            for size in (1, 2):
                one: dict[str, Aggregate] = {name: aggregates[name]}
                whole, parts = Groups([], one), []
                try:
                    for at in range(0, len(order), size):
                        try:
                            batches = [Batch({"v": list(order[at : at + size])})]
                        except BatchError:  # no one column holds them: they come apart
                            batches = [Batch({"v": [value]}) for value in order[at : at + size]]
                        parts.append(Groups([], one))
                        for batch in batches:
                            whole.add(batch)
                            parts[-1].add(batch)
                    for groups in (whole, merged(parts, [], one)):
                        found = groups.results(0, 1)[0]
                        value = found.to_dict()[name][0]
                        shown = f"{value:.9e}" if isinstance(value, float) and name != "least" else str(value)
                        outcomes.add((shown, str(found.schema[name])))
                except BatchError as error:
                    outcomes.add(("error", str(error)))
        assert len(outcomes) == 1, (name, outcomes)


@pytest.mark.parametrize(
    "values", [[1, 1.0, True, 2], [2**63, 1, 0], [0.5, 3, 2**53], [None, 1.5, 1, math.nan], [-0.0, 0, False]]
)
def test_keys_of_mixed_columns_are_equal_by_value(values: list[Any]) -> None:
    outcomes = set()
    for order in orders(values):
        whole, parts = Groups(["k"], {"n": count()}), []
        for value in order:
            parts.append(Groups(["k"], {"n": count()}))
            for groups in (whole, parts[-1]):
                groups.add(Batch({"k": [value]}))
        for groups in (whole, merged(parts, ["k"], {"n": count()})):
            rows, found = read(groups)
            outcomes.add(
                (str(sorted((str(key + 0.0 if key == 0 else key), n) for key, n in rows)), str(found.schema["k"]))
            )
    assert len(outcomes) == 1, outcomes


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ([-1, 2**63], "has -1 as well as integers of uint64, and uint64 does not hold both"),
        ([-1, 2**63, 0.5], ""),
        ([-1, None, 2**63, 2**63, 0.5], ""),
        ([-1, 2**63 + 1, 0.5], "does not hold both"),
        ([-1, 2**63 + 1], "has negative integers as well as integers of uint64, and uint64 does not hold both"),
    ],
)
def test_keys_of_both_signs_need_a_float_whenever_it_comes(values: list[Any], error: str) -> None:
    outcomes = set()
    for order in orders(values):
        for cut in range(len(values) + 1):
            parts = [Groups(["k"], {"n": count()}) for _ in range(2)]
            try:
                for place, value in enumerate(order):
                    parts[place >= cut].add(Batch({"k": [value]}))
                parts = pickle.loads(pickle.dumps(parts))
                rows, found = read(merged(parts, ["k"], {"n": count()}))
                outcomes.add((str(sorted(rows, key=str)), str(found.schema["k"])))
            except BatchError as raised:
                outcomes.add(error if error and error in str(raised) else str(raised))
    assert len(outcomes) == 1, outcomes
    assert not error or outcomes == {error}


def test_a_processor_without_the_negative_key_has_integers() -> None:
    mixed, other = Groups(["k"], {"n": count()}), Groups(["k"], {"n": count()})
    mixed.add(Batch({"k": [-1]}))
    mixed.add(Batch({"k": [2**63]}))
    head = mixed.head()
    assert head is not None
    other.merge(head)
    states, _ = mixed.states(0, 9)
    other.merge(states.filter(states["k"] > 0))
    assert other.results(0, 9)[0] == Batch({"k": np.array([2**63], np.uint64), "n": [1]})
    with pytest.raises(BatchError, match="has -1 as well as integers of uint64"):
        mixed.results(0, 9)


def test_heads_give_all_parts_one_schema() -> None:
    aggregates = {"least": min_("v"), "sum": sum_("v")}
    parts = [Groups(["k"], aggregates) for _ in range(3)]
    parts[0].add(Batch({"k": [1], "v": [2]}))
    parts[1].add(Batch({"k": [2.5], "v": [0.5]}))
    parts[2].add(Batch({"k": [None], "v": [None]}))
    schemas = []
    for part in parts:
        whole = Groups(["k"], aggregates)
        for other in parts:
            head = other.head()
            assert head is not None
            assert head.num_rows == 0
            whole.merge(head)
        whole.merge(part.states(0, 9)[0])
        schemas.append(whole.results(0, 9)[0].schema)
    assert schemas == [{"k": np.dtype(float), "least": np.dtype(float), "sum": np.dtype(float)}] * 3
    assert Groups(["k"], aggregates).head() is None


def test_integer_sums_reach_to_the_ends_of_64_bits() -> None:
    groups = Groups(["k"], {"s": sum_("v")})
    groups.add(Batch({"k": [1, 1, 2, 2], "v": [2**63 - 2, 1, -(2**63) + 1, -1]}))
    assert groups.results(0, 9)[0]["s"].tolist() == [2**63 - 1, -(2**63)]
    unsigned = Groups([], {"s": sum_("v")})
    unsigned.add(Batch({"v": [-5]}))
    unsigned.add(Batch({"v": np.array([2**63], np.uint64)}))
    assert unsigned.results(0, 9)[0]["s"].tolist() == [2**63 - 5]


def test_float_sums_do_not_lose_small_values() -> None:
    groups = Groups([], {"s": sum_("v"), "m": mean("v")})
    groups.add(Batch({"v": [1e16, *[1.0] * 1000, -1e16]}))
    assert groups.results(0, 1)[0]["s"].tolist() == [1000.0]
    assert groups.results(0, 1)[0]["m"].tolist() == [1000.0 / 1002]


def test_variance_keeps_its_digits_beside_a_large_mean() -> None:
    values = 1e9 + np.array([4.0, 7, 13, 16])
    parts = []
    for part in (values[:1], values[1:]):
        parts.append(Groups([], {"v": var("v")}))
        parts[-1].add(Batch({"v": part}))
    assert merged(parts, [], {"v": var("v")}).results(0, 1)[0]["v"].tolist() == [30.0]


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_no_batch_and_no_rows_give_no_groups() -> None:
    groups = Groups(["k"], {"s": sum_("v")})
    assert (len(groups), groups.nbytes) == (0, 0)
    assert groups.results(0, 10)[0].num_rows == 0
    groups.add(Batch({"k": np.zeros(0, np.int32), "v": np.zeros(0)}))
    found, end = groups.results(0, 10)
    assert (found.num_rows, end, found.schema) == (0, -1, {"k": np.dtype(np.int32), "s": np.dtype(np.float64)})
    groups.add(Batch({"k": ["now text"], "v": [1]}))
    assert groups.results(0, 10)[0].to_dict() == {"k": ["now text"], "s": [1]}
    groups.clear()
    groups.add(Batch({"k": [0.5], "v": [True]}))
    assert groups.results(0, 10)[0].to_dict() == {"k": [0.5], "s": [1]}


def test_wrong_positions_are_refused() -> None:
    groups = Groups(["k"], {})
    groups.add(Batch({"k": [1, 2]}))
    assert groups.results(2, 1)[0].num_rows == 0
    for position, limit in ((-1, 1), (3, 1), (0, 0)):
        with pytest.raises(ValueError, match="must be"):
            groups.results(position, limit)


def test_nulls_in_more_than_64_keys_are_told_apart() -> None:
    keys = [f"k{number}" for number in range(150)]
    columns: dict[str, list[int | None]] = {key: [1] * 16 for key in keys}
    for place, key in enumerate(("k1", "k65", "k129", "k149")):
        columns[key] = [None if row >> place & 1 else 1 for row in range(16)]
    groups = Groups(keys, {"n": count()})
    for _ in range(2):
        groups.add(Batch(columns))
    assert groups.results(0, 100)[0].to_dict() == columns | {"n": [2] * 16}


def test_groups_are_pickled_with_their_contents() -> None:
    batch = Batch({"k": ["a", "b" * 20, None], "v": [1, None, 3]})
    groups = Groups(["k"], {"s": sum_("v"), "t": max_("k"), "u": var("v", ddof=0)})
    copies = [pickle.loads(pickle.dumps(groups))]
    groups.add(batch)
    copies.append(pickle.loads(pickle.dumps(groups)))
    copies[0].add(batch)
    for copy in copies:
        assert copy.results(0, 9) == groups.results(0, 9)
        copy.add(batch)
        assert copy.results(0, 9)[0]["s"].tolist() == [2, None, 6]
    assert groups.results(0, 9)[0]["s"].tolist() == [1, None, 3]


def test_another_process_takes_groups_over_by_their_descriptor() -> None:
    groups = Groups(["k"], {"s": sum_("v")})
    groups.add(Batch({"k": np.arange(5_000), "v": np.arange(5_000)}))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # the child adds to the same memory
        taken = Groups.attach(groups.fileno(), pickle.loads(pickle.dumps(groups.description)))
        taken.add(Batch({"k": np.arange(10_000), "v": np.arange(10_000)}))
        os.write(writer, pickle.dumps((len(taken), int(taken.results(0, 10_000)[0]["s"].sum()))))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pickle.load(pipe) == (10_000, sum(range(5_000)) + sum(range(10_000)))
    assert os.waitpid(child, 0)[1] == 0
    assert len(Groups.attach(groups.fileno(), groups.description)) == 10_000
    assert len(Groups.attach(-1, Groups(["k"], {}).description)) == 0


def test_the_repr_says_what_is_grouped() -> None:
    groups = Groups("k", {"s": sum_("v"), "u": var("v", ddof=0)})
    assert repr(groups) == "Groups(['k'], s=sum_('v'), u=var('v', ddof=0); 0 groups)"
