"""`map_batches`, `to_batches`, `to_rows`, and batches as items of the processors for items."""

from __future__ import annotations

import logging
import math
import pickle
import typing
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, BatchError, Nullable, processors
from shmjet.core import Outbox, Watermark
from shmjet.core.context import ProcessorContext
from shmjet.core.latency_policy import LOW_LATENCY, THROUGHPUT, LatencyPolicy
from shmjet.processors.general import batches_and_rows
from shmjet.testing import TestGrid, TestInbox, verify_processor

from .driving import Driver, processors_of

ONE = Batch({"v": [1, 2, 3], "name": ["a", None, "c"]})
TWO = Batch({"v": [4], "name": ["d"]})


# -- map_batches -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fn",
    [
        lambda batch: batch.select("v").with_columns({"v": batch["v"] * 2}),
        lambda batch: {"v": batch["v"] * 2},
        lambda batch: [{"v": batch["v"][:1] * 2}, None, Batch({"v": batch["v"][1:] * 2})],
        lambda batch: ({"v": batch["v"][i : i + 1] * 2} for i in range(batch.num_rows)),
        lambda batch: ({"v": (batch["v"] * 2).tolist()},),
    ],
)
def test_map_batches_takes_what_a_function_may_return(fn: Any) -> None:
    verify_processor(processors.map_batches(fn)).inputs([ONE, TWO]).expect([Batch({"v": [2, 4, 6, 8]})])


def test_map_batches_drops_none_and_keeps_batches_without_rows() -> None:
    verify_processor(processors.map_batches(lambda batch: None)).inputs([ONE, TWO]).expect([])
    large = processors.map_batches(lambda batch: batch.filter(batch["v"] > 9))
    verify_processor(large).inputs([ONE, TWO]).same_batches().expect([ONE[:0], TWO[:0]])


def by_dict(columns: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    columns["w"] = columns.pop("v") + 1
    return columns


def by_mapping(columns: Mapping[str, Any]) -> Any:
    return by_dict(columns)  # type: ignore[arg-type]


def by_old_dict(columns: typing.Dict[str, Any]) -> Any:  # noqa: UP006
    return by_dict(columns)


def test_a_function_annotated_for_dicts_gets_a_dict() -> None:
    expected = Batch({"name": ["a", None, "c"], "w": [2, 3, 4]})
    for fn in (by_dict, by_mapping, by_old_dict):
        verify_processor(processors.map_batches(fn)).inputs([ONE]).expect([expected])
    unannotated = processors.map_batches(lambda columns: by_dict(columns), as_=dict)
    verify_processor(unannotated).inputs([ONE]).expect([expected])


def test_as_says_what_a_function_gets() -> None:
    kinds: list[type] = []
    for as_, kind in ((None, Batch), (Batch, Batch), (dict, dict)):
        verify_processor(processors.map_batches(lambda given: kinds.append(type(given)), as_)).inputs([ONE]).expect([])
        assert set(kinds) == {kind}
        kinds.clear()
    verify_processor(processors.map_batches(len)).inputs([]).expect([])  # a builtin without annotations
    with pytest.raises(TypeError, match="as_ must be Batch or dict, got <class 'list'>"):
        processors.map_batches(len, list)
    with pytest.raises(TypeError, match="map_batches: expected a function, got int: 5"):
        processors.map_batches(5)  # type: ignore[arg-type]


def test_nulls_stay_with_columns_that_are_passed_on_and_computed() -> None:
    given_ = Batch({"v": [1, None, 3], "name": ["a", None, "c"], "n": [1, 2, 3]})

    def compute(columns: dict[str, Any]) -> dict[str, Any]:
        assert isinstance(columns["v"], Nullable)
        assert isinstance(columns["name"], Nullable)
        assert type(columns["n"]) is np.ndarray
        return {"double": columns["v"] * 2, "same": columns["v"], "other": columns["name"], "n": columns["n"]}

    expected = Batch({"double": [2, None, 6], "same": [1, None, 3], "other": ["a", None, "c"], "n": [1, 2, 3]})
    verify_processor(processors.map_batches(compute)).inputs([given_]).expect([expected])
    passed = processors.map_batches(lambda batch: {"renamed": batch["v"], "text": batch["name"]})
    verify_processor(passed).inputs([given_]).expect([Batch({"renamed": [1, None, 3], "text": ["a", None, "c"]})])


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"a": [1, 2], "b": [1]}, "column 'b' has 1 rows, 'a' has 2"),
        ({"a": np.array([1, "x"], object)}, "column 'a' has dtype object; for text use Text.of"),
        ({"a": [[1], ["x"]]}, "column 'a' mixes text with int, str"),
        ({"a": np.zeros((2, 2))}, r"column 'a' must be one-dimensional, got an array of shape \(2, 2\)"),
        ({"a": 5}, "column 'a' must be a one-dimensional array or sequence, got int"),
        ({"": [1]}, "a column's name must be a non-empty str, got ''"),
        ({5: [1]}, "a column's name must be a non-empty str, got 5"),
        (np.zeros(3), "must return a Batch, a dict of arrays, None, or a list or generator of these, got ndarray"),
        (5, "must return a Batch, .* got int 5"),
        ("text", "must return a Batch, .* got str 'text'"),
        ([5], "must return a Batch, .* got int 5"),
    ],
)
def test_a_result_that_is_no_batch_is_an_error_that_names_the_column(result: Any, text: str) -> None:
    driver = Driver(processors_of(processors.map_batches(lambda batch: result))[0])
    with pytest.raises(BatchError, match=text):
        driver.feed([ONE])


