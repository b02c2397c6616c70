"""Test doubles of the engine around a processor: inbox, outbox, context and grid, also for use by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shmjet.core.context import ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.keys import partition_id
from shmjet.core.outbox import DEFAULT_HIGH_WATER_MARK, Outbox
from shmjet.ring import pickling
from shmjet.testing.mode_outbox import carried


class TestInbox(Inbox):
    """An inbox that starts with items.

    Example:
        >>> inbox = TestInbox(1, 2, 3)
        >>> inbox.poll(), len(inbox)
        (1, 2)
    """

    __test__ = False
    __slots__ = ()

    def __init__(self, *items: Any) -> None:
        super().__init__()
        self.fill(list(items))

    def add(self, *items: Any) -> None:
        """Put more items at the end."""
        self.fill([*self.take(), *items])


class TestOutbox(Outbox):
    """An outbox to look into; it takes entries for a snapshot at any time.

    Args:
        capacities: of its buckets, in items; without any there is one bucket of 2048.

    Example:
        >>> outbox = TestOutbox(1)
        >>> outbox.offer("a"), outbox.offer("b"), outbox.drain(), outbox.offer("b")
        (True, False, ['a'], True)
    """

    __test__ = False
    __slots__ = ()

    def __init__(self, *capacities: int) -> None:
        super().__init__(capacities or (DEFAULT_HIGH_WATER_MARK,))
        self.begin_saving()

    def drain(self, ordinal: int = 0) -> list[Any]:
        """Return what the bucket of an ordinal holds and empty it; the next call of the processor may begin."""
        items = self.buckets[ordinal]
        self.buckets[ordinal] = []
        self.begin_callback()
        return items

    def drain_snapshot(self) -> list[tuple[Any, Any]]:
        """Return copies of the entries that were saved, as a restore brings them; the next call may begin.

        Raises:
            TypeError: a key has no partition, or an entry cannot be pickled.

        Example:
            >>> outbox = TestOutbox()
            >>> outbox.offer_to_snapshot("a", [1]), outbox.drain_snapshot()
            (True, [('a', [1])])
        """
        entries = self.end_saving(False)
        self.begin_saving()
        return carried(entries)


class TestMap(dict[Any, Any]):
    """A dict with the methods of an `IMap` that processors use."""

    __test__ = False

    def __init__(self, *entries: Any) -> None:
        super().__init__(*entries)
        self._marks = _Marks()

    def put(self, key: Any, value: Any) -> None:
        """Set one entry."""
        self[key] = value

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Set many entries."""
        self.update(entries)

    def get_all(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the entries that exist for some keys."""
        return {key: self[key] for key in keys if key in self}

    def items_of(self, partitions: Iterable[int]) -> list[tuple[Any, Any]]:
        """Return the entries of some of `DEFAULT_PARTITION_COUNT` partitions."""
        chosen = set(partitions)
        return [entry for entry in self.items() if partition_id(entry[0]) in chosen]

    def size(self) -> int:
        """Return the number of entries."""
        return len(self)

    def _put_once(self, values: Mapping[Any, Any], marker: bytes, mark: int) -> None:
        if self._marks.is_new(marker, mark):
            for key, value in values.items():
                if value is None:
                    self.pop(key, None)
                else:
                    self[key] = value


class TestList(list[Any]):
    """A list with what sinks need of an `IList`."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self._marks = _Marks()

    def _extend_once(self, items: list[Any], marker: bytes, mark: int) -> bool:
        is_new = self._marks.is_new(marker, mark)
        self.extend(items if is_new else ())
        return is_new


class _Marks:
    """The last write of each writer, for writes that happen once."""

    def __init__(self) -> None:
        self._last: dict[bytes, int] = {}

    def is_new(self, marker: bytes, mark: int) -> bool:
        if self._last.get(marker, -1) >= mark:
            return False
        self._last[marker] = mark
        return True


class TestObservable(list[Any]):
    """What has been written to an observable."""

    __test__ = False
    unconfirmed = 0

    def write(self, count: int, items: bytes) -> None:
        """Take a pickled list."""
        self.extend(pickling.loads(items))

    def wait(self, most: int = 0) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is open."""


class TestGrid:
    """Maps, lists and observables in plain memory, each made when it is first asked for.

    Example:
        >>> grid = TestGrid()
        >>> grid.get_map("counts").put("a", 1)
        >>> grid.maps
        {'counts': {'a': 1}}
    """

    __test__ = False

    def __init__(self) -> None:
        self.maps: dict[str, TestMap] = {}
        self.lists: dict[str, TestList] = {}
        self.observables: dict[str, TestObservable] = {}

    def get_map(self, name: str) -> TestMap:
        """Return the map of that name."""
        return self.maps.setdefault(name, TestMap())

    def get_list(self, name: str) -> list[Any]:
        """Return the list of that name."""
        return self.lists.setdefault(name, TestList())

    def open_observable(self, name: str) -> TestObservable:
        """Return the observable of that name."""
        return self.observables.setdefault(name, TestObservable())


@dataclass(frozen=True, kw_only=True)
class TestContext(ProcessorContext):
    """A `ProcessorContext` of a single processor, with a `TestGrid`; every field can be given by keyword.

    Example:
        >>> TestContext(local_parallelism=2, local_index=1).vertex_name
        'test'
    """

    __test__ = False

    vertex_name: str = "test"
    job_id: str = "test-job"
    grid: Any = field(default_factory=TestGrid)
