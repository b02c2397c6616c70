"""Random pipelines of stages of batches over adversarial batches, against a plain interpreter, on 1, 2 and 4 workers.

All stages here take and give the columns `k` (integers), `f` (floats) and `s` (text), so that any can follow any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column, sources, when
from shmjet.columns import count, max_, min_, sum_
from shmjet.pipeline import BatchStage, Pipeline
from tests.examples import examples
from tests.pipeline.running import list_sink, run
from tests.tables import interpreter as plain
from tests.tables.interpreter import Rows

NAMES = ("k", "f", "s")
Stage = BatchStage[Any]


class Step(NamedTuple):
    """A stage, and what it makes of rows; `other` are those of the second input."""

    build: Callable[[Stage, Stage], Stage]
    rows: Callable[[Rows, Rows], Rows]
    is_sorted: bool = False


def _null(fn: Callable[..., Any], *names: str) -> Callable[[plain.Row], Any]:
    """A function of values that is null where one of them is."""
    return lambda row: None if any(row[name] is None for name in names) else fn(*(row[name] for name in names))


_DOWN = [True, False, True]

STEPS: dict[str, Step] = {
    "select": Step(
        lambda a, _: a.select("s", f=column("f") * 2, k=column("k") + 1),
        lambda rows, _: plain.project(
            rows, False, s=lambda row: row["s"], f=_null(lambda f: f * 2, "f"), k=_null(lambda k: k + 1, "k")
        ),
    ),
    "with_columns": Step(
        lambda a, _: a.with_columns(f=column("k") * 0.5, k=when(column("f") > 0).then(1).otherwise(column("k"))),
        lambda rows, _: plain.project(
            rows,
            True,
            f=_null(lambda k: k * 0.5, "k"),
            k=lambda row: 1 if row["f"] is not None and row["f"] > 0 else row["k"],
        ),
    ),
    "filter": Step(
        lambda a, _: a.filter((column("f") <= 0) | (column("s") == "a")),
        lambda rows, _: plain.where(rows, lambda row: (row["f"] is not None and row["f"] <= 0) or row["s"] == "a"),
    ),
    "filter_most": Step(
        lambda a, _: a.filter(column("k") > 4),
        lambda rows, _: plain.where(rows, lambda row: row["k"] is not None and row["k"] > 4),
    ),
    "filter_all": Step(lambda a, _: a.filter(column("k") > 99), lambda rows, _: []),
    "group_by_k": Step(
        lambda a, _: a.group_by("k").agg(f=sum_("f"), s=max_("s")),
        lambda rows, _: plain.group(rows, ["k"], f=plain.total("f"), s=plain.greatest("s")),
    ),
    "group_by_f": Step(
        lambda a, _: a.group_by("f").agg(k=count(), s=min_("s")),
        lambda rows, _: plain.group(rows, ["f"], k=len, s=plain.least("s")),
    ),
    "group_by_both": Step(
        lambda a, _: a.group_by("s", "k").agg(f=max_("f")),
        lambda rows, _: plain.group(rows, ["s", "k"], f=plain.greatest("f")),
    ),
    "sort": Step(
        lambda a, _: a.sort("k", "f", "s", descending=_DOWN),
        lambda rows, _: plain.sort(rows, ["k", "f", "s"], _DOWN),
        True,
    ),
    "sort_nulls_first": Step(
        lambda a, _: a.sort("f", "s", "k", nulls_first=True),
        lambda rows, _: plain.sort(rows, ["f", "s", "k"], [False] * 3, True),
        True,
    ),
    "top": Step(
        lambda a, _: a.top(3, ["f", "k", "s"]),
        lambda rows, _: plain.sort(rows, ["f", "k", "s"], [True] * 3)[:3],
        True,
    ),
    "distinct": Step(lambda a, _: a.distinct(), lambda rows, _: plain.distinct(rows, NAMES)),
    "union": Step(lambda a, b: a.union(b.select("s", "f", "k")), lambda rows, other: rows + other),
    "rows": Step(
        lambda a, _: a.to_rows().map(dict).to_batches({"k": float, "f": float, "s": str}), lambda rows, _: rows
    ),
}
STEPS["distinct_f"] = Step(
    lambda a, _: a.distinct("f").select("f", k=when(column("f") > 0).then(2).otherwise(3)).with_columns(s=_text()),
    lambda rows, _: plain.project(
        plain.distinct(rows, ["f"]),
        False,
        f=lambda row: row["f"],
        k=lambda row: 2 if row["f"] is not None and row["f"] > 0 else 3,
        s=lambda row: "z" if row["f"] is None else "y",
    ),
)


def _text() -> Any:
    return when(column("f").is_null()).then("z").otherwise("y")


def _joined(how: str, key: str) -> Step:
    other = "s" if key != "s" else "k"

    def build(a: Stage, b: Stage) -> Stage:
        if how in ("semi", "anti"):
            return a.join(b, key, how=how)
        joined = a.join(b.select(key, "f", x=column(other)), key, how=how, suffix="_r")
        return joined.select(key, f="f_r", **{other: column("x")}).select("k", "f", "s")

    def rows(left: Rows, right: Rows) -> Rows:
        if how in ("semi", "anti"):
            return plain.join(left, right, [(key, key)], how, NAMES, NAMES)
        renamed = [{key: row[key], "f": row["f"], "x": row[other]} for row in right]
        found = plain.join(left, renamed, [(key, key)], how, NAMES, (key, "f", "x"), "_r")
        return [{key: row[key], "f": row["f_r"], other: row["x"]} for row in found]

    return Step(build, rows)


for _how in ("inner", "left", "right", "outer", "semi", "anti"):
    STEPS[f"join_{_how}"] = _joined(_how, "k")
STEPS["join_s"] = _joined("outer", "s")

K = st.one_of(st.none(), st.integers(0, 6))
F = st.one_of(st.none(), st.sampled_from([math.nan, -0.0, 0.0, 0.5, -1.5, 3.0]))
S = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ä\0", "a" * 40]))


@st.composite
def tables(draw: st.DrawFn) -> list[Batch]:
    """Batches of the same names, cut anywhere, of dtypes that differ."""
    few = draw(st.booleans())
    rows = draw(st.lists(st.tuples(st.just(2) if few else K, F, S), max_size=14))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    batches = []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        piece = rows[start:end]
        ints, floats = draw(st.sampled_from([np.int8, np.int64, np.uint16])), draw(st.sampled_from([np.float32, float]))
        columns: dict[str, Any] = {}
        validity = {}
        for place, (name, dtype) in enumerate([("k", ints), ("f", floats)]):
            values = [row[place] for row in piece]
            columns[name] = np.array([0 if value is None else value for value in values], dtype)
            validity[name] = np.array([value is not None for value in values], bool)
        columns["s"] = [row[2] for row in piece]
        if not any(value is not None for value in columns["s"]):
            del columns["s"]
            columns["s"] = Batch({"s": ["x", None]}).take(np.ones(len(piece), int))["s"] if piece else _NO_TEXT
        batches.append(Batch(columns, validity))
    return batches


_NO_TEXT = Batch({"s": ["x"]})[:0]["s"]


def rows_of(batches: list[Batch]) -> Rows:
    return [row for batch in batches for row in batch.rows()]


def comparable(rows: Rows) -> list[tuple[Any, ...]]:
    return [tuple(plain.plain(row[name]) for name in NAMES) for row in rows]


@st.composite
def programs(draw: st.DrawFn) -> list[str]:
    return draw(st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4))


def built(names: list[str], left: list[Batch], right: list[Batch], is_small: bool = True) -> Pipeline:
    pipeline = Pipeline()
    stage: Stage = pipeline.read_from(sources.items(left))
    source = sources.items(right)
    other: Stage = pipeline.read_from(source if is_small else replace(source, nbytes=None))
    for name in names:
        stage = STEPS[name].build(stage, other)
    stage.write_to(list_sink("out"))
    if not any(other.node_id in node.upstream for node in pipeline.nodes):
        other.write_to(list_sink("other"))
    return pipeline


def expected(names: list[str], left: Rows, right: Rows) -> Rows:
    for name in names:
        left = STEPS[name].rows(left, right)
    return left


@examples(60)
@given(programs(), tables(), tables(), st.sampled_from([1, 2, 4]), st.booleans())
def test_pipelines_of_columns_do_what_a_plain_interpreter_does(
    names: list[str], left: list[Batch], right: list[Batch], workers: int, is_small: bool
) -> None:
    lists = run(built(names, left, right, is_small), workers)
    results = lists.get("out", [])
    assert all(isinstance(result, Batch) for result in results)
    found, wanted = comparable(rows_of(results)), comparable(expected(names, rows_of(left), rows_of(right)))
    if STEPS[names[-1]].is_sorted:
        assert found == wanted
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert results, "a result without rows has its columns"
    assert all(set(result.names) == set(NAMES) for result in results)


@examples(30)
@given(programs(), tables(), tables(), st.sampled_from([1, 2]))
def test_first_stages_that_pass_rows_on_change_no_result(
    names: list[str], left: list[Batch], right: list[Batch], workers: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for place in ("group_by", "distinct_rows"):
            patch.setattr(f"shmjet.processors.columns.{place}.MEASURED_ROWS", 1)
        results = run(built(names, left, right), workers).get("out", [])
    found, wanted = comparable(rows_of(results)), comparable(expected(names, rows_of(left), rows_of(right)))
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert all(set(result.names) == set(NAMES) for result in results)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("workers", [1, 4])
def test_every_stage_keeps_the_schema_of_a_result_without_rows(name: str, workers: int) -> None:
    rows = Batch({"k": np.array([1], np.int64), "f": np.array([0.5]), "s": ["a"]})
    schemas = {}
    for what, given_rows in (("rows", rows), ("none", rows[:0])):
        results = run(built([name], [given_rows], [rows]), workers)["out"]
        schemas[what] = {tuple(sorted((n, str(k)) for n, k in result.schema.items())) for result in results}
    if name not in ("filter_all", "filter_most"):
        assert schemas["none"] == schemas["rows"]
    assert len(schemas["none"]) == 1
