"""Stages of columns: what they take, what they refuse, how they are planned, and streams of batches."""

from __future__ import annotations

from collections import Counter, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmjet
from shmjet import Batch, JetConfig, column, columns, sinks, sources
from shmjet.aggregate_ops import counting, max_by, summing
from shmjet.columns import count, sum_
from shmjet.core.windows import tumbling
from shmjet.data.errors import BatchError, PlanError
from shmjet.pipeline import BatchStage, Pipeline
from tests.pipeline.running import list_sink, run
from tests.pipeline.streams import results_of, stream_of

Pair = namedtuple("Pair", "k v")
ROWS = [(1, 2.5), (2, 3.5), (1, 4.0), (3, None)]
DICTS = [{"k": k, "v": v} for k, v in ROWS]
GIVEN: dict[str, list[Any]] = {
    "batches": [Batch.from_rows(DICTS[:2]), Batch.from_rows(DICTS[2:])],
    "dicts": DICTS,
    "named tuples": [Pair(*row) for row in ROWS],
    "both": [Batch.from_rows(DICTS[:2]), *DICTS[2:]],
}


def read(given: Any = GIVEN["batches"]) -> BatchStage[Any]:
    return Pipeline().read_from(sources.items(given))


def found(stage: BatchStage[Any], workers: int = 2) -> list[Any]:
    stage.write_to(list_sink("out"))
    return run(stage.pipeline, workers).get("out", [])


def rows(stage: BatchStage[Any]) -> Counter[Any]:
    return Counter(tuple(row.values()) for batch in found(stage) for row in batch.rows())


@pytest.mark.parametrize("name", GIVEN)
def test_batches_and_rows_of_any_source_go_into_stages_of_columns(name: str) -> None:
    given = GIVEN[name]
    assert rows(read(given).select("v", j=column("k") * 2)) == Counter([(v, 2 * k) for k, v in ROWS])
    assert rows(read(given).filter(column("v") > 3)) == Counter([(2, 3.5), (1, 4.0)])
    assert rows(read(given).group_by("k").agg(n=count(), t=sum_(column("v") * 2))) == Counter(
        [(1, 2, 13.0), (2, 1, 7.0), (3, 1, None)]
    )
    assert rows(read(given).distinct("k").select("k")) == Counter([(1,), (2,), (3,)])
    assert rows(read(given).top(2, "v")) == Counter([(1, 4.0), (2, 3.5)])
    left = read(given)
    right = left.pipeline.read_from(sources.items(given))
    assert rows(left.join(right.select("k", w="v"), "k", how="semi")) == Counter(ROWS)


@pytest.mark.parametrize("name", GIVEN)
def test_names_are_keys_of_items(name: str) -> None:
    given = GIVEN[name]
    assert Counter(found(read(given).grouping_key("k").aggregate(counting()))) == Counter([(1, 2), (2, 1), (3, 1)])
    pairs = read(given).filter(column("v") > 0).to_rows().grouping_key(["k"]).aggregate(summing("v"))
    assert Counter(found(pairs)) == Counter([(1, 6.5), (2, 3.5)])
    (best,) = found(read(given).filter(column("v") > 0).to_rows().aggregate(max_by("v")))
    assert best == {"k": 1, "v": 4.0}
    assert len(found(read(given).rebalance("k").partition_by("k").to_batches().to_rows())) == len(ROWS)


def test_names_mean_columns_and_functions_mean_items() -> None:
    assert [row["v"] for row in found(read().sort(lambda row: row["k"])) if row["k"] > 1] == [3.5, None]
    (batch,) = found(read().sort("k", "v", descending=[True, False]))
    assert batch.to_dict() == {"k": [3, 2, 1, 1], "v": [None, 3.5, 2.5, 4.0]}
    assert len(found(read().distinct(lambda row: row["k"]))) == 3
    assert len(found(read().filter(lambda row: row["k"] == 1))) == 2
    left = read()
    by_row = left.join(left, column("k"), column("k"), lambda one, other: (one["v"], other["v"]))
    assert len(found(by_row)) == 6


