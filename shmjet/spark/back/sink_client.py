"""Questions from the worker that commits a job to the client that executes it, over a Unix socket.

The socket has an abstract name known to the job only, and the client answers processes of its own user only. A
question is a word, its answer `+` and a text, or `-` and the text of an error. Must not know what is asked.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping

from shmjet.data.errors import ShmjetError
from shmjet.ipc import unix_sockets
from shmjet.spark.errors import SparkError

_CONNECT_S = 10.0
_QUESTION_S = 5.0
PAUSE_S = 0.1
"""How long the server pauses when there is no descriptor for a connection."""


def ask(address: str, question: str) -> str:
    """Ask the client and wait for its answer, however long that takes.

    Raises:
        SparkError: the client does not answer, or its answer is an error; the text says which.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            unix_sockets.connect(connection, address)
            connection.sendall(question.encode() + b"\n")
            connection.settimeout(None)  # Spark's writers take what they take; the client's end closes the socket
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
        except OSError as error:
            raise SparkError(
                f"the process that made shmjet.spark.sink() does not answer ({error}); it has to execute the job, and "
                "to stay until the job has ended"
            ) from error
    if not answer.startswith("+"):
        raise SparkError(answer[1:] or "the process that made shmjet.spark.sink() has ended before it had written")
    return answer[1:]


class AnswerServer:
    """Answers questions in a thread, from now until it is closed.

    Args:
        address: where to listen.
        answers: what gives the answer to each question; an exception is an answer too.
        at_end: called in the thread, last.

    Raises:
        OSError: another process listens there already.
    """

    def __init__(
        self, address: str, answers: Mapping[str, Callable[[], str]], at_end: Callable[[], None] | None = None
    ) -> None:
        self._answers = answers
        self._at_end = at_end
        self._closing = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(address)
            self._listener.listen(8)
        except OSError:
            self._listener.close()
            raise
        self._thread = threading.Thread(target=self._run, name="shmjet-spark-sink", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                try:
                    connection, _ = self._listener.accept()
                except OSError:  # closed, or no descriptor for it
                    self._closing.wait(PAUSE_S)
                    continue
                with connection, contextlib.suppress(OSError):
                    self._answer(connection)
        finally:
            if self._at_end is not None:
                self._at_end()

    def _answer(self, connection: socket.socket) -> None:
        if unix_sockets.peer_user(connection) != os.geteuid():
            return
        connection.settimeout(_QUESTION_S)
        question = connection.makefile("rb").readline(64).decode(errors="replace").strip()
        connection.settimeout(None)
        try:
            answer = "+" + self._answers[question]()
        except Exception as error:
            answer = f"-{_text_of(error)}"
        connection.sendall(answer.encode())

    def close(self) -> None:
        """Stop, after the answer that is being given."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._listener.close()
        if self._thread is not threading.current_thread():
            self._thread.join()


def _text_of(error: Exception) -> str:
    """Return an error's text, that of a foreign one with its type."""
    return str(error) if isinstance(error, ShmjetError) else f"{type(error).__name__}: {error}"
