"""The lookup of items in a map of the grid, as the map is at that moment.

Must not know: how maps are stored; it sees them through `context.grid`. The values for a list of items are read at
once. After Jet's `mapUsingIMap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmjet.core.key_functions import KeyFn, keys_of, named_unhashable, plain
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.processors.general.base import Supply
from shmjet.processors.general.failures import OnError
from shmjet.processors.general.item_calls import Calls, Failed, OneCallProcessor
from shmjet.processors.grid.writers import grid_of


class MapLookupCalls(Calls):
    """Calls a function with an item and the map's value for its key.

    Args:
        name: of the map.
        key_fn: key of an item.
        fn: `fn(item, value)`.
    """

    def __init__(self, name: str, key_fn: KeyFn, fn: Callable[[Any, Any], Any]) -> None:
        self._name = name
        self._key_fn = key_fn
        self._fn = fn

    def start(self, context: ProcessorContext) -> None:
        """Open the map."""
        self._map = grid_of(context).get_map(self._name)

    def values(self, items: list[Any], stamps: list[int] | None) -> list[Any]:
        """Call the function for a list."""
        fn, keys = self._fn, keys_of(self._key_fn, items)
        found = self._found(keys)
        return [fn(item, found.get(key)) for key, item in zip(keys, items, strict=True)]

    def guarded_values(self, items: list[Any], stamps: list[int] | None, failed: Failed) -> list[Any]:
        """Call the function for a list, with a policy for its errors; the values are read at once here, too."""
        key_fn, fn, output = self._key_fn, self._fn, [self.nothing] * len(items)
        keys: list[Any] = []
        places: list[int] = []
        for place, item in enumerate(items):
            try:
                keys += keys_of(key_fn, [item])
                hash(keys[-1])
            except Exception as error:
                del keys[len(places) :]
                output[place] = failed(item, error)
            else:
                places.append(place)
        found = self._found(keys)
        for key, place in zip(keys, places, strict=True):
            try:
                output[place] = fn(items[place], found.get(key))
            except Exception as error:
                output[place] = failed(items[place], error)
        return output

    def _found(self, keys: list[Any]) -> dict[Any, Any]:
        try:
            wanted = [key for key in dict.fromkeys(keys) if key is not None]
        except TypeError as error:
            raise named_unhashable(error, keys) from None
        found: dict[Any, Any] = self._map.get_all(wanted)
        return found


class MapLookupProcessor(OneCallProcessor[MapLookupCalls]):
    """Looks items up in a map."""


def map_using_map(
    name: str,
    key_fn: KeyFn,
    fn: Callable[[Any, Any], Any],
    *,
    timed: bool = False,
    on_error: OnError | None = None,
) -> Callable[[], Processor]:
    """Emit `fn(item, value)` for each item and the value that a map has for its key, None when it has none.

    The map is read when the item comes, so what is put into it while the job runs is seen by later items.

    Args:
        name: of the map. A map that does not exist is empty.
        key_fn: key of an item; None: the item itself. An item whose key is None gets the value None.
        fn: a result of None drops the item.
        timed: items are pairs `(timestamp, item)`; functions see the item, and results are pairs with its timestamp.
        on_error: what is done with an item whose function raises; None: the job fails.

    Raises:
        TypeError: `name` is not a non-empty string, or a function cannot be called.

    Example:
        >>> names = map_using_map("names", lambda click: click["user"], lambda click, name: (name, click["page"]))
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"map_using_map: expected the name of a map, got {name!r}")
    if not callable(fn):
        raise TypeError(f"map_using_map: expected a function of item and value, got {type(fn).__name__}: {fn!r}")
    return Supply(_processor, name, plain(key_fn), fn, timed, on_error)


def _processor(
    name: str, key_fn: KeyFn, fn: Callable[[Any, Any], Any], timed: bool, on_error: OnError | None
) -> Processor:
    return MapLookupProcessor(MapLookupCalls(name, key_fn, fn), "map", timed, on_error)
