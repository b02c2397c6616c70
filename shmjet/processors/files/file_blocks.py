"""The files that a file source reads, and the units into which they are cut for processors to claim.

Pure planning: it looks at directories and file sizes, and opens nothing. Must not know how blocks are read
(`line_blocks`), nor how they are claimed (`claims`).

A file is cut at arbitrary byte offsets; the reader's rule "a block owns the lines that START in it" makes that right.
Small files travel together. Units are claimed in turn, large blocks first, so that all processors end within the
time of about one unit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from glob import glob, has_magic
from stat import S_ISDIR, S_ISREG
from typing import NamedTuple

LARGEST_UNIT = 4 << 20
"""Bytes of a unit, at most."""

SMALLEST_UNIT = 64 << 10
"""Bytes below which no more units are made for the sake of balance."""

UNITS_PER_PROCESSOR = 16
"""How many units a processor gets at least, where there are bytes enough: they end within 1/16 of each other."""

FILES_PER_UNIT = 64
"""Files in a unit, at most: an open costs as much as tens of kilobytes."""

UNFINISHED = ".unfinished"
"""How the names of files end that are being written; they begin with a dot."""

_FILE_COST = 16 << 10
"""What opening a file costs, in bytes read in the same time."""


class Segment(NamedTuple):
    """Bytes `start` to `end` of a file of `size` bytes."""

    path: str
    start: int
    end: int
    size: int


Unit = tuple[Segment, ...]
"""What a processor claims at once."""


def absolute_patterns(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return paths, folders and globs as absolute ones, so that they mean the same in another process.

    Args:
        paths: one or several; `~` is expanded.

    Raises:
        ValueError: when there are none.
        TypeError: when one is not a path.

    Example:
        >>> absolute_patterns("/tmp/../etc/*.conf")
        ('/etc/*.conf',)
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ValueError("read_files: no paths were given")
    return tuple(os.path.abspath(os.path.expanduser(os.fspath(path))) for path in several)


def is_unfinished(path: str) -> bool:
    """Whether a sink is writing a file, or did not finish it."""
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(UNFINISHED)


def find_files(patterns: Iterable[str]) -> list[tuple[str, int]]:
    """Return (path, size in bytes) of all regular files meant by paths, folders (recursively) and globs.

    A file that is meant twice is returned once, also where links to folders lead a glob in circles. What a sink has not
    finished, and what is neither a file nor a folder (a socket, a device, a dangling link), is left out inside folders
    and globs.

    Raises:
        FileNotFoundError: when a path does not exist, or a glob meets nothing; it names the path.
        OSError: when a folder cannot be read, or a path given by name is not a regular file.
    """
    found: dict[str, int] = {}
    for pattern in patterns:
        if os.path.lexists(pattern):
            _add(pattern, found, named=True)
        elif has_magic(pattern) and (matches := sorted(glob(pattern, recursive=True, include_hidden=False))):
            for path in _without_circles(matches):
                _add(path, found, named=False)
        else:
            what = "nothing matches" if has_magic(pattern) else "no such file or folder"
            raise FileNotFoundError(2, what, pattern)
    return list(found.items())


def _add(path: str, found: dict[str, int], named: bool) -> None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if named:
            raise
        return  # a dangling link inside a folder
    if S_ISREG(status.st_mode):
        if named or not is_unfinished(path):
            found[path] = status.st_size
    elif S_ISDIR(status.st_mode):
        _add_folder(path, found)
    elif named:
        raise OSError(22, "neither a regular file nor a folder", path)


def _without_circles(matches: Iterable[str]) -> Iterator[str]:
    """Leave out what lies behind a link that leads to a folder in which the link itself is."""
    known: dict[str, bool] = {}

    def is_circle(path: str) -> bool:
        if not os.path.islink(path):
            return False
        real, parent = os.path.realpath(path), os.path.realpath(os.path.dirname(path))
        return os.path.commonpath([real, parent]) == real

    def goes_round(path: str) -> bool:
        parent = os.path.dirname(path)
        if path not in known:
            known[path] = parent != path and (goes_round(parent) or is_circle(path))
        return known[path]

    return (path for path in matches if not goes_round(path))


def _add_folder(folder: str, found: dict[str, int]) -> None:
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_dir():  # a link to a folder could lead in circles
                    _add(entry.path, found, named=False)


def unit_size(total: int, processors: int, largest: int = LARGEST_UNIT) -> int:
    """Return the bytes of a unit for `total` bytes read by that many processors.

    Example:
        >>> unit_size(10 << 30, 8), unit_size(16 << 20, 2), unit_size(0, 4)
        (4194304, 524288, 65536)
    """
    return max(min(total // max(1, processors * UNITS_PER_PROCESSOR), largest), min(SMALLEST_UNIT, largest))


def cut_units(files: Iterable[tuple[str, int]], size: int) -> list[Unit]:
    """Cut files into units of about `size` bytes: blocks of large files first, then small files together.

    Together the units cover every byte of every file once, and the blocks of a file ascend. An empty file is in a unit
    too, so that it is counted.

    Args:
        files: (path, size in bytes).
        size: bytes of a unit, at least 1.

    Example:
        >>> [[tuple(segment) for segment in unit] for unit in cut_units([("a", 25), ("b", 3)], 10)]
        [[('a', 0, 9, 25)], [('a', 9, 18, 25)], [('a', 18, 25, 25)], [('b', 0, 3, 3)]]
    """
    large: list[Unit] = []
    small: list[tuple[str, int]] = []
    for path, total in files:
        if total <= size:
            small.append((path, total))
            continue
        count = -(-total // size)
        step = -(-total // count)
        large.extend((Segment(path, at, min(at + step, total), total),) for at in range(0, total, step))
    large.sort(key=lambda unit: unit[0].start - unit[0].end)
    return large + _together(small, size)


def whole_files(files: Iterable[tuple[str, int]]) -> list[Unit]:
    """Return a unit for each file, the largest first; for files that cannot be cut.

    Example:
        >>> [[tuple(segment) for segment in unit] for unit in whole_files([("a", 3), ("b", 25)])]
        [[('b', 0, 25, 25)], [('a', 0, 3, 3)]]
    """
    return [(Segment(path, 0, total, total),) for path, total in sorted(files, key=lambda file: -file[1])]


def _together(files: list[tuple[str, int]], size: int) -> list[Unit]:
    units: list[Unit] = []
    unit: list[Segment] = []
    weight = 0
    for path, total in sorted(files, key=lambda file: -file[1]):
        cost = total + _FILE_COST
        if unit and (weight + cost > size or len(unit) == FILES_PER_UNIT):
            units.append(tuple(unit))
            unit, weight = [], 0
        unit.append(Segment(path, 0, total, total))
        weight += cost
    if unit:
        units.append(tuple(unit))
    return units
