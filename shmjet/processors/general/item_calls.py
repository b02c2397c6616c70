"""map, filter and flat_map of what a function gives for each item, whatever it is given with the item.

A `Calls` object calls the function: with a state, a service, a value of a table. What the results mean, event time and
failed items are dealt with here, once. Must not know: states, services, tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, Final, Generic, Literal, NoReturn, TypeVar

from shmjet._native import unify_nans
from shmjet.core.key_functions import NAN, KeyFn, keys_of
from shmjet.core.processor import ProcessorContext
from shmjet.processors.general.base import BulkProcessor, ExpandingProcessor, TransformingProcessor
from shmjet.processors.general.failures import OnError

Failed = Callable[[Any, Exception], Any]
"""Takes an item and the error of a function; returns what stands for no result, or raises the error."""

Kind = Literal["map", "filter", "flat_map"]

_NOTHING: dict[Kind, Any] = {"map": None, "filter": False, "flat_map": ()}
"""What a function returns that has no result for an item."""


NO_KEY: Final = object()
"""Stands for the key of an item whose key function has raised."""


def guarded_keys(key_fn: KeyFn, items: list[Any], outcome: Callable[[Any, Exception], Any]) -> list[Any]:
    """Return the keys of items as `keys_of` does, and `NO_KEY` for an item whose key function raises.

    Args:
        key_fn: key of an item; None: the item itself.
        items: bare ones.
        outcome: called with an item and its error.
    """
    if key_fn is None:
        return keys_of(None, items)
    keys: list[Any] = []
    for item in items:
        try:
            keys.append(key_fn(item))
        except Exception as error:
            outcome(item, error)
            keys.append(NO_KEY)
    return unify_nans(keys, NAN)


class Calls:
    """Calls a user's function for items. One object belongs to one processor."""

    nothing: Any = None
    """What to return for an item that is dropped; set by the processor."""

    def start(self, context: ProcessorContext) -> None:
        """Get ready, once; may block."""

    def one(self, item: Any, stamp: int | None) -> Any:
        """Return what the function gives for an item.

        Args:
            item: a bare one.
            stamp: its event time in milliseconds; None where there is none.
        """
        raise TypeError(f"{type(self).__name__} must override one(item, stamp)")

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Return what the function gives for each item; the same as `one`, in bulk."""
        one = self.one
        return [one(item, stamp) for item, stamp in zip(items, _each(stamps))]  # noqa: B905

    def guarded_values(self, items: list[Any], stamps: list[int] | None, failed: Failed) -> list[Any]:
        """Return what the function gives for each item, and `failed(item, error)` for those on which it raises."""
        return [self.guarded_one(item, stamp, failed) for item, stamp in zip(items, _each(stamps))]  # noqa: B905

    def guarded_one(self, item: Any, stamp: int | None, failed: Failed) -> Any:
        """Return what the function gives for an item, or `failed(item, error)` if it raises."""
        try:
            return self.one(item, stamp)
        except Exception as error:
            return failed(item, error)


def _each(stamps: list[int] | None) -> Iterable[int | None]:
    return repeat(None) if stamps is None else stamps


C = TypeVar("C", bound=Calls)


class CallsProcessor(BulkProcessor, Generic[C]):
    """What the processors of all kinds have in common.

    Args:
        calls: calls the function.
        kind: what its results mean.
        timed: items are timed, and results get the timestamps of their items.
        on_error: what is done with an item whose function raises; None: it fails the job.
    """

    def __init__(self, calls: C, kind: Kind, timed: bool = False, on_error: OnError | None = None) -> None:
        self.calls = calls
        self.kind = kind
        self.timed = timed
        self.failure_policies = (on_error,)
        self._on_error = on_error
        calls.nothing = _NOTHING[kind]

    def start(self, context: ProcessorContext) -> None:
        """Get the calls ready."""
        self.calls.start(context)

    def stamps_of(self, items: list[Any]) -> list[int] | None:
        """Return the timestamps of items; None where they have none."""
        return [stamp for stamp, _ in items] if self.timed else None

    def one(self, item: Any, stamp: int | None) -> Any:
        """Return what the function gives for an item, where there may be a policy for its errors."""
        if self._on_error is None:
            return self.calls.one(item, stamp)
        return self.calls.guarded_one(item, stamp, self._failed)

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Return what the function gives for each item."""
        if self._on_error is None:
            return self.calls.values(items, stamps)
        return self.calls.guarded_values(items, stamps, self._failed)

    def _failed(self, item: Any, error: Exception) -> Any:
        assert self.guard is not None
        assert self._on_error is not None
        self.guard.failed(self._on_error, item, error)
        return self.calls.nothing


class OneCallProcessor(CallsProcessor[C], TransformingProcessor):
    """Kinds map and filter: at most one result for each item."""

    def transform(self, items: list[Any]) -> list[Any]:
        """Call the function for a list and return the results."""
        stamps = self.stamps_of(items)
        bare = [item for _, item in items] if self.timed else items
        values = self.values(bare, stamps)
        if self.kind == "filter":
            return [item for item, kept in zip(items, values, strict=True) if kept]
        if not self.timed or stamps is None:
            return [value for value in values if value is not None]
        return [(stamp, value) for stamp, value in zip(stamps, values, strict=True) if value is not None]


class ManyCallProcessor(CallsProcessor[C], ExpandingProcessor):
    """Kind flat_map: any number of results for each item, drawn lazily, item by item."""

    def expand(self, ordinal: int, items: list[Any]) -> Iterable[Any]:
        """Return all results, lazily; the function is called for an item when those before are drawn."""
        stamps = self.stamps_of(items)
        if not self.timed or stamps is None:
            return self._bare(items, stamps)
        return self._timed(items)

    def _bare(self, items: list[Any], stamps: list[int] | None) -> Iterator[Any]:
        if stamps is None:
            for item in items:
                yield from self.drawn_from(item, self.one(item, None))
            return
        for item, stamp in zip(items, stamps, strict=True):
            yield from self.drawn_from(item, self.one(item, stamp))

    def _timed(self, items: list[Any]) -> Iterator[Any]:
        for stamp, item in items:
            yield from timed_results(stamp, self.drawn_from(item, self.one(item, stamp)), self.context.vertex_name)

    def drawn_from(self, item: Any, results: Any) -> Iterable[Any]:
        """Return the results of an item, to be drawn; where there is a policy for errors, drawing does not raise."""
        if self._on_error is None or results is self.calls.nothing:
            if not hasattr(results, "__iter__"):
                raise TypeError(
                    f"stage {self.context.vertex_name!r}: {type(results).__name__!r} object is not iterable; the "
                    "function of a flat_map must return an iterable for every item, [] for none"
                )
            return results  # type: ignore[no-any-return]
        assert self.guard is not None
        return self.guard.results(self._on_error, item, results)


def timed_results(stamp: int, results: Iterable[Any], stage: str) -> Iterator[Any]:
    """Yield the results of a flat_map with the timestamp of their item.

    Raises:
        TypeError: None is among them; the outbox would not see it.
    """
    for result in results:
        if result is None:
            refuse_none(stage)
        yield stamp, result


def refuse_none(stage: str) -> NoReturn:
    """Raise the error for a flat_map with None among its timed results."""
    raise TypeError(f"stage {stage!r}: None is never an item; a flat_map must leave it out of its results")
