"""Windows in pipelines: whole plans over streams of given events, against windows computed by hand in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import pytest

from shmjet import sinks, sources
from shmjet.aggregate_ops import counting, max_by, summing, to_list
from shmjet.core.windows import session, sliding, tumbling
from shmjet.data.errors import PlanError
from shmjet.data.window_results import KeyedWindowResult, WindowResult
from shmjet.pipeline import Pipeline
from shmjet.pipeline.stream_stage import StreamStage
from tests.pipeline.running import items_source, list_sink, run
from tests.pipeline.streams import results_of, stream_of

EVENTS = [(i * 97, "ab"[i % 3 == 0], i) for i in range(60)]
"""(timestamp, key, number)"""
TIME, USER, NUMBER = map(itemgetter, range(3))
SIDE = items_source("side", ["a", "b"])


def counted(size: int, slide: int, events: list[tuple[int, str, int]] = EVENTS) -> Counter[tuple[int, int, str]]:
    """Count the events of each key in all windows that have any."""
    found: Counter[tuple[int, int, str]] = Counter()
    for time, key, _ in events:
        end = time // slide * slide + slide
        for last in range(end, end + size, slide):
            found[last - size, last, key] += 1
    return found


def as_counts(results: list[KeyedWindowResult]) -> Counter[tuple[int, int, str]]:
    counts = Counter({(r.start, r.end, r.key): r.result for r in results})
    assert len(counts) == len(results)
    return counts


Build = Callable[[StreamStage[Any]], StreamStage[Any]]

BEFORE: dict[str, Build] = {
    "source": lambda s: s,
    "chain": lambda s: s.map(lambda e: e).filter(lambda e: True),
    "lazy chain": lambda s: s.flat_map(lambda e: (each for each in [e])),
    "service": lambda s: s.map_using_service(dict, lambda service, e: e),
    "state by the same key": lambda s: s.grouping_key(USER).filter_stateful(list, lambda state, key, e: True),
    "state": lambda s: s.map_stateful(list, lambda state, e: e),
    "rebalance": lambda s: s.rebalance(),
    "rebalance by the same key": lambda s: s.rebalance(USER),
    "partition_by": lambda s: s.partition_by(USER),
    "hash join": lambda s: s.hash_join(s.pipeline.read_from(SIDE), (USER, None), fn=lambda e, match: e),
    "merge": lambda s: s.filter(lambda e: e[2] % 2).merge(s.filter(lambda e: not e[2] % 2)),
    "named merge": lambda s: s.filter(lambda e: e[2] % 2).merge(s.filter(lambda e: not e[2] % 2)).set_name("both"),
    "rows": lambda s: s.map(lambda e: {"e": e[2]}).map_batches(lambda b: b).map(lambda row: EVENTS[row["e"]]),
    "peek": lambda s: s.peek(predicate=lambda e: False),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_items_keep_their_time_through_all_stages(before: Build) -> None:
    results = results_of(
        EVENTS, lambda s: before(s).window(sliding(2, 0.5)).grouping_key(USER).aggregate(counting()), TIME, lag=60
    )
    assert as_counts(results) == counted(2000, 500)


@pytest.mark.parametrize("keeps_time", [True, False])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_each_source_partition_has_a_time_of_its_own(parallelism: int, keeps_time: bool) -> None:
    results = results_of(
        EVENTS,
        lambda s: s.window(tumbling(1)).grouping_key(USER).aggregate(counting()),
        TIME,
        parallelism=parallelism,
        keeps_time=keeps_time,
    )
    assert as_counts(results) == counted(1000, 1000)


def test_windows_of_everything_are_made_in_two_stages() -> None:
    def build(s: StreamStage[Any]) -> StreamStage[Any]:
        stage = s.window(tumbling(2)).aggregate(summing(NUMBER))
        assert "two stages" in stage.map(str).apply(lambda t: explained(t))
        return stage

    results = results_of(EVENTS, build, TIME)
    assert results == [
        WindowResult(start, start + 2000, sum(n for t, _, n in EVENTS if start <= t < start + 2000))
        for start in (0, 2000, 4000)
    ]


def test_a_window_by_key_from_one_processor_to_one_has_one_stage() -> None:
    def windows(rate: float = 1000) -> StreamStage[Any]:
        stream = Pipeline().read_from(sources.item_stream(rate)).with_native_timestamps().map(lambda event: event)
        return stream.grouping_key(USER).window(tumbling(2)).aggregate(summing(NUMBER))

    def explained_to(sink: Any, stage: StreamStage[Any], parallelism: int = -1) -> str:
        written = stage.write_to(sink)
        if parallelism > 0:
            written.set_local_parallelism(parallelism)
        return stage.pipeline.explain()

    one = explained_to(sinks.collect(), windows())
    assert "window (1)  → isolated" in one
    assert "one stage: items come from one processor, and results go to one" in one
    noting = sinks.builder("noting", lambda context: []).receive_fn(list.append).build()
    assert "one stage" in explained_to(noting, windows())
    assert "one stage" in explained_to(sinks.noop(), windows(), 1)
    two = [
        explained_to(sinks.collect(), windows().set_local_parallelism(2)),
        explained_to(sinks.collect(), windows(10**6)),
        explained_to(sinks.collect(), windows().map(str)),  # which all workers share
        explained_to(sinks.noop(), windows()),
        explained_to(noting, windows(), 3),
    ]
    assert all("two stages" in plan for plan in two)


@pytest.mark.parametrize("op", [counting(), summing(NUMBER), max_by(NUMBER)], ids=["count", "sum", "max"])
@pytest.mark.parametrize("slide", [2000, 500])
def test_one_stage_and_two_give_the_same_results(op: Any, slide: int) -> None:
    found = [
        results_of(
            EVENTS,
            lambda s, made=made: made(s.window(sliding(2, slide / 1000)).grouping_key(USER).aggregate(op)),  # type: ignore[misc]
            TIME,
            lag=60,
            parallelism=1,
        )
        for made in (lambda s: s, lambda s: s.set_local_parallelism(2))
    ]
    assert sorted(map(repr, found[0])) == sorted(map(repr, found[1]))
    assert found[0]


def explained(stage: StreamStage[Any]) -> str:
    stage.write_to(list_sink("seen"))
    return stage.pipeline.explain()


def test_results_of_windows_are_cut_into_windows_again() -> None:
    """As in NEXMark's query 5: counts in sliding windows, then the highest count of each slide."""
    results = results_of(
        EVENTS,
        lambda s: (
            s.window(sliding(2, 1))
            .grouping_key(USER)
            .aggregate(counting())
            .window(tumbling(1))
            .aggregate(max_by(lambda r: (r.result, r.key)))
        ),
        TIME,
    )
    best: dict[int, tuple[int, str]] = {}
    for (_, end, key), n in counted(2000, 1000).items():
        best[end] = max(best.get(end, (0, "")), (n, key))
    assert [(r.end, r.result.end, r.result.result, r.result.key) for r in results] == [
        (end, end, *best[end]) for end in sorted(best)
    ]


