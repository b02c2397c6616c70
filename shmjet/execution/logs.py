"""Log records of member and workers on their way to the process that started them.

All processes of an instance hold one end of a socket, the user's process holds the other. A record is one datagram,
sent when it is made, so that it is there before the job has ended; where the reader is slow its writers wait, as they
would for a pipe. What user code says through any logger of `logging` comes along, with job, vertex and worker.

Where the job belongs to another process, a client of the cluster or another member's program, its records go to the
member as well, which passes them on (`shmjet.cluster.requests.log_relay`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import sys
from typing import Any, NamedTuple

import msgspec

from shmjet.core.context import MetaSupplierContext, ProcessorContext, SupplierContext
from shmjet.data.sendable_text import sendable
from shmjet.execution.foreign_errors import traceback_text
from shmjet.execution.messages import LogSubscription
from shmjet.host.terminal_text import clean

MEMBER = -1
"""The worker's number in records of the member itself."""

RELAYED = struct.Struct("<q")
"""In front of a record that goes to the member: the execution that it is about."""

_MOST_TEXT = 32 << 10
"""Characters of a text in a record; a datagram has its limits."""
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SIMPLE = (str, int, float, bool, type(None))


class SentRecord(msgspec.Struct, frozen=True, array_like=True):
    """A log record. `extra` has what was given as `extra=`, as far as it is plain."""

    name: str
    level: int
    text: str
    created: float
    pid: int
    thread: str
    path: str
    line: int
    function: str
    error: str | None
    stack: str | None
    worker: int
    job: str
    job_id: str
    vertex: str
    extra: dict[str, Any]


class About(NamedTuple):
    """What a record is about: a job, by name or else id, and one of its vertices. It keeps nothing else alive."""

    job: str = ""
    job_id: str = ""
    vertex: str = ""


def about(context: ProcessorContext | SupplierContext | MetaSupplierContext) -> About:
    """Return what the records of a processor with this context are about."""
    return About(context.job_config.name or context.job_id, context.job_id, context.vertex_name)


class Speaker:
    """Whose code runs in this process, or ran last."""

    about = About()
    """Set before each call of user code."""


speaker = Speaker()


class Listeners:
    """The jobs whose records of this process are wanted elsewhere, by the job's id."""

    def __init__(self) -> None:
        self._wishes: dict[str, tuple[int, LogSubscription]] = {}

    def add(self, job_id: str, execution: int, wish: LogSubscription | None) -> None:
        """Note who wants the records of an execution; None: no one."""
        if wish is not None:
            self._wishes[job_id] = execution, wish

    def remove(self, execution: int) -> None:
        """Forget it: the execution has ended here."""
        for job_id in [job_id for job_id, (number, _) in self._wishes.items() if number == execution]:
            del self._wishes[job_id]

    def execution_of(self, job_id: str, name: str, level: int) -> int | None:
        """Return the execution that a record of this logger and level is wanted for; None when it is not."""
        execution, wish = self._wishes.get(job_id, (None, None))
        if wish is None:
            return None
        return execution if level >= (wish.level if is_own(name) else wish.root_level) else None


listeners = Listeners()


def is_own(name: str) -> bool:
    """Say whether a logger is one of shmjet's, those of processors among them."""
    return name.split(".", 1)[0] == "shmjet"


class SendingHandler(logging.Handler):
    """Sends each record to the user's process; to standard error where that is gone.

    Args:
        sock: leads there.
        worker: this process' number.
        waits: wait for the reader; otherwise a record for which there is no room is dropped, and counted.
        relay: leads to the member, for listeners elsewhere; None where there can be none.
    """

    def __init__(self, sock: socket.socket, worker: int, *, waits: bool, relay: socket.socket | None = None) -> None:
        super().__init__()
        self._relay = relay
        self._sock = sock
        self._worker = worker
        self._flags = 0 if waits else socket.MSG_DONTWAIT
        self._dropped = 0
        self._encoder = msgspec.msgpack.Encoder()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                text = f"{dropped} records were dropped before this one"
                self._send(logging.makeLogRecord({**vars(record), "msg": text, "args": ()}))
            self._send(record)
        except BlockingIOError:
            self._dropped += 1
        except OSError:  # the user's process is gone, and soon this one will be
            print(clean(self.format(record)), file=sys.stderr)
        except Exception:
            self.handleError(record)

    def _send(self, record: logging.LogRecord) -> None:
        subject = About() if record.name in ("shmjet.worker", "shmjet.member") else speaker.about
        error = record.exc_text
        if record.exc_info and not error:
            _, raised, trace = record.exc_info
            error = "" if raised is None else traceback_text(raised, trace).rstrip("\n")
        sent = SentRecord(
            sendable(record.name),
            record.levelno,
            _cut(record.getMessage()),
            record.created,
            os.getpid(),
            sendable(record.threadName or ""),
            sendable(record.pathname),
            record.lineno,
            sendable(record.funcName or ""),
            None if error is None else _cut(error),
            None if record.stack_info is None else _cut(record.stack_info),
            self._worker,
            *subject,
            {
                sendable(key): sendable(value) if isinstance(value, str) else value
                for key, value in vars(record).items()
                if key not in _PLAIN and isinstance(value, _SIMPLE)
            },
        )
        data = self._encoder.encode(sent)
        if self._relay is not None:
            execution = listeners.execution_of(sent.job_id, sent.name, sent.level)
            if execution is not None:
                with contextlib.suppress(OSError):  # the member is gone, or the record too long
                    self._relay.send(RELAYED.pack(execution) + data)
        self._sock.send(data, self._flags)


def send_logs(
    sock: socket.socket, worker: int, level: int, root_level: int, relay: socket.socket | None = None
) -> None:
    """Send the records of this process from now on.

    Args:
        sock: to the user's process.
        worker: this process' number, or `MEMBER`.
        level: of records of shmjet's own loggers, those of processors among them.
        root_level: of all others.
        relay: leads to the member, for listeners elsewhere.
    """
    send_through(SendingHandler(sock, worker, waits=worker != MEMBER, relay=relay), level, root_level)


def send_through(handler: SendingHandler, level: int, root_level: int) -> None:
    """Send the records of this process by this handler alone from now on; the levels are those of `send_logs`."""
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(root_level)
    logging.getLogger("shmjet").setLevel(level)


def _cut(text: str) -> str:
    text = sendable(text)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} … ({len(text) - _MOST_TEXT:,} more characters)"
