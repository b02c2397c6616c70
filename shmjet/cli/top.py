"""`shmjet top`: the activity of running members, once a second.

Of members of this user on this host from shared memory alone; of a cluster over the network, by asking one of its
members. A job in which several members have parts is shown once, as a whole.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from shmjet.cli.members import leading, life_facts, seen_members, suspended_by
from shmjet.cli.outcome import Outcome
from shmjet.cluster.monitor.base import MonitoredMember
from shmjet.cluster.protocol import ExecutionRow
from shmjet.core import JobStatus, MemberLostError, ProcessingGuarantee
from shmjet.execution.metrics import Metrics
from shmjet.host.terminal_text import clean_line
from shmjet.observe.event_time import JobTime, explain_time
from shmjet.observe.flow import Flow, FlowMeter, WorkerFlow
from shmjet.observe.numbers import amount_text, count_text, time_text
from shmjet.observe.table import flow_view, worker_table

_FIRST_S = 0.3
"""Seconds between the two samples that rates need, for a single snapshot."""


_MOST_STATES = 3
"""Vertices whose part of a snapshot is shown, the largest first."""


@dataclass(frozen=True)
class Seen:
    """A member at one moment, with its workers and the executions that run."""

    member: MonitoredMember
    workers: tuple[WorkerFlow, ...]
    memory: dict[int, int]
    jobs: list[tuple[ExecutionRow, Flow, JobTime]]


class Watcher:
    """Samples members repeatedly.

    Args:
        found: the members; a member that ends is left out from then on.
    """

    def __init__(self, found: Sequence[MonitoredMember]) -> None:
        self.members = list(found)
        self._meters: dict[tuple[str, int], FlowMeter] = {}
        self._workers: dict[str, FlowMeter] = {}

    def look(self, now: float) -> list[Seen]:
        """Return what each member does.

        Args:
            now: seconds since 1970.
        """
        running: list[tuple[MonitoredMember, ExecutionRow]] = []
        for member in list(self.members):
            with self._unless_lost(member):
                running += [(member, row) for row in member.running()]
        jobs = leading(running)
        shown = []
        for member in list(self.members):
            with self._unless_lost(member):
                rows = [row for shower, row in jobs if shower is member]
                shown.append(self._look_at(member, rows, now))
        return shown

    @contextlib.contextmanager
    def _unless_lost(self, member: MonitoredMember) -> Iterator[None]:
        try:
            yield
        except MemberLostError:
            self.members.remove(member)
            member.close()

    def _look_at(self, member: MonitoredMember, rows: Sequence[ExecutionRow], now: float) -> Seen:
        jobs = []
        for row in rows:
            metrics = member.whole(row)
            if metrics.vertices:
                meter = self._meters.setdefault((member.about.uuid, row.id), FlowMeter())
                jobs.append((row, meter.take(metrics, now), explain_time(metrics, now=now)))
        meter = self._workers.setdefault(member.about.uuid, FlowMeter())
        workers = meter.take(Metrics({}, [], member.workers(), execution_start_time=now), now).workers
        return Seen(member, workers, {pid: memory for pid, (_, memory) in member.usage().items()}, jobs)


def top(
    *,
    pid: int | None,
    once: bool,
    as_json: bool,
    interval: float,
    address: str | None = None,
    config: Path | None = None,
) -> int:
    """Show what members do until Ctrl-C, or once.

    Args:
        pid: of the member, of its client or of a worker; None: all of this user's.
        once: print one snapshot.
        as_json: print one JSON list.
        interval: seconds between two pictures.
        address: of a cluster's members; None: those of this host.
        config: settings for that.
    """
    with seen_members(pid, address, config) as found:
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
        print("no member is running any more")
    return Outcome.OK


def _picture(shown: Sequence[Seen]) -> RenderableType:
    if not shown:
        return Text("no member of yours is running on this host")
    parts: list[RenderableType] = []
    for each in shown:
        member, jobs = each.member, each.jobs
        up = time_text(time.time() - member.about.started_at)
        about = member.about
        line = Text(
            f"member {clean_line(about.address) if about.address != 'local' else member.pid}", style="bold reverse"
        )
        starter = f"started by {about.client_pid}" if about.client_pid else f"pid {member.pid}"
        line.append(f" {clean_line(member.name)}, up {up}, {starter}, ", style="not reverse")
        line.append(f"{len(jobs)} running", style="not reverse")
        parts += [line, worker_table(each.workers, each.memory)]
        for row, flow, at in jobs:
            shown_flow = flow if row.cause is None else at_rest(flow)
            parts += [Text(""), flow_view(_without_workers(shown_flow), row.job_name or f"job {row.job_id}")]
            if (life := life_text(row, time.time())) is not None:
                parts.append(Text(life, style="dim"))
            parts += [Text(clean_line(line), style="dim") for line in at.lines()]
        parts.append(Text(""))
    return Group(*parts)


def life_text(row: ExecutionRow, now: float) -> str | None:
    """Say in a line what is not in a job's flow: suspension, attempts, the last snapshot; None for nothing.

    Args:
        row: of the execution.
        now: seconds since 1970.
    """
    parts = []
    if (by := suspended_by(row)) is not None:
        parts.append("suspended by a user" if by == "user" else f"suspended: {clean_line(by)}")
    elif row.status != JobStatus.RUNNING.value:
        parts.append(row.status.replace("_", " "))
    if row.waits_for:
        parts.append(f"waits for {clean_line(row.waits_for)}")
    if row.attempts > 1:
        parts.append(f"attempt {row.attempts}")
    if row.restart is not None:
        took = "" if row.restart.seconds is None else f" took {time_text(row.restart.seconds)}"
        parts.append(f"last restart{took}: {clean_line(row.restart.cause)}")
    if len(row.members) > 1:
        parts.append(f"{len(row.members)} members")
    if row.guarantee != ProcessingGuarantee.NONE.value:
        parts.append(row.guarantee.replace("_", " "))
    if (last := row.snapshot) is not None:
        size = amount_text(last.size, "bytes")
        ago = time_text(max(0.0, now - last.started_at))
        parts.append(
            f"snapshot {last.id}: {size}, {count_text(last.keys)} keys in {time_text(last.seconds)}, {ago} ago"
        )
        largest = sorted(last.vertices.items(), key=lambda pair: -pair[1].size)[:_MOST_STATES]
        parts += [f"{clean_line(name)} {amount_text(state.size, 'bytes')}" for name, state in largest if state.size]
    return " · ".join(parts) or None


def at_rest(flow: Flow) -> Flow:
    """Return the flow of a suspended job: what it has done stays, nothing moves, and no end is in sight."""
    still = [
        replace(vertex, received_rate=0.0, emitted_rate=0.0, busy=0.0, busiest=0.0, work=None)
        for vertex in flow.vertices
    ]
    return replace(flow, vertices=tuple(still), bottleneck=None)


def _without_workers(flow: Flow) -> Flow:
    """Return a job's flow without the workers, which are shown once for all jobs."""
    return replace(flow, workers=())


def _plain(seen: Seen) -> dict[str, Any]:
    member = seen.member
    return {
        "pid": member.pid,
        "address": member.about.address,
        "cluster": member.name,
        "up_s": round(time.time() - member.about.started_at, 1),
        "workers": [
            {
                "index": worker.index,
                "pid": worker.pid,
                "core": worker.core,
                "busy": worker.busy,
                "tasklets": worker.tasklets,
                "rss": None if worker.pid is None else seen.memory.get(worker.pid),
            }
            for worker in seen.workers
        ],
        "jobs": [
            {
                "id": row.job_id,
                "name": row.job_name,
                "execution": row.id,
                "status": row.status,
                **life_facts(row),
                **flow.to_dict(),
                "time": at.to_dict()["vertices"],
            }
            for row, flow, at in seen.jobs
        ],
    }
