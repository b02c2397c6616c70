"""What the windows over frames hold: frames themselves, frames combined, or the window before plus and minus a frame.

Must not know: where events come from, or where results go. After Jet's `SlidingWindowP`, with its numerics: a window is
the union of its frames; with `deduct` it is the one before plus the leading and minus the trailing frame, and a key
whose accumulator equals a fresh one is not in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import date, time, timedelta
from numbers import Rational
from types import NoneType
from typing import Any, Final, Protocol

from shmjet.aggregate_ops.tables import ABSENT
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.processors.time.frames import Frames, Pairs

_FEW = 6
"""Frames that are combined one by one."""
_EXACT: Final = (Rational, str, bytes, NoneType, date, time, timedelta)
_EXACT_KINDS: Final = frozenset("biumMSU")
"""Of numpy's types."""
_DEEPEST: Final = 6
"""Containers and objects in each other that are looked through."""


class WindowContents(Protocol):
    """What the windows over frames hold; each is asked for once, in ascending order."""

    is_own: bool
    """The accumulators given are not used again: they may be finished."""

    def content(self, end: int) -> Pairs:
        """Return the keys and accumulators of the window that ends there."""

    def leave(self, end: int) -> None:
        """Forget what no later window needs."""


class TumblingContents:
    """Windows of one frame each."""

    is_own = True

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def content(self, end: int) -> Pairs:
        """Return the frame."""
        return self._frames.pairs(end)

    def leave(self, end: int) -> None:
        """Forget the frame."""
        self._frames.remove(end)


class CombinedContents:
    """Windows each of which is combined from its frames anew."""

    is_own = True

    def __init__(self, frames: Frames, policy: SlidingWindowPolicy) -> None:
        self._frames = frames
        self._size, self._slide = policy.size, policy.slide

    def content(self, end: int) -> Pairs:
        """Combine the frames, the oldest first."""
        frames = self._frames
        window = frames.new_table()
        for each in frames.within(end - self._size, end):
            frames.op.merge_groups(window, list(frames.pairs(each)))
        pairs: Pairs = window.items()
        return pairs

    def leave(self, end: int) -> None:
        """Forget the trailing frame."""
        self._frames.remove(end - self._size + self._slide)


