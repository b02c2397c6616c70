"""Waiting for what another process does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""What a machine that is busy with other tests may take for anything."""


def until(predicate: Callable[[], T], patience: float = PATIENCE_S, seen: Callable[[], object] | None = None) -> T:
    """Return what a predicate returns as soon as that is true; fail when it never is.

    Args:
        predicate: what is waited for.
        patience: seconds.
        seen: says at the end what there is instead.
    """
    deadline, pause = time.monotonic() + patience, 0.0005
    while not (found := predicate()):
        if time.monotonic() > deadline:
            instead = "" if seen is None else f", but {seen()}"
            raise AssertionError(f"not within {patience} s: {where(predicate)}{instead}")
        threading.Event().wait(pause)
        pause = min(2 * pause, 0.02)
    return found


def until_there(path: str | os.PathLike[str]) -> None:
    """Return when a file is there, however long that takes: a job or a task waits for it, and its test has patience."""
    until(lambda: os.path.exists(path), float("inf"))


def where(predicate: Callable[[], object]) -> str:
    """Say where a predicate stands, so that a failure tells what was waited for."""
    code = getattr(predicate, "__code__", None)
    return repr(predicate) if code is None else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
