"""Window processors move to another worker between two calls, with all that they know."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from shmjet import Watermark, processors, sliding
from shmjet.aggregate_ops import counting, summing, to_list
from shmjet.execution.tasklet_transfer import pack, unpack
from tests.processors.driving import Driver, processors_of
from tests.processors.time.interpreter import counted, session_counts, sliding_counts
from tests.processors.time.streams import play

TIME, KEY = itemgetter(0), itemgetter(1)
STREAM: list[Any] = [(n * 3, "abc"[n % 3]) for n in range(20)]
STREAM[12:12] = [Watermark(20)]


def moved(driver: Driver, supplier: Any) -> Driver:
    """Return a driver whose processor has come from another one."""
    (stand_in,) = processors_of(supplier)
    other = Driver(stand_in)
    packed = pack(driver.processor, {"outbox": driver.outbox, "context": driver.processor.context})
    assert packed is not None
    other.processor = unpack(packed[0], {"outbox": other.outbox, "context": stand_in.context}, packed[1])
    return other


@pytest.mark.parametrize("op", [counting(), summing(lambda _: 1), to_list().and_then(len)], ids=str)
@pytest.mark.parametrize("at", [3, 13, 18])
@pytest.mark.parametrize("early", [0, 3600])
def test_windows_go_on_where_they_are_moved_to(op: Any, at: int, early: float) -> None:
    window = sliding(0.03, 0.01)
    suppliers = [
        (processors.aggregate_to_sliding_window(KEY, TIME, window, op, early_results=early), None),
        (processors.accumulate_by_frame(KEY, TIME, window, op), processors.combine_to_sliding_window(window, op)),
        (processors.aggregate_to_session_window(KEY, TIME, 0.01, op, early_results=early), None),
    ]
    for number, (supplier, second) in enumerate(suppliers):
        (processor,) = processors_of(supplier)
        driver = Driver(processor)
        play(driver, STREAM[:at])
        other = moved(driver, supplier)
        play(other, STREAM[at:])
        output = driver.output + other.complete()
        if second is not None:
            (processor,) = processors_of(second)
            driver = Driver(processor)
            play(driver, output[:at])
            other = moved(driver, second)
            play(other, output[at:])
            output = driver.output + other.complete()
        assert counted(output) == (session_counts(STREAM, 10)[0] if number == 2 else sliding_counts(STREAM, 30, 10))
