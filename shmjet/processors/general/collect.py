"""The sink whose items the client reads while the job runs, and the client's end of it.

Each processor writes what it gets into a temporary file without a name and hands the file's descriptor to the client
over a Unix socket, once, when it begins; after that a byte over the socket says that there is more to read. So results
wait on disk and not in memory, a client that is slow or busy holds nothing up, neither end polls, and when both ends
are gone nothing is left. A bounded queue would stop a job whose client waits for the end before it reads the results.

The socket's name is an abstract one, known to the job only, and the client takes descriptors only from processes of
its own user. Processors on other hosts put what they would write into a list of the cluster, from where the client
fetches it into a file of its own when it is told to (`remote_results`). Must not know: jobs and instances; what the
client is told of an execution is a future.

The file holds frames, see `result_frames`. Of a job with EXACTLY_ONCE the client reads what is committed, so results
come with each snapshot.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

from shmjet.core.processor import ProcessorMetaSupplier, ProcessorSupplier
from shmjet.data.errors import ShmjetError
from shmjet.ipc import unix_sockets
from shmjet.processors.general.base import Supply
from shmjet.processors.general.client_ends import ClientEnds, Ties
from shmjet.processors.general.collect_sink import CollectProcessor
from shmjet.processors.general.remote_results import RemoteFrames, RemoteResults, name_of
from shmjet.processors.general.result_frames import CommitScanner, next_frame
from shmjet.ring import pickling

_BACKLOG = 4096
_HELLO_S = 5.0
"""Seconds that the client waits for the descriptor of a processor that has connected."""
_LONGEST_WAIT_MS = 200
"""How long a reader waits at most: another one may have taken the sign that there is more."""


class ResultSpool:
    """The results of the latest execution, in the client; they are gone when nothing refers to the spool any more."""

    def __init__(self) -> None:
        self.run: CollectedResults | GivenResults | None = None
        """None before the first execution."""

    def clear(self) -> None:
        """Free the results of an execution that has ended."""
        if self.run is not None and self.run.execution.done():
            self.run.close()


class CollectSupplier(ProcessorMetaSupplier):
    """Makes the processors, and in the client puts the results of each execution into a spool.

    It keeps no spool alive: jobs that have ended are remembered for long, and have their suppliers' methods. A pickled
    copy knows the address only.

    Args:
        spool: of the reader of the results.
    """

    state_kind = "collect"
    preferred_local_parallelism = 1
    is_cooperative = True

    def __init__(self, spool: ResultSpool) -> None:
        self.address = f"\0shmjet-results-{os.urandom(16).hex()}"
        self._spool: Callable[[], ResultSpool | None] = weakref.ref(spool)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return a supplier that is the same everywhere."""
        return dict.fromkeys(addresses, ProcessorSupplier.of(Supply(CollectProcessor, self.address)))

    def on_client(self, execution: Future[None], ties: Ties | None = None) -> None:
        """Be ready for the results of an execution; those of the one before are gone.

        Args:
            execution: which begins.
            ties: to the cluster; None where all processors are on this host.

        Raises:
            ShmjetError: the one before is still running.
        """

        def opened() -> CollectedResults:
            spool = self._spool()
            if spool is not None:
                spool.clear()
            name = name_of(self.address)
            remote = None if ties is None else ties.open_list(name)
            run = CollectedResults(self.address, execution, remote)
            if ties is not None and remote is not None:
                run.listen(name, ties)
            if spool is not None:
                spool.run = run
            return run

        _at_client.open(self.address, execution, opened)

    def give(self, read: Callable[[], Iterator[Any]], error: BaseException | None = None) -> None:
        """Put results on the spool that another engine has made.

        Args:
            read: gives them from the beginning, as often as it is called.
            error: what their job failed with.
        """
        spool = self._spool()
        if spool is not None:
            spool.clear()
            spool.run = GivenResults(read, error)

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.address = state["address"]
        self._spool = _no_spool


def _no_spool() -> None:
    return None


