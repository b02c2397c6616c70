"""The queries on columns, where the engine runs them. Each takes what reads the events and returns a stage.

Queries 3, 4, 6 and 18 keep a state for each key that only functions can have; 5, 7 and 8 cut windows of batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nexmark import events
from nexmark.events import Load
from nexmark.queries import TOP
from nexmark.replay import Reader
from shmjet import Batch, aggregate_ops, column, sliding, tumbling
from shmjet.columns import count, max_, sum_
from shmjet.pipeline import StreamStage

Stage = StreamStage[Any]


def q1(read: Reader, load: Load) -> Stage:
    """Each bid with its price in another currency."""
    return read.batches(events.bids(load)).with_columns(price=column("price") * 8 // 10)


def q2(read: Reader, load: Load) -> Stage:
    """The bids on every 128th auction."""
    return read.batches(events.bids(load)).filter(column("auction") % 128 == 0).select("ts", "auction", "price")


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


def _most(batch: Batch) -> Batch:
    """Keep the rows with the highest counts of each window."""
    end, auction, n = (np.asarray(batch[name]) for name in ("window_end", "auction", "n"))
    order = np.lexsort((auction, -n, end))
    ordered = end[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    lengths = np.diff(np.append(first, len(ordered)))
    rank = np.arange(len(ordered)) - np.repeat(first, lengths)
    return batch.take(order[rank < TOP])


QUERIES: dict[int, Callable[[Reader, Load], Stage]] = {1: q1, 2: q2, 5: q5, 7: q7, 8: q8, 13: q13}

ROWS: dict[int, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    1: lambda row: (row["number"], row["ts"], row["auction"], row["price"]),
    2: lambda row: (row["ts"], row["auction"], row["price"]),
    7: lambda row: (_ms(row["window_end"]), None, row["price"]),
    8: lambda row: (_ms(row["window_end"]), row["key"], f"Person {row['key']}", row["auctions"]),
    13: lambda row: (row["number"], row["ts"], row["auction"], row["price"], row["name"]),
}
"""What a row of a result is among the results of the functions; that of query 5 is the same."""

SIEVES: dict[int, Callable[[Load], Any]] = {
    1: lambda load: column("number") % load.sieve == 0,
    2: lambda load: column("auction") % max(1, load.sieve // 128) == 0,
    8: lambda load: column("key") % max(1, load.keys // 100) == 0,
    13: lambda load: column("number") % load.sieve == 0,
}
"""`latency.SIEVES`, of batches."""


def rows(number: int, stage: Stage) -> Stage:
    """Return the results of a query as tuples, one by one."""
    return stage.to_rows().map(ROWS[number]) if number in ROWS else stage


def _ms(time: Any) -> int:
    return int(np.datetime64(time, "ms").astype(np.int64))
