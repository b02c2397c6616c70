"""Processor endpoints: a program that is not a client talks to one processor of a running job."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any

import pytest

import shmjet
from shmjet import DAG, JetInstance, MemberLostError, Processor, ShmjetError
from shmjet.cluster.client.endpoint_connection import connect_endpoint
from shmjet.cluster.settings import SOCKET_NAME


class Echo(Processor):
    """Sends back what the first connection sends, then ends."""

    def init(self, outbox: Any, context: Any) -> None:
        super().init(outbox, context)
        self.endpoint = context.open_endpoint(f"echo/{context.global_index}")
        self.connection: Any = None

    def complete(self) -> bool:
        if self.connection is None:
            self.connection = self.endpoint.take()
            return False
        said: bytes = self.connection.recv(16)
        self.connection.sendall(said)
        return True

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


def echoing(jet: JetInstance, processors: int) -> shmjet.Execution:
    dag = DAG()
    dag.new_vertex("echo", Echo, processors)
    return jet.new_job(dag).execute()


def socket_of(jet: JetInstance) -> str:
    return str(jet.folder / SOCKET_NAME)


def test_each_processor_has_its_own_endpoint(jet: JetInstance) -> None:
    execution = echoing(jet, 2)
    for number in (1, 0):  # whether it is open yet or not
        with connect_endpoint(socket_of(jet), execution.id, f"echo/{number}") as sock:
            sock.sendall(f"hello {number}".encode())
            assert sock.recv(16) == f"hello {number}".encode()
    execution.result(60)


def test_a_connection_to_an_execution_that_has_ended_is_refused(jet: JetInstance) -> None:
    execution = echoing(jet, 1)
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    with pytest.raises(ShmjetError, match="has ended; no processor is at its endpoint 'echo/0'"):
        connect_endpoint(socket_of(jet), execution.id, "echo/0")


def test_a_connection_that_waits_for_an_endpoint_ends_with_the_execution(jet: JetInstance) -> None:
    execution = echoing(jet, 1)
    with connect_endpoint(socket_of(jet), execution.id, "echo/0") as sock:
        sock.sendall(b"x")
        with pytest.raises(ShmjetError, match="has ended"):
            connect_endpoint(socket_of(jet), execution.id, "no such endpoint")
    execution.result(60)


def test_a_path_without_a_member_is_named() -> None:
    with pytest.raises(MemberLostError, match="no member listens at /nowhere"):
        connect_endpoint("/nowhere", 1, "echo/0")


def test_two_processors_at_one_endpoint_are_an_error(jet: JetInstance) -> None:
    class Twice(Echo):
        def init(self, outbox: Any, context: Any) -> None:
            super().init(outbox, context)
            context.open_endpoint(f"echo/{context.global_index}")

    dag = DAG()
    dag.new_vertex("twice", Twice, 1)
    with pytest.raises(shmjet.JobFailedError, match="same endpoint 'echo/0'"):
        jet.new_job(dag).run(60)
