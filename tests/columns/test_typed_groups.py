"""Groups of decimals, instants, categories and nested columns are those of the same values in Python."""

from __future__ import annotations

import decimal
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.columns import count, custom, first, last, list_, max_, mean, median, min_, n_unique, std, sum_
from shmjet.columns.group_export import RestoredGroups, slices
from shmjet.columns.typed_groups import TypedGroups
from shmjet.data.column_keys import hash_rows
from shmjet.data.errors import BatchError
from shmjet.processors import group_by
from shmjet.testing import verify_processor
from tests.columns.test_typed_kernels import FAMILIES, VALUES, typed
from tests.examples import examples

D = decimal.Decimal


def shown(rows: Batch) -> str:
    """Return the values of a group, in one order."""
    return repr(sorted(map(str, rows["v"])))


ORDERED = {"n": count("v"), "least": min_("v"), "most": max_("v"), "one": first("v"), "end": last("v")}
OTHERS = {"unique": n_unique("v"), "rows": custom(shown)}
NUMBERS = {"sum": sum_("v"), "mean": mean("v"), "mid": median("v"), "std": std("v", ddof=0)}


@st.composite
def tables(draw: st.DrawFn) -> tuple[bool, list[Batch]]:
    """Batches with keys k and values v, each column of one family, in any of its types or null all through."""
    families = draw(st.sampled_from(FAMILIES)), draw(st.sampled_from(FAMILIES))
    made = []
    for rows in draw(st.lists(st.integers(0, 8), min_size=1, max_size=4)):
        columns: dict[str, Any] = {}
        masks: dict[str, Any] = {}
        for name, family in zip("kv", families, strict=True):
            word = draw(st.sampled_from(family))
            batch = typed(word, [draw(st.none() | VALUES[word]) for _ in range(rows)])
            columns[name] = batch.parts()[0]["k"]
            if "k" in batch.parts()[1]:
                masks[name] = batch.parts()[1]["k"]
            if rows and draw(st.integers(0, 5)) == 0:
                columns[name], masks[name] = np.zeros(rows), np.zeros(rows, np.bool_)
        made.append(Batch(columns, masks))
    return families[1][0].startswith("decimal"), made


def expected(batches: list[Batch], is_number: bool) -> dict[Any, dict[str, Any]]:
    groups: dict[Any, list[Any]] = {}
    for batch in batches:
        for key, value in batch.tuples():
            groups.setdefault(key, []).append(value)
    found: dict[Any, dict[str, Any]] = {}
    for key, values in groups.items():
        known = [value for value in values if value is not None]
        found[key] = {
            "n": len(known),
            "least": min(known, default=None),
            "most": max(known, default=None),
            "one": known[0] if known else None,
            "end": known[-1] if known else None,
            "unique": len(set(known)),
        }
        if is_number and known:
            with decimal.localcontext(prec=100):
                total = sum(known, D(0))
                floats = [float(value) for value in known]
                found[key] |= {"sum": total, "mean": float(total / len(known)), "mid": float(np.median(floats))}
    return found


def results(groups: TypedGroups) -> dict[Any, dict[str, Any]]:
    found: dict[Any, dict[str, Any]] = {}
    position = 0
    while position >= 0 and len(groups):
        batch, position = groups.results(position, 3)
        for row in batch.rows():
            found[row.pop("k")] = row
    return found


def same(groups: TypedGroups, wanted: dict[Any, dict[str, Any]], but: tuple[str, ...] = ()) -> None:
    found = results(groups)
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            close = pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
            assert name in but or found[key][name] == close, (key, name, found[key][name], value)


