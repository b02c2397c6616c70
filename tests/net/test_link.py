"""Links among themselves and with strangers: who is let in, who is refused, what a broken peer does."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import socket
import ssl
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shmjet.core import AuthenticationError, ConfigError, ShmjetError
from shmjet.net import link
from shmjet.net.dial import dial
from shmjet.net.handshake import (
    CLIENT,
    MAGIC,
    MEMBER,
    OLDEST,
    PREAMBLE,
    VERSION,
    Answering,
    Dialing,
    HandshakeError,
    Identity,
    refusal,
)
from shmjet.net.messages import (
    Accepted,
    Alive,
    Connect,
    ConnectFailed,
    Disconnect,
    Fence,
    Heard,
    Limits,
    Listen,
    Listening,
    PeerDown,
    PeerUp,
    Received,
    RefuseClients,
    Secret,
    Send,
    SetHeartbeat,
    TlsFiles,
)
from shmjet.net.packets import DATA, HEADER
from tests.net.members import SECRET, LinkedMember, await_, linked


def make(number: int, **settings: Any) -> LinkedMember:
    member = LinkedMember(number, **settings)
    member.order(Listen("127.0.0.1:0"))
    member.address = await_([member], lambda: member.take(Listening)).address
    return member


@pytest.fixture
def members() -> Any:
    made: list[LinkedMember] = []

    def new(**settings: Any) -> LinkedMember:
        made.append(make(len(made), **settings))
        return made[-1]

    yield new
    for member in made:
        member.close()


def test_messages_of_any_size_arrive_in_order() -> None:
    with linked(2) as (first, second):
        payloads = [b"", b"x", os.urandom(1 << 20), b"last"]
        for payload in payloads:
            first.order(Send(second.uuid, payload))
        got = [await_([first, second], lambda: second.take(Received)) for _ in payloads]
        assert [event.payload for event in got] == payloads
        assert {event.peer for event in got} == {first.uuid}


def test_messages_overtake_what_may_wait_and_do_not_mix_with_it() -> None:
    with linked(2) as (first, second):
        large, peer = [os.urandom(1 << 20) for _ in range(2)], first.link.peers[second.uuid]
        for payload in large:
            peer.send_message(payload, may_wait=True)
        peer.send_message(b"urgent" * 50_000)
        got = [await_([first, second], lambda: second.take(Received)).payload for _ in range(3)]
        assert got == [b"urgent" * 50_000, *large]


def test_a_wrong_secret_is_an_authentication_failure_and_nothing_else(members: Any, caplog: Any) -> None:
    first, second = members(), members(secret=Secret(b"another"))
    second.order(Connect(first.address))
    failed = await_([first, second], lambda: second.take(ConnectFailed))
    assert failed.kind == "authentication"
    assert not first.events
    assert len([r for r in caplog.records if r.name == "shmjet.link"]) == 1


@pytest.mark.parametrize(
    ("of_first", "of_second", "said"),
    [
        (b"of members", b"", "have to prove a member_secret as well, and the dialer has none"),
        (b"", b"of members", "proves a member_secret, and this one has none"),
        (b"of members", b"another", "the member secrets differ"),
    ],
)
def test_members_that_do_not_share_the_member_secret_refuse_each_other(
    members: Any, caplog: Any, of_first: bytes, of_second: bytes, said: str
) -> None:
    first, second = members(member_secret=Secret(of_first)), members(member_secret=Secret(of_second))
    second.order(Connect(first.address))
    failed = await_([first, second], lambda: second.take(ConnectFailed))
    assert failed.kind == "authentication"
    assert said in failed.reason
    assert not first.events
    (logged,) = [record.getMessage() for record in caplog.records if record.name == "shmjet.link"]
    assert said in logged


def test_who_knows_only_the_secret_is_a_client_and_no_member(members: Any) -> None:
    member = members(member_secret=Secret(b"of members"))
    dialled = in_thread(lambda: dial(member.address, cluster="test", secret=SECRET))
    accepted = await_([member], lambda: member.take(Accepted))
    dialled.result(60).close()
    assert accepted.address
    for said_secret in (b"", SECRET, b"of clients"):
        me = Identity(MEMBER, "test", "f" * 32, "10.0.0.9:5701", SECRET, said_secret)
        sock = connect_raw(member)
        dialing = Dialing(me, os.urandom(32), b"")
        sock.sendall(dialing.start())
        with pytest.raises(HandshakeError) as raised:
            while True:
                answer = await_([member], lambda s=sock: received(s))
                sock.sendall(dialing.feed(answer))
        assert raised.value.kind == "authentication"
        sock.close()
    assert not member.events


def test_who_knows_only_the_secret_cannot_be_joined_as_a_member(members: Any) -> None:
    member, impostor = members(member_secret=Secret(b"of members")), members()
    member.order(Connect(impostor.address))
    failed = await_([member, impostor], lambda: member.take(ConnectFailed))
    assert failed.kind == "authentication"
    assert not impostor.events


def received(sock: socket.socket) -> bytes:
    """What has come on a socket by now."""
    try:
        return sock.recv(4096, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return b""


def test_another_cluster_oneself_and_nobody_are_told_apart(members: Any) -> None:
    first, second = members(), members(cluster="other")
    with socket.socket() as unbound:
        unbound.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{unbound.getsockname()[1]}"
    for target, kind in (
        (second.address, "cluster"),
        (first.address, "self"),
        (f"localhost:{first.address.rpartition(':')[2]}", "self"),
        (free, "unreachable"),
        ("no address", "unreachable"),
        ("host.invalid:5701", "unreachable"),
    ):
        first.order(Connect(target))
        failed = await_([first, second], lambda: first.take(ConnectFailed))
        assert (failed.address, failed.kind) == (target, kind)


def test_who_listens_everywhere_on_any_port_tells_another_host_and_that_port(members: Any) -> None:
    member = members()
    member.order(Listen("0.0.0.0:0", "jet.example:0"))
    told = await_([member], lambda: member.take(Listening)).address
    port = int(told.removeprefix("jet.example:"))
    with socket.create_connection(("127.0.0.1", port), 60):
        pass
    member.order(Listen("127.0.0.1:0", "jet.example:99"))
    assert await_([member], lambda: member.take(Listening)).address == "jet.example:99"


def test_two_that_dial_each_other_at_once_keep_one_connection(members: Any) -> None:
    def once(first: LinkedMember, second: LinkedMember) -> None:
        first.order(Connect(second.address))
        second.order(Connect(first.address))
        await_([first, second], lambda: first.take(PeerUp))
        await_([first, second], lambda: second.take(PeerUp))
        for _ in range(200):
            first.turn()
            second.turn()
        assert not any(isinstance(event, PeerDown | ConnectFailed) for event in first.events + second.events)
        assert len(first.link.peers) == len(second.link.peers) == 1
        first.order(Send(second.uuid, b"hello"))
        assert await_([first, second], lambda: second.take(Received)).payload == b"hello"

    for _ in range(5):
        once(members(), members())


def test_connecting_again_says_that_the_peer_is_up() -> None:
    with linked(2) as (first, second):
        first.order(Connect(second.address))
        assert await_([first, second], lambda: first.take(PeerUp)).peer == second.uuid
        port = second.address.rpartition(":")[2]
        first.order(Connect(f"localhost:{port}"))
        assert await_([first, second], lambda: first.take(PeerUp)).dialed == f"localhost:{port}"
        assert len(second.link.peers) == 1


def test_a_goodbye_says_why_and_a_break_does_not() -> None:
    with linked(2) as (first, second):
        first.order(Disconnect(second.uuid))
        down = await_([first, second], lambda: second.take(PeerDown))
        assert down.reason == "the member has disconnected"
        first.order(Connect(second.address))
        await_([first, second], lambda: first.take(PeerUp))
        await_([first, second], lambda: second.take(PeerUp))
        first.link.peers[second.uuid].wire.close(hard=True)
        assert "reset" in await_([second], lambda: second.take(PeerDown)).reason.lower()


def test_a_process_that_ends_is_dialled_until_nothing_listens_there(members: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as ending:
        ending.setblocking(False)
        member, address = members(), f"127.0.0.1:{ending.getsockname()[1]}"
        member.order(Connect(address))
        accepted: list[socket.socket] = []

        def has_called() -> bool:
            with contextlib.suppress(BlockingIOError):
                accepted.append(ending.accept()[0])
            return bool(accepted)

        await_([member], has_called)
        accepted[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted[0].close()  # resets the connection, as the end of a listener does with what waits there
    failed = await_([member], lambda: member.take(ConnectFailed))
    assert (failed.kind, failed.reason) == ("unreachable", "Connection refused")


def test_a_port_where_all_are_reset_is_given_up(members: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as resetting:
        resetting.setblocking(False)
        member = members()
        member.order(Connect(f"127.0.0.1:{resetting.getsockname()[1]}"))
        times = 0

        def failed() -> Any:
            nonlocal times
            with contextlib.suppress(BlockingIOError):
                resetting.accept()[0].close()
                times += 1
            return member.take(ConnectFailed)

        assert await_([member], failed).kind == "unreachable"
        assert times == 4


def test_a_fenced_member_is_reset_and_never_let_in_again() -> None:
    with linked(2) as (first, second):
        second.order(Send(first.uuid, b"before"))
        await_([first, second], lambda: first.take(Received))
        first.order(Fence(second.uuid))
        await_([first, second], lambda: second.take(PeerDown))
        second.order(Connect(first.address))
        assert await_([first, second], lambda: second.take(ConnectFailed)).kind == "fenced"
        first.order(Connect(second.address))
        assert await_([first, second], lambda: first.take(ConnectFailed)).kind == "fenced"
        assert first.take(Received) is None


def test_of_those_that_were_fenced_the_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "MOST_FENCED", 3)
    with linked(2) as (first, second):
        for number in range(100, 105):
            first.order(Fence(f"{number:032x}"))
        await_([first, second], lambda: first.link.is_fenced(f"{104:032x}"))
        assert [first.link.is_fenced(f"{n:032x}") for n in range(100, 105)] == [False, False, True, True, True]


def test_heartbeats_stop_when_the_member_says_nothing() -> None:
    with linked(2) as (first, second):
        for member in (first, second):
            member.order(SetHeartbeat(1_000_000, 60_000_000_000))
        first.order(Alive())
        heard = [await_([first, second], lambda: second.take(Heard)) for _ in range(3)]
        assert [event.peer for event in heard] == [first.uuid] * 3
        assert heard[0].at_ns < heard[1].at_ns < heard[2].at_ns
        first.order(SetHeartbeat(1_000_000, 0))
        while first.take(Heard) or second.take(Heard):
            pass
        for _ in range(20):
            first.turn(1_000_000)
        before = second.link.peers[first.uuid].bytes_in
        for _ in range(50):
            first.turn(1_000_000)
            second.turn(0)
        assert second.link.peers[first.uuid].bytes_in - before <= HEADER.size * 25


def test_what_is_no_packet_ends_the_connection_with_one_line(caplog: Any) -> None:
    with linked(2) as (first, second):
        first.link.peers[second.uuid].writer.queue(b"\xff" * 64)
        down = await_([first, second], lambda: second.take(PeerDown))
        assert "no packet has kind 255" in down.reason
        assert len([r for r in caplog.records if r.name == "shmjet.link" and r.levelno >= logging.WARNING]) == 1


def test_packets_of_an_execution_that_is_not_open_are_dropped() -> None:
    with linked(2) as (first, second):
        first.link.peers[second.uuid].writer.queue(HEADER.pack(16, DATA, 0, 0, 99, 0, 0, 1, 0) + b"x" * 16)
        first.order(Send(second.uuid, b"still there"))
        assert await_([first, second], lambda: second.take(Received)).payload == b"still there"


# -- connections that have proved nothing -------------------------------------------------------------------------


def connect_raw(member: LinkedMember) -> socket.socket:
    host, _, port = member.address.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=60)
    sock.setblocking(False)
    return sock


def read_to_end(member: LinkedMember, sock: socket.socket) -> bytes:
    got = bytearray()

    def ended() -> bool:
        try:
            data = sock.recv(4096)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True
        got.extend(data)
        return not data

    await_([member], ended)
    sock.close()
    return bytes(got)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREAMBLE.pack(MAGIC, OLDEST - 1),
        PREAMBLE.pack(MAGIC, VERSION) + b"\xff\xff" + b"x" * 100,
        PREAMBLE.pack(MAGIC, VERSION) + b"\x05\x00hello",
        pickle.dumps(os.getpid),
    ],
)
def test_an_unproved_connection_gets_a_refusal_and_one_line_in_the_log(
    members: Any, caplog: Any, monkeypatch: Any, data: bytes
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("something was unpickled")

    member = members()
    sock = connect_raw(member)
    with monkeypatch.context() as patch:
        patch.setattr(pickle, "loads", never)
        patch.setattr(pickle, "Unpickler", never)
        sock.sendall(data)
        said = read_to_end(member, sock)
    assert said.startswith(MAGIC)
    assert b"refused" in said
    assert len([r for r in caplog.records if r.name == "shmjet.link"]) == 1
    assert not member.events


def test_one_who_says_nothing_is_closed_in_time(members: Any, caplog: Any) -> None:
    member = members(limits=Limits(handshake_ns=50_000_000))
    sock = connect_raw(member)
    assert read_to_end(member, sock) == b""
    assert "in time" in caplog.text


def test_beyond_the_limit_the_oldest_unproved_connection_is_told_that_the_member_is_busy(
    members: Any, caplog: Any
) -> None:
    member = members(limits=Limits(unproved=3))
    waiting = [connect_raw(member) for _ in range(3)]
    await_([member], lambda: len(member.link.connections.pending) == 3)
    waiting.append(connect_raw(member))
    said = read_to_end(member, waiting[0])
    assert b"refused" in said
    assert b"busy" in said
    assert len(member.link.connections.pending) == 3
    assert "1 connections were sent away" in caplog.text
    for sock in waiting:
        sock.close()
    await_([member], lambda: not member.link.connections.pending)
    other = members()
    other.order(Connect(member.address))
    await_([member, other], lambda: other.take(PeerUp))


@pytest.mark.parametrize("says", [b"", b"SHM", b"half a hello"])
def test_connections_that_prove_nothing_keep_nobody_out(members: Any, says: bytes) -> None:
    member, other = members(), members()
    unproved = []
    try:
        dialling = Dialing(Identity(CLIENT, "test", "", "", b"a guess"), bytes(32), b"").start()
        for _ in range(200):
            unproved.append(connect_raw(member))
            unproved[-1].send(dialling if says == b"half a hello" else says)
            member.turn()
        await_([member], lambda: len(member.link.connections.pending) == Limits().unproved)
        dialled = in_thread(lambda: dial(member.address, cluster="test", secret=SECRET, timeout=60))
        await_([member], lambda: member.take(Accepted))
        dialled.result(60).close()
        other.order(Connect(member.address))
        await_([member, other], lambda: other.take(PeerUp))
        assert len(member.link.connections.pending) <= Limits().unproved
    finally:
        for sock in unproved:
            sock.close()


def test_a_member_with_enough_clients_tells_further_ones_that_it_is_busy(members: Any) -> None:
    member = members()
    member.order(RefuseClients(False, ("127.0.0.1",)))
    for patience in (0.3, 3.0, 30.0):  # a machine that stands still may take the first of them whole
        dialled = in_thread(lambda given=patience: dial(member.address, cluster="test", secret=SECRET, timeout=given))
        await_([member], dialled.done)
        if isinstance(dialled.exception(0), ShmjetError):
            break
    with pytest.raises(ShmjetError, match="as many clients as it takes"):
        dialled.result(0)
    assert not member.take(Accepted)
    other = members()
    other.order(Connect(member.address))  # a member is not a client
    await_([member, other], lambda: other.take(PeerUp))
    for order in (RefuseClients(False, ("127.0.0.2",)), RefuseClients(False)):
        member.order(order)
        dialled = in_thread(lambda: dial(member.address, cluster="test", secret=SECRET, timeout=60))
        await_([member], lambda: member.take(Accepted))
        dialled.result(60).close()


def test_a_client_that_is_told_busy_tries_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        dialled = in_thread(lambda: dial(address, cluster="test", secret=SECRET, timeout=60))
        for _ in range(2):
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(refusal("busy", "too many"))
        answering = Answering(Identity(MEMBER, "test", "b" * 32, address, SECRET), bytes(32), b"")
        connection, _ = server.accept()
        with connection:
            while not answering.proved:
                connection.sendall(answering.feed(connection.recv(4096)))
            connection.sendall(answering.welcome())
            with dialled.result(60) as dialled_at_last:
                assert dialled_at_last.address == address


def test_a_client_that_is_told_busy_for_too_long_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dialled = in_thread(
            lambda: dial(f"127.0.0.1:{server.getsockname()[1]}", cluster="test", secret=SECRET, timeout=0.05)
        )
        while not dialled.done():
            server.settimeout(0.1)
            with contextlib.suppress(TimeoutError), server.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(refusal("busy", "too many"))
        with pytest.raises((ShmjetError, TimeoutError), match=r"too many|timed out"):
            dialled.result(0)


def test_without_descriptors_a_link_waits_and_goes_on(
    members: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that is ready and gives no connection must not be polled in a busy loop."""
    member = members()
    connections = member.link.connections
    listener, tries = connections.listener, []

    class Exhausted:
        def accept(self) -> Any:
            tries.append(1)
            raise OSError(errno.EMFILE, "Too many open files")

        def __getattr__(self, name: str) -> Any:
            return getattr(listener, name)

    waiting = connect_raw(member)
    await_([member], lambda: connections.pending)  # the one place that can be made is made
    monkeypatch.setattr(connections, "listener", Exhausted())
    another = connect_raw(member)
    await_([member], lambda: len(tries) >= 2)
    assert not connections.pending
    for _ in range(200):
        member.turn()
    assert len(tries) < 10
    assert "raise the limit of open files" in caplog.text
    monkeypatch.setattr(connections, "listener", listener)
    await_([member], lambda: connections.pending)
    waiting.close()
    another.close()


