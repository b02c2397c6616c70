from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest

from shmjet.core.key_functions import is_identity, plain
from shmjet.processors.general.aggregate_by_key import KeyFns


def returns_other(item: Any, other: Any = 1) -> Any:
    return other


def captured() -> Callable[[Any], Any]:
    key = "captured"
    return lambda item: key


class Caller:
    def method(self, item: Any) -> Any:
        return item

    def __call__(self, item: Any) -> Any:
        return item


def with_local(item: Any) -> Any:
    other = item
    return other  # noqa: RET504


@pytest.mark.parametrize("fn", [None, lambda x: x, lambda word: word])
def test_the_identity_is_recognised_in_every_spelling(fn: Any) -> None:
    assert is_identity(fn)
    assert plain(fn) is None


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x,),
        lambda x, y=1: x,
        lambda *x: x,
        lambda **x: x,
        lambda: 1,
        lambda x: 0,
        returns_other,
        captured(),
        Caller().method,
        Caller(),
        with_local,
        operator.itemgetter(0),
        functools.partial(returns_other, 1),
        str.lower,
        len,
    ],
)
def test_other_functions_are_not_taken_for_the_identity(fn: Any) -> None:
    assert not is_identity(fn)
    assert plain(fn) is fn


def test_a_key_function_that_cannot_be_called_is_an_error_that_shows_it() -> None:
    with pytest.raises(TypeError, match="'name'"):
        plain("name")  # type: ignore[arg-type]


def test_one_key_function_serves_all_ordinals() -> None:
    assert KeyFns(len).at(0) is KeyFns(len).at(7) is len


def test_a_missing_key_function_for_an_ordinal_is_an_error() -> None:
    key_fns = KeyFns([len, None])
    assert key_fns.at(0) is len
    assert key_fns.at(1) is None
    with pytest.raises(ValueError, match="2 functions, but items arrived on edge 2"):
        key_fns.at(2)


def test_an_empty_sequence_of_key_functions_is_an_error() -> None:
    with pytest.raises(ValueError, match="one key function per inbound edge"):
        KeyFns([])