@examples(100, phases=(Phase.generate,), report_multiple_bugs=False)
@given(tables(), st.data())
def test_groups_of_types_are_what_python_finds(made: tuple[bool, list[Batch]], data: st.DataObject) -> None:
    is_number, batches = made
    known = any(value is not None for batch in batches for _, value in batch.tuples())
    aggregates = ORDERED | OTHERS | (NUMBERS if is_number and known else {})
    wanted = expected(batches, is_number)
    whole = TypedGroups(["k"], aggregates)
    for batch in batches:
        whole.add(batch)
    same(whole, wanted)
    merged, parts = TypedGroups(["k"], aggregates), [TypedGroups(["k"], aggregates) for _ in range(2)]
    for batch in batches:
        parts[data.draw(st.integers(0, 1))].add(batch)
    for part in parts:
        head, position = part.head(), 0
        if head is not None:
            merged.merge(head)
        while position >= 0 and len(part):
            states, position = part.states(position, 2)
            merged.merge(pickle.loads(pickle.dumps(states)))
    same(merged, wanted, ("one", "end"))
    restored, partitions = TypedGroups(["k"], aggregates), data.draw(st.integers(1, 4))
    again, head = RestoredGroups(restored), whole.head()
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
    same(pickle.loads(pickle.dumps(restored)), wanted)


def test_sums_of_decimals_are_exact_and_keep_their_scale() -> None:
    groups = TypedGroups([], {"sum": sum_("v"), "most": max_("v"), "mean": mean("v")})
    groups.add(Batch({"v": [D("92233720368547758.07"), D("92233720368547758.07"), D("-0.01")]}))
    (row,) = groups.results(0, 1)[0].rows()
    assert row["sum"] == D("184467440737095516.13")
    assert str(groups.results(0, 1)[0].schema["sum"]) == "decimal(38, 2)"
    groups.add(Batch({"v": [D("0.00001")]}))
    (row,) = groups.results(0, 1)[0].rows()
    assert row["sum"] == D("184467440737095516.13001")
    groups.clear()
    groups.add(Batch({"v": [D("9" * 38), D("9" * 38)]}))
    with pytest.raises(BatchError, match="the sum of column 'v'"):
        groups.results(0, 1)


def test_nested_keys_are_compared_and_nested_values_counted() -> None:
    groups = TypedGroups(["k"], {"n": count("v"), "u": n_unique("v"), "one": first("v")})
    groups.add(Batch({"k": [[1], [1], [2]], "v": [{"a": 1}, {"a": 1}, None]}))
    assert groups.results(0, 9)[0].to_dict() == {
        "k": [[1], [2]],
        "n": [2, 0],
        "u": [1, 0],
        "one": [{"a": 1}, None],
    }
    with pytest.raises(BatchError, match="no order"):
        TypedGroups([], {"m": min_("v")}).add(Batch({"v": [[1]]}))
    with pytest.raises(BatchError, match="column 'v' of list<int64> has no sum"):
        TypedGroups([], {"m": sum_("v")}).add(Batch({"v": [[1]]}))


def test_groups_of_decimals_pass_all_modes() -> None:
    rows = Batch({"k": [D("1.5"), D("2.0"), D("1.50")], "v": [D("0.1"), None, D("0.25")]})
    grouping = group_by("k").agg(total=sum_("v"), n=n_unique("v"))
    groups = TypedGroups(["k"], grouping.aggregates)
    groups.add(rows)
    verify_processor(grouping).inputs([rows[:2], rows[2:]]).expect([groups.results(0, 9)[0]])


def test_lists_keep_nulls_and_the_order_of_arrival() -> None:
    columns = {
        "n": [1, None, 3],
        "t": ["a", "", None],
        "d": [D("1.5"), None, D("2.0")],
        "l": [[1], None, []],
    }
    aggregates = {name: list_(name) for name in columns}
    batch = Batch({"k": [1, 2, 1], **columns})
    groups = TypedGroups(["k"], {f"{name}s": each for name, each in aggregates.items()})
    groups.add(batch[:2])
    other = TypedGroups(["k"], {f"{name}s": each for name, each in aggregates.items()})
    other.add(batch[2:])
    groups.merge(other.states(0, 9)[0])
    found = groups.results(0, 9)[0]
    assert found.to_dict() == {
        "k": [1, 2],
        **{f"{name}s": [[values[0], values[2]], [values[1]]] for name, values in columns.items()},
    }
    assert str(found.schema["ns"]) == "list<int64>"
    rows = Batch({"k": [1, 2, 1], "v": ["x", None, "y"]})
    grouping = group_by("k").agg(all=list_("v"))
    check = verify_processor(grouping).inputs([rows[:2], rows[2:]])
    check.expect([Batch({"k": [1, 2], "all": [["x", "y"], [None]]})])