# -- clients --------------------------------------------------------------------------------------------------------


def in_thread(function: Any) -> Any:
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    future = pool.submit(function)
    pool.shutdown(wait=False)
    return future


def test_a_client_that_proves_itself_is_handed_to_the_member(members: Any) -> None:
    member = members()
    dialled = in_thread(lambda: dial(member.address, cluster="test", secret=b"a secret of this test"))
    accepted = await_([member], lambda: member.take(Accepted))
    with dialled.result(60) as connection, socket.socket(fileno=member.fds.pop()) as ours:
        connection.socket.sendall(b"hello")
        assert ours.recv(100) == b"hello"
        ours.sendall(b"you too")
        assert connection.socket.recv(100) == b"you too"
        assert not accepted.tls


def test_a_client_with_a_wrong_secret_gets_an_authentication_error(members: Any) -> None:
    member = members()
    dialled = in_thread(lambda: dial(member.address, cluster="test", secret=b"wrong"))
    await_([member], dialled.done)
    with pytest.raises(AuthenticationError, match="secrets differ"):
        dialled.result(0)
    assert not member.events


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and a certificate of 127.0.0.1 by it."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*words: str) -> None:
        try:
            subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is not installed")

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    openssl("req", *new, "-keyout", "key.pem", "-out", "request", "-subj", "/CN=member")
    sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names"]
    openssl("x509", "-req", "-in", "request", *sign, "-out", "cert.pem")
    openssl("req", "-x509", *new, "-keyout", "stranger.key", "-out", "stranger.pem", "-subj", "/CN=stranger")
    return folder


