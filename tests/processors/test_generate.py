from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet import processors
from shmjet.testing import verify_processor

from .driving import Driver, processors_of


@given(size=st.integers(0, 50), count=st.integers(1, 8))
def test_items_are_emitted_once_each_whatever_the_parallelism(size: int, count: int) -> None:
    made = processors_of(processors.read_items(range(size)), count)
    output: list[Any] = []
    for index, processor in enumerate(made):
        output += Driver(processor, room=3, index=index, count=count).complete(edges=())
    assert output == list(range(size))


def test_items_prefer_one_processor_so_that_their_order_is_kept() -> None:
    assert processors.read_items([1]).preferred_local_parallelism == 1
    verify_processor(processors.read_items(iter("abc"))).expect(["a", "b", "c"])


def test_none_among_the_items_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="None is never an item"):
        processors.read_items([1, None])


def test_generate_gives_each_processor_its_index_and_their_count() -> None:
    supplier = processors.generate(lambda index, count: range(index, 10, count))
    output = [
        Driver(processor, index=index, count=3).complete(edges=())
        for index, processor in enumerate(processors_of(supplier, 3))
    ]
    assert output == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]


def test_an_endless_generator_is_drawn_only_as_far_as_there_is_room() -> None:
    counter = itertools.count()
    (processor,) = processors_of(processors.generate(lambda index, count: counter))
    driver = Driver(processor, room=10)
    for _ in range(5):
        assert not driver.call(processor.complete)
    assert driver.output == list(range(50))
    assert next(counter) == 50


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TypeError, match="generate"):
        processors.generate([1])  # type: ignore[arg-type]
