"""The connections of this member to others, and the messages that wait for a connection."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from shmjet.net.client import LinkClient, LinkLost

DIAL_AGAIN_S = 0.2
_MOST_PENDING = 64
_MOST_DIALLED = 256


class Contacts:
    """See the module.

    Args:
        link: gives the link, None while there is none.
        now: gives seconds.
    """

    def __init__(self, link: Callable[[], LinkClient | None], now: Callable[[], float]) -> None:
        self._link = link
        self._now = now
        self._addresses: dict[str, str] = {}
        self._dialled: dict[str, float] = {}
        self._pending: dict[str, list[bytes]] = {}

    def __contains__(self, identity: str) -> bool:
        return identity in self._addresses

    def address_of(self, identity: str) -> str | None:
        """Return where a member is that we are connected to."""
        return self._addresses.get(identity)

    def forget_all(self) -> None:
        """Take that all connections are gone, and with them what was to be said."""
        self._addresses.clear()
        self._dialled.clear()
        self._pending.clear()

    # -- saying -------------------------------------------------------------------------------------------------

    def send(self, identity: str, data: bytes, *, may_wait: bool = False) -> None:
        """Send bytes to a member, see `LinkClient.send`; they are lost when there is no connection to it."""
        link = self._link()
        if link is not None and identity in self._addresses:
            with contextlib.suppress(LinkLost):
                link.send(identity, data, may_wait=may_wait)

    def say(self, address: str, data: bytes) -> None:
        """Send bytes to the process at an address; connect first where there is no connection."""
        link = self._link()
        if link is None:
            return
        with contextlib.suppress(LinkLost):
            for identity, where in self._addresses.items():
                if where == address:
                    link.send(identity, data)
                    return
            pending = self._pending.setdefault(address, [])
            pending.append(data)
            del pending[:-_MOST_PENDING]
            self.dial(address)

    def dial(self, address: str) -> None:
        """Have the link connect, unless it has just been told so."""
        now, link = self._now(), self._link()
        if link is not None and now - self._dialled.get(address, -DIAL_AGAIN_S) >= DIAL_AGAIN_S:
            if len(self._dialled) >= _MOST_DIALLED:
                self._dialled = {where: at for where, at in self._dialled.items() if now - at < DIAL_AGAIN_S}
            self._dialled[address] = now
            with contextlib.suppress(LinkLost):
                link.connect(address)

    # -- from the link ------------------------------------------------------------------------------------------

    def up(self, identity: str, address: str, dialled: str | None) -> None:
        """Take that a member is connected, and say what was to be said to it.

        Args:
            address: that it goes by.
            dialled: that we called; None when it has called us.
        """
        self._addresses[identity] = address
        if dialled is not None and dialled != address:
            self._pending.setdefault(address, []).extend(self._pending.pop(dialled, []))
        for data in self._pending.pop(address, []):
            self.say(address, data)

    def down(self, identity: str) -> str | None:
        """Take that a member is not connected any more; returns where it was."""
        address = self._addresses.pop(identity, None)
        if address is not None:
            self._dialled.pop(address, None)
        return address

    def failed(self, address: str) -> None:
        """Note that no process can be reached at an address."""
        self._pending.pop(address, None)
