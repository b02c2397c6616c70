"""Sinks that fail their job unless they got what a test expects. After Jet's `AssertionSinks`.

Must not know: where the items come from. The rows of a batch count as dicts, one each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import repeat
from time import monotonic
from typing import Any

from shmjet.core.processor import ProcessorContext
from shmjet.data.columnar import Columnar
from shmjet.data.errors import AssertionCompletedError
from shmjet.processors.general.base import BulkProcessor
from shmjet.processors.general.state_keys import own_key

_SHOWN = 5
"""Items of a kind that a message shows."""
_LONGEST = 120
"""Characters of an item that a message shows."""


class AssertOrderedProcessor(BulkProcessor):
    """Compares each item with the one expected in its place; the first that differs ends the job."""

    state_kind = "assert_ordered"

    def __init__(self, expected: tuple[Any, ...], message: str) -> None:
        self._expected = expected
        self._message = message
        self._count = 0

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Compare a list."""
        got = rows_of(items)
        first = self._count
        wanted = self._expected[first : first + len(got)]
        self._count += len(got)
        if len(wanted) == len(got) and list(wanted) == got:
            return
        for place, (item, other) in enumerate(zip(got, wanted, strict=False), first):
            if item != other:
                raise AssertionError(f"{self._message}: item {place} is {shown(item)}, expected {shown(other)}")
        more = got[len(wanted) :]
        if more:
            raise AssertionError(
                f"{self._message}: expected {len(self._expected)} items, then came {few(more)} as item "
                f"{first + len(wanted)}"
            )

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return how many items have come."""
        return [(own_key(self.context), self._count)] if self._count else []

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Go on counting."""
        self._count += sum(count for _, count in entries)

    def finish(self) -> bool:
        """Check that none is missing."""
        if not self.context.receives:
            return True
        missing = self._expected[self._count :]
        if missing:
            raise AssertionError(
                f"{self._message}: expected {len(self._expected)} items, got {self._count}; missing at the end: "
                f"{few(missing)}"
            )
        return True


class _GatheringProcessor(BulkProcessor):
    """Keeps all items."""

    def __init__(self) -> None:
        self._got: list[Any] = []

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Gather a list."""
        self._got += rows_of(items)

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the items that have come."""
        return zip(repeat(own_key(self.context)), self._got)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take them back."""
        self._got += [item for _, item in entries]


class AssertAnyOrderProcessor(_GatheringProcessor):
    """Gathers all items, and compares them as a multiset at the end."""

    state_kind = "assert_any_order"

    def __init__(self, expected: tuple[Any, ...], message: str) -> None:
        super().__init__()
        self._expected = expected
        self._message = message

    def finish(self) -> bool:
        """Compare."""
        if not self.context.receives:
            return True
        missing, unexpected = difference(self._expected, self._got)
        if missing or unexpected:
            text = f"{self._message}: expected {len(self._expected)} items in any order, got {len(self._got)}"
            if missing:
                text += f"\nmissing: {few(missing)}"
            if unexpected:
                text += f"\nunexpected: {few(unexpected)}"
            raise AssertionError(text)
        return True


class AssertContainsProcessor(BulkProcessor):
    """Looks for the expected items; its state is the expected items that have not come."""

    state_kind = "assert_contains"

    def __init__(self, expected: tuple[Any, ...], message: str) -> None:
        self._missing = list(expected)
        self._message = message
        self._count = 0

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Look through a list."""
        got = rows_of(items)
        self._count += len(got)
        if self._missing:
            found: Any = got
            try:
                found = set(got)
                self._missing = [item for item in self._missing if item not in found]
            except TypeError:  # something cannot be hashed
                self._missing = [item for item in self._missing if item not in got]

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return how many items have come, and which are missing."""
        return [(own_key(self.context), (self._count, self._missing))] if self._count else []

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Go on looking."""
        for _, (count, missing) in entries:
            self._count += count
            self._missing = [item for item in self._missing if item in missing]

    def finish(self) -> bool:
        """Check that none is missing."""
        if self.context.receives and self._missing:
            raise AssertionError(
                f"{self._message}: {len(self._missing)} of the expected items are not among the {self._count} that "
                f"came\nmissing: {few(self._missing)}"
            )
        return True