def test_an_error_of_the_function_itself_stays_what_it_is() -> None:
    def broken(batch: Batch) -> Any:
        return batch["no such column"]

    driver = Driver(processors_of(processors.map_batches(broken))[0])
    with pytest.raises(BatchError, match=r"^there is no column 'no such column'") as caught:
        driver.feed([ONE])
    assert caught.traceback[-3].name == "broken"


def test_an_item_that_is_no_batch_is_an_error_that_says_what_to_use() -> None:
    for supplier in (processors.map_batches(lambda batch: batch), processors.to_rows()):
        driver = Driver(processors_of(supplier)[0])
        with pytest.raises(BatchError, match=r"expected a Batch, got dict .*processors.to_batches\(\)"):
            driver.feed([ONE, {"v": 1}])


def test_an_endless_generator_of_batches_is_drawn_as_far_as_there_is_room() -> None:
    def endless(batch: Batch) -> Iterator[Batch]:
        while True:
            yield batch

    (processor,) = processors_of(processors.map_batches(endless))
    driver = Driver(processor, room=3)
    inbox = TestInbox(ONE)
    for _ in range(5):
        driver.call(processor.process, 0, inbox)
        assert inbox
    assert 5 <= len(driver.output) <= 15


# -- to_batches --------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers()), st.integers(1, 5))
def test_to_batches_gives_all_rows_in_order(numbers: list[int], size: int) -> None:
    rows = [{"n": n % 100, "text": str(n)} for n in numbers]
    expected = [Batch.from_rows(rows)] if rows else []
    verify_processor(processors.to_batches(size)).inputs(rows).expect(expected)


def test_full_batches_have_the_size_asked_for() -> None:
    driver = Driver(processors_of(processors.to_batches(4, ["n"]))[0], room=1)
    driver.feed([(n,) for n in range(3)])
    assert driver.output == []
    driver.feed([(n,) for n in range(3, 18)])
    assert [batch.num_rows for batch in driver.complete()] == [4, 4, 4, 4, 2]
    assert [row[0] for batch in driver.output for row in batch.tuples()] == list(range(18))


def test_rows_do_not_wait_behind_a_watermark() -> None:
    rows = [(1,), Watermark(5), (2,), (3,), Watermark(6)]
    expected = [Batch({"n": [1]}), Watermark(5), Batch({"n": [2, 3]}), Watermark(6)]
    verify_processor(processors.to_batches(100, ["n"])).inputs(rows).expect(expected)


