"""Events of a map's journal: packed for one call of msgpack, and made into the named tuples of users."""

from __future__ import annotations

import gc
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import journal_events, journal_parts
from shmjet.grid.changes import EVENT
from shmjet.grid.map_event import MapEvent
from tests.examples import examples

NAMES = ("", "added", "updated", "removed")
VALUES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3) | st.lists(st.integers(0, 9), max_size=2)
ENTRIES = st.tuples(st.integers(0, 2**60) | st.text(max_size=40), VALUES.filter(lambda value: value is not None))
EVENTS = st.tuples(
    st.integers(1, 3), st.integers(0, 2**16 - 1), st.integers(0, 2**63), st.integers(0, 2**64 - 1), ENTRIES, VALUES
)


def stored(kind: int, partition: int, sequence: int, moment: int, old: Any = None, new: Any = None) -> bytes:
    entries = [b"" if entry is None else msgspec.msgpack.encode(entry) for entry in (old, new)]
    return EVENT.pack(kind, partition, sequence, moment, len(entries[0])) + b"".join(entries)


def read(events: list[bytes]) -> tuple[list[Any], list[int], dict[int, int]]:
    packed, moments, following = journal_parts(events)
    parts = msgspec.msgpack.decode(packed)
    return journal_events(MapEvent, NAMES, events, parts), np.frombuffer(moments, np.uint64).tolist(), following


@examples(100)
@given(st.lists(EVENTS, max_size=20))
def test_events_come_back_as_they_were_stored(drawn: list[Any]) -> None:
    events, expected, following = [], [], {}
    for kind, partition, sequence, moment, (key, value), other in drawn:
        old = None if kind == 1 else (key, other if other is not None else 0)
        new = None if kind == 3 else (key, value)
        events.append(stored(kind, partition, sequence, moment, old, new))
        fields = (NAMES[kind], key, old and old[1], new and new[1], partition, sequence, 0)
        expected.append(MapEvent(*fields))
        following[partition] = sequence + 1
    found, moments, found_following = read(events)
    assert found == expected
    assert all(type(event) is MapEvent for event in found)
    assert moments == [event[3] for event in drawn]
    assert found_following == following


def test_the_collector_looks_at_events_only_where_their_values_may_be_in_a_cycle() -> None:
    found, _, _ = read([stored(1, 7, 0, 0, None, ("a", 1)), stored(2, 7, 1, 0, ("a", 1), ("a", [1]))])
    assert [gc.is_tracked(event) for event in found] == [False, True]


ADDED = stored(1, 7, 0, 0, None, ("a", 1))


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        ADDED[: EVENT.size - 1],
        EVENT.pack(1, 7, 0, 0, 1000) + b"\x92\x01\x02",
        EVENT.pack(1, 7, 0, 0, 0) + b"\x93\x01\x02\x03",
        EVENT.pack(3, 7, 0, 0, 2) + b"\x81\x01",
    ],
)
def test_bytes_that_are_no_event_are_an_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        journal_parts([ADDED, damaged])
    with pytest.raises(ValueError, match="damaged"):
        journal_events(MapEvent, NAMES, [ADDED, damaged], [None] * 8)


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        journal_events(MapEvent, NAMES, [stored(4, 7, 0, 0, None, ("a", 1))], [None] * 4)
    with pytest.raises(TypeError):
        journal_events(MapEvent, NAMES, [ADDED], [None] * 3)
    with pytest.raises(TypeError):
        journal_parts((ADDED,))  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        journal_parts([bytearray(ADDED)])  # type: ignore[list-item]
