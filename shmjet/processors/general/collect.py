"""The sink whose items the client reads while the job runs, and the client's end of it.

Each processor writes what it gets into a temporary file without a name and hands the file's descriptor to the client
over a Unix socket, once, when it begins; after that a byte over the socket says that there is more to read. So results
wait on disk and not in memory, a client that is slow or busy holds nothing up, neither end polls, and when both ends
are gone nothing is left. A bounded queue would stop a job whose client waits for the end before it reads the results.

The socket's name is an abstract one, known to the job only, and the client takes descriptors only from processes of
its own user. Processors on other hosts put what they would write into a list of the cluster, from where the client
fetches it into a file of its own as it reads (`remote_results`). Must not know: jobs and instances; what the client is
told of an execution is a future.

The file holds frames: the length of a pickle (8 bytes, little-endian), then the pickle of a list of items.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import IO, Any

from shmjet.core.latency_policy import policy_in
from shmjet.core.processor import ProcessorContext, ProcessorMetaSupplier, ProcessorSupplier
from shmjet.data.errors import ProcessorError, ShmjetError
from shmjet.ipc import unix_sockets
from shmjet.processors.general.base import BulkProcessor, Supply
from shmjet.processors.general.client_ends import ClientEnds
from shmjet.processors.general.remote_results import RemoteFrames, RemoteFrameWriter, RemoteResults, list_of, name_of
from shmjet.processors.general.spill_files import SpillErrors, spill_file, spill_folder
from shmjet.ring import pickling

_LENGTH = struct.Struct("<Q")
_BACKLOG = 4096
_HELLO_S = 5.0
"""Seconds that the client waits for the descriptor of a processor that has connected."""
_LONGEST_WAIT_MS = 200
_REMOTE_WAIT_MS = 50
"""How long at most a reader waits before it asks the cluster for more."""


class CollectProcessor(BulkProcessor):
    """Writes what it gets where the client finds it.

    Args:
        address: of the client's socket.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._file: IO[bytes] | None = None
        self._socket: socket.socket | None = None
        self._remote: RemoteFrameWriter | None = None
        self._folder = ""
        self.next_call = math.inf

    def start(self, context: ProcessorContext) -> None:
        """Make the file and hand it to the client."""
        self._folder = spill_folder(context.job_config.spill_folder)
        self._file = spill_file(self._folder, "collect()")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix_sockets.connect(self._socket, self._address)
            socket.send_fds(self._socket, [b"f"], [self._file.fileno()])
        except OSError as error:
            frames = list_of(context.grid, self._address)
            if frames is not None:
                self._remote = RemoteFrameWriter(frames, policy_in(context).result_delay_ns / 1e9)
                return
            raise ProcessorError(
                f"vertex {context.vertex_name!r}: no client collects its results ({error}); a job with collect() is "
                "executed by the process that made it, which keeps running until the job has ended"
            ) from error
        self._socket.setblocking(False)

    def absorb(self, ordinal: int, items: list[Any]) -> None:
        """Write a list."""
        assert self._file is not None
        parts = _pickled(items)
        size = sum(memoryview(part).nbytes for part in parts)
        if self._remote is not None:
            self._remote.write([_LENGTH.pack(size), *parts])
            self.next_call = math.inf if self._remote.send_if_due() else self._remote.patience
            return
        with SpillErrors(self._folder, "collect()", "write results"):
            self._write([_LENGTH.pack(size), *parts])
        self._notify()

    def try_process(self) -> bool:
        """Send what waits for more to go with it."""
        if self._remote is not None:
            self.next_call = math.inf if self._remote.send_if_due() else self._remote.patience
        return True

    def finish(self) -> bool:
        """Send what is left."""
        if self._remote is not None:
            self._remote.send()
        return True

    def close(self) -> None:
        """Let go of both; the client sees the socket's end. What is left after an error is sent first."""
        if self._remote is not None:
            with contextlib.suppress(Exception):
                self._remote.send()
        for opened in (self._socket, self._file):
            if opened is not None:
                opened.close()

    def _write(self, parts: Sequence[Any]) -> None:
        assert self._file is not None
        left = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        while left:
            written = os.writev(self._file.fileno(), left[:512])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]

    def _notify(self) -> None:
        assert self._socket is not None
        try:
            self._socket.send(b".")
        except BlockingIOError:
            pass  # it has bytes enough to wake up for
        except OSError:
            pass  # it does not want more; the job goes on, as other sinks may matter


def _pickled(items: list[Any]) -> Sequence[Any]:
    """Pickle a list; an error names the type of the item that cannot be pickled, not that of the list."""
    try:
        return pickling.dumps(items)
    except pickling.ItemEncodingError:
        for item in items:
            pickling.dumps(item)
        raise


