"""Answers of bounded runs, in a form that does not depend on the order in which processors work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from nexmark import columns, queries
from nexmark.events import Load
from nexmark.replay import Replay
from shmjet import JetInstance, Pipeline, sinks

Rows = Iterable[Any]


def answer(jet: JetInstance, number: int, load: Load, span_ms: int, *, in_columns: bool = False) -> list[Any]:
    """Run a query over the events of a span of time and return its answer.

    Args:
        jet: where.
        number: of the query.
        load: parameters.
        span_ms: milliseconds.
        in_columns: run the query on columns.
    """
    p = Pipeline()
    read = Replay(p, span_ms)
    if in_columns:
        stage = columns.rows(number, columns.QUERIES[number](read, load))
    else:
        stage = queries.QUERIES[number](read, load)
    results: sinks.Results[Any] = sinks.collect()
    stage.write_to(results)
    with results:
        jet.new_job(p).run(600)
        return settled(number, list(results))


def settled(number: int, rows: Rows) -> list[Any]:
    """Return what of the results of a query is the same in each run.

    * Query 4: of each category the number of results, the last average, and the latest expiry.
    * Query 6: of each seller all averages in order; that is the same in runs with one processor.
    * Query 7: of each window the highest price.
    * Query 18: of each bidder and auction the last of the last bids.
    """
    return _SETTLED[number](rows) if number in _SETTLED else sorted(map(_plain, rows))


def _plain(row: Any) -> Any:
    return tuple(map(_plain, row)) if isinstance(row, tuple | list) else row


def _averages(rows: Rows) -> list[Any]:
    by_category: dict[int, list[Any]] = defaultdict(list)
    for category, average, expires in rows:
        by_category[category].append((average, expires))
    return [
        (category, len(found), found[-1][0], max(expires for _, expires in found))
        for category, found in sorted(by_category.items())
    ]


def _sellers(rows: Rows) -> list[Any]:
    by_seller: dict[int, list[Any]] = defaultdict(list)
    for seller, average, expires in rows:
        by_seller[seller].append((average, expires))
    return [(seller, tuple(found)) for seller, found in sorted(by_seller.items())]


def _prices(rows: Rows) -> list[Any]:
    return sorted((end, price) for end, _, price in rows)


def _last(rows: Rows) -> list[Any]:
    last: dict[Any, Any] = {}
    for bidder, auction, number, ts, price in rows:
        key = bidder, auction
        last[key] = max(last.get(key, (-1,)), (ts, number, price))
    return sorted((*key, *bid) for key, bid in last.items())


_SETTLED: dict[int, Callable[[Rows], list[Any]]] = {4: _averages, 6: _sellers, 7: _prices, 18: _last}
