"""Which bids are the last ones so far of their bidders on their auctions: a state for each key, on columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shmjet import Batch, Inbox, Processor
from shmjet.columns.groups import Groups

Ints = npt.NDArray[np.int64]


class LastBids(Processor):
    """Passes on the bids that are not earlier than all before them of the same key.

    Items are batches with the columns `key` and `ts`. All bids of a key have to come to the same processor.
    """

    def __init__(self) -> None:
        self._keys = Groups(["key"], {})
        self._last: Ints = np.zeros(0, np.int64)
        """By number of the key the time of its last bid."""
        self._found: list[Batch] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """Compare bids with the last ones."""
        if self._flush():
            inbox.drain(self._take)
            self._flush()

    def _take(self, batch: Batch) -> None:
        numbers = np.empty(batch.num_rows, np.uint32)
        self._keys.add(batch.select("key"), numbers=numbers)
        more = len(self._keys) - len(self._last)
        if more > 0:
            self._last = np.concatenate([self._last, np.full(max(more, len(self._last)), np.iinfo(np.int64).min)])
        times: Any = np.asarray(batch["ts"])
        if (times[1:] >= times[:-1]).all():
            passes = times >= self._last[numbers]
        else:
            passes = self._in_turn(numbers, times)
        np.maximum.at(self._last, numbers, times)
        if passes.any():
            self._found.append(batch if passes.all() else batch.filter(passes))

    def _in_turn(self, numbers: npt.NDArray[np.uint32], times: Ints) -> npt.NDArray[np.bool_]:
        """Return which bids are not earlier than those before, where those of a batch are not in order."""
        last = self._last.copy()
        passes = np.zeros(len(times), np.bool_)
        for row, (number, time) in enumerate(zip(numbers.tolist(), times.tolist(), strict=True)):
            if time >= last[number]:
                last[number] = time
                passes[row] = True
        return passes

    def complete(self) -> bool:
        """Emit what is left."""
        return self._flush()

    def _flush(self) -> bool:
        accepted = self.outbox.offer_all(self._found)
        self._found = self._found[accepted:]
        return not self._found
