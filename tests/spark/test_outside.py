"""Executors on other hosts: their tasks come in over TCP, by the members' handshake. Here each host is this one."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import shmjet
from shmjet import AuthenticationError, JobFailedError, Pipeline, sinks
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.net.addresses import split_address
from shmjet.net.dial import dial
from shmjet.net.handshake import CLIENT, NONCE_SIZE, PREAMBLE, Dialing, HandshakeError, Identity
from shmjet.spark import protocol
from shmjet.spark import source as spark_source
from shmjet.spark.links import Destination, host_id
from shmjet.spark.tcp_gateway import TcpGateway
from tests.spark.conftest import Fed


@pytest.fixture
def elsewhere(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tasks find that the job runs on another host."""
    monkeypatch.setattr("shmjet.spark.feed_client.host_id", lambda: "another host")
    monkeypatch.setattr("shmjet.spark.lineage.reached_at", lambda _: ("127.0.0.1", "127.0.0.1"))


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
class TestWithSpark:
    @pytest.mark.parametrize("deterministic", [False, True])
    def test_every_row_arrives_once_over_tcp(self, spark: Any, fed: Fed, deterministic: bool) -> None:
        df = spark.range(0, 300_000, 1, 5).selectExpr("id", "concat('row ', id) s")
        source = spark_source(df, memory=2 << 20, deterministic=deterministic)
        found = fed(source)
        assert source.origin.rung in ("frames", "plain_frames")
        assert sum(int(batch["id"].sum()) for batch in found) == 299_999 * 150_000
        assert all(batch["s"][5] == f"row {batch['id'][5]}" for batch in found)

    def test_large_frames_and_what_does_not_fit_the_memory(self, spark: Any, fed: Fed) -> None:
        df = spark.range(0, 6, 1, 2).selectExpr("id", "repeat(cast(id as string), 3000000) s")
        found = fed(spark_source(df, batch_rows=1, memory=1 << 20))
        assert {int(batch["id"][0]): batch["s"][0] for batch in found} == {n: str(n) * 3_000_000 for n in range(6)}

    def test_a_worker_that_is_killed_is_forgotten(self, spark: Any, fed: Fed, tmp_path: Path) -> None:
        once = str(tmp_path / "once")

        def dies_once(index: int, elements: Iterator[int]) -> Iterator[int]:
            for n, element in enumerate(elements):
                if n == 3000 and index == 0 and not os.path.exists(once):
                    Path(once).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield element

        rdd = spark.sparkContext.range(0, 10_000, 1, 2).mapPartitionsWithIndex(dies_once)
        found = fed(spark_source(rdd, columns=["n"], batch_rows=500))
        assert os.path.exists(once)
        assert sorted(n for batch in found for n in batch["n"].tolist()) == list(range(10_000))

    def test_cancelling_the_job_ends_sparks(
        self, spark: Any, jet: shmjet.JetInstance, eventually: Callable[..., None]
    ) -> None:
        tracker = spark.sparkContext.statusTracker()
        pipeline = Pipeline()
        pipeline.read_from(spark_source(spark.range(0, 10**12, 1, 2), memory=1 << 20)).write_to(sinks.noop())
        execution = jet.new_job(pipeline).execute()
        eventually(lambda: tracker.getActiveJobsIds())
        execution.cancel()
        with pytest.raises(CancelledError):
            execution.result(60)
        eventually(lambda: not tracker.getActiveJobsIds())

    def test_who_cannot_reach_the_driver_is_told_where_it_was_looked_for(
        self, spark: Any, fed: Fed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        monkeypatch.setattr("shmjet.spark.tcp_gateway.join_address", lambda host, _: f"no-such-host.invalid:{port}")
        rdd = spark.sparkContext.range(0, 10, 1, 1)
        with pytest.raises(
            JobFailedError, match=r"cannot reach it at no-such-host\.invalid:\d+: .*spark\.driver\.host"
        ):
            fed(spark_source(rdd, columns=["n"]))

    def test_a_local_master_expects_nobody_from_elsewhere(
        self, spark: Any, fed: Fed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shmjet.spark.lineage.reached_at", lambda _: None)
        rdd = spark.sparkContext.range(0, 10, 1, 1)
        with pytest.raises(JobFailedError, match="executors on the job's own host only while Spark's master is local"):
            fed(spark_source(rdd, columns=["n"]))

    def test_a_port_that_cannot_be_opened_fails_the_job(
        self, spark: Any, fed: Fed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shmjet.spark.lineage.reached_at", lambda _: ("here", "192.0.2.1"))
        with pytest.raises(JobFailedError, match=r"no port can be opened .* at '192.0.2.1' .spark.driver.bindAddress."):
            fed(spark_source(spark.range(10)))

    def test_a_container_on_the_same_host_comes_in_over_tcp(
        self, spark: Any, rows: Fed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("shmjet.spark.feed_client.host_id", host_id)
        unseen = partial(Destination, "/no/such/socket")
        monkeypatch.setattr("shmjet.spark.feed_client.Destination", lambda _, *more: unseen(*more))
        assert rows(spark_source(spark.range(0, 10, 1, 3))) == [(n,) for n in range(10)]


# -- the gateway, without Spark ----------------------------------------------------------------------------------------


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[TcpGateway]:
    """One to a job that is not there."""
    made = TcpGateway("feed", "127.0.0.1", "127.0.0.1", str(tmp_path / "no member"), 5)
    yield made
    made.close()
    made.close()


def test_only_who_knows_the_secret_and_the_feed_comes_in(gateway: TcpGateway) -> None:
    with pytest.raises(AuthenticationError, match="the secrets differ"):
        dial(gateway.address, cluster="feed", secret=b"guessed")
    with pytest.raises(shmjet.ShmjetError, match="it looks for another feed"):
        dial(gateway.address, cluster="other", secret=gateway.secret)
    with dial(gateway.address, cluster="feed", secret=gateway.secret) as connection:
        assert connection.address == gateway.address
    host, port = gateway.address.split(":")
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert sock.recv(PREAMBLE.size).startswith(b"SHMJET")


def test_who_came_in_to_a_job_that_has_ended_is_sent_away(gateway: TcpGateway) -> None:
    for first in (protocol.ChooseProcessor(0), protocol.Want()):
        connection = dial(gateway.address, cluster="feed", secret=gateway.secret)
        channel = Channel(connection.socket, protocol.Answer)
        channel.send(first)
        with pytest.raises(ChannelClosed):
            channel.receive()
        channel.close()


def test_closing_sends_everybody_away(gateway: TcpGateway) -> None:
    connection = dial(gateway.address, cluster="feed", secret=gateway.secret)
    gateway.close()
    assert connection.socket.recv(1) == b""
    connection.close()
    with pytest.raises(OSError):
        dial(gateway.address, cluster="feed", secret=gateway.secret, timeout=60)


def test_connections_that_prove_nothing_keep_nobody_out(
    gateway: TcpGateway, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    monkeypatch.setattr("shmjet.spark.tcp_gateway.MOST_UNPROVED", 8)
    host, port = gateway.address.split(":")
    strangers = [socket.create_connection((host, int(port)), 60) for _ in range(40)]
    try:
        strangers[0].settimeout(60)
        said = b"".join(iter(lambda: strangers[0].recv(4096), b""))
        assert b"busy" in said
        eventually(lambda: len(gateway.unproved) == 8 == len(gateway.connections))
        with dial(gateway.address, cluster="feed", secret=gateway.secret) as connection:
            assert connection.address == gateway.address
    finally:
        for sock in strangers:
            sock.close()


def test_one_who_proves_itself_byte_by_byte_has_the_same_time(
    gateway: TcpGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.spark.tcp_gateway.HANDSHAKE_S", 0.1)
    host, port = gateway.address.split(":")
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.setblocking(False)
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLHUP)
        with contextlib.suppress(OSError):
            for byte in (PREAMBLE.pack(b"SHMJET", 2) + bytes([200, 0]) + bytes(10_000))[:200]:
                sock.send(bytes([byte]))
                if poll.poll(60):
                    break
            else:
                pytest.fail("it was listened to for twelve seconds")


def test_a_connection_is_told_busy_in_the_middle_of_its_handshake(
    gateway: TcpGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.spark.tcp_gateway.MOST_UNPROVED", 1)
    dialing = Dialing(Identity(CLIENT, "feed", "", "", gateway.secret), bytes(range(NONCE_SIZE)), b"")
    with socket.create_connection(split_address(gateway.address), 60) as first:
        first.sendall(dialing.start())
        assert dialing.feed(first.recv(2048))  # the challenge has come, and here is the answer to it
        with (
            socket.create_connection(split_address(gateway.address), 60),
            pytest.raises(HandshakeError, match="have proved nothing yet") as refused,
        ):
            dialing.feed(first.recv(2048))
    assert refused.value.kind == "busy"


def test_an_entrance_without_descriptors_goes_on(
    gateway: TcpGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shmjet.spark.tcp_gateway.PAUSE_S", 0.01)
    accept, tries = gateway.listener.accept, []

    class Exhausted:
        def accept(self) -> Any:
            tries.append(1)
            if len(tries) <= 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

    listener = gateway.listener
    monkeypatch.setattr(gateway, "listener", Exhausted())
    for _ in range(2):  # the first one is taken by the accept that is under way
        with dial(gateway.address, cluster="feed", secret=gateway.secret, timeout=60):
            pass
    assert len(tries) >= 4
    monkeypatch.undo()
    assert caplog.text.count("cannot take a connection") == 3
