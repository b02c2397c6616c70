"""The state of quotes at the beginning of each block of a CSV file, which depends on all bytes before it.

A CSV file cannot be cut at any newline: one inside quotes ends no record. So every block is first looked at in both
ways, as if it began outside and inside quotes; what that leads to at its end takes two bits, and goes into a table in
shared memory, a byte a block. These bits of all blocks before a block say exactly how that block begins. The look
takes a tenth of what parsing takes and happens in the call that claims the block; blocks are claimed in the order of
the file, so no processor waits longer than for such a look. (Both ways at once: Mühlbauer et al., "Instant Loading for
Main Memory Databases", 2013; Ge et al., "Speculative Distributed CSV Data Parsing", 2019, guess where this does not.)

Must not know: what a quote is, and how blocks are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from shmjet.processors.files.file_blocks import Segment, Unit

_KNOWN: Final = 4


class SeamTable:
    """The maker's side: owns the memory file. Close it when the execution is over."""

    def __init__(self, blocks: int) -> None:
        self._fd = os.memfd_create("shmjet-seams", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, max(blocks, 1))
        self.address = f"/proc/{os.getpid()}/fd/{self._fd}"
        """Where `Seams` finds the table, as long as this object is open."""

    def close(self) -> None:
        """Free the table; the second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Seams:
    """A reader's side.

    Args:
        address: of a `SeamTable` of any process of the same user on this host.
        units: all units; a unit that is one block of a larger file has seams, and such units ascend within a file.

    Example:
        >>> blocks = [(Segment("a", 0, 5, 10),), (Segment("a", 5, 10, 10),)]
        >>> table = SeamTable(len(blocks))
        >>> seams = Seams(table.address, blocks)
        >>> seams.begins_inside(blocks[1][0]) is None       # not known yet
        True
        >>> seams.publish(blocks[0][0], outside=True, inside=False)
        >>> seams.begins_inside(blocks[1][0])
        True
        >>> seams.close(); table.close()
    """

    def __init__(self, address: str, units: Sequence[Unit]) -> None:
        self._fd = os.open(address, os.O_RDWR | os.O_CLOEXEC)
        self._slots: dict[tuple[str, int], int] = {}
        self._blocks: dict[str, list[int]] = {}
        self._reached: dict[str, tuple[int, bool]] = {}
        for slot, unit in enumerate(units):
            segment = unit[0]
            if segment.end - segment.start < segment.size:
                blocks = self._blocks.setdefault(segment.path, [])
                self._slots[segment.path, segment.start] = len(blocks)
                blocks.append(slot)

    def publish(self, segment: Segment, *, outside: bool, inside: bool) -> None:
        """Tell whether a block ends inside quotes: when it begins outside of quotes, and when it begins inside."""
        slot = self._blocks[segment.path][self._slots[segment.path, segment.start]]
        os.pwrite(self._fd, bytes([_KNOWN | outside | inside << 1]), slot)

    def begins_inside(self, segment: Segment) -> bool | None:
        """Return whether a block begins inside quotes; None as long as a block before it is not published."""
        blocks = self._blocks[segment.path]
        wanted = self._slots[segment.path, segment.start]
        at, inside = self._reached.get(segment.path, (0, False))
        if at > wanted:
            at, inside = 0, False
        while at < wanted:
            known = os.pread(self._fd, 1, blocks[at])  # nothing behind the table's end, if blocks are cut as before
            if not known or not known[0]:
                break
            inside = bool(known[0] >> inside & 1)
            at += 1
        self._reached[segment.path] = at, inside
        return inside if at == wanted else None

    def close(self) -> None:
        """Let go of the table; the second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
