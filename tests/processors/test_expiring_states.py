"""States that expire in event time: Jet's numbers, a reading of its rules in plain Python, and hostile functions."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.aggregate_ops import counting
from shmjet.data.errors import ConfigError, ProcessorError
from shmjet.data.marks import Watermark
from shmjet.processors.general.expiring_states import LAST_WATERMARK
from shmjet.processors.general.state_expiry import Cell, ExpiryQueue
from shmjet.processors.general.stateful import filter_stateful, flat_map_stateful, map_stateful, rolling_aggregate
from shmjet.testing import verify_processor

from .driving import Driver, processors_of, restored

W = Watermark


def numbered(state: list[Any], key: Any, item: Any) -> tuple[Any, int]:
    state.append(item)
    return key, len(state)


def evicted(state: list[Any], key: Any, watermark: int) -> tuple[str, Any, int, int]:
    return "evicted", key, len(state), watermark


def timed(
    kind: Any = map_stateful, fn: Any = numbered, ttl: float = 0.010, on_evict: Any = evicted, **more: Any
) -> Any:
    return kind(list, fn, None, ttl=ttl, on_evict=on_evict, timed=True, **more)


def test_a_state_expires_when_the_watermark_is_more_than_the_ttl_beyond_its_last_item() -> None:
    items = [(0, "a"), (3, "b"), W(10), (11, "c"), W(11), W(13), W(14)]
    verify_processor(timed()).inputs(items).expect(
        [
            *((0, ("a", 1)), (3, ("b", 1)), W(10), (11, ("c", 1))),
            *((11, ("evicted", "a", 1, 11)), W(11), W(13), (14, ("evicted", "b", 1, 14)), W(14)),
            (14, ("evicted", "c", 1, LAST_WATERMARK)),
        ]
    )


def test_at_a_watermark_just_ttl_beyond_the_last_item_the_state_lives() -> None:
    driver = Driver(processors_of(timed())[0]).feed([(5, "a")])
    driver.until_true(driver.processor.try_process_watermark, W(15))
    assert driver.output == [(5, ("a", 1)), W(15)]
    driver.until_true(driver.processor.try_process_watermark, W(16))
    assert driver.output[2:] == [(16, ("evicted", "a", 1, 16)), W(16)]


def test_a_later_item_keeps_the_state_alive_and_an_earlier_one_does_not_age_it() -> None:
    items = [(0, "a"), (9, "a"), (4, "a"), W(12), (15, "a"), W(25), W(26)]
    verify_processor(timed()).inputs(items).expect(
        [
            *((0, ("a", 1)), (9, ("a", 2)), (4, ("a", 3)), W(12), (15, ("a", 4)), W(25)),
            *((26, ("evicted", "a", 4, 26)), W(26)),
        ]
    )


def test_the_least_recently_touched_state_is_evicted_first() -> None:
    items = [(1, "a"), (1, "b"), (1, "c"), (1, "a"), (0, "d"), W(50)]
    expected = [(50, ("evicted", key, 2 if key == "a" else 1, 50)) for key in "dbca"]
    calls = [(1, ("a", 1)), (1, ("b", 1)), (1, ("c", 1)), (1, ("a", 2)), (0, ("d", 1))]
    verify_processor(timed()).inputs(items).expect([*calls, *expected, W(50)])


def test_an_item_below_the_watermark_is_dropped_and_counted() -> None:
    driver = Driver(processors_of(timed())[0]).feed([(5, "a")])
    driver.until_true(driver.processor.try_process_watermark, W(7))
    driver.feed([(6, "a"), (7, "a"), (-1, "b")])
    assert driver.output == [(5, ("a", 1)), W(7), (7, ("a", 2))]
    assert driver.processor.late_events_dropped == 2
    without: Any = map_stateful(list, numbered, None, timed=True)
    driver = Driver(processors_of(without)[0]).feed([(5, "a")])
    driver.until_true(driver.processor.try_process_watermark, W(7))
    assert driver.feed([(6, "a")]).output[2:] == [(6, ("a", 2))]


def test_without_on_evict_states_go_in_silence() -> None:
    items = [(0, "a"), W(100), (100, "a")]
    verify_processor(timed(on_evict=None)).inputs(items).expect([(0, ("a", 1)), W(100), (100, ("a", 1))])


def test_on_evict_without_ttl_is_called_at_the_end() -> None:
    supplier = map_stateful(list, lambda state, key, item: state.append(item), None, on_evict=evicted)
    verify_processor(supplier).inputs("abca").expect([("evicted", k, 1 + (k == "a"), LAST_WATERMARK) for k in "bca"])
    whole = map_stateful(list, lambda state, item: state.append(item), on_evict=lambda state, key, _: (key, len(state)))
    verify_processor(whole).inputs("abca").expect([(None, 4)])


def test_filter_flat_map_and_one_state_for_all_expire_alike() -> None:
    items = [(0, "a"), (1, "a"), W(20), (20, "a")]
    first: Any = timed(filter_stateful, lambda state, key, item: not state and not state.append(1), on_evict=None)
    verify_processor(first).inputs(items).expect([(0, "a"), W(20), (20, "a")])
    many: Any = timed(flat_map_stateful, lambda state, key, item: state.append(1) or [key] * len(state), on_evict=None)
    verify_processor(many).inputs(items).expect([(0, "a"), (1, "a"), (1, "a"), W(20), (20, "a")])
    whole = map_stateful(list, lambda s, item: s.append(item) or len(s), ttl=0.01, on_evict=evicted, timed=True)
    verify_processor(whole).inputs(items).expect(
        [(0, 1), (1, 2), (20, ("evicted", None, 2, 20)), W(20), (20, 1), (20, ("evicted", None, 1, LAST_WATERMARK))]
    )


def test_a_rolling_aggregate_begins_anew_when_it_has_expired() -> None:
    items = [(0, "a"), (1, "a"), W(11), (11, "a"), W(12), W(22), (30, "a")]
    rolling = rolling_aggregate(counting(), None, ttl=timedelta(milliseconds=10), timed=True)
    verify_processor(rolling).inputs(items).expect(
        [(0, ("a", 1)), (1, ("a", 2)), W(11), (11, ("a", 3)), W(12), W(22), (30, ("a", 1))]
    )
    whole = rolling_aggregate(counting(), ttl=0.01, timed=True)
    verify_processor(whole).inputs([(0, "a"), (1, "b"), W(12), (12, "a")]).expect([(0, 1), (1, 2), W(12), (12, 1)])


def test_bare_items_have_a_function_for_their_times() -> None:
    def time_of(item: tuple[int, str]) -> datetime:
        return datetime.fromtimestamp(item[0], UTC)

    supplier = map_stateful(list, numbered, lambda item: item[1], ttl=10, on_evict=evicted, timestamp_fn=time_of)
    verify_processor(supplier).inputs([(1, "a"), W(11_000), W(11_001), (20, "a")]).expect(
        [("a", 1), W(11_000), ("evicted", "a", 1, 11_001), W(11_001), ("a", 1), ("evicted", "a", 1, LAST_WATERMARK)]
    )


def test_states_without_event_time_cannot_expire() -> None:
    with pytest.raises(TypeError, match=r"map_stateful: states expire in event time; .*timestamp_fn="):
        map_stateful(list, numbered, None, ttl=1)
    with pytest.raises(ConfigError, match=r"map_stateful: ttl must be at least 0.001 s, got 0"):
        map_stateful(list, numbered, None, ttl=0, timed=True)
    with pytest.raises(TypeError, match=r"flat_map_stateful: on_evict: expected a function, got int"):
        flat_map_stateful(list, numbered, None, on_evict=3)  # type: ignore[arg-type]


def test_an_error_of_on_evict_fails_the_call() -> None:
    driver = Driver(processors_of(timed(on_evict=lambda state, key, watermark: 1 // 0))[0]).feed([(5, "a")])
    with pytest.raises(ZeroDivisionError):
        driver.call(driver.processor.try_process_watermark, W(99))


def test_nan_is_one_key() -> None:
    driver = Driver(processors_of(timed(on_evict=None))[0]).feed([(5, float("nan")), (6, float("nan"))])
    assert [count for _, (_, count) in driver.output] == [1, 2]


def test_another_number_of_processors_goes_on_in_the_order_of_touches() -> None:
    supplier = timed()
    drivers = [Driver(processor, index=i, count=2) for i, processor in enumerate(processors_of(supplier, 2))]
    drivers[0].feed([(3, "a"), (1, "b")])
    drivers[1].feed([(2, "c"), (4, "d")])
    drivers[1].until_true(drivers[1].processor.try_process_watermark, W(2))
    entries = [entry for driver in drivers for entry in driver.save()]
    (one,) = restored(supplier, entries, 1)
    one.until_true(one.processor.try_process_watermark, W(50))
    assert [item[1][1] for item in one.output[:-1]] == ["b", "c", "a", "d"]
    with pytest.raises(ProcessorError, match="several states for one key"):
        restored(supplier, entries + entries, 1)


def test_the_watermark_of_before_still_says_what_is_late() -> None:
    driver = Driver(processors_of(timed(on_evict=None))[0])
    driver.until_true(driver.processor.try_process_watermark, W(7))
    (other,) = restored(timed(on_evict=None), driver.save(), 1)
    assert other.feed([(6, "a"), (7, "a")]).output == [(7, ("a", 1))]


def test_many_states_expire_in_calls_that_are_short_and_leave_nothing() -> None:
    driver = Driver(processors_of(timed())[0], room=64)
    driver.feed([(0, key) for key in range(5_000)])
    driver.until_true(driver.processor.try_process_watermark, W(11))
    assert [item[1][1] for item in driver.output[5_000:-1]] == list(range(5_000))
    assert not driver.processor.calls.cells  # type: ignore[attr-defined]


class Interpreter:
    """Jet's rules in plain Python: a dict of states, all of it looked at for each watermark."""

    def __init__(self, ttl: int) -> None:
        self.ttl = ttl
        self.watermark = -math.inf
        self.states: dict[Any, list[Any]] = {}  # key -> [count, touched, order]
        self.output: list[Any] = []
        self.touches = 0

    def item(self, stamp: int, key: Any) -> None:
        if stamp < self.watermark:
            return
        self.touches += 1
        count, touched, _ = self.states.get(key, (0, stamp, 0))
        self.states[key] = [count + 1, max(touched, stamp), self.touches]
        self.output.append((stamp, (key, count + 1)))

    def mark(self, watermark: int) -> None:
        self.watermark = watermark
        gone = sorted((v[1], v[2], k) for k, v in self.states.items() if v[1] < watermark - self.ttl)
        for _, _, key in gone:
            self.output.append((watermark, ("evicted", key, self.states.pop(key)[0], watermark)))
        self.output.append(W(watermark))


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.integers(-50, 300), st.integers(0, 6)),
        st.integers(1, 60),  # how far the watermark rises
    ),
    max_size=60,
)