def test_sessions_by_key_are_made_in_one_stage() -> None:
    events = [(0, "a", 1), (900, "a", 2), (1900, "a", 3), (950, "b", 4)]
    results = results_of(events, lambda s: s.grouping_key(USER).window(session(1)).aggregate(to_list()), TIME, lag=5)
    assert sorted((r.key, r.start, r.end, len(r.result)) for r in results) == [
        ("a", 0, 1900, 2),
        ("a", 1900, 2900, 1),
        ("b", 950, 1950, 1),
    ]


def test_several_streams_are_aggregated_together() -> None:
    def build(s: StreamStage[Any]) -> StreamStage[Any]:
        other = s.map(lambda e: e[2])
        odd = s.filter(lambda e: e[2] % 2).map(lambda e: e[2])
        return s.window(tumbling(1)).aggregate3(counting(), other, summing(), odd, counting())

    for r in results_of(EVENTS, build, TIME):
        inside = [n for t, _, n in EVENTS if r.start <= t < r.end]
        assert r.result == (len(inside), sum(inside), sum(n % 2 for n in inside))
    keyed = results_of(
        EVENTS,
        lambda s: s.grouping_key(USER).window(tumbling(1)).aggregate2(counting(), s.grouping_key(USER), counting()),
        TIME,
    )
    assert as_counts([r._replace(result=r.result[1]) for r in keyed]) == counted(1000, 1000)


