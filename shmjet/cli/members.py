"""`shmjet jobs`, `cluster` and `cancel`: what runs in this user's members on this host, and ending it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

from shmjet.cli.outcome import CommandError, Outcome
from shmjet.cluster.attach import AttachedMember, attach_all
from shmjet.cluster.protocol import ExecutionRow
from shmjet.core import JobStatus
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


def _only(found: list[AttachedMember], pid: int) -> list[AttachedMember]:
    meant = [member for member in found if pid in (member.pid, member.about.client_pid, *member.about.workers)]
    for member in found:
        if member not in meant:
            member.close()
    if not meant:
        running = ", ".join(str(member.pid) for member in found) or "none"
        raise CommandError(f"no member of yours has the pid {pid}; running members: {running}")
    return meant


def show_jobs(*, everything: bool, as_json: bool) -> int:
    """Print the jobs of all members of this user.

    Args:
        everything: those that have ended too.
        as_json: as a JSON list.
    """
    rows = []
    with members() as found:
        for member in found:
            for row in member.executions():
                if everything or not JobStatus(row.status).is_terminal:
                    rows.append(_job(member, row))
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no job is running" + ("" if everything else "; `shmjet jobs -a` lists those that have ended too"))
    else:
        _print_table(
            ("id", "name", "status", "time", "member", "error"),
            [
                (r["id"], r["name"] or "", r["status"], time_text(r["seconds"]), str(r["member_pid"]), r["error"] or "")
                for r in rows
            ],
        )
    return Outcome.OK


def _job(member: AttachedMember, row: ExecutionRow) -> dict[str, Any]:
    return {
        "id": row.job_id,
        "name": row.job_name,
        "status": "cancelled" if row.cancelled and JobStatus(row.status).is_terminal else row.status,
        "execution": row.id,
        "started_at": row.started_at,
        "seconds": round((row.completed_at or time.time()) - row.started_at, 3),
        "member_pid": member.pid,
        "error": row.error,
    }


def show_cluster(*, as_json: bool) -> int:
    """Print the running members of this user."""
    with members() as found:
        rows = [_member(member) for member in found]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("no member of yours is running on this host")
    else:
        _print_table(
            ("pid", "cluster", "workers", "cores", "up", "jobs", "started by", "version"),
            [
                (
                    str(r["pid"]),
                    r["cluster"],
                    str(len(r["workers"])),
                    ",".join("any" if core is None else str(core) for core in r["cores"]),
                    time_text(r["up_s"]),
                    str(r["running_jobs"]),
                    str(r["client_pid"]),
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
        "version": about.version,
        "workers": about.workers,
        "cores": member.cores,
        "client_pid": about.client_pid,
        "up_s": round(time.time() - about.started_at, 1),
        "running_jobs": len(member.running()),
        "folder": str(member.folder),
    }


def cancel_job(job: str) -> int:
    """Ask for the end of a job that runs.

    Args:
        job: its name, its id, or enough of the id to be unique.

    Raises:
        CommandError: no running job is meant, or several are.
    """
    with members() as found:
        running = [(member, row) for member in found for row in member.running()]
        meant = [pair for pair in running if job == pair[1].job_name] or [
            pair for pair in running if job and pair[1].job_id.startswith(job)
        ]
        if not meant:
            raise CommandError(f"no running job is called {job!r} or has that id; see `shmjet jobs`", Outcome.FAILED)
        if len(meant) > 1:
            ids = ", ".join(row.job_id for _, row in meant)
            raise CommandError(f"several running jobs are meant by {job!r}: {ids}; give the id", Outcome.FAILED)
        member, row = meant[0]
        member.cancel(row)
    print(f"job {row.job_name or row.job_id} is being cancelled")
    return Outcome.OK


def _print_table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print columns as wide as they need to be; nothing is cut, so that it can be worked on with other tools."""
    widths = [max(len(line[i]) for line in (heads, *rows)) for i in range(len(heads))]
    for line in (heads, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
