"""Messages of members that follow a newer view than this one, until it follows it, too.

A view reaches its members one after the other, so what one of them asks by it may be here before it. What is not
answered is asked again only when a connection or a member is lost: such a message must not be dropped.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

MOST_BYTES: Final = 16 << 20
"""Of all messages together."""


class EarlyMessages:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[str, list[bytes]] = {}
        self._size = 0

    def hold(self, sender: str, message: bytes) -> bool:
        """Keep a message; False if there is no room for it, so that the connection has to be given up."""
        if self._size + len(message) > MOST_BYTES:
            return False
        self._held.setdefault(sender, []).append(message)
        self._size += len(message)
        return True

    def take(self, members: Collection[str]) -> list[tuple[str, bytes]]:
        """Return, with their senders, and let go of the messages of some members, those of each in their order."""
        return [(sender, message) for sender in members for message in self._let_go(sender)]

    def connection_lost(self, sender: str) -> None:
        """Drop what a member has sent: it knows that this may not have arrived."""
        self._let_go(sender)

    def forget_all(self) -> None:
        """Drop everything: it was for an identity that this member has no more."""
        self._held.clear()
        self._size = 0

    def _let_go(self, sender: str) -> list[bytes]:
        messages = self._held.pop(sender, [])
        self._size -= sum(map(len, messages))
        return messages
