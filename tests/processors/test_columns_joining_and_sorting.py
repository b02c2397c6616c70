from __future__ import annotations

import gc
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import DAG, JobConfig, between, column, columns, from_, processors
from shmjet.columns.join import HashJoin
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError, ProcessorError
from shmjet.processors.columns import sort_batches
from shmjet.testing import verify_processor
from tests.execution.harness import LocalRun

from .driving import Driver, processors_of

VISITS = [
    Batch({"city": ["Oslo", "Bonn"], "n": [1, 2]}),
    Batch({"city": ["Rome", None], "n": [3, 4]}),
    Batch({"city": ["Oslo"], "n": [5]}),
]
CITIES = [
    Batch({"city": ["Rome"], "country": ["it"]}),
    Batch({"city": ["Oslo", "Rome", None], "country": ["no", "us", "??"]}),
]
ROWS = st.lists(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abc")), max_size=40), max_size=12)


def batches_of(rows: list[list[tuple[int, str]]]) -> list[Batch]:
    whole = Batch.from_rows([(0, "a"), *(row for some in rows for row in some)], ["k", "t"])
    edges = np.cumsum([1, *map(len, rows)]).tolist()
    return [whole[a:b] for a, b in pairwise(edges)]


def rows_of(batches: list[Any]) -> list[tuple[Any, ...]]:
    return [row for batch in batches for row in batch.tuples()]


def test_batches_are_sorted_as_one() -> None:
    supplier = processors.sort_batches(["city", "n"], descending=[False, True])
    expected = Batch({"city": ["Bonn", "Oslo", "Oslo", "Rome", None], "n": [2, 5, 1, 3, 4]})
    verify_processor(supplier).inputs(VISITS).expect([expected])
    first = Batch({"city": [None, "Bonn"], "n": [4, 2]})
    verify_processor(processors.sort_batches("city", nulls_first=True, limit=2)).inputs(VISITS).expect([first])
    verify_processor(processors.sort_batches("city")).inputs([]).expect([])


@given(rows=ROWS, limit=st.none() | st.integers(0, 50), descending=st.booleans(), size=st.integers(1, 20))
def test_sorting_in_runs_gives_what_sorted_gives(
    rows: list[list[tuple[int, str]]], limit: int | None, descending: bool, size: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sort_batches, "RUN_ROWS", 16)
        supplier = processors.sort_batches("k", descending=descending, limit=limit, batch_rows=size)
        driver = Driver(processors_of(supplier)[0], room=3)
        for batch in batches_of(rows):
            driver.feed([batch])
        everything = [row for some in rows for row in some]
        expected = sorted(everything, key=lambda row: row[0], reverse=descending)
        assert rows_of(driver.complete()) == expected[:limit]
        assert all(0 < batch.num_rows <= max(size, 64 * len(rows)) for batch in driver.output)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("Oslo", 1, "no"), ("Rome", 3, "it"), ("Rome", 3, "us"), ("Oslo", 5, "no")]),
        (
            "left",
            [
                ("Oslo", 1, "no"),
                ("Bonn", 2, None),
                ("Rome", 3, "it"),
                ("Rome", 3, "us"),
                (None, 4, None),
                ("Oslo", 5, "no"),
            ],
        ),
        ("semi", [("Oslo", 1), ("Rome", 3), ("Oslo", 5)]),
        ("anti", [("Bonn", 2), (None, 4)]),
    ],
)
def test_batches_are_joined(how: str, expected: list[Any]) -> None:
    supplier = processors.hash_join_batches("city", how=how)
    check = verify_processor(supplier).inputs(VISITS, CITIES).priorities(0, -1)
    check.output_checker(lambda wanted, got: rows_of(wanted) == rows_of(got))
    check.expect([Batch.from_rows(expected, ["city", "n", "country"][: len(expected[0])])])


@given(probe=ROWS, build=ROWS, size=st.integers(1, 50))
def test_a_join_in_steps_gives_what_a_dict_gives(probe: Any, build: Any, size: int) -> None:
    supplier = processors.hash_join_batches("k", suffix="_build", batch_rows=size)
    driver = Driver(processors_of(supplier)[0], room=2)
    for batch in batches_of(build):
        driver.feed([batch], ordinal=1)
    driver.until_true(driver.processor.complete_edge, 1)
    for batch in batches_of(probe):
        driver.feed([batch])
    table: dict[int, list[str]] = {}
    for key, text in (row for some in build for row in some):
        table.setdefault(key, []).append(text)
    everything = [row for some in probe for row in some]
    assert rows_of(driver.complete()) == [
        (key, text, other) for key, text in everything for other in table.get(key, [])
    ]
    assert all(0 < batch.num_rows <= size for batch in driver.output)


