from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import processors
from shmjet.core.traverser import traverse
from shmjet.data.errors import ProcessorError
from shmjet.data.marks import Watermark
from shmjet.testing import TestInbox, verify_processor

from .driving import Driver, processors_of


def test_map_emits_the_result_for_each_item() -> None:
    verify_processor(processors.map(lambda x: x * 2)).inputs([1, 2, 3]).expect([2, 4, 6])


def test_map_drops_items_whose_result_is_none() -> None:
    verify_processor(processors.map(lambda x: x or None)).inputs([0, 1, 0, 2]).expect([1, 2])


def test_map_takes_results_that_do_not_compare_like_plain_values() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("never compared")

        __hash__ = None  # type: ignore[assignment]

    driver = Driver(processors_of(processors.map(lambda x: Odd()))[0])
    assert len(driver.feed([1, 2]).complete()) == 2


def test_filter_keeps_items_for_which_the_predicate_is_true() -> None:
    verify_processor(processors.filter(lambda x: x % 2)).inputs([1, 2, 3]).expect([1, 3])


def test_filter_and_map_are_exported_under_both_names() -> None:
    assert processors.map is processors.map_
    assert processors.filter is processors.filter_


def words(line: str) -> Iterator[str]:
    yield from line.split()


@pytest.mark.parametrize(
    "fn",
    [
        str.split,
        words,
        lambda line: tuple(line.split()),
        lambda line: iter(line.split()),
        lambda line: traverse(line.split()),
        lambda line: map(str.strip, line.split()),
        lambda line: dict.fromkeys(line.split()),
    ],
)
def test_flat_map_accepts_any_iterable(fn: Any) -> None:
    verify_processor(processors.flat_map(fn)).inputs(["a b", "", "c d e", "f"]).expect(list("abcdef"))


@given(st.lists(st.lists(st.integers(), max_size=5), max_size=20))
def test_flat_map_emits_everything_in_order(items: list[list[int]]) -> None:
    verify_processor(processors.flat_map(list)).inputs(items).expect(list(itertools.chain(*items)))


def test_flat_map_suspends_an_endless_generator() -> None:
    drawn: list[int] = []

    def endless(start: int) -> Iterator[int]:
        for number in itertools.count(start):
            drawn.append(number)
            yield number

    (processor,) = processors_of(processors.flat_map(endless))
    driver = Driver(processor, room=4)
    inbox = TestInbox(7)
    for _ in range(10):
        driver.call(processor.process, 0, inbox)
        assert inbox
    assert driver.output == list(range(7, 7 + len(driver.output)))
    assert 10 <= len(driver.output) == len(drawn)


def test_flat_map_refuses_none_among_the_results() -> None:
    driver = Driver(processors_of(processors.flat_map(lambda x: [x, None]))[0])
    with pytest.raises(TypeError, match="None is never an item"):
        driver.feed([1])


def test_a_flat_map_function_that_returns_no_iterable_is_told_so() -> None:
    driver = Driver(processors_of(processors.flat_map(lambda x: None))[0])  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="flat_map: 'NoneType' object is not iterable; its function must return"):
        driver.feed([1])


def test_a_type_error_in_a_flat_map_function_is_left_as_it_is() -> None:
    def broken(item: int) -> list[int]:
        return [*item]  # type: ignore[misc]

    driver = Driver(processors_of(processors.flat_map(broken))[0])
    with pytest.raises(TypeError, match=r"after \* must be an iterable|object is not iterable") as caught:
        driver.feed([1])
    assert caught.value.__cause__ is None


def test_an_engine_that_measures_calls_sees_many_items_taken_in_each() -> None:
    (processor,) = processors_of(processors.flat_map(lambda n: [n] * 10))
    driver = Driver(processor)
    inbox = TestInbox(*range(10_000))
    calls_of_one = 0
    while inbox:
        before = len(inbox)
        driver.call(processor.process, 0, inbox)
        calls_of_one += before - len(inbox) <= 1 < before
    assert driver.calls < 100
    assert calls_of_one <= 8  # only while the sizes of pulls are being learned
    assert len(driver.complete()) == 100_000


def test_watermarks_stay_behind_what_came_before_them() -> None:
    verify_processor(processors.flat_map(lambda n: range(n))).inputs([3, Watermark(10), 2]).expect(
        [0, 1, 2, Watermark(10), 0, 1]
    )


def test_a_transformation_of_many_items_through_a_narrow_outbox_loses_nothing() -> None:
    (processor,) = processors_of(processors.flat_map(lambda n: [n] * 3))
    driver = Driver(processor, room=7)
    driver.feed(range(1000)).feed(range(1000, 2000))
    assert driver.complete() == [n for n in range(2000) for _ in range(3)]


def test_map_stateful_with_a_key_keeps_a_state_per_key() -> None:
    def rank(state: list[Any], key: str, item: str) -> Any:
        state.append(item)
        return (key, len(state)) if len(state) > 1 else None

    supplier = processors.map_stateful(list, rank, key_fn=lambda item: item[0])
    verify_processor(supplier).inputs(["a1", "b1", "a2", "a3", "b2"]).expect([("a", 2), ("a", 3), ("b", 2)])


def test_map_stateful_without_a_key_keeps_one_state() -> None:
    def running_total(state: list[int], item: int) -> int:
        state[0] += item
        return state[0]

    verify_processor(processors.map_stateful(lambda: [0], running_total)).inputs([1, 2, 3]).expect([1, 3, 6])


def test_map_stateful_takes_the_item_itself_as_key_when_the_key_function_is_none() -> None:
    supplier = processors.map_stateful(list, lambda state, key, item: state.append(1) or (key, len(state)), None)
    verify_processor(supplier).inputs("aba").expect([("a", 1), ("b", 1), ("a", 2)])


@pytest.mark.parametrize(
    "factory", [processors.map, processors.filter, processors.flat_map, lambda fn: processors.map_stateful(fn, fn)]
)
def test_what_is_no_function_is_refused_where_the_processor_is_made(factory: Any) -> None:
    with pytest.raises(TypeError, match="42"):
        factory(42)


def test_suppliers_pickle_and_say_that_they_are_cooperative() -> None:
    supplier = pickle.loads(pickle.dumps(processors.map(str.upper)))
    assert supplier.is_cooperative
    verify_processor(supplier).inputs(["a"]).expect(["A"])


def test_a_source_refuses_items() -> None:
    driver = Driver(processors_of(processors.generate(lambda index, count: []))[0])
    with pytest.raises(ProcessorError, match="edge 0 brought some"):
        driver.feed([1])
