"""Stages of columns with odd input: nothing, one key, odd names, wrong arguments, other sources."""

from __future__ import annotations

import datetime
import functools
import operator
from collections import namedtuple
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, BatchError, JobFailedError, PlanError, Text, column, literal, sources, when
from shmjet.columns import count, custom, first, list_, max_, mean, median, min_, n_unique, quantile, std, sum_
from shmjet.pipeline import Pipeline
from tests.pipeline.running import results_of

WORKERS = pytest.mark.parametrize("workers", [1, 2, 4])
Build = Callable[[Any], Any]


def rows_of(items: list[Any], build: Build, workers: int = 2) -> list[tuple[Any, ...]]:
    """Return the rows that stages make of items."""
    found = results_of(lambda p: build(p.read_from(sources.items(items))), workers)
    assert all(isinstance(item, Batch) for item in found), found
    return [row for batch in found for row in batch.tuples()]


def failure(items: list[Any], build: Build, workers: int = 2) -> str:
    """Return the text of the error that stages give."""
    with pytest.raises((BatchError, PlanError, TypeError, ValueError, JobFailedError)) as caught:
        rows_of(items, build, workers)
    error = caught.value
    return str(error.cause if isinstance(error, JobFailedError) else error)


ORDERS = Batch({"id": [1, 2, 3, 4], "who": ["ann", "bo", None, "ann"], "paid": [1.5, None, float("nan"), 2.0]})
PEOPLE = Batch({"who": ["ann", "cy", None], "age": [30, None, 50]})

STAGES: dict[str, Build] = {
    "select": lambda s: s.select("who", twice=column("paid") * 2),
    "with_columns": lambda s: s.with_columns(more=column("id") + 1),
    "filter": lambda s: s.filter(column("id") > 0),
    "group_by": lambda s: s.group_by("who").agg(n=count(), total=sum_("paid")),
    "group_by all": lambda s: s.group_by().agg(n=count(), total=sum_("paid")),
    "sort": lambda s: s.sort("who", "id"),
    "distinct": lambda s: s.distinct(),
    "distinct by name": lambda s: s.distinct("who"),
    "top": lambda s: s.top(2, "id"),
    "union": lambda s: s.union(s),
    "join": lambda s: s.join(s.select("id", other=column("paid")), on="id"),
}


# -- little ------------------------------------------------------------------------------------------------------------


@WORKERS
@pytest.mark.parametrize("stage", STAGES)
def test_no_rows_stay_no_rows(stage: str, workers: int) -> None:
    assert rows_of([ORDERS[:0]], STAGES[stage], workers) == []
    assert rows_of([], STAGES[stage], workers) == []


@pytest.mark.parametrize("stage", STAGES)
def test_what_drops_everything_before_a_stage_leaves_it_nothing(stage: str) -> None:
    assert rows_of([ORDERS, ORDERS], lambda s: STAGES[stage](s.filter(column("id") > 99))) == []


@pytest.mark.parametrize("stage", STAGES)
def test_one_row_at_a_time_is_as_good_as_all_at_once(stage: str) -> None:
    if stage in ("top", "distinct by name"):
        pytest.skip("which rows come out is not said")
    whole = rows_of([ORDERS], STAGES[stage])
    assert sorted(map(repr, rows_of([ORDERS[i : i + 1] for i in range(4)], STAGES[stage], 4))) == sorted(
        map(repr, whole)
    )


@WORKERS
def test_columns_of_nulls_alone_go_through_every_stage(workers: int) -> None:
    nothing = Batch({"k": [None, None], "v": [None, None]}, schema={"k": str, "v": int})
    assert rows_of([nothing], lambda s: s.filter(column("v") <= 0), workers) == []
    assert rows_of([nothing], lambda s: s.filter(column("v").is_null()), workers) == [(None, None)] * 2
    assert rows_of([nothing], lambda s: s.group_by("k").agg(n=count("v"), t=sum_("v"), m=mean("v")), workers) == [
        (None, 0, None, None)
    ]
    assert rows_of([nothing], lambda s: s.join(s.select("k", w=column("v")), on="k"), workers) == []
    assert len(rows_of([nothing], lambda s: s.join(s.select("k", w=column("v")), on="k", how="outer"), workers)) == 4
    assert rows_of([nothing], lambda s: s.sort("v", "k"), workers) == [(None, None)] * 2
    assert rows_of([nothing], lambda s: s.distinct(), workers) == [(None, None)]
    assert rows_of([nothing], lambda s: s.top(1, "v"), workers) == [(None, None)]


