"""`item_stream` and `batch_stream` as processors: schedules, catching up, watermarks, restores; by a clock in hand."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, Watermark, column
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.latency_policy import LOW_LATENCY
from shmjet.data.errors import BatchError, ProcessorError
from shmjet.data.marks import IDLE
from shmjet.processors.general.base import Supply
from shmjet.processors.streams.batch_stream import BatchStreamProcessor
from shmjet.processors.streams.item_stream import ItemStreamProcessor, SimpleEvent
from shmjet.processors.streams.schedule import Schedule
from shmjet.processors.streams.scheduled import ScheduledProcessor
from shmjet.testing import verify_processor
from tests.examples import seeds
from tests.processors.crashing import run_source
from tests.processors.driving import Driver

MS = 1_000_000
START = 1_700_000_000_000
NATIVE = EventTimePolicy("native", stride=10)


class Clock:
    """Nanoseconds since the epoch, in the test's hand."""

    def __init__(self, at: float = 0.0) -> None:
        self.now = 0
        self.go_to(at)

    def go_to(self, ms: float) -> Clock:
        """Set it so many milliseconds behind the start."""
        self.now = START * MS + int(ms * MS)
        return self

    def __call__(self) -> int:
        return self.now


def items(
    rate: Any, clock: Clock, policy: EventTimePolicy | None = None, fn: Callable[[int, int], Any] | None = None
) -> ItemStreamProcessor:
    return ItemStreamProcessor(Schedule(START, Fraction(rate)), policy, fn, clock)


def both(sequence: int, timestamp: int) -> tuple[int, int]:
    return sequence, timestamp - START


def columns(sequences: Any, timestamps: Any) -> Batch:
    return Batch({"n": sequences, "ts": timestamps})


def driver_of(processor: Any, **options: Any) -> Driver:
    return Driver(processor, policy=LOW_LATENCY, **options)


def call(driver: Driver) -> list[Any]:
    """Call `complete` until nothing is due, and return what it emitted."""
    before = len(driver.output)
    for _ in range(100_000):
        assert driver.call(driver.processor.complete) is False
        if driver.processor.next_call:
            return driver.output[before:]
    raise AssertionError("it never rests")


def test_items_come_when_they_are_due_and_the_timer_is_exact() -> None:
    clock = Clock(-10)
    driver = driver_of(items(4, clock, fn=both))
    assert call(driver) == []
    assert driver.processor.next_call == pytest.approx(0.010)
    clock.go_to(0)
    assert call(driver) == [(0, 0)]
    assert driver.processor.next_call == pytest.approx(0.250)
    clock.go_to(249.999)
    assert call(driver) == []
    assert driver.processor.next_call == pytest.approx(1e-6, rel=0.01)
    clock.go_to(1250)
    assert call(driver) == [(1, 250), (2, 500), (3, 750), (4, 1000), (5, 1250)]


def test_a_tenth_of_an_item_a_second_sleeps_ten_seconds() -> None:
    clock = Clock()
    driver = driver_of(items(Fraction(1, 10), clock))
    assert call(driver) == [SimpleEvent(START, 0)]
    assert driver.processor.next_call == 10.0


