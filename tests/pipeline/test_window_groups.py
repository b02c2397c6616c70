"""Groups of columns in windows, against the aggregates of bounded batches of each window's rows."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np
import pytest

from shmjet import Batch, column, columns
from shmjet.aggregate_ops import counting, to_list
from shmjet.columns import count, custom, first, last, max_, max_by, mean, min_, min_by, sum_, var
from shmjet.core.windows import session, sliding, tumbling
from shmjet.data.errors import BatchError, PlanError
from shmjet.pipeline import Pipeline
from tests.pipeline.running import items_source, list_sink, run
from tests.pipeline.streams import results_of, stream_of

AGGREGATES: dict[str, Any] = {
    "n": count(),
    "known": count("v"),
    "total": sum_("v"),
    "least": min_("v"),
    "most": max_("v"),
    "middle": mean("v"),
    "spread": var("v"),
    "begin": first("v"),
    "end": last("v"),
    "top": max_by("ts", "v"),
    "low": min_by("ts", "v"),
}


def batches() -> list[Batch]:
    random = np.random.default_rng(7)
    made = []
    for number in range(12):
        stamps = np.sort(random.integers(0, 400, 15)) + number * 200
        values = [None if v % 5 == 0 else v * 0.5 for v in random.integers(0, 40, 15).tolist()]
        users = [f"u{key}" for key in random.integers(0, 3, 15)]
        made.append(Batch({"ts": stamps, "user": users, "v": values}))
    return made


def of_rows(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Group rows as bounded data is grouped, by event time."""
    p = Pipeline()
    batch = Batch.from_rows(sorted(rows, key=itemgetter("ts")))
    source = items_source("rows", [batch])
    p.read_from(source).set_local_parallelism(1).map_batches(lambda b: b).set_local_parallelism(1).group_by(*keys).agg(
        **BY_ROWS
    ).write_to(list_sink("out"))
    return [row for b in run(p, 1)["out"] for row in b.rows()]


def rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(map(rounded, row.values()))


BY_ROWS = {**AGGREGATES, "all": custom(len)}
"""`custom` needs all rows of a group."""


@pytest.mark.parametrize("keys", [(), ("user",)])
@pytest.mark.parametrize(("size", "slide"), [(0.5, 0.5), (1, 0.25), (2.5, 0.25)])
@pytest.mark.parametrize("aggregates", [AGGREGATES, BY_ROWS, {"n": count(), "known": count("v")}], ids=len)
def test_each_window_has_the_aggregates_of_its_rows(
    keys: tuple[str, ...], size: float, slide: float, aggregates: dict[str, Any]
) -> None:
    given = batches()
    window = tumbling(size) if size == slide else sliding(size, slide)
    results = results_of(
        given, lambda s: s.window(window).group_by(*keys).agg(**aggregates), column("ts"), columnar=True, lag=1
    )
    assert all(isinstance(b, Batch) and b.names == ("window_start", "window_end", *keys, *aggregates) for b in results)
    found: dict[int, list[dict[str, Any]]] = {}
    for batch in results:
        starts, ends = (batch[name].astype("datetime64[ms]").astype(int) for name in ("window_start", "window_end"))
        assert set(ends - starts) == {int(size * 1000)}
        for start, row in zip(starts.tolist(), batch.rows(), strict=True):
            found.setdefault(start, []).append({k: v for k, v in row.items() if not k.startswith("window")})
    rows = [row for batch in given for row in batch.rows()]
    assert len(found) > 4
    for start, of_window in found.items():
        inside = [row for row in rows if start <= row["ts"] < start + size * 1000]
        assert sorted(map(comparable, of_window), key=repr) == sorted(
            (comparable({name: row[name] for name in (*keys, *aggregates)}) for row in of_rows(inside, keys)), key=repr
        )


def counted(results: list[Batch]) -> list[tuple[Any, ...]]:
    """Return the rows of results, in order, with times as milliseconds."""
    found = []
    for batch in results:
        ends = batch["window_end"].astype("datetime64[ms]").astype(int).tolist()
        rows = batch.select(*(name for name in batch.names if not name.startswith("window"))).tuples()
        found += [(end, *row) for end, row in zip(ends, rows, strict=True)]
    return sorted(found, key=repr)