def files(folder: Path, name: str = "cert", key: str = "key", **more: Any) -> TlsFiles:
    return TlsFiles(
        str(folder / f"{name}.pem"),
        str(folder / f"{key}.{'pem' if key == 'key' else 'key'}"),
        str(folder / "ca.pem"),
        **more,
    )


@pytest.mark.parametrize("mutual", [False, True])
def test_members_talk_through_tls(certificates: Path, mutual: bool) -> None:
    with linked(2, tls=files(certificates, mutual=mutual)) as (first, second):
        payload = os.urandom(1 << 20)
        first.order(Send(second.uuid, payload))
        second.order(Send(first.uuid, payload))
        assert await_([first, second], lambda: second.take(Received)).payload == payload
        assert await_([first, second], lambda: first.take(Received)).payload == payload


def test_mutual_tls_refuses_a_foreign_certificate(members: Any, certificates: Path) -> None:
    first = members(tls=files(certificates, mutual=True))
    second = members(
        tls=TlsFiles(
            str(certificates / "stranger.pem"), str(certificates / "stranger.key"), str(certificates / "ca.pem")
        )
    )
    second.order(Connect(first.address))
    failed = await_([first, second], lambda: second.take(ConnectFailed))
    assert failed.kind in ("authentication", "unreachable")
    assert not any(isinstance(event, PeerUp) for event in first.events)


