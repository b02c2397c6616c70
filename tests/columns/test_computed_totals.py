"""Values added as they are computed, against the same computed first and added then, and against plain Python."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native._columns import GroupTable
from shmjet.columns import count, first, last, max_, mean, min_, std, sum_, var
from shmjet.columns.aggregates import Aggregate
from shmjet.columns.computed_totals import ComputedTotals, totals_of
from shmjet.columns.expressions.selections import Selection
from shmjet.columns.projections import ProjectedGroups, compiled
from shmjet.columns.typed_groups import TypedGroups
from shmjet.core.column_key import column
from shmjet.core.expressions import Expression
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from tests.columns.expressions.test_number_program import conditions, is_expression, random_columns, seeded, values
from tests.examples import examples

CALM = [0.0, -0.0, 1.5, -2.25, 1024.0]
WILD = [*CALM, 1e300, 5e-324, float("inf"), float("-inf"), float("nan")]
SMALL = [0, 1, -1, 7, -12, 1 << 31]
LARGE = [*SMALL, (1 << 53) + 1, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63)]
EXACT = (count, min_, max_, first, last)
"""They take any number; sums of wild floats depend on who is added first."""

a, b, x, m = (column(name) for name in "abxm")


def as_batch(columns: dict[str, Any]) -> Batch:
    return Batch.trusted(
        {name: values for name, (values, _, _) in columns.items()},
        {name: mask for name, (_, mask, _) in columns.items() if mask is not None},
        len(columns["a"][0]),
    )


def outcome(groups: TypedGroups, batches: list[Batch], add: Any) -> Any:
    """Names, types and values of the results, or the message of the error."""
    try:
        for batch in batches:
            add(batch)
        results = groups.results(0, 9)[0]
    except BatchError as error:
        return str(error)
    return {name: (kind, repr(results.to_dict()[name])) for name, kind in results.schema.items()}


def first_computed(steps: list[Any], aggregates: dict[str, Aggregate], batches: list[Batch]) -> Any:
    groups = TypedGroups((), aggregates)
    apply = compiled(steps)
    return outcome(groups, batches, lambda batch: groups.add(apply(batch)))


def straight(steps: list[Any], aggregates: dict[str, Aggregate], batches: list[Batch]) -> Any:
    groups = TypedGroups((), aggregates)
    projected = ProjectedGroups(steps, (), aggregates)

    def add(batch: Batch) -> None:
        made = projected.add(batch, groups)
        if made is not None:
            groups.add(made)

    return outcome(groups, batches, add)


plain_values = st.one_of(values.filter(is_expression), st.sampled_from([a, x, m, a * 2 + 1, x * a - b, (a - b) * x]))


@examples(300)
@given(
    st.lists(st.one_of(plain_values, conditions), min_size=1, max_size=3),
    st.lists(conditions, max_size=2),
    st.lists(st.sampled_from([2, 3, 31, 33, 257, 700]), min_size=2, max_size=3),
    st.booleans(),
    st.booleans(),
    seeded,
)
def test_values_added_as_they_are_computed_give_what_they_give_computed_first(
    outputs: list[Any], wheres: list[Any], rows: list[int], is_calm: bool, keep: bool, random: Random
) -> None:
    functions = (*EXACT, sum_, mean, var, std) if is_calm else EXACT
    steps: list[Any] = [("where", each) for each in wheres]
    steps.append(("with" if keep else "select", [(f"o{place}", each) for place, each in enumerate(outputs)]))
    names = [f"o{place}" for place in range(len(outputs))]
    aggregates = {f"r{place}": random.choice(functions)(random.choice(names)) for place in range(4)}
    aggregates["rows"] = count()
    integers, floats = (SMALL[:4], CALM) if is_calm else (LARGE, WILD)
    batches = [as_batch(random_columns(each, integers, floats, random)) for each in rows]
    mine, other = straight(steps, aggregates, batches), first_computed(steps, aggregates, batches)
    if is_calm and isinstance(mine, dict) and isinstance(other, dict):
        assert_near(mine, other)
    else:
        assert mine == other


def assert_near(mine: dict[str, Any], other: dict[str, Any]) -> None:
    """Assert that results are equal but for the last digits of floats."""
    assert mine.keys() == other.keys()
    for name, (kind, shown) in mine.items():
        assert kind == other[name][0]
        if shown != other[name][1]:
            both = [float(each.strip("[]")) for each in (shown, other[name][1])]
            assert both[0] == pytest.approx(both[1], rel=1e-9, abs=1e-9), name


@examples(200)
@given(st.lists(plain_values, min_size=1, max_size=3), st.lists(st.sampled_from([2, 33, 700]), min_size=2), seeded)
def test_expressions_in_aggregates_are_added_as_they_are_computed(
    expressions: list[Any], rows: list[int], random: Random
) -> None:
    aggregates = {f"r{place}": random.choice(EXACT)(each) for place, each in enumerate(expressions)}
    batches = [as_batch(random_columns(each, LARGE, WILD, random)) for each in rows]
    made = {name: one for each in aggregates.values() for name, one in each.expressions.items()}
    named = {result: replace(each, expression=None) for result, each in aggregates.items()}
    mine = TypedGroups((), aggregates)
    assert outcome(mine, batches, mine.add) == first_computed([("with", list(made.items()))], named, batches)


def test_sums_means_and_variances_are_those_of_python() -> None:
    random = np.random.default_rng(5)
    batches = [
        Batch({"a": random.integers(-1000, 1000, rows), "x": random.normal(size=rows)}) for rows in (9, 5000, 600)
    ]
    aggregates = {"s": sum_(a * 3 - 1), "t": sum_(x * a), "m": mean(x + 1), "v": var(x * 2), "n": count()}
    groups = TypedGroups((), aggregates)
    for batch in batches:
        groups.add(batch)
    pairs = [(int(row[0]), float(row[1])) for batch in batches for row in batch.tuples()]
    (row,) = groups.results(0, 9)[0].rows()
    shifted, doubled = [v + 1 for _, v in pairs], [v * 2 for _, v in pairs]
    average = math.fsum(doubled) / len(doubled)
    assert row["s"] == sum(k * 3 - 1 for k, _ in pairs)
    assert row["n"] == len(pairs)
    assert row["t"] == pytest.approx(math.fsum(v * k for k, v in pairs), rel=1e-14)
    assert row["m"] == pytest.approx(math.fsum(shifted) / len(shifted), rel=1e-14)
    assert row["v"] == pytest.approx(math.fsum((v - average) ** 2 for v in doubled) / (len(pairs) - 1), rel=1e-12)


# -- which way values go -----------------------------------------------------------------------------------------------


def goes_straight(batches: list[Batch], outputs: dict[str, Any], where: Any, **aggregates: Aggregate) -> bool:
    """Whether the last batch is added as it is computed."""
    groups = TypedGroups((), aggregates)
    steps = [*([] if where is None else [("where", where)]), ("select", list(outputs.items()))]
    projected = ProjectedGroups(steps, (), aggregates)
    made: Batch | None = None
    for batch in batches:
        made = projected.add(batch, groups)
        if made is not None:
            groups.add(made)
    return made is None


def numbers(**columns: Any) -> list[Batch]:
    batch = Batch(columns)
    return [batch, batch]


def test_numbers_go_straight_with_and_without_a_filter() -> None:
    batches = numbers(a=[1, 2, 3], x=[0.5, 1.5, 2.5])
    assert goes_straight(batches, {"y": a * x}, None, s=sum_("y"), n=count())
    assert goes_straight(batches, {"y": a * x}, a > 1, s=sum_("y"), n=count())
    assert goes_straight(batches, {"y": x}, (a > 1) & (x < 9.0), s=sum_("y"))


def test_nulls_go_straight_where_a_mask_chooses_the_rows() -> None:
    assert goes_straight(numbers(a=[1, None, 3, 4]), {"y": a + 1}, None, s=sum_("y"))
    assert goes_straight(numbers(a=[1, None, 3, 4]), {"y": a + 1}, a > 1, s=sum_("y"))


def test_text_bools_distinct_values_and_expressions_of_others_go_the_usual_way() -> None:
    batches = numbers(a=[1, 2, 3], s=["u", "v", "w"], f=np.ones(3, np.float32))
    assert not goes_straight(batches, {"y": column("s")}, None, n=min_("y"))
    assert not goes_straight(batches, {"y": a > 1}, None, n=sum_("y"))
    assert not goes_straight(batches, {"y": column("f") * 2}, None, n=sum_("y"))
    assert totals_of({"y": a + 1}, True, ("k",), {"n": sum_("y")}) is None
    assert totals_of({"y": a + 1}, False, (), {"n": sum_("z")}) is None


def test_an_integer_that_leaves_its_type_undoes_the_blocks_before_it() -> None:
    batch = Batch({"a": np.concatenate([np.arange(5000), [1 << 62]])})
    outputs: dict[str, Expression] = {"y": (a * 4).fill_null(0)}
    aggregates = {"s": sum_("y"), "n": count()}
    groups = TypedGroups((), aggregates)
    groups.add(Batch({"y": [1, 2]}))
    totals = ComputedTotals(outputs, False, aggregates)
    assert not groups.add_computed(totals, batch)
    assert not groups.add_computed(totals, batch, Selection(a >= 0).in_register)
    assert groups.results(0, 9)[0].to_dict() == {"s": [3], "n": [2]}
    assert groups.add_computed(totals, batch, Selection(a < 5000).in_register)
    assert groups.results(0, 9)[0].to_dict() == {"s": [3 + 4 * sum(range(5000))], "n": [5002]}


def test_a_condition_that_leaves_its_type_adds_nothing() -> None:
    batch = Batch({"a": np.concatenate([np.arange(20_000), [1 << 62]])})
    groups = TypedGroups((), {"n": count()})
    groups.add(Batch({"a": [1]}))
    totals = ComputedTotals({}, True, {"n": count()})
    assert not groups.add_computed(totals, batch, Selection(a * 4 >= 0).in_register)
    assert groups.results(0, 9)[0].to_dict() == {"n": [1]}


def test_a_condition_that_no_row_fulfils_adds_nothing() -> None:
    batches = numbers(a=np.arange(1000))
    groups = TypedGroups((), {"s": sum_("a")})
    groups.add(batches[0])
    totals = ComputedTotals({}, True, {"s": sum_("a")})
    assert groups.add_computed(totals, batches[1], Selection(a < 0).in_register)
    assert groups.results(0, 9)[0].to_dict() == {"s": [499_500]}


def test_what_was_captured_before_stays_and_the_group_is_noted() -> None:
    groups = TypedGroups((), {"s": sum_(a * 2)})
    batches = numbers(a=np.arange(1000))
    groups.add(batches[0])
    groups.note_updates()
    copy = groups.captured()
    groups.add(batches[1])
    for _ in copy.copy_steps():
        pass
    assert copy.results(0, 9)[0].to_dict() == {"s": [999_000]}
    assert groups.results(0, 9)[0].to_dict() == {"s": [1_998_000]}
    updates = groups.take_updates()
    assert updates is not None
    assert updates.tolist() == [True]


def test_what_adds_them_goes_on_in_another_process() -> None:
    batches = numbers(a=[1, 2, 3], x=[0.5, 1.5, 2.5])
    steps = [("where", a > 1), ("select", [("y", a * x)])]
    aggregates = {"s": sum_("y")}
    groups = TypedGroups((), aggregates)
    projected = ProjectedGroups(steps, (), aggregates)
    made = projected.add(batches[0], groups)
    assert made is not None
    groups.add(made)
    assert projected.add(batches[1], groups) is None
    other = cloudpickle.loads(cloudpickle.dumps(projected))
    assert other.add(batches[1], groups) is None
    assert groups.results(0, 9)[0].to_dict() == {"s": [3 * 10.5]}


def test_types_that_change_from_batch_to_batch_give_what_they_give_in_any_order() -> None:
    ints, floats = Batch({"a": [1, 2, 3]}), Batch({"a": [0.5, 1.5]})
    for order in ([ints, floats, ints, floats], [floats, ints, ints, floats, floats]):
        groups = TypedGroups((), {"s": sum_(a * 2), "lo": min_(a + 1)})
        for batch in order:
            groups.add(batch)
        total = 2 * sum(sum(batch["a"].tolist()) for batch in order)
        assert groups.results(0, 9)[0].to_dict() == {"s": [total], "lo": [1.5]}


# -- what the table refuses --------------------------------------------------------------------------------------------

ROWS = np.arange(4)
ADD = bytes((ord("+"), ord("i"), 0, 0, 1, 0))


@pytest.mark.parametrize(
    ("keys", "registers", "chosen", "text"),
    [
        ("i", b"i\x01\xff", None, "without keys"),
        ("", b"i\x01", None, "without keys"),
        ("", b"i\x40\xff", None, "aggregate 0"),
        ("", b"f\x01\xff", None, "aggregate 0"),
        ("", b"b\x01\xff", None, "aggregate 0"),
        ("", b"i\x01\x00", None, "aggregate 0"),
        ("", b"i\x01\x50", None, "aggregate 0"),
        ("", b"i\x01\xff", np.ones(3, np.bool_), "a byte for each row"),
        ("", b"i\x01\xff", (ADD, (ROWS,), b"", 0), "register that chooses"),
        ("", b"i\x01\xff", (ADD, (ROWS,), b"", 64), "register that chooses"),
        ("", b"i\x01\xff", (ADD, (ROWS,), b"", -1), "register that chooses"),
        ("", b"i\x01\xff", (ADD, (ROWS[:3],), b"", 1), "columns are aligned"),
        ("", b"i\x01\xff", (ADD[:3] + b"\x40" + ADD[4:], (ROWS,), b"", 1), "instruction 0 is wrong"),
    ],
)
def test_registers_and_choices_that_do_not_fit_are_refused(keys: str, registers: bytes, chosen: Any, text: str) -> None:
    table = GroupTable(keys, [("sum", "i")])
    one = ("i", 8, 1, ROWS[:1].tobytes(), None, None)
    table.add([one] * len(keys), [one], 1)
    with pytest.raises(ValueError, match=text):
        table.add_computed(ADD, (ROWS,), b"", registers, 4, chosen)


def test_a_table_without_a_group_takes_no_computed_values() -> None:
    table = GroupTable("", [("sum", "i")])
    with pytest.raises(ValueError, match="one group"):
        table.add_computed(ADD, (ROWS,), b"", b"i\x01\xff", 4)
