"""The queries in Python functions. Each takes what reads the events and returns a stage of plain tuples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from nexmark import events
from nexmark.events import Item, Load
from nexmark.replay import Reader
from nexmark.winning_bids import WinningBids
from shmjet import aggregate_ops, sliding, sources, tumbling
from shmjet.pipeline import StreamStage, join_map_entries

Rows = StreamStage[Any]

NEAR = frozenset(("OR", "CA", "ID"))
TOP = 10
LAST_PRICES = 10


def q1(read: Reader, load: Load) -> Rows:
    """Each bid with its price in another currency: `(number, ts, auction, price)`."""
    return read.items(events.bids(load)).map(lambda bid: (bid[0], bid[1], bid[2], bid[3] * 8 // 10))


def q2(read: Reader, load: Load) -> Rows:
    """The bids on every 128th auction: `(ts, auction, price)`."""
    found = read.items(events.bids(load)).filter(lambda bid: bid[2] % 128 == 0)
    return found.map(lambda bid: (bid[1], bid[2], bid[3]))


def q3(read: Reader, load: Load) -> Rows:
    """Auctions of sellers nearby: `(name, state, ts of the auction, id, category)`."""
    persons = read.items(events.q3_persons(load)).filter(lambda person: person[3] in NEAR)
    auctions = read.items(events.q3_auctions(load)).filter(lambda auction: auction[3] == 0)

    def met(auction: Item, person: Item) -> Item:
        return person[2], person[3], auction[1], auction[0], auction[3]

    within = (load.seller_ttl_ms + 1) / 1000
    return auctions.join(persons, lambda auction: auction[2], lambda person: person[0], met, within=within)


def q4(read: Reader, load: Load) -> Rows:
    """Average winning price by category, after each auction: `(category, average, latest expiry)`."""
    return averages(_won(read, load, events.q4_auctions, events.q4_bids, 3 * load.q4_least_ms))


def averages(won: Rows) -> Rows:
    """Average the winning prices by category, after each `(auction, bid)`."""
    op = aggregate_ops.all_of(
        aggregate_ops.averaging(lambda pair: pair[1][3]),
        aggregate_ops.max_by(lambda pair: pair[0][4]),
    )
    by_category = won.grouping_key(lambda pair: pair[0][3]).rolling_aggregate(op)
    return by_category.map(lambda found: (found[0], found[1][0], found[1][1][0][4]))


def q5(read: Reader, load: Load) -> Rows:
    """The auctions with most bids of each window: `(end of the window, [(auction, bids), ...])`.

    Of equally many bids the lower auction comes first, so that there is one answer.
    """
    slide = load.slide_ms / 1000
    counts = (
        read.items(events.counted_bids(load))
        .window(sliding(load.window_ms / 1000, slide))
        .grouping_key(lambda bid: bid[2])
        .aggregate(aggregate_ops.counting())
    )
    top: Any = aggregate_ops.top_n(TOP, lambda found: (found.result, -found.key))
    return (
        counts.window(tumbling(slide))
        .aggregate(top)
        .map(lambda found: (found.end, [(count.key, count.result) for count in found.result]))
    )


def q6(read: Reader, load: Load) -> Rows:
    """Average of a seller's last ten winning prices, after each auction: `(seller, average, expiry)`."""
    return last_averages(_won(read, load, events.q6_auctions, events.q6_bids, 2 * load.q6_least_ms))


def last_averages(won: Rows) -> Rows:
    """Average a seller's last winning prices, after each `(auction, bid)`."""

    def average(prices: deque[int], seller: int, pair: tuple[Item, Item]) -> tuple[int, float, int]:
        prices.append(pair[1][3])
        return seller, sum(prices) / len(prices), pair[0][4]

    by_seller = won.grouping_key(lambda pair: pair[0][2])
    return by_seller.map_stateful(partial(deque, maxlen=LAST_PRICES), average)


def q7(read: Reader, load: Load) -> Rows:
    """The highest bid of each window: `(end of the window, auction, price)`; any of equal ones."""
    highest = (
        read.items(events.rising_bids(load))
        .window(tumbling(load.window_ms / 1000))
        .aggregate(aggregate_ops.max_by(lambda bid: bid[3]))
    )
    return highest.map(lambda found: (found.end, found.result[2], found.result[3]))


def q8(read: Reader, load: Load) -> Rows:
    """Who became known and opened auctions in the same window: `(end of the window, id, name, auctions)`."""
    persons, auctions = read.items(events.q8_persons(load)), read.items(events.q8_auctions(load))
    found = (
        persons.window(sliding(load.window_ms / 1000, load.slide_ms / 1000))
        .grouping_key(lambda person: person[0])
        .aggregate2(
            aggregate_ops.pick_any(),
            auctions.grouping_key(lambda auction: auction[2]),
            aggregate_ops.counting(),
        )
    )

    def joined(row: Any) -> Item | None:
        person, opened = row.result
        return (row.end, row.key, person[2], opened) if person is not None and opened else None

    return found.map(joined)


def q13(read: Reader, load: Load) -> Rows:
    """Each bid with the name of its auction: `(number, ts, auction, price, name)`."""
    names = [(key, events.item_name(key)) for key in range(load.keys)]
    side = read.pipeline.read_from(sources.items(names))
    return read.items(events.bids(load)).hash_join(
        side, join_map_entries(lambda bid: bid[2]), lambda bid, name: (*bid, name)
    )


def q18(read: Reader, load: Load) -> Rows:
    """The last bid of each bidder on each auction: `(bidder, auction, number, ts, price)`, whenever it changes."""

    def last(state: list[int], key: Any, bid: Item) -> Item | None:
        if bid[1] < state[0]:
            return None
        state[0] = bid[1]
        return bid[4], bid[2], bid[0], bid[1], bid[3]

    bidders = events.BIDDERS
    keyed = read.items(events.signed_bids(load)).grouping_key(lambda bid: bid[2] * bidders + bid[4])
    return keyed.map_stateful(lambda: [-1], last)


def _won(read: Reader, load: Load, auctions: Any, bids: Any, longest_ms: int) -> Rows:
    both = read.items(auctions(load)).merge(read.items(bids(load)))
    by_auction = both.grouping_key(lambda event: event[0] if len(event) == 5 else event[2])
    return by_auction.custom_transform("winning bids", partial(WinningBids, longest_ms))


QUERIES: dict[int, Callable[[Reader, Load], Rows]] = {
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
