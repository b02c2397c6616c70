"""Random pipelines over streams, against the same stages in plain Python: what comes out, and with which time.

Events are never late: each source partition is out of order by the allowed lag at most, so a result depends on the
events alone. An item's time is seen by a last window of one millisecond.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.aggregate_ops import counting, summing, to_list
from shmjet.core import AbstractProcessor
from shmjet.core.windows import session, sliding, tumbling
from shmjet.pipeline import Pipeline
from shmjet.pipeline.stream_stage import StreamStage
from tests.examples import examples
from tests.pipeline.running import items_source, list_sink, run
from tests.pipeline.streams import stream_of

Timed = list[tuple[int, int]]
"""(time, item), in any order."""
Stage = StreamStage[Any]
Step = tuple[Callable[[Stage], Stage], Callable[[Timed], Timed]]

SIDE = [(digit, digit * 100) for digit in range(0, 10, 2)]


def digit(x: int) -> int:
    return x % 10


def windowed(items: Timed, size: int, slide: int) -> dict[tuple[int, int], list[int]]:
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for time, x in items:
        first = time // slide * slide + slide
        for end in range(first, first + size, slide):
            found[end, digit(x)].append(x)
    return found


def sessions(items: Timed, gap: int) -> Timed:
    by_key: dict[int, list[int]] = defaultdict(list)
    for time, x in sorted(items):
        by_key[digit(x)].append(time)
    found = []
    for key, times in by_key.items():
        start = end = times[0]
        count = 0
        for time in times:
            if count and time >= end:
                found.append((end - 1, key + 10 * (end - start) + count))
                start, count = time, 0
            end, count = time + gap, count + 1
        found.append((end - 1, key + 10 * (end - start) + count))
    return found


class Doubling(AbstractProcessor):
    def try_process_any(self, ordinal: int, item: Any) -> bool:
        return self.try_emit(item * 2)


async def later(service: Any, x: int) -> int:
    await asyncio.sleep(0)
    return x + 7


def each(fn: Callable[[int], list[int]]) -> Callable[[Timed], Timed]:
    return lambda items: [(time, y) for time, x in items for y in fn(x)]


def joined(items: Timed) -> Timed:
    right = [(time, x) for time, x in items if x % 2]
    return [(max(t1, t2), x + y) for t1, x in items for t2, y in right if digit(x) == digit(y) and abs(t1 - t2) <= 300]


def counts(items: Timed) -> Timed:
    return [(end - 1, key + 10 * len(xs)) for (end, key), xs in windowed(items, 1000, 500).items()]


def sums(items: Timed) -> Timed:
    totals: Counter[int] = Counter()
    for (end, _), xs in windowed(items, 400, 400).items():
        totals[end] += sum(xs)
    ends = {end for end, _ in windowed(items, 400, 400)}
    return [(end - 1, totals[end]) for end in ends]


def both(items: Timed) -> Timed:
    plain, odd = windowed(items, 700, 700), windowed([(t, x) for t, x in items if x % 2], 700, 700)
    return [(end - 1, key + 10 * len(xs) + sum(odd.get((end, key), []))) for (end, key), xs in plain.items()]


def distinct(items: Timed) -> Timed:
    return [(end - 1, key) for end, key in windowed(items, 500, 500)]


STEPS: dict[str, Step] = {
    "map": (lambda s: s.map(lambda x: x + 1 if x % 4 else None), each(lambda x: [x + 1] if x % 4 else [])),
    "filter": (lambda s: s.filter(lambda x: x % 3), each(lambda x: [x] if x % 3 else [])),
    "flat_map": (lambda s: s.flat_map(lambda x: [x, x // 2][: x % 3]), each(lambda x: [x, x // 2][: x % 3])),
    "lazy": (lambda s: s.flat_map(lambda x: (x + i for i in range(x % 3))), each(lambda x: [*range(x, x + x % 3)])),
    "peek": (lambda s: s.peek(predicate=lambda x: False), each(lambda x: [x])),
    "service": (lambda s: s.map_using_service(dict, lambda service, x: x + 3), each(lambda x: [x + 3])),
    "flat service": (
        lambda s: s.grouping_key(digit).flat_map_using_service(dict, lambda service, key, x: [x] * (key % 3)),
        each(lambda x: [x] * (digit(x) % 3)),
    ),
    "async": (lambda s: s.map_using_service_async(dict, later), each(lambda x: [x + 7])),
    "unordered": (lambda s: s.map_using_service_async(dict, later, 2, preserve_order=False), each(lambda x: [x + 7])),
    "stateful": (
        lambda s: s.grouping_key(digit).map_stateful(list, lambda state, key, x: x + key),
        each(lambda x: [x + digit(x)]),
    ),
    "one state": (lambda s: s.filter_stateful(list, lambda state, x: x % 2), each(lambda x: [x] if x % 2 else [])),
    "flat state": (
        lambda s: s.grouping_key(digit).flat_map_stateful(list, lambda state, key, x: range(x, x + key % 3)),
        each(lambda x: [*range(x, x + digit(x) % 3)]),
    ),
    "rebalance": (lambda s: s.rebalance(), each(lambda x: [x])),
    "rebalance by key": (lambda s: s.rebalance(digit), each(lambda x: [x])),
    "partition_by": (lambda s: s.partition_by(digit), each(lambda x: [x])),
    "custom": (lambda s: s.custom_transform("double", Doubling), each(lambda x: [x * 2])),
    "merge": (
        lambda s: s.map(lambda x: x * 3).merge(s.filter(lambda x: x % 2)),
        each(lambda x: [x * 3, x] if x % 2 else [x * 3]),
    ),
    "hash_join": (
        lambda s: s.hash_join(s.pipeline.read_from(items_source("side", SIDE)), (digit, lambda e: e[0]), fn=added),
        each(lambda x: [x + (0 if x % 2 else digit(x) * 100)]),
    ),
    "batches": (
        lambda s: s.map(lambda x: {"x": x}).map_batches(lambda batch: batch).map(lambda row: int(row["x"]) + 2),
        each(lambda x: [x + 2]),
    ),
    "join": (lambda s: s.join(s.filter(lambda x: x % 2), digit, digit, lambda x, y: x + y, within=0.3), joined),
    "sliding": (
        lambda s: (
            s.window(sliding(1, 0.5)).grouping_key(digit).aggregate(counting()).map(lambda r: r.key + 10 * r.result)
        ),
        counts,
    ),
    "tumbling": (lambda s: s.window(tumbling(0.4)).aggregate(summing()).map(lambda r: r.result), sums),
    "session": (
        lambda s: (
            s.grouping_key(digit)
            .window(session(0.25))
            .aggregate(counting())
            .map(lambda r: r.key + 10 * (r.end - r.start) + r.result)
        ),
        lambda items: sessions(items, 250),
    ),
    "aggregate2": (
        lambda s: (
            s.window(tumbling(0.7))
            .grouping_key(digit)
            .aggregate2(counting(), s.filter(lambda x: x % 2).grouping_key(digit), summing())
            .map(lambda r: r.key + 10 * r.result[0] + r.result[1])
        ),
        both,
    ),
    "distinct": (
        lambda s: s.window(tumbling(0.5)).grouping_key(digit).distinct().map(lambda r: digit(r.result)),
        distinct,
    ),
}


def added(x: int, match: tuple[int, int] | None) -> int:
    return x + (match[1] if match else 0)


@st.composite
def events(draw: st.DrawFn) -> tuple[Timed, int]:
    """Events whose partitions are out of order by no more than a lag, and the lag."""
    lag = draw(st.sampled_from([0, 0, 120]))
    found, time = [], draw(st.integers(-3_000, 3_000))
    for number in range(draw(st.integers(0, 40))):
        time += draw(st.sampled_from([0, 1, 40, 250, 900]))
        found.append((time + draw(st.integers(0, lag)), draw(st.integers(0, 50)) + number))
    return found, lag


def check(names: list[str], given: Timed, lag: int, parallelism: int, keeps_time: bool, workers: int = 2) -> None:
    p = Pipeline()
    source = stream_of(given, parallelism, keeps_time=keeps_time)
    stage = p.read_from(source).with_timestamps(lambda e: e[0], lag / 1000).map(lambda e: e[1])
    expected = given
    for name in names:
        build, interpret = STEPS[name]
        stage, expected = build(stage), interpret(expected)
    stage.window(tumbling(0.001)).aggregate(to_list()).write_to(list_sink("timed"))
    stage.write_to(list_sink("items"))
    lists = run(p, workers)
    found = [(r.start, x) for r in lists.get("timed", []) for x in r.result]
    assert sorted(found) == sorted(expected), p.explain()
    assert sorted(lists.get("items", [])) == sorted(x for _, x in expected)


@pytest.mark.parametrize("name", STEPS)
def test_each_stage(name: str) -> None:
    given = [(i * 61 - 900, i * 7 % 50) for i in range(40)]
    check([name], given, 0, 2, True)


@examples(60)
@given(
    names=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    given_events=events(),
    parallelism=st.integers(1, 3),
    keeps_time=st.booleans(),
)
def test_any_stages(names: list[str], given_events: tuple[Timed, int], parallelism: int, keeps_time: bool) -> None:
    given, lag = given_events
    check(names, given, lag, parallelism, keeps_time)
