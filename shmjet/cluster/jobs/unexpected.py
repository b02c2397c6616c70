"""Errors that nothing here expects: each is logged with its traceback, and ends what it has met and nothing else.

A job whose coordinator raises has to end all the same: its client waits, and processes run its code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from shmjet.execution.failure import member_failed
from shmjet.execution.messages import Failure

logger = logging.getLogger("shmjet.member")


def unexpected(error: Exception, where: str) -> Failure:
    """Log an error that is one of shmjet itself, and return it as the failure of what it has met.

    Args:
        error: as it was caught.
        where: it was, for the log.
    """
    logger.error("an unexpected error, please report it: %s", where, exc_info=error)
    failure = member_failed(error)
    return msgspec.structs.replace(failure, text=f"{failure.text} (unexpected: the log of the member says where)")


class Breakable(Protocol):
    """What can fail for an unexpected error of its own."""

    def break_down(self, error: Exception) -> None:
        """Stop for an unexpected error, which may have come between any two steps."""


def step(of: Breakable, do: Callable[..., None], *args: Any) -> None:
    """Take a step of something, which breaks down when that raises."""
    try:
        do(*args)
    except Exception as error:
        of.break_down(error)


def in_background(of: Breakable, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
    """Do work of something in a task of the running loop; it breaks down when that raises."""

    async def watched() -> None:
        try:
            await work
        except Exception as error:
            of.break_down(error)

    return asyncio.ensure_future(watched())
