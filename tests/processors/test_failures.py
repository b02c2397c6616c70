"""Items whose functions raise are skipped, or leave as `FailedItem` on a side output, and nothing else changes."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from shmjet.aggregate_ops import AggregateOperation
from shmjet.data.batch import Batch
from shmjet.data.errors import ProcessorError, RestartableError
from shmjet.data.failed_item import FailedItem
from shmjet.data.marks import Watermark
from shmjet.processors import hash_join
from shmjet.processors.general import failures
from shmjet.processors.general.async_services import using_service_async
from shmjet.processors.general.failures import FailureGuard, OnError, error_text, traceback_text
from shmjet.processors.general.fused_steps import Step, fused
from shmjet.processors.general.service_use import using_service
from shmjet.processors.general.services import ServiceFactory
from shmjet.processors.general.stateful import filter_stateful, flat_map_stateful, map_stateful, rolling_aggregate
from shmjet.processors.general.table_lookup import join_table
from shmjet.processors.grid.map_lookup import map_using_map
from shmjet.processors.time.stream_join import stream_join
from shmjet.testing import TestContext, TestGrid, TestInbox, TestOutbox, verify_processor

from .driving import Driver, processors_of

SKIP, SEND = OnError("parse"), OnError("parse", 0)
TEXTS = ["1", "x", "2", "3", "y", "0", "z", "4"]
W = Watermark


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "shmjet")


def items_failed(expected: list[Any], actual: list[Any]) -> bool:
    """Compare outputs, of failed items their items."""
    failed = [item for item in actual if isinstance(item, FailedItem)]
    assert all(item.traceback.endswith(item.error) for item in failed)
    return expected == [item.item if isinstance(item, FailedItem) else item for item in actual]


def check(supplier: Any, inputs: list[Any], results: list[Any], failed: list[Any], *more: Any, **context: Any) -> None:
    """Verify what comes out for the items of the first edge."""
    verified = verify_processor(supplier).inputs(inputs, *more).output_checker(items_failed)
    if more:
        verified.priorities(0, *[-1] * len(more))
    verified.context(**context).without_progress_check().expect(results, failed)


def double(text: str) -> int | None:
    return 2 * int(text) or None


def small(number: int) -> bool:
    return 12 // (number - 4) < 0


def several(text: str) -> Any:
    for number in range(int(text)):
        if number == 2:
            raise RuntimeError("no more than two")
        yield number


def test_the_failed_items_of_a_map_leave_on_the_side() -> None:
    check(fused([Step("map", double, "parse", SEND)]), TEXTS, [2, 4, 6, 8], ["x", "y", "z"])


def test_skipped_items_are_counted() -> None:
    supplier = fused([Step("map", double, "parse", SKIP)])
    verify_processor(supplier).inputs(TEXTS).expect([2, 4, 6, 8])
    driver = Driver(processors_of(supplier)[0]).feed(TEXTS)
    assert driver.processor.failed_items_skipped == 3


def test_only_the_stage_that_asks_for_it_is_guarded() -> None:
    steps = [Step("map", double, "parse", SKIP), Step("map", lambda n: 1 // (n - 4), "after")]
    with pytest.raises(ZeroDivisionError) as caught:
        Driver(processors_of(fused(steps))[0]).feed(TEXTS)
    assert caught.value.__notes__ == ["in stage 'after'"]
    with pytest.raises(ValueError, match="invalid literal"):
        Driver(processors_of(fused([Step("map", double, "a"), Step("filter", small, "b", SKIP)]))[0]).feed(TEXTS)


def test_each_stage_of_a_chain_has_a_side_of_its_own() -> None:
    steps = [
        Step("map", double, "parse", OnError("parse", 1)),
        Step("filter", small, "choose", OnError("choose", 0)),
        Step("flat_map", lambda n: [n] * n, "repeat"),
    ]
    verify_processor(fused(steps)).inputs(TEXTS).output_checker(items_failed).expect([2, 2], [4], ["x", "y", "z"])


def test_what_a_generator_gave_before_it_raised_stays() -> None:
    check(fused([Step("flat_map", several, "parse", SEND)]), ["1", "4", "x", "2"], [0, 0, 1, 0, 1], ["4", "x"])
    check(fused([Step("flat_map", lambda text: 7, "parse", SEND)]), ["1"], [], ["1"])


def test_a_failed_item_tells_where_it_failed() -> None:
    processor = processors_of(fused([Step("map", double, "parse", SEND)]))[0]
    outbox = TestOutbox(9, 9)
    processor.init(outbox, TestContext())
    Driver.feed

    processor.process(0, TestInbox("x"))
    (failed,) = outbox.drain(1)
    assert failed[:3] == ("x", "parse", "ValueError: invalid literal for int() with base 10: 'x'")
    lines = failed.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{__file__}", line ')
    assert lines[1].endswith("in double")
    assert lines[2:] == ["    return 2 * int(text) or None", failed.error]


def test_stateful_stages() -> None:
    def count(state: list[int], key: str, text: str) -> int:
        state.append(int(text))
        return len(state)

    def key(text: str) -> str:
        return "odd" if int(text) % 2 else "even"

    whole = map_stateful(list, lambda state, text: count(state, "", text), on_error=SEND)
    check(whole, TEXTS, [1, 2, 3, 4, 5], ["x", "y", "z"])
    check(map_stateful(list, count, key, on_error=SEND), TEXTS, [1, 1, 2, 2, 3], ["x", "y", "z"])
    check(filter_stateful(list, count, key, on_error=SEND), ["1", "x"], ["1"], ["x"])
    many = flat_map_stateful(list, lambda state, key, text: several(text), None, on_error=SEND)
    check(many, ["1", "4", "x", "2"], [0, 0, 1, 0, 1], ["4", "x"])
    timed = [(1, "1"), (2, "x"), W(3), (3, "2"), W(30), (31, "y")]
    kept = map_stateful(list, count, None, ttl=0.01, timed=True, on_error=SEND)
    check(kept, timed, [(1, 1), W(3), (3, 1), W(30)], ["x", W(3), W(30), "y"])


def test_rolling_aggregates() -> None:
    op: Any = AggregateOperation(list, lambda found, text: found.append(int(text)), finish=len)
    check(rolling_aggregate(op, on_error=SEND), ["1", "x", "2"], [1, 2], ["x"])


def test_services_sync_and_async() -> None:
    async def later(service: Any, text: str) -> int:
        await asyncio.sleep(0)
        return int(text)

    factory = ServiceFactory(lambda: 10)
    check(using_service("map", factory, lambda s, t: s + int(t), on_error=SEND), TEXTS[:3], [11, 12], ["x"])
    check(using_service("flat_map", factory, lambda s, t: several(t), on_error=SEND), ["3", "x"], [0, 1], ["3", "x"])
    check(using_service_async("map", factory, later, on_error=SEND), TEXTS[:3], [1, 2], ["x"])
    check(using_service_async("map", factory, lambda s, t: int(t), on_error=SEND), ["1", "x"], [], ["1", "x"])


def test_lookups_and_joins() -> None:
    def both(item: str, value: Any) -> Any:
        return int(item), value

    grid = TestGrid()
    grid.get_map("names").put_all({"1": "one"})
    expected = [(1, "one"), (2, None)]
    check(map_using_map("names", None, both, on_error=SEND), ["1", "x", "2"], expected, ["x"], grid=grid)
    check(map_using_map("names", lambda t: [t], both, on_error=SEND), ["1"], [], ["1"], grid=grid)
    check(join_table(None, [False], both, on_error=SEND), ["1", "x", "2"], expected, ["x"], [("1", "one")])
    join = hash_join((int, lambda pair: int(pair[0])), on_error=SEND)
    check(join, ["1", "x"], [("1", ("1", "one"))], ["x"], [("1", "one")])


def test_a_join_of_streams_names_the_pair() -> None:
    def merged(left: str, right: str) -> int:
        return int(left) + int(right)

    join = stream_join(lambda t: t[-1], lambda t: t[-1], merged, within=1, on_error=SEND)
    left, right = [(1, "x1"), (1, "2"), (1, "")], [(1, "1"), (2, "02")]
    verify_processor(join).inputs(left, right).output_checker(
        lambda expected, actual: sorted(map(repr, expected)) == sorted(repr(getattr(i, "item", i)) for i in actual)
    ).expect([(2, 4)], [("x1", "1"), ""])


class UnpicklableError(Exception):
    def __init__(self) -> None:
        super().__init__("odd")
        self.held = lambda: None

    def __str__(self) -> str:
        raise KeyError("broken")

    def __reduce__(self) -> Any:
        raise TypeError("not me")


def test_an_error_travels_as_text_whatever_it_is() -> None:
    assert error_text(UnpicklableError()) == "UnpicklableError: <its __str__ raised KeyError>"
    try:
        try:
            raise UnpicklableError
        except UnpicklableError as error:
            raise ValueError("second") from error
    except ValueError as error:
        text = traceback_text(error)
    assert "direct cause" in text
    assert text.endswith("ValueError: second")


@pytest.mark.parametrize("error", [RestartableError("anew"), ProcessorError("broken rule"), MemoryError()])
def test_errors_that_say_nothing_about_the_item_are_not_caught(error: Exception) -> None:
    def failing(item: Any) -> Any:
        raise error

    with pytest.raises(type(error)):
        Driver(processors_of(fused([Step("map", failing, "parse", SKIP)]))[0]).feed(["1"])
    with pytest.raises(type(error)):
        Driver(processors_of(map_stateful(list, lambda s, i: failing(i), on_error=SKIP))[0]).feed(["1"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupts_are_not_caught(error: type[BaseException]) -> None:
    def failing(item: Any) -> Any:
        raise error

    with pytest.raises(error):
        Driver(processors_of(fused([Step("map", failing, "parse", SKIP)]))[0]).feed(["1"])


def test_a_flood_of_errors_is_a_line_in_the_log_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(failures, "monotonic", lambda: now[0])
    caplog.set_level(logging.WARNING, "shmjet")
    guard = FailureGuard([SKIP], TestOutbox(), TestContext())
    for _ in range(1000):
        guard.failed(SKIP, "x", ValueError("no"))
    assert len(caplog.records) == 1
    assert "stage 'parse': an item failed and was skipped: 'x'\nValueError: no" in caplog.text
    now[0] += failures.LOG_PERIOD
    guard.failed(SKIP, "x", ValueError("no"))
    assert len(caplog.records) == 2
    assert "(999 more items have failed since the last such message)" in caplog.text


def test_a_vertex_without_an_edge_for_failed_items_is_told_so() -> None:
    supplier = fused([Step("map", double, "parse", OnError("parse", 1))])
    with pytest.raises(ProcessorError, match="needs 2 outbound edges for failed items, after all others, but has 1"):
        Driver(processors_of(supplier)[0])


def test_a_chain_with_event_time() -> None:
    steps = [Step("map", double, "parse", SEND), Step("flat_map", lambda n: [n] * (n // 2), "repeat")]
    timed = [(number, text) for number, text in enumerate(TEXTS[:4])]
    results = [(0, 2), (2, 4), (2, 4), (3, 6), (3, 6), (3, 6)]
    check(fused(steps, times="kept"), timed, results, ["x"])
    check(fused(steps, times="dropped"), timed, [result for _, result in results], ["x"])
    with pytest.raises(TypeError, match="stage 'parse': None is never an item"):
        Driver(processors_of(fused([Step("flat_map", lambda t: [None], "parse", SKIP)], times="kept"))[0]).feed(timed)


def test_rows_of_batches_go_through_a_chain() -> None:
    steps = [Step("map", lambda row: 1 // row["n"], "parse", SKIP)]
    batch = Batch({"n": [1, 0], "ts": [5, 6]})
    driver = Driver(processors_of(fused(steps, takes_batches=True))[0])
    assert driver.feed([batch, {"n": 1}]).output == [1, 1]
    driver = Driver(processors_of(fused(steps, takes_batches=True, times="kept", time_column="ts"))[0])
    assert driver.feed([batch]).output == [(5, 1)]
