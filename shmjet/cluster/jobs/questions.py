"""Questions of a member to other members about snapshots. A question to a member that is lost has failed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from shmjet.cluster.membership.views import Peer, View


class SnapshotNetwork(Protocol):
    """The network of a member, as far as snapshots are concerned."""

    @property
    def view(self) -> View | None: ...
    @property
    def me(self) -> Peer: ...
    def send(self, identity: str, message: object) -> None: ...
    async def reach(self, identities: Sequence[str]) -> None: ...


class Questions:
    """See the module.

    Args:
        network: leads to the others.
    """

    def __init__(self, network: SnapshotNetwork) -> None:
        self._network = network
        self._numbers = itertools.count(1)
        self._asked: dict[int, tuple[str, asyncio.Future[Any]]] = {}

    async def ask(self, member: str, make: Callable[[int], Any]) -> Any:
        """Return what a member answers.

        Args:
            member: its identity.
            make: makes the question, from its number.

        Raises:
            OSError: it is lost, or the connection to it, before it has answered.
        """
        await self._network.reach([member])
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = member, answer
        try:
            self._network.send(member, make(number))
            return await answer
        finally:
            del self._asked[number]

    def answered(self, sender: str, message: Any) -> None:
        """Take an answer, which has the number of the question."""
        asked, answer = self._asked.get(message.number, ("", None))
        if asked == sender and answer is not None and not answer.done():
            answer.set_result(message)

    def lost(self, member: str, why: str) -> None:
        """Take that a member is lost, or the connection to it."""
        for asked, answer in self._asked.values():
            if asked == member and not answer.done():
                answer.set_exception(ConnectionError(why))