@pytest.mark.parametrize("delay", [0.5, timedelta(milliseconds=500)])
def test_rows_wait_for_others_only_so_long(monkeypatch: pytest.MonkeyPatch, delay: float | timedelta) -> None:
    now = 100.0
    monkeypatch.setattr(batches_and_rows, "monotonic", lambda: now)
    (processor,) = processors_of(processors.to_batches(3, ["n"], max_delay=delay))
    driver = Driver(processor)
    assert processor.next_call == math.inf
    driver.feed([(1,)])
    assert processor.next_call == 0.5
    now += 0.4
    driver.feed([(2,)])
    assert driver.output == []
    now += 0.2  # the first row has waited for 0.6 s, the second for 0.2 s
    driver.until_true(processor.try_process)
    assert driver.output == [Batch({"n": [1, 2]})]
    assert processor.next_call == math.inf
    driver.feed([(3,), (4,), (5,), (6,)])  # one batch is full; the clock starts again for what is left
    now += 0.4
    driver.until_true(processor.try_process)
    assert driver.output[1:] == [Batch({"n": [3, 4, 5]})]
    now += 0.2
    driver.until_true(processor.try_process)
    assert driver.output[2:] == [Batch({"n": [6]})]
    driver.until_true(processor.save_to_snapshot)
    assert driver.complete() == driver.output[:3]


@pytest.mark.parametrize("policy", [THROUGHPUT, LOW_LATENCY])
def test_rows_of_a_stream_wait_as_long_as_its_policy_says(
    policy: LatencyPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_and_rows, "monotonic", lambda: 100.0)
    (processor,) = processors_of(processors.to_batches(3, ["n"]))
    Driver(processor, policy=policy).feed([(1,)])
    assert processor.next_call == pytest.approx(policy.row_delay_ns / 1e9)


def test_a_snapshot_finds_no_rows_that_wait() -> None:
    (processor,) = processors_of(processors.to_batches(100, ["n"]))
    driver = Driver(processor, room=1)
    driver.feed([(1,), (2,)])
    driver.until_true(processor.save_to_snapshot)
    assert driver.output == [Batch({"n": [1, 2]})]
    assert driver.complete() == [Batch({"n": [1, 2]})]


def test_to_batches_says_what_does_not_fit() -> None:
    driver = Driver(processors_of(processors.to_batches(2, schema={"a": int}))[0])
    with pytest.raises(BatchError, match=r"^column 'a' has to be int64, found float64"):
        driver.feed([(1,), (2,), (1.5,), (2,)])
    driver = Driver(processors_of(processors.to_batches(2, ["a"]))[0])
    with pytest.raises(BatchError, match=r"^a row has 2 values for 1 columns"):
        driver.feed([(1,), (2, 2)])


def test_batches_pass_between_the_rows_that_become_batches() -> None:
    items = [{"v": 1}, {"v": 2}, {"v": 3}, ONE, ONE, {"v": 4}, ONE, {"v": 5.5}, {"v": "x"}]
    rows = [row for item in items for row in (item.rows() if isinstance(item, Batch) else [item])]
    for room in (1, 100):
        driver = Driver(processors_of(processors.to_batches(2))[0], room=room)
        driver.feed(list(items))
        assert [row for batch in driver.complete() for row in batch.rows()] == rows


