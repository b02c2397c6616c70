"""Window processors in jobs: over rings, between workers."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter, itemgetter
from typing import Any

import pytest

import shmjet
from shmjet import DAG, KeyedWindowResult, between, processors, sliding
from shmjet.aggregate_ops import all_of, averaging, counting, max_by
from shmjet.core.event_time import EventTimePolicy

TIME, KEY = itemgetter(0), itemgetter(1)


@pytest.fixture(scope="module")
def jet() -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(shmjet.JetConfig(cores=2)) as instance:
        yield instance


def events(count: int) -> list[tuple[int, str, int]]:
    return [(n * 7 % 50 + n // 50 * 50, f"user{n * 31 % 11}", n) for n in range(count)]


def expected(items: list[Any], size: int, slide: int, op: Any) -> dict[tuple[int, int, str], Any]:
    """Return the results of all windows, by window and key."""
    windows: dict[tuple[int, int, str], list[Any]] = {}
    for item in items:
        end = item[0] - item[0] % slide + slide
        while end - size <= item[0]:
            windows.setdefault((end - size, end, item[1]), []).append(item)
            end += slide
    return {where: op.aggregate(inside) for where, inside in windows.items()}


@pytest.mark.parametrize("stages", [1, 2])
def test_windows_of_a_job_are_those_of_its_events(jet: shmjet.JetInstance, stages: int) -> None:
    items, window = events(5_000), sliding(0.3, 0.1)
    op = all_of(counting(), averaging(itemgetter(2)), max_by(itemgetter(2)))
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(items), local_parallelism=1)
    policy = EventTimePolicy(timestamp_fn=TIME, allowed_lag=100, stride=100, timed=False)
    marks = dag.new_vertex("marks", processors.insert_watermarks(policy), local_parallelism=1)
    out = dag.new_vertex("out", processors.write_list(f"windows{stages}"))
    dag.edge(between(source, marks).isolated())
    if stages == 1:
        last = dag.new_vertex("window", processors.aggregate_to_sliding_window(KEY, TIME, window, op))
        dag.edge(between(marks, last).partitioned(KEY))
    else:
        first = dag.new_vertex("frames", processors.accumulate_by_frame(KEY, TIME, window, op))
        last = dag.new_vertex("window", processors.combine_to_sliding_window(window, op))
        dag.edge(between(marks, first)).edge(between(first, last).partitioned(attrgetter("key")))
    dag.edge(between(last, out))
    jet.new_job(dag).execute().result(60)
    results = list(jet.get_list(f"windows{stages}"))
    assert {type(result) for result in results} == {KeyedWindowResult}
    found = {(result.start, result.end, result.key): result.result for result in results}
    assert len(found) == len(results)
    assert found == expected(items, 300, 100, op)


@pytest.mark.parametrize("late_ordinal", [None, 1])
def test_late_events_are_counted_or_have_an_edge(jet: shmjet.JetInstance, late_ordinal: int | None) -> None:
    items = [(n, "a", n) for n in range(0, 1_000, 10)] + [(5, "b", 0), (995, "a", 0)]
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(items), local_parallelism=1)
    policy = EventTimePolicy(timestamp_fn=TIME, stride=100, timed=False)
    marks = dag.new_vertex("marks", processors.insert_watermarks(policy), local_parallelism=1)
    supplier = processors.aggregate_to_sliding_window(
        KEY, TIME, sliding(0.1, 0.1), counting(), late_ordinal=late_ordinal
    )
    window = dag.new_vertex("window", supplier)
    out = dag.new_vertex("out", processors.write_list("windows"))
    dag.edge(between(source, marks).isolated()).edge(between(marks, window).partitioned(KEY))
    dag.edge(between(window, out))
    if late_ordinal:
        late = dag.new_vertex("late", processors.write_list("late"))
        dag.edge(shmjet.from_(window, late_ordinal).to(late))
    job = jet.new_job(dag)
    job.execute().result(60)
    assert list(jet.get_list("late")) == ([(5, "b", 0)] if late_ordinal else [])
    counts = {result.end: result.result for result in jet.get_list("windows")}
    assert counts == dict.fromkeys(range(100, 1000, 100), 10) | {1_000: 11}
    assert job.metrics().vertices["window"].late_events_dropped == (0 if late_ordinal else 1)
