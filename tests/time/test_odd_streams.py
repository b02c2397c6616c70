"""Streams that no one plans for: gaps of years, keys of all kinds, one key for all, processors without items."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

import pytest

from shmjet import Watermark, processors, session, sliding, tumbling
from shmjet.aggregate_ops import counting, summing
from shmjet.core.watermark import WatermarkCoalescer
from shmjet.processors.time.stream_join import stream_join
from tests.pipeline.streams import results_of
from tests.processors.driving import Driver, processors_of
from tests.processors.time.streams import play
from tests.time import interpreter
from tests.time.interpreter import Event

YEARS = 10 * 365 * 86_400_000
STAMP, KEY, NUMBER = map(itemgetter, range(3))
KEYS = [None, 1, "1", 1.5, b"1", (1, None), (1, "a"), 2**80, "", ()]
KINDS = {
    "tumbling": processors.aggregate_to_sliding_window(None, None, tumbling(0.001), counting(), timed=True),
    "sliding": processors.aggregate_to_sliding_window(None, None, sliding(0.01, 0.005), counting(), timed=True),
    "frames": processors.accumulate_by_frame(None, None, tumbling(0.001), counting(), keyed=True, timed=True),
    "sessions": processors.aggregate_to_session_window(None, None, session(0.001), counting(), timed=True),
    "states": processors.map_stateful(list, lambda state, key, item: item, None, ttl=0.001, timed=True),
    "join": stream_join(None, None, within=0.001),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ten_years_between_two_events_cost_hardly_a_call(kind: str) -> None:
    (processor,) = processors_of(KINDS[kind])
    driver = Driver(processor)
    calls: list[int] = []
    passed = processor.try_process_watermark

    def counted(watermark: Watermark) -> bool:
        calls.append(watermark.timestamp)
        return passed(watermark)

    processor.try_process_watermark = counted  # type: ignore[method-assign]
    play(driver, [(5, "a"), Watermark(5), (YEARS, "b"), Watermark(YEARS), Watermark(2 * YEARS)])
    assert 3 <= len(calls) <= 20


@pytest.mark.parametrize("kind", KINDS)
def test_keys_that_come_and_go_leave_nothing_in_snapshots(kind: str) -> None:
    (processor,) = processors_of(KINDS[kind])
    driver = Driver(processor)
    most = 0
    for start in range(0, 2_000, 100):
        play(driver, [*((at, at) for at in range(start, start + 100)), Watermark(start + 100)])
        most = max(most, len(driver.save()))
    play(driver, [Watermark(1_000_000)])
    assert most < 200
    assert len(driver.save()) <= 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("window", [sliding(1, 0.25), session(0.4)])
def test_keys_of_all_kinds(window: Any, workers: int) -> None:
    items = [(i * 50, KEYS[i * i % len(KEYS)], i) for i in range(120)]
    results = results_of(
        items,
        lambda s: s.window(window).grouping_key(KEY).aggregate(counting()),
        STAMP,
        lag=60,
        parallelism=1,
        workers=workers,
    )
    events = [Event(item[0], item) for item in items]
    found = (
        interpreter.sessions(events, 400, KEY)
        if window == session(0.4)
        else interpreter.sliding(events, 1000, 250, KEY)
    )
    wanted = {(*where, len(items)) for where, items in found.results.items()}
    assert len(results) == len(wanted)
    assert {tuple(result)[:4] for result in results} == wanted


def test_one_key_has_all_items_and_most_processors_none() -> None:
    items = [(i * 10, "a", i) for i in range(100)]
    found = results_of(
        items,
        lambda s: s.rebalance().window(tumbling(0.25)).grouping_key(KEY).aggregate(counting()),
        STAMP,
        lag=1,
        parallelism=1,
        workers=4,
    )
    assert [(result.start, result.result) for result in found] == [(start, 25) for start in (0, 250, 500, 750)]


def test_results_are_windowed_again_and_again() -> None:
    items = [(i * 10, "a", i) for i in range(200)]

    def thrice(stage: Any) -> Any:
        for size in (0.1, 0.5, 1):
            op = counting() if size == 0.1 else summing(lambda result: result.result)
            stage = stage.window(tumbling(size)).aggregate(op)
        return stage

    found = results_of(items, thrice, STAMP, parallelism=1)
    assert [tuple(result)[:3] for result in found] == [(0, 1000, 100), (1000, 2000, 100)]


def test_the_slower_of_two_merged_streams_holds_the_time_back() -> None:
    coalescer = WatermarkCoalescer(2)
    sent = [coalescer.observe_watermark(0, Watermark(YEARS)), coalescer.observe_watermark(1, Watermark(5))]
    assert sent[0] is None
    assert sent[1] == Watermark(5)
    items = [(i * 10, "ab"[i % 2], i) for i in range(100)]

    def apart(stage: Any) -> Any:
        ahead, behind = stage.filter(lambda item: item[1] == "a"), stage.filter(lambda item: item[1] == "b")
        slow = behind.flat_map(lambda item: [item]).rebalance().set_local_parallelism(1)
        return ahead.merge(slow).window(tumbling(0.5)).grouping_key(KEY).aggregate(counting())

    found = results_of(items, apart, STAMP, parallelism=1)
    assert Counter(tuple(result)[:4] for result in found) == Counter(
        {(start, start + 500, key, 25): 1 for start in (0, 500) for key in "ab"}
    )
