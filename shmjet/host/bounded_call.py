"""Asking for something that may be slow to come, as long as a person at a notebook is glad to wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

ANSWER_S = 1.0
"""Seconds that a picture in a notebook waits for what it shows."""


class NoAnswerError(Exception):
    """It took too long, or failed; the text says what."""


def call_within(call: Callable[[], T], seconds: float | None = None) -> T:
    """Return what a function returns, if it does soon.

    It runs in a thread of its own, which goes on by itself when it takes longer.

    Args:
        call: must be safe to run in another thread, and to be abandoned.
        seconds: how long to wait; None for `ANSWER_S`.

    Raises:
        NoAnswerError: it took longer, or raised an exception.

    Example:
        >>> call_within(lambda: 6 * 7)
        42
    """
    bound = ANSWER_S if seconds is None else seconds
    found: list[T] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="shmjet-bounded-call", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # no thread can be started: the process is at its limit, or ends
        raise NoAnswerError(str(error)) from None
    thread.join(bound)
    if failed:
        raise NoAnswerError(f"{type(failed[0]).__name__}: {failed[0]}") from None
    if not found:
        raise NoAnswerError(f"no answer within {bound:g} s")
    return found[0]
