"""Traversers do the same over an iterable, which ends, and over a source that resumes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import Traverser, traverse


class Feed(Traverser):
    """Has what was put into it; nothing now when that is used up."""

    def __init__(self, *items):
        self.items = list(items)

    def next(self):
        return self.items.pop(0) if self.items else None


both = pytest.mark.parametrize(
    "make", [lambda items: traverse(list(items)), lambda items: Feed(*items)], ids=["over", "feed"]
)

STEPS = {
    "map": (lambda t: t.map(lambda n: n + 1), lambda xs: [x + 1 for x in xs]),
    "map to None": (lambda t: t.map(lambda n: n if n % 3 else None), lambda xs: [x for x in xs if x % 3]),
    "filter": (lambda t: t.filter(lambda n: n % 2), lambda xs: [x for x in xs if x % 2]),
    "flat_map list": (lambda t: t.flat_map(lambda n: [n] * (n % 3)), lambda xs: [x for x in xs for _ in range(x % 3)]),
    "flat_map traverser": (
        lambda t: t.flat_map(lambda n: traverse(n, -n - 1)),
        lambda xs: [y for x in xs for y in (x, -x - 1)],
    ),
    "take_while": (lambda t: t.take_while(lambda n: n < 9), lambda xs: list(itertools.takewhile(lambda n: n < 9, xs))),
    "drop_while": (lambda t: t.drop_while(lambda n: n < 3), lambda xs: list(itertools.dropwhile(lambda n: n < 3, xs))),
    "append": (lambda t: t.append(77), lambda xs: [*xs, 77]),
    "prepend": (lambda t: t.prepend(88), lambda xs: [88, *xs]),
    "peek": (lambda t: t.peek(lambda n: None), lambda xs: xs),
    "on_first_null": (lambda t: t.on_first_null(lambda: None), lambda xs: xs),
}


@both
@given(items=st.lists(st.integers(0, 20)), steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5))
def test_any_chain_gives_what_lists_give(make, items, steps):
    traverser, expected = make(items), items
    for step in steps:
        traverser, expected = STEPS[step][0](traverser), STEPS[step][1](expected)
    assert list(traverser) == expected


@both
def test_next_gives_none_for_ever_when_exhausted(make):
    traverser = make([1]).map(str)
    assert [traverser.next() for _ in range(3)] == ["1", None, None]


def test_a_feed_resumes_through_every_step():
    feed = Feed(1, 2)
    chain = feed.map(lambda n: n * 10).filter(bool).flat_map(lambda n: [n, n + 1]).peek(lambda n: None).prepend(0)
    assert list(chain) == [0, 10, 11, 20, 21]
    feed.items += [3]
    assert list(chain) == [30, 31]
    assert chain.next() is None
    feed.items += [4]
    assert chain.next() == 40


def test_append_comes_once_at_the_first_null():
    feed = Feed(1)
    chain = feed.append("end")
    assert [chain.next() for _ in range(3)] == [1, "end", None]
    feed.items += [2]
    assert [chain.next(), chain.next()] == [2, None]


@both
def test_on_first_null_acts_once(make):
    seen = []
    chain = make([1]).on_first_null(lambda: seen.append("null"))
    assert chain.next() == 1
    assert seen == []
    assert [chain.next(), chain.next()] == [None, None]
    assert seen == ["null"]


def test_nothing_is_computed_before_it_is_asked_for():
    seen = []
    chain = traverse(itertools.count()).peek(seen.append).flat_map(lambda n: itertools.repeat(n, 2))
    assert seen == []
    assert [chain.next() for _ in range(3)] == [0, 0, 1]
    assert seen == [0, 1]


@pytest.mark.parametrize("make", [lambda: traverse(range(4)), lambda: Feed(*range(4))])
@pytest.mark.parametrize("step", ["map", "filter", "flat_map", "take_while", "drop_while", "peek"])
def test_a_stop_iteration_of_a_function_is_an_error_and_no_end(make, step):
    def fails_at_one(item):
        if item == 1:
            raise StopIteration
        return [item] if step == "flat_map" else True

    traverser = getattr(make(), step)(fails_at_one)
    with pytest.raises(RuntimeError, match=rf"the function of {step}\(\) raised StopIteration"):
        list(traverser)


def test_a_none_from_the_iterable_is_an_error_and_no_end():
    traverser = traverse([1, None, 2])
    assert traverser.next() == 1
    with pytest.raises(TypeError, match="None is never an item"):
        traverser.next()
    with pytest.raises(TypeError, match="None is never an item"):
        Feed(1).flat_map(lambda n: [None]).next()


@pytest.mark.parametrize(
    ("arguments", "items"),
    [
        ((), []),
        (([],), []),
        ((range(3),), [0, 1, 2]),
        ((1, 2), [1, 2]),
        ((5,), [5]),
        (("word",), ["word"]),
        ((b"b",), [b"b"]),
    ],
)
def test_traverse_takes_an_iterable_or_items(arguments, items):
    assert list(traverse(*arguments)) == items


def test_traverse_gives_a_traverser_back():
    feed = Feed(1)
    assert traverse(feed) is feed


def test_the_base_class_is_an_empty_traverser():
    assert list(Traverser()) == []
