from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import Any

import pytest

from shmjet.core.column_key import column, columns
from shmjet.pipeline.planner.keys import identity_of


def make(n: int) -> Any:
    return lambda x: x + n


SAME: list[tuple[Any, Any]] = [
    (None, lambda x: x),
    (lambda x: x[0], itemgetter(0)),
    (lambda row: row["id"], column("id")),
    (column("id"), itemgetter("id")),
    (columns("a", "b"), itemgetter("a", "b")),
    (lambda x: x.id, attrgetter("id")),
    (lambda x: x % 5, lambda y: y % 5),
    (lambda x: (x[0], x[1] + 1), lambda y: (y[0], y[1] + 1)),
    (str.lower, str.lower),
    (lambda x: {"a": lambda y: y}["a"](x), lambda x: {"a": lambda y: y}["a"](x)),
]
DIFFERENT: list[tuple[Any, Any]] = [
    (None, itemgetter(0)),
    (lambda x: x[0], lambda x: x[1]),
    (lambda x: x[0], lambda x: x["0"]),
    (lambda x: x.a, lambda x: x.b),
    (lambda x: x.a, lambda x: x["a"]),
    (lambda x: x % 5, lambda x: x % 7),
    (lambda x: x + 1, lambda x: x - 1),
    (make(1), make(2)),
    (lambda x, n=1: x + n, lambda x, n=2: x + n),
    (str.lower, str.upper),
    (lambda x: abs(x), lambda x: hash(x)),
    (column("a"), columns("a", "b")),
    (lambda x: x * 2, lambda x: x * 2.0),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_functions_that_give_equal_keys_are_the_same(one: Any, other: Any) -> None:
    assert identity_of(one) == identity_of(other)
    hash(identity_of(one))


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_what_may_give_other_keys_is_different(one: Any, other: Any) -> None:
    assert identity_of(one) != identity_of(other)


def test_an_object_that_cannot_be_hashed_is_itself_only() -> None:
    class Key(dict):  # type: ignore[type-arg]
        def __call__(self, item: Any) -> Any:
            return item

    key = Key()
    assert identity_of(key) == identity_of(key)
    assert identity_of(key) != identity_of(Key())
