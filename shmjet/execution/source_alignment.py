"""The sources of an execution on one member, by a word of each processor's counters in the arena."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shmjet.core.windows import HIGHEST
from shmjet.execution.counters import NO_WATERMARK, SOURCE_WATERMARK, ProcessorCounters


class SharedAlignment:
    """A `SourceAlignment` of one processor.

    A word is `NO_WATERMARK` where a processor takes no part: it has no event time, or no source has to wait. The other
    processors write theirs in `init`, before any processor of the execution is asked for items.

    Args:
        own: the processor's counters, writable.
        others: returns the counters of the other processors that may take part; asked once, when it is needed.
    """

    def __init__(self, own: ProcessorCounters, others: Callable[[], Sequence[ProcessorCounters]]) -> None:
        self._own = own
        self._find = others
        self._others: list[ProcessorCounters] | None = None

    def tell(self, mark: int) -> None:
        """As `SourceAlignment.tell`."""
        self._own.words[SOURCE_WATERMARK] = max(mark, NO_WATERMARK + 1)

    def least_of_others(self) -> int:
        """As `SourceAlignment.least_of_others`."""
        if self._others is None:
            self._others = [one for one in self._find() if one.words[SOURCE_WATERMARK] != NO_WATERMARK]
        return min([one.words[SOURCE_WATERMARK] for one in self._others], default=HIGHEST)
