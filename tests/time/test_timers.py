"""A source that sleeps until `next_call` sends just what a source sends that looks every millisecond."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper
from tests.examples import examples

MS = 1_000_000
END = 1_500
EVENTS = st.dictionaries(st.integers(0, 900), st.tuples(st.integers(0, 2), st.integers(-500, 2_000)), max_size=8)
"""By the millisecond in which it comes: the partition and timestamp of an event."""
TIMES = st.sampled_from([None, 40, 150, 400])


def every_millisecond(mapper: EventTimeMapper, events: dict[int, Any]) -> list[tuple[int, list[Any]]]:
    """Return what is sent, and when."""
    sent = []
    for now in range(END):
        partition, stamp = events.get(now, (0, None))
        out = mapper.idle(now * MS) if stamp is None else mapper.take([stamp], partition, now * MS)
        if out:
            sent.append((now, out))
    return sent


def by_timers(mapper: EventTimeMapper, events: dict[int, Any]) -> tuple[list[tuple[int, list[Any]]], int]:
    """Return what is sent, and when, and how often a timer ran out for nothing."""
    sent, in_vain = [], 0
    now = due = 0.0
    while now < END:
        partition, stamp = events.get(int(now), (0, None))
        if stamp is not None:
            out = mapper.take([stamp], partition, int(now) * MS)
        else:
            before = [fact.idle_since for fact in mapper.facts()]
            out = mapper.idle(int(now) * MS)
            in_vain += not out and before == [fact.idle_since for fact in mapper.facts()]
        if out:
            sent.append((int(now), out))
        wait = mapper.next_call(int(now) * MS)
        due = now + max(1, round(1_000 * wait)) if wait < math.inf else math.inf
        now = min([due, *(at for at in events if at > now)])
    return sent, in_vain


@given(EVENTS, TIMES, TIMES, st.sampled_from([1, 10, 100, 250]), st.integers(0, 100), st.integers(0, 3))
@examples(150)
def test_timers_find_all_that_is_due_and_nothing_else(
    events: dict[int, Any], idle: int | None, advance: int | None, stride: int, lag: int, partitions: int
) -> None:
    policy = EventTimePolicy(
        timestamp_fn=int, allowed_lag=lag, stride=stride, idle_timeout=idle, advance_when_idle=advance, timed=False
    )
    events = {at: (one % partitions, stamp) for at, (one, stamp) in events.items()} if partitions else {}
    sent, in_vain = by_timers(EventTimeMapper(policy, partitions), events)
    assert sent == every_millisecond(EventTimeMapper(policy, partitions), events)
    assert in_vain <= 1 + len(events)
