"""Stateless transformations: map, filter and flat_map of items.

Must not know: grouping and aggregation. After Jet's `Processors.mapP`, `filterP` and `flatMapP`, with lists in place of
items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import selected
from shmjet.core.processor import Processor
from shmjet.processors.general import emission
from shmjet.processors.general.base import ExpandingProcessor, Supply, TransformingProcessor


def _callable(name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(fn):
        raise TypeError(f"{name}: expected a function, got {type(fn).__name__}: {fn!r}")
    return fn


def _is_ours(error: BaseException) -> bool:
    """Tell whether an error arose while results were drawn, and not deeper, in the user's function."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_globals.get("__name__") == emission.__name__


class MapProcessor(TransformingProcessor):
    """Emits `fn(item)`, unless that is None."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def transform(self, items: list[Any]) -> list[Any]:
        """Map a list."""
        fn = self._fn
        return [result for item in items if (result := fn(item)) is not None]


class FilterProcessor(TransformingProcessor):
    """Emits the items for which `predicate` is true."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self._predicate = predicate

    def transform(self, items: list[Any]) -> list[Any]:
        """Filter a list."""
        return selected(self._predicate, items)


class FlatMapProcessor(ExpandingProcessor):
    """Emits all that `fn(item)` yields, lazily, so that it may be endless."""

    def __init__(self, fn: Callable[[Any], Iterable[Any]]) -> None:
        self._fn = fn

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return all results; the function is called only as far as they are drawn."""
        fn = self._fn
        return chain.from_iterable(fn(item) for item in items)  # not `map`: see `mapped`

    def process(self, ordinal: int, inbox: Inbox) -> None:
        """As `ExpandingProcessor`; says what is wrong when a result cannot be iterated over."""
        try:
            super().process(ordinal, inbox)
        except TypeError as error:
            if not (str(error).endswith("object is not iterable") and _is_ours(error)):
                raise
            raise TypeError(
                f"flat_map: {error}; its function must return an iterable for every item, [] for none"
            ) from error


def map_(fn: Callable[[Any], Any]) -> Callable[[], Processor]:
    """Emit `fn(item)` for each item; a result of None drops the item. Exported as `map` too.

    Args:
        fn: function of one item.

    Returns:
        A supplier for `DAG.new_vertex`.

    Raises:
        TypeError: when `fn` is not callable.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(map_(lambda x: x + 1 if x > 1 else None)).inputs([1, 2]).expect([3])
    """
    return Supply(MapProcessor, _callable("map", fn))


def filter_(predicate: Callable[[Any], Any]) -> Callable[[], Processor]:
    """Emit the items for which `predicate(item)` is true. Exported as `filter` too.

    Args:
        predicate: function of one item; any true value keeps the item.

    Raises:
        TypeError: when `predicate` is not callable.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(filter_(lambda x: x % 2)).inputs([1, 2, 3]).expect([1, 3])
    """
    return Supply(FilterProcessor, _callable("filter", predicate))


def flat_map(fn: Callable[[Any], Iterable[Any]]) -> Callable[[], Processor]:
    """Emit every item of what `fn(item)` returns.

    The result may be any iterable: a list, a traverser, a generator. It is drawn only as far as the outbox has room,
    and goes on where it stopped, so an endless generator is fine. None inside it is a `TypeError`.

    Args:
        fn: function of one item that returns an iterable.

    Raises:
        TypeError: when `fn` is not callable.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(flat_map(str.split)).inputs(["a b", "", "c"]).expect(["a", "b", "c"])
    """
    return Supply(FlatMapProcessor, _callable("flat_map", fn))
