"""`insert_watermarks`: items get their time, and watermarks, wherever they come from."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shmjet import Batch, column
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.event_time import EventTimePolicy
from shmjet.data.errors import BatchError, ConfigError, ProcessorError
from shmjet.data.marks import IDLE, Watermark
from shmjet.processors import insert_watermarks
from shmjet.processors.time import insert_watermarks as module
from shmjet.testing import TestInbox, verify_processor
from tests.processors.driving import Driver, processors_of, restored

MS = 1_000_000


def wm(timestamp: int) -> Watermark:
    return Watermark(timestamp)


def policy(**settings: Any) -> EventTimePolicy:
    return EventTimePolicy(**{"timestamp_fn": int, "stride": 10, **settings})


class Clock:
    """Nanoseconds that a test sets."""

    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "monotonic_ns", found)
    return found


def test_items_get_their_time_in_every_mode() -> None:
    check = verify_processor(insert_watermarks(policy(allowed_lag=5))).inputs([-7, 12, 21, 14, 36])
    check.expect(
        [wm(-20), (-7, -7), wm(0), (12, 12), wm(10), (21, 21), (14, 14), wm(30), (36, 36)],
    )


def test_bare_items_between_watermarks() -> None:
    check = verify_processor(insert_watermarks(policy(timed=False))).inputs(["7", "12", "21"])
    check.expect([wm(0), "7", wm(10), "12", wm(20), "21"])


def test_many_watermarks_in_a_full_outbox() -> None:
    count = 500
    expected = [out for k in range(count) for out in (wm(10 * k), (10 * k, 10 * k))]
    verify_processor(insert_watermarks(policy())).inputs(range(0, 10 * count, 10)).expect(expected)


def test_batches_and_rows_by_column() -> None:
    rows = [{"ts": 1}, {"ts": 12}]
    batch = Batch({"ts": [25, 38, 41]})
    check = verify_processor(insert_watermarks(policy(timestamp_fn=column("ts"), allowed_lag=20)))
    check.inputs([*rows, batch, {"ts": 42}]).expect(
        [wm(-20), (1, rows[0]), wm(-10), (12, rows[1]), batch, wm(20), (42, {"ts": 42})]
    )


def test_rows_are_made_into_batches_where_a_stage_behind_expects_a_column() -> None:
    driver = Driver(
        processors_of(insert_watermarks(policy(timestamp_fn=column("ts"), timed=False, idle_timeout=None)))[0]
    )
    driver.feed([{"ts": 1}, {"ts": 12}, Batch({"ts": [25]})])
    batch, mark, given, last = driver.output
    assert list(batch.rows()) == [{"ts": 1}, {"ts": 12}]
    assert (mark, list(given.rows()), last) == (wm(10), [{"ts": 25}], wm(20))
    with pytest.raises(
        BatchError, match=r"timestamps by column\(name\) are of batches, and of rows.* Use with_timestamps\(fn\)"
    ):
        driver.feed(["text"])


def test_ingestion_timestamps_of_batches_are_a_column() -> None:
    driver = Driver(processors_of(insert_watermarks(policy(timestamps="ingestion", timestamp_fn=column("at"))))[0])
    driver.feed([Batch({"n": [1, 2]})])
    batch, mark = driver.output
    assert batch.names == ("n", "at")
    assert 0 <= batch["at"].astype(int)[0] - mark.timestamp < 10


def test_watermarks_of_before_are_dropped() -> None:
    check = verify_processor(insert_watermarks(policy())).inputs([wm(1_000), 7, wm(2_000), 12])
    check.expect([wm(0), (7, 7), wm(10), (12, 12)])


def test_silence_needs_one_timer_and_no_polling(clock: Clock) -> None:
    driver = Driver(processors_of(insert_watermarks(policy(idle_timeout=2_000)))[0])
    driver.feed([7])
    assert driver.processor.next_call == 2.0
    clock.now = 1_999 * MS
    assert driver.call(driver.processor.try_process)
    assert driver.processor.next_call == pytest.approx(0.001)
    clock.now = 2_000 * MS
    assert driver.call(driver.processor.try_process)
    assert driver.output[-1] == IDLE
    assert driver.processor.next_call == math.inf


def test_waiting_for_room_is_not_silence(clock: Clock) -> None:
    driver = Driver(processors_of(insert_watermarks(policy(idle_timeout=2_000)))[0], room=2)
    inbox = TestInbox(7, 12)
    driver.call(driver.processor.process, 0, inbox)
    assert driver.output == [wm(0), (7, 7)]
    clock.now = 60_000 * MS
    driver.call(driver.processor.process, 0, inbox)
    assert driver.output == [wm(0), (7, 7), wm(10), (12, 12)]
    assert not inbox
    driver.until_true(driver.processor.try_process)
    assert IDLE not in driver.output


def test_restored_to_the_least_watermark_with_any_parallelism() -> None:
    saved = [(BroadcastKey(("watermark", 0)), (40, ())), (BroadcastKey(("watermark", 1)), (20, ()))]
    for driver in restored(insert_watermarks(policy()), saved, 3):
        driver.feed([15, 25, 31])
        assert driver.output == [(15, 15), (25, 25), wm(30), (31, 31)]
    undecided = [*saved, (BroadcastKey(("watermark", 2)), (None, ()))]
    (driver,) = restored(insert_watermarks(policy()), undecided, 1)
    driver.feed([15])
    assert driver.output == [wm(10), (15, 15)]


def test_errors() -> None:
    with pytest.raises(ConfigError, match="native timestamps are those of a source"):
        insert_watermarks(EventTimePolicy(timestamps="native"))
    with pytest.raises(ConfigError, match="lacks timestamp_fn"):
        insert_watermarks(EventTimePolicy())
    with pytest.raises(ProcessorError, match="got saved state, but has none"):
        restored(insert_watermarks(policy()), [(BroadcastKey("other"), 1)], 1)
