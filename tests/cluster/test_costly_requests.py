"""Small requests of clients that would cost a member much: memory that is many times theirs, or time."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet.cluster.client import connection
from shmjet.cluster.client.connection import MOST_VAIN, Connection
from shmjet.cluster.lifecycle_messages import LONGEST_TOKEN
from shmjet.cluster.member.grid_requests import GridRequests
from shmjet.cluster.protocol import MOST_WATCHED, Execute, GridCall, Ping, Request, watches
from shmjet.cluster.requests.client_connections import LONGEST_PLAIN_REQUEST, Clients, LocalClient
from shmjet.core import MemberLostError
from shmjet.core.keys import canonical_tagged, partition_id
from shmjet.grid import Grid, GridError
from shmjet.grid.code_free import brings_pickles
from shmjet.grid.layout import MAP_RECORD, PARTITION, record_key
from shmjet.grid.operations import MOST_ENTRIES, DeleteBlobs, FindAll, PageRead, ReadPage, Write
from shmjet.grid.remote import RemoteBlobs
from shmjet.grid.scan import PAGE_BYTES
from shmjet.grid.service import GridService
from shmjet.ipc import loop_channel
from tests.grid.remote_grid import RemoteGrid

LARGE = "v" * 60_000
MOST_ANSWERED = 4 * PAGE_BYTES
encode = msgspec.msgpack.encode


@pytest.fixture
def service(tmp_path: Path) -> Iterator[GridService]:
    Grid.create(tmp_path / "grid", 271, environments=1)
    service = GridService(tmp_path / "grid")
    yield service
    service.close()


@pytest.fixture
def map_of(service: GridService) -> Any:
    found = RemoteGrid(service.perform).get_map("large")
    found.put_all(dict.fromkeys(range(200), LARGE))
    return found


def test_one_request_asks_about_so_many_executions() -> None:
    requests = [make(7) for make in watches(list(range(2 * MOST_WATCHED + 1)), logs=True)]
    assert [len(request.executions) for request in requests] == [MOST_WATCHED, MOST_WATCHED, 1]
    assert list(itertools.chain(*(request.executions for request in requests))) == list(range(2 * MOST_WATCHED + 1))
    for request in requests:
        assert msgspec.msgpack.decode(encode(request), type=Request) == request
    with pytest.raises(msgspec.ValidationError, match="length <= 256"):
        msgspec.msgpack.decode(encode(msgspec.structs.replace(requests[0], executions=[1] * 257)), type=Request)


def test_what_a_member_keeps_of_a_request_is_short() -> None:
    with pytest.raises(msgspec.ValidationError, match="length <= 64"):
        msgspec.msgpack.decode(
            encode(Execute(1, "0" * 16, None, True, None, "n", "t" * (LONGEST_TOKEN + 1))), type=Request
        )


def test_many_keys_of_large_values_are_answered_in_portions(service: GridService, map_of: Any) -> None:
    keys = [PARTITION.pack(partition_id(7)) + canonical_tagged(7)] * MOST_ENTRIES
    answer = service.perform(encode(FindAll(0, record_key(MAP_RECORD, "large"), keys)))
    assert len(answer) < MOST_ANSWERED
    looked, entries = msgspec.msgpack.decode(answer)
    assert 0 < looked == len(entries) < MOST_ENTRIES
    assert map_of.get_all(range(-1, 201)) == dict.fromkeys(range(200), LARGE)


def test_a_page_of_large_values_is_a_page_whatever_was_asked_for(service: GridService, map_of: Any) -> None:
    record = record_key(MAP_RECORD, "large")
    answer = service.perform(encode(ReadPage(0, record, b"", None, MOST_ENTRIES, MOST_ENTRIES, False)))
    assert len(answer) < MOST_ANSWERED
    assert 0 < len(msgspec.msgpack.decode(answer, type=PageRead).values) < 200
    assert dict(map_of) == dict.fromkeys(range(200), LARGE)


@pytest.mark.parametrize(
    "operation",
    [
        FindAll(0, b"r", [b""] * (MOST_ENTRIES + 1)),
        Write(0, b"r", [(b"", b"")] * (MOST_ENTRIES + 1), False),
        DeleteBlobs([b""] * (MOST_ENTRIES + 1)),
    ],
)
def test_an_operation_brings_so_many_entries(operation: Any, service: GridService) -> None:
    body = encode(operation)
    assert brings_pickles(body)
    with pytest.raises(GridError, match="length <= 4096"):
        service.perform(body)


def test_more_files_than_that_are_deleted_all_the_same(service: GridService, tmp_path: Path) -> None:
    blobs = RemoteBlobs(service.perform)
    kept, name = blobs.write([b"kept"]), blobs.write([b"x"])
    blobs.delete([b"0-" + b"0" * 16] * MOST_ENTRIES + [name])
    assert os.listdir(tmp_path / "grid" / "blobs") == [kept.decode()]


@pytest.mark.parametrize("part", [[], [[]] * 100, {}, {1: 2}, None])
def test_what_takes_more_memory_than_bytes_is_no_plain_value(part: Any) -> None:
    for entry in ((1, part), (part, 1)):
        assert brings_pickles(encode(Write(0, MAP_RECORD + b"n", [(b"k", encode(entry))], False)))
    for plain in ("text", b"bytes", 1, -1, 2**64 - 1, 1.5, True):
        assert not brings_pickles(encode(Write(0, MAP_RECORD + b"n", [(b"k", encode((plain, plain)))], False)))


def test_who_does_not_read_large_answers_gets_no_more_of_them(
    service: GridService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty requests wait until the first answers have been read."""
    size = 1 << 20
    monkeypatch.setattr(loop_channel, "MOST_UNREAD_BYTES", size)
    name = RemoteBlobs(service.perform).write([b"x" * size])
    sent: list[Any] = []
    send = LocalClient.send
    monkeypatch.setattr(LocalClient, "send", lambda client, message: (sent.append(message), send(client, message)))
    body = encode(GridCall(1, b"\x92\xa8ReadBlob" + encode(name)))

    async def run() -> None:
        grid = GridRequests(tmp_path / "grid")
        clients = Clients(None, lambda client, request, fds: grid.perform(client, request), lambda _: None)
        ours, theirs = socket.socketpair()
        clients.add(ours, is_here=False)
        theirs.sendall((len(body).to_bytes(4, "little") + b"\0" + body) * 60)
        theirs.setblocking(False)
        loop, most, read = asyncio.get_running_loop(), 0, 0
        while read < 60 * size:
            read += len(await loop.sock_recv(theirs, 1 << 20))
            most = max(most, len(sent) * size - read)
        assert most < 4 * size
        theirs.close()
        clients.close()
        grid.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_request_after_which_connections_end_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PAUSE_S", 0.001)
    made: list[socket.socket] = []

    class Closing:
        """Leads to members that close the connection when they are asked."""

        patience, gone, trouble = None, "no member is there", ""

        def connect(self) -> Any:
            ours, theirs = socket.socketpair()
            made.append(theirs)
            threading.Thread(target=lambda: (theirs.recv(100), theirs.close())).start()
            return ours, b"", lambda: None

        def connect_again(self, stopped: Callable[[], bool]) -> Any:
            return None if stopped() else self.connect()

    asking = Connection(Closing(), lambda _: None, lambda: None, lambda: None)
    try:
        with pytest.raises(MemberLostError, match=r"before it answered; whether the request \(GridCall\)"):
            asking.post(lambda number: GridCall(number, b"y", 77)).result(60)
        assert len(made) in (MOST_VAIN, MOST_VAIN + 1)
    finally:
        asking.close()


def test_a_request_without_code_is_short() -> None:
    async def run() -> bool:
        ours, theirs = socket.socketpair()
        closed = asyncio.Event()
        clients = Clients(None, lambda *_: None, lambda _: closed.set(), allow_code=False)
        clients.add(ours, is_here=False)
        theirs.sendall((LONGEST_PLAIN_REQUEST + 1).to_bytes(4, "little") + b"\0" + encode(Ping(1)))
        await asyncio.wait_for(closed.wait(), 60)
        clients.close()
        theirs.close()
        return True

    assert asyncio.run(run())
