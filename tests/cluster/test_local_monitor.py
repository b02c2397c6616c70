"""Watching a member from outside: by shared memory, without the right to write, whatever comes and goes."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shmjet import DAG, JetInstance, JobConfig, MemberLostError, ShmjetError
from shmjet.cluster.folder import running_folders
from shmjet.cluster.monitor import local
from shmjet.cluster.monitor.local import AttachedMember, attach_all
from shmjet.cluster.protocol import CoordinatorLost, Done
from shmjet.cluster.settings import SOCKET_NAME
from shmjet.ipc.channel import Channel
from shmjet.observe.flow import FlowMeter
from tests.cluster.held import held_dag

Eventually = Callable[[Callable[[], object]], None]


@pytest.fixture
def member(jet: JetInstance) -> Iterator[AttachedMember]:
    with AttachedMember(jet.folder) as attached:
        yield attached


def test_a_member_is_found_by_its_folder_and_says_who_it_is(jet: JetInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine,) = jet.cluster.members
    assert jet.folder in running_folders()
    monkeypatch.setattr(local, "running_folders", lambda: [jet.folder, jet.folder / "none"])
    found = attach_all()
    try:
        attached = next(each for each in found if each.pid == mine.pid)
        assert attached.about.uuid == mine.uuid
        assert tuple(attached.about.workers) == mine.workers
        assert attached.about.client_pid == os.getpid()
        assert attached.name == "dev"
        assert 0 <= time.time() - attached.about.started_at < 3600
        assert "secret" not in repr(attached.about)
    finally:
        for each in found:
            each.close()


def test_a_running_job_is_read_from_memory_that_cannot_be_written(
    jet: JetInstance, member: AttachedMember, tmp_path: Path, eventually: Eventually
) -> None:
    job = jet.new_job(held_dag(tmp_path / "gate"), JobConfig(name="held"))
    execution = job.execute()
    meter = FlowMeter()

    def is_held_up() -> bool:
        (row,) = member.running()
        assert row.job_name == "held"
        flow = meter.take(member.metrics(row), time.time())
        return flow.bottleneck is not None and flow.bottleneck.text == "source → sink" and flow.bottleneck.waiting > 0.5

    def emitted(metrics: Any) -> int:
        return int(metrics.vertices["source"].emitted_count)

    try:
        eventually(lambda: [row.status for row in member.running()] == ["running"])
        eventually(is_held_up)
        eventually(lambda: emitted(member.metrics(member.running()[0])) == emitted(execution.metrics()))
        (row,) = member.running()
        seen, told = member.metrics(row), execution.metrics()
        assert seen.vertices["source"].emitted_count == told.vertices["source"].emitted_count > 0
        assert seen.vertices["source"].processors[0].work_total == 1_000_000
        assert 0 < seen.edges[0].queues_size <= 2 * seen.edges[0].queues_capacity
        assert seen.edges[0].waited_ns < told.edges[0].waited_ns
        with member.arena(row) as arena:
            assert arena is not None
            for memory in (arena[0], member.control):
                assert memory.readonly
                with pytest.raises(TypeError):
                    memory[0] = 1
    finally:
        (tmp_path / "gate").unlink()
    execution.result(60)


def test_what_comes_and_goes_is_noticed(
    jet: JetInstance, member: AttachedMember, mapping: Callable[..., DAG], eventually: Eventually
) -> None:
    job = jet.new_job(mapping(lambda x: x + 1), JobConfig(name="short"))
    for _ in range(3):
        before = {row.id for row in member.executions()}
        execution = job.execute()
        execution.result(60)
        eventually(lambda before=before: {row.id for row in member.executions()} > before)  # type: ignore[misc]
        row = next(row for row in member.executions() if row.id == execution.id)
        eventually(lambda row=row: row not in member.running())  # type: ignore[misc]
        metrics = member.metrics(row)
        assert metrics.vertices["map"].received_count == 100
        assert {p.state for vertex in metrics.vertices.values() for p in vertex.processors} == {"end"}


def test_an_execution_can_be_cancelled_from_outside(
    jet: JetInstance, member: AttachedMember, tmp_path: Path, eventually: Eventually
) -> None:
    execution = jet.new_job(held_dag(tmp_path / "gate")).execute()
    eventually(lambda: any(row.id == execution.id for row in member.running()))
    member.cancel(next(row for row in member.running() if row.id == execution.id))
    with pytest.raises(CancelledError):
        execution.result(60)


def test_a_failure_is_told_in_one_line(jet: JetInstance, member: AttachedMember, mapping: Callable[..., DAG]) -> None:
    execution = jet.new_job(mapping(lambda x: x // 0)).execute()
    assert execution.exception(60) is not None
    row = next(row for row in member.executions() if row.id == execution.id)
    assert (row.status, row.error) == ("failed", "ZeroDivisionError: integer division or modulo by zero")


def test_a_client_that_says_what_the_member_does_not_know_is_sent_away(jet: JetInstance) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(60)
        stranger.connect(str(jet.folder / SOCKET_NAME))
        body = msgspec.msgpack.encode(["FromTheFuture", 1])
        stranger.sendall(len(body).to_bytes(4, "little") + b"\0" + body)
        assert stranger.recv(1) == b""
    assert jet.cluster.members[0].pid  # and serves the others


def test_there_is_no_member_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(MemberLostError, match="no member in"):
        AttachedMember(tmp_path)


def test_what_a_member_tells_its_clients_unasked_is_no_answer(
    member: AttachedMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member first speaks of its coordinator, and answers what was asked long ago."""
    first: list[Any] = [CoordinatorLost("it is gone"), Done(1 << 40)]
    here, receive = threading.get_ident(), Channel.receive

    def talkative(channel: Channel) -> Any:
        return (first.pop(0), []) if first and threading.get_ident() == here else receive(channel)

    monkeypatch.setattr(Channel, "receive", talkative)
    with pytest.raises(ShmjetError, match="there is no job"):
        member.job("no such job")
    assert not first
