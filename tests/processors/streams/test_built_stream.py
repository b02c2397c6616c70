"""`builder(...).stream()`: timestamps, pauses, state, and the end of streams that have one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, Watermark, column, sources
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.job import JobConfig, ProcessingGuarantee
from shmjet.data.errors import ProcessorError, ShmjetError
from shmjet.execution.plan import declaration
from shmjet.processors.streams import built_stream
from shmjet.processors.streams.built_stream import LONGEST_PAUSE
from shmjet.testing import verify_processor
from tests.examples import seeds
from tests.processors.crashing import Attempt, Snapshot, run_source
from tests.processors.driving import Driver, processors_of, restored

NATIVE = EventTimePolicy("native", stride=10)
LAST = 120


class Position:
    """Counts to `LAST`, its share of the numbers."""

    def __init__(self, context: Any) -> None:
        self.count, self.index = context.total_parallelism, context.global_index
        self.at = self.index

    def fill(self, buffer: Any) -> None:
        for _ in range(5):
            if self.at >= LAST:
                buffer.close()
                return
            buffer.add(self.at, timestamp=1000 + self.at)
            self.at += self.count

    def restore(self, states: list[Any]) -> None:
        self.at = states[self.index]


def positioned(policy: EventTimePolicy | None, parallelism: int = 3) -> Any:
    source = (
        sources.builder("numbers", Position)
        .fill_buffer_fn(Position.fill)
        .create_snapshot_fn(lambda position: position.at)
        .restore_snapshot_fn(Position.restore)
    )
    return (source.distributed(parallelism) if parallelism else source).stream().supplier_for(policy)


def filled(fill: Callable[[Any], Any], policy: EventTimePolicy | None = None) -> Driver:
    source = sources.builder("s", lambda context: None).fill_buffer_fn(lambda _, buffer: fill(buffer)).stream()
    (processor,) = processors_of(source.supplier_for(policy))
    return Driver(processor)


def test_all_modes() -> None:
    verify_processor(positioned(None, 1)).expect(range(LAST))
    expected: list[Any] = [(1000 + n, n) for n in range(LAST)]
    for mark in range(LAST - LAST % 10 - 10, -1, -10):
        expected.insert(mark, Watermark(1000 + mark))
    verify_processor(positioned(NATIVE, 1)).expect(expected)


@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("policy", [None, NATIVE], ids=["bare", "native"])
def test_each_item_comes_once_through_kills_and_is_never_late(policy: EventTimePolicy | None, seed: int) -> None:
    emitted = []
    for run in run_source(lambda: positioned(policy), seed, counts=[3]):
        last = -math.inf
        for item in run:
            if isinstance(item, Watermark):
                last = item.timestamp
            else:
                assert policy is None or item[0] >= last
                emitted.append(item if policy is None else item[1])
    assert sorted(emitted) == list(range(LAST))


def test_restored_with_another_parallelism_all_states_come_and_the_least_watermark_counts() -> None:
    first = Attempt(positioned(NATIVE), 3, room=lambda: 1000)
    for _ in range(4):
        first.complete(1)
    first.complete(0)
    first.complete(2)
    snapshot = Snapshot({index: first.save(index) for index in range(3)}, (), 3)
    seen: list[Any] = []

    def fill(_: Any, buffer: Any) -> None:
        buffer.add("late", timestamp=1000)
        buffer.add("next", timestamp=1031)
        buffer.close()

    source = (
        sources.builder("numbers", lambda context: None)
        .fill_buffer_fn(fill)
        .create_snapshot_fn(lambda _: 0)
        .restore_snapshot_fn(lambda _, states: seen.append(states))
        .stream()
    )
    (driver,) = restored(source.supplier_for(NATIVE), list(chain(*snapshot.entries.values())), 1)
    driver.until_true(driver.processor.complete)
    assert seen == [[15, 61, 17]]
    assert driver.output == [(1000, "late"), Watermark(1030), (1031, "next")]  # 1010 was sent before


def test_a_state_without_a_function_for_it_is_refused() -> None:
    first = Attempt(positioned(None, 1), 1)
    entries = first.save(0)
    source = sources.builder("s", lambda context: None).fill_buffer_fn(print).stream()
    with pytest.raises(ProcessorError, match="there is no restore_snapshot_fn"):
        restored(source.supplier, entries, 1)


def test_the_state_at_the_end_is_that_before_the_object_went() -> None:
    gone: list[int] = []
    source = (
        sources.builder("s", lambda context: [7])
        .fill_buffer_fn(lambda state, buffer: buffer.close())
        .create_snapshot_fn(lambda state: state[0])
        .restore_snapshot_fn(lambda state, states: None)
        .destroy_fn(lambda state: gone.append(state.pop()))
        .stream()
    )
    config = JobConfig(processing_guarantee=ProcessingGuarantee.EXACTLY_ONCE)
    driver = Driver(processors_of(source.supplier)[0], config=config)
    driver.until_true(driver.processor.complete)
    assert gone == [7]
    assert [value for _, value in driver.save()] == [7]
    driver.processor.close()
    assert gone == [7]


def test_timestamps_are_ints_datetimes_or_the_time_now() -> None:
    def fill(buffer: Any) -> None:
        buffer.add("a", 5)
        buffer.add("b", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
        buffer.add("c", np.datetime64("1970-01-01T00:00:02"))
        buffer.add_all(["d", "e"])
        buffer.add("f", 7)
        buffer.close()

    driver = filled(fill, EventTimePolicy("native", stride=0))
    driver.until_true(driver.processor.complete)
    now = time.time() * 1000
    stamps = {item: stamp for stamp, item in driver.output}
    assert (stamps["a"], stamps["b"], stamps["c"], stamps["f"]) == (5, 1000, 2000, 7)
    assert abs(stamps["d"] - now) < 60_000
    assert stamps["d"] == stamps["e"]


def test_the_time_now_does_not_fall_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 2_000, 6_000])
    monkeypatch.setattr(built_stream, "time_ns", lambda: next(times) * 1_000_000)
    left = iter("abc")

    def fill(buffer: Any) -> None:
        item = next(left, None)
        buffer.close() if item is None else buffer.add(item)

    driver = filled(fill, EventTimePolicy("native", stride=1))
    driver.until_true(driver.processor.complete)
    items = [each for each in driver.output if not isinstance(each, Watermark)]
    assert items == [(5_000, "a"), (5_000, "b"), (6_000, "c")]


def test_a_naive_datetime_is_refused_with_the_item() -> None:
    driver = filled(lambda buffer: buffer.add("x", datetime(2024, 1, 1)), NATIVE)
    with pytest.raises(TypeError, match=r"time zone.*the item is 'x'"):
        driver.call(driver.processor.complete)


def test_batches_bring_their_timestamps_in_a_column() -> None:
    def fill(buffer: Any) -> None:
        buffer.add(Batch({"ts": [1000, 1015]}))
        buffer.close()

    driver = filled(fill, EventTimePolicy("items", column("ts"), stride=10))
    driver.until_true(driver.processor.complete)
    assert [item for item in driver.output if isinstance(item, Watermark)][-1] == Watermark(1010)


def test_a_function_that_brings_nothing_is_called_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**9]
    monkeypatch.setattr(built_stream, "monotonic_ns", lambda: now[0])
    driver = filled(lambda buffer: None)
    processor = driver.processor
    driver.call(processor.complete)
    assert 0 < (processor.next_call or 0) <= 0.005
    now[0] += 10**9
    driver.call(processor.complete)
    assert processor.next_call == 1 / 32
    now[0] += 100 * 10**9
    driver.call(processor.complete)
    assert processor.next_call == LONGEST_PAUSE


def test_a_function_that_has_waited_itself_is_called_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10**9]
    monkeypatch.setattr(built_stream, "monotonic_ns", lambda: now[0])

    def wait(buffer: Any) -> None:
        now[0] += 10**9

    driver = filled(wait)
    driver.call(driver.processor.complete)
    assert driver.processor.next_call == 0.0


def test_after_items_it_is_called_at_once() -> None:
    driver = filled(lambda buffer: buffer.add(1))
    driver.call(driver.processor.complete)
    assert driver.processor.next_call == 0.0


def test_the_source_is_endless_and_named() -> None:
    for built in (sources.builder("own", str).fill_buffer_fn(print), sources.builder("own", str).fill_buffer_fn(print)):
        source = built.stream()
        assert source.name == "own"
        assert declaration(source.supplier, "is_endless") is True
        assert declaration(source.supplier_for(NATIVE), "is_endless") is True
    spread = sources.builder("own", str).fill_buffer_fn(print).distributed(2).stream()
    assert declaration(spread.supplier, "is_endless") is True
    assert spread.parallelism == 2
    with pytest.raises(ShmjetError, match=r"set fill_buffer_fn before stream\(\)"):
        sources.builder("own", str).stream()
