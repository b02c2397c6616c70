"""Aggregation of tumbling and sliding windows, in one stage or in two.

Must not know: how watermarks come about. After Jet's `SlidingWindowP`; what makes these processors is in `windows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from shmjet._native import cut_results, unify_nans
from shmjet.core.broadcast_key import BroadcastKey
from shmjet.core.key_functions import NAN
from shmjet.core.windows import SlidingWindowPolicy
from shmjet.processors.general.state_keys import own_key, with_one_nan
from shmjet.processors.time.events import Events
from shmjet.processors.time.first_stage import NEXT_WINDOW, FirstStage
from shmjet.processors.time.frames import Frames, Op, Pairs
from shmjet.processors.time.window_contents import TumblingContents, contents_of, windows
from shmjet.processors.time.window_output import WindowOutput
from shmjet.processors.time.window_processor import NEVER, EarlyResults, WindowProcessor


class FramedProcessor(WindowProcessor):
    """Accumulates events by frame.

    Args:
        events: how items become events.
        policy: of the windows.
        op: the operation.
        output: makes results.
        late_ordinal: outbound ordinal for late items; None: they are dropped.
    """

    def __init__(
        self, events: Events, policy: SlidingWindowPolicy, op: Op, output: WindowOutput, late_ordinal: int | None = None
    ) -> None:
        super().__init__(late_ordinal)
        self._events = events
        self._policy = policy
        self._frames = Frames(op, events.has_keys)
        self._output = output
        self._next = NEVER
        """The end of the next window to be emitted; events of earlier frames are late."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Accumulate a list."""
        events, frames = self._events, self._frames
        groups, late = events.cut(ordinal, items, self._policy, self._next)
        for end, group in groups.items():
            frames.add(end, events.keys(ordinal, group) if events.has_keys else None, group, ordinal)
        if late:
            self.note_late(late)


