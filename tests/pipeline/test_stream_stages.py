"""Stages of streams that count in event time, one by one: states that expire, joins, a processor of the user's own."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, column, sources
from shmjet.aggregate_ops import counting, to_list
from shmjet.columns import count, max_, sum_
from shmjet.core import AbstractProcessor, Watermark
from shmjet.core.windows import sliding, tumbling
from shmjet.data.errors import ConfigError, PlanError
from shmjet.pipeline import Pipeline
from shmjet.pipeline.stream_stage import StreamStage
from tests.pipeline.running import items_source, list_sink, run
from tests.pipeline.streams import results_of, stream_of

EVENTS = [(i * 97, "ab"[i % 3 == 0], i) for i in range(60)]
TIME, USER, NUMBER = map(itemgetter, range(3))


def number(state: list[int], key: str, event: tuple[int, str, int]) -> tuple[str, int]:
    state.append(event[2])
    return key, len(state)


def test_states_expire_and_say_so_with_the_time_of_the_watermark() -> None:
    events = [(0, "a", 1), (10, "a", 2), (500, "b", 3), (5_000, "b", 4), (5_001, "a", 5)]

    def build(s: StreamStage[Any]) -> StreamStage[Any]:
        def gone(state: list[int], key: str, watermark: int) -> tuple[str, int]:
            return f"{key} left", len(state)

        counted = s.grouping_key(USER).map_stateful(list, number, ttl=1, on_evict=gone)
        return counted.window(tumbling(1)).aggregate(to_list())

    found = {r.start: sorted(r.result) for r in results_of(events, build, TIME, parallelism=1) if r.start < 6_000}
    assert found == {
        0: [("a", 1), ("a", 2), ("b", 1)],
        5_000: [("a", 1), ("a left", 1), ("a left", 2), ("b", 1), ("b left", 1), ("b left", 1)],
    }


def test_a_rolling_aggregate_may_expire() -> None:
    events = [(0, "a", 1), (10, "a", 2), (5_000, "b", 4), (5_001, "a", 5)]
    results = results_of(events, lambda s: s.grouping_key(USER).rolling_aggregate(counting(), ttl=1), TIME)
    assert sorted(results) == [("a", 1), ("a", 1), ("a", 2), ("b", 1)]


def test_ttl_needs_event_time() -> None:
    s = Pipeline().read_from(stream_of(EVENTS)).without_timestamps()
    with pytest.raises(PlanError, match=r"map_stateful: ttl needs event time, .* say with_timestamps\(fn\)"):
        s.map_stateful(list, lambda state, item: item, ttl=1)
    with pytest.raises(PlanError, match=r"rolling_aggregate: ttl needs event time"):
        s.grouping_key(USER).rolling_aggregate(counting(), ttl=1)
    with pytest.raises(ConfigError, match="ttl must be at least"):
        s.add_timestamps(TIME).rolling_aggregate(counting(), 0)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
def test_streams_are_joined_within_a_time(how: Any) -> None:
    left, right = EVENTS[:30], [(time + 40, key, -n) for time, key, n in EVENTS[10:40]]
    p = Pipeline()
    one = p.read_from(stream_of(left)).with_timestamps(TIME)
    other = p.read_from(stream_of(right)).with_timestamps(TIME)
    one.join(other, USER, USER, within=0.3, how=how).write_to(list_sink("out"))
    pairs = [(a, b) for a in left for b in right if a[1] == b[1] and abs(a[0] - b[0]) <= 300]
    expected: list[Any] = list(pairs)
    if how in ("left", "outer"):
        expected += [(a, None) for a in left if all(a != x for x, _ in pairs)]
    if how in ("right", "outer"):
        expected += [(None, b) for b in right if all(b != x for _, x in pairs)]
    assert sorted(run(p)["out"], key=repr) == sorted(expected, key=repr)


def test_results_of_joins_have_the_later_time() -> None:
    def build(s: StreamStage[Any]) -> StreamStage[Any]:
        joined = s.join(s.map(lambda e: e), USER, USER, lambda a, b: max(a[0], b[0]), within=0.2)
        return joined.window(sliding(1, 0.5)).aggregate(to_list())

    for r in results_of(EVENTS, build, TIME):
        assert all(r.start <= time < r.end for time in r.result)


def test_a_stream_is_joined_with_what_is_bounded() -> None:
    def build(s: StreamStage[Any]) -> StreamStage[Any]:
        side = s.pipeline.read_from(items_source("side", [("a", 1), ("a", 2)]))
        return s.join(side, USER, itemgetter(0), how="left").window(tumbling(6)).aggregate(counting())

    (r,) = results_of(EVENTS, build, TIME)
    assert r.result == sum(2 if key == "a" else 1 for _, key, _ in EVENTS)


def test_within_is_given_exactly_for_two_streams() -> None:
    p = Pipeline()
    s = p.read_from(stream_of(EVENTS)).with_timestamps(TIME)
    bounded = p.read_from(items_source("side", [1]))
    with pytest.raises(PlanError, match=r"join: 'events' and 'events' are both endless: say within="):
        s.join(s, USER, USER)
    with pytest.raises(PlanError, match=r"join: within is for two streams, but <BatchStage 'side'> is bounded"):
        s.join(bounded, USER, None, within=1)
    with pytest.raises(PlanError, match=r"join: within is for two streams, but <BatchStage 'side'> is bounded"):
        bounded.join(s, None, USER, within=1)
    with pytest.raises(PlanError, match='how="outer" needs the end of stream'):
        s.join(bounded, USER, None, how="outer")
    with pytest.raises(ConfigError, match="how must be one of 'inner', 'left', 'right', 'outer'"):
        s.join(s, USER, USER, within=1, how="semi")
    untimed = p.read_from(stream_of(EVENTS)).without_timestamps()
    with pytest.raises(PlanError, match=r"join\(within=\) needs event time"):
        s.join(untimed, USER, USER, within=1)


class Told(AbstractProcessor):
    """Emits each number, and each watermark as a text."""

    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit(item[2])

    def try_process_watermark(self, watermark: Watermark) -> bool:
        return self.try_emit(f"at {watermark.timestamp}") and super().try_process_watermark(watermark)


def test_a_processor_of_the_users_own_sees_items_and_every_millisecond_of_watermarks() -> None:
    events = [(0, "a", 1), (1, "a", 2), (700, "a", 3), (1_100, "a", 4)]
    results = results_of(
        events,
        lambda s: s.custom_transform("told", Told).window(tumbling(1)).aggregate(to_list()),
        TIME,
        parallelism=1,
    )
    assert [(r.start, r.result) for r in results] == [
        (0, ["at 0", 1, "at 1", 2, "at 700", 3]),
        (1000, ["at 1100", 4]),
    ]


def test_behind_a_key_it_has_all_items_of_the_key() -> None:
    class Keys(AbstractProcessor):
        def __init__(self) -> None:
            self.keys: set[str] = set()

        def try_process_any(self, ordinal: int, item: Any) -> bool:
            self.keys.add(item[1])
            return True

        def complete(self) -> bool:
            return self.try_emit(tuple(sorted(self.keys)))

    events = [(i, f"k{i % 7}", i) for i in range(50)]
    found = results_of(events, lambda s: s.partition_by(USER).custom_transform("keys", Keys), TIME, workers=3)
    keys = [key for each in found for key in each]
    assert len(found) > 1
    assert sorted(keys) == sorted(set(keys))
    assert len(keys) == 7
    found = results_of(events, lambda s: s.grouping_key(USER).custom_transform("keys", Keys), TIME, workers=3)
    keys = [key for each in found for key in each]
    assert sorted(keys) == sorted(set(keys))


def test_what_comes_in_order_by_key_stays_so_up_to_the_sink() -> None:
    events = [(i, f"k{i % 5}", i) for i in range(200)]
    results = results_of(
        events,
        lambda s: (
            s.map(lambda e: e)
            .map_using_service(dict, lambda service, e: e)
            .grouping_key(USER)
            .map_stateful(list, lambda state, key, e: e)
            .map(lambda e: e)
        ),
        TIME,
        parallelism=1,
        workers=3,
    )
    for key in ("k0", "k3"):
        assert [n for _, k, n in results if k == key] == [n for _, k, n in events if k == key]


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("is_small", [True, False])
def test_batches_of_a_stream_are_joined_by_columns_with_a_bounded_stage(how: Any, is_small: bool) -> None:
    names = {0: "zero", 2: "two"}
    rows = [(i * 97, i % 3, i) for i in range(60)]
    batches = [Batch.from_rows(rows[i : i + 7], ["at", "k", "n"]) for i in range(0, 60, 7)]
    p = Pipeline()
    stream = p.read_from(stream_of(batches, 1, columnar=True))
    timed = stream.with_timestamps(column("at"))
    side = p.read_from(sources.frames(Batch({"key": list(names), "name": list(names.values())})))
    joined = timed.join(side if is_small else side.map_batches(lambda batch: batch), {"k": "key"}, how=how)
    joined.to_rows().map(lambda row: tuple(row.values())).write_to(list_sink("out"))
    counts = joined.window(tumbling(1)).group_by("k").agg(n=count())
    counts.to_rows().map(lambda row: (row["window_start"].second, row["k"], row["n"])).write_to(list_sink("windows"))
    kept = [row for row in rows if how == "left" or (row[1] in names) == (how != "anti")]
    expected: list[Any] = [(*row, names.get(row[1])) for row in kept] if how in ("inner", "left") else kept
    out = run(p)
    assert sorted(out["out"]) == sorted(expected)
    found = Counter((row[0] // 1000, row[1]) for row in kept)
    assert sorted(out["windows"]) == sorted((start, k, n) for (start, k), n in found.items())


@pytest.mark.parametrize(("workers", "how"), [(1, "inner"), (3, "inner"), (3, "left"), (1, "right"), (3, "outer")])
def test_two_streams_of_batches_are_joined_by_columns(workers: int, how: Any) -> None:
    left = [Batch({"ts": np.arange(at, at + 50) * 10, "k": np.arange(at, at + 50) % 7}) for at in range(0, 200, 50)]
    right = [Batch({"ts": np.arange(at, at + 20) * 25, "id": np.arange(at, at + 20) % 9}) for at in range(0, 80, 20)]
    p = Pipeline()
    streams = [p.read_from(stream_of(each, 1, columnar=True)).with_timestamps(column("ts")) for each in (left, right)]
    joined = streams[0].join(streams[1], left_on="k", right_on="id", within=0.03, how=how, suffix="_right")
    joined.select("ts", "k", "ts_right").write_to(list_sink("out"))
    joined.window(tumbling(1)).group_by("k").agg(n=count()).write_to(list_sink("windows"))
    assert f"{how} join of batches on k = id" in p.explain()
    out = run(p, workers)
    one = [row for batch in left for row in batch.tuples()]
    two = [row for batch in right for row in batch.tuples()]
    pairs: list[Any] = [(max(a, b), k, b) for a, k in one for b, id_ in two if k == id_ and abs(a - b) <= 30]
    if how in ("left", "outer"):
        pairs += [(a, k, None) for a, k in one if not any(k == id_ and abs(a - b) <= 30 for b, id_ in two)]
    if how in ("right", "outer"):
        pairs += [(b, id_, b) for b, id_ in two if not any(k == id_ and abs(a - b) <= 30 for a, k in one)]
    assert sorted((row for batch in out["out"] for row in batch.tuples()), key=repr) == sorted(pairs, key=repr)
    assert sum(int(batch["n"].sum()) for batch in out["windows"]) == len(pairs) > 20


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    ("how", "is_left_silent"), [("left", False), ("right", True), ("outer", False), ("outer", True)]
)
def test_what_is_read_of_a_silent_side_is_null(workers: int, how: Any, is_left_silent: bool) -> None:
    rows = [Batch({"ts": [at, at + 1], "k": [at, 1], "v": ["a", None]}) for at in (0, 10)]
    p = Pipeline()
    given: tuple[Any, Any] = ([], rows) if is_left_silent else (rows, [])
    one, two = (p.read_from(stream_of(each, 1, columnar=True)).with_timestamps(column("ts")) for each in given)
    joined = one.join(two, on="k", within=0.03, how=how, suffix="_right")
    joined.select("k", "v", "v_right", n=column("other") + 1).write_to(list_sink("out"))
    wider = joined.filter(column("v").is_null() | True).with_columns(more=column("v_right"))
    wider.window(tumbling(1)).group_by("k").agg(seen=count("more"), own=max_("v"), total=sum_("other")).write_to(
        list_sink("windows")
    )
    out = run(p, workers)
    found = sorted((row for batch in out["out"] for row in batch.tuples()), key=repr)
    values = [(0, "a"), (1, None), (1, None), (10, "a")]
    assert found == [(k, None, v, None) if is_left_silent else (k, v, None, None) for k, v in values]
    windows = sorted(row[2:] for batch in out["windows"] for row in batch.tuples())
    seen = (1, None) if is_left_silent else (0, "a")
    assert windows == [(0, *seen, None), (1, 0, None, None), (10, *seen, None)]


def test_a_join_by_columns_needs_a_bounded_side_and_rows_of_the_stream() -> None:
    p = Pipeline()
    s = p.read_from(stream_of(EVENTS)).with_timestamps(TIME)
    bounded = p.read_from(items_source("side", [1]))
    with pytest.raises(PlanError, match=r"join: 'events' and 'events' are both endless: say within="):
        s.join(s, on="k")
    with pytest.raises(PlanError, match=r"join: how=.semi. of two streams is not possible, only 'inner', 'left'"):
        s.join(s, on="k", within=1, how="semi")  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        s.join(s, suffix="_", within=1)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match=r"join: how=.right. needs the end of stream 'events'"):
        s.join(bounded, "k", how="right")
    with pytest.raises(PlanError, match=r"join: within is for two streams, but <BatchStage 'side'> is bounded"):
        s.join(bounded, on="k", within=1)  # type: ignore[call-overload]


def test_a_source_without_a_word_about_time_is_no_side_of_a_join() -> None:
    p = Pipeline()
    source = sources.item_stream(10)
    with pytest.raises(TypeError, match="a source becomes by with_timestamps"):
        p.read_from(source).with_native_timestamps().join(p.read_from(source), None, None, within=1)  # type: ignore[arg-type]
