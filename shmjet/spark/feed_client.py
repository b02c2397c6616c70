"""The client's end of a feed: runs Spark's jobs during the engine's job, and reports their outcomes to the processors.

A *round* is one Spark job: the only one of a DataFrame or RDD, or that of one micro-batch of a stream.
"""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from shmjet.cluster.client.endpoint_connection import connect_endpoint
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.ipc.channel import Channel, ChannelClosed
from shmjet.spark import protocol
from shmjet.spark.error_summary import told_by_spark
from shmjet.spark.errors import FeedEndedError, SparkError
from shmjet.spark.links import Destination, host_id
from shmjet.spark.protocol import Mode, Receipt
from shmjet.spark.row_readers import Prepared
from shmjet.spark.tcp_gateway import TcpGateway


class Ties(Protocol):
    """What a feed needs of the instance (`shmjet.cluster.client.client_ties`)."""

    @property
    def member_socket(self) -> str: ...

    def wait_for_id(self) -> int: ...


class Feed:
    """One execution's feed, in the process that holds the SparkSession.

    Args:
        name: by which its processors are found.
        execution: of the job.
        ties: for that execution, to the member that runs it.
        outside: host and address to bind, at which executors on other hosts reach this one (`reached_at`); None when
            there are none.
    """

    def __init__(self, name: str, execution: Future[None], ties: Ties, outside: tuple[str, str] | None = None) -> None:
        self.name = name
        self.execution = execution
        self.ties = ties
        self._outside = outside
        self._gateway: TcpGateway | None = None
        self.group = f"shmjet-{uuid.uuid4()}"
        self._channels: list[Channel] = []
        self._talking = threading.Lock()
        self._connected = False
        self.has_paths = False
        """Whether the processors' memory can be opened by path, as a writer in Spark's JVM has to."""

    # -- rounds --------------------------------------------------------------------------------------------------

    def run(self, number: int, prepared: Prepared, mode: Mode, *, repeatable: bool = False) -> bool:
        """Run one round to its end; False when its rows count already, and nothing was run.

        Args:
            number: of the round; rising.
            prepared: the Spark job.
            mode: when its rows may be seen.
            repeatable: whether Spark may try the round again, so that its failure is not the feed's.

        Raises:
            FeedEndedError: the job has ended.
            Exception: what PySpark raises.
        """
        self.connect()
        if any(reply.is_done for reply in self._ask(protocol.OpenRound(number, prepared.partitions, mode))):
            return False
        destination = Destination(
            self.ties.member_socket,
            self.ties.wait_for_id(),
            self.name,
            len(self._channels),
            number,
            mode is Mode.STREAM,
            (host_id(), socket.gethostname()),
            self._let_in(),
        )
        try:
            receipts = [Receipt(*receipt) for receipt in prepared.run(destination)]
        except BaseException:
            if repeatable:
                self._tell(protocol.GiveUpRound(number))
            raise
        self._ask(protocol.CloseRound(number, receipts))
        return True

    def _let_in(self) -> tuple[str, bytes] | None:
        """Return where tasks on other hosts come in, and the secret that they have to know; None if there are none."""
        if self._outside is None:
            return None
        host, bind = self._outside
        with self._talking:
            if self._gateway is None:
                number = self.ties.wait_for_id()
                try:
                    self._gateway = TcpGateway(self.name, host, bind, self.ties.member_socket, number)
                except OSError as error:
                    raise SparkError(
                        f"no port can be opened for executors on other hosts at {bind!r} (spark.driver.bindAddress): "
                        f"{error}"
                    ) from error
            return self._gateway.address, self._gateway.secret

    def fail(self, summary: str, details: str) -> None:
        """Have the job fail with Spark's message."""
        self.connect()
        self._tell(protocol.Failure(summary, details))

    def finish(self) -> None:
        """Say that no round will follow, so that the source ends when all has been emitted."""
        self.connect()
        self._tell(protocol.Finish())

    def close(self) -> None:
        """Hang up; may be called twice."""
        with self._talking:
            for channel in self._channels:
                channel.close()
            self._channels.clear()
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.close()

    # -- talking -------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect to all processors, the first of which says how many there are.

        Raises:
            FeedEndedError: there are none any more.
        """
        with self._talking:
            if self._connected:
                return
            number = self.ties.wait_for_id()
            if not number:
                raise FeedEndedError("the job was never started")
            processors = 1
            while len(self._channels) < processors:
                try:
                    sock = connect_endpoint(self.ties.member_socket, number, f"{self.name}/{len(self._channels)}")
                    channel = Channel(sock, protocol.Answer)
                    self._channels.append(channel)
                    channel.send(protocol.Hello(True))
                    welcome = channel.receive()[0]
                    processors = welcome.processors
                    self.has_paths = is_writable(welcome.path) and (self.has_paths or len(self._channels) == 1)
                except (ShmjetError, MemberLostError, ChannelClosed) as error:
                    raise FeedEndedError(f"the job has ended: {error}") from error
            if self._outside is not None:
                self.has_paths = False  # Spark's JVM on another host cannot open them
            self._connected = True

    def _ask(self, question: protocol.Message) -> list[Any]:
        """Ask all processors and wait for their answers."""
        with self._talking:
            self._send(question)
            try:
                return [channel.receive()[0] for channel in self._channels]
            except (ChannelClosed, OSError) as error:
                raise FeedEndedError("the job has ended") from error

    def _tell(self, message: protocol.Message) -> None:
        with self._talking:
            self._send(message)

    def _send(self, message: protocol.Message) -> None:
        try:
            for channel in self._channels:
                channel.send(message)
        except (ChannelClosed, OSError) as error:
            raise FeedEndedError("the job has ended") from error


def reached_at(context: Any) -> tuple[str, str] | None:
    """Return at which host, and which address of it, executors reach the driver; None when all are on its host."""
    if str(context.master).startswith("local"):
        return None
    host = str(context.getConf().get("spark.driver.host", ""))
    return host, str(context.getConf().get("spark.driver.bindAddress", host))


def is_writable(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY))
    except OSError:  # some systems hide processes from each other
        return False
    return True


class FeedThread:
    """Runs a feed's only round during the job, and cancels it when the job ends first.

    Args:
        feed: of the execution.
        context: the SparkContext.
        prepare: makes the Spark job; called in the thread, with whether the job's memory can be opened by path.
        choose: the mode for what `prepare` made.
    """

    def __init__(
        self, feed: Feed, context: Any, prepare: Callable[[bool], Prepared], choose: Callable[[Prepared], Mode]
    ) -> None:
        from pyspark import InheritableThread

        self.feed = feed
        self._context = context
        self._prepare = prepare
        self._choose = choose
        self._thread = InheritableThread(target=self._run, name="shmjet-spark-feed")
        self._thread.daemon = True

    def start(self) -> None:
        """Start it; it waits until the job runs."""
        self._thread.start()

    def _run(self) -> None:
        feed = self.feed
        try:
            try:
                feed.connect()
                self._context.setJobGroup(feed.group, f"feeds shmjet execution {feed.ties.wait_for_id()}", True)
                prepared = self._prepare(feed.has_paths)
                feed.run(0, prepared, self._choose(prepared))
                feed.finish()
            except FeedEndedError:
                pass  # the job's own error says why
            except BaseException as error:
                feed.fail(*told_by_spark(error))
        except FeedEndedError:
            pass
        finally:
            feed.close()

    def ended(self, _: object = None) -> None:
        """Take the end of the execution: what still runs in Spark is cancelled, from a thread of its own."""
        if self._thread.is_alive():
            canceller = threading.Thread(target=self._cancel, name="shmjet-spark-cancel", daemon=True)
            canceller.start()

    def _cancel(self) -> None:
        while self._thread.is_alive():  # a job of the group may be about to start
            try:
                self._context.cancelJobGroup(self.feed.group)
            except Exception:  # Spark is gone, and its jobs with it
                return
            self._thread.join(0.2)
