"""Timed items: the pairs `(timestamp, item)` in which items travel where they have an event time. Pure.

The pair is made and unmade inside jobs; users see the item. It is a plain tuple, which the codec sends as columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

TIMESTAMP: Final = itemgetter(0)
"""The timestamp of a timed item, in milliseconds since the epoch."""

ITEM: Final = itemgetter(1)
"""The item of a timed item."""


@dataclass(frozen=True)
class TimedKey:
    """A key function of items, asked of timed ones.

    Args:
        key_fn: of the item; None: the item itself.

    Example:
        >>> TimedKey(str.lower)((1_500, "A"))
        'a'
    """

    key_fn: Callable[[Any], Any] | None

    def __call__(self, pair: tuple[int, Any]) -> Any:
        """Return the key of a timed item."""
        return pair[1] if self.key_fn is None else self.key_fn(pair[1])

    @property
    def __name__(self) -> str:
        """What drawings and messages call it."""
        return getattr(self.key_fn, "__name__", None) or "item"
