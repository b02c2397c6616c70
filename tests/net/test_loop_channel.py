"""The member's end of a connection."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from shmjet.execution.channel import Channel
from shmjet.execution.messages import Finish, Start
from shmjet.net.loop_channel import LoopChannel


def test_who_sends_what_is_no_message_loses_the_connection() -> None:
    async def run() -> list[Any]:
        ours, theirs = socket.socketpair()
        closed, events = asyncio.Event(), list[Any]()
        channel = LoopChannel(ours, Start, lambda message, fds: events.append(message), closed.set)
        channel.open()
        other = Channel(theirs, Start)
        other.send(Start(1))
        while not events:
            await asyncio.sleep(0)
        other.send(Finish(2, None))
        await asyncio.wait_for(closed.wait(), 10)
        assert theirs.recv(1) == b""
        other.close()
        return events

    assert asyncio.run(run()) == [Start(1)]
