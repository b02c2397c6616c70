"""Which bid wins an auction: processors with timers of their own. After `JoinAuctionToWinningBidP` of Jet's NEXMark."""

from __future__ import annotations

import heapq
from typing import Any

from nexmark.events import Item
from shmjet import Inbox, Processor, Watermark

AUCTION_FIELDS = 5
"""A bid has four."""
AT_THE_END = 1 << 62


class WinningBids(Processor):
    """Keeps the highest bid of each auction, the earlier one of equals, and emits `(auction, bid)` when that expires.

    Auctions without a bid are left out. All events of an auction have to come to the same processor.

    Args:
        longest_ms: the longest auction: a bid that is older is forgotten.
    """

    def __init__(self, longest_ms: int) -> None:
        self._longest = longest_ms
        self._best: dict[int, Item] = {}
        self._open: list[tuple[int, int, Item]] = []
        """A heap of `(expires, id, auction)`."""
        self._now = self._swept = -AT_THE_END
        self._won: list[tuple[Item, Item]] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Keep auctions and bids."""
        inbox.drain(self._take)

    def _take(self, event: Item) -> None:
        if event[1] < self._now:
            return
        if len(event) == AUCTION_FIELDS:
            heapq.heappush(self._open, (event[4], event[0], event))
            return
        auction = event[2]
        best = self._best.get(auction)
        if best is None or event[3] > best[3] or (event[3] == best[3] and event[1] < best[1]):
            self._best[auction] = event

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Emit what expires, then the watermark."""
        if watermark.timestamp > self._now:
            self._now = watermark.timestamp
            self._expire()
        return self._flush() and super().try_process_watermark(watermark)

    def complete(self) -> bool:
        """At the end of the events, which the benchmark does not have, all auctions expire."""
        if self._now < AT_THE_END:
            self._now = AT_THE_END
            self._expire()
        return self._flush()

    def _expire(self) -> None:
        waiting, best, now = self._open, self._best, self._now
        while waiting and waiting[0][0] <= now:
            _, number, auction = heapq.heappop(waiting)
            bid = best.pop(number, None)
            if bid is not None:
                self._won.append((auction, bid))
        if now >= self._swept + self._longest // 8:
            self._swept = now
            oldest = now - self._longest
            for number in [number for number, bid in best.items() if bid[1] < oldest]:
                del best[number]

    def _flush(self) -> bool:
        accepted = self.outbox.offer_all(self._won)
        self._won = self._won[accepted:]
        return not self._won


class ExpiringAuctions(Processor):
    """Keeps auctions with the highest bids that are known, and emits `(auction, bid)` when an auction expires.

    Items are dicts: an auction with a `price` that was bid on it. There may be several for an auction; all of them have
    to come to the same processor before it expires.
    """

    def __init__(self) -> None:
        self._best: dict[int, tuple[Item, Item]] = {}
        self._open: list[tuple[int, int]] = []
        """A heap of `(expires, id)`."""
        self._now = -AT_THE_END
        self._won: list[tuple[Item, Item]] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Keep auctions."""
        inbox.drain(self._take)

    def _take(self, row: dict[str, Any]) -> None:
        number, price = row["id"], row["price"]
        best = self._best.get(number)
        if best is None:
            heapq.heappush(self._open, (row["expires"], number))
        elif best[1][3] >= price:
            return
        auction = number, row["ts"], row["seller"], row["category"], row["expires"]
        self._best[number] = auction, (None, row["ts"], number, price)

    def try_process_watermark(self, watermark: Watermark) -> bool:
        """Emit what expires, then the watermark."""
        self._now = max(self._now, watermark.timestamp)
        return self._flush() and super().try_process_watermark(watermark)

    def complete(self) -> bool:
        """At the end of the events, which the benchmark does not have, all auctions expire."""
        self._now = AT_THE_END
        return self._flush()

    def _flush(self) -> bool:
        while self._open and self._open[0][0] <= self._now:
            self._won.append(self._best.pop(heapq.heappop(self._open)[1]))
        accepted = self.outbox.offer_all(self._won)
        self._won = self._won[accepted:]
        return not self._won
