"""A member that is lost when its own part of a job has ended, while what it has sent is still on its way."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import shmjet
from shmjet import DAG, EdgeConfig, Execution, JetConfig, MemberLostError, Processor, between
from shmjet.core.inbox import Inbox
from tests.execution.vertices import Emit

SECRET = "a secret of these tests"
ITEM = b"x" * 1000
ITEMS = 600

pytestmark = pytest.mark.slow


class Waiting(Processor):
    """Takes nothing before something writes into a pipe."""

    is_cooperative = False

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def process(self, ordinal: int, inbox: Inbox) -> None:
        self.gate.with_suffix(".first").touch()
        self.gate.read_bytes()
        inbox.clear()


def all_sent(execution: Execution) -> bool:
    source = execution.metrics().vertices.get("source")
    return source is not None and source.emitted_count == ITEMS


def test_the_others_do_not_wait_for_what_it_had_sent(tmp_path: Path, eventually: Callable[..., None]) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET)) as first:
        address = first.cluster.members[0].address
        with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=[address])):
            lost = next(member for member in first.cluster.members if member.address != address)
            dag = DAG()
            source = dag.new_vertex("source", lambda: Emit(lambda i, n: [ITEM] * ITEMS if i else []), 1)
            sink = dag.new_vertex("sink", lambda: Waiting(gate), 1)
            wide = EdgeConfig(queue_size=ITEMS)
            dag.edge(between(source, sink).partitioned(lambda item: 0).distribute_to(address).configure(wide))
            execution = first.new_job(dag).execute()
            eventually(lambda: all_sent(execution))
            eventually(gate.with_suffix(".first").exists)
            os.kill(lost.pid, signal.SIGKILL)
            gate.write_bytes(b"go")
            with contextlib.suppress(MemberLostError):  # unless all had arrived
                execution.result(60)
            assert execution.done()
