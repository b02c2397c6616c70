"""A TCP port of the client, on the job's host, for Spark tasks on other hosts.

Each connection proves that it knows the feed's secret, with the members' handshake, and then has a thread here that
speaks with one processor in its place: what comes as bytes it puts into the slot or file that the task was given. Only
for feeds of a Spark master that is not local.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable

from shmjet.cluster.client.endpoint_connection import connect_endpoint
from shmjet.data.errors import ShmjetError
from shmjet.ipc.channel import Channel
from shmjet.net.addresses import join_address
from shmjet.net.admission import Admission, source_of
from shmjet.net.handshake import CLIENT, MEMBER, NONCE_SIZE, Answering, HandshakeError, Identity, refusal
from shmjet.spark import protocol
from shmjet.spark.remote_task import keep_watch
from shmjet.spark.shm_area import AttachedArea

HANDSHAKE_S = 10.0
"""Seconds in all that a new connection has for the handshake."""
MOST_UNPROVED = 64
"""Most connections that have proved nothing; for one more, a connection of the address with the most is closed."""
PAUSE_S = 0.1
"""How long no connections are taken when there is no descriptor for one."""

_log = logging.getLogger("shmjet.spark")


class TcpGateway:
    """A port, open from now until it is closed.

    Args:
        feed: its name, which tasks have to know as well.
        host: where executors reach this host: `spark.driver.host`.
        bind: the address to listen at: `spark.driver.bindAddress`.
        member_socket, execution_id: the job's member and execution.

    Raises:
        OSError: the port cannot be opened.
    """

    def __init__(self, feed: str, host: str, bind: str, member_socket: str, execution_id: int) -> None:
        self._feed = feed
        self._connect: Callable[[int], socket.socket] = lambda number: connect_endpoint(
            member_socket, execution_id, f"{feed}/{number}"
        )
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self.listener = socket.create_server((bind, 0), family=family)
        self.address = join_address(host, self.listener.getsockname()[1])
        """Where tasks connect to."""
        self.secret = os.urandom(32)
        """What tasks have to know."""
        self._lock = threading.Lock()
        self.connections: set[socket.socket] = set()
        self.unproved: Admission[socket.socket] = Admission()
        self._answering: dict[socket.socket, Answering] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="shmjet-spark-gateway", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections, and close all; may be called twice."""
        with self._lock:
            self._closing.set()
            for sock in (self.listener, *self.connections):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _accept(self) -> None:
        with self.listener:
            while True:
                try:
                    sock, where = self.listener.accept()
                except OSError as error:
                    if self._closing.is_set():
                        return
                    self._pause_accepting(error)
                    continue
                host = str(where[0])
                with self._lock:
                    self.connections.add(sock)
                    self.unproved.add(sock, source_of(host))
                    if len(self.unproved) > MOST_UNPROVED:
                        self._evict_unproved()
                try:
                    threading.Thread(
                        target=self._admit, args=(sock, host), name="shmjet-spark-outside", daemon=True
                    ).start()
                except RuntimeError as error:  # no thread can be started
                    self._forget(sock)
                    self._pause_accepting(error)

    def _pause_accepting(self, error: OSError | RuntimeError) -> None:
        """Go on after a connection that could not be taken: it is gone, or there is no descriptor or thread for it."""
        _log.warning("the feed %s cannot take a connection: %s", self._feed, error)
        with self._lock:
            self._evict_unproved()
        self._closing.wait(PAUSE_S)

    def _evict_unproved(self) -> None:
        """Close a connection that has proved nothing; its thread closes the socket."""
        unproved = self.unproved.to_give_up()
        if unproved is not None:
            self.unproved.discard(unproved)
            answering, why = self._answering.get(unproved), "too many connections here have proved nothing yet"
            said = refusal("busy", why) if answering is None else answering.refuse("busy", why)
            with contextlib.suppress(OSError):
                unproved.send(said, socket.MSG_DONTWAIT)
            with contextlib.suppress(OSError):
                unproved.shutdown(socket.SHUT_RDWR)

    def _admit(self, sock: socket.socket, where: str) -> None:
        """Serve a connection to its end."""
        try:
            if not self._closing.is_set():
                self._handshake(sock)
                with self._lock:
                    self.unproved.discard(sock)
                _TaskRelay(sock, self._connect).serve()
        except HandshakeError as error:
            _log.warning("the feed %s has refused a connection from %s: %s", self._feed, where, error)
        except (ConnectionError, ShmjetError) as error:  # the task and Spark learn it from the connection's end
            _log.debug("a task on %s has left the feed %s: %s", where, self._feed, error)
        except OSError as error:
            _log.warning("a task on %s cannot go on feeding %s: %s", where, self._feed, error)
        finally:
            self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self.connections.discard(sock)
            self.unproved.discard(sock)
            self._answering.pop(sock, None)
            sock.close()

    def _handshake(self, sock: socket.socket) -> None:
        """Do the handshake. Raises HandshakeError when it fails, OSError when nothing comes."""
        deadline = time.monotonic() + HANDSHAKE_S
        me = Identity(MEMBER, self._feed, self._feed, self.address, self.secret)
        answering = Answering(me, os.urandom(NONCE_SIZE), b"")
        with self._lock:
            self._answering[sock] = answering
        try:
            while not answering.proved:
                sock.settimeout(max(0.001, deadline - time.monotonic()))
                data = sock.recv(2048)
                if not data:
                    raise HandshakeError("protocol", "it said nothing")
                with self._lock:  # a refusal comes before an answer or behind it
                    sock.sendall(answering.feed(data))
            if answering.hello.role != CLIENT or answering.hello.cluster != self._feed:
                raise HandshakeError("cluster", "it looks for another feed")
        except HandshakeError as error:
            with contextlib.suppress(OSError):
                sock.sendall(answering.refuse(error.kind, str(error)))
            raise
        sock.sendall(answering.welcome())
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_watch(sock)


