"""`shmjet jobs`, `cluster` and `cancel`: what runs in this user's members on this host, and ending it.

Several members may have parts in one job, which is shown once then: as the member tells it that coordinates it, if that
is one of them.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shmjet.cli.outcome import CommandError, Outcome
from shmjet.cluster.lifecycle_messages import LastSnapshot
from shmjet.cluster.monitor.base import MonitoredMember
from shmjet.cluster.monitor.local import AttachedMember, attach_all
from shmjet.cluster.protocol import ExecutionRow
from shmjet.core import JobStatus, MemberLostError
from shmjet.host.terminal_text import clean_line
from shmjet.observe.numbers import time_text


@contextlib.contextmanager
def members(pid: int | None = None) -> Iterator[list[AttachedMember]]:
    """Attach to all running members of this user, or to one.

    Args:
        pid: of the member, of the process that started it, or of one of its workers; None: all.

    Raises:
        CommandError: there is no such member.
    """
    found = attach_all()
    try:
        if pid is not None:
            found = _only(found, pid)
        yield found
    finally:
        for member in found:
            member.close()


@contextlib.contextmanager
def seen_members(pid: int | None, address: str | None, config: Path | None) -> Iterator[list[MonitoredMember]]:
    """Look at all running members of this user on this host, or with an address at those of a cluster.

    Args:
        pid: as `members` takes it.
        address: "host:port" of one or more members; None, with no `config`: this host's.
        config: a TOML file with settings.

    Raises:
        CommandError: there is no such member.
        ShmjetError: the cluster cannot be reached.
    """
    if address is None and config is None:
        with members(pid) as here:
            yield list(here)
        return
    from shmjet.cli.cluster_access import remote_monitor

    cluster = remote_monitor(address, config)
    try:
        found: list[MonitoredMember] = list(cluster.members())
        if pid is not None:
            found = [member for member in found if pid in (member.pid, *member.about.workers)]
            if not found:
                raise CommandError(f"no member of that cluster has the pid {pid}")
        yield found
    finally:
        cluster.close()


def _only(found: list[AttachedMember], pid: int) -> list[AttachedMember]:
    meant = [member for member in found if pid in (member.pid, member.about.client_pid, *member.about.workers)]
    for member in found:
        if member not in meant:
            member.close()
    if not meant:
        running = ", ".join(str(member.pid) for member in found) or "none"
        raise CommandError(f"no member of yours has the pid {pid}; running members: {running}")
    return meant


M = TypeVar("M")
S = TypeVar("S", bound=MonitoredMember)


def leading(pairs: Iterable[tuple[M, ExecutionRow]]) -> list[tuple[M, ExecutionRow]]:
    """Return each execution once, even if several members report it: with its coordinator, if that reports it.

    Args:
        pairs: members, or their representatives, with executions.
    """
    found: dict[int | tuple[int, int], tuple[M, ExecutionRow]] = {}
    for member, row in pairs:
        # Members without a network count their own executions from 1; numbers of clusters are unique.
        key = row.id if row.id >> 32 else (id(member), row.id)
        if key not in found or row.leads:
            found[key] = member, row
    return list(found.values())


def executions_of(found: Iterable[S]) -> Iterator[tuple[S, ExecutionRow]]:
    """Yield each execution that members remember, with its member; members that are gone are left out."""
    for member in found:
        with contextlib.suppress(MemberLostError):
            yield from [(member, row) for row in member.executions()]


def show_jobs(*, everything: bool, as_json: bool) -> int:
    """Print the jobs of all members of this user.

    Args:
        everything: include ended jobs.
        as_json: as a JSON list.
    """
    rows = []
    with members() as found:
        for member, row in leading(executions_of(found)):
            if everything or not JobStatus(row.status).is_terminal:
                rows.append(job_facts(member, row))
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no job is running" + ("" if everything else "; `shmjet jobs -a` lists ended jobs, too"))
    else:
        print_jobs([{**row, "member": row["member_pid"]} for row in rows])
    return Outcome.OK


def print_jobs(rows: Iterable[dict[str, Any]]) -> None:
    """Print a table of jobs: what `job_facts` says of each, and the member, by pid or address."""
    print_table(
        ("id", "name", "status", "time", "member", "error"),
        [
            (r["id"], r["name"] or "", r["status"], time_text(r["seconds"]), str(r["member"]), _trouble_text(r))
            for r in rows
        ],
    )


def _trouble_text(facts: dict[str, Any]) -> str:
    """Say what has ended a job, or why it is suspended."""
    if facts["waits_for"]:
        return f"waits for {facts['waits_for']}"
    if facts["suspended_by"] is None:
        return facts["error"] or ""
    return "suspended by a user" if facts["suspended_by"] == "user" else facts["suspended_by"]


def job_facts(member: MonitoredMember, row: ExecutionRow) -> dict[str, Any]:
    """Return what is told of a job, fit for JSON."""
    return {
        "id": row.job_id,
        "name": row.job_name,
        "status": "cancelled" if row.cancelled and JobStatus(row.status).is_terminal else row.status,
        "execution": row.id,
        "started_at": row.started_at,
        "seconds": round((row.completed_at or time.time()) - row.started_at, 3),
        "member_pid": member.pid,
        "error": row.error,
        **life_facts(row),
    }


def life_facts(row: ExecutionRow) -> dict[str, Any]:
    """Return what is told of an execution's attempts, suspension and snapshots, fit for JSON."""
    return {
        "attempts": row.attempts,
        "guarantee": row.guarantee,
        "suspended_by": suspended_by(row),
        "snapshot": None if row.snapshot is None else _snapshot_facts(row.snapshot),
        "waits_for": row.waits_for or None,
        "members": row.members,
        "last_restart": (
            None if row.restart is None else {"cause": row.restart.cause, "seconds": _rounded(row.restart.seconds)}
        ),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def suspended_by(row: ExecutionRow) -> str | None:
    """Say why an execution is suspended: "user", or the first line of the error; None while it is not."""
    if row.cause is None:
        return None
    return "user" if row.cause.requested_by_user else (row.cause.error or "an error").split("\n", 1)[0]


def _snapshot_facts(snapshot: LastSnapshot) -> dict[str, Any]:
    """Return what is told of the last snapshot of an execution, fit for JSON."""
    return {
        "id": snapshot.id,
        "started_at": snapshot.started_at,
        "seconds": round(snapshot.seconds, 6),
        "size": snapshot.size,
        "keys": snapshot.keys,
        "vertices": {name: {"keys": each.keys, "size": each.size} for name, each in snapshot.vertices.items()},
    }


def show_cluster(*, as_json: bool) -> int:
    """Print the running members of this user."""
    with members() as found:
        rows = []
        for member in found:
            with contextlib.suppress(MemberLostError):  # it has just ended
                rows.append(_member(member))
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no member of yours is running on this host")
    else:
        print_table(
            ("pid", "cluster", "address", "workers", "cores", "partitions", "up", "jobs", "started by", "version"),
            [
                (
                    str(r["pid"]),
                    r["cluster"],
                    r["address"],
                    str(len(r["workers"])),
                    cores_text(r["cores"]),
                    partitions_text(r["partitions"]),
                    time_text(r["up_s"]),
                    str(r["running_jobs"]),
                    str(r["client_pid"] or "itself"),
                    r["version"],
                )
                for r in rows
            ],
        )
    return Outcome.OK


def _member(member: AttachedMember) -> dict[str, Any]:
    about = member.about
    return {
        "pid": about.pid,
        "uuid": about.uuid,
        "cluster": member.name,
        "address": about.address,
        "version": about.version,
        "workers": about.workers,
        "cores": member.cores,
        "partitions": msgspec.structs.asdict(member.partitions()),
        "client_pid": about.client_pid or None,
        "up_s": round(time.time() - about.started_at, 1),
        "running_jobs": len(member.running()),
        "folder": str(member.folder),
    }


def cores_text(cores: Iterable[int | None]) -> str:
    """Say which cores workers have.

    Example:
        >>> cores_text([0, 1]), cores_text([None, None])
        ('0,1', 'any,any')
    """
    return ",".join("any" if core is None else str(core) for core in cores)


def partitions_text(counts: dict[str, int]) -> str:
    """Say which partitions a member has.

    Example:
        >>> partitions_text({"primaries": 136, "backups": 135, "copying": 0})
        '136 + 135'
        >>> partitions_text({"primaries": 271, "backups": 0, "copying": 3})
        '271, getting 3'
    """
    backups = f" + {counts['backups']}" if counts["backups"] else ""
    copying = f", getting {counts['copying']}" if counts["copying"] else ""
    return f"{counts['primaries']}{backups}{copying}"


def cancel_job(job: str, *, as_json: bool = False) -> int:
    """Ask for the end of a job that runs.

    Args:
        job: its name, its id, or enough of the id to be unique.
        as_json: print one JSON object.

    Raises:
        CommandError: no running job is meant, or several are.
    """
    with members() as found:
        member, row = running_job(found, job)
        member.cancel(row)
    if as_json:
        print(json.dumps({"id": row.job_id, "name": row.job_name, "status": "cancelling"}))
    else:
        print(f"job {clean_line(row.job_name or row.job_id)} is being cancelled")
    return Outcome.OK


def running_job(found: Iterable[S], job: str) -> tuple[S, ExecutionRow]:
    """Return the execution that has not ended of the job with a name, an id, or an id that begins so, with its member.

    Raises:
        CommandError: no such job is meant, or several are.
    """
    running = leading((m, row) for m, row in executions_of(found) if not JobStatus(row.status).is_terminal)
    meant = [pair for pair in running if job == pair[1].job_name] or [
        pair for pair in running if job and pair[1].job_id.startswith(job)
    ]
    if not meant:
        raise CommandError(f"no running job is called {job!r} or has that id; see `shmjet jobs`", Outcome.FAILED)
    if len(meant) > 1:
        ids = ", ".join(row.job_id for _, row in meant)
        raise CommandError(f"several running jobs are meant by {job!r}: {ids}; give the id", Outcome.FAILED)
    return meant[0]


def print_table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print columns as wide as they need to be; nothing is cut, so that it can be worked on with other tools."""
    lines = [heads, *(tuple(map(clean_line, row)) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
