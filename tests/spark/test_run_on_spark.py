"""Pipelines on Spark: every kind of stage gives what the engine gives; ends, errors, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

import shmjet.spark
from shmjet import (
    Batch,
    JetInstance,
    JobConfig,
    JobFailedError,
    Pipeline,
    PlanError,
    Table,
    aggregate_ops,
    column,
    sinks,
    sources,
)
from shmjet.core import AbstractProcessor, partition_id
from shmjet.pipeline import BatchStage, ServiceFactory, SourceDef
from shmjet.processors import generate
from tests.spark.runner import on_spark

pytestmark = pytest.mark.slow


def first(item: Any) -> Any:
    return item[0]


# -- stages ------------------------------------------------------------------------------------------------------------


def test_stateless_stages_and_a_keyed_aggregation(spark: Any) -> None:
    def build(stage: BatchStage[int]) -> BatchStage[Any]:
        return (
            stage.map(lambda n: n + 1)
            .filter(lambda n: n % 2)
            .flat_map(lambda n: [n, -n])
            .grouping_key(lambda n: n % 7)
            .aggregate(aggregate_ops.all_of(aggregate_ops.counting(), aggregate_ops.summing()))
        )

    numbers = [m for n in range(20_000) if (n + 1) % 2 for m in (n + 1, -n - 1)]
    expected = {
        key: (sum(1 for m in numbers if m % 7 == key), sum(m for m in numbers if m % 7 == key)) for key in range(7)
    }
    assert {key: tuple(found) for key, found in on_spark(spark, range(20_000), build)} == expected


def test_keys_lie_in_the_partitions_in_which_they_lie_in_the_engine(spark: Any) -> None:
    class Where(AbstractProcessor):
        def try_process0(self, item: Any) -> bool:
            return self.try_emit((self.context.global_index, self.context.total_parallelism, item))

    keys = ["a", "é", 5, 5.5, True, None, ("x", 1), b"raw", 10**30]
    found = on_spark(
        spark, [(key,) for key in keys] * 3, lambda s: s.partition_by(first).custom_transform("where", Where)
    )
    assert len(found) == 3 * len(keys)
    for index, total, (key,) in found:
        assert index == partition_id(key, 271) % total
    assert {total for _, total, _ in found} == {2}


def test_equal_keys_of_different_types_meet(spark: Any) -> None:
    counted = on_spark(
        spark, [1, 1.0, True, 2] * 50, lambda s: s.grouping_key(None).aggregate(aggregate_ops.counting())
    )  # type: ignore[arg-type]
    assert dict(counted) == {1: 150, 2: 50}


@pytest.mark.parametrize("count", [0, 1, 30_000])
def test_a_sort_gives_one_order_over_all_partitions_and_what_follows_keeps_it(spark: Any, count: int) -> None:
    items = [(n * 7919) % 30_011 for n in range(count)]
    found = on_spark(spark, items, lambda s: s.sort(reverse=True).map(lambda n: n + 1).map_stateful(list, _numbered))
    assert found == [(place, n + 1) for place, n in enumerate(sorted(items, reverse=True), 1)]


def _numbered(state: list[int], item: int) -> tuple[int, int]:
    state.append(item)
    return len(state), item


def test_hash_joins_with_several_sides_and_matches(spark: Any) -> None:
    p = Pipeline()
    trades = p.read_from(sources.items([("a", 1), ("b", 2), ("c", 3)] * 5))
    names = p.read_from(sources.items([("a", "Apple"), ("a", "Ananas"), ("b", "Banana")]))
    sizes = p.read_from(sources.items({"a": 10, "b": 20}.items()))
    with sinks.collect() as left, sinks.collect() as inner:
        trades.hash_join(names, (first, first), lambda trade, name: (trade[1], name and name[1])).write_to(left)
        trades.inner_hash_join(names, (first, first), sizes, (first, first), _all_three).write_to(inner)
        p.run_on_spark(spark)
        assert Counter(left) == Counter({(1, "Apple"): 5, (1, "Ananas"): 5, (2, "Banana"): 5, (3, None): 5})
        assert Counter(inner) == Counter({("a", "Apple", 10): 5, ("a", "Ananas", 10): 5, ("b", "Banana", 20): 5})


def _all_three(trade: Any, name: Any, size: Any) -> tuple[str, str, int]:
    return trade[0], name[1], size[1]


def test_co_groups_joins_and_tables(spark: Any) -> None:
    p = Pipeline()
    orders = p.read_from(sources.items([(n % 5, n) for n in range(100)]))
    payments = p.read_from(sources.items([(n % 4, 10 * n) for n in range(40)]))
    people = Table("people")
    p.read_from(sources.items([(0, "Ada"), (3, "Bob"), (0, "Eve")])).send_to(people)
    both = orders.grouping_key(first).aggregate2(
        aggregate_ops.counting(), payments.grouping_key(first), aggregate_ops.summing(itemgetter(1))
    )
    with sinks.collect() as grouped, sinks.collect() as joined, sinks.collect() as named:
        both.write_to(grouped)
        orders.join(payments, first, first, lambda a, b: (a[1], b[1])).write_to(joined)
        orders.join_table(people, first, lambda order, name: (order[0], name)).distinct().write_to(named)
        p.run_on_spark(spark)
        sums = {key: sum(10 * n for n in range(40) if n % 4 == key) for key in range(4)}
        assert {key: tuple(found) for key, found in grouped} == {key: (20, sums.get(key, 0)) for key in range(5)}
        assert Counter(joined) == Counter((a, 10 * b) for a in range(100) for b in range(40) if a % 5 == b % 4)
        assert {entry[0]: entry[1] in ("Ada", "Eve") if entry[0] == 0 else entry[1] for entry in named} == {
            0: True,
            1: None,
            2: None,
            3: "Bob",
            4: None,
        }


def test_columns_batches_and_groups_of_columns(spark: Any) -> None:
    from shmjet.columns import count, sum_

    rows = [{"k": f"key-{n % 11}", "v": n} for n in range(5000)]

    def build(stage: BatchStage[Any]) -> BatchStage[Any]:
        doubled = stage.map_batches(lambda batch: {"k": batch["k"], "v": batch["v"] * 2}, as_=Batch)
        return doubled.group_by("k").agg(n=count(), total=sum_("v")).map(lambda row: (row["k"], row["n"], row["total"]))

    expected = Counter((f"key-{k}", len(range(k, 5000, 11)), sum(2 * n for n in range(k, 5000, 11))) for k in range(11))
    assert Counter(on_spark(spark, rows, build)) == expected


def test_states_rolling_aggregation_and_distinct(spark: Any) -> None:
    def build(stage: BatchStage[int]) -> BatchStage[Any]:
        kept = stage.grouping_key(lambda n: n % 3).filter_stateful(
            list, lambda seen, key, n: not seen.append(n) and len(seen) <= 4
        )
        return kept.grouping_key(lambda n: n % 3).rolling_aggregate(aggregate_ops.counting()).distinct()

    assert Counter(on_spark(spark, range(3000), build)) == Counter((key, n) for key in range(3) for n in range(1, 5))


def test_coroutine_functions(spark: Any) -> None:
    async def later(service: dict[str, int], item: int) -> int:
        await asyncio.sleep(0.001)
        return item + service["offset"]

    factory = ServiceFactory(lambda: {"offset": 5})
    found = on_spark(spark, range(200), lambda s: s.map_using_service_async(factory, later, max_concurrent_ops=50))
    assert Counter(found) == Counter(range(5, 205))


def test_shared_stages_are_computed_once(spark: Any, tmp_path: Path) -> None:
    marks = str(tmp_path)

    def mark(n: int) -> int:
        with open(os.path.join(marks, str(n)), "a") as file:
            file.write("x")
        return n

    p = Pipeline()
    shared = p.read_from(sources.items(range(20))).map(mark)
    with sinks.collect() as odd, sinks.collect() as even, sinks.collect() as total:
        shared.filter(lambda n: n % 2).write_to(odd)
        shared.filter(lambda n: not n % 2).write_to(even)
        shared.aggregate(aggregate_ops.summing()).write_to(total)
        p.run_on_spark(spark)
        assert (sorted(odd), sorted(even), list(total)) == (list(range(1, 20, 2)), list(range(0, 20, 2)), [190])
    assert {path.read_text() for path in tmp_path.iterdir()} == {"x"}


def test_a_collect_of_two_stages_has_what_both_give(spark: Any) -> None:
    p = Pipeline()
    with sinks.collect() as results:
        numbers = p.read_from(sources.items(range(20)))
        numbers.filter(lambda n: n % 2).write_to(results)
        numbers.map(lambda n: n + 100).write_to(results)
        p.run_on_spark(spark)
        assert sorted(results) == [*range(1, 20, 2), *range(100, 120)]


@dataclass(frozen=True)
class Point:
    x: int
    y: int


def test_classes_that_only_this_program_has_travel_as_items_and_keys(spark: Any) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__", "dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Local:\n    x: int\n", namespace)
    local = namespace["Local"]
    found = on_spark(
        spark,
        range(100),
        lambda s: s.map(lambda n: local(n % 3)).grouping_key(lambda p: p).aggregate(aggregate_ops.counting()),
    )
    assert {key.x: n for key, n in found} == {0: 34, 1: 33, 2: 33}


# -- ends --------------------------------------------------------------------------------------------------------------


def test_files_in_and_out_get_their_names_at_the_end(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.txt").write_text("to be or\nnot to be\n" * 200)
    p = Pipeline()
    words = p.read_from(sources.files(tmp_path / "in")).flat_map(str.split)
    counts = words.grouping_key(lambda word: word).aggregate(aggregate_ops.counting())
    out = sinks.csv(tmp_path / "out", ["word", "n"])
    counts.filter(lambda count: count[0] < "o").write_to(out)
    counts.filter(lambda count: count[0] >= "o").write_to(out)
    p.run_on_spark(spark)
    names = sorted(os.listdir(tmp_path / "out"))
    files = range(len(names) // 2)
    assert names == sorted([f"{number}.csv" for number in files] + [f"{number}-1.csv" for number in files])
    again = Pipeline()
    with sinks.collect() as rows:
        again.read_from(sources.csv(tmp_path / "out/*.csv", {"word": "text", "n": "int64"})).write_to(rows)
        again.run_on_spark(spark)
        assert {row["word"]: row["n"] for row in rows} == {"to": 1200, "be": 1200, "or": 600, "not": 600}


def test_maps_and_lists_of_an_instance_go_through_the_driver(spark: Any, jet: JetInstance) -> None:
    jet.get_list("numbers").extend(range(50))
    jet.get_map("names").put_all({n: f"name-{n}" for n in range(5)})
    jet.get_map("totals").put_all({0: 1000})
    p = Pipeline()
    numbers = p.read_from(sources.list("numbers"))
    named = numbers.join(p.read_from(sources.map("names")), lambda n: n % 7, first, lambda n, entry: (n, entry[1]))
    named.write_to(sinks.map("named"))
    named.map(first).sort().write_to(sinks.list("sorted"))
    numbers.map(lambda n: (n % 2, n)).write_to(sinks.map("totals", merge_fn=lambda old, new: old + new))
    p.run_on_spark(spark)  # as no other session is open
    expected = {n: f"name-{n % 7}" for n in range(50) if n % 7 < 5}
    assert dict(jet.get_map("named").items()) == expected
    assert list(jet.get_list("sorted")) == sorted(expected)
    assert dict(jet.get_map("totals").items()) == {0: 1000 + sum(range(0, 50, 2)), 1: sum(range(1, 50, 2))}


def test_sources_of_functions_and_partitions_and_sinks_that_check(spark: Any) -> None:
    p = Pipeline()
    generated = p.read_from(SourceDef("numbers", generate(lambda index, count: range(index, 100, count)), 3))
    generated.write_to(sinks.assert_any_order(range(100)))
    generated.sort().write_to(sinks.assert_ordered(range(100)))
    generated.write_to(sinks.assert_contains([99, 0]))
    generated.write_to(sinks.assert_collected(lambda items: len(items) == 100))
    generated.write_to(sinks.noop())
    left = p.read_from(sources.items([("a", 1), ("b", 2)], partitions=8, key=first))
    right = p.read_from(sources.items([("b", 3), ("c", 4)], partitions=8, key=first))
    left.join(right, first, first).write_to(sinks.assert_ordered([(("b", 2), ("b", 3))]))
    p.run_on_spark(spark)


def test_a_check_that_fails_fails_the_job(spark: Any) -> None:
    p = Pipeline()
    p.read_from(sources.items([1, 2])).write_to(sinks.assert_ordered([1, 3], "numbers"))
    with pytest.raises(JobFailedError, match="numbers: item 1 is 2, expected 3"):
        p.run_on_spark(spark)


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_names_the_stage_and_the_users_line_and_no_sink_shows_anything(spark: Any, tmp_path: Path) -> None:
    p = Pipeline()
    stage = p.read_from(sources.items(range(100)))
    results = sinks.collect()
    stage.write_to(sinks.files(tmp_path / "out"))
    stage.write_to(results)
    stage.map(lambda n: 1 // (n - 50)).set_name("inverse").write_to(sinks.files(tmp_path / "other"))
    with pytest.raises(JobFailedError) as caught:
        p.run_on_spark(spark, config=JobConfig(name="broken"))
    text = str(caught.value)
    assert caught.value.vertex == "inverse"
    assert isinstance(caught.value.cause, ZeroDivisionError)
    assert "job 'broken' failed in vertex 'inverse'" in text
    assert "1 // (n - 50)" in text
    assert "pyspark" not in text
    assert not os.listdir(tmp_path / "out")
    assert not os.listdir(tmp_path / "other")
    with pytest.raises(JobFailedError, match="inverse"):
        list(results)
    results.close()


def test_a_task_that_is_killed_is_done_again_and_nothing_is_lost_or_doubled(spark: Any, tmp_path: Path) -> None:
    once = str(tmp_path / "once")

    def dies_once(n: int) -> int:
        if n == 700:
            try:
                os.close(os.open(once, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return n
            os._exit(9)
        return n

    p = Pipeline()
    stage = p.read_from(sources.items(range(1000))).map(dies_once)
    stage.grouping_key(lambda n: n % 10).aggregate(aggregate_ops.counting()).write_to(
        sinks.assert_any_order([(key, 100) for key in range(10)])
    )
    stage.write_to(sinks.files(tmp_path / "out"))
    p.run_on_spark(spark)
    assert os.path.exists(once)
    found = [int(line) for path in (tmp_path / "out").iterdir() for line in path.read_text().split()]
    assert sorted(found) == list(range(1000))


def test_what_cannot_run_there_is_a_plan_error_that_names_the_stage(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.spark.runner.run.open_instances", list)
    p = Pipeline()
    p.read_from(sources.socket("localhost", 1)).set_name("lines").write_to(sinks.noop())
    with pytest.raises(PlanError, match=r"lines: a socket cannot be read on Spark"):
        p.run_on_spark(spark)
    p = Pipeline()
    p.read_from(sources.items([1])).write_to(sinks.list("out"))
    with pytest.raises(
        PlanError, match=r"list\(out\): what it writes to belongs to an instance of shmjet, and none is"
    ):
        p.run_on_spark(spark)
    p = Pipeline()
    p.read_from(sources.items([1])).write_to(sinks.socket("localhost", 1)).set_name("speaker")
    with pytest.raises(PlanError, match="speaker: a socket cannot be written on Spark"):
        p.run_on_spark(spark)


def test_wrong_arguments(spark: Any) -> None:
    with pytest.raises(TypeError, match="expected a Pipeline, got int: 5"):
        shmjet.spark.run_on_spark(5, spark)
    p = Pipeline()
    p.read_from(sources.items([1])).write_to(sinks.noop())
    with pytest.raises(TypeError, match="expected a SparkSession, got str"):
        p.run_on_spark("local[2]")


def test_nothing_stays_in_spark(spark: Any) -> None:
    before = len(spark.sparkContext._jsc.getPersistentRDDs())
    on_spark(spark, range(100), lambda s: s.merge(s.map(lambda n: -n)).sort())
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == before


def test_sparks_workers_do_not_look_through_loaded_modules_after_each_task(spark: Any) -> None:
    gc.unfreeze()  # what the tests have frozen here
    try:
        frozen = on_spark(spark, range(4), lambda stage: stage.map(lambda _: gc.get_freeze_count()))
        assert min(frozen) > 1000
        assert gc.get_freeze_count() == 0
    finally:
        gc.freeze()


def test_a_column_key_spreads_batches_by_rows(spark: Any) -> None:
    rows = [{"k": n % 5, "v": n} for n in range(200)]

    def build(stage: BatchStage[Any]) -> BatchStage[Any]:
        batches = stage.map_batches(lambda batch: batch, as_=Batch).partition_by(column("k"))
        return batches.map_batches(lambda batch: {"k": batch["k"], "n": batch["v"]}, as_=Batch).map(
            lambda r: (r["k"], r["n"])
        )

    assert Counter(on_spark(spark, rows, build)) == Counter((n % 5, n) for n in range(200))