class TreeContents(CombinedContents):
    """The same for windows of many frames: neighbours are combined once, in a tree, and not for each window again.

    Frames have numbers, and 2, 4, 8 ... of them that begin at a multiple are a node, so each window consists of a few
    nodes. Which ones depends on the frames alone: a restart does not change the rounding of floats. A node is made of
    frames to which nothing is added any more, so each window has to be asked for after its end.
    """

    def __init__(self, frames: Frames, policy: SlidingWindowPolicy) -> None:
        super().__init__(frames, policy)
        self._offset = policy.offset
        self._levels = (policy.size // policy.slide).bit_length()
        self._nodes: dict[tuple[int, int], list[tuple[Any, Any]]] = {}

    def content(self, end: int) -> Pairs:
        """Combine the nodes, the oldest first."""
        frames, slide = self._frames, self._slide
        if len(frames.within(end - self._size, end)) <= _FEW:
            return super().content(end)
        window = frames.new_table()
        at, stop = (end - self._size - self._offset) // slide + 1, (end - self._offset) // slide + 1
        while at < stop:
            level = 0
            while at % (2 << level) == 0 and at + (2 << level) <= stop:
                level += 1
            pairs = self._node(level, at >> level)
            if pairs:
                frames.op.merge_groups(window, pairs)
            at += 1 << level
        found: Pairs = window.items()
        return found

    def _node(self, level: int, number: int) -> list[tuple[Any, Any]]:
        """Return the keys and accumulators of `1 << level` frames from number `number << level` on."""
        frames = self._frames
        if level == 0:
            return list(frames.pairs(number * self._slide + self._offset))
        node = self._nodes.get((level, number))
        if node is None:
            first = (number << level) * self._slide + self._offset
            if not frames.any_within(first - self._slide, first + ((1 << level) - 1) * self._slide):
                return []
            node, later = self._node(level - 1, 2 * number), self._node(level - 1, 2 * number + 1)
            if node and later:
                table = frames.new_table()
                frames.op.merge_groups(table, node)
                frames.op.merge_groups(table, later)
                node = list(table.items())
            self._nodes[level, number] = node = node or later
        return node

    def leave(self, end: int) -> None:
        """Forget the trailing frame, and the nodes that it is in."""
        super().leave(end)
        number = (end - self._size - self._offset) // self._slide + 1
        for level in range(1, self._levels + 1):
            self._nodes.pop((level, number >> level), None)


class DeductedContents(TreeContents):
    """Windows each of which is the one before, plus the leading and minus the trailing frame.

    Accumulators with floats are combined anew instead: what is added and deducted again does not leave a float as it
    was, so the result would depend on the windows before, and a key would never go.
    """

    is_own = False

    def __init__(self, frames: Frames, policy: SlidingWindowPolicy) -> None:
        super().__init__(frames, policy)
        self._fresh = frames.op.create()
        self._window: dict[Any, Any] = {}
        self._last: int | None = None
        """The end of the window that is kept; None: there is none."""

    def content(self, end: int) -> Pairs:
        """Return the window, from the one before if that was its neighbour."""
        frames = self._frames
        if self._last != end - self._slide:
            self._window = {}
            leading = frames.within(end - self._size, end)
        else:
            leading = [end]
        op = frames.op
        for each in leading:
            pairs = list(frames.pairs(each))
            if not all(is_exact(accumulator) for _, accumulator in pairs):
                self._last, self._window = None, {}
                fresh = self._fresh
                return [(key, found) for key, found in super().content(end) if found != fresh]
            self._patch(op.combine, pairs)
        self._last = end
        return self._window.items()

    def leave(self, end: int) -> None:
        """Deduct and forget the trailing frame."""
        gone = list(self._frames.pairs(end - self._size + self._slide)) if self._last == end else []
        super().leave(end)
        self._patch(self._frames.op.deduct, gone)

    def _patch(self, change: Callable[[Any, Any], Any] | None, pairs: Pairs) -> None:
        """Combine accumulators with the window's, or deduct them."""
        assert change is not None
        window, create, fresh = self._window, self._frames.op.create, self._fresh
        get = window.get
        for key, accumulator in pairs:
            found = get(key, ABSENT)
            if found is ABSENT:
                found = create()
            changed = change(found, accumulator)
            if changed is None:
                changed = found
            if changed == fresh:
                window.pop(key, None)
            else:
                window[key] = changed


def is_exact(accumulator: Any, depth: int = 0) -> bool:
    """Tell whether adding to an accumulator and deducting that again leaves it as it was, for certain.

    So it is with integers, with what is not computed with, such as text, and with containers and objects of such.

    Example:
        >>> is_exact((1, [2], {"k": 3})), is_exact((0.5, 1)), is_exact({"k": [0.5]})
        (True, False, False)
    """
    if type(accumulator) is int or isinstance(accumulator, _EXACT):
        return True
    if depth == _DEEPEST:
        return False
    if isinstance(accumulator, dict):
        parts: Iterable[Any] = accumulator.values()
    elif isinstance(accumulator, tuple | list | set | frozenset | deque):
        parts = accumulator
    elif (dtype := getattr(accumulator, "dtype", None)) is not None:
        return getattr(dtype, "kind", "") in _EXACT_KINDS
    else:
        names = [name for kind in type(accumulator).__mro__ for name in _slots_of(kind)]
        if not (hasattr(accumulator, "__dict__") or names):
            return False
        parts = [*getattr(accumulator, "__dict__", {}).values(), *(getattr(accumulator, name, None) for name in names)]
    return all(is_exact(part, depth + 1) for part in parts)


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def contents_of(frames: Frames, policy: SlidingWindowPolicy) -> WindowContents:
    """Return the way in which the windows over frames are made."""
    if policy.is_tumbling:
        return TumblingContents(frames)
    return (TreeContents if frames.op.deduct is None else DeductedContents)(frames, policy)


def windows(
    frames: Frames, contents: WindowContents, policy: SlidingWindowPolicy, first: int, last: int
) -> Iterator[tuple[int, Pairs]]:
    """Yield the ends and contents of the windows that have events, and forget what they alone needed as they go.

    Windows without events cost nothing, however many there are.

    Args:
        first, last: the first window, and the last one.
    """
    size, slide, ends = policy.size, policy.slide, frames.ends
    end = first
    while True:
        at = bisect_right(ends, end - size)
        if at == len(ends):
            return
        end = max(end, ends[at])
        if end > last:
            return
        yield end, contents.content(end)
        contents.leave(end)
        end += slide
