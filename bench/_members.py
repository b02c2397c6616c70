"""Members for benches: real workers and real links, each a process, and a coordinator of a few lines in this one.

What is measured is how data gets from the workers of one member to those of another; who coordinates plays no part.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from shmjet.core import DAG, JobConfig
from shmjet.execution.arena_format import format_arena
from shmjet.execution.code import code_of
from shmjet.execution.control import BLOCK_SIZE, WorkerControl, control_size, link_offset
from shmjet.execution.job_plan import JobShape, MemberSlot
from shmjet.execution.layout import lay_out, slab_size
from shmjet.execution.messages import (
    Command,
    Deploy,
    Ended,
    Failed,
    Finish,
    Finished,
    Ready,
    Report,
    Start,
    Stop,
    WorkerSettings,
)
from shmjet.execution.plan import describe, make_plan
from shmjet.ipc.channel import Channel
from shmjet.net import messages as link
from shmjet.ring.arena import Arena

ROOT = str(Path(__file__).resolve().parents[1])
BENCH = str(Path(__file__).resolve().parent)
RING_MEMORY = 256 << 20
SECRET = b"bench bench bench bench bench"


def worker_main(index: int, fds: Sequence[int], size: int, settings: str, core: int) -> None:
    """Be a worker of a member of this bench."""
    import mmap

    from shmjet.execution.worker import Worker
    from shmjet.host.child_process import die_with_parent, pin

    die_with_parent(os.getppid())
    pin(core)
    channel, control, eventfd = fds
    memory = memoryview(mmap.mmap(control, size))
    block = WorkerControl(memory, index * BLOCK_SIZE)
    decoded = msgspec.json.decode(settings, type=WorkerSettings)
    Worker(
        index,
        Channel(socket.socket(fileno=channel), Command),
        control_memory=memory,
        block=block,
        settings=decoded,
        open_grid=dict,
        link_eventfd=eventfd,
    ).run()


class _Process:
    """A child with a channel."""

    def __init__(self, program: str, fds: Sequence[int], receives: Any) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"import sys; sys.path[:0] = {[ROOT, BENCH]!r}\n" + program % theirs.fileno()],
                pass_fds=[theirs.fileno(), *fds],
            )
        self.channel = Channel(ours, receives)

    def await_(self, kind: type[Any]) -> Any:
        """Return the next message of a kind."""
        while True:
            message, _ = self.channel.receive()
            if isinstance(message, kind):
                return message
            if isinstance(message, Failed):
                raise AssertionError(message.failure.text)

    def close(self) -> None:
        self.channel.close()
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class BenchMember:
    """One member.

    Args:
        number: its place.
        cores: one per worker.
        tls: files of its certificate, or None.
    """

    def __init__(self, number: int, cores: Sequence[int], tls: link.TlsFiles | None = None) -> None:
        self.uuid = f"{number + 1:032x}"
        self.control = Arena.create(control_size(len(cores)), label="control")
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK)
        settings = WorkerSettings("", len(cores), "", 50_000, 1_000_000, False, 271, None)
        encoded = msgspec.json.encode(settings).decode()
        self.blocks, self.workers = [], []
        for index, core in enumerate(cores):
            self.blocks.append(WorkerControl(self.control.memory, index * BLOCK_SIZE))
            fds = f"[%d, {self.control.fd}, {self._eventfd}]"
            call = f"worker_main({index}, {fds}, {self.control.size}, {encoded!r}, {core})"
            program = f"from _members import worker_main\n{call}"
            self.workers.append(_Process(program, [self.control.fd, self._eventfd], Report))
        self.link = _Process("from shmjet.net.link_main import main\nmain(%d)", [], link.Event)
        offset = link_offset(len(cores))
        setup = link.Setup(
            self.uuid, "bench", link.Secret(SECRET), tls, link.Limits(), 100_000_000, self.control.size, offset
        )
        self.link.channel.send(setup, [self.control.fd, self._eventfd])
        self.link.channel.send(link.Listen("127.0.0.1:0"))
        self.address = self.link.await_(link.Listening).address

    def tell(self, worker: int, message: object, fds: Sequence[int] = ()) -> None:
        """Tell a worker something."""
        self.workers[worker].channel.send(message, fds)
        self.blocks[worker].doorbell.post()

    def close(self) -> None:
        for index, worker in enumerate(self.workers):
            self.tell(index, Stop())
            worker.close()
        self.link.channel.send(link.Stop())
        self.link.close()
        for block in self.blocks:
            block.doorbell.close()
            block.release()
        os.close(self._eventfd)
        self.control.close()


class BenchCluster:
    """Members that are connected with each other.

    Args:
        cores: of the workers, by member.
        tls: files of a certificate for all of them, or None.
    """

    def __init__(self, cores: Sequence[Sequence[int]], tls: link.TlsFiles | None = None) -> None:
        self.members = [BenchMember(i, own, tls) for i, own in enumerate(cores)]
        self._next = 1
        for i, member in enumerate(self.members):
            for other in self.members[i + 1 :]:
                member.link.channel.send(link.Connect(other.address))
                member.link.await_(link.PeerUp)
                other.link.await_(link.PeerUp)

    def run(self, dag: DAG, parallelism: int = 1, *, flow_control: bool = True) -> float:
        """Run a DAG on all members; returns seconds from its deployment to the end of the last worker's part."""
        execution, self._next = self._next, self._next + 1
        shape = describe(dag)
        start = time.perf_counter()
        parts = [self._deploy(execution, i, dag, shape, parallelism, flow_control) for i in range(len(self.members))]
        if len(self.members) > 1:  # the workers of one member alone start by themselves
            for member in self.members:
                for worker in member.workers:
                    worker.await_(Ready)
            for member in self.members:
                for index in range(len(member.workers)):
                    member.tell(index, Start(execution))
        ended = [worker.await_(Ended) for member in self.members for worker in member.workers]
        seconds = time.perf_counter() - start
        messages = iter(ended)
        for member in self.members:
            for index, worker in enumerate(member.workers):
                if not next(messages).finished:
                    member.tell(index, Finish(execution, None))
                    worker.await_(Finished)
            if len(self.members) > 1:
                member.link.channel.send(link.CloseExecution(execution))
                member.link.await_(link.ExecutionClosed)
        for arena in parts:
            arena.close()
        return seconds

    def _deploy(
        self, execution: int, place: int, dag: DAG, shape: JobShape, parallelism: int, flow_control: bool
    ) -> Arena:
        member = self.members[place]
        slot = MemberSlot(
            place,
            [m.uuid for m in self.members],
            [m.address for m in self.members],
            [p % len(self.members) for p in range(271)],
            parallelism,
            RING_MEMORY,
        )
        plan = make_plan(
            shape,
            worker_count=len(member.workers),
            non_cooperative=set(),
            ring_memory=RING_MEMORY,
            partition_count=271,
            slot=slot,
        )
        layout = lay_out(plan)
        arena = Arena.create(layout.size, label="bench", later=slab_size(plan) * plan.endpoint_count)
        format_arena(plan, layout, arena.memory)
        if plan.start_barrier_endpoint is not None:
            order = link.OpenExecution(execution, plan, arena.size, arena.reserved, flow_control)
            member.link.channel.send(order, [arena.fd])
            opened = member.link.await_(link.ExecutionOpened)
            if opened.error:
                raise AssertionError(opened.error)
        code = cloudpickle.dumps(code_of(dag, shape))
        config = cloudpickle.dumps(JobConfig())
        for index in range(len(member.workers)):
            deploy = Deploy(
                execution,
                "bench",
                None,
                code,
                plan,
                execution,
                arena.size,
                arena.reserved,
                False,
                config,
                {},
                {},
                [os.fsencode(BENCH)],
            )
            member.tell(index, deploy, [arena.fd])
        return arena

    def pids(self) -> dict[str, int]:
        """Return the processes of all members by role: `worker 0.1` is the second one of the first member."""
        found = {}
        for place, member in enumerate(self.members):
            for index, worker in enumerate(member.workers):
                found[f"worker {place}.{index}"] = worker.process.pid
            found[f"link {place}"] = member.link.process.pid
        return found

    def close(self) -> None:
        """End all processes."""
        for member in self.members:
            member.close()

    def __enter__(self) -> BenchCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_results(folder: str) -> list[Any]:
    """Return what processors have left in files of a folder, and remove it."""
    found = []
    for path in sorted(Path(folder).iterdir()):
        found.append(json.loads(path.read_text()))
        path.unlink()
    return found
