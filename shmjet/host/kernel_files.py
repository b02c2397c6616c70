"""Reading the kernel's small text files below /proc and /sys: one value, or a list such as `0-3,8`.

What is not there, or may not be read, is empty: containers hide much of it, and no setting here is worth failing for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

Root = str | os.PathLike[str]
"""The folder that stands for `/`; tests put a made-up machine there."""


def read_text(path: str) -> str:
    """Return a file's text without white space at its ends, "" when it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, 1 << 16).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)


def read_number(path: str) -> int | None:
    """Return a file's integer, None when it holds none (`max`, say)."""
    text = read_text(path)
    return int(text) if text.lstrip("-").isdecimal() else None


def read_names(folder: str, prefix: str) -> list[int]:
    """Return the numbers of the entries of a folder that are called `prefix` and a number, ascending."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    rests = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return sorted(int(rest) for rest in rests if rest.isdecimal())


def parse_list(text: str) -> set[int]:
    """Return the numbers of a kernel list; an empty set where it is empty or no such list.

    Example:
        >>> sorted(parse_list("0-2,5\\n"))
        [0, 1, 2, 5]
    """
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def format_list(numbers: Iterable[int]) -> str:
    """Return numbers as the kernel writes them.

    Example:
        >>> format_list({0, 1, 2, 5})
        '0-2,5'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
