"""Which columns later stages look at, and that leaving the others out changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shmjet import Batch, ShmjetError, column, sinks, sources
from shmjet.columns import count, custom, sum_
from shmjet.pipeline import BatchStage, Pipeline
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.column_needs import known_names, needed_names
from shmjet.pipeline.planner.pruning import pruned
from tests.pipeline.running import results_of

Stage = BatchStage[Any]


def needed_columns(nodes: Any) -> Any:
    return needed_names(nodes, known_names(nodes))


def kept(pipeline: Pipeline) -> list[tuple[str, list[str]]]:
    """Return the stages before which columns are left out, and the kept columns."""
    nodes = pruned(pipeline.nodes)
    found = [(node, nodes[node.upstream[0]]) for node in nodes if isinstance(node.transform, t.Only)]
    return [(node.name.removesuffix("-columns"), sorted(node.transform.names)) for node, _ in found]


CASES: dict[str, tuple[Callable[[Stage], Stage], set[str] | None]] = {
    "everything": (lambda s: s, None),
    "select": (lambda s: s.select("a", b=column("c") + column("d")), {"a", "c", "d"}),
    "with_columns": (lambda s: s.with_columns(b=column("c") * 2).select("a", "b"), {"a", "c"}),
    "with_columns alone": (lambda s: s.with_columns(b=column("c") * 2), None),
    "in place": (lambda s: s.with_columns(b=column("b") * 2).select("b"), {"b"}),
    "filter": (lambda s: s.filter(column("x") > column("y")).select("a"), {"a", "x", "y"}),
    "group_by": (lambda s: s.group_by("k").agg(t=sum_(column("a") * column("b")), n=count("c")), {"k", "a", "b", "c"}),
    "rows of groups": (lambda s: s.group_by("k").agg(t=custom(lambda rows: rows.num_rows)), None),
    "sort": (lambda s: s.sort("k").select("a"), {"a", "k"}),
    "top": (lambda s: s.top(3, ["k", "l"]).select("a"), {"a", "k", "l"}),
    "distinct": (lambda s: s.distinct("k").select("a"), {"a", "k"}),
    "distinct rows": (lambda s: s.distinct().select("a"), None),
    "functions": (lambda s: s.map(lambda row: row).select("a"), None),
    "rebalance": (lambda s: s.rebalance("k").select("a"), {"a", "k"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_source_is_asked_for_what_is_looked_at(name: str) -> None:
    build, expected = CASES[name]
    pipeline = Pipeline()
    source = pipeline.read_from(sources.items([]))
    build(source).write_to(sinks.noop())
    assert needed_columns(pipeline.nodes)[source.node_id] == expected


def test_both_sides_of_a_join_are_asked_where_their_names_are_known() -> None:
    pipeline = Pipeline()
    left, right = (pipeline.read_from(sources.items([])) for _ in range(2))
    named = left.select("k", "a", "b", "c"), right.select("r", "b", "d")
    joined = named[0].join(named[1], left_on="k", right_on="r", suffix="_r")
    joined.select("a", "b_r").write_to(sinks.noop())
    needed = needed_columns(pipeline.nodes)
    assert needed[named[0].node_id] == {"a", "b", "k"}
    assert needed[named[1].node_id] == {"b", "r"}
    assert kept(pipeline) == [("join", ["a", "b", "k"]), ("join", ["b", "r"])]


@pytest.mark.parametrize("names", ["known", "unknown"])
def test_a_name_on_both_sides_of_a_join_is_found_though_no_stage_reads_it(names: str) -> None:
    left, right = Batch({"k": [1], "a": [2], "x": [3]}), Batch({"k": [1], "b": [4], "x": [5]})

    def build(pipeline: Pipeline) -> Stage:
        stages = [pipeline.read_from(sources.items([each])) for each in (left, right)]
        if names == "known":
            stages = [stages[0].select("k", "a", "x"), stages[1].select("k", "b", "x")]
        return stages[0].join(stages[1], "k").select("a", "b")

    with pytest.raises(ShmjetError, match="both sides of the join have a column 'x'"):
        results_of(build)


BUILDS: dict[str, Callable[[Stage], Stage]] = {
    "sort": lambda s: s.sort("k", "a").select("k", "a"),
    "top": lambda s: s.top(3, ["k", "a"]).select("k", "a"),
    "distinct": lambda s: s.distinct("k").select("k"),
    "union": lambda s: s.union(s.select("c", "b", "a", "k")).select("k", "a"),
    "join": lambda s: s.join(s.select("k", "a").sort("a"), "k", suffix="_r").select("k", "a_r"),
    "join after join": lambda s: (
        s.join(s.select("k", d="b"), "k").join(s, "k", suffix="_r").group_by("d").agg(n=count())
    ),
    "semi": lambda s: s.join(s.filter(column("c") > 2), "k", how="semi").select("k", "a"),
}


@pytest.mark.parametrize("name", BUILDS)
def test_columns_are_left_out_before_rows_move_and_nothing_changes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Batch({"k": [3, 1, 2, 1], "a": [1.5, None, 2.5, 0.5], "b": ["x", "y", None, "z"], "c": [1, 2, 3, 4]})

    def built(pipeline: Pipeline) -> Stage:
        return BUILDS[name](pipeline.read_from(sources.items([rows, rows[2:]])).select("k", "a", "b", "c"))

    pipeline = Pipeline()
    built(pipeline).write_to(sinks.noop())
    assert kept(pipeline)
    assert ": no later stage reads other columns" in pipeline.explain()
    found = [row for batch in results_of(built) for row in batch.rows()]
    monkeypatch.setattr("shmjet.pipeline.planner.pruned", tuple)
    expected = [row for batch in results_of(built) for row in batch.rows()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_all_branches_are_asked() -> None:
    pipeline = Pipeline()
    source = pipeline.read_from(sources.items([]))
    source.select("a").write_to(sinks.noop())
    source.join(source.select("b"), "b", how="semi").select("c").write_to(sinks.noop())
    assert needed_columns(pipeline.nodes)[source.node_id] == {"a", "b", "c"}
