"""Joins of streams and tables: equal to joins with dicts, however their inputs lie."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import column
from shmjet.core.edge import Routing
from shmjet.pipeline import BatchStage, Pipeline, SourceDef, Table
from shmjet.processors import counting
from tests.examples import examples
from tests.execution.harness import LocalRun
from tests.pipeline.partitioned import partitioned, scattered, sink

Pair = tuple[int, str]


def first(pair: Pair) -> int:
    return pair[0]


def ran(pipeline: Pipeline, workers: int = 2, **options: Any) -> Counter[Any]:
    return Counter(LocalRun(pipeline.to_dag(), workers, **options).run().grid.get_list("out"))


def dict_join(left: list[Pair], right: list[Pair]) -> Counter[tuple[Pair, Pair]]:
    by_key = defaultdict(list)
    for item in right:
        by_key[item[0]].append(item)
    return Counter((item, match) for item in left for match in by_key[item[0]])


pairs = st.lists(st.tuples(st.integers(0, 6), st.text("ab", max_size=1)), max_size=30)
Input = Callable[[str, list[Pair], Pipeline], BatchStage[Pair]]


def lying(partitions: int, parallelism: int = -1) -> Input:
    return lambda name, items, p: p.read_from(partitioned(name, items, partitions, first, parallelism))


def lying_by_another_key(name: str, items: list[Pair], p: Pipeline) -> BatchStage[Pair]:
    return p.read_from(partitioned(name, items, 4, itemgetter(1)))


INPUTS: dict[str, Input] = {
    "partitioned": lying(4),
    "partitioned on 1": lying(4, 1),
    "partitioned on 3": lying(4, 3),
    "filtered": lambda name, items, p: lying(4)(name, items, p).filter(lambda pair: True),
    "filtered on 2": lambda name, items, p: lying(4)(name, items, p).filter(bool).set_local_parallelism(2),
    "peeked": lambda name, items, p: lying(4)(name, items, p).peek(predicate=lambda pair: False),
    "mapped": lambda name, items, p: lying(4)(name, items, p).map(tuple),
    "merged": lambda name, items, p: lying(4)(name, items[::2], p).merge(lying(4)(name, items[1::2], p)),
    "merged with what lies anyhow": lambda name, items, p: lying(4)(name, items[::2], p).merge(
        p.read_from(scattered(name, items[1::2]))
    ),
    "by another key": lying_by_another_key,
    "anyhow": lambda name, items, p: p.read_from(scattered(name, items)),
    "on one processor": lambda name, items, p: p.read_from(scattered(name, items, 1)),
    "partition_by": lambda name, items, p: p.read_from(scattered(name, items)).partition_by(lambda pair: pair[0]),
    "partition_by, filtered": lambda name, items, p: (
        p.read_from(scattered(name, items)).partition_by(itemgetter(0)).filter(bool)
    ),
    "partition_by another key": lambda name, items, p: p.read_from(scattered(name, items)).partition_by(itemgetter(1)),
    "rebalanced": lambda name, items, p: lying(4)(name, items, p).rebalance(),
    "sorted": lambda name, items, p: lying(4)(name, items, p).sort(),
}
kinds = st.sampled_from(sorted(INPUTS))


@examples(150)
@given(
    left=pairs, right=pairs, kind=st.tuples(kinds, kinds), workers=st.integers(1, 3), own=st.sampled_from([-1, 1, 2])
)
def test_a_join_gives_what_a_dict_gives(
    left: list[Pair], right: list[Pair], kind: tuple[str, str], workers: int, own: int
) -> None:
    p = Pipeline()
    one, other = INPUTS[kind[0]]("left", left, p), INPUTS[kind[1]]("right", right, p)
    one.join(other, first, itemgetter(0)).set_local_parallelism(own).write_to(sink())
    assert ran(p, workers) == dict_join(left, right)


@examples(100)
@given(
    stream=pairs,
    entries=pairs,
    kind=st.tuples(kinds, kinds),
    workers=st.integers(1, 3),
    keyed=st.booleans(),
)
def test_a_table_gives_its_value_for_a_key_or_none(
    stream: list[Pair], entries: list[Pair], kind: tuple[str, str], workers: int, keyed: bool
) -> None:
    """Each key is there once, since of several entries from different processors any may be the last."""
    table = Table("t", side_inputs=(partitioned("side", [], 4, first),), side_key=first)
    p = Pipeline()
    entries = list({pair[0]: pair for pair in entries}.values())
    filling = INPUTS[kind[1]]("filling", entries, p)
    filling.send_to(table, first) if keyed else filling.send_to(table)
    looked_up = INPUTS[kind[0]]("stream", stream, p).join_table(table, first, lambda pair, value: (*pair, value))
    looked_up.write_to(sink())
    values = {pair[0]: pair if keyed else pair[1] for pair in entries}
    assert ran(p, workers) == Counter((*pair, values.get(pair[0])) for pair in stream)


def test_of_several_values_for_a_key_the_last_one_of_a_processor_counts() -> None:
    p, table = Pipeline(), Table("t")
    p.read_from(scattered("entries", [(1, "old"), (1, "new")], 1)).send_to(table)
    p.read_from(scattered("stream", [1, 2])).join_table(table, None, lambda key, value: (key, value)).write_to(sink())
    assert ran(p) == Counter([(1, "new"), (2, None)])


def test_a_result_of_none_is_left_out() -> None:
    p, table = Pipeline(), Table("t")
    entries = p.read_from(scattered("entries", [(1, "a"), (2, "b")]))
    entries.send_to(table)
    stream = p.read_from(scattered("stream", [1, 2, 3]))
    stream.join_table(table, None, lambda key, value: value).write_to(sink())
    stream.join(entries, None, first, lambda key, pair: pair if key == 2 else None).write_to(sink())
    assert ran(p) == Counter(["a", "b", (2, "b")])


def test_a_table_of_side_inputs_alone() -> None:
    side = partitioned("side", [(1, "a"), (2, "b")], 4, first)
    p, table = Pipeline(), Table("t", side_inputs=(side, scattered("other", [(3, "c")])))
    for name in ("one", "two"):
        stream = p.read_from(scattered(name, [1, 3, 5]))
        stream.join_table(table, None, lambda key, value: (key, value)).write_to(sink())
    assert ran(p) == Counter({(1, "a"): 2, (3, "c"): 2, (5, None): 2})


def test_a_stream_may_be_joined_with_itself_and_fill_the_table_it_looks_up() -> None:
    """The fork meets itself with different priorities: without a buffered edge it would wait for itself."""
    p, table = Pipeline(), Table("t")
    items = [(i % 50, str(i)) for i in range(3000)]
    stream = p.read_from(partitioned("items", items, 8, first))
    stream.filter(lambda pair: len(pair[1]) < 3).send_to(table)
    stream.join_table(table, first, lambda pair, value: (pair[0], value is not None)).write_to(sink())
    stream.filter(lambda pair: pair[0] == 7).join(stream, first, first, lambda a, b: "pair").write_to(sink())
    found = ran(p)
    assert found.pop("pair") == 60 * 60
    assert found == Counter((key, True) for key, _ in items)


def test_keys_that_are_equal_meet_whatever_their_type() -> None:
    left = [(1, "int"), (1.0, "float"), (True, "bool"), ("1", "text"), (None, "none"), (2**70, "large")]
    right = [(1, "a"), ("1", "b"), (None, "c"), (float(2**70), "d")]
    p = Pipeline()
    p.read_from(scattered("left", left)).join(p.read_from(partitioned("right", right, 5, first)), first, first).map(
        lambda both: (both[0][1], both[1][1])
    ).write_to(sink())
    assert ran(p) == Counter(
        [("int", "a"), ("float", "a"), ("bool", "a"), ("text", "b"), ("none", "c"), ("large", "d")]
    )


# -- what moves -------------------------------------------------------------------------------------------------------


def routings(p: Pipeline) -> dict[tuple[str, str], str]:
    return {
        (edge.source.name, edge.destination.name): "stays" if edge.routing is Routing.ISOLATED else "moves"
        for edge in p.to_dag().edges
        if edge.destination.name != "out"
    }


def rows(name: str, partitions: int, parallelism: int = -1) -> SourceDef[Any]:
    return partitioned(name, [], partitions, first, parallelism)


def joined(left: SourceDef[Any], right: SourceDef[Any], own: int = -1) -> dict[tuple[str, str], str]:
    p = Pipeline()
    stage = p.read_from(left).join(p.read_from(right), lambda pair: pair[0], itemgetter(0))
    stage.set_local_parallelism(own).write_to(sink())
    return routings(p)


def test_what_is_partitioned_alike_stays() -> None:
    assert joined(rows("a", 8), rows("b", 8)) == {("a", "join"): "stays", ("b", "join"): "stays"}
    assert joined(rows("a", 8, 3), rows("b", 8, 3)) == {("a", "join"): "stays", ("b", "join"): "stays"}


def test_only_the_side_that_must_move_is_moved() -> None:
    assert joined(rows("a", 8), scattered("b", [])) == {("a", "join"): "stays", ("b", "join"): "moves"}
    assert joined(scattered("a", []), rows("b", 8)) == {("a", "join"): "moves", ("b", "join"): "stays"}
    other_key = partitioned("b", [], 8, itemgetter(1))
    assert joined(rows("a", 8), other_key) == {("a", "join"): "stays", ("b", "join"): "moves"}


def test_what_lies_on_another_number_of_processors_moves() -> None:
    assert joined(rows("a", 8), rows("b", 8, 3)) == {("a", "join"): "stays", ("b", "join"): "moves"}
    assert joined(rows("a", 8, 3), rows("b", 8, 3), 2) == {("a", "join"): "moves", ("b", "join"): "moves"}
    assert joined(rows("a", 8, 2), rows("b", 8, 3), 3) == {("a", "join"): "moves", ("b", "join"): "stays"}


def test_streams_made_by_partition_by_move_once() -> None:
    p = Pipeline()
    a = p.read_from(scattered("a", [])).partition_by(itemgetter(0)).filter(bool)
    b = p.read_from(scattered("b", [])).partition_by(lambda pair: pair[0])
    a.join(b, first, first).write_to(sink())
    assert routings(p) == {("a", "filter"): "moves", ("filter", "join"): "stays", ("b", "join"): "moves"}


def test_a_source_that_is_partitioned_by_the_key_of_partition_by_does_not_move_for_it() -> None:
    p = Pipeline()
    a = p.read_from(rows("a", 8)).partition_by(first)
    a.join(p.read_from(rows("b", 8)), first, first).write_to(sink())
    assert routings(p) == {("a", "join"): "stays", ("b", "join"): "stays"}


def test_tables_stay_too() -> None:
    p, table = Pipeline(), Table("t", side_inputs=(rows("side", 8),))
    p.read_from(rows("filling", 8)).filter(bool).send_to(table)
    p.read_from(scattered("entries", [])).send_to(table)
    p.read_from(rows("stream", 8)).join_table(table, first, lambda item, value: item).write_to(sink())
    assert {source: how for (source, _), how in routings(p).items()} == {
        "filling": "stays",
        "filter": "stays",
        "side": "stays",
        "entries": "moves",
        "stream": "stays",
    }


def test_what_is_merged_or_made_rows_of_stays() -> None:
    p = Pipeline()
    merged = p.read_from(rows("a", 8)).merge(p.read_from(rows("b", 8)))
    merged.join(p.read_from(rows("c", 8)), first, first).write_to(sink())
    assert set(routings(p).values()) == {"stays"}

    by_user = partitioned("batches", [], 8, column("user"))
    batches = SourceDef("batches", by_user.supplier, -1, 8, column("user"), columnar=True)
    p = Pipeline()
    left = p.read_from(batches).filter(bool)
    left.join(p.read_from(batches), column("user"), itemgetter("user")).write_to(sink())
    assert set(routings(p).values()) == {"stays"}


def test_results_of_aggregations_by_the_same_key_stay() -> None:
    p = Pipeline()
    one, other = (p.read_from(scattered(n, [])).grouping_key(first).aggregate(counting()) for n in "ab")
    one.join(other, itemgetter(0), itemgetter(0)).write_to(sink())
    into_join = [how for (_, destination), how in routings(p).items() if destination == "join"]
    assert into_join == ["stays", "stays"]
