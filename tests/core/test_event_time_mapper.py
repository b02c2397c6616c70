"""Jet's numerics of event time, case by case: its `EventTimeMapperTest`, and what a list of events adds to it."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from shmjet import Batch, column
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper
from shmjet.core.windows import HIGHEST, LOWEST
from shmjet.data.errors import BatchError, ConfigError
from shmjet.data.marks import IDLE, Watermark

MS = 1_000_000
S = 1_000_000_000
LAG = 3


def wm(timestamp: int) -> Watermark:
    return Watermark(timestamp)


def policy(**settings: Any) -> EventTimePolicy:
    return EventTimePolicy(**{"timestamp_fn": int, "idle_timeout": 5, "timed": False, **settings})


def mapper(partitions: int = 1, **settings: Any) -> EventTimeMapper:
    return EventTimeMapper(policy(**settings), partitions)


# -- one event at a time, as Jet's tests have it ---------------------------------------------------------------------


def test_watermark_follows_the_only_active_partition() -> None:
    one = mapper(2, allowed_lag=LAG)
    assert one.idle(1 * MS) == []
    assert one.idle(5 * MS) == [IDLE]
    assert one.idle(5 * MS) == []
    assert one.take([100], 0, 5 * MS) == [wm(97), 100]
    assert one.take([90], 0, 5 * MS) == [90]
    assert one.take([101], 0, 5 * MS) == [wm(98), 101]


def test_without_idle_timeout_a_silent_partition_holds_the_watermark() -> None:
    one = mapper(2, allowed_lag=LAG, idle_timeout=None)
    assert one.idle(0) == []
    assert one.take([10], 0, 0) == [10]
    assert one.take([11], 0, 10**18) == [11]
    assert one.take([10], 1, 10**18) == [wm(7), 10]
    assert one.take([11], 1, 10**18) == [wm(8), 11]
    assert one.take([12], 1, 10**18) == [12]
    assert one.take([13], 0, 10**18) == [wm(9), 13]
    assert one.next_call(10**18) == math.inf


def test_source_without_partitions_is_idle_at_once() -> None:
    one = mapper(0, allowed_lag=LAG, idle_timeout=None)
    assert one.next_call(0) == 0
    assert one.idle(0) == [IDLE]
    assert one.idle(0) == []
    assert one.next_call(0) == math.inf
    one.add_partitions(1, 0)
    assert one.idle(0) == []
    assert one.take([10], 0, 0) == [wm(7), 10]


def test_idle_is_sent_again_after_an_event() -> None:
    one = mapper(allowed_lag=LAG, idle_timeout=10)
    assert one.take([10], 0, 0) == [wm(7), 10]
    assert one.next_call(0) == 0.01
    assert one.idle(10 * MS) == [IDLE]
    assert one.take([10], 0, 10 * MS) == [10]
    assert one.idle(10 * MS) == []
    assert one.idle(20 * MS) == [IDLE]


def test_highest_watermark_comes_before_idle() -> None:
    one = mapper(2, allowed_lag=LAG, idle_timeout=10)
    assert one.take([10], 0, 0) == [10]
    assert one.idle(10 * MS) == [wm(7), IDLE]


def test_native_timestamps() -> None:
    one = mapper(allowed_lag=LAG, timestamps="native", timestamp_fn=None)
    assert one.take([10], 0, 1, [11]) == [wm(8), 10]
    assert one.take([11], 0, 1, np.array([12])) == [wm(9), 11]
    with pytest.raises(ConfigError, match="no timestamps of their own; say with_timestamps"):
        one.take([10], 0, 0)


def test_stride_of_zero_gives_no_watermarks() -> None:
    one = mapper(stride=0)
    assert one.take([-10, 10], 0, 0) == [-10, 10]
    assert one.idle(10 * S) == []
    assert one.next_call(0) == math.inf


def test_watermark_does_not_go_back_after_a_restore() -> None:
    one = mapper()
    one.restore(10, 0)
    assert one.take([9], 0, 0) == [9]
    assert one.take([10], 0, 0) == [10]
    assert one.take([11], 0, 0) == [wm(11), 11]
    assert one.watermark == 11


def test_removal_of_the_slowest_partition_lets_the_watermark_rise() -> None:
    one = mapper(2)
    assert one.take([10], 0, 0) == [10]
    assert one.remove_partition(1, 0) == [wm(10)]


def test_removal_of_a_fast_partition_changes_nothing() -> None:
    one = mapper(2)
    assert one.take([10], 0, 0) == [10]
    assert one.take([11], 1, 0) == [wm(10), 11]
    assert one.remove_partition(1, 0) == []


def test_removal_and_idleness_at_once() -> None:
    one = mapper(3)
    assert one.take([10], 0, 0) == [10]
    assert one.take([11], 1, 1 * MS) == [11]
    assert one.take([12], 2, 1 * MS) == [wm(10), 12]
    assert one.remove_partition(1, 5 * MS) == [wm(12)]


# -- lists -----------------------------------------------------------------------------------------------------------


def test_timed_items_with_watermarks_in_between() -> None:
    one = mapper(stride=10, timed=True)
    assert one.take([-25, -11, -12, -9, 4, 10, 11, 35], 0, 0) == [
        wm(-30), (-25, -25), wm(-20), (-11, -11), (-12, -12), wm(-10), (-9, -9), wm(0), (4, 4),
        wm(10), (10, 10), (11, 11), wm(30), (35, 35),
    ]  # fmt: skip


def test_partition_that_is_added_later_holds_the_watermark() -> None:
    one = mapper()
    assert one.take([10], 0, 0) == [wm(10), 10]
    one.add_partitions(1, 0)
    assert one.take([20], 0, 0) == [20]
    assert one.take([12, 30], 1, 0) == [wm(12), 12, wm(20), 30]


def test_item_is_not_late_by_a_watermark_that_was_held_back_until_it_came() -> None:
    one = mapper(2)
    assert one.take([10], 1, 0) == [10]
    assert one.take([100], 0, 0) == [wm(10), 100]
    assert one.take([50, 60, 55], 0, 5 * MS) == [wm(50), 50, wm(60), 60, 55]
    assert one.next_call(5 * MS) == 0
    assert one.idle(5 * MS) == [wm(100)]


def test_two_events_ten_years_apart_cost_one_watermark() -> None:
    years = 10 * 365 * 86_400_000
    assert mapper(stride=1).take([0, years], 0, 0) == [wm(0), 0, wm(years), years]


def test_datetimes_become_timestamps() -> None:
    one = mapper(timestamp_fn=lambda item: item, timed=True)
    at = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert one.take([at, np.datetime64("1970-01-01T00:00:02"), np.int64(2_001)], 0, 0)[1::2] == [
        (1_000, at),
        (2_000, np.datetime64("1970-01-01T00:00:02")),
        (2_001, np.int64(2_001)),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, 1.5, True, "now", datetime(2020, 1, 1), np.datetime64("NaT", "s")),
        *(1 << 63, (1 << 62) + 1, -(1 << 62) - 1),
    ],
)
def test_error_for_a_wrong_timestamp_names_the_item(wrong: Any) -> None:
    one = mapper(timestamp_fn=lambda item: item["at"])
    with pytest.raises((TypeError, OverflowError), match=r"timestamp must.*'id': 7"):
        one.take([{"at": 5, "id": 6}, {"at": wrong, "id": 7}], 0, 0)


def test_timestamps_in_any_order_are_taken_up_to_the_bounds() -> None:
    longest = 1 << 62
    for stamps in ([-longest, 0, longest], [longest, -longest, 0], [0, 0], [3, 2, 1]):
        assert mapper(timestamp_fn=lambda item: item, timed=True, stride=0).take(list(stamps), 0, 0) == [
            (stamp, stamp) for stamp in stamps
        ]


def test_facts_of_partitions() -> None:
    one = mapper(2)
    one.take([10, 12], 0, 1)
    one.idle(5 * MS)
    assert one.facts() == [(0, 12, None, 2), (1, None, 0, 0)]


# -- batches ---------------------------------------------------------------------------------------------------------


def rows(out: list[Any]) -> list[Any]:
    return [item["ts"].astype(np.int64).tolist() if isinstance(item, Batch) else item for item in out]


def test_batch_in_order_stays_in_one_piece() -> None:
    one = mapper(timestamp_fn=column("ts"), stride=10)
    assert rows(one.take_batch(Batch({"ts": [5, 17, 28]}), 0, 0)) == [[5, 17, 28], wm(20)]
    assert rows(one.take_batch(Batch({"ts": [29]}), 0, 0)) == [[29]]
    assert rows(one.take_batch(Batch({"ts": np.array([31_500_000], "datetime64[ns]")}), 0, 0)) == [[31_500_000], wm(30)]
    assert one.take_batch(Batch({"ts": []}), 0, 0) == []


def test_batch_is_cut_before_a_row_that_is_late() -> None:
    one = mapper(timestamp_fn=column("ts"), stride=10, allowed_lag=5)
    assert rows(one.take_batch(Batch({"ts": [5, 17, 12, 9, 8, 50, 11]}), 0, 0)) == [
        [5, 17, 12],
        wm(10),
        [9, 8, 50],
        wm(40),
        [11],
    ]


def test_batch_is_cut_at_each_watermark_when_there_are_timers() -> None:
    one = mapper(timestamp_fn=column("ts"), stride=1)
    assert rows(one.take_batch(Batch({"ts": [5, 5, 7]}), 0, 0)) == [wm(5), [5, 5], wm(7), [7]]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_with_a_zone_are_timestamps(unit: str) -> None:
    one = mapper(timestamp_fn=column("ts"), stride=1_000)
    instants = [datetime(1970, 1, 1, 2, 0, second, tzinfo=ZoneInfo("Europe/Paris")) for second in (0, 1)]
    batch = Batch({"ts": instants}, schema={"ts": f"timestamp[{unit}, Europe/Paris]"})
    *_, last = one.take_batch(batch, 0, 0)
    assert last == wm(3_601_000)


def test_a_function_that_gets_batches_is_told_of_columns() -> None:
    with pytest.raises(TypeError, match=r"the item is a batch, whose timestamps are in a column\(name\)"):
        mapper(timestamp_fn=lambda item: item["ts"]).take([Batch({"ts": [1]})], 0, 0)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (Batch({"at": [1]}), r"no column 'ts', which holds the timestamps; it has \['at'\].*add_timestamps"),
        (Batch({"ts": [1.5]}), "'ts' holds the timestamps, but its type is float64"),
        (Batch({"ts": ["x"]}), "'ts' holds the timestamps, but"),
        (Batch({"ts": [1, None]}), "null in row 1 of 2"),
        (Batch({"ts": np.array([0, "NaT"], "datetime64[s]")}), "null in row 1 of 2"),
        (Batch({"ts": [1 << 62, (1 << 62) + 1]}), "fit 63 bits"),
    ],
)
def test_errors_of_timestamp_columns(batch: Batch, text: str) -> None:
    with pytest.raises(BatchError, match=text):
        mapper(timestamp_fn=column("ts")).take_batch(batch, 0, 0)


# -- clocks ----------------------------------------------------------------------------------------------------------


def test_ingestion_timestamps_do_not_fall_when_the_wall_clock_is_set_back() -> None:
    times = iter([1_000, 5_000, 2_000, 5_001])
    one = EventTimeMapper(policy(timestamps="ingestion", timed=True), 1, wall_clock=lambda: next(times))
    out = [one.take(["x"], 0, 0)[-1][0] for _ in range(4)]
    assert out == [1_000, 5_000, 5_000, 5_001]


def test_ingestion_timestamps_are_not_below_a_watermark_that_was_restored_or_rose_in_silence() -> None:
    times = iter([2_000, 5_000, 2_000])
    one = EventTimeMapper(policy(timestamps="ingestion", timed=True), 1, wall_clock=lambda: next(times))
    one.restore(4_000, 0)  # the clock was set back between two attempts
    assert one.take(["x"], 0, 0)[-1] == (4_000, "x")
    one = EventTimeMapper(
        policy(timestamps="ingestion", timed=True, idle_timeout=None, advance_when_idle=1_000, stride=1_000),
        1,
        wall_clock=lambda: next(times),
    )
    assert one.take(["y"], 0, 0) == [wm(5_000), (5_000, "y")]
    assert one.idle(4 * S) == [wm(8_000)]
    assert one.take(["z"], 0, 4 * S) == [(8_000, "z")]


def test_time_of_a_silent_partition_goes_on_at_the_pace_of_the_clock() -> None:
    one = mapper(stride=1_000, idle_timeout=None, advance_when_idle=2_000, allowed_lag=100)
    assert one.take([10_500], 0, 0) == [wm(10_000), 10_500]
    assert one.next_call(0) == pytest.approx(2.6)
    assert one.idle(2 * S + 599 * MS) == []
    assert one.idle(2 * S + 600 * MS) == [wm(11_000)]
    assert one.next_call(2 * S + 600 * MS) == pytest.approx(1.0)
    assert one.take([11_500], 0, 3 * S) == [11_500]
    assert one.idle(4 * S) == []


def test_time_goes_on_beyond_idleness_without_holding_others_back() -> None:
    one = mapper(stride=1_000, idle_timeout=3_000, advance_when_idle=2_000)
    one.take([10_000], 0, 0)
    assert one.idle(3 * S) == [wm(11_000), IDLE]
    assert one.next_call(3 * S) == pytest.approx(1.0)
    assert one.idle(4 * S) == [wm(12_000), IDLE]
    assert one.idle(4 * S) == []


def test_time_goes_on_in_coarse_steps() -> None:
    one = mapper(stride=1, idle_timeout=None, advance_when_idle=1_000)
    one.take([0], 0, 0)
    assert one.next_call(0) == pytest.approx(1.1)
    assert one.idle(1 * S + 99 * MS) == []
    assert one.idle(1 * S + 100 * MS) == [wm(100)]


def test_time_begins_anew_after_a_restore_and_after_a_stall() -> None:
    one = mapper(stride=1_000, idle_timeout=None, advance_when_idle=1_000)
    one.restore(5_000, now=3_600 * S)
    assert one.idle(3_600 * S) == []
    assert one.idle(3_602 * S) == [wm(6_000)]
    assert one.next_call(3_602 * S) == 1.0
    assert one.idle(7_200 * S) == []
    assert one.idle(7_202 * S) == [wm(7_000)]


def test_time_in_which_the_source_is_not_asked_is_no_silence() -> None:
    one = mapper()
    one.take([10], 0, 0)
    one.hold(4 * MS)
    assert one.idle(10 * S) == []
    assert one.idle(10 * S + 1 * MS) == [IDLE]


# -- skew ------------------------------------------------------------------------------------------------------------


def test_partition_that_is_far_ahead_waits() -> None:
    one = mapper(2, max_skew=10)
    assert one.may_take(0)
    one.take([100], 0, 0)
    assert not one.may_take(0)
    assert one.may_take(1)
    one.take([90], 1, 0)
    assert not one.may_take(0)
    assert one.may_take(1)
    assert one.holds_at == 90
    one.take([91], 1, 4 * MS)
    assert one.may_take(0)


def test_partition_waits_for_other_processors_too() -> None:
    one = mapper(1, max_skew=10)
    one.take([100], 0, 0)
    assert one.may_take(0)
    assert one.may_take(0, others=91)
    assert not one.may_take(0, others=90)
    assert one.holds_at == 100


def test_idle_partition_holds_nothing_back() -> None:
    one = mapper(1, max_skew=10)
    assert one.holds_at == LOWEST
    one.take([100], 0, 0)
    one.idle(60 * S)
    assert one.holds_at == HIGHEST


def test_partition_that_waits_is_not_silent() -> None:
    one = mapper(2, max_skew=10)
    one.take([100], 0, 0)
    one.take([90], 1, 0)
    for now in range(1, 20):
        assert not one.may_take(0)
        one.take([90], 1, now * MS)
    assert one.facts()[0].idle_since is None
    assert one.idle(24 * MS) == [wm(100)]


def test_a_batch_of_a_source_of_items_is_an_error_that_says_which_sources_make_batches() -> None:
    mapper = EventTimeMapper(EventTimePolicy(timestamp_fn=column("ts")), 1, now=0)
    with pytest.raises(BatchError, match=r"made a Batch; use sources\.batch_stream or builder\(\.\.\.\)\.stream\(\)"):
        mapper.take([Batch({"ts": np.array([5])})], 0, 0)
    with pytest.raises(BatchError, match="the item has no 'ts'"):
        mapper.take([{"at": 5}], 0, 0)