class FrameProcessor(FirstStage, FramedProcessor):
    """First stage of two: emits the accumulators of a frame when a watermark passes it."""

    state_kind = "frames"

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the accumulators of the frames that have ended."""
        self._next = max(self._next, self._policy.higher_frame(watermark))
        return self._emitted(self._policy.floor_frame(watermark))

    def _emitted(self, last: int) -> Iterable[Any] | None:
        frames, policy, of = self._frames, self._policy, self._output.of
        if not frames or frames.ends[0] > last:
            return None
        passed = windows(frames, TumblingContents(frames), policy, frames.ends[0], last)
        return chain.from_iterable(of(end - policy.slide, end, pairs) for end, pairs in passed)

    def results(self) -> Iterable[Any]:
        """Return the accumulators of all frames."""
        return (self._emitted(self._frames.ends[-1]) or ()) if self._frames else ()


class SlidingWindowProcessor(FramedProcessor):
    """Aggregates events in windows."""

    state_kind = "sliding_window"

    def __init__(
        self, events: Events, policy: SlidingWindowPolicy, op: Op, output: WindowOutput, late_ordinal: int | None = None
    ) -> None:
        super().__init__(events, policy, op, output, late_ordinal)
        self._contents = contents_of(self._frames, policy)
        self._restored: list[int] = []
        self._emitted_to: dict[Any, int] = {}
        """By key the next window, where that is not `_next`: they differed in the processors of the snapshot."""

    # -- results -------------------------------------------------------------------------------------------------------

    def passed(self, watermark: int) -> Iterable[Any] | None:
        """Return the results of the windows that have ended."""
        first, last = self._next, self._policy.floor_frame(watermark)
        self._next = max(first, self._policy.higher_frame(watermark))
        return self._emitted(first, last)

    def results(self) -> Iterable[Any]:
        """Return the results of all windows that have events."""
        frames = self._frames
        return (self._emitted(self._next, self._last()) or ()) if frames else ()

    def _last(self) -> int:
        """Return the end of the last window that has events."""
        return self._frames.ends[-1] + self._policy.size - self._policy.slide

    def _emitted(self, first: int, last: int) -> Iterable[Any] | None:
        frames = self._frames
        if not frames or last < max(first, frames.ends[0]):
            return None
        return chain.from_iterable(self._by_window(max(first, frames.ends[0]), last))

    def _by_window(self, first: int, last: int) -> Iterator[Iterable[Any]]:
        contents, policy, of = self._contents, self._policy, self._output.of
        for end, pairs in windows(self._frames, contents, policy, first, last):
            yield of(end - policy.size, end, self._unemitted(end, pairs), is_own=contents.is_own)
        if self._emitted_to and max(self._emitted_to.values()) <= last:
            self._emitted_to = {}

    def _unemitted(self, end: int, pairs: Pairs) -> Pairs:
        """Return the keys of a window for which it has not been emitted before a restore."""
        emitted_to = self._emitted_to
        return ((k, found) for k, found in pairs if emitted_to.get(k, end) <= end) if emitted_to else pairs

    # -- state ---------------------------------------------------------------------------------------------------------

    def saved_entries(self) -> Iterable[tuple[Any, Any]]:
        """Return the accumulators by frame and key, each with the next window, which is also saved by itself."""
        following, keyed = self._next, self._events.has_keys
        yield NEXT_WINDOW, following
        own = None if keyed else own_key(self.context)
        for end in self._frames.ends:
            for key, accumulator in self._frames.pairs(end):
                had = max(following, self._emitted_to.get(key, NEVER)) if self._emitted_to else following
                yield key if keyed else own, (end, accumulator, had)

    def restore_entries(self, entries: list[tuple[Any, Any]]) -> None:
        """Take accumulators back; the next window is the least that was saved."""
        keyed, policy = self._events.has_keys, self._policy
        by_end: dict[int, list[tuple[Any, Any]]] = {}
        for key, value in with_one_nan(entries):
            if isinstance(key, BroadcastKey):
                self._restored.append(value)
                continue
            saved_end, accumulator, following = value
            end = policy.higher_frame(saved_end - 1)  # the slide may be another one now
            by_end.setdefault(end, []).append((key if keyed else None, accumulator))
            if following > self._emitted_to.get(key if keyed else None, NEVER):
                self._emitted_to[key if keyed else None] = following
        for end, pairs in by_end.items():
            self._frames.put_back(end, pairs)

    def finish_snapshot_restore(self) -> bool:
        """Set the next window, and drop frames of which no later window has need."""
        policy, frames = self._policy, self._frames
        least = min(self._restored, default=NEVER)
        if least > NEVER:
            self._next = policy.higher_frame(least - 1)
            for end in frames.within(NEVER, self._next - policy.size):
                frames.remove(end)
        self._emitted_to = {key: end for key, end in self._emitted_to.items() if end > least}
        self._restored = []
        return True


class CombiningWindowProcessor(SlidingWindowProcessor):
    """Second stage of two: combines the accumulators that `FrameProcessor` emits."""

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Combine a list."""
        groups, late = cut_results(items, self._events.has_keys, self._next)
        for end, pairs in groups.items():
            self._frames.merge(end, unify_nans(pairs, NAN))
        if late:
            self.note_late(late)


class EarlySlidingWindowProcessor(EarlyResults, SlidingWindowProcessor):
    """Aggregates events in windows, and gives early results."""

    def __init__(
        self,
        events: Events,
        policy: SlidingWindowPolicy,
        op: Op,
        output: WindowOutput,
        late_ordinal: int | None = None,
        *,
        period: float,
    ) -> None:
        super().__init__(events, policy, op, output, late_ordinal)
        self.period = period

    def early(self) -> Iterable[Any] | None:
        """Return results of the windows that have events and have not ended."""
        frames = self._frames
        return chain.from_iterable(self._early_by_window(frames.seen_now())) if frames else None

    def _early_by_window(self, frames: Frames) -> Iterator[Iterable[Any]]:
        policy, of = self._policy, self._output.of
        contents, first = contents_of(frames, policy), max(self._next, frames.ends[0])
        is_own = contents.is_own and not policy.is_tumbling
        for end, pairs in windows(frames, contents, policy, first, self._last()):
            yield of(end - policy.size, end, self._unemitted(end, pairs), is_own=is_own, is_early=True)
