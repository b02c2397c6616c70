"""The post of a member: orders and reports between a coordinator and participants.

The own member's go through a queue in this process, as they are; those of others over the network. Either way they
arrive in the order in which they were sent, one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from shmjet.cluster.membership.peer_messages import PartFinished, PreparePart
from shmjet.cluster.protocol import Submission
from shmjet.execution.metrics import Metrics
from shmjet.ipc.inline_or_memfd import InlineOrMemfd

Payload = InlineOrMemfd | Callable[[], Metrics] | None
"""What comes with a message as it is, within a process: with `PreparePart` the code of the job, with `PartFinished`
what returns the metrics. In messages to other members it is written out."""


class Post(Protocol):
    """Sends messages to members."""

    def send(self, identity: str, message: object) -> None:
        """Send a message; it is lost when the member is."""


class FilePost(Post, Protocol):
    """Sends messages to other members, and files."""

    async def send_files(self, uuids: Sequence[str], job: Submission) -> None:
        """Send the files attached to a job."""


class JobPost:
    """The post of one member.

    Args:
        others: to other members.
        deliver: called with the sender, the message and its payload, for messages to this member.
    """

    def __init__(self, others: FilePost, deliver: Callable[[str, object, Payload], None]) -> None:
        self._others = others
        self._deliver = deliver
        self._identities: set[str] = set()
        self._waiting: deque[tuple[str, object, Payload]] = deque()
        self._is_delivering = False

    def is_own(self, identity: str) -> bool:
        """Say whether an identity is, or was, that of this member."""
        return identity in self._identities

    def add_identity(self, identity: str) -> None:
        """Take what this member is called; what was for its former identities still arrives."""
        self._identities.add(identity)

    def send(self, identity: str, message: object, payload: Payload = None) -> None:
        """Send a message; it is lost when the member is.

        Args:
            identity: of the member.
            message: to it.
            payload: that comes with it.
        """
        if identity not in self._identities:
            self._others.send(identity, _written_out(message, payload))
            return
        self._waiting.append((identity, message, payload))
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._waiting:
                self._deliver(*self._waiting.popleft())
        finally:
            self._is_delivering = False

    async def send_files(self, uuids: Sequence[str], job: Submission) -> None:
        """Send the files attached to a job to other members."""
        await self._others.send_files(uuids, job)


def _written_out(message: object, payload: Payload) -> object:
    """Return a message with its payload in it."""
    match message:
        case PreparePart() if isinstance(payload, InlineOrMemfd):
            job = msgspec.structs.replace(message.submission, code=bytes(payload.view()), code_size=0)
            return msgspec.structs.replace(message, submission=job)
        case PartFinished() if callable(payload):
            return msgspec.structs.replace(message, metrics=payload())
    return message
