"""The queries of `examples/nexmark` give the answers of plain Python over the same events."""

from __future__ import annotations

import importlib
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import JetConfig, JetInstance, Pipeline, sinks

ROOT = Path(__file__).resolve().parents[2]
SPAN_MS = 600

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def nexmark() -> Iterator[Any]:
    """The package `examples/nexmark`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))
        for name in ("answers", "events", "latency", "columns", "queries", "replay"):
            importlib.import_module(f"nexmark.{name}")
        yield sys.modules["nexmark"]
        for name in [name for name in sys.modules if name.split(".")[0] == "nexmark"]:
            del sys.modules[name]


@pytest.fixture(scope="module")
def load(nexmark: Any) -> Any:
    return nexmark.events.Load(rate=10_000, keys=40, window_ms=200, slide_ms=50)


@pytest.fixture(scope="module")
def instance(nexmark: Any) -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as jet:
        yield jet


def made(nexmark: Any, number: int, load: Any) -> list[list[Any]]:
    """The events of each stream of a query, in order."""
    streams = [stream(load) for stream in nexmark.events.STREAMS[number]]
    count = nexmark.replay.Replay(Pipeline(), SPAN_MS).count
    return [[stream.item(n, stream.due(n)) for n in range(count(stream))] for stream in streams]


def windows(events: list[Any], size: int, slide: int) -> dict[int, list[Any]]:
    """The events of each window, by its end."""
    found: dict[int, list[Any]] = defaultdict(list)
    for event in events:
        first = event[1] - event[1] % slide + slide
        for end in range(first, first + size, slide):
            found[end].append(event)
    return found


def q1(load: Any, bids: list[Any]) -> list[Any]:
    return [(n, ts, auction, int(price * 0.8)) for n, ts, auction, price in bids]


def q2(load: Any, bids: list[Any]) -> list[Any]:
    return [(ts, auction, price) for _, ts, auction, price in bids if auction in range(0, load.keys, 128)]


def q3(load: Any, persons: list[Any], auctions: list[Any]) -> list[Any]:
    near = {number: (name, state) for number, _, name, state in persons if state in ("OR", "CA", "ID")}
    return [
        (*near[seller], ts, number, category)
        for number, ts, seller, category, _ in auctions
        if category == 0 and seller in near
    ]


def winners(auctions: list[Any], bids: list[Any]) -> list[Any]:
    """Auctions with their highest price, in the order in which they expire."""
    prices: dict[int, list[int]] = defaultdict(list)
    for bid in bids:
        prices[bid[2]].append(bid[3])
    ended = sorted((auction for auction in auctions if auction[0] in prices), key=lambda a: (a[4], a[0]))
    return [(auction, max(prices[auction[0]])) for auction in ended]


def q4(load: Any, auctions: list[Any], bids: list[Any]) -> list[Any]:
    by_category: dict[int, list[Any]] = defaultdict(list)
    for auction, price in winners(auctions, bids):
        by_category[auction[3]].append((price, auction[4]))
    return [
        (category, len(won), sum(price for price, _ in won) / len(won), won[-1][1])
        for category, won in by_category.items()
    ]


def q5(load: Any, bids: list[Any]) -> list[Any]:
    found = []
    for end, seen in windows(bids, load.window_ms, load.slide_ms).items():
        counts = Counter(bid[2] for bid in seen)
        found.append((end, tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:10])))
    return found


def q6(load: Any, auctions: list[Any], bids: list[Any]) -> list[Any]:
    by_seller: dict[int, list[Any]] = defaultdict(list)
    for auction, price in winners(auctions, bids):
        by_seller[auction[2]].append((price, auction[4]))
    answer = []
    for seller, won in by_seller.items():
        averages = []
        for i, (_, expires) in enumerate(won):
            last = [price for price, _ in won[max(0, i - 9) : i + 1]]
            averages.append((sum(last) / len(last), expires))
        answer.append((seller, tuple(averages)))
    return answer


def q7(load: Any, bids: list[Any]) -> list[Any]:
    cut = windows(bids, load.window_ms, load.window_ms)
    return [(end, max(bid[3] for bid in seen)) for end, seen in cut.items()]


def q8(load: Any, persons: list[Any], auctions: list[Any]) -> list[Any]:
    opened = windows(auctions, load.window_ms, load.slide_ms)
    found = []
    for end, known in windows(persons, load.window_ms, load.slide_ms).items():
        counts = Counter(auction[2] for auction in opened[end])
        names = {person[0]: person[2] for person in known}
        found += [(end, key, name, counts[key]) for key, name in names.items() if counts[key]]
    return found


def q13(load: Any, bids: list[Any]) -> list[Any]:
    return [(*bid, "Auctioned Item #" + str(bid[2]).rjust(5, "0")) for bid in bids]


def q18(load: Any, bids: list[Any]) -> list[Any]:
    last = {(bidder, auction): (n, ts, price) for n, ts, auction, price, bidder in bids}
    return [(*key, *bid) for key, bid in last.items()]


ORACLES: dict[int, Callable[..., list[Any]]] = {
    1: q1,
    2: q2,
    3: q3,
    4: q4,
    5: q5,
    6: q6,
    7: q7,
    8: q8,
    13: q13,
    18: q18,
}


@pytest.mark.parametrize("number", [number for number in ORACLES if number != 6])
def test_a_query_in_functions_gives_the_answer_of_plain_python(
    nexmark: Any, load: Any, instance: JetInstance, number: int
) -> None:
    expected = sorted(ORACLES[number](load, *made(nexmark, number, load)))
    found = nexmark.answers.answer(instance, number, load, SPAN_MS)
    if number == 18:
        expected = [(bidder, auction, ts, n, price) for bidder, auction, n, ts, price in expected]
    assert len(expected) > 5 or number == 7
    assert found == expected


def test_query_6_keeps_the_order_of_expiries_on_one_core(nexmark: Any, load: Any) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        found = nexmark.answers.answer(jet, 6, load, SPAN_MS)
    assert found == sorted(q6(load, *made(nexmark, 6, load)))


def test_query_6_on_columns_keeps_the_order_of_expiries_on_one_core(nexmark: Any, load: Any) -> None:
    with shmjet.new_instance(JetConfig(cores=1)) as jet:
        found = nexmark.answers.answer(jet, 6, load, SPAN_MS, in_columns=True)
    assert found == sorted(q6(load, *made(nexmark, 6, load)))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7, 8, 13, 18])
def test_a_query_on_columns_gives_the_answer_of_plain_python(
    nexmark: Any, load: Any, instance: JetInstance, number: int
) -> None:
    expected = sorted(ORACLES[number](load, *made(nexmark, number, load)))
    found = nexmark.answers.answer(instance, number, load, SPAN_MS, in_columns=True)
    if number == 18:
        expected = [(bidder, auction, ts, n, price) for bidder, auction, n, ts, price in expected]
    assert found == expected


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("number", [3, 4])
def test_streams_that_belong_together_do_not_drift_apart(
    nexmark: Any, instance: JetInstance, number: int, in_columns: bool
) -> None:
    load = nexmark.events.Load(rate=1_999, keys=5)
    expected = sorted(ORACLES[number](load, *made(nexmark, number, load)))
    assert nexmark.answers.answer(instance, number, load, SPAN_MS, in_columns=in_columns) == expected


def test_many_events_at_once_are_the_same_events(nexmark: Any, load: Any) -> None:
    import numpy as np

    numbers = np.array([*range(200), 10**6 + 7, 10**9 + 9])
    for streams in nexmark.events.STREAMS.values():
        for stream in (stream(load) for stream in streams):
            times = stream.due(numbers)
            expected = [stream.item(int(n), int(ts)) for n, ts in zip(numbers, times, strict=True)]
            assert stream.items(numbers, times) == expected
            batch = None if stream.batch is None else stream.batch(numbers, times)
            if batch is not None and "key" not in batch:  # those of query 8 are others
                assert list(zip(*(list(batch[name]) for name in batch.names), strict=True)) == expected


def test_chance_is_that_of_jet(nexmark: Any) -> None:
    # Math.abs(mix(seq)) % range of Java's long, by hand for numbers whose product stays positive or turns negative
    def mixed(number: int) -> int:
        signed = (number * 0x9E3779B97F4A7C15 + (1 << 63)) % (1 << 64) - (1 << 63)
        signed ^= (signed % (1 << 64)) >> 32
        signed ^= (signed % (1 << 64)) >> 16
        return abs((signed + (1 << 63)) % (1 << 64) - (1 << 63))

    for number in [*range(100), 743 * 10**9]:
        assert nexmark.events.chance(number, 1000) == mixed(number) % 1000


@pytest.mark.parametrize("in_columns", [False, True])
def test_latencies_are_of_ever_later_results(nexmark: Any, load: Any, instance: JetInstance, in_columns: bool) -> None:
    p = Pipeline()
    stage = nexmark.latency.latencies(5, nexmark.replay.Schedule(p), load, in_columns=in_columns)
    name = f"late {in_columns}"
    stage.write_to(sinks.observable(name))
    execution = instance.new_job(p).execute()
    try:
        found = list(islice(instance.get_observable(name), 4))
    finally:
        execution.cancel()
    assert [due for due, _ in found] == sorted({due for due, _ in found})
    assert all(due % load.slide_ms == 0 and late >= 0 for due, late in found)
