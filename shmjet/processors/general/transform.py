"""Stateless transformations: map, filter, flat_map; and map with a state per key or per processor.

Must not know: grouping and aggregation. After Jet's `Processors.mapP`, `filterP`, `flatMapP` and `mapStatefulP`,
with lists in place of items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.key_functions import KeyFn, keys_of, plain, selected
from shmjet.core.processor import Processor
from shmjet.processors.general import emission
from shmjet.processors.general.base import ExpandingProcessor, Supply, TransformingProcessor
from shmjet.processors.general.state_keys import restore_states, state_entries


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


class MapStatefulProcessor(TransformingProcessor):
    """Keeps one state for each key (or one in all) and emits what `fn` makes of state and item."""

    state_kind = "map_stateful"

    def __init__(self, create: Callable[[], Any], fn: Callable[..., Any], key_fn: KeyFn, keyed: bool) -> None:
        self._create = create
        self._fn = fn
        self._key_fn = key_fn
        self._keyed = keyed
        self._states: dict[Any, Any] = {}

    def transform(self, items: list[Any]) -> list[Any]:
        """Run the function over a list, in order."""
        fn, states, create = self._fn, self._states, self._create
        output: list[Any] = []
        if self._keyed:
            for key, item in zip(keys_of(self._key_fn, items), items, strict=True):
                try:
                    state = states[key]
                except KeyError:
                    state = states[key] = create()
                output.append(fn(state, key, item))
        else:
            if not states:
                states[None] = create()
            state = states[None]
            output = [fn(state, item) for item in items]
        return [result for result in output if result is not None]

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the states by key."""
        return state_entries(self._states, self._keyed, self.context)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Put states back."""
        restore_states(self._states, entries, self._keyed, self.context)


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


_GLOBAL: Any = object()


def map_stateful(create: Callable[[], Any], fn: Callable[..., Any], key_fn: KeyFn = _GLOBAL) -> Callable[[], Processor]:
    """Map with a state that lives as long as the job: one for each key, or one for each processor.

    Args:
        create: makes a new, mutable state.
        fn: `fn(state, key, item)` when a `key_fn` is given, else `fn(state, item)`; it may change the state, and what
            it returns is emitted, unless it is None.
        key_fn: key of an item (None: the item itself). The inbound edge should be partitioned by the same key.

    Raises:
        TypeError: when a function is not callable.

    Example:
        >>> def number(state, item):
        ...     state.append(item)
        ...     return len(state), item
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(map_stateful(list, number)).inputs(["a", "b"]).expect([(1, "a"), (2, "b")])
    """
    keyed = key_fn is not _GLOBAL
    return Supply(
        MapStatefulProcessor,
        _callable("map_stateful", create),
        _callable("map_stateful", fn),
        plain(key_fn) if keyed else None,
        keyed,
    )