class AssertCollectedProcessor(_GatheringProcessor):
    """Gathers all items, and has a function look at them at the end."""

    state_kind = "assert_collected"

    def __init__(self, fn: Callable[[list[Any]], Any]) -> None:
        super().__init__()
        self._fn = fn

    def finish(self) -> bool:
        """Have the function look."""
        if self.context.receives:
            check("assert_collected", self._fn, self._got)
        return True


class AssertCollectedEventuallyProcessor(_GatheringProcessor):
    """Has a function look at all items so far, whenever some have come, until it accepts them or the time is over.

    Args:
        timeout: seconds from the start of the processor.
        fn: takes the list.
        clock: gives seconds.
    """

    state_kind = "assert_collected_eventually"

    def __init__(self, timeout: float, fn: Callable[[list[Any]], Any], clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._timeout = timeout
        self._fn = fn
        self._clock = clock

    def start(self, context: ProcessorContext) -> None:
        """Begin to measure the time."""
        self._deadline = self._clock() + self._timeout
        self.next_call = self._timeout if context.receives else math.inf

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Gather a list, and look."""
        super().absorb(ordinal, items)
        self._look(last=self._clock() >= self._deadline)

    def try_process(self) -> bool:
        """Fail when the time is over."""
        if self.context.receives:
            left = self._deadline - self._clock()
            if left <= 0:
                self._look(last=True)
            self.next_call = left
        return True

    def finish(self) -> bool:
        """Look for the last time."""
        if self.context.receives:
            self._look(last=True)
        return True

    def _look(self, *, last: bool) -> None:
        try:
            check("assert_collected_eventually", self._fn, self._got)
        except Exception as error:
            if last:
                raise AssertionError(
                    f"assert_collected_eventually: not within {self._timeout:g} s; of {len(self._got)} items the last "
                    f"error is: {type(error).__name__}: {error}"
                ) from error
        else:
            raise AssertionCompletedError(
                f"assert_collected_eventually: {len(self._got)} items are as expected; this error ends the job"
            )


def check(name: str, fn: Callable[[list[Any]], Any], items: list[Any]) -> None:
    """Have a function look at items. Raises what it raises, or AssertionError where it returns False."""
    if fn(items) is False:
        raise AssertionError(f"{name}: {getattr(fn, '__name__', fn)} returned False for {few(items) or 'no items'}")


def rows_of(items: Iterable[Any]) -> list[Any]:
    """Return the items, with each batch replaced by its rows as dicts."""
    rows: list[Any] = []
    for item in items:
        if isinstance(item, Columnar):
            batch: Any = item
            rows += batch.rows()
        else:
            rows.append(item)
    return rows


def difference(expected: Iterable[Any], got: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Return what is only in the first and only in the second of two multisets.

    Linear for items that can be hashed; for others each is looked for among those left.

    Example:
        >>> difference([1, [2], [2]], [[2], 3])
        ([1, [2]], [3])
    """
    left, right = list(expected), list(got)
    try:
        one, other = Counter(left), Counter(right)
    except TypeError:
        missing = []
        for item in left:
            try:
                right.remove(item)
            except ValueError:
                missing.append(item)
        return missing, right
    return list((one - other).elements()), list((other - one).elements())


def shown(item: Any) -> str:
    """Return an item as a message shows it."""
    text = repr(item)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def few(items: Any) -> str:
    """Return the first items of a sequence as a message shows them, and how many there are more."""
    listed = ", ".join(map(shown, items[:_SHOWN]))
    return listed if len(items) <= _SHOWN else f"{listed} and {len(items) - _SHOWN} more"
