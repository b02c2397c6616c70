"""Connections to members of a view: who waits for one when the member is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from shmjet.cluster.membership import network as network_module
from shmjet.cluster.membership.views import Peer
from tests.cluster.test_early_messages import first_and_newcomer, join


def test_a_lost_member_is_waited_for_until_the_view_is_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_module, "DIAL_AGAIN_S", 120.0)

    async def main() -> None:
        async with first_and_newcomer(tmp_path) as (network, user, newcomer):
            waiting: list[asyncio.Task[None]] = []

            def connection_lost(peer: Peer, _why: str) -> None:
                waiting.append(asyncio.create_task(network.reach([peer.uuid])))

            monkeypatch.setattr(user, "connection_lost", connection_lost)
            async with asyncio.timeout(30):
                await join(newcomer, network)
                while user.sizes[-1] < 2:
                    await asyncio.sleep(0.001)
                os.kill(newcomer.client.pid, signal.SIGKILL)
                while not waiting:
                    await asyncio.sleep(0.001)
                with pytest.raises(OSError, match="has no connection to"):
                    await waiting[0]
            assert user.sizes[-1] == 1

    asyncio.run(main())
