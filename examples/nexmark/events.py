"""The events of NEXMark by sequence number, as items and as columns. After Jet's `nexmark-jet`.

An event has the time at which it is due: number n of a stream with `rate` events a second is due n * 1000 // rate
milliseconds after the start. All else follows from its number by a hash that stands for chance. Items are plain tuples,
which are cheap to make and to send:

* a bid is `(number, ts, auction, price)`, for query 18 `(number, ts, auction, price, bidder)`,
* an auction `(id, ts, seller, category, expires)`,
* a person `(id, ts, name, state)`.

An event of another kind is told apart by its length. Columns have the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from shmjet import Batch
from shmjet.columns import Text

Item = tuple[Any, ...]
Numbers = Any
"""A column of int64."""

_STATES = "ALAKAZARCACOCTDEFLGAHIIDILINIAKSKYLAMEMDMAMIMNMSMOMTNENVNHNJNMNYNCNDOHOKORPARISCSDTNTXUTVTVAWAWVWIWY"
STATES = tuple(_STATES[at : at + 2] for at in range(0, len(_STATES), 2))
AUCTIONS_PER_SECOND = 1000
"""In query 4, and in query 6 where there are more bids a second than this."""
CATEGORIES = 128
"""In query 4."""
BIDDERS = 10
"""So many people bid on each auction in query 18."""

_MULTIPLIER = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_SIGN = 1 << 63


@dataclass(frozen=True)
class Load:
    """The parameters of a run.

    Args:
        rate: events a second of event time. The rates of streams that belong together are exact parts of it. Jet's are
            rounded: they drift apart, and answers differ from Jet's, unless it is a multiple of 1,000.
        keys: how many auctions, sellers or people there are.
        window_ms: size of the windows.
        slide_ms: how far sliding windows are apart.
    """

    rate: int = 1_000_000
    keys: int = 10_000
    window_ms: int = 10_000
    slide_ms: int = 500

    @property
    def sieve(self) -> int:
        """The latency of one in so many results is looked at where a query has a result for each event."""
        return max(1, self.rate // 8192)

    @property
    def bids_per_auction(self) -> int:
        """In queries 4 and 6."""
        return max(1, self.rate // AUCTIONS_PER_SECOND)

    @property
    def seller_ttl_ms(self) -> int:
        """How long query 3 remembers a seller: as long as new auctions may be theirs."""
        return self.keys * 100 * 1000 // self.rate

    @property
    def q4_least_ms(self) -> int:
        """The shortest auction of query 4; the longest takes three times as long."""
        return max(1, self.keys * 1000 // AUCTIONS_PER_SECOND // 2)

    @property
    def q6_least_ms(self) -> int:
        """The shortest auction of query 6; the longest takes twice as long."""
        return max(1, self.keys * self.bids_per_auction * 1000 // self.rate)


@dataclass(frozen=True)
class Stream:
    """One stream of events.

    Args:
        name: of the stream.
        rate: its events a second of event time, a fraction where that of another stream is divided.
        item: makes an event of its number and its timestamp in milliseconds.
        fields: makes the columns of many such events, in their order, of arrays of both.
        batch: makes a batch of the same arrays; None: the query does not run on columns.
    """

    name: str
    rate: Fraction
    item: Callable[[int, int], Item]
    fields: Callable[[Numbers, Numbers], tuple[Any, ...]]
    batch: Callable[[Numbers, Numbers], Batch] | None = None

    def due(self, n: Any) -> Any:
        """Return when an event is due, in milliseconds after the start; of a number or a column of numbers."""
        return n * (1000 * self.rate.denominator) // self.rate.numerator

    def items(self, n: Numbers, ts: Numbers) -> list[Item]:
        """Make many events at once, as `item` makes them, which is much faster than one by one."""
        columns = (column if isinstance(column, list) else column.tolist() for column in self.fields(n, ts))
        return list(zip(*columns, strict=True))


def chance(number: int, bound: int) -> int:
    """Return what stands for a random number from 0 to `bound` - 1: Jet's `getRandom`."""
    mixed = number * _MULTIPLIER & _MASK
    mixed ^= mixed >> 32
    mixed ^= mixed >> 16
    return (mixed if mixed < _SIGN else _MASK + 1 - mixed) % bound


