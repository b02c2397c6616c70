"""Functions keep the name of their file, whichever cloudpickle carries them."""

from __future__ import annotations

import dataclasses
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmjet.data.code_pickling import dumps


def moved(obj: Any) -> Any:
    return pickle.loads(dumps(obj))


def test_functions_and_those_inside_them_keep_their_file() -> None:
    outer: Callable[[int], Callable[[int], float]] = lambda x: lambda y: x / y  # noqa: E731
    copy = moved(outer)
    assert copy.__code__ is not outer.__code__
    with pytest.raises(ZeroDivisionError) as failure:
        copy(1)(0)
    (*_, last) = traceback.extract_tb(failure.value.__traceback__)
    assert last.filename == __file__
    assert "lambda y: x / y" in (last.line or "")


def test_methods_of_classes_keep_their_file_and_those_that_dataclass_makes_theirs() -> None:
    @dataclasses.dataclass
    class Point:
        x: int

        def twice(self) -> int:
            return 2 * self.x

    copy = moved(Point)
    assert copy.twice.__code__.co_filename == __file__
    assert copy.__eq__.__code__.co_filename == Point.__eq__.__code__.co_filename == "<string>"


def test_a_function_is_called_as_before_with_all_kinds_of_arguments() -> None:
    def many(a: int, /, b: int, *rest: int, c: int = 3, **others: int) -> tuple[Any, ...]:
        inner = [a + i for i in rest]
        return a, b, inner, c, others

    assert moved(many)(1, 2, 5, 6, c=7, d=8) == many(1, 2, 5, 6, c=7, d=8)


def test_large_buffers_go_to_the_callback() -> None:
    buffers: list[pickle.PickleBuffer] = []
    array = np.arange(1000)
    data = dumps(array, buffers.append)
    assert len(data) < 500
    assert np.array_equal(pickle.loads(data, buffers=buffers), array)