def test_a_stream_that_comes_before_the_table_is_whole_is_an_error_with_the_remedy() -> None:
    driver = Driver(processors_of(processors.hash_join_batches("city"))[0])
    driver.feed(CITIES, ordinal=1)
    with pytest.raises(ProcessorError, match=r"edge 1 was complete.*priority\(-1\)"):
        driver.feed(VISITS)


def test_what_does_not_fit_is_an_error_that_names_it() -> None:
    driver = Driver(processors_of(processors.hash_join_batches("city"))[0])
    with pytest.raises(BatchError, match="hash_join_batches expected a Batch, got int"):
        driver.feed([1], ordinal=1)
    with pytest.raises(BatchError, match=r"^there is no column 'city'"):
        driver.feed([Batch({"n": [1]})], ordinal=1)
    driver = Driver(processors_of(processors.sort_batches("n"))[0])
    driver.feed(VISITS)
    with pytest.raises(BatchError, match=r"^batches of different columns"):
        driver.feed([Batch({"n": [1]})])
    with pytest.raises(ProcessorError, match="items arrived on edge 2"):
        Driver(processors_of(processors.hash_join_batches("city"))[0]).feed(VISITS, ordinal=2)


@pytest.mark.parametrize("memory_limit", [1, 30_000, 10_000_000])
def test_batches_that_memory_has_no_room_for_lie_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_limit: int
) -> None:
    monkeypatch.setattr(sort_batches, "RUN_ROWS", 500)
    rng = np.random.default_rng(5)
    texts = [None if n % 7 == 0 else f"text {n} ä" for n in range(200)]
    batches = [
        Batch({"n": rng.integers(0, 1000, 300), "t": [texts[k] for k in rng.integers(0, 200, 300)]}) for _ in range(20)
    ]
    config = JobConfig(memory_limit=memory_limit, spill_folder=str(tmp_path))
    driver = Driver(processors_of(processors.sort_batches(["n", "t"]))[0], config=config)
    before = len(os.listdir("/proc/self/fd"))
    driver.feed(batches)
    assert (len(os.listdir("/proc/self/fd")) > before) == (memory_limit < 10_000_000)
    assert list(tmp_path.iterdir()) == []
    found = Batch.concat(driver.complete())
    driver.processor.close()
    del driver  # with what is mapped
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
    rows = list(Batch.concat(batches).rows())
    expected = sorted(rows, key=lambda row: (row["n"], row["t"] is None, row["t"] or ""))
    assert list(found.rows()) == expected


def test_a_folder_without_room_for_batches_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sort_batches, "RUN_ROWS", 1)
    config = JobConfig(memory_limit=1, spill_folder="/not/there")
    driver = Driver(processors_of(processors.sort_batches("n"))[0], config=config)
    with pytest.raises(OSError, match=r"sort_batches could not make a file in '/not/there'.*raise memory_limit"):
        driver.feed([Batch({"n": [1, 2]})])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="how must be one of inner, left, right, outer, semi, anti, got 'cross'"):
        processors.hash_join_batches("k", how="cross")
    for on in ([], {}):
        with pytest.raises(BatchError, match="on needs the name of at least 1 column, got none"):
            processors.hash_join_batches(on)
    for twice in (["a", "a"], {"a": "c", "b": "c"}):
        with pytest.raises(BatchError, match="is there twice"):
            processors.hash_join_batches(twice)
    with pytest.raises(ValueError, match="batch_rows must be at least 1"):
        processors.hash_join_batches("k", batch_rows=0)
    with pytest.raises(BatchError, match="column 'v' must be a numpy dtype"):
        processors.hash_join_batches("k", build_schema={"v": "no type"})
    with pytest.raises(BatchError, match="by: column 'a' is there twice"):
        processors.sort_batches(["a", "a"])
    with pytest.raises(BatchError, match="2 flags for the columns"):
        processors.sort_batches("a", descending=[True, False])
    with pytest.raises(ValueError, match="limit must be a number of rows from 0 on, got -1"):
        processors.sort_batches("a", limit=-1)
    with pytest.raises(ValueError, match=r"batch_rows must be at least 1 .* got 0"):
        processors.sort_batches("a", batch_rows=0)


def test_keys_are_named_as_for_edges_too() -> None:
    joined = processors.hash_join_batches(columns("city"), how="left", build_schema={"city": str, "n": "i4"})
    expected = [Batch({"city": ["Oslo"], "n": np.ma.masked_all(1, "i4")})]
    verify_processor(joined).inputs([Batch({"city": ["Oslo"]})], []).priorities(0, -1).expect(expected)
    sorted_ = processors.sort_batches(columns("a", "b"))
    verify_processor(sorted_).inputs([Batch({"a": [2, 1], "b": [1, 2]})]).expect([Batch({"a": [1, 2], "b": [2, 1]})])


