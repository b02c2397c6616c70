from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core.outbox import Outbox
from shmjet.processors.general.emission import LARGEST_PULL, Emission


def drain(outbox: Outbox) -> list[int]:
    """Play the engine between two callbacks."""
    items = outbox.buckets[0][:]
    outbox.buckets[0].clear()
    outbox.begin_callback()
    return items


@given(
    room=st.integers(1, 5),
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "iterator", "list"]), st.lists(st.integers(), max_size=20)), max_size=8
    ),
)
def test_everything_arrives_once_and_in_order_however_narrow_the_outbox(
    room: int, steps: list[tuple[str, list[int]]]
) -> None:
    outbox = Outbox([room])
    outbox.begin_callback()
    emission = Emission(outbox)
    output: list[int] = []
    for how, items in steps:
        while not emission.flush():
            output += drain(outbox)
        output += drain(outbox)
        if how != "put":
            emission.start(iter(items) if how == "iterator" else items)
        else:
            emission.put(list(items))
            output += drain(outbox)
    while not emission.flush():
        output += drain(outbox)
    output += drain(outbox)
    assert output == list(itertools.chain.from_iterable(items for _, items in steps))
    assert emission.idle


def test_a_list_that_just_fits_is_through_in_one_call() -> None:
    outbox = Outbox([8])
    outbox.begin_callback()
    emission = Emission(outbox)
    emission.start(range(8))
    assert emission.flush()
    assert emission.idle
    assert drain(outbox) == [*range(8)]


def test_an_endless_sequence_is_suspended_when_the_outbox_is_full() -> None:
    outbox = Outbox([3])
    outbox.begin_callback()
    emission = Emission(outbox)
    drawn: list[int] = []

    def endless() -> Iterator[int]:
        for number in itertools.count():
            drawn.append(number)
            yield number

    emission.start(endless())
    assert not emission.flush()
    assert drain(outbox) == [0, 1, 2]
    assert drawn == [0, 1, 2]  # nothing was drawn that could not be emitted
    assert not emission.flush()
    assert drain(outbox) == [3, 4, 5]


def test_a_slow_sequence_does_not_hold_a_call_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0

    def slow() -> Iterator[int]:
        nonlocal now
        for number in range(1000):
            now += 10_000_000
            yield number

    monkeypatch.setattr("shmjet.processors.general.emission.monotonic_ns", lambda: now)
    outbox = Outbox([LARGEST_PULL])
    outbox.begin_callback()
    emission = Emission(outbox)
    emission.start(slow())
    assert not emission.flush()
    assert drain(outbox) == [0]


def test_putting_a_list_before_the_last_one_is_out_is_an_error() -> None:
    outbox = Outbox([1])
    outbox.begin_callback()
    emission = Emission(outbox)
    assert not emission.put([1, 2])
    outbox.begin_callback()
    with pytest.raises(RuntimeError, match="flush"):
        emission.put([3])


def test_starting_a_sequence_before_the_last_one_is_out_is_an_error() -> None:
    emission = Emission(Outbox([1]))
    emission.start([1])
    with pytest.raises(RuntimeError, match="flush"):
        emission.start([2])
