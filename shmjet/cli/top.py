"""`shmjet top`: what running members of this user do, again and again, from shared memory alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from shmjet.cli.members import members
from shmjet.cli.outcome import Outcome
from shmjet.cluster.attach import AttachedMember
from shmjet.cluster.protocol import ExecutionRow
from shmjet.core import MemberLostError
from shmjet.execution.collect import worker_metrics
from shmjet.execution.metrics import Metrics
from shmjet.observe.flow import Flow, FlowMeter, WorkerFlow
from shmjet.observe.numbers import time_text
from shmjet.observe.table import flow_view, worker_table

_FIRST_S = 0.3
"""Seconds between the two looks that rates need, for whoever wants only one picture."""


@dataclass(frozen=True)
class Seen:
    """A member at one moment, with its workers and the executions that run."""

    member: AttachedMember
    workers: tuple[WorkerFlow, ...]
    jobs: list[tuple[ExecutionRow, Flow]]


class Watcher:
    """Looks at members again and again.

    Args:
        found: the members; one that ends is left out from then on.
    """

    def __init__(self, found: Sequence[AttachedMember]) -> None:
        self.members = list(found)
        self._meters: dict[tuple[int, int], FlowMeter] = {}
        self._workers: dict[int, FlowMeter] = {}

    def look(self, now: float) -> list[Seen]:
        """Return what each member does.

        Args:
            now: seconds since 1970.
        """
        shown = []
        for member in list(self.members):
            try:
                shown.append(self._look_at(member, now))
            except MemberLostError:
                self.members.remove(member)
                member.close()
        return shown

    def _look_at(self, member: AttachedMember, now: float) -> Seen:
        jobs = []
        for row in member.running():
            metrics = member.metrics(row)
            if metrics.vertices:
                meter = self._meters.setdefault((member.pid, row.id), FlowMeter())
                jobs.append((row, meter.take(metrics, now)))
        return Seen(member, self._look_at_workers(member, now), jobs)

    def _look_at_workers(self, member: AttachedMember, now: float) -> tuple[WorkerFlow, ...]:
        found = [worker_metrics(index, core, member.control) for index, core in enumerate(member.cores)]
        meter = self._workers.setdefault(member.pid, FlowMeter())
        return meter.take(Metrics({}, [], found, execution_start_time=now), now).workers


def top(*, pid: int | None, once: bool, as_json: bool, interval: float) -> int:
    """Show what members do until Ctrl-C, or once.

    Args:
        pid: of the member, of its client or of a worker; None: all of this user's.
        once: print one picture.
        as_json: print one JSON list.
        interval: seconds between two pictures.
    """
    with members(pid) as found:
        watcher = Watcher(found)
        if as_json or once or not sys.stdout.isatty():
            watcher.look(time.time())
            time.sleep(_FIRST_S)
            shown = watcher.look(time.time())
            if as_json:
                print(json.dumps([_plain(each) for each in shown], indent=2))
            else:
                Console(highlight=False).print(_picture(shown))
            return Outcome.OK
        with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
            while watcher.members:
                live.update(_picture(watcher.look(time.time())), refresh=True)
                time.sleep(interval)
        print("no member of yours is running any more")
    return Outcome.OK


def _picture(shown: Sequence[Seen]) -> RenderableType:
    if not shown:
        return Text("no member of yours is running on this host")
    parts: list[RenderableType] = []
    for each in shown:
        member, jobs = each.member, each.jobs
        up = time_text(time.time() - member.about.started_at)
        line = Text(f"member {member.pid}", style="bold reverse")
        line.append(f" {member.name}, up {up}, started by {member.about.client_pid}, ", style="not reverse")
        line.append(f"{len(jobs)} running", style="not reverse")
        parts += [line, worker_table(each.workers, _memory(each.workers))]
        for row, flow in jobs:
            parts += [Text(""), flow_view(_without_workers(flow), row.job_name or f"job {row.job_id}")]
        parts.append(Text(""))
    return Group(*parts)


def _without_workers(flow: Flow) -> Flow:
    """Return a job's flow without the workers, which are shown once for all jobs."""
    return Flow(flow.seconds, flow.vertices, flow.edges, (), flow.bottleneck)


def _plain(seen: Seen) -> dict[str, Any]:
    member, memory = seen.member, _memory(seen.workers)
    return {
        "pid": member.pid,
        "cluster": member.name,
        "up_s": round(time.time() - member.about.started_at, 1),
        "workers": [
            {
                "index": worker.index,
                "pid": worker.pid,
                "core": worker.core,
                "busy": worker.busy,
                "tasklets": worker.tasklets,
                "rss": memory.get(worker.pid),
            }
            for worker in seen.workers
        ],
        "jobs": [
            {"id": row.job_id, "name": row.job_name, "execution": row.id, "status": row.status, **flow.to_dict()}
            for row, flow in seen.jobs
        ],
    }


def _memory(workers: Sequence[WorkerFlow]) -> dict[int, int]:
    found = {}
    for worker in workers:
        try:
            found[worker.pid] = psutil.Process(worker.pid).memory_info().rss
        except psutil.Error:
            continue
    return found