@given(EVENTS, st.sampled_from([1, 3, 10, 64, 150]), st.integers(1, 40))
def test_random_streams_expire_as_an_interpreter_says(events: list[Any], ttl: int, restart_at: int) -> None:
    model, supplier = Interpreter(ttl), timed(ttl=ttl / 1000)
    driver = Driver(processors_of(supplier)[0], room=3)
    output: list[Any] = []
    watermark = -60
    for number, event in enumerate(events):
        if isinstance(event, tuple):
            model.item(*event)
            driver.feed([event])
        else:
            watermark += event
            model.mark(watermark)
            driver.until_true(driver.processor.try_process_watermark, W(watermark))
        if number % restart_at == restart_at - 1:
            output += driver.output
            (driver,) = restored(supplier, driver.save(), 1)
    assert output + driver.output == model.output


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 500)), max_size=80), st.integers(1, 200))
def test_the_queue_gives_what_has_expired_and_keeps_the_rest(touches: list[tuple[int, int]], ttl: int) -> None:
    queue = ExpiryQueue(ttl)
    cells: dict[int, Cell] = {}
    for order, (key, touched) in enumerate(touches):
        touched += 3 * order  # time goes on
        if key in cells:
            cells[key].touched, cells[key].order = max(cells[key].touched, touched), order
        else:
            cells[key] = Cell(key, None, touched, order)
            queue.add(cells[key])
        limit = 3 * order - ttl
        expected = sorted((c.touched, c.order, c.key) for c in cells.values() if c.touched < limit)
        assert [(c.touched, c.order, c.key) for c in queue.expired(limit)] == expected
        for *_, gone in expected:
            del cells[gone]
