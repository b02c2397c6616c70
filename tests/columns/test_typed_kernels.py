"""Sorts and joins of decimals, instants and categories are those of the same values in Python."""

from __future__ import annotations

import datetime
import decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch
from shmjet.columns.join import HashJoin
from shmjet.columns.schemas import nulls
from shmjet.columns.sort import SortOrder, merge_sorted, sort_batch
from shmjet.data.column_types import DecimalType, ZonedType, type_of_word
from shmjet.data.decimals import stored_decimals
from shmjet.data.errors import BatchError
from shmjet.data.instants import stored_instants
from shmjet.data.text import Text
from shmjet.data.typed_column import TypedColumn
from tests.examples import examples

D = decimal.Decimal
TICK = datetime.timedelta(microseconds=1)
START = datetime.datetime(2024, 3, 31, 0, 59, 59, tzinfo=ZoneInfo("UTC"))
VALUES: dict[str, Any] = {
    "decimal(18, 2)": st.integers(-30, 30).map(lambda units: D(units).scaleb(-2)),
    "decimal(9, 1)": st.integers(-30, 30).map(lambda units: D(units).scaleb(-1)),
    "decimal(38, 3)": st.sampled_from([D("0.001"), D("-0.001"), D(2**70), -D(2**70), D("0.1"), D("1.5"), D(0)]),
    "timestamp[s, Europe/Berlin]": st.integers(-3, 3).map(lambda n: START + n * datetime.timedelta(seconds=1)),
    "timestamp[us, UTC]": st.integers(-2, 2).map(lambda n: START + n * TICK),
    "category": st.sampled_from(["", "a", "b", "ü", "z" * 40]),
}
FAMILIES = [
    ("decimal(18, 2)", "decimal(9, 1)", "decimal(38, 3)"),
    ("timestamp[s, Europe/Berlin]", "timestamp[us, UTC]"),
    ("category",),
]


def typed(word: str, values: list[Any]) -> Batch:
    """Return a batch with values, of which some are None, as the column k and their numbers as n."""
    kind = type_of_word(word)
    mask = np.array([value is not None for value in values], np.bool_)
    known = [value for value in values if value is not None]
    rows = np.cumsum(mask) - 1
    stored: Any
    if isinstance(kind, DecimalType):
        stored = stored_decimals(known, kind)
    elif isinstance(kind, ZonedType):
        stored = stored_instants(known, kind)
    else:
        stored = Text.of(["", *known])[1:]
    column = TypedColumn(kind, stored)
    if not mask.all():
        column = column.take(np.maximum(rows, 0)) if known else TypedColumn(kind, nulls(kind.stored, len(values)))
    return Batch({"k": column, "n": np.arange(len(values))}, {"k": mask})


@st.composite
def columns(draw: st.DrawFn, count: int = 2) -> list[Batch]:
    family = draw(st.sampled_from(FAMILIES))
    made = []
    for _ in range(count):
        kind = draw(st.sampled_from(family))
        values = draw(st.lists(st.none() | VALUES[kind], max_size=12))
        made.append(typed(kind, values))
    return made


@examples(100)
@given(columns(1), st.booleans(), st.booleans())
def test_rows_are_sorted_as_python_sorts(batches: list[Batch], descending: bool, nulls_first: bool) -> None:
    (batch,) = batches
    values = batch["k"].to_list()
    known = [at for at, value in enumerate(values) if value is not None]
    known.sort(key=lambda at: values[at])
    if descending:
        known.sort(key=lambda at: values[at], reverse=True)
    nulls = [at for at, value in enumerate(values) if value is None]
    found = sort_batch(batch, "k", descending=descending, nulls_first=nulls_first)
    assert found["n"].tolist() == (nulls + known if nulls_first else known + nulls)
    assert found.schema == batch.schema
    half = len(values) // 2
    order = SortOrder("k", descending, nulls_first)
    runs = [order.sort(part) for part in (batch[:half], batch[half:])]
    assert [row for part in merge_sorted(runs, order) for row in part["n"].tolist()] == found["n"].tolist()


@examples(150)
@given(columns(3), st.sampled_from(["inner", "left", "outer", "semi", "anti"]))
def test_rows_are_joined_as_python_compares(batches: list[Batch], how: str) -> None:
    *builds, probe = batches
    keys = [value for build in builds for value in build["k"].to_list()]
    builds = [
        Batch({"k": build["k"], "b": np.arange(build.num_rows) + at})
        for build, at in zip(builds, (0, builds[0].num_rows), strict=True)
    ]
    join = HashJoin(builds, on="k", notes_matches=how == "outer")
    found = [row for batch in getattr(join, how)(probe) for row in batch.rows()]
    found += [row for batch in (join.unmatched() if how == "outer" else ()) for row in batch.rows()]
    expected: list[tuple[Any, ...]] = []
    met = set()
    for row, value in enumerate(probe["k"].to_list()):
        matches = [at for at, other in enumerate(keys) if value is not None and other == value]
        met.update(matches)
        if how in ("semi", "anti"):
            expected += [(value, row)] if bool(matches) == (how == "semi") else []
        else:
            expected += [(value, row, at) for at in matches]
            expected += [(value, row, None)] if not matches and how != "inner" else []
    if how == "outer":
        expected += [(value, None, at) for at, value in enumerate(keys) if at not in met]
    assert [tuple(row.values()) for row in found] == expected


def test_nested_columns_are_carried_and_joined_by_and_have_no_order() -> None:
    build = Batch({"k": [1, 2], "tags": [["a"], []]})
    (found,) = HashJoin(build, on="k").left(Batch({"k": [2, 3, 1]}))
    assert found.to_dict() == {"k": [2, 3, 1], "tags": [[], None, ["a"]]}
    (found,) = HashJoin(build, on="tags").inner(Batch({"tags": [["b"], [], ["a"]], "v": [1, 2, 3]}))
    assert found.to_dict() == {"tags": [[], ["a"]], "v": [2, 3], "k": [2, 1]}
    with pytest.raises(BatchError, match="no order"):
        sort_batch(build, "tags")
    assert sort_batch(build, "k", descending=True)["tags"].to_list() == [[], ["a"]]
