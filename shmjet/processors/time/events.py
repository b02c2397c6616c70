"""Events as window processors take them: lists of items, cut by the frame that each timestamp is in.

Must not know: what is done with a frame. An event is late when its frame has been emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shmjet._native import cut_frames
from shmjet.core.durations import timestamp_of
from shmjet.core.key_functions import keys_of, mapped
from shmjet.core.timed import ITEM, TIMESTAMP
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.processors.general.aggregate_by_key import KeyFns

TimestampFn = Callable[[Any], Any]
"""Gives the timestamp of an item; see `shmjet.core.durations.timestamp_of`."""

Cut = tuple[dict[int, list[Any]], list[Any]]
"""Bare items by the ends of their frames, and the items that are late, as they came."""


class Events:
    """How the items of each inbound edge become events.

    Args:
        key_fns: key functions by ordinal; None: there are no keys.
        timestamp_fns: timestamp functions by ordinal; None: the items are pairs `(timestamp, item)`.
    """

    __slots__ = ("_key_fns", "_timestamp_fns")

    def __init__(self, key_fns: KeyFns | None, timestamp_fns: KeyFns | None) -> None:
        self._key_fns = key_fns
        self._timestamp_fns = timestamp_fns

    @property
    def has_keys(self) -> bool:
        """Whether events have keys."""
        return self._key_fns is not None

    def keys(self, ordinal: int, items: list[Any]) -> list[Any]:
        """Return the keys of bare items, where there are keys."""
        assert self._key_fns is not None
        return keys_of(self._key_fns.at(ordinal), items)

    def apart(self, ordinal: int, items: list[Any]) -> tuple[list[int], list[Any]]:
        """Return the timestamps of items as they came, and the bare items.

        Raises:
            TypeError: a timestamp is not what `timestamp_of` takes.
        """
        if self._timestamp_fns is None:
            return list(map(TIMESTAMP, items)), list(map(ITEM, items))
        fn = self._timestamp_fns.at(ordinal)
        stamps = items if fn is None else mapped(fn, items)
        return (stamps if set(map(type, stamps)) == {int} else list(map(timestamp_of, stamps))), items

    def cut(self, ordinal: int, items: list[Any], policy: SlidingWindowPolicy, lowest: int) -> Cut:
        """Cut items by frame.

        Args:
            lowest: the end of the first frame that is not late.
        """
        stamps = None if self._timestamp_fns is None else self.apart(ordinal, items)[0]
        return cut_frames(items, stamps, policy.slide, policy.offset, lowest)


def event_fns(name: str, timestamp_fns: TimestampFn | Sequence[TimestampFn] | None, timed: bool) -> KeyFns | None:
    """Return the timestamp functions by ordinal; None where items are timed.

    Raises:
        TypeError: one is not callable; or there are none, and items are not timed; or both.
    """
    if timed:
        if timestamp_fns is not None:
            raise TypeError(f"{name}: timed items bring their timestamps; timestamp_fns must be None")
        return None
    if timestamp_fns is None:
        raise TypeError(f"{name}: give timestamp_fns, a function of an item or one for each inbound edge")
    return KeyFns(timestamp_fns)
