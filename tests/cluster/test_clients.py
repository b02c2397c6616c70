"""The clients of a member: how many remote clients it takes, and what happens when it can open no more files."""

from __future__ import annotations

import asyncio
import errno
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.membership.peer_messages import Backward
from shmjet.cluster.protocol import Done, Logged, Ping
from shmjet.cluster.requests import client_connections as module
from shmjet.cluster.requests.client_connections import MOST_UNANSWERED, Clients
from shmjet.net.messages import RefuseClients
from tests.loops import skipping


def test_one_address_cannot_take_the_place_of_all_clients() -> None:
    async def run() -> list[RefuseClients]:
        said: list[RefuseClients] = []
        clients = Clients(None, lambda *_: None, lambda _: None, said.append, most=4)
        ends: list[socket.socket] = []

        def come(address: str) -> Any:
            ours, theirs = socket.socketpair()
            ends.append(theirs)
            return clients.add(ours, b"", address, is_here=not address)

        first = come("10.0.0.1:4000")
        come("10.0.0.1:4001")
        come("[2001:db8::1]:4002")
        come("")  # of this host, which is not counted
        come("[2001:db8::2]:4003")
        ends[0].close()
        while not first.is_closed:
            await asyncio.sleep(0)
        clients.close()
        for end in ends:
            end.close()
        return said

    assert asyncio.run(run()) == [
        RefuseClients(False, ("10.0.0.1",)),
        RefuseClients(True, ("10.0.0.1", "2001:db8::")),
        RefuseClients(False, ("2001:db8::",)),
    ]


def test_clients_from_afar_take_a_part_of_the_files_that_a_member_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, most in ((1024, 256), (1 << 20, 1024), (2, 1)):
        monkeypatch.setattr(module.resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert module.most_clients() == most


def test_without_descriptors_a_member_waits_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A listener that is ready and gives no connection must not be asked in a loop."""
    tries: list[int] = []
    monkeypatch.setattr(module, "PAUSE_S", 0.01)

    class Exhausted(socket.socket):
        def accept(self) -> Any:
            tries.append(1)
            if len(tries) <= 2:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def run() -> int:
        monkeypatch.setattr(module.socket, "socket", Exhausted)
        asked: list[Any] = []
        clients = Clients(None, lambda _, request, fds: asked.append(request), lambda _: None)
        end = clients.listen(tmp_path / "socket")
        monkeypatch.undo()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "socket"))
            body = msgspec.msgpack.encode(Ping(7))
            client.sendall(len(body).to_bytes(4, "little") + b"\0" + body)
            turns = 0
            while not asked:
                turns += 1
                await asyncio.sleep(0.001)
            end()
            clients.close()
        return turns

    assert skipping(asyncio.wait_for(run(), 60)) >= 20
    assert caplog.text.count("Too many open files") == 2


def test_one_with_many_unanswered_requests_waits_for_answers() -> None:
    async def run() -> None:
        asked: list[tuple[Any, Any]] = []
        clients = Clients(None, lambda client, request, fds: asked.append((client, request)), lambda _: None)
        ours, theirs = socket.socketpair()
        client = clients.add(ours, b"", "10.0.0.1:4000", is_here=False)
        body = msgspec.msgpack.encode(Ping(7))  # always the same number: that must not hide how many there are
        theirs.sendall((len(body).to_bytes(4, "little") + b"\0" + body) * 100)

        async def settled() -> int:
            for _ in range(50):
                await asyncio.sleep(0)
            return len(asked)

        assert await settled() == MOST_UNANSWERED
        client.send(Logged(1, "", []))  # news do not answer a request
        assert await settled() == MOST_UNANSWERED
        client.send(Done(7))
        clients.backward(Backward(client.number, msgspec.msgpack.encode(Done(7)), 7))
        assert await settled() == MOST_UNANSWERED + 2
        for _ in range(70):
            client.queue(Done(7))
        assert await settled() == 100
        clients.close()
        theirs.close()

    asyncio.run(run())


def test_where_there_are_many_clients_each_may_ask_less_at_once() -> None:
    async def run() -> list[int]:
        clients = Clients(None, lambda *_: None, lambda _: None, most=1000)
        ends, found = [], []
        for number in range(600):
            ours, theirs = socket.socketpair()
            ends.append(theirs)
            clients.add(ours, b"", f"10.0.0.1:{number}", is_here=False)
            if number in (0, 7, 63, 599):
                found.append(clients.most_unanswered())
        clients.close()
        for end in ends:
            end.close()
        return found

    assert asyncio.run(run()) == [64, 64, 8, 1]