class GivenResults:
    """The results of a job that has ended and ran elsewhere; they can be read as those of a `CollectedResults`.

    Args:
        read: gives the results from the beginning.
        error: what the job failed with.
    """

    def __init__(self, read: Callable[[], Iterator[Any]], error: BaseException | None) -> None:
        self.execution: Future[None] = Future()
        if error is None:
            self.execution.set_result(None)
        else:
            self.execution.set_exception(error)
        self._read: Callable[[], Iterator[Any]] | None = read

    def __iter__(self) -> Iterator[Any]:
        """Yield all results; then raise what the job failed with."""
        if self._read is None:
            raise _given_up()
        yield from self._read()
        self.execution.result(0)

    def so_far(self) -> list[Any]:
        """Return all results."""
        if self._read is None:
            raise _given_up()
        return list(self._read())

    def first(self, count: int) -> list[Any]:
        """Return some results from the beginning."""
        if self._read is None:
            raise _given_up()
        return list(islice(self._read(), count))

    def close(self) -> None:
        """Free the results. Reading them afterwards is an error."""
        self._read = None


def _given_up() -> ShmjetError:
    return ShmjetError("these results have been given up: their job was executed again, or they were closed")


class _Stream:
    """The results of one processor, as the client sees them."""

    __slots__ = ("commits", "file", "socket")

    def __init__(self, file: int, connection: int) -> None:
        self.file = file
        self.socket = connection
        """-1 once the processor is through."""
        self.commits = CommitScanner(file)


class _Descriptors:
    """The open descriptors of a run; closed with it, or when nothing refers to it any more."""

    def __init__(self) -> None:
        self.listener: socket.socket | None = None
        self.wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._waking = threading.Lock()
        self.streams: list[_Stream] = []

    def wake(self) -> None:
        """Wake the readers that wait. Never waits itself."""
        with self._waking:
            if self.wakeup >= 0:
                os.eventfd_write(self.wakeup, 1)

    def close(self) -> None:
        self.stop_listening()
        with self._waking:
            self._close_all()

    def _close_all(self) -> None:
        for fd in (self.wakeup, *(fd for stream in self.streams for fd in (stream.file, stream.socket))):
            if fd >= 0:
                os.close(fd)
        self.wakeup = -1
        self.streams = []

    def stop_listening(self) -> None:
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.close()


