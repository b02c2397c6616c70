"""How far a sender may run ahead of its receiver: Jet's adaptive receive window (its ReceiverTasklet and
SenderTasklet).

Both ends of a distributed edge count the same bytes, those of the packets' payloads. The receiver tells how far the
sender may go, every flow-control period; the sender stops there. There is one pair for each edge and sender, so that a
slow edge delays no other. The sender's end is an `EdgeFlow`: it may send while its position lies at or before the
limit, so one packet may cross it; before the first word of the receiver the limit is block 0. The receiver's end is
here. Pure arithmetic: no clock and no socket in here, so a test drives it by hand.

Positions are counted in blocks of 64 KiB and cut to 32 bits, as on the wire. They wrap around; what counts is the sign
of a difference, so it must stay below 2**31 blocks, which is 128 TiB.
"""

from __future__ import annotations

from math import ceil

BLOCK = 1 << 16
"""Bytes of the unit in which positions are told."""
INITIAL_WINDOW = 800
"""Blocks that a receiver grants before it knows anything: 50 MiB."""


def int32(value: int) -> int:
    """Return the low 32 bits of a number as a signed one, as Java's `(int)` does.

    Example:
        >>> int32(2**31), int32(-1), int32(2**32 + 5)
        (-2147483648, -1, 5)
    """
    return ((value + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def to_blocks(position: int) -> int:
    """Return a position in bytes as blocks in 32 bits."""
    return int32(position // BLOCK)


class ReceiveWindow:
    """The receiver's end: how far ahead of the last acknowledged byte one sender may run.

    Every flow-control period it moves half way towards `multiplier` times what was acknowledged in that period.

    Args:
        period_ns: nanoseconds of the flow-control period.
        multiplier: how many periods' worth the sender may be ahead.
    """

    __slots__ = ("_acked_before", "_multiplier", "_period_ns", "_time_before", "blocks")

    def __init__(self, period_ns: int, multiplier: int = 3) -> None:
        self._period_ns = period_ns
        self._multiplier = multiplier
        self._time_before = 0
        self._acked_before = 0
        self.blocks = INITIAL_WINDOW
        """Its size now."""

    def limit_at(self, now_ns: int, acked: int, *, starved: bool) -> int:
        """Return the highest block that the sender may send, and remember `acked` for the next call.

        The first call only remembers.

        Args:
            now_ns: time, monotonic.
            acked: bytes that the consumers' rings have taken so far.
            starved: whether the receiver has nothing queued. The window then may not shrink, or a lull would throttle
                the burst that follows it (hazelcast-jet#785).
        """
        had_before = self._time_before != 0 or self._acked_before != 0
        elapsed, self._time_before = now_ns - self._time_before, now_ns
        blocks = to_blocks(acked)
        taken, self._acked_before = int32(blocks - self._acked_before), blocks
        if had_before and elapsed > 0:
            target = int32(self._multiplier * ceil(self._period_ns * taken / elapsed))
            difference = int32(target - self.blocks)
            if starved and difference < 0:
                difference = 0
            # Java truncates towards zero, // would round a shrinking window down by one more.
            self.blocks += difference // 2 if difference >= 0 else -(-difference // 2)
        return int32(blocks + self.blocks)

    def limit_from(self, acked: int) -> int:
        """Return the highest block that the sender may send by the window as it is; nothing is remembered.

        Args:
            acked: bytes that the consumers' rings have taken so far.
        """
        return int32(to_blocks(acked) + self.blocks)