# -- much --------------------------------------------------------------------------------------------------------------


@WORKERS
def test_one_key_for_all_rows(workers: int) -> None:
    same = [Batch({"k": np.full(500, 7), "v": np.arange(at, at + 500)}) for at in range(0, 5000, 500)]
    grouped = rows_of(same, lambda s: s.group_by("k").agg(n=count(), t=sum_("v"), u=n_unique("v")), workers)
    assert grouped == [(7, 5000, 4999 * 2500, 5000)]
    one = Batch({"k": [7], "w": ["x"]})

    def joined(stage: Any) -> Any:
        return stage.join(stage.distinct("k").select("k", w=column("k")), on="k").group_by().agg(n=count(), m=max_("v"))

    assert rows_of(same, joined, workers) == [(5000, 4999)]
    assert rows_of([*same], lambda s: s.distinct("k").select("k"), workers) == [(7,)]
    assert one.num_rows == 1


def test_a_thousand_columns() -> None:
    wide = Batch({f"c{i}": np.arange(3) + i for i in range(1000)})
    changed = rows_of([wide], lambda s: s.with_columns(**{f"c{i}": column(f"c{i}") * 2 for i in range(1000)}))
    assert changed == [tuple((row + i) * 2 for i in range(1000)) for row in range(3)]
    grouped = rows_of([wide], lambda s: s.group_by("c0").agg(**{f"s{i}": sum_(f"c{i}") for i in range(1, 1000)}))
    assert sorted(grouped) == [tuple(row + i for i in range(1000)) for row in range(3)]
    assert len(rows_of([wide], lambda s: s.distinct())) == 3
    assert rows_of([wide], lambda s: s.sort("c999", descending=True))[0][0] == 2


def test_large_texts() -> None:
    texts = ["x" * 1_000_000 + str(i) for i in range(4)]
    batches = [Batch({"t": texts, "n": [1, 2, 3, 4]})] * 2
    assert rows_of(batches, lambda s: s.group_by("t").agg(n=sum_("n")).sort("n")) == [
        (text, 2 * (at + 1)) for at, text in enumerate(texts)
    ]
    assert (
        rows_of(batches, lambda s: s.filter(column("t").str.ends_with("3")).select(n=column("t").str.len_chars()))
        == [(1_000_001,)] * 2
    )


@WORKERS
def test_zeros_in_lists_and_structs_are_one_zero(workers: int) -> None:
    kinds = {"l": "list<float64>", "m": "list<float64>", "t": "struct<a: float64, s: text>"}
    lists = [[0.0], [-0.0], [0.0, None], [float("nan")], None, []]
    structs = [{"a": -0.0, "s": "x"}, {"a": 0.0, "s": "x"}, {"a": None, "s": "x"}, None, {"a": 0.0, "s": ""}, None]
    whole = Batch({"l": lists, "m": [[-0.0], *lists[1:]], "t": structs, "k": [1] * 6}, schema=kinds)
    some = [whole[row : row + 1] for row in range(6)]
    assert rows_of(some, lambda s: s.filter(column("l") == column("m")).select("k"), workers) == [(1,)] * 5
    for name, sizes in (("l", [1, 1, 1, 1, 2]), ("t", [1, 1, 2, 2])):
        grouped = rows_of(some, lambda s, name=name: s.group_by(name).agg(n=count()), workers)  # type: ignore[misc]
        assert sorted(row[1] for row in grouped) == sizes
        assert len(rows_of(some, lambda s, name=name: s.select(name).distinct(), workers)) == len(sizes)  # type: ignore[misc]
        unique = rows_of(some, lambda s, name=name: s.group_by("k").agg(n=n_unique(name)), workers)  # type: ignore[misc]
        assert unique == [(1, len(sizes) - 1)]
    assert whole.select("l") == Batch({"l": [[-0.0], *lists[1:]]}, schema={"l": kinds["l"]})
    assert str(whole["l"].to_list()[1]) == "[-0.0]"  # each keeps its own


# -- names -------------------------------------------------------------------------------------------------------------

