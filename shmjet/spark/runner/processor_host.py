"""Hosting a processor: lists of items in, lists of items out, in the process that asks for them.

It calls a processor as the engine's tasklet does (inbox, then the ends of edges in the order of their priorities, then
`complete` until it is done), without clocks, watermarks or snapshots. Must not know Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox
from shmjet.core.processor import Processor, ProcessorContext
from shmjet.data.errors import ProcessorError

ROOM = 4096
"""Items that a processor may emit in one call."""

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0001, 0.005


def hosted(
    processor: Processor, context: ProcessorContext, chunks: Iterable[tuple[int, list[Any]]], edges: Sequence[int] = ()
) -> Iterator[list[Any]]:
    """Run a processor over its whole input, and yield what it emits.

    Args:
        processor: fresh; it is closed when the iteration ends, however it ends.
        context: what it is told.
        chunks: (ordinal, items), in the order of `edges`; the lists become the processor's.
        edges: all its inbound ordinals, those first that are read first. None for a source.

    Raises:
        Exception: whatever the processor raises.

    Example:
        >>> from shmjet import processors
        >>> counting = processors.map(lambda item: item * 2)()
        >>> list(hosted(counting, ProcessorContext(), [(0, [1, 2])], edges=[0]))
        [[2, 4]]
    """
    outbox = Outbox([ROOM])
    inbox = Inbox()
    pauses = _Pauses()
    try:
        processor.init(outbox, context)
        waiting = list(edges)
        for ordinal, items in chunks:
            while waiting and waiting[0] != ordinal:
                if ordinal not in waiting:
                    raise ProcessorError(
                        f"vertex {context.vertex_name!r}: items of edge {ordinal} came behind the end of that edge"
                    )
                yield from _until_true(processor.complete_edge, waiting.pop(0), outbox, pauses)
            inbox.fill(items)
            while inbox:
                outbox.begin_callback()
                ready = processor.try_process()
                if ready and outbox.room():
                    left = len(inbox)
                    processor.process(ordinal, inbox)
                    pauses.after(len(inbox) < left or bool(outbox.buckets[0]))
                elif not outbox.buckets[0]:
                    pauses.after(False)
                yield from _emitted(outbox)
        for ordinal in waiting:
            yield from _until_true(processor.complete_edge, ordinal, outbox, pauses)
        yield from _until_true(lambda _: processor.complete(), None, outbox, pauses)
    finally:
        processor.close()


def _until_true(callback: Any, argument: Any, outbox: Outbox, pauses: _Pauses) -> Iterator[list[Any]]:
    """Call a callback until it is through."""
    done = False
    while not done:
        outbox.begin_callback()
        done = callback(argument)
        pauses.after(done or bool(outbox.buckets[0]))
        yield from _emitted(outbox)


def _emitted(outbox: Outbox) -> Iterator[list[Any]]:
    items = outbox.buckets[0]
    if items:
        outbox.buckets[0] = []
        yield items


class _Pauses:
    """Sleeps between calls that bring nothing, such as while coroutines wait; longer each time."""

    def __init__(self) -> None:
        self._pause = 0.0

    def after(self, progress: bool) -> None:
        """Sleep unless there was progress."""
        if progress:
            self._pause = 0.0
            return
        if self._pause:
            time.sleep(self._pause)
        self._pause = min(max(2 * self._pause, _SHORTEST_PAUSE), _LONGEST_PAUSE)


def drained(flow: Iterable[list[Any]]) -> int:
    """Run a flow to its end for its effects; return the number of items."""
    return sum(map(len, flow))