def test_processors_share_the_numbers_without_a_gap() -> None:
    clock = Clock(999)
    outputs = [call(driver_of(items(3000, clock, fn=both), index=g, count=3)) for g in range(3)]
    assert outputs[1][:3] == [(1, 0), (4, 1), (7, 2)]
    assert sorted(chain.from_iterable(outputs)) == [(n, n // 3) for n in range(2998)]


def test_a_source_that_is_hours_behind_catches_up_in_pieces() -> None:
    clock = Clock(3_600_000)
    driver = driver_of(items(10**7, clock), room=512)
    for _ in range(50):
        before = len(driver.output)
        driver.call(driver.processor.complete)
        assert len(driver.output) - before <= 512
        assert driver.processor.next_call == 0.0
    assert [event.sequence for event in driver.output] == list(range(len(driver.output)))
    assert len(driver.output) > 1000


def test_none_is_no_item_and_other_items_keep_their_timestamps() -> None:
    clock = Clock(5)
    fn = lambda n, ts: n if n % 3 == 1 else None  # noqa: E731
    driver = driver_of(items(1000, clock, NATIVE, fn))
    assert call(driver) == [Watermark(START), (START + 1, 1), (START + 4, 4)]


def test_items_may_be_arrays() -> None:
    driver = driver_of(items(1000, Clock(1), fn=lambda n, ts: np.arange(2)))
    assert len(call(driver)) == 2


def test_what_a_function_raises_comes_out() -> None:
    driver = driver_of(items(1000, Clock(1), fn=lambda n, ts: 1 // n))
    with pytest.raises(ZeroDivisionError):
        call(driver)


def test_native_timestamps_are_never_late_and_time_goes_on_where_nothing_is_due() -> None:
    clock = Clock()
    driver = driver_of(items(Fraction(1, 2), clock, NATIVE, both))
    assert call(driver) == [Watermark(START), (START, (0, 0))]
    seen = [START]
    for _ in range(25):
        clock.now += int((driver.processor.next_call or 0) * 1e9)
        out = call(driver)
        seen += [mark.timestamp for mark in out if isinstance(mark, Watermark)]
        if isinstance(out[-1], tuple):
            break
    assert clock.now == (START + 2000) * MS
    assert out[-1] == (START + 2000, (1, 2000))
    assert seen == sorted(set(seen))
    assert seen[-1] == START + 2000
    assert 18 <= len(seen) <= 22  # in steps of a tenth of a second, though the stride is finer


def test_a_stride_of_a_second_wakes_it_once_a_second() -> None:
    clock = Clock()
    driver = driver_of(items(Fraction(1, 100), clock, EventTimePolicy("native", stride=1000, allowed_lag=300), both))
    call(driver)
    for second in range(4):
        clock.now += int((driver.processor.next_call or 0) * 1e9)
        assert clock.now == (START + second * 1000 + 300) * MS
        assert call(driver) == [Watermark(START + second * 1000)]


def test_a_call_that_comes_late_does_not_delay_the_watermarks_behind() -> None:
    clock = Clock()
    driver = driver_of(items(Fraction(1, 100), clock, EventTimePolicy("native", stride=100, allowed_lag=7), both))
    call(driver)
    for late in (33, 0, 61):
        clock.now += int((driver.processor.next_call or 0) * 1e9) + late * MS
        call(driver)
    clock.now += int((driver.processor.next_call or 0) * 1e9)
    assert clock.now == (START + 307) * MS
    assert call(driver) == [Watermark(START + 300)]


def test_with_timestamps_of_items_only_events_move_the_watermark_and_silence_makes_it_idle() -> None:
    clock = Clock()
    policy = EventTimePolicy("items", lambda item: item[0], stride=1, idle_timeout=500)
    driver = driver_of(items(Fraction(1, 2), clock, policy, both))
    assert call(driver) == [Watermark(0), (0, (0, 0))]
    clock.now += int((driver.processor.next_call or 0) * 1e9)
    assert clock.now == (START + 500) * MS
    assert call(driver) == [IDLE]
    assert driver.processor.next_call == 1.5


def test_without_watermarks_nothing_wakes_it_but_items() -> None:
    driver = driver_of(items(Fraction(1, 100), Clock(), EventTimePolicy("native", stride=0), both))
    assert call(driver) == [(START, (0, 0))]
    assert driver.processor.next_call == 100.0


def test_a_restored_source_gives_the_same_timestamps_to_the_same_numbers_after_an_hour() -> None:
    clock = Clock(2.5)
    first = driver_of(items(1000, clock, NATIVE, both))
    call(first)
    entries = first.save()
    clock.go_to(3_600_000)
    late = ItemStreamProcessor(Schedule(START + 3_600_000, Fraction(1000)), NATIVE, both, clock)
    second = driver_of(late).restore(entries)
    second.call(late.complete)
    pairs = [item for item in second.output if isinstance(item, tuple)]
    assert pairs[:3] == [(START + 3, (3, 3)), (START + 4, (4, 4)), (START + 5, (5, 5))]
    assert isinstance(second.output[0], tuple)  # the watermark is that of the snapshot: none is sent before it rises


def test_a_snapshot_of_another_rate_is_refused() -> None:
    first = driver_of(items(1000, Clock()))
    with pytest.raises(
        ProcessorError, match=r"a stream of 1000 items a second, this one has 0\.5; go on with the rate"
    ):
        driver_of(items(Fraction(1, 2), Clock())).restore(first.save())


LAST = 200


class Ending(ScheduledProcessor):
    """Ends after some numbers, so that runs have an end; its clock goes on with each call."""

    _saves_at_end = True

    def complete(self) -> bool:
        clock = self._given_clock
        assert isinstance(clock, Clock)
        clock.now = min(clock.now + 7 * MS, (START + LAST - 1) * MS)
        super().complete()
        return self._share.position >= LAST and self.emission.flush()


class EndingItems(Ending, ItemStreamProcessor):
    """Items that end."""


class EndingBatches(Ending, BatchStreamProcessor):
    """Batches that end."""


def ending_items(policy: EventTimePolicy | None) -> Supply:
    return Supply(EndingItems, Schedule(START, Fraction(1000)), policy, both, Clock())


def ending_batches(policy: EventTimePolicy | None) -> Supply:
    return Supply(EndingBatches, Schedule(START, Fraction(1000)), policy, columns, MS, Clock())


def test_an_item_stream_passes_all_modes() -> None:
    class Short(ItemStreamProcessor):
        """Is behind from the beginning, so that each mode emits the same."""

        def complete(self) -> bool:
            ItemStreamProcessor.complete(self)
            return self._share.position > 25 and self.emission.flush()

    supply = Supply(Short, Schedule(START, Fraction(1000)), None, both, Clock(25))
    verify_processor(supply).expect([(n, n) for n in range(26)])
    timed = Supply(Short, Schedule(START, Fraction(1000)), NATIVE, both, Clock(25))
    expected: list[Any] = [(START + n, (n, n)) for n in range(26)]
    for at, mark in ((20, 20), (10, 10), (0, 0)):
        expected.insert(at, Watermark(START + mark))
    verify_processor(timed).expect(expected)


def test_a_batch_stream_passes_all_modes() -> None:
    class Short(BatchStreamProcessor):
        def complete(self) -> bool:
            BatchStreamProcessor.complete(self)
            return self._share.position > 25 and self.emission.flush()

    supply = Supply(Short, Schedule(START, Fraction(1000)), None, columns, MS, Clock(25))
    verify_processor(supply).expect([columns(np.arange(26), np.arange(26) + START)])


@pytest.mark.parametrize("seed", seeds(10))
def test_items_come_once_through_kills_and_other_parallelism(seed: int) -> None:
    runs = run_source(lambda: ending_items(None), seed)
    emitted = sorted(chain.from_iterable(runs))
    assert emitted == [(n, n) for n in range(LAST)]


@pytest.mark.parametrize("seed", seeds(10))
def test_no_item_is_late_by_its_own_watermark_through_kills_and_other_parallelism(seed: int) -> None:
    emitted: list[int] = []
    for run in run_source(lambda: ending_items(NATIVE), seed):
        last = -math.inf
        for item in run:
            if isinstance(item, Watermark):
                assert item.timestamp > last
                last = item.timestamp
            else:
                assert item[0] >= last
                emitted.append(item[1][0])
    assert sorted(emitted) == list(range(LAST))


@pytest.mark.parametrize("seed", seeds(6))
def test_rows_come_once_through_kills_and_other_parallelism(seed: int) -> None:
    batches = chain.from_iterable(run_source(lambda: ending_batches(None), seed))
    assert sorted(chain.from_iterable(batch["n"].tolist() for batch in batches)) == list(range(LAST))


# -- batches -----------------------------------------------------------------------------------------------------------


def batches(rate: Any, clock: Clock, policy: EventTimePolicy | None = None, fn: Any = columns, period: int = MS) -> Any:
    return BatchStreamProcessor(Schedule(START, Fraction(rate)), policy, fn, period, clock)


def test_a_batch_a_period_and_larger_ones_where_it_is_behind() -> None:
    clock = Clock()
    driver = driver_of(batches(10_000, clock))
    sizes = []
    for _ in range(5):
        sizes.append([batch.num_rows for batch in call(driver)])
        assert driver.processor.next_call == pytest.approx(0.001)
        clock.now += int((driver.processor.next_call or 0) * 1e9)
    assert sizes == [[1], [10], [10], [10], [10]]
    clock.now += 500 * MS
    assert [batch.num_rows for batch in call(driver)] == [4096, 914]
    numbers = np.concatenate([batch["n"] for batch in driver.output])
    assert numbers.dtype == np.int64
    assert numbers.tolist() == list(range(len(numbers)))
    stamps = np.concatenate([batch["ts"] for batch in driver.output])
    assert stamps.tolist() == [START + n // 10 for n in numbers]


def test_no_batch_is_made_before_a_row_is_due() -> None:
    clock = Clock(0.5)
    driver = driver_of(batches(10, clock))
    assert [batch.num_rows for batch in call(driver)] == [1]
    assert driver.processor.next_call == pytest.approx(0.0995)


def test_a_day_behind_takes_bounded_memory() -> None:
    driver = driver_of(batches(10**7, Clock(86_400_000)))
    driver.call(driver.processor.complete)
    driver.call(driver.processor.complete)
    assert all(batch.num_rows <= 16384 for batch in driver.output)


def test_timestamps_of_a_column_or_native_ones_in_a_column_that_is_added() -> None:
    by_column = EventTimePolicy("items", column("ts"), stride=1000)
    assert stamped(call(driver_of(batches(1000, Clock(2), by_column)))).names == ("n", "ts")
    native = EventTimePolicy("native", column("timestamp"), stride=1000)
    out = stamped(call(driver_of(batches(1000, Clock(2), native))))
    assert out["timestamp"].astype(np.int64).tolist() == [START, START + 1, START + 2]
    own = driver_of(batches(1000, Clock(2), native, lambda n, ts: Batch({"timestamp": ts - 5})))
    assert stamped(call(own))["timestamp"].astype(np.int64).tolist() == [START - 5, START - 4, START - 3]
    ingested = EventTimePolicy("ingestion", column("timestamp"), stride=1000)
    seen = stamped(call(driver_of(batches(1000, Clock(2), ingested))))["timestamp"]
    assert abs(seen.astype(np.int64) / 1000 - time.time()).max() < 60


def stamped(out: list[Any]) -> Batch:
    """Return all rows."""
    return Batch.concat([item for item in out if isinstance(item, Batch)])


def test_rows_that_are_left_out_need_a_column_of_timestamps() -> None:
    native = EventTimePolicy("native", column("timestamp"), stride=1000)
    short = driver_of(batches(1000, Clock(2), native, lambda n, ts: Batch({"n": n[:1]})))
    with pytest.raises(BatchError, match=r"returned 1 rows for 3 numbers.*column 'timestamp'"):
        call(short)
    assert call(driver_of(batches(1000, Clock(2), None, lambda n, ts: Batch({"n": n[:0]})))) == []
    assert call(driver_of(batches(1000, Clock(2), None, lambda n, ts: None))) == []


@pytest.mark.parametrize("made", [{"n": [1]}, [1, 2], "text"])
def test_what_is_not_a_batch_is_refused(made: Any) -> None:
    with pytest.raises(TypeError, match=r"must return a Batch, got .*; use Batch"):
        call(driver_of(batches(1000, Clock(2), None, lambda n, ts: made)))


@pytest.mark.parametrize("seed", range(3))
def test_watermarks_of_batches_never_make_their_rows_late(seed: int) -> None:
    dice = random.Random(seed)
    clock = Clock()
    native = EventTimePolicy("native", column("timestamp"), stride=dice.choice([1, 7, 100]))
    driver = driver_of(batches(3000, clock, native))
    for _ in range(40):
        clock.now += int(dice.expovariate(1 / (20 * MS)))
        call(driver)
    last = -math.inf
    for item in driver.output:
        if isinstance(item, Watermark):
            assert item.timestamp > last
            last = item.timestamp
        else:
            assert item["timestamp"].astype(np.int64).min() >= last
    assert last > START + 300
