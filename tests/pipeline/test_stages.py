"""What stages take, what they refuse and in which words, and that a pipeline is plain data."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import cloudpickle
import pytest

import shmjet
from shmjet import sources
from shmjet.aggregate_ops import aggregate_operation2, counting, summing
from shmjet.core import Processor
from shmjet.data.errors import DagError, PlanError
from shmjet.pipeline import BatchStage, Pipeline, ServiceFactory, Table, join_map_entries, on_keys
from shmjet.pipeline import transforms as t
from tests.pipeline.running import items_source, list_sink, results_of, run


@pytest.fixture
def stage() -> BatchStage[int]:
    return Pipeline().read_from(items_source("numbers", [1, 2, 3]))


async def coroutine(service: Any, item: Any) -> Any:
    return item


def test_names_are_those_of_the_methods_and_get_a_number_when_taken(stage: BatchStage[int]) -> None:
    names = [stage.name, stage.map(abs).name, stage.map(abs).name, stage.flat_map(range).name, stage.distinct().name]
    assert names == ["numbers", "map", "map-2", "flat_map", "distinct"]
    keyed = stage.grouping_key(abs)
    assert keyed.aggregate(counting()).name == "aggregate_by_key"
    assert keyed.rolling_aggregate(counting()).name == "rolling_aggregate_by_key"


def test_a_name_and_a_parallelism_can_be_set_in_a_chain_or_later(stage: BatchStage[int]) -> None:
    mapped = stage.map(abs).set_name("sizes").set_local_parallelism(3)
    assert stage.map(abs).set_name("sizes").name == "sizes-2"
    assert mapped.name == "sizes"
    mapped.set_name("sizes").set_local_parallelism(-1)
    node = mapped.pipeline.nodes[mapped.node_id]
    assert (node.name, node.parallelism, node.is_named) == ("sizes", -1, True)


def test_a_stage_keeps_the_name_that_was_set_whatever_others_are_called() -> None:
    pipeline = Pipeline()
    source = pipeline.read_from(sources.builder("b", lambda context: None).fill_buffer_fn(print).build())
    stage = source.map(abs)
    assert stage.set_name("b").name == "b"
    assert source.name == "b-2"
    assert [node.name for node in pipeline.nodes] == ["b-2", "b"]
    assert stage.map(abs).name == "map"
    assert stage.map(abs).set_name("map").name == "map"


def test_a_stage_is_an_immutable_handle(stage: BatchStage[int]) -> None:
    with pytest.raises(AttributeError):
        stage.node_id = 5  # type: ignore[misc]
    before = stage.pipeline.nodes
    stage.map(abs)
    assert stage.pipeline.nodes[: len(before)] == before
    assert stage == BatchStage(stage.pipeline, stage.node_id)
    assert repr(stage) == "<BatchStage 'numbers'>"


@pytest.mark.parametrize("count", [0, -2, 1.5, True])
def test_a_wrong_parallelism_is_refused_by_the_stages_name(stage: BatchStage[int], count: Any) -> None:
    with pytest.raises(PlanError, match="stage 'numbers': local parallelism"):
        stage.set_local_parallelism(count)


def test_a_wrong_name_is_refused(stage: BatchStage[int]) -> None:
    with pytest.raises(PlanError, match=r"stage 'numbers': the name given to set_name\(\) must be a non-empty text"):
        stage.set_name("")
    with pytest.raises(PlanError, match="has characters that UTF-8 has not, got 'caf"):
        stage.set_name("caf\udce9")


def test_a_stage_that_is_named_after_a_file_has_a_name_that_can_be_sent() -> None:
    stage = Pipeline().read_from(sources.files("/data/caf\udce9"))
    assert stage.name == r"files(caf\udce9)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.map(5), "map: expected a function of one item, got int: 5"),
        (
            lambda s: s.filter("x"),
            "filter: expected an expression of bools .*, or a function of one item, got str: 'x'",
        ),
        (
            lambda s: s.flat_map(None),
            "flat_map: expected a function of one item that returns an iterable, got NoneType",
        ),
        (lambda s: s.map(coroutine), r"map: expected a function of one item, got the coroutine function coroutine\(\)"),
        (lambda s: s.map_batches(5), "map_batches: expected a function of one batch, got int"),
        (lambda s: s.map_batches(abs, int), "as_ must be Batch or dict"),
        (lambda s: s.peek(5), "peek: expected a function from item to text, got int"),
        (lambda s: s.peek(str, 5), "peek: expected a predicate of one item, got int"),
        (lambda s: s.map_stateful(5, abs), "map_stateful: expected a function without arguments that makes a state"),
        (lambda s: s.filter_stateful(list, 5), "filter_stateful: expected a function of state, and item"),
        (lambda s: s.grouping_key(5), "grouping_key: expected a function that gives the key of an item.*got int: 5"),
        (lambda s: s.sort(5), "sort: expected a function that gives the key"),
        (lambda s: s.distinct(5), "distinct: expected a function that gives the key"),
        (lambda s: s.rebalance(5), "rebalance: expected a function that gives the key"),
        (lambda s: s.partition_by(5), "partition_by: expected a function that gives the key"),
        (lambda s: s.aggregate(len), "aggregate: expected an AggregateOperation.*got builtin_function_or_method"),
        (
            lambda s: s.aggregate(aggregate_operation2(counting(), counting())),
            "aggregate: 1 input is aggregated, but the operation takes 2",
        ),
        (lambda s: s.aggregate2(s, counting()), "aggregate2: 2 inputs are aggregated, but the operation takes 1"),
        (lambda s: s.aggregate2(s), r"aggregate2: expected 1 stage \(BatchStage\) and an operation of 2 inputs"),
        (lambda s: s.aggregate3(counting(), s, counting()), "aggregate3: expected 2 stages"),
        (lambda s: s.aggregate2(counting(), s.grouping_key(abs), counting()), "got .AggregateOp.*KeyedBatchStage"),
        (
            lambda s: s.map_using_service(5, abs),
            "map_using_service: expected a ServiceFactory or a function.*got int: 5",
        ),
        (lambda s: s.map_using_service(dict, 5), "map_using_service: expected a function of service and item"),
        (lambda s: s.map_using_service(dict, coroutine), "map_using_service: expected .*got the coroutine function"),
        (
            lambda s: s.map_using_service_async(dict, lambda a, b: a),
            "map_using_service_async: expected a coroutine function of service and item, made with `async def`",
        ),
        (lambda s: s.map_using_service_async(dict, coroutine, "4"), "max_concurrent_ops must be an int, got str"),
        (lambda s: s.merge(5), "merge: expected a stage of this pipeline, got int"),
        (lambda s: s.merge(s.write_to(list_sink("x"))), "merge: expected .*got SinkStage.*nothing can follow a sink"),
        (lambda s: s.join(5, None, None), "join: expected a stage of this pipeline, got int"),
        (lambda s: s.join(s, None, None, 5), "join: expected a function of two items, got int"),
        (lambda s: s.hash_join(5), "hash_join: expected a stage to join with and on_keys"),
        (lambda s: s.hash_join(), "hash_join: expected a stage to join with.*got 'nothing'"),
        (lambda s: s.hash_join(s), r"hash_join: expected how <BatchStage 'numbers'> is joined, on_keys\("),
        (lambda s: s.hash_join(s, 5), "hash_join: expected how .* is joined, .*got 5"),
        (lambda s: s.hash_join(s, (None, None), fn=5), "hash_join: expected a function of an item and what matches it"),
        (lambda s: s.hash_join_builder().add(5, (None, None)), r"hash_join_builder.add: expected a stage to join with"),
        (lambda s: s.send_to("t"), r"send_to: expected a Table, such as Table\('profiles'\), got str"),
        (lambda s: s.join_table("t", None, abs), "join_table: expected a Table"),
        (lambda s: s.apply(5), "apply: expected a function of a stage, got int"),
        (lambda s: s.write_to(5), r"write_to: expected a sink \(see shmjet.sinks\), got int: 5"),
        (lambda s: s.pipeline.read_from(5), r"read_from: expected a source \(see shmjet.sources\), got int: 5"),
        (lambda s: s.grouping_key(None).send_to(Table("t")), "send_to: expected a grouping key that is a function"),
    ],
)
def test_a_wrong_argument_is_named_with_its_stage(stage: BatchStage[int], call: Any, message: str) -> None:
    before = len(stage.pipeline.nodes)
    with pytest.raises(TypeError, match=message):
        call(stage)
    assert len([n for n in stage.pipeline.nodes if not isinstance(n.transform, t.Sink)]) == before


def test_what_has_to_be_given_is_asked_for(stage: BatchStage[int]) -> None:
    with pytest.raises(PlanError, match="merge: expected at least one stage to merge with 'numbers', got none"):
        stage.merge()
    with pytest.raises(PlanError, match="write_to: expected at least one stage to write to sink 'x'"):
        stage.pipeline.write_to(list_sink("x"))
    with pytest.raises(PlanError, match=r"hash_join_builder: add\(\) at least one side before build"):
        stage.hash_join_builder().build(lambda item, found: item)
    with pytest.raises(ValueError, match="max_concurrent_ops must be at least 1, got 0"):
        stage.map_using_service_async(dict, coroutine, 0)
    with pytest.raises(PlanError, match="Table: the name must be a non-empty text, got ''"):
        Table("")
    with pytest.raises(TypeError, match="table 't': a side input must be a source"):
        Table("t", side_inputs=(5,))  # type: ignore[arg-type]
    with pytest.raises(DagError, match="vertex 'mine'"):
        stage.custom_transform("mine", 5)


def test_stages_of_two_pipelines_cannot_meet(stage: BatchStage[int]) -> None:
    other = Pipeline().read_from(items_source("others", []))
    for call in (
        lambda: stage.merge(other),
        lambda: stage.join(other, None, None),
        lambda: stage.hash_join(other, (None, None)),
        lambda: stage.pipeline.write_to(list_sink("x"), other),
    ):
        with pytest.raises(PlanError, match="stage 'others' belongs to another pipeline"):
            call()


def test_stages_with_nothing_attached_are_named(stage: BatchStage[int]) -> None:
    stage.map(abs).write_to(list_sink("out"))
    stage.filter(abs).set_name("kept")
    stage.flat_map(range)
    with pytest.raises(PlanError, match=r"^These transforms have nothing attached to them: kept, flat_map; write"):
        stage.pipeline.to_dag()


def test_an_empty_pipeline_says_so() -> None:
    pipeline = Pipeline()
    assert pipeline.is_empty
    with pytest.raises(PlanError, match=r"the pipeline is empty; begin with read_from\(source\)"):
        pipeline.to_dag()
    pipeline.read_from(items_source("x", []))
    assert not pipeline.is_empty


def test_tables_have_to_be_filled_and_joined_and_cannot_feed_themselves(stage: BatchStage[int]) -> None:
    stage.join_table(Table("users"), None, lambda a, b: a).write_to(list_sink("out"))
    with pytest.raises(PlanError, match=r"join_table\(users\): unknown table 'users'.*tables: none"):
        stage.pipeline.to_dag()
    stage.send_to(Table("visits"), abs)
    stage.send_to(Table("users"), abs)
    with pytest.raises(PlanError, match=r"nothing attached to them: send_to\(visits\); no stage says join_table"):
        stage.pipeline.to_dag()


def test_what_is_joined_with_a_table_cannot_be_sent_to_it(stage: BatchStage[int]) -> None:
    table = Table("seen")
    joined = stage.join_table(table, None, lambda item, value: item)
    joined.write_to(list_sink("out"))
    joined.send_to(table, abs)
    with pytest.raises(PlanError, match=r"join_table\(seen\): on bounded data a table is complete before it is joined"):
        stage.pipeline.to_dag()


def test_streams_that_disagree_are_named_even_where_a_table_closes_a_cycle() -> None:
    pipeline, table = Pipeline(), Table("seen")
    profiles = shmjet.sources.items([(1, 1)], partitions=8, key=itemgetter(0))
    views = shmjet.sources.items([(1, 1)], partitions=4, key=itemgetter(0))
    pipeline.read_from(profiles).set_name("profiles").send_to(table)
    joined = pipeline.read_from(views).set_name("views").join_table(table, itemgetter(0), max).set_name("lookup")
    joined.send_to(table)
    with pytest.raises(PlanError, match="join 'lookup': stream 'profiles' has 8 partitions, but stream 'views' has 4"):
        pipeline.to_dag()


def test_side_inputs_fill_a_table_once() -> None:
    names = items_source("names", [(1, "a"), (2, "b")])
    table = Table("names", side_inputs=(names,))
    pipeline = Pipeline()
    numbers = pipeline.read_from(items_source("numbers", [1, 2, 3]))
    joined = numbers.join_table(table, None, lambda item, name: (item, name))
    joined.join_table(table, itemgetter(0), lambda item, name: (*item, name)).write_to(list_sink("out"))
    assert sorted(run(pipeline)["out"]) == [(1, "a", "a"), (2, "b", "b"), (3, None, None)]
    assert [node.name for node in pipeline.nodes].count("names") == 1


def test_a_table_may_be_filled_from_a_key_of_its_items() -> None:
    def build(pipeline: Pipeline) -> BatchStage[Any]:
        users = pipeline.read_from(items_source("users", [{"id": 1, "name": "a"}]))
        users.grouping_key(itemgetter("id")).send_to(Table("users"))
        visits = pipeline.read_from(items_source("visits", [1, 2]))
        return visits.grouping_key(lambda x: x).join_table(Table("users"), lambda visit, user: (visit, user))

    assert sorted(results_of(build), key=str) == [(1, {"id": 1, "name": "a"}), (2, None)]


def pairs(pipeline: Pipeline, name: str = "pairs") -> BatchStage[tuple[int, str]]:
    return pipeline.read_from(items_source(name, [(1, "a"), (1, "b"), (2, "c")]))


def numbers(pipeline: Pipeline) -> BatchStage[int]:
    return pipeline.read_from(items_source("numbers", [1, 3]))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda n, p: n.hash_join(p, on_keys(None, itemgetter(0))), [(1, (1, "a")), (1, (1, "b")), (3, None)]),
        (lambda n, p: n.hash_join(p, (None, itemgetter(0)), lambda x, m: m and m[1]), ["a", "b"]),
        (lambda n, p: n.hash_join(p, None, itemgetter(0), lambda x, m: m and m[1]), ["a", "b"]),
        (lambda n, p: n.hash_join(p, None, itemgetter(0), fn=lambda x, m: m and m[1]), ["a", "b"]),
        (lambda n, p: n.hash_join(p, join_map_entries(None), lambda x, m: m), ["a", "b"]),
        (lambda n, p: n.inner_hash_join(p, join_map_entries(None)), [(1, "a"), (1, "b")]),
        (
            lambda n, p: n.hash_join(p, on_keys(None, itemgetter(0)).projecting(len), lambda x, m: m),
            [2, 2],
        ),
        (
            lambda n, p: n.hash_join(p, join_map_entries(None), n, (None, None), lambda x, a, b: (x, a, b)),
            [(1, "a", 1), (1, "b", 1), (3, None, 3)],
        ),
        (lambda n, p: n.join(p, None, itemgetter(0)), [(1, (1, "a")), (1, (1, "b"))]),
        (lambda n, p: p.join(n, itemgetter(0), None, lambda a, b: None if a[1] == "a" else a[1]), ["b"]),
        (lambda n, p: n.merge(n, p.map(itemgetter(0))), [1, 1, 1, 1, 2, 3, 3]),
        (lambda n, p: n.aggregate3(counting(), p, counting(), n, summing()), [(2, 3, 4)]),
        (lambda n, p: n.aggregate2(p, aggregate_operation2(counting(), counting())), [(2, 3)]),
        (
            lambda n, p: n.grouping_key(lambda x: x).aggregate3(
                counting(), p.grouping_key(itemgetter(0)), counting(), n.grouping_key(None), counting()
            ),
            [(1, (1, 2, 1)), (2, (0, 1, 0)), (3, (1, 0, 1))],
        ),
    ],
)
def test_joins_and_aggregations_of_several_stages(build: Any, expected: list[Any]) -> None:
    def both(pipeline: Pipeline) -> BatchStage[Any]:
        return build(numbers(pipeline), pairs(pipeline))

    assert sorted(results_of(both, 2), key=str) == sorted(expected, key=str)


def test_builders_give_results_by_tag() -> None:
    def build(pipeline: Pipeline) -> BatchStage[Any]:
        n, p = numbers(pipeline), pairs(pipeline)
        builder = n.aggregate_builder(counting())
        total = builder.add(n, summing())
        rows = builder.add(p, counting())
        return builder.build().map(lambda results: (results[builder.tag0], results[total], results[rows]))

    assert results_of(build) == [(2, 4, 3)]
    with pytest.raises(TypeError, match=r"aggregate_builder.add: expected a BatchStage like the first one"):
        numbers(pipeline := Pipeline()).aggregate_builder(counting()).add(
            numbers(pipeline).grouping_key(abs), counting()
        )


class Doubling(Processor):
    def process(self, ordinal: int, inbox: Any) -> None:
        while inbox and self.outbox.offer(inbox.peek() * 2):
            inbox.remove()


def test_a_custom_processor_and_apply() -> None:
    found = results_of(lambda p: numbers(p).custom_transform("double", Doubling).apply(lambda s: s.map(lambda x: -x)))
    assert sorted(found) == [-6, -2]


def test_a_pipeline_is_plain_data_and_can_be_pickled() -> None:
    pipeline = Pipeline()
    numbers(pipeline).map(lambda x: x + 1).sort().write_to(list_sink("out"))
    copy = cloudpickle.loads(cloudpickle.dumps(pipeline))
    assert [node.name for node in copy.nodes] == [node.name for node in pipeline.nodes]
    assert run(copy) == run(pipeline) == {"out": [2, 4]}
    assert repr(pipeline) == "<Pipeline of 4 stages: numbers map sort out>"


def test_one_sink_takes_several_stages() -> None:
    pipeline = Pipeline()
    n = numbers(pipeline)
    pipeline.write_to(list_sink("out"), n, n.map(lambda x: x * 10))
    assert sorted(run(pipeline)["out"]) == [1, 3, 10, 30]


def test_public_names_come_from_the_package() -> None:
    assert shmjet.Pipeline is Pipeline
    assert shmjet.Table is Table
    assert shmjet.ServiceFactory is ServiceFactory
    assert shmjet.on_keys is on_keys


def test_a_sort_is_kept_by_what_follows_item_by_item() -> None:
    def build(pipeline: Pipeline) -> BatchStage[Any]:
        shuffled = pipeline.read_from(items_source("numbers", [(i * 37) % 101 for i in range(500)], 3))
        return shuffled.sort(reverse=True).map(lambda x: x + 1).filter(lambda x: x % 2).peek(predicate=lambda x: False)

    expected = [x for x in sorted(((i * 37) % 101 + 1 for i in range(500)), reverse=True) if x % 2]
    assert results_of(build, 3) == expected