def test_a_tls_client_is_relayed(members: Any, certificates: Path) -> None:
    member = members(tls=files(certificates))
    tls = TlsFiles(authority=str(certificates / "ca.pem"))
    dialled = in_thread(lambda: dial(member.address, cluster="test", secret=b"a secret of this test", tls=tls))
    accepted = await_([member], lambda: member.take(Accepted))
    assert accepted.tls
    with dialled.result(60) as connection, socket.socket(fileno=member.fds.pop()) as ours:
        ours.settimeout(0.01)
        connection.socket.sendall(b"x" * 100_000)
        got = bytearray()

        def all_there() -> bool:
            with contextlib.suppress(TimeoutError):
                got.extend(ours.recv(1 << 16))
            return len(got) == 100_000

        await_([member], all_there)
        ours.sendall(b"answer")
        answer = in_thread(lambda: connection.socket.recv(100))
        await_([member], answer.done)
        assert answer.result() == b"answer"


@pytest.mark.parametrize("says", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_tls_handshakes_that_never_end_keep_nobody_out(members: Any, certificates: Path, says: bytes) -> None:
    member = members(tls=files(certificates))
    unproved = []
    try:
        for _ in range(200):
            unproved.append(connect_raw(member))
            unproved[-1].send(says)
            member.turn()
        await_([member], lambda: len(member.link.connections.pending) == Limits().unproved)
        tls = TlsFiles(authority=str(certificates / "ca.pem"))
        dialled = in_thread(lambda: dial(member.address, cluster="test", secret=SECRET, tls=tls, timeout=60))
        await_([member], lambda: member.take(Accepted))
        with dialled.result(60) as connection:
            assert connection.address == member.address
    finally:
        for sock in unproved:
            sock.close()


def test_plain_text_at_a_tls_port_is_closed(members: Any, certificates: Path, caplog: Any) -> None:
    member = members(tls=files(certificates))
    sock = connect_raw(member)
    sock.sendall(PREAMBLE.pack(MAGIC, VERSION) + b"hello, hello, hello")
    read_to_end(member, sock)
    assert len([r for r in caplog.records if r.name == "shmjet.link"]) == 1
    assert ssl.OPENSSL_VERSION


def test_who_comes_in_the_clear_is_told_that_a_member_takes_tls_only(members: Any, certificates: Path) -> None:
    secured, clear = members(tls=files(certificates)), members()
    clear.order(Connect(secured.address))
    failed = await_([secured, clear], lambda: clear.take(ConnectFailed))
    assert failed.kind == "tls"
    assert "TLS only" in failed.reason
    client = in_thread(lambda: dial(secured.address, cluster="test", secret=SECRET, timeout=60))
    await_([secured], client.done)
    with pytest.raises(ConfigError, match=r"TLS only.*ClientConfig\.tls"):
        client.result(60)


def test_who_comes_with_tls_is_told_that_a_member_has_none(members: Any, certificates: Path) -> None:
    secured, clear = members(tls=files(certificates)), members()
    secured.order(Connect(clear.address))
    failed = await_([secured, clear], lambda: secured.take(ConnectFailed))
    assert failed.kind == "authentication"
    assert "does not speak TLS" in failed.reason
