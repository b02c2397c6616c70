"""Sources that emit units of work one after the other, and save how far they have come in each.

A unit is what one processor reads from its beginning to its end: a share of given items, a partition of a map. Its
items come in the same order each time it is opened, so the number of those emitted is a position. Positions are saved
under a `BroadcastKey`, all processors see those of all, and each goes on with the units that are its own now; so their
number may change. Must not know what the items are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from time import monotonic_ns
from typing import Any, Final

from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.latency_policy import policy_in
from shmjet.core.outbox import Outbox
from shmjet.core.processor import ProcessorContext
from shmjet.processors.general.base import BulkProcessor

DONE: Final = -1
"""The position of a unit whose items have all been emitted."""

_SKIPPED_AT_ONCE = 10_000
"""Items of a lazy sequence that are drawn between two looks at the clock, when they were emitted before."""


class UnitSource(BulkProcessor):
    """Emits the items of its units in order. A subclass says which units there are, and what is in them."""

    _saves_at_end = True

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        """As `BulkProcessor.init`."""
        self._positions: dict[Hashable, int] | None = None
        self._saved: dict[Hashable, int] = {}
        self._unit: Hashable | None = None
        self._from = self._drawn = 0
        self._skipped: Iterator[Any] | None = None
        self._left_to_skip = 0
        super().init(outbox, context)

    def first_units(self) -> list[Any]:
        """Return the units of this processor when the job begins; hashable plain values."""
        raise NotImplementedError

    def restored_units(self, saved: Mapping[Any, int]) -> list[Any]:
        """Return the units of this processor after a restore.

        Args:
            saved: the positions of the units of all processors.
        """
        raise NotImplementedError

    def open(self, unit: Any, position: int) -> tuple[Iterable[Any], int]:
        """Begin a unit.

        Args:
            unit: which.
            position: items of it that have been emitted before.

        Returns:
            its items, lazily, and how many of these are to be left out; at most `position`.
        """
        raise NotImplementedError

    def describe(self) -> Any:
        """Return what is saved with the positions, so that `check` sees whether they still hold; plain data."""
        return None

    def check(self, described: Any) -> None:
        """Raise ProcessorError when positions that were saved with this description do not hold any more."""

    def complete(self) -> bool:
        """Emit what there is room for; True when all units are through."""
        positions, drawn = self._begun(), self.emission.drawn
        deadline = monotonic_ns() + policy_in(self.context).call_ns
        while self._skip(deadline) and self.emission.flush():
            if self._unit is not None:
                positions[self._unit] = DONE
            self._unit = next((unit for unit, position in positions.items() if position != DONE), None)
            if self._unit is None:
                return True
            self._open(positions[self._unit])
            if self.emission.drawn > drawn and monotonic_ns() >= deadline:
                break
        return False

    def save_to_snapshot(self) -> bool:
        """Emit what has been drawn, then save the positions."""
        return self.emission.flush_rest() and super().save_to_snapshot()

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the positions, as one entry."""
        positions = self._begun()
        if self._unit is not None and positions[self._unit] != DONE:
            positions[self._unit] = self._from + self.emission.drawn - self._drawn
        return [(BroadcastKey(self.context.global_index), (self.describe(), tuple(positions.items())))]

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take the positions of all processors."""
        for _, (described, positions) in entries:
            self.check(described)
            for unit, position in positions:
                before = self._saved.get(unit, 0)
                self._saved[unit] = DONE if DONE in (before, position) else max(before, position)

    def finish_snapshot_restore(self) -> bool:
        """Choose the units to go on with."""
        if self._saved:
            self._positions = {unit: self._saved.get(unit, 0) for unit in self.restored_units(self._saved)}
            self._saved = {}
        return True

    def _begun(self) -> dict[Hashable, int]:
        if self._positions is None:
            self._positions = dict.fromkeys(self.first_units(), 0)
        return self._positions

    def _open(self, position: int) -> None:
        flow, left_out = self.open(self._unit, position)
        self._from, self._drawn = position, self.emission.drawn
        if left_out:
            self._skipped, self._left_to_skip = iter(flow), left_out
        else:
            self.emission.start(flow)

    def _skip(self, deadline: int) -> bool:
        """Leave out what was emitted before the restore, as far as there is time; True when that is done."""
        while self._skipped is not None:
            step = min(self._left_to_skip, _SKIPPED_AT_ONCE)
            drawn = sum(1 for _ in islice(self._skipped, step))
            self._left_to_skip -= drawn
            if drawn < step or not self._left_to_skip:
                self.emission.start(self._skipped)
                self._skipped = None
            elif monotonic_ns() >= deadline:
                return False
        return True


class ShareSource(UnitSource):
    """A source whose units are the shares (index, count) of the processors that there were when the job began."""

    def first_units(self) -> list[tuple[int, int]]:
        """Return the processor's own share."""
        return [(self.context.global_index, self.context.total_parallelism)]

    def restored_units(self, saved: Mapping[Any, int]) -> list[Any]:
        """Return the shares that are dealt to this processor now, all of them where their number is the same."""
        index, count = self.context.global_index, self.context.total_parallelism
        return sorted(unit for unit in saved if unit[0] % count == index)