def in_order() -> list[Batch]:
    stamps = [np.arange(at, at + 400, 40) for at in range(0, 4_000, 400)]
    return [Batch({"ts": each, "user": [f"u{n % 3}" for n in each // 40], "v": each}) for each in stamps]


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("workers", [1, 3])
def test_columns_give_what_rows_give(spread: bool, workers: int) -> None:
    def build(s: Any) -> Any:
        return s.partition_by("user") if spread else s

    def columns_of(s: Any) -> Any:
        return build(s).window(sliding(1, 0.2)).group_by("user").agg(n=count(), total=sum_("v"))

    def rows_of(s: Any) -> Any:
        return build(s.map(dict)).window(sliding(1, 0.2)).group_by("user").agg(n=count(), total=sum_("v"))

    options: dict[str, Any] = {"columnar": True, "workers": workers, "parallelism": 1}
    found = results_of(in_order(), columns_of, column("ts"), **options)
    assert counted(found) == counted(results_of(in_order(), rows_of, column("ts"), **options))


@pytest.mark.parametrize("keys", [(), ("user",)])
@pytest.mark.parametrize("workers", [1, 3])
def test_sessions_of_columns_are_those_of_rows(keys: tuple[str, ...], workers: int) -> None:
    def columns_of(s: Any) -> Any:
        return s.window(session(0.03)).group_by(*keys).agg(**AGGREGATES)

    def rows_of(s: Any) -> Any:
        return s.map(dict).window(session(0.03)).group_by(*keys).agg(**AGGREGATES)

    options: dict[str, Any] = {"columnar": True, "workers": workers, "parallelism": 1, "lag": 1}
    results = results_of(batches(), columns_of, column("ts"), **options)
    assert all(b.names == ("window_start", "window_end", *keys, *AGGREGATES) for b in results)
    found, wanted = counted(results), counted(results_of(batches(), rows_of, column("ts"), **options))
    assert len(found) > 8
    assert [tuple(map(rounded, row)) for row in found] == [tuple(map(rounded, row)) for row in wanted]


def test_explain_tells_that_sessions_are_computed_as_columns() -> None:
    p = Pipeline()
    stage = p.read_from(stream_of(in_order(), 1, columnar=True)).with_timestamps(column("ts"))
    stage.window(session(0.03)).group_by("user").agg(n=count()).write_to(list_sink("out"))
    assert "session(0.03) by user: n=count(); one stage: sessions are made where all rows of a key are" in p.explain()


def test_results_of_sessions_are_cut_again() -> None:
    def build(s: Any) -> Any:
        counts = s.window(session(0.13)).group_by("user").agg(n=count())
        return counts.window(tumbling(10)).group_by().agg(n=sum_("n"), sessions=count())

    assert counted(results_of(in_order(), build, column("ts"), columnar=True, parallelism=1)) == [(10_000, 100, 3)]


def test_results_of_columns_are_cut_again_and_columns_may_be_computed_before() -> None:
    def build(s: Any) -> Any:
        twice = s.select("user", double=column("v") * 2).filter(column("user") != "u0")
        counts = twice.window(tumbling(1)).group_by("user").agg(total=sum_(column("double") + 1), n=count())
        return counts.window(tumbling(2)).group_by().agg(total=sum_("total"), groups=count(), n=sum_("n"))

    rows = [row for batch in in_order() for row in batch.rows() if row["user"] != "u0"]
    expected = []
    for end in (2_000, 4_000):
        inside = [row for row in rows if end - 2_000 <= row["ts"] < end]
        expected.append((end, sum(row["v"] * 2 + 1 for row in inside), 4, len(inside)))
    assert counted(results_of(in_order(), build, column("ts"), columnar=True, parallelism=1)) == expected


def test_early_results_of_columns_are_marked() -> None:
    def build(s: Any) -> Any:
        return s.window(sliding(1, 0.5)).early_results(0.001).group_by("user").agg(n=count())

    results = results_of(in_order(), build, column("ts"), columnar=True, parallelism=1)
    assert {batch.names[-1] for batch in results} == {"is_early"}
    final = [row[:3] for row in counted(results) if not row[3]]
    plain = results_of(
        in_order(), lambda s: s.window(sliding(1, 0.5)).group_by("user").agg(n=count()), column("ts"), columnar=True
    )
    assert final == counted(plain)


@pytest.mark.parametrize("window", [tumbling(1), sliding(1, 0.5), session(0.5)], ids=repr)
def test_custom_functions_get_rows_in_the_types_of_the_columns_and_results_have_these(window: Any) -> None:
    schema = {"ts": "int64", "k": "category", "v": "int8", "d": "decimal(20, 2)"}
    given = [
        Batch({"ts": [0, 1], "k": ["a", None], "v": [1, None], "d": [None, None]}, schema=schema),
        Batch({"ts": [5_000], "k": ["a"], "v": [-3], "d": [Decimal("1.50")]}, schema=schema),
    ]

    def build(s: Any) -> Any:
        types = custom(lambda rows: str([str(kind) for kind in rows.schema.values()]))
        return s.window(window).group_by("k").agg(least=min_("v"), price=max_("d"), types=types)

    results = results_of(given, build, column("ts"), columnar=True)
    assert {str(b.select("k", "least", "price").schema) for b in results} == {
        "{'k': category, 'least': dtype('int8'), 'price': decimal(20, 2)}"
    }
    assert {text for b in results for text in b["types"]} == {"['int64', 'category', 'int8', 'decimal(20, 2)']"}


def test_custom_functions_of_streams_with_different_columns_get_nulls() -> None:
    p = Pipeline()
    one = p.read_from(stream_of([Batch({"ts": [0], "a": [1]})], 1, columnar=True)).with_timestamps(column("ts"))
    two = p.read_from(stream_of([Batch({"ts": [5], "b": ["x"]})], 1, columnar=True)).with_timestamps(column("ts"))
    rows = custom(lambda rows: str(sorted(map(str, rows.select("ts", "a", "b").tuples()))))
    one.merge(two).window(tumbling(1)).group_by().agg(rows=rows).write_to(list_sink("out"))
    assert [list(b["rows"]) for b in run(p)["out"]] == [["['(0, 1, None)', \"(5, None, 'x')\"]"]]


def test_late_rows_go_to_the_sink_as_rows() -> None:
    given = [Batch({"ts": [0, 5_000], "user": ["a", "b"]}), Batch({"ts": [10, 6_000], "user": ["late", "b"]})]
    p = Pipeline()
    stage = p.read_from(stream_of(given, 1, columnar=True)).with_timestamps(column("ts"))
    stage.window(tumbling(1)).late_to(list_sink("late")).group_by("user").agg(n=count()).write_to(list_sink("out"))
    lists = run(p)
    assert lists["late"] == [{"ts": 10, "user": "late"}]
    assert sum(b.num_rows for b in lists["out"]) == 3


def test_rows_of_items_are_grouped_too_and_may_be_cut_again() -> None:
    rows = [{"user": f"u{i % 3}", "v": i, "ts": i * 100} for i in range(60)]

    def build(s: Any) -> Any:
        counts = s.window(tumbling(1)).group_by("user").agg(n=count())
        return counts.window(tumbling(2)).group_by().agg(total=sum_("n"), groups=count())

    results = results_of(rows, build, itemgetter("ts"))
    assert [(row["total"], row["groups"]) for b in results for row in b.rows()] == [(20, 6)] * 3


class Click(NamedTuple):
    user: str
    v: int
    ts: int


def test_named_tuples_are_rows_too() -> None:
    given = [Click(f"u{i % 2}", i, i * 100) for i in range(10)]
    aggregates = {"n": count(), "total": sum_("v"), "top": max_by("ts", "v"), "names": custom(lambda b: str(b.names))}
    results = results_of(
        given, lambda s: s.window(tumbling(1)).group_by("user").agg(**aggregates), attrgetter("ts"), lag=1
    )
    assert sorted(row for b in results for row in b.select("user", *aggregates).tuples()) == [
        ("u0", 5, 20, 800, "('user', 'v', 'ts')"),
        ("u1", 5, 25, 900, "('user', 'v', 'ts')"),
    ]
    with pytest.raises(BatchError, match=r"the item has no 'w'; it has \['user', 'v', 'ts'\]"):
        results_of(given, lambda s: s.window(tumbling(1)).group_by().agg(w=sum_("w")), attrgetter("ts"))


def test_results_of_windows_of_items_are_grouped_by_name() -> None:
    def build(s: Any) -> Any:
        counts = s.window(tumbling(1)).grouping_key("user").aggregate(counting())
        return counts.window(tumbling(10)).group_by("key").agg(n=sum_("result"))

    given = [Click(f"u{i % 2}", i, i * 100) for i in range(30)]
    results = results_of(given, build, attrgetter("ts"), lag=1)
    assert sorted(row for b in results for row in b.select("key", "n").tuples()) == [("u0", 15), ("u1", 15)]


def test_several_key_columns_and_early_results() -> None:
    s = Pipeline().read_from(stream_of([])).with_timestamps(itemgetter("ts"))
    stage = s.window(tumbling(1)).early_results(1).group_by("a", "b").agg(n=count())
    stage.write_to(list_sink("out"))
    assert "early results every 1000 ms" in s.pipeline.explain()


@pytest.mark.parametrize("keys", [("a", "b"), (column("a"), column("b")), (["a", "b"],), (columns("a", "b"),)])
def test_keys_are_named_as_on_bounded_data(keys: tuple[Any, ...]) -> None:
    given = [Batch({"ts": [0, 1, 2], "a": [1, 1, 1], "b": [2, 2, 3]})]
    build: Any = lambda s: s.window(tumbling(1)).group_by(*keys).agg(n=count())  # noqa: E731
    results = results_of(given, build, column("ts"), columnar=True)
    assert sorted(row for b in results for row in b.select("a", "b", "n").tuples()) == [(1, 2, 2), (1, 3, 1)]


def test_wrong_names_are_refused() -> None:
    s = Pipeline().read_from(stream_of([])).with_timestamps(itemgetter("ts")).window(tumbling(1))
    with pytest.raises(BatchError, match="two columns of the result would be called 'window_end'"):
        s.group_by("a").agg(window_end=count())
    with pytest.raises(BatchError, match="expected at least one aggregate"):
        s.group_by("a").agg()
    with pytest.raises(TypeError, match=r"n must be an aggregate from shmjet.columns"):
        s.group_by("a").agg(n=len)
    with pytest.raises(BatchError):
        s.group_by("a", "a")


def test_rows_are_made_where_the_next_stages_are() -> None:
    given = [Batch({"ts": [0, 10, 2_000], "v": [1, 2, 3]})]
    p = Pipeline()
    stage = p.read_from(stream_of(given, 1, columnar=True)).with_timestamps(column("ts"))
    large = stage.map(lambda row: row["v"]).filter(lambda v: v != 2)
    large.window(tumbling(1)).aggregate(to_list()).write_to(list_sink("out"))
    assert "map-rows" not in p.explain()
    assert [(r.start, r.result) for r in run(p)["out"]] == [(0, [1]), (2_000, [3])]


def test_rows_of_batches_are_distinct_by_names() -> None:
    given = [Batch({"ts": [0, 10, 20], "k": ["a", "a", "b"]})]
    results = results_of(
        given, lambda s: s.window(tumbling(1)).grouping_key("k").distinct(), column("ts"), columnar=True
    )
    assert sorted(r.result["k"] for r in results) == ["a", "b"]
    with pytest.raises(PlanError, match=r"say window\(...\).grouping_key\(names\).distinct"):
        results_of(given, lambda s: s.window(tumbling(1)).distinct(), column("ts"), columnar=True)


ROWS = [{"at": number * 10, "k": "ab"[number % 2], "v": number} for number in range(30)]


@pytest.mark.parametrize("schema", [None, {"at": "int64", "k": "text", "v": "int64"}])
def test_rows_of_a_stream_that_are_gathered_keep_their_time_whatever_schema_they_get(schema: Any) -> None:
    def build(stage: Any) -> Any:
        return stage.to_batches(schema).window(tumbling(0.1)).group_by("k").agg(n=count(), total=sum_("v")).to_rows()

    found = results_of(ROWS, build, itemgetter("at"))
    assert sorted((row["k"], row["n"], row["total"]) for row in found) == sorted(
        (key, 5, sum(row["v"] for row in ROWS[begin : begin + 10] if row["k"] == key))
        for key in "ab"
        for begin in (0, 10, 20)
    )


@pytest.mark.parametrize("own", ["T05", None, 7, datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_field_that_is_called_as_the_column_of_the_time_is_not_lost_without_a_word(own: Any) -> None:
    rows = [{**row, "timestamp": own} for row in ROWS]

    def build(stage: Any) -> Any:
        return stage.to_batches().window(tumbling(0.1)).group_by("k").agg(most=max_("timestamp")).to_rows()

    with pytest.raises(BatchError, match=r"a row has a field 'timestamp' of its own, .*give the field another name"):
        results_of(rows, build, itemgetter("at"))


@pytest.mark.parametrize("form", [int, lambda at: datetime.fromtimestamp(at / 1000, UTC)])
def test_a_field_of_that_name_may_be_the_time(form: Any) -> None:
    rows = [{**row, "timestamp": form(row["at"])} for row in ROWS]

    def build(stage: Any) -> Any:
        return stage.to_batches().window(tumbling(0.1)).group_by("k").agg(most=max_("timestamp")).to_rows()

    assert sorted(row["most"] for row in results_of(rows, build, itemgetter("at"))) == [80, 90, 180, 190, 280, 290]