class _TaskRelay:
    """Acts for a task on another host at one processor.

    Args:
        sock: from the task; stays open.
        connect: connects to the processor of this number.
    """

    def __init__(self, sock: socket.socket, connect: Callable[[int], socket.socket]) -> None:
        self._task = Channel(sock.dup(), protocol.FromOutside)
        self._connect = connect
        self._granted: set[int] = set()
        self._file = -1

    def serve(self) -> None:
        """Pass on the messages of both sides, until one of them leaves.

        Raises:
            ChannelClosed: one has left.
            ShmjetError: the job has ended, or the task sent an invalid message.
        """
        with contextlib.closing(self._task):
            first, _ = self._task.receive()
            if not isinstance(first, protocol.ChooseProcessor):
                raise ShmjetError(f"a task began with {type(first).__name__}")
            self._processor = Channel(self._connect(first.processor), protocol.Answer)
            with contextlib.closing(self._processor):
                self._processor.send(protocol.Hello(False))
                welcome, fds = self._processor.receive()
                self._area = AttachedArea(fds[0], welcome.slot_size, welcome.slots)
                try:
                    self._task.send(welcome)
                    self._relay()
                finally:
                    self._area.close()
                    self._forget_file()

    def _relay(self) -> None:
        poll = select.poll()
        for channel in (self._task, self._processor):
            poll.register(channel.fileno(), select.POLLIN)
        while True:
            poll.poll()
            for answer, fds in self._processor.poll():
                self._from_processor(answer, fds)
            for message, _ in self._task.poll():
                self._from_task(message)

    def _from_processor(self, answer: protocol.Message, fds: list[int]) -> None:
        if isinstance(answer, protocol.Grant):
            self._granted.add(answer.slot)
        elif isinstance(answer, protocol.Spill):
            self._forget_file()
            (self._file,) = fds
        elif isinstance(answer, protocol.Verdict | protocol.Superseded):
            self._granted.clear()
        self._task.send(answer)

    def _from_task(self, message: protocol.Message) -> None:
        if isinstance(message, protocol.Sent):
            size = len(message.data)
            if message.slot not in self._granted or size > self._area.slot_size:
                raise ShmjetError(f"a task fills slot {message.slot} with {size} bytes, which it was not given")
            self._granted.discard(message.slot)
            self._area.slot(message.slot)[:size] = message.data
            self._processor.send(protocol.Filled(message.slot, size))
        elif isinstance(message, protocol.Spilled):
            if self._file < 0:
                raise ShmjetError("a task writes into a file that it was not given")
            left = memoryview(message.data)
            while left:
                left = left[os.write(self._file, left) :]
        else:
            self._processor.send(message)
            if isinstance(message, protocol.End | protocol.Abandon | protocol.Begin):
                self._forget_file()

    def _forget_file(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
