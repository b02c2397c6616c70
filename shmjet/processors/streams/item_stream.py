"""Items by schedule, one by one. After Jet's `TestSources.itemStream` and the `EventSourceP` of its NEXMark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import NoneType
from typing import Any, NamedTuple

from shmjet._native import index_of_special
from shmjet.core.event_time import EventTimePolicy
from shmjet.processors.streams.schedule import Schedule
from shmjet.processors.streams.scheduled import Clock, ScheduledProcessor


class SimpleEvent(NamedTuple):
    """What a stream of items gives where no function makes the items.

    Example:
        >>> SimpleEvent(1_500, 3).sequence
        3
    """

    timestamp: int
    """When it was due: milliseconds since the epoch."""
    sequence: int
    """Its number, from 0."""


_event = partial(tuple.__new__, SimpleEvent)
"""Makes one of a pair, without a call of Python."""

ItemFn = Callable[[int, int], Any]
"""Makes an item of a number and its timestamp in milliseconds; None: there is none."""


class ItemStreamProcessor(ScheduledProcessor):
    """Emits what a function makes of numbers that are due.

    Args:
        schedule, policy, clock: as of `ScheduledProcessor`.
        fn: makes the items; None: they are `SimpleEvent`.
    """

    state_kind = "item_stream"

    def __init__(
        self, schedule: Schedule, policy: EventTimePolicy | None, fn: ItemFn | None, clock: Clock | None = None
    ) -> None:
        super().__init__(schedule, policy, clock)
        self._fn = fn

    def made(self, numbers: Sequence[int], now: int) -> list[Any]:
        """Return the items of numbers, with watermarks in between."""
        stamps = self._schedule.timestamps(numbers)
        if self._fn is None:
            items: list[Any] = list(map(_event, zip(stamps, numbers, strict=True)))
        else:
            items = list(map(self._fn, numbers, stamps))
            if index_of_special(items, 0, NoneType) >= 0:
                stamps = [stamp for stamp, item in zip(stamps, items, strict=True) if item is not None]
                items = [item for item in items if item is not None]
        return items if self._mapper is None else self._mapper.take(items, 0, now, stamps)
