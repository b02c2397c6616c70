"""What a member passes on of its workers' log records, and what it drops."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

from shmjet.cluster.protocol import CoordinatorLost, Done, Logged, Look, Reply, Watch
from shmjet.cluster.requests.client_connections import Clients, LocalClient
from shmjet.cluster.requests.log_relay import BURST_BYTES, BYTES_PER_S, Allowance, LogRelay
from shmjet.execution.logs import RELAYED
from shmjet.ipc.channel import Channel


def test_an_allowance_is_used_up_and_comes_back_with_time() -> None:
    allowance = Allowance(10.0)
    assert allowance.take(BURST_BYTES, 10.0)
    assert not allowance.take(1, 10.0)
    assert allowance.take(BYTES_PER_S // 2, 10.5)
    assert not allowance.take(BYTES_PER_S, 11.0)
    assert allowance.take(BURST_BYTES, 1000.0)
    assert not allowance.take(1, 1000.0)


def test_records_are_passed_on_by_execution_and_those_that_are_too_many_are_counted() -> None:
    passed: list[tuple[int, list[bytes], int]] = []
    record = bytes(100_000)
    fit = (BURST_BYTES - len(b"first")) // len(record)

    async def story() -> None:
        relay = LogRelay(lambda *piece: passed.append(piece), clock=lambda: 0.0)
        relay.open()
        with socket.socket(fileno=os.dup(relay.writer)) as worker:
            worker.send(RELAYED.pack(7) + b"first")
            worker.send(RELAYED.pack(8) + b"other")
            relay.drain()
            for _ in range(fit + 20):
                worker.send(RELAYED.pack(7) + record)
                relay.drain()
            worker.send(RELAYED.pack(8) + b"last")
            relay.drain()
        relay.ended(7)
        relay.ended(8)
        relay.close()

    asyncio.run(story())
    assert passed[:2] == [(7, [b"first"], 0), (8, [b"other"], 0)]
    assert [piece for piece in passed if piece[0] == 8] == [(8, [b"other"], 0), (8, [b"last"], 0)]
    arrived = sum(len(records) for execution, records, _ in passed if execution == 7)
    dropped = sum(count for execution, _, count in passed if execution == 7)
    assert (arrived, dropped) == (1 + fit, 20)
    assert passed[-1] == (7, [], 20)


def test_a_client_that_does_not_read_gets_no_more_records_but_every_answer() -> None:
    ours, theirs = socket.socketpair()

    async def story() -> list[Any]:
        client = LocalClient(1, ours, lambda *_: None, lambda _: None, is_here=False)
        for _ in range(5000):
            client.send_if_read(Logged(1, "there:1", [bytes(1000)]))
        client.send(Done(7))
        reader = Channel(theirs, Reply)
        answers = []
        while not answers or not isinstance(answers[-1], Done):
            answers += [message for message, _ in reader.poll()]
            await asyncio.sleep(0)
        client.close()
        reader.close()
        return answers

    *records, last = asyncio.run(story())
    assert last == Done(7)
    assert all(isinstance(record, Logged) for record in records)
    assert 64 <= len(records) < 5000


def test_news_go_to_those_only_that_have_jobs_or_maps() -> None:
    pairs = [socket.socketpair() for _ in range(2)]

    async def story() -> list[list[Any]]:
        asked: list[Any] = []
        clients = Clients(None, lambda client, request, fds: asked.append(request), lambda _: None)
        listener, watcher = (Channel(theirs, Reply) for _, theirs in pairs)
        served = [clients.add(ours, is_here=True) for ours, _ in pairs]
        listener.send(Watch(1, [5]))
        watcher.send(Look(1))
        while len(asked) < 2:
            await asyncio.sleep(0)
        clients.tell_all(CoordinatorLost("it is gone"))
        told: list[list[Any]] = []
        for client, reader in zip(served, (listener, watcher), strict=True):
            client.send(Done(1))
            answers: list[Any] = []
            while not answers or not isinstance(answers[-1], Done):
                answers += [message for message, _ in reader.poll()]
                await asyncio.sleep(0)
            told.append(answers)
            reader.close()
        clients.close()
        return told

    assert asyncio.run(story()) == [[CoordinatorLost("it is gone"), Done(1)], [Done(1)]]
