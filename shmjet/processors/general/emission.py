"""Getting items into an outbox that may refuse them at any moment.

Every processor of this package hands its output to an `Emission` and asks it to flush before it does anything else.
So the rule "after a refusal leave the callback and offer the same item next time" is kept in one place, for lists
that are ready and for lazy sequences (generators, traversers, results of a million groups) alike.

Must not know: what the items mean, or which callback runs. The idea is the traverser of Jet's `emitFromTraverser`,
moved from single items to lists, because a call per item costs more than most items do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from time import monotonic_ns
from typing import Any

from shmjet.core.latency_policy import THROUGHPUT
from shmjet.core.outbox import Outbox

LARGEST_PULL = 2048
"""Items drawn from a lazy sequence at once, at most: the usual room of an outbox bucket."""

_PULLS = 4
"""A pull may take one part in so many of a call. A longer pull is halved next time, a much shorter pull is doubled."""

_SLICED = (range, list, tuple)


class Emission:
    """What a processor still has to emit: a list that was refused in part, then a lazy sequence.

    Args:
        outbox: where the items go.
        ordinal: outbound edge, several of them, or -1 for all.
        call_ns: nanoseconds after which a flush returns although the outbox would take more.

    Example:
        >>> emission = Emission(outbox)                     # doctest: +SKIP
        >>> emission.put([1, 2, 3])                         # doctest: +SKIP
        True
    """

    __slots__ = (
        "_at",
        "_call_ns",
        "_flow",
        "_give",
        "_offer_all",
        "_ordinal",
        "_position",
        "_pull",
        "_pull_ns",
        "_rest",
        "_room",
        "_sequence",
        "drawn",
        "idle",
    )

    def __init__(self, outbox: Outbox, ordinal: int | Sequence[int] = -1, *, call_ns: int = THROUGHPUT.call_ns) -> None:
        self._call_ns = call_ns
        self._pull_ns = call_ns // _PULLS
        self._offer_all = outbox.offer_all
        self._give = outbox.give
        self._room = outbox.room
        self._ordinal = ordinal
        self._rest: list[Any] = []
        self._position = 0
        self._flow: Iterator[Any] | None = None
        self._sequence: Sequence[Any] | None = None
        self._at = 0
        self._pull = 1
        self.drawn = 0
        """Items drawn from lazy sequences; the reader of this count may set it back."""
        self.idle = True
        """True when nothing waits to be emitted. Cheaper to look at than a call of `flush`."""

    def put(self, items: list[Any]) -> bool:
        """Emit a list, after everything that still waits. Returns True when all of it was accepted.

        The list belongs to the emission from now on.
        """
        if not self.flush():
            raise RuntimeError("put() while earlier items wait: flush() until it returns True first")
        self.idle = self._offer(items)
        return self.idle

    def start(self, flow: Iterable[Any]) -> None:
        """Queue a lazy sequence behind what waits; nothing is drawn from it before the next `flush`."""
        if self._flow is not None:
            raise RuntimeError("start() while another sequence is being emitted: flush() until it returns True first")
        self._flow = iter(flow)
        self._sequence = flow if isinstance(flow, _SLICED) else None
        self._at = 0
        self.idle = False

    def flush(self) -> bool:
        """Emit what waits, as far as the outbox and the time of one cooperative call allow.

        Returns:
            True when nothing waits any more; False when the caller must leave its callback and come back.
        """
        if self.idle:
            return True
        return self.flush_rest() and self._flush_flow()

    def flush_rest(self) -> bool:
        """Emit what was refused before, and draw nothing new. Returns True when all that was drawn is emitted.

        Then the number of items emitted of a sequence is the number drawn of it: a position to save.
        """
        rest = self._rest
        if rest:
            if not self._room(self._ordinal):
                return False
            self._position += self._offer_all(rest, self._ordinal, self._position)
            if self._position < len(rest):
                return False
            self._rest = []
            self._position = 0
        if self._flow is None:
            self.idle = True
        return True

    def _flush_flow(self) -> bool:
        flow = self._flow
        if flow is None:
            return True
        now = monotonic_ns()
        deadline = now + self._call_ns
        while now < deadline:
            pull = min(self._pull, self._room(self._ordinal))
            if pull <= 0:
                return False
            if self._sequence is None:
                piece = list(islice(flow, pull))
                ended = len(piece) < pull
            else:  # twice as fast
                piece = list(self._sequence[self._at : self._at + pull])
                self._at += pull
                ended = self._at >= len(self._sequence)
            self.drawn += len(piece)
            before, now = now, monotonic_ns()
            if now - before > self._pull_ns:
                self._pull = max(1, self._pull // 2)
            elif pull == self._pull < LARGEST_PULL and (now - before) * 2 < self._pull_ns:
                self._pull *= 2
            if ended:
                self._flow = self._sequence = None
            if not self._offer(piece):
                return False
            if ended:
                self.idle = True
                return True
        return False

    def _offer(self, items: list[Any]) -> bool:
        """Offer a list now, with only a lazy sequence behind it; keep what is refused."""
        count = len(items)  # before it is given away
        accepted = self._give(items, self._ordinal)
        if accepted == count:
            return True
        self._rest = items
        self._position = accepted
        return False
