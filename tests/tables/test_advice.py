"""Mistakes of users of polars, pandas, Spark and SQL: the error says what to do; `test_hostile` has more of them."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shmjet import Batch, BatchError, JobFailedError, column, sources, when
from shmjet.columns import count, mean
from shmjet.pipeline import Pipeline
from tests.pipeline.running import results_of

polars: Any = pytest.importorskip("polars")
ID: Any = column("id")
choose: Any = when
ORDERS = Batch({"id": [1, 2], "who": ["ann", "bob"], "day": [datetime.date(2024, 1, 1), None]})

AT_THE_CALL: dict[str, tuple[Callable[[Any], Any], str]] = {
    "several conditions": (
        lambda s: s.filter(column("id") > 1, column("who") == "ann"),
        r"one condition, got 2; .* & ",
    ),
    "an expression as a key": (lambda s: s.group_by(column("day").dt.month()), r"with_columns\(name=...\)"),
    "a named expression as a key": (lambda s: s.group_by(m=column("day").dt.month()), r"group_by\('m'\)"),
    "ascending": (lambda s: s.sort("id", ascending=False), "no ascending=; .* descending="),
    "when of three": (lambda s: s.select(x=choose(ID > 1, 1, 0)), r"then\(value\).otherwise\(value\)"),
    "a stage as a frame": (lambda s: s["id"], r"no \['id'\].*column\('name'\)"),
    "a stage as a sequence": (lambda s: list(s), "no rows before the job has run"),
    "round": (lambda s: s.select(x=round(ID / 3, 2)), r"rounded to digits; numpy.rint\(expression\)"),
    "log": (lambda s: s.select(x=ID.log()), r"numpy.log\(expression\) does that"),
    "isna": (lambda s: s.filter(ID.isna()), r"is_null\(\) does that"),
    "notnull": (lambda s: s.filter(ID.notnull()), r"is_not_null\(\) does that"),
    "a date's name": (lambda s: s.select(x=column("who").cast("date")), r"did you mean 'datetime64\[D\]'"),
    "a date's type": (lambda s: s.select(x=column("who").cast(datetime.date)), r"did you mean 'datetime64\[D\]'"),
    "a time's type": (lambda s: s.select(x=column("who").cast(datetime.datetime)), r"did you mean 'datetime64\[us\]'"),
    "a name of SQL": (lambda s: s.select(x=column("who").cast("BIGINT")), "did you mean 'int64'"),
    "an aggregate that is not called": (lambda s: s.group_by("who").agg(n=count), r"lacks its parentheses: count\("),
}


@pytest.mark.parametrize("mistake", AT_THE_CALL)
def test_a_mistake_is_told_where_it_is_written(mistake: str) -> None:
    build, text = AT_THE_CALL[mistake]
    with pytest.raises((TypeError, AttributeError, BatchError), match=text):
        build(Pipeline().read_from(sources.items([ORDERS])))


IN_THE_JOB: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a frame of a function": (lambda s: s.map_batches(polars.DataFrame), r"Batch.from_arrow\(...\) makes a Batch"),
    "a column of a function": (lambda s: s.map_batches(lambda batch: batch["id"]), r"return \{'name': column\}"),
    "a mean of text": (lambda s: s.group_by().agg(x=mean("who")), r".cast\(float\) makes numbers of text"),
    "a date as text": (lambda s: s.filter(column("day") > "2024-01-01"), "compare with a datetime.date"),
    "text as a date": (lambda s: s.filter(column("who") > datetime.date(2024, 1, 1)), "compare with a datetime.date"),
}


@pytest.mark.parametrize("mistake", IN_THE_JOB)
def test_a_mistake_that_needs_the_rows_is_told_by_the_job(mistake: str) -> None:
    build, text = IN_THE_JOB[mistake]
    with pytest.raises((JobFailedError, BatchError), match=text):
        results_of(lambda pipeline: build(pipeline.read_from(sources.items([ORDERS]))))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("a.csv", r"sources.csv\(path, as_=Batch\)"),
        (Path("a.csv"), r"sources.csv\(path, as_=Batch\)"),
        ([ORDERS], r"frames\(\*tables\)"),
        ({"a": [1]}, r"Batch\(columns\)"),
        (polars.LazyFrame({"a": [1]}), r"collect\(\) it first"),
    ],
    ids=["path", "Path", "list", "dict", "lazy"],
)
def test_what_is_not_a_table_is_told_what_makes_one(table: Any, text: str) -> None:
    with pytest.raises(BatchError, match=text):
        sources.frames(table)
