"""The queries on columns, where the engine runs them. Each takes what reads the events and returns a stage.

Query 3 joins streams of batches. 4 and 6 find the highest bids of short windows of batches and join them with the
auctions; what happens when an auction expires, a thousand times a second, is left to functions. 5, 7 and 8 cut windows
of batches. Query 18 keeps the time of the last bid of each key in an array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nexmark import events
from nexmark.events import BIDDERS, Load
from nexmark.last_bids import LastBids
from nexmark.queries import NEAR, TOP, averages, last_averages
from nexmark.replay import Reader
from nexmark.winning_bids import ExpiringAuctions
from shmjet import Batch, aggregate_ops, column, sliding, tumbling
from shmjet.columns import count, max_, sum_
from shmjet.pipeline import StreamStage

Stage = StreamStage[Any]

LONGEST_CUT_MS = 100
"""Of the windows in which bids on an auction are looked at."""


def q1(read: Reader, load: Load) -> Stage:
    """Each bid with its price in another currency."""
    return read.batches(events.bids(load)).with_columns(price=column("price") * 8 // 10)


def q2(read: Reader, load: Load) -> Stage:
    """The bids on every 128th auction."""
    return read.batches(events.bids(load)).filter(column("auction") % 128 == 0).select("ts", "auction", "price")


def q3(read: Reader, load: Load) -> Stage:
    """Auctions of sellers nearby, with the name and the state of the seller."""
    persons = read.batches(events.q3_persons(load)).filter(column("state").is_in(sorted(NEAR)))
    auctions = read.batches(events.q3_auctions(load)).filter(column("category") == 0)
    within = (load.seller_ttl_ms + 1) / 1000
    found = auctions.join(persons, left_on="seller", right_on="id", within=within, suffix="_of_person")
    return found.select("name", "state", "ts", "id", "category")


def q4(read: Reader, load: Load) -> Stage:
    """Average winning price by category, after each auction, as items: `(category, average, latest expiry)`."""
    return averages(_won(read, load, events.q4_auctions, events.q4_bids, load.q4_least_ms))


def q6(read: Reader, load: Load) -> Stage:
    """Average of a seller's last ten winning prices, after each auction, as items: `(seller, average, expiry)`."""
    return last_averages(_won(read, load, events.q6_auctions, events.q6_bids, load.q6_least_ms))


def _won(read: Reader, load: Load, auctions: Any, bids: Any, least_ms: int) -> Stage:
    """Return auctions with their winning bids, `(auction, bid)`, when they expire.

    The bids on an auction come at once when it begins, so that they are in one short window, or in two.
    """
    cut_ms = max(1, min(LONGEST_CUT_MS, least_ms // 4))
    highest = read.batches(bids(load)).window(tumbling(cut_ms / 1000)).group_by("auction").agg(price=max_("price"))
    found = read.batches(auctions(load)).join(
        highest.select("auction", "price"), left_on="id", right_on="auction", within=2 * cut_ms / 1000
    )
    by_auction = found.to_rows().grouping_key(lambda row: row["id"])
    return by_auction.custom_transform("winning bids", ExpiringAuctions)


def q5(read: Reader, load: Load) -> Stage:
    """The auctions with most bids of each window, as items: `(end of the window, [(auction, bids), ...])`.

    The ten highest counts of each batch go on, one by one.
    """
    slide = load.slide_ms / 1000
    counts = (
        read.batches(events.counted_bids(load))
        .window(sliding(load.window_ms / 1000, slide))
        .group_by("auction")
        .agg(n=count())
    )
    top: Any = aggregate_ops.top_n(TOP, lambda row: (row["n"], -row["auction"]))
    return (
        counts.map_batches(_most, as_=Batch)
        .to_rows()
        .window(tumbling(slide))
        .aggregate(top)
        .map(lambda found: (found.end, [(int(row["auction"]), int(row["n"])) for row in found.result]))
    )


def q7(read: Reader, load: Load) -> Stage:
    """The highest price of each window."""
    return (
        read.batches(events.rising_bids(load))
        .window(tumbling(load.window_ms / 1000))
        .group_by()
        .agg(price=max_("price"))
    )


def q8(read: Reader, load: Load) -> Stage:
    """Who became known and opened auctions in the same window: `key`, and the auctions."""
    persons, auctions = read.batches(events.q8_persons(load)), read.batches(events.q8_auctions(load))
    found = (
        persons.union(auctions)
        .window(sliding(load.window_ms / 1000, load.slide_ms / 1000))
        .group_by("key")
        .agg(persons=sum_("person"), auctions=sum_("auction"))
    )
    return found.filter((column("persons") > 0) & (column("auctions") > 0))


def q13(read: Reader, load: Load) -> Stage:
    """Each bid with the name of its auction."""
    side: list[Any] = []

    def named(batch: Batch) -> Batch:
        if not side:
            side.append(events.item_names(load))
        return Batch({**{name: batch[name] for name in batch.names}, "name": side[0].take(batch["auction"])})

    return read.batches(events.bids(load)).map_batches(named, as_=Batch)


def q18(read: Reader, load: Load) -> Stage:
    """The last bid of each bidder on each auction, whenever it changes."""
    keyed = read.batches(events.signed_bids(load)).with_columns(key=column("auction") * BIDDERS + column("bidder"))
    last = keyed.partition_by("key").custom_transform("last bids", LastBids)
    return last.select("number", "ts", "auction", "price", "bidder")


def _most(batch: Batch) -> Batch:
    """Keep the rows with the highest counts of each window."""
    end, auction, n = (np.asarray(batch[name]) for name in ("window_end", "auction", "n"))
    order = np.lexsort((auction, -n, end))
    ordered = end[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(first, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(first, lengths)
    return batch.take(order[rank < TOP])


QUERIES: dict[int, Callable[[Reader, Load], Stage]] = {
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

ROWS: dict[int, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    1: lambda row: (row["number"], row["ts"], row["auction"], row["price"]),
    2: lambda row: (row["ts"], row["auction"], row["price"]),
    3: lambda row: (row["name"], row["state"], row["ts"], row["id"], row["category"]),
    7: lambda row: (_ms(row["window_end"]), None, row["price"]),
    8: lambda row: (_ms(row["window_end"]), row["key"], f"Person {row['key']}", row["auctions"]),
    13: lambda row: (row["number"], row["ts"], row["auction"], row["price"], row["name"]),
    18: lambda row: (row["bidder"], row["auction"], row["number"], row["ts"], row["price"]),
}
"""What a row of a result is among the results of the functions; those of queries 4, 5 and 6 are the same."""

SIEVES: dict[int, Callable[[Load], Any]] = {
    1: lambda load: column("number") % load.sieve == 0,
    2: lambda load: column("auction") % max(1, load.sieve // 128) == 0,
    8: lambda load: column("key") % max(1, load.keys // 100) == 0,
    13: lambda load: column("number") % load.sieve == 0,
    18: lambda load: column("number") % load.sieve == 0,
}
"""`latency.SIEVES`, of batches."""


def rows(number: int, stage: Stage) -> Stage:
    """Return the results of a query as tuples, one by one."""
    return stage.to_rows().map(ROWS[number]) if number in ROWS else stage


def _ms(time: Any) -> int:
    return int(np.datetime64(time, "ms").astype(np.int64))
