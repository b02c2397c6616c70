"""The search for addresses by a `Discovery`: once before a member joins, and periodically afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from shmjet.cluster.membership.discovery import Discovery

START_S = 10.0
"""How long the first answer may take; the member goes on without it then."""
_STOP_S = 2.0
_SOON_S = 1.0
_LATER_S = 10.0

logger = logging.getLogger("shmjet.member")


class DiscoverySearch:
    """See the module.

    Args:
        discovery: who is asked.
        found: takes addresses.
        is_member: says whether there is a cluster already, so that there is less haste.
    """

    def __init__(
        self, discovery: Discovery, found: Callable[[Iterable[str]], None], is_member: Callable[[], bool]
    ) -> None:
        self._discovery = discovery
        self._found = found
        self._is_member = is_member

    async def begin(self, address: str) -> None:
        """Announce this member, and look once for others.

        Args:
            address: this member's.
        """
        try:
            async with asyncio.timeout(START_S):
                await self._discovery.start(address)
                if self._discovery.finds_more:
                    self._found(await self._discovery.find())
        except TimeoutError:
            logger.warning("discovery has found nothing within %.0f s; this member goes on without", START_S)

    async def go_on(self) -> None:
        """Find further members, for ever."""
        while self._discovery.finds_more:
            await asyncio.sleep(_LATER_S if self._is_member() else _SOON_S)
            try:
                self._found(await self._discovery.find())
            except Exception as error:
                logger.warning("discovery failed: %s", error)

    async def stop(self) -> None:
        """Withdraw the announcement; a discovery that does not return from that is left alone."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._discovery.stop(), _STOP_S)