ODD_NAMES = ["a b", "é", "x.y", "'", '"', "select", "1", "__key", "日本", "a\nb", "n"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_are_names(name: str) -> None:
    batch = Batch({name: [2, 1, 2], "other": [1, 2, 3]})
    assert rows_of([batch], lambda s: s.select(name)) == [(2,), (1,), (2,)]
    assert rows_of([batch], lambda s: s.filter(column(name) == 1)) == [(1, 2)]
    assert rows_of([batch], lambda s: s.with_columns(**{name: column(name) * 10}).sort(name, "other")) == [
        (10, 2),
        (20, 1),
        (20, 3),
    ]
    assert sorted(rows_of([batch], lambda s: s.group_by(name).agg(**{"t!": sum_("other")}))) == [(1, 2), (2, 4)]
    assert sorted(rows_of([batch], lambda s: s.distinct(name).select(name))) == [(1,), (2,)]
    joined = rows_of([batch], lambda s: s.join(s.group_by(name).agg(most=max_("other")), on=name).sort("other"))
    assert joined == [(2, 1, 3), (1, 2, 2), (2, 3, 3)]


def test_values_for_all_rows() -> None:
    made = rows_of([ORDERS], lambda s: s.select(a=literal("x"), b=5, c=literal(None).cast("int8")))
    assert made == [("x", 5, None)] * 4
    assert rows_of([ORDERS[:0]], lambda s: s.select(a=literal("x"))) == []
    assert rows_of([ORDERS[:1]], lambda s: s.with_columns(paid=literal("paid"))) == [(1, "ann", "paid")]
    named = {"self": column("id"), "columns": column("id")}  # what the methods themselves call their arguments
    assert rows_of([ORDERS[:1]], lambda s: s.select(**named).with_columns(self=2)) == [(2, 1)]
    assert rows_of([ORDERS[:1]], lambda s: s.group_by("who").agg(self=count(), keys=count())) == [("ann", 1, 1)]


# -- mistakes ----------------------------------------------------------------------------------------------------------

MISTAKES: dict[str, tuple[Build, list[str]]] = {
    "select of an unknown name": (lambda s: s.select("wo"), ["wo", "who"]),
    "expression of an unknown name": (lambda s: s.filter(column("wo") == "ann"), ["wo", "who"]),
    "group by an unknown name": (lambda s: s.group_by("wo").agg(n=count()), ["wo"]),
    "aggregate of an unknown name": (lambda s: s.group_by("who").agg(n=sum_("payd")), ["payd"]),
    "sort by an unknown name": (lambda s: s.sort("wo"), ["wo"]),
    "distinct by an unknown name": (lambda s: s.distinct("wo"), ["wo"]),
    "top by an unknown name": (lambda s: s.top(3, "wo"), ["wo"]),
    "join by an unknown name": (lambda s: s.join(s, on="wo"), ["wo"]),
    "text plus number": (lambda s: s.with_columns(x=column("who") + 1), ["who"]),
    "sum of text": (lambda s: s.group_by().agg(n=sum_("who")), ["who"]),
    "text function of a number": (lambda s: s.filter(column("id").str.contains("1")), ["id"]),
    "date function of text": (lambda s: s.select(x=column("who").dt.year()), ["who"]),
    "a filter that is not a condition": (lambda s: s.filter(column("id") + 1), ["bool"]),
    "same names on both sides of a join": (lambda s: s.join(s, on="id"), ["who", "suffix"]),
    "union of different columns": (lambda s: s.union(s.select("id")), ["who"]),
    "a cast that does not fit": (lambda s: s.select(x=(column("id") * 100).cast("int8")), ["int8"]),
    "a sum over the limit": (lambda s: s.with_columns(x=column("id") + (2**63 - 1)), ["id"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_with_the_name_that_is_wrong(mistake: str) -> None:
    build, words = MISTAKES[mistake]
    text = failure([ORDERS], build)
    for word in words:
        assert word in text, text


ADVICE: dict[str, tuple[Build, str]] = {
    "a name that is nearly right": (lambda s: s.select("Who"), r"there are \[.*\]; did you mean 'who'\?"),
    "a filter in words": (lambda s: s.filter("id > 1"), r"an expression of bools such as column\('price'\) > 0"),
    "a function in select": (lambda s: s.select(x=lambda row: 1), "functions go into map"),
    "an aggregate in select": (lambda s: s.select(x=sum_("id")), r"aggregates go into group_by\(...\).agg"),
    "when without then": (lambda s: s.select(x=when(column("id") > 1)), r"when\(...\).then"),
    "values in with_columns": (lambda s: s.with_columns(x=[1, 2]), "part of the source"),
    "an expression in agg": (lambda s: s.group_by("who").agg(x=column("id")), r"sum_\(expression\)"),
    "agg without names": (lambda s: s.group_by("who").agg(sum_("id")), "results need names"),
    "arithmetic of aggregates": (lambda s: s.group_by("who").agg(x=sum_("id") / count()), "with_columns"),
    "groups without agg": (lambda s: s.group_by("who").count(), r"group_by\('who'\) needs .agg"),
    "a method of polars": (lambda s: s.head(3), "top"),
    "a method of Spark": (lambda s: s.withColumn("x", 1), "with_columns"),
    "a method of an expression": (lambda s: s.select(x=column("id").sum()), r"sum_\(\) of shmjet.columns"),
    "a function of text": (lambda s: s.filter(column("who").contains("a")), "it is .str.contains"),
    "another name of it": (lambda s: s.filter(column("who").str.startswith("a")), "did you mean 'starts_with'"),
    "a name for a result": (lambda s: s.select(column("id").alias("x")), "name=expression"),
    "a result of with_columns without a name": (lambda s: s.with_columns(column("id") + 1), "with_columns.name=expr"),
    "a function of dates without parentheses": (lambda s: s.select(x=column("id").dt.year), r"parentheses: year\(\)"),
    "a type of polars": (lambda s: s.select(x=column("id").cast("Int32")), "did you mean 'int32'"),
    "a sum of spans": (
        lambda s: s.with_columns(t=literal(datetime.timedelta(1))).group_by().agg(x=sum_("t")),
        r"timedelta\(seconds=1\)",
    ),
    "a range": (lambda s: s.filter(column("id").is_between(1, 2)), "low <= x"),
    "a table to join": (lambda s: s.join(PEOPLE, on="who"), r"read_from\(sources.frames\(table\)\)"),
    "a branch of another type": (
        lambda s: s.select(x=when(column("id") > 1).then("a").otherwise(1)),
        r"then\('a'\).otherwise\(1\): str and int",
    ),
}


@pytest.mark.parametrize("mistake", ADVICE)
def test_mistakes_of_users_of_other_libraries_are_told_what_to_do(mistake: str) -> None:
    build, text = ADVICE[mistake]
    with pytest.raises((TypeError, AttributeError, JobFailedError, BatchError), match=text):
        rows_of([ORDERS], build)


WRONG_CALLS: dict[str, tuple[Build, type[Exception] | tuple[type[Exception], ...], str]] = {
    "and": (lambda s: s.filter((column("id") > 1) and (column("id") < 3)), TypeError, "&"),
    "or": (lambda s: s.filter(column("id") > 1 or column("id") < 3), TypeError, r"\|"),
    "not": (lambda s: s.filter(not (column("id") > 1)), TypeError, "~"),
    "a chain of comparisons": (lambda s: s.filter(1 < column("id") < 3), TypeError, "&"),
    "in": (lambda s: s.filter(column("id") in [1, 2]), TypeError, "is_in"),
    "how": (lambda s: s.join(s, on="id", how="full"), (ValueError, PlanError), "outer"),
    "join without keys": (lambda s: s.join(s), (TypeError, PlanError, ValueError), "on"),
    "one side's keys": (lambda s: s.join(s, left_on="id"), (TypeError, PlanError, ValueError), "right_on"),
    "keys of different number": (
        lambda s: s.join(s, left_on=["id", "who"], right_on="id"),
        (TypeError, PlanError, ValueError, BatchError),
        "2",
    ),
    "top without number": (lambda s: s.top("id", 3), (TypeError, ValueError), "number of rows"),
    "a negative number": (lambda s: s.top(-1, "id"), ValueError, "-1"),
    "an aggregate that is none": (lambda s: s.group_by("who").agg(n=sum), TypeError, "sum_"),
    "an expression that is none": (lambda s: s.group_by("who").agg(n=column("id")), TypeError, "aggregate"),
    "nothing to select": (lambda s: s.select(), (ValueError, TypeError, BatchError), "select"),
    "a number for a name": (lambda s: s.select(3), TypeError, "3"),
    "descending of another length": (
        lambda s: s.sort("id", descending=[True, False]),
        (ValueError, TypeError, BatchError),
        "descending",
    ),
    "quantile over 1": (lambda s: s.group_by().agg(q=quantile("id", 50)), ValueError, "50"),
    "look-around": (lambda s: s.filter(column("who").str.contains("(?=a)")), BatchError, "look"),
    "is_in of a text": (lambda s: s.filter(column("who").is_in("ann")), TypeError, "list"),
    "a join with another pipeline": (
        lambda s: s.join(Pipeline().read_from(sources.items([ORDERS])), on="id"),
        PlanError,
        "pipeline",
    ),
    "a union with a batch": (lambda s: s.union(ORDERS), TypeError, "stage"),
    "a lambda for select": (lambda s: s.select(lambda row: row), TypeError, "select"),
}


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_a_wrong_call_fails_where_it_is_written(call: str) -> None:
    build, kind, words = WRONG_CALLS[call]
    stage = Pipeline().read_from(sources.items([ORDERS]))
    with pytest.raises(kind, match=words):
        build(stage)


# -- types that change -------------------------------------------------------------------------------------------------


@WORKERS
def test_types_that_differ_from_batch_to_batch_go_together(workers: int) -> None:
    mixed = [
        Batch({"k": np.array([1, 2], "int8"), "v": np.array([1, 2], "int32")}),
        Batch({"k": np.array([2, 3], "int64"), "v": [0.5, None]}),
        Batch({"k": [None, 1], "v": [None, None]}),
    ]
    grouped = rows_of(mixed, lambda s: s.group_by("k").agg(t=sum_("v"), n=count("v")).sort("k"), workers)
    assert grouped == [(1, 1.0, 1), (2, 2.5, 2), (3, None, 0), (None, None, 0)]
    assert sorted(rows_of(mixed, lambda s: s.distinct("k").select("k"), workers), key=repr) == [
        (1,),
        (2,),
        (3,),
        (None,),
    ]
    assert [k for k, _ in rows_of(mixed, lambda s: s.sort("k"), workers)] == [1, 1, 2, 2, 3, None]
    assert rows_of(mixed, lambda s: s.filter(column("v") > 0.75).sort("k"), workers) == [(1, 1), (2, 2)]


@WORKERS
def test_text_among_numbers_is_an_error_and_no_guess(workers: int) -> None:
    mixed = [Batch({"k": [1]}), Batch({"k": ["1"]})]
    for build in (lambda s: s.group_by("k").agg(n=count()), lambda s: s.sort("k"), lambda s: s.distinct("k")):
        assert "k" in failure(mixed, build, workers)


# -- sources -----------------------------------------------------------------------------------------------------------

Named = namedtuple("Named", ["k", "v"])


def test_rows_of_dicts_and_named_tuples_become_batches() -> None:
    dicts = [{"k": "a", "v": 1}, {"k": "b", "v": None}, {"k": "a", "v": 3}]
    for rows in (dicts, [Named(**row) for row in dicts]):
        found = rows_of(rows, lambda s: s.to_batches().group_by("k").agg(t=sum_("v")).sort("k"))
        assert found == [("a", 4), ("b", None)]
    again = results_of(lambda p: p.read_from(sources.items(dicts)).to_batches().to_rows())
    assert sorted(again, key=str) == sorted(dicts, key=str)


def test_a_schema_says_what_rows_alone_do_not() -> None:
    rows = [{"k": None, "v": None}]
    build = lambda p: p.read_from(sources.items(rows)).to_batches(schema={"k": str, "v": float})  # noqa: E731
    batch = Batch.concat(results_of(build))
    assert str(batch.schema["k"]) == "text"
    assert batch.schema["v"] == np.float64


def test_items_that_are_no_batches_say_what_to_do() -> None:
    for items in ([1, 2], ["a"], [(1, 2)]):
        text = failure(items, lambda s: s.select("k"))
        assert "to_batches" in text, text


def test_dicts_go_into_stages_of_columns_as_they_are() -> None:
    assert rows_of([{"k": 1}], lambda s: s.select("k")) == [(1,)]


# -- aggregates --------------------------------------------------------------------------------------------------------


@WORKERS
def test_aggregates_of_awkward_values(workers: int) -> None:
    nan = float("nan")
    batches = [
        Batch({"k": [1, 1, 2], "v": [1.0, nan, None], "s": ["b", None, "a"]}),
        Batch({"k": [1, 3, 3], "v": [2.0, -0.0, 0.0], "s": ["b", "c", "d"]}),
    ]
    found = rows_of(
        batches,
        lambda s: (
            s.group_by("k")
            .agg(most=max_("v"), least=min_("v"), n=n_unique("v"), s=n_unique("s"), mid=median("v"), one=std("v"))
            .sort("k")
        ),
        workers,
    )
    assert [tuple("nan" if v != v else v for v in row) for row in found] == [
        (1, "nan", 1.0, 3, 1, 2.0, "nan"),
        (2, None, None, 0, 1, None, None),
        (3, 0.0, 0.0, 1, 2, 0.0, 0.0),
    ]


def test_lists_keep_nulls_and_custom_functions_get_the_rows_of_a_group() -> None:
    batch = Batch({"k": [1, 2, 1], "v": [3, None, None]})
    found = rows_of([batch], lambda s: s.group_by("k").agg(all=list_("v"), first=first("v")).sort("k"), 1)
    assert found == [(1, [3, None], 3), (2, [None], None)]
    rows = rows_of([batch], lambda s: s.group_by("k").agg(n=custom(lambda rows: rows.num_rows * 10)).sort("k"))
    assert rows == [(1, 20), (2, 10)]


# -- types of columns --------------------------------------------------------------------------------------------------


@WORKERS
def test_decimals_through_every_stage(workers: int) -> None:
    money = [Decimal("1.10"), None, Decimal("-2.25"), Decimal("1.1"), Decimal("99999999999999999999999999.99")]
    batch = Batch({"k": ["a", "b", "a", "b", "c"], "m": money})
    assert rows_of([batch], lambda s: s.sort("m").select("m"), workers) == [
        (value,) for value in [*sorted(m for m in money if m is not None), None]
    ]
    assert rows_of([batch], lambda s: s.group_by("k").agg(t=sum_("m"), least=min_("m")).sort("k"), workers) == [
        ("a", Decimal("-1.15"), Decimal("-2.25")),
        ("b", Decimal("1.10"), Decimal("1.10")),
        ("c", money[4], money[4]),
    ]
    assert rows_of([batch], lambda s: s.filter(column("m") == Decimal("1.100")).select("k").sort("k"), workers) == [
        ("a",),
        ("b",),
    ]
    assert len(rows_of([batch], lambda s: s.distinct("m"), workers)) == 4
    joined = rows_of([batch], lambda s: s.join(s.select("m", other=column("k")), on="m"), workers)
    assert len(joined) == 6
    assert rows_of([batch[:1]], lambda s: s.select(x=column("m") * Decimal("0.5")), workers) == [(Decimal("0.550"),)]


@WORKERS
def test_times_with_zones_through_every_stage(workers: int) -> None:
    from zoneinfo import ZoneInfo

    berlin = ZoneInfo("Europe/Berlin")
    times = [
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=0),
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=berlin, fold=1),
        None,
        datetime.datetime(2024, 3, 31, 3, 0, tzinfo=berlin),
    ]
    batch = Batch({"t": times, "n": [1, 2, 3, 4]})
    assert rows_of([batch], lambda s: s.sort("t").select("n"), workers) == [(4,), (1,), (2,), (3,)]
    assert len(rows_of([batch], lambda s: s.group_by("t").agg(n=count()), workers)) == 4
    hours = rows_of([batch], lambda s: s.select("n", h=column("t").dt.hour()).sort("n"), workers)
    assert hours == [(1, 2), (2, 2), (3, None), (4, 3)]


@WORKERS
def test_categories_are_text_that_repeats(workers: int) -> None:
    one = Batch({"c": ["b", "a", None, "b"]}, schema={"c": "category"})
    two = Batch({"c": ["c", "b"]}, schema={"c": "category"})
    assert rows_of([one, two], lambda s: s.sort("c"), workers) == [("a",), ("b",), ("b",), ("b",), ("c",), (None,)]
    assert rows_of([one, two], lambda s: s.group_by("c").agg(n=count()).sort("c"), workers) == [
        ("a", 1),
        ("b", 3),
        ("c", 1),
        (None, 1),
    ]
    assert rows_of([one, two], lambda s: s.filter(column("c") == "b"), workers) == [("b",)] * 3


def test_an_unnamed_expression_keeps_its_first_columns_name() -> None:
    (found,) = results_of(lambda p: p.read_from(sources.items([ORDERS])).select(column("id") + 1, "who"))
    assert found.names == ("id", "who")


def test_whens_without_an_end_are_null() -> None:
    chosen = when(column("id") > 3).then("many").when(column("id") > 1).then("some").otherwise(None)
    assert rows_of([ORDERS], lambda s: s.select(x=chosen), 1) == [(None,), ("some",), ("some",), ("many",)]


def test_text_columns_of_the_batch_itself_work_too() -> None:
    batch = Batch({"t": Text.of(["a", "b"])})
    assert rows_of([batch], lambda s: s.filter(column("t") != "a")) == [("b",)]


# -- names and sizes ---------------------------------------------------------------------------------------------------


def test_a_text_for_all_rows_is_told_from_a_name_that_is_missing() -> None:
    for build in (lambda s: s.with_columns(x="hello"), lambda s: s.filter(column("id") > 0).select(x="hello")):
        assert "there is no column 'hello'" in failure([ORDERS], build)
        assert "a text for all rows is x=literal('hello')" in failure([ORDERS], build)
    assert "literal" not in failure([ORDERS], lambda s: s.select("hello"))
    assert rows_of([ORDERS[:1]], lambda s: s.select(x=literal("hello"))) == [("hello",)]


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.select(**{"": column("id")}),
        lambda s: s.with_columns(**{"": column("id")}),
        lambda s: s.group_by("who").agg(**{"": count()}),
    ],
)
def test_results_have_names_that_are_not_empty(build: Build) -> None:
    assert "must be a non-empty str" in failure([ORDERS], build)