def chances(numbers: Numbers, bound: Any) -> Numbers:
    """As `chance`, of a column; `bound` is a number or a column."""
    mixed = numbers.astype(np.uint64) * np.uint64(_MULTIPLIER)
    mixed ^= mixed >> np.uint64(32)
    mixed ^= mixed >> np.uint64(16)
    return np.abs(mixed.view(np.int64)) % bound


def bids(load: Load) -> Stream:
    """Bids on `keys` auctions in turn, with prices below 100: queries 1, 2 and 13."""
    keys = load.keys

    def item(n: int, ts: int) -> Item:
        return n, ts, n % keys, chance(n, 100)

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, n % keys, chances(n, 100)

    return _bids(load, item, fields)


def counted_bids(load: Load) -> Stream:
    """Bids whose price does not matter: query 5."""
    keys = load.keys

    def item(n: int, ts: int) -> Item:
        return n, ts, n % keys, 0

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, n % keys, np.zeros_like(n)

    return _bids(load, item, fields)


def rising_bids(load: Load) -> Stream:
    """Bids on one auction each, with prices that rise: query 7."""

    def item(n: int, ts: int) -> Item:
        return n, ts, n, chance(n, max(1, n // 100))

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, n, chances(n, np.maximum(1, n // 100))

    return _bids(load, item, fields)


def signed_bids(load: Load) -> Stream:
    """Bids with their bidders: query 18."""
    keys = load.keys

    def item(n: int, ts: int) -> Item:
        return n, ts, n % keys, chance(n, 100), chance(31 * n, BIDDERS)

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, n % keys, chances(n, 100), chances(31 * n, BIDDERS)

    def batch(n: Numbers, ts: Numbers) -> Batch:
        return Batch(dict(zip(("number", "ts", "auction", "price", "bidder"), fields(n, ts), strict=True)))

    return Stream("bids", Fraction(load.rate), item, fields, batch)


def q3_persons(load: Load) -> Stream:
    """People, from all states in turn."""
    states = len(STATES)

    def item(n: int, ts: int) -> Item:
        return n, ts, f"Person {n}", STATES[n % states]

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        numbers = n.tolist()
        return n, ts, [f"Person {number}" for number in numbers], [STATES[number % states] for number in numbers]

    def batch(n: Numbers, ts: Numbers) -> Batch:
        names = Text.of([f"Person {number}" for number in n.tolist()])
        return Batch({"id": n, "ts": ts, "name": names, "state": Text.of(list(STATES)).take(n % states)})

    return Stream("persons", Fraction(load.rate, 100), item, fields, batch)


def q3_auctions(load: Load) -> Stream:
    """Auctions of people that became known lately."""
    keys, ttl = load.keys, load.seller_ttl_ms

    def item(n: int, ts: int) -> Item:
        seller = n // 100 - chance(n, keys)
        if seller < 0:
            return n, ts, 0, 1, ts + ttl
        return n, ts, seller, chance(n, 10), ts + ttl

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        seller = n // 100 - chances(n, keys)
        category = np.where(seller < 0, 1, chances(n, 10))
        return n, ts, np.maximum(seller, 0), category, ts + ttl

    return Stream("auctions", Fraction(load.rate), item, fields, _auction_batches(fields))


def q4_bids(load: Load) -> Stream:
    """Bids of no price, all on the auction that has just begun."""
    each = load.bids_per_auction

    def item(n: int, ts: int) -> Item:
        return n, ts, n // each, 0

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, n // each, np.zeros_like(n)

    return _bids(load, item, fields)


def q4_auctions(load: Load) -> Stream:
    """One auction for each `bids_per_auction` bids: a thousand a second if the rate is a multiple of that."""
    return _auctions(load, load.q4_least_ms, 2 * load.q4_least_ms)


def q6_bids(load: Load) -> Stream:
    """Bids on the auction that has just begun, with prices below 1,000."""
    each = load.bids_per_auction

    def item(n: int, ts: int) -> Item:
        return n, ts, n // each, chance(n, 1000)

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, n // each, chances(n, 1000)

    return _bids(load, item, fields)


def q6_auctions(load: Load) -> Stream:
    """One auction for each `bids_per_auction` bids."""
    return _auctions(load, load.q6_least_ms, load.q6_least_ms)


def q8_persons(load: Load) -> Stream:
    """People that become known, the same ones repeatedly; a tenth of the events."""
    keys = load.keys

    def item(n: int, ts: int) -> Item:
        key = chance(n, keys)
        return key, ts, f"Person {key}", STATES[key % len(STATES)]

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        known = chances(n, keys).tolist()
        return known, ts, [f"Person {key}" for key in known], [STATES[key % len(STATES)] for key in known]

    def batch(n: Numbers, ts: Numbers) -> Batch:
        return Batch({"ts": ts, "key": chances(n, keys), "person": np.ones_like(n), "auction": np.zeros_like(n)})

    return Stream("persons", Fraction(load.rate, 10), item, fields, batch)


def q8_auctions(load: Load) -> Stream:
    """The auctions that they open; the other events."""
    keys = load.keys

    def item(n: int, ts: int) -> Item:
        return n, ts, chance(137 * n, keys), 0, ts

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        return n, ts, chances(137 * n, keys), np.zeros_like(n), ts

    def batch(n: Numbers, ts: Numbers) -> Batch:
        key = chances(137 * n, keys)
        return Batch({"ts": ts, "key": key, "person": np.zeros_like(n), "auction": np.ones_like(n)})

    return Stream("auctions", Fraction(load.rate * 9, 10), item, fields, batch)


def _bids(load: Load, item: Any, fields: Any) -> Stream:
    """A stream of plain bids, which has columns."""

    def batch(n: Numbers, ts: Numbers) -> Batch:
        return Batch(dict(zip(("number", "ts", "auction", "price"), fields(n, ts), strict=True)))

    return Stream("bids", Fraction(load.rate), item, fields, batch)


def _auctions(load: Load, least_ms: int, more_ms: int) -> Stream:
    """Auctions of anyone that take from `least_ms` to `least_ms + more_ms`."""
    keys = load.keys

    def item(n: int, ts: int) -> Item:
        expires = ts + least_ms + chance(271 * n, more_ms)
        return n, ts, chance(137 * n, keys), chance(743 * n, CATEGORIES), expires

    def fields(n: Numbers, ts: Numbers) -> tuple[Any, ...]:
        expires = ts + least_ms + chances(271 * n, more_ms)
        return n, ts, chances(137 * n, keys), chances(743 * n, CATEGORIES), expires

    rate = Fraction(load.rate, load.bids_per_auction)
    return Stream("auctions", rate, item, fields, _auction_batches(fields))


def _auction_batches(fields: Any) -> Callable[[Numbers, Numbers], Batch]:
    def batch(n: Numbers, ts: Numbers) -> Batch:
        return Batch(dict(zip(("id", "ts", "seller", "category", "expires"), fields(n, ts), strict=True)))

    return batch


def item_name(key: int) -> str:
    """What is auctioned: the side input of query 13."""
    return f"Auctioned Item #{key:05}"


def item_names(load: Load) -> Text:
    """The names of all things that are auctioned, as a column in the order of their numbers."""
    return Text.of(list(map(item_name, range(load.keys))))


STREAMS: dict[int, tuple[Callable[[Load], Stream], ...]] = {
    1: (bids,),
    2: (bids,),
    3: (q3_persons, q3_auctions),
    4: (q4_auctions, q4_bids),
    5: (counted_bids,),
    6: (q6_auctions, q6_bids),
    7: (rising_bids,),
    8: (q8_persons, q8_auctions),
    13: (bids,),
    18: (signed_bids,),
}
"""What each query reads."""