def listen_for_results(address: str) -> socket.socket:
    """Return where processors on this host connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class CollectedResults:
    """The results of one execution: they can be read while it runs and afterwards, from the beginning each time.

    Args:
        address: where processors connect to.
        execution: ends with the execution, and has its error.
        remote: a list of the cluster for processors that cannot connect; None where there are none.
    """

    def __init__(self, address: str, execution: Future[None], remote: RemoteFrames | None = None) -> None:
        self.execution = execution
        self._lock = threading.Lock()
        self._open = _Descriptors()
        self._closed = False
        self._committed: dict[bytes, int] = {}
        weakref.finalize(self, self._open.close)
        self._open.listener = listen_for_results(address)
        self._remote: RemoteResults | None = None
        if remote is not None:
            self._remote = RemoteResults(remote)
            self._open.streams.append(_Stream(self._remote.file, -1))
        self._bell: Any = None
        self._is_rung = True
        """Whether there may be more in the list."""

    def listen(self, name: str, ties: Ties) -> None:
        """Be told, by an observable of that name, when there is something new in the list."""
        ring = weakref.WeakMethod(self._ring)  # the bell does not keep the results alive

        def told() -> None:
            method = ring()
            if method is not None:
                method()

        self._bell = ties.open_bell(name, told)

    def _ring(self) -> None:
        """Take that there is more in the list; called in a thread of the connection."""
        self._is_rung = True
        self._open.wake()

    def __iter__(self) -> Iterator[Any]:
        """Yield all results, in the order of each processor; then raise what the execution ended with, if it failed."""
        offsets: dict[int, int] = {}
        while True:
            ended = self.execution.done()
            progress = False
            for items in self._round(offsets, ended):
                progress = True
                yield from items
            if not progress:
                if ended:
                    break
                self._wait()
        self.execution.result(0)

    def so_far(self) -> list[Any]:
        """Return the results that have come, without waiting for others."""
        offsets: dict[int, int] = {}
        found: list[Any] = []
        while lists := list(self._round(offsets, self.execution.done())):
            for items in lists:
                found += items
        return found

    def first(self, count: int) -> list[Any]:
        """Return some of the results that have come, `count` if there are so many, without waiting for others."""
        offsets: dict[int, int] = {}
        found: list[Any] = []
        while len(found) < count and (lists := list(self._round(offsets, self.execution.done()))):
            for items in lists:
                found += items
        return found[:count]

    def _round(self, offsets: dict[int, int], ended: bool) -> Iterator[list[Any]]:
        """Yield the next items of each processor, as far as there are any.

        Args:
            offsets: how far each has been read; changed here.
            ended: the execution has.
        """
        if self._remote is not None and (self._is_rung or ended):
            self._is_rung = False
            self._fetch(self._remote, ended)
        self._scan()
        position = 0
        while (stream := self._stream(position)) is not None:
            items, offsets[position] = self._read(stream, offsets.get(position, 0))
            if items:
                yield items
            position += 1

    def end(self) -> None:
        """Take in what is still on its way; called when the execution has ended."""
        with self._lock:
            self._accept()
            self._open.stop_listening()
            self._open.wake()

    def close(self) -> None:
        """Free the results. Reading them afterwards is an error."""
        with self._lock:
            self._closed = True
            self._open.close()
        if self._remote is not None:
            self._remote.give_up()
        self._stop_listening()

    def _stop_listening(self) -> None:
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.close()

    def _fetch(self, remote: RemoteResults, ended: bool) -> None:
        """Take what processors on other hosts have left for us; after the execution's end what there is at all."""
        try:
            remote.fetch(self._keep, last=ended)
            if ended:
                self._stop_listening()
        except ShmjetError:
            if ended:  # they were lost with who had them; mostly the execution has failed for the same reason
                self.execution.result(0)
                raise

    def _keep(self, write: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise _given_up()
            write()

    def _scan(self) -> None:
        """Find out how far results have been committed."""
        with self._lock:
            if not self._closed:
                self._accept()
                for stream in self._open.streams:
                    self._committed |= stream.commits.scan()

    def _stream(self, position: int) -> _Stream | None:
        with self._lock:
            if self._closed:
                raise _given_up()
            self._accept()
            return self._open.streams[position] if position < len(self._open.streams) else None

    def _read(self, stream: _Stream, at: int) -> tuple[list[Any], int]:
        """Return the items of the next frame, and where it ends; nothing when it is not there, or not whole, yet."""
        with self._lock:
            if self._closed:
                return [], at
            self._committed |= stream.commits.scan()
            payload, at = next_frame(stream.file, at, stream.commits.limit(self._committed))
            if payload is None:
                return [], at
        items: list[Any] = pickling.loads(payload, copy=False)
        return items, at

    def _accept(self) -> None:
        """Take in the processors that have connected."""
        while (listener := self._open.listener) is not None:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError:
                if self._open.listener is None:  # the interpreter exits and closes it, which waits for no lock
                    return
                raise
            with connection:
                if not unix_sockets.may_ask(connection):
                    continue
                connection.settimeout(_HELLO_S)
                try:
                    _, files, _, _ = socket.recv_fds(connection, 1, 1)
                except OSError:
                    continue  # it died before it said anything
                if files:
                    os.set_inheritable(files[0], False)
                    connection.setblocking(False)
                    self._open.streams.append(_Stream(files[0], connection.detach()))

    def _wait(self) -> None:
        """Wait until there may be more: from a processor, of processors, or the end."""
        poll = select.poll()
        with self._lock:
            if self._closed:
                return
            streams = {stream.socket: stream for stream in self._open.streams if stream.socket >= 0}
            for waited in (self._open.wakeup, self._open.listener, *streams):
                if waited is not None:
                    poll.register(waited, select.POLLIN)
            wakeup = self._open.wakeup
        for fd, _ in poll.poll(_LONGEST_WAIT_MS):
            if fd in streams:
                self._drain(streams[fd])
            elif fd == wakeup:
                self._calm()

    def _calm(self) -> None:
        """Take back the sign that there is more; that of the end stays."""
        with self._lock:
            if self._open.wakeup >= 0 and not self.execution.done():
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._open.wakeup)

    def _drain(self, stream: _Stream) -> None:
        with self._lock:
            try:
                if stream.socket >= 0 and not os.read(stream.socket, 1 << 16):
                    os.close(stream.socket)
                    stream.socket = -1
            except BlockingIOError:
                pass
            except OSError:
                os.close(stream.socket)
                stream.socket = -1


_at_client = ClientEnds("collect()")