def test_sums_and_conditions_of_hundreds_of_columns() -> None:
    wide = Batch({f"c{number}": np.arange(3) + number for number in range(600)})
    total = functools.reduce(operator.add, map(column, wide.names))
    assert rows_of([wide], lambda s: s.select(x=total)) == [(179_700 + 600 * row,) for row in range(3)]
    any_of = functools.reduce(operator.or_, [column("a") == number for number in range(2, 600)])
    assert rows_of([wide], lambda s: s.select(a="c0").filter(any_of)) == [(2,)]


def test_more_columns_than_groups_may_have_are_named() -> None:
    wide = Batch({f"c{number}": [1] for number in range(1100)})
    assert "at most 1024 columns" in failure([wide], lambda s: s.distinct())
    assert "1100 aggregates" in failure([wide], lambda s: s.group_by().agg(**{n: sum_(n) for n in wide.names}))


@WORKERS
@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_what_is_read_of_a_side_without_any_batch_is_null(how: Any, workers: int) -> None:
    def joined(left: list[Any], right: list[Any]) -> list[tuple[Any, ...]]:
        def build(p: Any) -> Any:
            sides = [p.read_from(sources.items(each)) for each in (left, right)]
            both = sides[0].join(sides[1], on="k", how=how, suffix="_right")
            return both.sort("k").select("k", "v", "v_right", more=column("other") + 1)

        return [row for batch in results_of(build, workers) for row in batch.tuples()]

    rows = [Batch({"k": [1, 2], "v": ["a", None]}), Batch({"k": [3], "v": ["c"]})]
    values = [(1, "a"), (2, None), (3, "c")]
    assert joined(rows, []) == ([(k, v, None, None) for k, v in values] if how in ("left", "outer") else [])
    assert joined([], rows) == ([(k, None, v, None) for k, v in values] if how in ("right", "outer") else [])


def test_groups_and_filters_read_a_side_without_any_batch() -> None:
    def build(s: Any) -> Any:
        nothing = s.map_batches(lambda batch: None)
        both = s.join(nothing, on="id", how="left").filter(column("other").is_null())
        return both.with_columns(more=column("third")).group_by("who").agg(n=count("more"), most=max_("fourth"))

    rows = rows_of([ORDERS.select("id", "who")], build)
    assert sorted(map(repr, rows)) == ["('ann', 0, None)", "('bo', 0, None)", "(None, 0, None)"]


@pytest.mark.parametrize("how", ["left", "right", "outer"])
def test_a_misspelt_column_of_a_side_without_any_batch_is_an_error(how: Any) -> None:
    def build(s: Any) -> Any:
        nothing = s.map_batches(lambda batch: None).select("id", "who")
        left, right = (nothing, s.select("id", "who")) if how == "right" else (s.select("id", "who"), nothing)
        return left.join(right, on="id", how=how, suffix="_right").select("who", "who_right", "who_left")

    with pytest.raises(BatchError, match="'who_left'"):
        rows_of([ORDERS.select("id", "who")], build)
