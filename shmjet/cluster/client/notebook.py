"""Instances, clusters, jobs and executions as a person looks at them in a notebook.

Nothing in here raises because a member is gone or an instance has been shut down, and nothing waits long for one: what
is not there is told in a line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shmjet.data.html_tables import note, section, table
from shmjet.execution.metrics import NO_METRICS, Metrics
from shmjet.execution.metrics_html import moment_text
from shmjet.host.bounded_call import NoAnswerError, call_within
from shmjet.host.process_usage import used_by
from shmjet.observe.numbers import bytes_text

if TYPE_CHECKING:
    from shmjet.cluster.client.execution import Execution
    from shmjet.cluster.client.instance import JetInstance
    from shmjet.cluster.client.job import Job
    from shmjet.cluster.client.members import Cluster, Member

_MOST = 50
"""Members that are shown."""
_JOBS = 10
"""Jobs that are shown."""


def cluster_html(cluster: Cluster) -> str:
    """Return the members of a cluster."""
    try:
        members = call_within(lambda: cluster.members)
    except NoAnswerError as error:
        return section("Cluster", note(str(error)))
    return section(f"Cluster of {_counted(len(members), 'member')}", *_members(members))


def instance_html(instance: JetInstance) -> str:
    """Return an instance with its members and the jobs that have been executed last."""
    title = repr(instance)[1:-1]
    try:
        members, jobs = call_within(lambda: (instance.cluster.members, instance.jobs()))
    except NoAnswerError as error:
        return section(title, note(str(error)))
    parts = _members(members)
    if jobs:
        rows = [[job.name or "", job.id, job.status.name] for job in jobs[: -_JOBS - 1 : -1]]
        parts.append(table(["job", "id", "status"], rows))
    if len(jobs) > _JOBS:
        parts.append(note(f"... and {len(jobs) - _JOBS:,} jobs before"))
    return section(title, *parts)


def job_html(job: Job) -> str:
    """Return a job: its latest execution, and its DAG with what has gone through it so far."""
    metrics = NO_METRICS if job.execution is None else _metrics(job.execution)
    picture = job._picture(metrics)
    return section(repr(job)[1:-1], *_outcome(job.execution, metrics), *([picture] if picture else []))


def execution_html(execution: Execution) -> str:
    """Return how an execution is doing, and what has gone through its vertices."""
    metrics = _metrics(execution)
    parts = [metrics._repr_html_()] if metrics.vertices else []
    return section(repr(execution)[1:-1], *_outcome(execution, metrics), *parts)


def _metrics(execution: Execution) -> Metrics:
    try:
        return call_within(execution.metrics)
    except NoAnswerError:  # the member is gone, or the instance has been shut down
        return NO_METRICS


def _outcome(execution: Execution | None, metrics: Metrics) -> list[str]:
    """Return when an execution ran, and what it failed with."""
    if execution is None:
        return []
    parts = []
    if metrics.execution_start_time is not None:
        times = [moment_text(metrics.execution_start_time)]
        if metrics.execution_completion_time is not None:
            times.append(moment_text(metrics.execution_completion_time))
        parts.append(note(" to ".join(times)))
    cause = execution.suspension_cause
    if cause is not None:
        parts += [note(line) for line in (cause.error or "suspended by a client").split("\n")[:1]]
    if execution.done() and not execution.cancelled():
        error = execution.exception(0)
        if error is not None:
            lines = str(error).split("\n")
            parts += [note(line) for line in dict.fromkeys((lines[0], lines[-1]))]
    return parts


def _members(members: Sequence[Member]) -> list[str]:
    heads = ["member", "pid", "cores", "workers", "memory"]
    rows = []
    for member in members[:_MOST]:
        role = ", ".join(["coordinator"] * member.is_coordinator + ["this process'"] * member.is_local)
        cores = ", ".join(map(str, member.cores[:16])) + (", ..." if len(member.cores) > 16 else "")
        rows.append(
            [
                f"{member.address} ({role})" if role else member.address,
                str(member.pid),
                cores,
                f"{len(member.workers):,}",
                _memory(member),
            ]
        )
    more = [note(f"... and {len(members) - _MOST:,} more")] if len(members) > _MOST else []
    return [table(heads, rows), *more]


def _memory(member: Member) -> str:
    """Return the resident bytes of a member and its workers; nothing where they may be on another host."""
    if not member.is_local:
        return ""
    used = [found[1] for pid in (member.pid, *member.workers) if (found := used_by(pid)) is not None]
    return bytes_text(sum(used))


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