def test_to_batches_takes_a_schema() -> None:
    supplier = processors.to_batches(2, schema={"a": float, "b": str})
    expected = Batch({"a": np.array([1.0, 2.5, 3.0]), "b": ["x", None, "z"]})
    verify_processor(supplier).inputs([(1, "x"), (2.5, None), (3, "z")]).expect([expected])


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"n": 0}, ValueError, "n must be at least 1, got 0"),
        ({"n": 2.0}, TypeError, "n must be a number of rows, got float: 2.0"),
        ({"n": True}, TypeError, "n must be a number of rows, got bool: True"),
        ({"columns": []}, BatchError, "to_batches: columns needs the name of at least 1 column"),
        ({"columns": ["a", "a"]}, BatchError, "column 'a' is there twice"),
        ({"schema": {"a": object}}, BatchError, "schema: column 'a' must"),
        (
            {"schema": {"a": int}, "columns": ["b"]},
            ValueError,
            r"the schema names column 'a', which is not among \['b'\]",
        ),
        ({"max_delay": -1}, ValueError, "max_delay must be a number of seconds, 0 or more, got -1"),
        ({"max_delay": "1"}, ValueError, "max_delay must be a number of seconds, 0 or more, got '1'"),
    ],
)
def test_wrong_arguments_of_to_batches_are_refused(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        processors.to_batches(**arguments)


# -- to_rows -----------------------------------------------------------------------------------------------------------


def test_to_rows_gives_dicts_or_tuples() -> None:
    rows = [{"v": 1, "name": "a"}, {"v": 2, "name": None}, {"v": 3, "name": "c"}, {"v": 4, "name": "d"}]
    verify_processor(processors.to_rows()).inputs([ONE, ONE[:0], TWO]).expect(rows)
    tuples = [tuple(row.values()) for row in rows]
    verify_processor(processors.to_rows(tuple)).inputs([ONE, TWO]).expect(tuples)
    with pytest.raises(TypeError, match="as_ must be dict or tuple, got <class 'list'>"):
        processors.to_rows(list)


def test_a_large_batch_becomes_rows_bit_by_bit() -> None:
    (processor,) = processors_of(processors.to_rows(tuple))
    driver = Driver(processor, room=1000)
    driver.feed([Batch({"n": np.arange(50_000), "m": np.arange(50_000) * 2})])
    assert driver.complete() == [(n, 2 * n) for n in range(50_000)]
    assert driver.calls > 50


@given(st.lists(st.tuples(st.integers(-9, 9), st.text(max_size=3) | st.none()), min_size=1), st.integers(1, 9))
def test_rows_survive_the_way_through_batches(rows: list[tuple[int, str | None]], size: int) -> None:
    rows.insert(0, (0, ""))
    batches = Driver(processors_of(processors.to_batches(size, ["a", "b"]))[0]).feed(rows).complete()
    assert Driver(processors_of(processors.to_rows(tuple))[0]).feed(batches).complete() == rows


# -- batches as items --------------------------------------------------------------------------------------------------


def test_processors_for_items_take_a_batch_as_one_item() -> None:
    verify_processor(processors.map(len)).inputs([ONE, TWO]).expect([3, 1])
    verify_processor(processors.filter(lambda batch: len(batch) > 1)).inputs([ONE, TWO]).same_batches().expect([ONE])
    verify_processor(processors.flat_map(lambda batch: [batch, batch])).inputs([TWO]).same_batches().expect([TWO, TWO])
    verify_processor(processors.noop()).inputs([ONE]).expect([])
    verify_processor(processors.read_items([ONE, TWO])).same_batches().expect([ONE, TWO])
    verify_processor(processors.generate(lambda index, count: [ONE])).expect([ONE])


def test_a_batch_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="shmjet"):
        Driver(processors_of(processors.logger())[0]).feed([TWO])
        Driver(processors_of(processors.peek_input(processors.noop()))[0]).feed([TWO])
        Driver(processors_of(processors.peek_output(processors.map(lambda batch: batch)))[0]).feed([TWO])
    assert len(caplog.messages) == 3
    assert all(str(TWO) in message for message in caplog.messages)


def test_sinks_write_batches() -> None:
    grid = TestGrid()
    Driver(processors_of(processors.write_list("list"))[0], grid=grid).feed([ONE, TWO]).complete()
    assert grid.lists["list"] == [ONE, TWO]
    by_size = processors.write_map("map", len, lambda batch: batch)
    Driver(processors_of(by_size)[0], grid=grid).feed([ONE, TWO]).complete()
    assert grid.maps["map"] == {3: ONE, 1: TWO}


def test_suppliers_pickle() -> None:
    for supplier in (processors.map_batches(by_dict), processors.to_batches(3), processors.to_rows()):
        (processor,) = processors_of(pickle.loads(pickle.dumps(supplier)))
        processor.init(Outbox([1]), ProcessorContext())
        assert processor.is_cooperative
