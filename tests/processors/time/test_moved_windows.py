"""Window processors move to another worker between two calls, with all that they know."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import pytest

from shmjet import Watermark, processors, sliding
from shmjet.aggregate_ops import counting, summing, to_list
from shmjet.core.key_functions import NAN, OTHER_NAN
from shmjet.execution.tasklet_transfer import pack, unpack
from shmjet.processors.time.join_side import JoinSide
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


def rolling(key_fn: Any) -> Any:
    def number(state: list[int], key: Any, item: Any) -> tuple[int, int]:
        state.append(0)
        return item[0], len(state)

    return processors.map_stateful(list, number, key_fn, ttl=1, timestamp_fn=TIME)


@pytest.mark.parametrize("nan", [float("nan"), ("a", float("nan"))], ids=str)
@pytest.mark.parametrize(
    "supplier_of",
    [
        lambda key: processors.aggregate_to_sliding_window(key, TIME, sliding(0.06, 0.03), counting()),
        lambda key: processors.aggregate_to_session_window(key, TIME, 0.01, counting()),
        rolling,
    ],
    ids=["sliding", "session", "rolling"],
)
def test_nan_is_the_same_key_where_they_are_moved_to(nan: Any, supplier_of: Any) -> None:
    """A state finds its NaN by identity."""
    found = {}
    for key in ("one", nan):
        supplier = supplier_of(lambda item, key=key: key)
        (processor,) = processors_of(supplier)
        driver = Driver(processor)
        play(driver, STREAM[:8])
        other = moved(driver, supplier)
        play(other, STREAM[8:])
        output = [item for item in driver.output + other.complete() if isinstance(item, tuple)]
        found[key] = [(item[0], item[3] if len(item) > 3 else item[1]) for item in output]
    assert found[nan] == found["one"]


@pytest.mark.parametrize("nan", [NAN, OTHER_NAN], ids=["left", "right"])
def test_a_side_of_a_join_that_has_moved_forgets_rows_with_nans(nan: float) -> None:
    side = JoinSide(1, False)
    side.add(nan, (5, "row"), 0)
    packed = pack(side, {})
    assert packed is not None
    moved_side = unpack(packed[0], {}, [])
    moved_side.forget(100)
    assert len(moved_side) == 0