def test_distinct_keeps_one_item_of_each_value_in_a_window() -> None:
    results = results_of(EVENTS, lambda s: s.map(USER).window(tumbling(3)).distinct(), TIME)
    assert sorted((r.start, r.result) for r in results) == [(0, "a"), (0, "b"), (3000, "a"), (3000, "b")]
    keyed = results_of(EVENTS, lambda s: s.window(tumbling(3)).grouping_key(USER).distinct(), TIME)
    assert sorted((r.start, r.result[1]) for r in keyed) == [(0, "a"), (0, "b"), (3000, "a"), (3000, "b")]


@pytest.mark.parametrize("op", [counting(), to_list()])
def test_late_items_go_to_a_sink(op: Any) -> None:
    events = [(500, "a", 0), (5500, "a", 1), (700, "b", 2), (9000, "a", 3)]
    p = Pipeline()
    stage = p.read_from(stream_of(events, 1)).with_timestamps(TIME)
    stage.window(tumbling(1)).late_to(list_sink("late")).grouping_key(USER).aggregate(op).write_to(list_sink("out"))
    lists = run(p)
    assert lists["late"] == [(700, "b", 2)]
    assert [r.start for r in lists["out"]] == [0, 5000, 9000]


def test_early_results_make_it_one_stage() -> None:
    s = Pipeline().read_from(stream_of(EVENTS)).with_timestamps(TIME)
    stage = s.window(tumbling(1)).early_results(0.5).grouping_key(USER).aggregate(counting())
    assert "early results every 500 ms; one stage: early results come from where all items are" in explained(stage)


def test_a_window_needs_timestamps() -> None:
    s = Pipeline().read_from(stream_of(EVENTS)).without_timestamps()
    with pytest.raises(PlanError, match=r"window\(tumbling\(1\)\) needs event time, but .* with_timestamps\(fn\)"):
        s.map(str).window(tumbling(1))
    timed = s.add_timestamps(TIME)
    with pytest.raises(PlanError, match=r"aggregate2 in .* needs event time"):
        timed.window(tumbling(1)).aggregate2(counting(), s, counting())
    with pytest.raises(PlanError, match=r"merge: the items of 'add_timestamps' have event time, those of 'events'"):
        timed.merge(s)
    with pytest.raises(PlanError, match="have timestamps"):
        timed.map(str).add_timestamps(TIME)
    with pytest.raises(TypeError, match=r"expected tumbling\(size\), sliding\(size, slide\) or session\(gap\)"):
        timed.window(5)


def test_timestamps_may_be_added_later() -> None:
    results = results_of(
        EVENTS,
        lambda s: s.map(lambda e: e).add_timestamps(TIME).window(tumbling(1)).grouping_key(USER).aggregate(counting()),
    )
    assert as_counts(results) == counted(1000, 1000)


def test_the_result_of_a_session_that_ends_with_a_watermark_is_not_late() -> None:
    """By Jet's numerics it comes with the watermark after, though its event time is before this one."""
    events = [(0, "a", 1), (1000, "b", 2), (1001, "b", 3)]
    results = results_of(
        events,
        lambda s: (
            s.grouping_key(USER).window(session(1)).aggregate(counting()).window(tumbling(1)).aggregate(to_list())
        ),
        TIME,
        parallelism=1,
    )
    assert [(r.start, [(s.key, s.end) for s in r.result]) for r in results] == [
        (0, [("a", 1000)]),
        (2000, [("b", 2001)]),
    ]
