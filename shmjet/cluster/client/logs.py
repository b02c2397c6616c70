"""The user's end of the logs: records of member and workers go to this process' own handlers, as if made here.

Each has `job`, `job_id`, `vertex`, `worker` and `member`, so that a formatter or a filter may use them; one from a task
of a pool has `task` and `task_number` as well (`shmjet/pool/logs.py`). Without
a configuration of logging they go to standard error from level INFO on, like the records of most servers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Iterable
from functools import partial

from shmjet.data.decoders import msgpack_decoder
from shmjet.execution.foreign_errors import attempt, traceback_text
from shmjet.execution.logs import MEMBER, SentRecord, is_own
from shmjet.host.terminal_text import clean
from shmjet.ipc.decode_errors import UNREADABLE

_MOST = 256 << 10


class LogSink:
    """Hands records of other processes to the loggers of this one; may be used from any thread.

    Args:
        level: records of shmjet's loggers go to standard error from this level on if there is no handler.
    """

    def __init__(self, level: int) -> None:
        self._level = level
        self._decoder = msgpack_decoder(SentRecord)
        self._fallback: logging.Handler | None = None

    def take(self, records: Iterable[bytes | memoryview], member: str = "", dropped: int = 0) -> None:
        """Hand records on.

        Args:
            records: in msgpack; what cannot be read is left out.
            member: address of the member whose processes sent them; empty for that of this process.
            dropped: how many were left out on the way.
        """
        if dropped:
            logging.getLogger("shmjet.logs").warning(
                "%d log records of member %s were dropped: more than it passes on", dropped, member
            )
        for data in records:
            try:
                sent = self._decoder.decode(data)
            except UNREADABLE:
                continue
            attempt(partial(self._deliver, sent, member), _report)

    def _deliver(self, sent: SentRecord, member: str) -> None:
        record = as_record(sent, member)
        logger = logging.getLogger(sent.name)
        if logger.hasHandlers():
            if logger.isEnabledFor(sent.level):
                logger.handle(record)
        elif sent.level >= (self._level if is_own(sent.name) else logging.WARNING):
            self._to_stderr(record)

    def _to_stderr(self, record: logging.LogRecord) -> None:
        if self._fallback is None:
            self._fallback = logging.StreamHandler()
            self._fallback.setFormatter(_PlaceFormatter("%(asctime)s %(levelname)s %(name)s [%(place)s] %(message)s"))
        self._fallback.setStream(sys.stderr)  # type: ignore[attr-defined]
        self._fallback.handle(record)


def _report(error: BaseException) -> None:
    """Report on standard error what a handler or a filter of the program has raised; nothing else must fail for it."""
    print(f"--- Logging error ---\n{traceback_text(error, error.__traceback__)}", file=sys.stderr)


class LogReceiver:
    """Takes records of an instance's processes and hands them to the loggers of this one.

    Args:
        sock: the reading end; owned by this object.
        level: of its sink.
    """

    def __init__(self, sock: socket.socket, level: int) -> None:
        self._sock = sock
        self._sock.setblocking(False)
        self.sink = LogSink(level)
        self._lock = threading.RLock()
        self._room = memoryview(bytearray(_MOST))  # kept: a new one for each look would cost more than all the rest
        self._closed = False
        self._thread = threading.Thread(target=self._read, name="shmjet-logs", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Hand over all that has been sent so far, in the caller's thread."""
        with self._lock:
            while not self._closed and self._take():
                pass

    def _take(self) -> bool:
        """Hand over one record; False when there is none now."""
        try:
            size = self._sock.recv_into(self._room)
        except BlockingIOError:
            return False
        except OSError:
            size = 0
        if not size:
            self._closed = True
            return False
        self.sink.take((self._room[:size],))
        return True

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._sock, select.POLLIN)
        while not self._closed:
            poller.poll()
            self.drain()

    def leave(self) -> None:
        """Let go of the socket in a forked child, which has no part in it."""
        self._closed = True
        self._sock.close()

    def close(self) -> None:
        """Hand over what is left and let go of the socket; all writers should have ended. May be called twice."""
        self.drain()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._sock.close()


class _PlaceFormatter(logging.Formatter):
    """Knows a field `place`: which process, and for which job, or task of a pool. Its text is fit for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        job, member = getattr(record, "job", ""), getattr(record, "member", "")
        process = f"{record.processName} of {member}" if member else record.processName
        work = job or getattr(record, "task", "")
        record.place = f"{process} {work}" if work else process
        return clean(super().format(record))


def as_record(sent: SentRecord, member: str = "") -> logging.LogRecord:
    """Make a record as it would have been in the process that sent it.

    Args:
        member: address of the member that has that process; empty for that of this process.
    """
    process = "shmjet-member" if sent.worker == MEMBER else f"shmjet-w{sent.worker}"
    name = os.path.basename(sent.path)
    return logging.makeLogRecord(
        {
            **sent.extra,
            "name": sent.name,
            "levelno": sent.level,
            "levelname": logging.getLevelName(sent.level),
            "msg": sent.text,
            "args": (),
            "created": sent.created,
            "msecs": sent.created % 1 * 1000,
            "process": sent.pid,
            "processName": process,
            "thread": 0,
            "threadName": sent.thread,
            "pathname": sent.path,
            "filename": name,
            "module": os.path.splitext(name)[0],
            "lineno": sent.line,
            "funcName": sent.function,
            "exc_text": sent.error,
            "stack_info": sent.stack,
            "worker": sent.worker,
            "member": member,
            "job": sent.job,
            "job_id": sent.job_id,
            "vertex": sent.vertex,
        }
    )
