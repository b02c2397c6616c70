"""`EventTimeMapper` against Jet's rules, an event at a time: random streams, partitions, lags and idle times."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shmjet import Batch, column
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper
from shmjet.data.marks import IDLE, Watermark
from tests.examples import examples
from tests.time.interpreter import Event, Found, Source, sessions, sliding

MS = 1_000_000
TIMES = st.integers(-60, 60)
LISTS = st.lists(TIMES, min_size=1, max_size=8)
STEPS = st.one_of(
    st.tuples(st.just("take"), LISTS, st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(0, 15)),
    st.tuples(st.just("poll")),
    st.tuples(st.just("ask")),
    st.tuples(st.just("add")),
    st.tuples(st.just("remove"), st.integers(0, 3)),
)
STRIDES = st.sampled_from([1, 2, 7, 10])


def as_sent(out: list[Any]) -> list[Any]:
    """Return what a mapper gives in the words of the interpreter."""
    words: list[Any] = []
    for item in out:
        if item == IDLE:
            words.append(("idle",))
        else:
            words.append(("watermark", item.timestamp) if isinstance(item, Watermark) else ("event", item))
    return words


def once_idle(words: list[Any]) -> list[Any]:
    """Leave out that a source is idle where it has just said so: that changes nothing."""
    return [word for before, word in zip([None, *words], words, strict=False) if word != ("idle",) or before != word]


@given(
    st.lists(STEPS, max_size=12),
    st.integers(0, 3),
    st.integers(0, 20),
    STRIDES,
    st.sampled_from([None, 5, 10]),
)
@examples(150)
def test_lists_give_what_single_events_give(
    steps: list[Any], partitions: int, lag: int, stride: int, idle_timeout: int | None
) -> None:
    policy = EventTimePolicy(timestamp_fn=int, allowed_lag=lag, stride=stride, idle_timeout=idle_timeout, timed=False)
    mapper = EventTimeMapper(policy, partitions)
    source = Source(lag, stride, idle_timeout, partitions)
    out: list[Any] = []
    now, count = 0, partitions
    for step in steps:
        if step[0] == "take" and count:
            for item in step[1]:
                source.event(item, item, step[2] % count, now)
            out += mapper.take(step[1], step[2] % count, now * MS)
        elif step[0] == "wait":
            now += step[1]
        elif step[0] == "poll":
            source.silence(now)
            out += mapper.idle(now * MS)
        elif step[0] == "ask":
            due = mapper.next_call(now * MS)
            if due > 0:
                assert mapper.idle(int(now * MS + min(due, 100) * 1e9) - 1) == []
        elif step[0] == "add":
            source.add(now)
            mapper.add_partitions(1, now * MS)
            count += 1
        elif step[0] == "remove" and count:
            count -= 1
            source.remove(step[1] % (count + 1), now)
            out += mapper.remove_partition(step[1] % (count + 1), now * MS)
    assert once_idle(as_sent(out)) == once_idle(source.sent)


@given(
    st.lists(st.tuples(LISTS, st.integers(0, 1), st.integers(0, 6)), max_size=6),
    st.integers(0, 20),
    STRIDES,
    st.sampled_from([1, 2]),
    st.sampled_from([None, 10]),
)
@examples(150)
def test_rows_of_batches_are_late_as_items_are(
    runs: list[Any], lag: int, stride: int, partitions: int, idle_timeout: int | None
) -> None:
    policy = EventTimePolicy(timestamp_fn=column("ts"), allowed_lag=lag, stride=stride, idle_timeout=idle_timeout)
    mapper = EventTimeMapper(policy, partitions)
    source = Source(lag, stride, idle_timeout, partitions)
    by_rows: list[Event] = []
    by_batches: list[Event] = []
    last: int | None = None
    now = 0
    for stamps, partition, wait in runs:
        now += wait
        by_rows += [source.event(stamp, stamp, partition % partitions, now) for stamp in stamps]
        for item in mapper.take_batch(Batch({"ts": stamps}), partition % partitions, now * MS):
            if isinstance(item, Watermark):
                assert last is None or item.timestamp > last
                last = item.timestamp
            else:
                by_batches += [Event(stamp, stamp, last) for stamp in item["ts"].tolist()]
    assert [event.item for event in by_batches] == [event.item for event in by_rows]
    assert_same(sliding(by_batches, 3 * stride, stride), sliding(by_rows, 3 * stride, stride))
    assert_same(sliding(by_batches, 6 * stride, 2 * stride), sliding(by_rows, 6 * stride, 2 * stride))
    assert_same(sessions(by_batches, 9), sessions(by_rows, 9))
    source.silence(now)
    marks = [mark for kind, *mark in source.sent if kind == "watermark"]
    mapper.idle(now * MS)
    assert mapper.watermark == (marks[-1][0] if marks else None)
    if stride == 1:
        assert by_batches == by_rows


def assert_same(found: Found, expected: Found) -> None:
    assert found.results == expected.results
    assert found.late == expected.late


@given(st.lists(LISTS, min_size=1, max_size=6), st.integers(0, 20), STRIDES, st.integers(0, 5))
def test_restored_mapper_makes_the_same_events_late(lists: list[list[int]], lag: int, stride: int, at: int) -> None:
    policy = EventTimePolicy(timestamp_fn=int, allowed_lag=lag, stride=stride, timed=False)
    whole, cut = EventTimeMapper(policy, 1), EventTimeMapper(policy, 1)
    expected = [whole.take(list(items), 0, 0) for items in lists]
    found = []
    for k, items in enumerate(lists):
        if k == at:
            saved, cut = cut.watermark, EventTimeMapper(policy, 1)
            cut.restore(saved, 0)
        found.append(cut.take(list(items), 0, 0))
    assert found == expected


@given(st.lists(TIMES, min_size=1), STRIDES)
def test_events_in_order_without_a_lag_are_never_late(stamps: list[int], stride: int) -> None:
    events = Source(0, stride).play(sorted(stamps))
    assert all(event.watermark is not None and event.watermark <= event.timestamp for event in events)
    batch = Batch({"ts": np.array(sorted(stamps))})
    policy = EventTimePolicy(timestamp_fn=column("ts"), stride=max(2, stride))
    assert isinstance(EventTimeMapper(policy, 1).take_batch(batch, 0, 0)[0], Batch)