def joined_by_key(how: str, probe: list[Batch], build: list[Batch], workers: int, parallelism: int) -> list[Batch]:
    dag = DAG()
    one = dag.new_vertex("probe", processors.read_items(probe), 1)
    other = dag.new_vertex("build", processors.read_items(build), 1)
    join = dag.new_vertex("join", processors.hash_join_batches("k", how=how), parallelism)
    sink = dag.new_vertex("sink", processors.write_list("out"), 1)
    dag.edge(from_(one).to(join, 0).partitioned(column("k")))
    dag.edge(from_(other).to(join, 1).partitioned(column("k")).priority(-1)).edge(between(join, sink))
    return LocalRun(dag, workers).run().grid.lists.get("out", [])


@pytest.mark.parametrize(
    "build",
    [
        [Batch({"k": [1], "b": ["x"]})],
        [Batch({"k": [1], "b": [None]}), Batch({"k": [2.0], "b": ["x"]}), Batch({"k": [None], "b": [None]})],
        [Batch({"k": [1], "b": [1]}), Batch({"k": [2], "b": [0.5]}), Batch({"k": [2], "b": [True]})],
        [Batch({"k": np.zeros(0, np.int64), "b": np.zeros(0, np.int8)})],
        [],
    ],
)
@pytest.mark.parametrize("how", ["left", "inner", "semi", "anti"])
def test_a_join_by_key_gives_batches_of_one_schema(how: str, build: list[Batch]) -> None:
    probe = [Batch({"k": [1, 2, 3], "a": [1, 2, 3]}), Batch({"k": [4, 5, None], "a": [4, 5, 6]})]
    outcomes = set()
    for workers, parallelism in ((1, 1), (2, 2), (4, 8)):
        found = joined_by_key(how, probe, build, workers, parallelism)
        assert len({str(batch.schema) for batch in found}) <= 1
        rows = sorted(map(repr, Batch.concat(found).tuples())) if found else []
        outcomes.add((str(found[0].schema) if found else "", str(rows)))
    assert len(outcomes) == 1, outcomes


def test_a_build_side_of_several_dtypes_has_those_that_hold_all() -> None:
    days = np.array(["1969-12-31", "2024-02-29"], "M8[D]")
    build = [
        Batch({"k": [1], "d": days[:1], "n": np.array([1], np.int8)}),
        Batch({"k": [2], "d": days[1:].astype("M8[s]"), "n": [None]}),
        Batch({"k": [2**63], "d": days[:1], "n": np.array([2.5])}),
    ]
    join = HashJoin(build, on="k")
    (found,) = join.left(Batch({"k": np.array([2**63, 2, 1, 0], np.uint64)}))
    assert found.schema == {"k": np.dtype("u8"), "d": np.dtype("M8[s]"), "n": np.dtype(float)}
    assert found.to_dict()["n"] == [2.5, None, 1.0, None]
    with pytest.raises(BatchError, match=r"column 'd' has values of numbers and of text, which no column holds"):
        HashJoin([Batch({"k": [1], "d": [1]}), Batch({"k": [1], "d": ["x"]})], on="k")


@pytest.mark.parametrize("cuts", [[2], [1, 1], [1]])
def test_sorted_batches_have_the_dtypes_that_hold_all(cuts: list[int]) -> None:
    columns: list[list[Any]] = [[3, 1], [2.5, None], [True, 2], [None, None]]
    driver = Driver(processors_of(processors.sort_batches("v"))[0])
    for values in columns:
        at = 0
        for cut in (*cuts, 2):
            if values[at : at + cut]:
                driver.feed([Batch({"v": values[at : at + cut]})])
            at += cut
    found = Batch.concat(driver.complete())
    assert found.schema == {"v": np.dtype(float)}
    assert found.to_dict() == {"v": [1.0, 1.0, 2.0, 2.5, 3.0, None, None, None]}


@pytest.mark.parametrize("limit", [None, 2])
def test_a_sort_may_meet_the_float_that_integers_of_both_signs_need_at_last(
    limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sort_batches, "RUN_ROWS", 2)
    values: list[Any] = [2**63, -1, 5, 0.5]
    batches = [Batch({"n": [value]}) for value in values]
    sorting = processors.sort_batches("n", limit=limit)
    verify_processor(sorting).inputs(batches).expect([Batch({"n": sorted(map(float, values))[:limit]})])
    with pytest.raises(BatchError, match="has -1 as well as integers of uint64"):
        verify_processor(sorting).inputs(batches[:3]).expect([])
