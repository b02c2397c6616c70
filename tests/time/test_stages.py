"""From items to results: `insert_watermarks` and a stage behind it, against the interpreter over random streams."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shmjet import Watermark, processors
from shmjet.aggregate_ops import to_list
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.timed import TIMESTAMP, TimedKey
from shmjet.core.watermark import WatermarkCoalescer
from shmjet.core.windows import SessionWindow, SlidingWindow, SlidingWindowPolicy
from shmjet.processors.time.stream_join import stream_join
from tests.examples import examples
from tests.processors.driving import Driver, processors_of
from tests.processors.time.streams import play
from tests.time import interpreter
from tests.time.interpreter import Event, Source

ITEMS = st.tuples(st.integers(-60, 60), st.sampled_from("ab"))
"""A timestamp and a key."""
CALLS = st.lists(st.lists(ITEMS, max_size=6), max_size=6)
"""Items, as they come in several calls."""
LAGS = st.integers(0, 30)


def stamp(item: Any) -> int:
    found: int = item[0]
    return found


def letter(item: Any) -> str:
    found: str = item[1]
    return found


KEY = TimedKey(letter)


def with_watermarks(calls: list[Any], lag: int, stride: int) -> tuple[list[Any], list[Event]]:
    """Return timed items and watermarks as the processor makes them of items, and the events of the interpreter."""
    policy = EventTimePolicy(timestamp_fn=stamp, allowed_lag=lag, stride=stride)
    (processor,) = processors_of(processors.insert_watermarks(policy))
    driver = Driver(processor)
    for items in calls:
        driver.feed(items)
    return driver.complete(), Source(lag, stride).play([item for items in calls for item in items], stamp)


def run(supplier: Any, stream: list[Any]) -> tuple[list[Any], int]:
    """Return what a processor makes of a stream, without watermarks, and how many events were late."""
    (processor,) = processors_of(supplier)
    driver = Driver(processor)
    play(driver, stream)
    driver.complete()
    late: int = processor.late_events_dropped  # type: ignore[attr-defined]
    return [item for item in driver.output if not isinstance(item, Watermark)], late


def found(output: list[Any]) -> dict[Any, Any]:
    """Return the items of windows by (start, end, key), in no order; each window may be there once."""
    windows = {result[:3]: Counter(item for _, item in result.result) for result in output}
    assert len(windows) == len(output)
    return windows


def unordered(windows: interpreter.Windows) -> dict[Any, Any]:
    return {where: Counter(items) for where, items in windows.items()}


@given(CALLS, LAGS, st.sampled_from([1, 5, 10]), st.sampled_from([1, 2, 6]))
@examples(100)
def test_sliding_windows(calls: list[Any], lag: int, slide: int, frames: int) -> None:
    stream, events = with_watermarks(calls, lag, slide)
    window = SlidingWindow(SlidingWindowPolicy(slide * frames, slide))
    output, late = run(processors.aggregate_to_sliding_window(KEY, TIMESTAMP, window, to_list()), stream)
    expected = interpreter.sliding(events, slide * frames, slide, letter)
    assert found(output) == unordered(expected.results)
    assert late == len(expected.late)


@given(CALLS, LAGS, st.sampled_from([1, 5]), st.integers(1, 20))
@examples(100)
def test_sessions(calls: list[Any], lag: int, stride: int, gap: int) -> None:
    stream, events = with_watermarks(calls, lag, stride)
    supplier = processors.aggregate_to_session_window(KEY, TIMESTAMP, SessionWindow(gap), to_list())
    output, late = run(supplier, stream)
    expected = interpreter.sessions(events, gap, letter)
    assert found(output) == unordered(expected.results)
    assert late == len(expected.late)


def collected(state: list[Any], key: Any, item: Any) -> None:
    state.append(item)


@given(CALLS, LAGS, st.integers(1, 20))
@examples(100)
def test_states_with_ttl(calls: list[Any], lag: int, ttl: int) -> None:
    stream, events = with_watermarks(calls, lag, 1)
    supplier = processors.map_stateful(
        list, collected, letter, ttl=ttl / 1000, on_evict=lambda state, key, _: (key, tuple(state)), timed=True
    )
    output, late = run(supplier, stream)
    expected = interpreter.states(events, ttl, letter)
    assert Counter(item for _, item in output) == Counter((key, tuple(items)) for key, items in expected.results)
    assert late == len(expected.late)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(ITEMS, max_size=4)), max_size=8),
    LAGS,
    st.integers(0, 20),
    st.sampled_from(["inner", "left", "right", "outer"]),
)
@examples(100)
def test_joins_of_streams(calls: list[Any], lag: int, within: int, how: Any) -> None:
    streams = [with_watermarks([items for at, items in calls if at == side], lag, 1)[0] for side in (0, 1)]
    (processor,) = processors_of(stream_join(letter, letter, within=within / 1000, how=how))
    driver, coalescer = Driver(processor), WatermarkCoalescer(2)
    events: list[list[Event]] = [[], []]
    for side, items in calls:
        left = len(items)
        while left:
            item = streams[side].pop(0)
            if not isinstance(item, Watermark):
                left -= 1
                driver.feed([item], side)
                last = coalescer.coalesced
                events[side].append(Event(*item, last.timestamp if last else None))
            elif mark := coalescer.observe_watermark(side, item):
                driver.until_true(driver.processor.try_process_watermark, mark)
    driver.complete((0, 1))
    expected = interpreter.joined(*events, within, letter, how=how)
    output = [item for item in driver.output if not isinstance(item, Watermark)]
    assert Counter((time, *pair) for time, pair in output) == Counter(expected.results)
    assert processor.late_events_dropped == len(expected.late)  # type: ignore[attr-defined]
