"""Removes entries whose time is over, also where nothing writes any more.

Writes remove what has ended on the way, but only of partitions that are open where they are done: a backup has what its
primary has. So without this a map that is not written to any more would keep its ended entries, on its members and
their backups, and a member that is full of them could take nothing. Must not know which partitions are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from shmjet.grid.errors import GridError
from shmjet.grid.store import Opened

EVERY_S = 2.0
"""How long after one look the next one begins."""

logger = logging.getLogger("shmjet.member")


class Expiry:
    """See the module.

    Args:
        opened: gives the member's store.
    """

    def __init__(self, opened: Callable[[], Opened]) -> None:
        self._opened = opened
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="shmjet-expiry")

    def stop(self) -> None:
        """Remove nothing more; what is under way was cancelled before."""
        self._thread.shutdown()

    async def run(self) -> None:
        """Remove what has ended, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                while await loop.run_in_executor(self._thread, self._end_some):
                    pass
            except (GridError, OSError) as error:
                logger.debug("entries whose time is over were not removed: %s", error)
            except Exception:
                logger.exception("entries whose time is over could not be removed; that goes on")

    def _end_some(self) -> int:
        return self._opened().end_some()
