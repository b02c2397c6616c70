"""What workers of the tests are given to do; a worker that imports this module imports little."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.waiting import until_there


def double(x: Any) -> Any:
    """Return it twice."""
    return x * 2


def fail_deep(x: int) -> float:
    """Raise, for 0."""
    return 1 / x


def wait_for_file(path: str) -> None:
    """Return when a file is there."""
    until_there(path)


def touch_and_wait(mine: str, other: str) -> int:
    """Make a file and wait for another; return this process."""
    Path(mine).touch()
    wait_for_file(other)
    return os.getpid()


class Odd(Exception):
    """An exception that cannot be unpickled."""

    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} {b}")


def raise_odd() -> None:
    """Raise it."""
    raise Odd(1, 2)
