"""Items for which a function raises: left out, or sent to a sink, stage by stage, on bounded and on endless data."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from shmjet import column, sinks, sources
from shmjet.aggregate_ops import summing, to_list
from shmjet.core.job import JobConfig
from shmjet.core.windows import tumbling
from shmjet.data.batch import Batch
from shmjet.data.errors import PlanError
from shmjet.data.failed_item import FailedItem
from shmjet.pipeline import BatchStage, Pipeline, Table
from shmjet.pipeline.stream_stage import StreamStage
from shmjet.spark.runner.translation import translate
from tests.pipeline.running import items_source, list_sink, run
from tests.pipeline.streams import stream_of

NUMBERS = list(range(20))


def fussy(x: int) -> int:
    if x % 5 == 3:
        raise ValueError(f"not {x}")
    return x


def added(table: Table) -> Callable[[BatchStage[Any]], BatchStage[Any]]:
    def stage(s: BatchStage[Any]) -> BatchStage[Any]:
        s.pipeline.read_from(items_source("entries", [(0, 1)])).send_to(table)
        return s.join_table(table, None, lambda x, value: fussy(x))

    return stage


WITHIN: dict[bool, dict[str, float]] = {False: {}, True: {"within": 0.0}}


async def later(service: Any, x: int) -> int:
    return fussy(x)


STAGES: dict[str, Callable[[Any], Any]] = {
    "map": lambda s: s.map(fussy),
    "filter": lambda s: s.filter(lambda x: fussy(x) > -1),
    "flat_map": lambda s: s.flat_map(lambda x: [fussy(x)]),
    "stateful": lambda s: s.map_stateful(list, lambda state, x: fussy(x)),
    "keyed": lambda s: s.grouping_key(None).map_stateful(list, lambda state, key, x: fussy(x)),
    "service": lambda s: s.map_using_service(dict, lambda service, x: fussy(x)),
    "async": lambda s: s.map_using_service_async(dict, later),
    "hash_join": lambda s: s.hash_join(
        s.pipeline.read_from(items_source("side", [1])), (None, None), fn=lambda x, match: fussy(x)
    ),
    "table": added(Table("t")),
}


@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_failed_items_go_to_the_sink_and_the_others_on(stage: Callable[[Any], Any], endless: bool) -> None:
    p = Pipeline()
    first: Any = p.read_from(stream_of(NUMBERS)).with_timestamps(int) if endless else None
    made = stage(first or p.read_from(items_source("items", NUMBERS))).set_name("picky")
    assert made.on_error(send_to=list_sink("bad")) is made
    last = made.map(lambda x: x)
    if endless:
        last = last.window(tumbling(1)).aggregate(to_list()).flat_map(lambda r: r.result)
    last.write_to(list_sink("out"))
    lists = run(p)
    assert sorted(lists["out"]) == [x for x in NUMBERS if x % 5 != 3]
    assert sorted((bad.item, bad.vertex, bad.error) for bad in lists["bad"]) == [
        (x, "picky", f"ValueError: not {x}") for x in NUMBERS if x % 5 == 3
    ]
    assert all(type(bad) is FailedItem and "fussy" in bad.traceback for bad in lists["bad"])


def test_each_stage_of_a_fused_chain_has_its_own() -> None:
    p = Pipeline()
    stage = p.read_from(items_source("items", NUMBERS)).map(fussy).on_error(send_to=list_sink("first"))
    stage = stage.map(lambda x: 12 // (x % 4)).on_error("skip").filter(lambda x: 1 // (x - 6)).set_name("last")
    stage.on_error(send_to=list_sink("last")).write_to(list_sink("out"))
    assert "fused(map, map-2, last)" in p.explain()
    lists = run(p)
    assert {bad.vertex for bad in lists["first"]} == {"map"}
    assert {(bad.vertex, bad.item) for bad in lists["last"]} == {("last", 6)}
    assert lists["out"] == [4, 4, 4, 4]


def test_joins_and_rolling_aggregates() -> None:
    p = Pipeline()
    s = p.read_from(items_source("items", NUMBERS))
    s.rolling_aggregate(summing(fussy)).on_error("skip").write_to(list_sink("sums"))
    s.join(s, None, None, lambda x, y: fussy(x)).on_error(send_to=list_sink("bad")).write_to(list_sink("joined"))
    lists = run(p)
    assert max(lists["sums"]) == sum(x for x in NUMBERS if x % 5 != 3)
    assert len(lists["bad"]) == 4
    assert len(lists["joined"]) == 16


@pytest.mark.parametrize("action", ["skip", "send"])
@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("result", [lambda batch: batch, lambda batch: iter([batch]), dict])
def test_a_batch_has_failed_as_a_whole(result: Callable[[Batch], Any], endless: bool, action: str) -> None:
    def picky(batch: Batch) -> Any:
        fussy(int(batch["v"][0]))
        return result(batch)

    batches = [Batch({"t": [n], "v": [n]}) for n in NUMBERS]
    p = Pipeline()
    s: Any
    if endless:
        s = p.read_from(stream_of(batches, columnar=True)).with_timestamps(column("t"))
    else:
        s = p.read_from(sources.items(batches))
    made = s.map_batches(picky).set_name("picky")
    made.on_error(**({"action": "skip"} if action == "skip" else {"send_to": list_sink("bad")}))
    made.filter(column("v") >= 0).write_to(list_sink("out"))
    lists = run(p)
    assert sorted(v for batch in lists["out"] for v in batch["v"]) == [x for x in NUMBERS if x % 5 != 3]
    assert sorted((bad.item["v"].tolist(), bad.vertex, bad.error) for bad in lists.get("bad", [])) == [
        ([x], "picky", f"ValueError: not {x}") for x in NUMBERS if x % 5 == 3 and action == "send"
    ]


@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize(
    "stage",
    [
        lambda s: s.grouping_key(fussy).map_stateful(list, lambda state, key, x: x),
        lambda s: s.grouping_key(fussy).map_using_service(dict, lambda service, key, x: x),
        lambda s: s.join(
            s.filter(lambda x: x % 5 != 3), fussy, None, lambda x, y: x, **WITHIN[isinstance(s, StreamStage)]
        ),
    ],
)
def test_an_item_whose_key_function_raises_has_failed(stage: Callable[[Any], Any], endless: bool) -> None:
    p = Pipeline()
    stream: Any = p.read_from(stream_of(NUMBERS)).with_timestamps(int) if endless else None
    made = (
        stage(stream or p.read_from(items_source("items", NUMBERS)))
        .set_name("by-key")
        .on_error(send_to=list_sink("bad"))
    )
    made.write_to(list_sink("out"))
    lists = run(p)
    assert sorted(lists["out"]) == [x for x in NUMBERS if x % 5 != 3]
    assert sorted(bad.item for bad in lists["bad"]) == [x for x in NUMBERS if x % 5 == 3]


def test_failed_pairs_of_a_stream_join_go_to_the_sink() -> None:
    p = Pipeline()
    s = p.read_from(stream_of([(x, x) for x in NUMBERS])).with_timestamps(itemgetter(0))
    joined = s.join(s, itemgetter(1), itemgetter(1), lambda a, b: fussy(a[1]), within=1)
    joined.on_error(send_to=list_sink("bad")).write_to(list_sink("out"))
    lists = run(p)
    assert (len(lists["out"]), len(lists["bad"])) == (16, 4)


def test_wrong_uses_are_refused() -> None:
    s = Pipeline().read_from(items_source("items", NUMBERS))
    with pytest.raises(PlanError, match=r"stage 'items' calls no function"):
        s.on_error("skip")
    mapped = s.map(fussy)
    with pytest.raises(TypeError, match=r'expected "skip" or send_to=sink'):
        mapped.on_error("drop")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r'either "skip" or send_to'):
        mapped.on_error("skip", send_to=sinks.noop())
    with pytest.raises(TypeError, match=r'either "skip" or send_to'):
        mapped.on_error(send_to=5)  # type: ignore[arg-type]
    mapped.on_error("skip")
    with pytest.raises(PlanError, match="has been said before"):
        mapped.on_error("skip")


def test_results_have_to_go_somewhere_too() -> None:
    s = Pipeline().read_from(items_source("items", NUMBERS)).map(fussy).on_error(send_to=sinks.noop())
    with pytest.raises(PlanError, match=r"nothing attached to them: map"):
        s.pipeline.to_dag()


def test_spark_refuses_what_it_cannot_do() -> None:
    def refusal(p: Pipeline) -> str:
        with pytest.raises(PlanError) as caught:
            translate(p.nodes, JobConfig())
        return str(caught.value)

    p = Pipeline()
    p.read_from(items_source("items", NUMBERS)).map(fussy).on_error(send_to=sinks.noop()).write_to(sinks.noop())
    assert "map: on_error(send_to=...) cannot be run on Spark" in refusal(p)
    p = Pipeline()
    p.read_from(stream_of(NUMBERS)).with_timestamps(int).window(tumbling(1)).aggregate(to_list()).write_to(sinks.noop())
    assert "events: an endless source cannot be run on Spark, only what is bounded" in refusal(p)
    p = Pipeline()
    p.read_from(items_source("items", NUMBERS)).map_using_map("m", None, max).write_to(sinks.noop())
    assert "map_using_map cannot be run on Spark" in refusal(p)