class ResultSpool:
    """The results of the latest execution, in the client; they are gone when nothing refers to the spool any more."""

    def __init__(self) -> None:
        self.run: Run | GivenRun | None = None
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

    preferred_local_parallelism = 1
    is_cooperative = True

    def __init__(self, spool: ResultSpool) -> None:
        self.address = f"\0shmjet-results-{os.urandom(16).hex()}"
        self._spool: Callable[[], ResultSpool | None] = weakref.ref(spool)

    def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
        """Return a supplier that is the same everywhere."""
        return dict.fromkeys(addresses, ProcessorSupplier.of(Supply(CollectProcessor, self.address)))

    def on_client(self, execution: Future[None]) -> None:
        """Be ready for the results of an execution; those of the one before are gone.

        Raises:
            ShmjetError: the one before is still running.
        """

        def opened() -> Run:
            spool = self._spool()
            if spool is not None:
                spool.clear()
            open_list = getattr(execution, "open_list", None)  # a plain future has no cluster
            remote = None if open_list is None else open_list(name_of(self.address))
            run = Run(self.address, execution, remote)
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
            spool.run = GivenRun(read, error)

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.address = state["address"]
        self._spool = _no_spool


def _no_spool() -> None:
    return None


class GivenRun:
    """The results of a job that has ended and ran elsewhere; they can be read as those of a `Run`.

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

    def close(self) -> None:
        """Free the results. Reading them afterwards is an error."""
        self._read = None


def _given_up() -> ShmjetError:
    return ShmjetError("these results have been given up: their job was executed again, or they were closed")


class _Stream:
    """The results of one processor, as the client sees them."""

    __slots__ = ("file", "socket")

    def __init__(self, file: int, connection: int) -> None:
        self.file = file
        self.socket = connection
        """-1 once the processor is through."""


class _Descriptors:
    """The open descriptors of a run; closed with it, or when nothing refers to it any more."""

    def __init__(self) -> None:
        self.listener: socket.socket | None = None
        self.wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.streams: list[_Stream] = []

    def close(self) -> None:
        self.stop_listening()
        for fd in (self.wakeup, *(fd for stream in self.streams for fd in (stream.file, stream.socket))):
            if fd >= 0:
                os.close(fd)
        self.wakeup = -1
        self.streams = []

    def stop_listening(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None


def _listener(address: str) -> socket.socket:
    """Return where processors on this host connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


class Run:
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
        weakref.finalize(self, self._open.close)
        self._open.listener = _listener(address)
        self._remote: RemoteResults | None = None
        if remote is not None:
            self._remote = RemoteResults(remote)
            self._open.streams.append(_Stream(self._remote.file, -1))

    def __iter__(self) -> Iterator[Any]:
        """Yield all results, in the order of each processor; then raise what the execution ended with, if it failed."""
        offsets: dict[int, int] = {}
        while True:
            ended = self.execution.done()
            if self._remote is not None:
                self._fetch(self._remote, ended)
            position, progress = 0, False
            while (stream := self._stream(position)) is not None:
                items, offsets[position] = self._read(stream, offsets.get(position, 0))
                progress |= bool(items)
                yield from items
                position += 1
            if not progress:
                if ended:
                    break
                self._wait()
        self.execution.result(0)

    def end(self) -> None:
        """Take in what is still on its way; called when the execution has ended."""
        with self._lock:
            self._accept()
            self._open.stop_listening()
            if self._open.wakeup >= 0:
                os.eventfd_write(self._open.wakeup, 1)

    def close(self) -> None:
        """Free the results. Reading them afterwards is an error."""
        with self._lock:
            self._closed = True
            self._open.close()
        if self._remote is not None:
            self._remote.give_up()

    def _fetch(self, remote: RemoteResults, ended: bool) -> None:
        """Take what processors on other hosts have left for us; after the execution's end what there is at all."""
        try:
            remote.fetch(self._keep, last=ended)
        except ShmjetError:
            if ended:  # they were lost with who had them; mostly the execution has failed for the same reason
                self.execution.result(0)
                raise

    def _keep(self, write: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise _given_up()
            write()

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
            head = os.pread(stream.file, _LENGTH.size, at)
            if len(head) < _LENGTH.size:
                return [], at
            (size,) = _LENGTH.unpack(head)
            payload = bytearray(size)
            view, done = memoryview(payload), 0
            while done < size:
                got = os.preadv(stream.file, [view[done:]], at + _LENGTH.size + done)
                if not got:
                    return [], at
                done += got
        items: list[Any] = pickling.loads(payload, copy=False)
        return items, at + _LENGTH.size + size

    def _accept(self) -> None:
        """Take in the processors that have connected."""
        while self._open.listener is not None:
            try:
                connection, _ = self._open.listener.accept()
            except BlockingIOError:
                return
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
        for fd, _ in poll.poll(_LONGEST_WAIT_MS if self._remote is None else _REMOTE_WAIT_MS):
            if fd in streams:
                self._drain(streams[fd])

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
