"""Sources that need nothing outside: items given with the job, and user functions that generate them.

Must not know: files, sockets, maps. After Jet's `TestSources.items` and `SourceBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shmjet.core.processor import Processor, ProcessorMetaSupplier
from shmjet.data.errors import ProcessorError
from shmjet.processors.general.base import Supply
from shmjet.processors.general.unit_source import ShareSource


class ItemsProcessor(ShareSource):
    """Emits its share of given items."""

    state_kind = "items"

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def open(self, unit: tuple[int, int], position: int) -> tuple[Sequence[Any], int]:
        """Return the share, a contiguous run of the items, from a position on."""
        index, count = unit
        size = len(self._items)
        return self._items[size * index // count + position : size * (index + 1) // count], 0

    def describe(self) -> int:
        """Return the number of items."""
        return len(self._items)

    def check(self, described: int) -> None:
        """Raise ProcessorError when there were others."""
        if described != len(self._items):
            raise ProcessorError(
                f"vertex {self.context.vertex_name!r}: the snapshot is of a source of {described} items, this one has "
                f"{len(self._items)}; go on with the items that the job began with"
            )

    def progress(self) -> tuple[int, int]:
        """Return the items emitted, and their number; the first processor has that of all."""
        return self.emission.drawn, len(self._items) if self.context.global_index == 0 else 0


class GenerateProcessor(ShareSource):
    """Emits what a function of (index, count) yields."""

    state_kind = "generate"

    def __init__(self, fn: Callable[[int, int], Iterable[Any]]) -> None:
        self._fn = fn

    def open(self, unit: tuple[int, int], position: int) -> tuple[Iterable[Any], int]:
        """Return the function's iterable."""
        flow = self._fn(*unit)
        return (flow[position:], 0) if isinstance(flow, range | list | tuple) else (flow, position)


def read_items(items: Iterable[Any]) -> ProcessorMetaSupplier:
    """Emit items that travel with the job, each once; in order with one processor, which is the default.

    With a higher local parallelism every processor emits a run of its own. A restarted job goes on behind the last item
    that its snapshot knows, also with another number of processors.

    Args:
        items: any finite iterable; it is read here.

    Raises:
        TypeError: when it is not iterable or contains None.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(read_items("ab")).expect(["a", "b"])
    """
    given = tuple(items)
    if any(item is None for item in given):
        raise TypeError("read_items: None is never an item, but is among the items given")
    return ProcessorMetaSupplier.prefer_local_parallelism_one(Supply(ItemsProcessor, given))


def generate(fn: Callable[[int, int], Iterable[Any]]) -> Callable[[], Processor]:
    """Emit what `fn(index, count)` yields, on each of the vertex' processors.

    The iterable is drawn only as far as there is room, so it may be an endless generator; the job then runs until it
    is cancelled.

    In a job with a processing guarantee the position is the number of items drawn. After a restart `fn` is called again
    with the arguments it had when the job began, and what was emitted before is left out; so `fn` has to yield the same
    items in the same order each time. A `range`, list or tuple goes on at once, anything else is drawn anew.

    Args:
        fn: function of the processor's index among all (from 0) and their count; it returns an iterable.

    Raises:
        TypeError: when `fn` is not callable.

    Example:
        >>> from shmjet.testing import verify_processor
        >>> verify_processor(generate(lambda index, count: range(index, 3, count))).expect([0, 1, 2])
    """
    if not callable(fn):
        raise TypeError(f"generate: expected a function of (index, count), got {type(fn).__name__}: {fn!r}")
    return Supply(GenerateProcessor, fn)