def test_functions_and_columns_follow_one_another() -> None:
    stage = read().filter(column("k") < 3).map(lambda row: {**row, "w": str(row["k"])}).with_columns(k=column("k") + 1)
    assert rows(stage.filter(lambda row: row["w"] == "1").select("w", "k")) == Counter({("1", 2): 2})


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "nothing selected": (lambda s: s.select(), BatchError, "expected at least one column"),
    "a name twice": (lambda s: s.select("a", a=column("b")), BatchError, "two columns would be called 'a'"),
    "no name": (lambda s: s.select(3), TypeError, "expected names of columns and expressions, got int"),
    "several": (lambda s: s.with_columns(x=columns("a", "b")), TypeError, "a key of several columns"),
    "no key": (lambda s: s.join(s, how="left"), TypeError, "key columns are missing"),
    "half a key": (lambda s: s.join(s, left_on="a"), TypeError, "both left_on= and right_on="),
    "both keys": (lambda s: s.join(s, "a", left_on="a", right_on="b"), TypeError, "either on= or left_on="),
    "unequal keys": (lambda s: s.join(s, left_on=["a", "b"], right_on="a"), BatchError, "left_on names 2 columns"),
    "how": (lambda s: s.join(s, "a", how="cross"), ValueError, "how must be one of 'inner'"),
    "suffix": (lambda s: s.join(s, "a", suffix=3), TypeError, "suffix must be a non-empty str"),
    "flags": (lambda s: s.sort("a", descending=[True, False]), BatchError, "2 flags for the columns"),
    "mixed sort": (lambda s: s.sort("a", len), TypeError, "expected the name of a column"),
    "flags of items": (lambda s: s.sort(len, descending=True), TypeError, "items have reverse="),
    "top": (lambda s: s.top(-1, "a"), ValueError, "a number of rows from 0 on"),
    "alone": (lambda s: s.union(), PlanError, "at least one stage next to"),
    "schema": (lambda s: s.to_batches({"a": "no type"}), BatchError, "no type"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_an_error_where_it_is_given(name: str) -> None:
    build, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        build(read())


FAILING: dict[str, tuple[Any, str]] = {
    "missing": (lambda s: s.select("nope"), "there is no column 'nope'"),
    "missing key": (lambda s: s.join(s.select("v"), "k"), "no column 'k'"),
    "both sides": (lambda s: s.join(s.select("k", "v"), "k"), "both sides of the join have a column 'v'"),
    "other names": (lambda s: s.union(s.select("k")), "has a column 'v', which input 1 has not"),
    "other types": (lambda s: s.union(s.select("k", v=column("k").cast(str))), "inputs do not go together"),
    "no bools": (lambda s: s.filter(column("k") + 1), "takes an expression of bools"),
}


@pytest.mark.parametrize("name", FAILING)
def test_columns_that_do_not_fit_fail_the_job(name: str) -> None:
    build, text = FAILING[name]
    with pytest.raises(BatchError, match=text):
        found(build(read()))


def test_items_that_are_no_rows_are_an_error() -> None:
    with pytest.raises(BatchError, match="rows that are not dicts"):
        found(read([1, 2]).select("a"))


@pytest.mark.parametrize("ask", ["sort", "distinct", "group_by", "top"])
def test_a_stream_is_cut_into_windows_first(ask: str) -> None:
    stream = Pipeline().read_from(stream_of([], columnar=True)).without_timestamps()
    with pytest.raises(PlanError, match="cut it with window"):
        getattr(stream, ask)("a")


def test_columns_of_a_stream_keep_its_time() -> None:
    batches = [
        Batch({"ts": np.arange(8) * 100 + 800 * number, "k": np.arange(8) % 2, "v": np.arange(8) * 0.5})
        for number in range(4)
    ]

    def build(stream: Any) -> Any:
        chosen = stream.filter(column("k") == 1).select("v", ts=column("k"))
        return chosen.union(chosen).window(tumbling(0.8)).group_by().agg(n=count(), total=sum_("v"))

    made = results_of(batches, build, column("ts"), columnar=True, lag=9)
    assert [(row["n"], row["total"]) for batch in made for row in batch.rows()] == [(8, 16.0)] * 4


def test_a_union_has_the_columns_in_the_order_of_its_first_input() -> None:
    pipeline = Pipeline()
    first = pipeline.read_from(sources.items([Batch({"a": [1], "b": ["x"]}), Batch({"b": ["y"], "a": [2]})]))
    frame = pipeline.read_from(sources.frames(Batch({"b": ["z"] * 9, "a": range(9)})))
    results: Any = sinks.collect()
    frame.filter(column("a") > 1).union(first, first.filter(column("a") > 5)).write_to(results)
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        jet.new_job(pipeline).run(60)
    assert {batch.names for batch in results} == {("b", "a")}


def test_a_plan_says_what_its_stages_do() -> None:
    left = read()
    right = left.pipeline.read_from(sources.items(GIVEN["batches"]))
    joined = left.filter(column("v") > 1).select("k", w=column("v") * 2).join(right, "k", how="left")
    joined.group_by("k").agg(n=count(), w=sum_("w")).sort("n", descending=True).write_to(sinks.noop())
    text = left.pipeline.explain()
    for line in (
        "where (column('v') > 1)",
        "select k, w=(column('v') * 2)",
        "2 stages of columns in one processor",
        "left join on k",
        "groups by k: n=count(), w=sum_('w')",
        "sort by n descending: each processor sorts its share",
    ):
        assert line in text


def test_a_result_without_rows_reaches_the_client_with_its_columns() -> None:
    with shmjet.new_instance(JetConfig(cores=2)) as jet, sinks.collect() as results:
        stage = read().filter(column("k") > 9)
        stage.join(stage.group_by("k").agg(n=count()), "k", how="outer").sort("k").write_to(results)
        jet.new_job(stage.pipeline).run(60)
        (batch,) = results
        assert batch.num_rows == 0
        assert {name: str(kind) for name, kind in batch.schema.items()} == {"k": "int64", "v": "float64", "n": "int64"}


def test_a_file_with_a_header_only_tells_its_columns(tmp_path: Path) -> None:
    (tmp_path / "nothing.csv").write_text("k,word\n")
    (tmp_path / "some.csv").write_text("k,size\n1,2\n")

    def stages(p: Pipeline, schema: Any) -> BatchStage[Any]:
        nothing = p.read_from(sources.csv(tmp_path / "nothing.csv", schema, as_=Batch))
        lengths = nothing.with_columns(length=column("word").str.len_chars()).filter(column("k") > 0)
        sums = lengths.group_by("k", "word").agg(total=sum_("length"), keys=sum_("k"))
        return p.read_from(sources.csv(tmp_path / "some.csv", as_=Batch)).join(sums, "k", how="left")

    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        for schema, kinds in (({"k": "int64", "word": "text"}, ("text", "int64")), (None, ("float64", "float64"))):
            results, p = sinks.collect(), Pipeline()
            stages(p, schema).write_to(results)
            jet.new_job(p).run(60)
            (batch,) = results
            assert batch.to_dict() == {"k": [1], "size": [2], "word": [None], "total": [None], "keys": [None]}
            word, keys = kinds
            expected = {"k": "int64", "size": "int64", "word": word, "total": "int64", "keys": keys}
            assert {name: str(kind) for name, kind in batch.schema.items()} == expected
