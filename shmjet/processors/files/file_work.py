"""The files of a source and how they are cut into units, and how far the units have been read.

Both are plain data that each processor has alike: the work comes with the supplier or from a snapshot, positions from
the snapshots of all processors. Positions count the items of a segment, because every format has items; to go on,
a processor reads the segment again and leaves out what was emitted. Segments are small, except those of packed files.
Must not know how files are read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from shmjet.data.errors import ProcessorError
from shmjet.processors.files.file_blocks import Segment, Unit, cut_units, whole_files

Cut = Literal["bytes", "rows", "whole"]
"""Into blocks of bytes, ranges of rows, or not at all."""

File = tuple[str, int, int]
"""Path, size (bytes or rows), and the time of the last change in nanoseconds; 0 where it is not looked at."""


@dataclass(frozen=True)
class FileWork:
    """Files, and how they are cut.

    Args:
        patterns: what the user named; another source has others.
        streams: (path, size) of the files that one processor reads from beginning to end, before all others.
        plain: the files that are cut.
        cut: how.
        size: of a unit, for `cut_units`; rows of a range.
        changed: when each file was changed last, in the order of `streams`, then `plain`; empty in a job without
            snapshots.
    """

    patterns: tuple[str, ...]
    streams: tuple[tuple[str, int], ...]
    plain: tuple[tuple[str, int], ...]
    cut: Cut
    size: int
    changed: tuple[int, ...] = ()

    def plain_units(self) -> list[Unit]:
        """Return the units of the files that are cut."""
        if self.cut == "whole":
            return whole_files(self.plain)
        if self.cut == "bytes":
            return cut_units(self.plain, self.size)
        return [
            (Segment(path, start, min(start + self.size, rows), rows),)
            for path, rows in self.plain
            for start in range(0, rows, self.size)
        ]

    def units(self) -> list[Unit]:
        """Return all units, in the order in which they are claimed; the same whenever and wherever it is called."""
        return [*((Segment(path, 0, size, size),) for path, size in self.streams), *self.plain_units()]

    def changes(self) -> dict[str, int]:
        """Return when each file was changed last, by path."""
        return dict(zip((path for path, _ in (*self.streams, *self.plain)), self.changed, strict=False))


def last_changes(paths: Iterable[str]) -> tuple[int, ...]:
    """Return when files of this host were changed last, in nanoseconds; 0 for what is none."""
    return tuple(_changed(path) for path in paths)


def check_unchanged(path: str, changed: int) -> None:
    """Check that a file was not changed since a job began.

    Args:
        path: of the file.
        changed: when it had been changed last then; 0: unknown.

    Raises:
        ProcessorError: it was changed, so a position in it means nothing.
    """
    if changed and _changed(path) != changed:
        raise ProcessorError(
            f"{path}: the file was changed since the job began; a job with a processing guarantee goes on from a "
            "position in it, so read files that stay as they are"
        )


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return 0


class Partial(NamedTuple):
    """How far a unit has been read.

    Args:
        segment: its segment that is being read; those before it are through.
        items: how many items of that segment have been emitted.
    """

    segment: int
    items: int


@dataclass
class FilePositions:
    """Which units are through, and how far others have been read.

    Example:
        >>> positions = FilePositions()
        >>> positions.reach(3, Partial(0, 10)); positions.finish(1)
        >>> FilePositions.of([positions.saved()]) == positions
        True
    """

    done: int = 0
    """A bit for each unit that is through."""
    partial: dict[int, Partial] = field(default_factory=dict)

    def reach(self, unit: int, position: Partial) -> None:
        """Note how far a unit has been read."""
        self.partial[unit] = position

    def finish(self, unit: int) -> None:
        """Note that a unit is through."""
        self.done |= 1 << unit
        self.partial.pop(unit, None)

    def is_done(self, unit: int) -> bool:
        """Say whether a unit is through."""
        return bool(self.done >> unit & 1)

    def saved(self) -> tuple[bytes, tuple[tuple[int, int, int], ...]]:
        """Return it as plain data."""
        bits = self.done.to_bytes((self.done.bit_length() + 7) // 8, "little")
        return bits, tuple((unit, *position) for unit, position in self.partial.items())

    @staticmethod
    def of(several: Sequence[Any]) -> FilePositions:
        """Return the positions of all processors together; of a unit that several know, the farthest."""
        positions = FilePositions()
        for bits, partial in several:
            positions.done |= int.from_bytes(bits, "little")
            for unit, segment, items in partial:
                positions.partial[unit] = max(positions.partial.get(unit, Partial(0, 0)), Partial(segment, items))
        positions.partial = {unit: at for unit, at in positions.partial.items() if not positions.is_done(unit)}
        return positions

    def order(self, units: Sequence[Unit], *, with_seams: bool) -> list[int]:
        """Return the units that are left, in the order in which they are claimed.

        Args:
            units: all units.
            with_seams: how a block of a file begins depends on those before it, which are looked at again: then they
                are among the units too, while a block of their file is left.
        """
        left = [number for number in range(len(units)) if not self.is_done(number)]
        if with_seams:
            open_files = {segment.path for number in left for segment in units[number] if _is_block(segment)}
            return [
                number
                for number, unit in enumerate(units)
                if not self.is_done(number) or (_is_block(unit[0]) and unit[0].path in open_files)
            ]
        return sorted(left, key=lambda number: number not in self.partial)


def _is_block(segment: Segment) -> bool:
    return segment.end - segment.start < segment.size
