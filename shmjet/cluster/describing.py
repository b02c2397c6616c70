"""Who the members are, and the workers of each: those of others have to be asked for."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from shmjet.cluster.network import Network
from shmjet.cluster.peer_messages import AskDescription, Description
from shmjet.cluster.protocol import MemberRow
from shmjet.cluster.views import Peer

_PATIENCE_S = 1.0


class Describing:
    """See the module.

    Args:
        network: leads to the other members; None for a member alone.
        pids: gives the pids of this member's workers.
    """

    def __init__(self, network: Network | None, pids: Callable[[], Awaitable[list[int]]]) -> None:
        self._network = network
        self._pids = pids
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[list[int]]] = {}

    async def rows(self, me: Peer) -> list[MemberRow]:
        """Return what is known of each member, the oldest first; workers as far as their member tells in time."""
        own = await self._pids()
        view = None if self._network is None else self._network.view
        peers = (me,) if view is None else view.members
        told = await asyncio.gather(*(self._workers_of(peer, me, own) for peer in peers))
        return [
            MemberRow(peer.uuid, peer.address, peer.pid, list(peer.cores), workers)
            for peer, workers in zip(peers, told, strict=True)
        ]

    async def _workers_of(self, peer: Peer, me: Peer, own: list[int]) -> list[int]:
        if peer.uuid == me.uuid or self._network is None:
            return own
        number = next(self._numbers)
        self._asked[number] = future = asyncio.get_running_loop().create_future()
        self._network.send(peer.uuid, AskDescription(number))
        try:
            return await asyncio.wait_for(future, _PATIENCE_S)
        except TimeoutError:
            return []
        finally:
            del self._asked[number]

    async def tell(self, sender: str, request: AskDescription) -> None:
        """Tell another member who our workers are."""
        assert self._network is not None
        self._network.send(sender, Description(request.request, await self._pids()))

    def take(self, message: Description) -> None:
        """Take who the workers of another member are."""
        future = self._asked.get(message.request)
        if future is not None and not future.done():
            future.set_result(message.workers)
