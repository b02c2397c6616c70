"""Questions of Spark's workers to the client: whatever happens to one, the next is answered."""

from __future__ import annotations

import errno
import itertools
import os
import socket
from typing import Any

import pytest

from shmjet.ipc import unix_sockets
from shmjet.spark.back import sink_client
from shmjet.spark.back.sink_client import AnswerServer, ask
from shmjet.spark.errors import SparkError

_numbers = itertools.count()


@pytest.fixture
def address() -> str:
    return f"\0shmjet-test-{os.getpid()}-{next(_numbers)}"


def test_without_descriptors_the_client_waits_and_answers_later(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    class Exhausted(socket.socket):
        def accept(self) -> Any:
            tries.append(1)
            if len(tries) <= 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    monkeypatch.setattr(sink_client, "PAUSE_S", 0.01)
    monkeypatch.setattr(sink_client.socket, "socket", Exhausted)
    answering = AnswerServer(address, {"ready": lambda: "yes"})
    monkeypatch.undo()
    try:
        assert ask(address, "ready") == "yes"
        assert len(tries) >= 4
    finally:
        answering.close()


def test_a_question_that_is_no_text_and_an_answer_that_fails_cost_nobody_else_an_answer(address: str) -> None:
    def fail() -> str:
        raise ValueError("not today")

    answering = AnswerServer(address, {"ready": lambda: "yes", "fails": fail})
    try:
        for question in (b"\xff\xfe\n", b"unknown\n"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(60)
                unix_sockets.connect(connection, address)
                connection.sendall(question)
                assert connection.recv(100).startswith(b"-")
        with pytest.raises(SparkError, match="ValueError: not today"):
            ask(address, "fails")
        assert ask(address, "ready") == "yes"
    finally:
        answering.close()
