"""`shmjet suspend`, `resume`, `restart`, `save-snapshot` and `snapshots`: jobs that stop and go on.

They work on this user's members on this host, or with an address on a cluster.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from shmjet.cli.members import executions_of, leading, print_table, running_job, seen_members
from shmjet.cli.outcome import CommandError, Outcome, complain
from shmjet.cluster.lifecycle_messages import (
    DestroySnapshot,
    ExportSnapshot,
    ListSnapshots,
    RestartExecution,
    ResumeExecution,
    SnapshotRow,
    SuspendExecution,
)
from shmjet.cluster.monitor.base import MonitoredMember
from shmjet.cluster.protocol import ExecutionRow, GoOnWithout
from shmjet.core import JobStatus, ShmjetError
from shmjet.core.checks import check_snapshot_name
from shmjet.host.terminal_text import clean_line
from shmjet.observe.numbers import amount_text, count_text

STEER_S = 60.0
"""How long a command waits until a job has done what it asks for."""
EXPORT_S = 600.0
"""How long a command waits for a snapshot."""
_STEP_S = 0.05

_Where = tuple[str | None, Path | None]
"""An address of a cluster and a file with settings; without both, this host's members."""


def suspend(job: str, address: str | None, config: Path | None, *, as_json: bool = False) -> int:
    """Suspend a job, and wait until it is."""
    return _steer(
        job,
        (address, config),
        lambda row: lambda number: SuspendExecution(number, row.id),
        lambda _, now: now.status == JobStatus.SUSPENDED.value,
        "suspended",
        as_json=as_json,
    )


def resume(job: str, address: str | None, config: Path | None, *, as_json: bool = False) -> int:
    """Let a suspended job go on, and wait until it runs."""
    return _steer(
        job,
        (address, config),
        lambda row: lambda number: ResumeExecution(number, row.id),
        lambda _, now: now.status in (JobStatus.RUNNING.value, JobStatus.COMPLETING.value),
        "resumed",
        as_json=as_json,
    )


def restart(job: str, address: str | None, config: Path | None, *, graceful: bool = True, as_json: bool = False) -> int:
    """Begin another attempt of a job, and wait until that runs."""
    return _steer(
        job,
        (address, config),
        lambda row: lambda number: RestartExecution(number, row.id, graceful),
        lambda before, now: now.attempts > before.attempts and now.status == JobStatus.RUNNING.value,
        "restarted",
        as_json=as_json,
    )


def _steer(
    job: str,
    where: _Where,
    request: Callable[[ExecutionRow], Callable[[int], Any]],
    is_done: Callable[[ExecutionRow, ExecutionRow], bool],
    done: str,
    *,
    as_json: bool,
) -> int:
    """Ask something of a job and wait until it is done.

    Args:
        job: its name, its id, or enough of the id to be unique.
        where: it runs.
        request: makes what makes the request.
        is_done: says of the execution before and now whether what was asked for is done.
        done: what has happened to the job then.
        as_json: print one JSON object.

    Raises:
        CommandError: no running job is meant, or several are.
    """
    with seen_members(None, *where) as found:
        member, row = running_job(found, job)
        member.ask(request(row))
        deadline = time.monotonic() + STEER_S
        while not is_done(row, now := _now(found, row)):
            if now.status == JobStatus.COMPLETED.value and done != "suspended":
                break  # it has gone on, and ended well
            if JobStatus(now.status).is_terminal:
                complain(f"job {_name(row)} has ended ({now.status}) before it was {done}")
                return Outcome.FAILED
            if time.monotonic() > deadline:
                complain(f"job {_name(row)} was asked to be {done}, but is still {now.status} after {STEER_S:.0f} s")
                return Outcome.FAILED
            time.sleep(_STEP_S)
    if as_json:
        print(json.dumps({"id": row.job_id, "name": row.job_name, "status": now.status, "attempts": now.attempts}))
    else:
        print(f"job {_name(row)} {done}")
    return Outcome.OK


def _now(found: list[MonitoredMember], row: ExecutionRow) -> ExecutionRow:
    """Return an execution as it is now."""
    for _, now in leading(executions_of(found)):
        if (now.id, now.job_id) == (row.id, row.job_id):
            return now
    raise CommandError(
        f"job {_name(row)} is not known any more; the member that coordinated it is gone", Outcome.FAILED
    )


def _name(row: ExecutionRow) -> str:
    return clean_line(row.job_name or row.job_id)


def save_snapshot(
    job: str, name: str, address: str | None, config: Path | None, *, cancel: bool = False, as_json: bool = False
) -> int:
    """Export a snapshot of a job and wait for it.

    Args:
        job: its name, its id, or enough of the id to be unique.
        name: of the snapshot.
        address: of one or more members.
        config: a TOML file with settings.
        cancel: end the job with it.
        as_json: print one JSON object.
    """
    check_snapshot_name("the name of a snapshot", name)
    with seen_members(None, address, config) as found:
        member, row = running_job(found, job)
        token = os.urandom(8).hex()
        reply = member.ask(lambda number: ExportSnapshot(number, row.id, name, cancel, token), EXPORT_S)
    facts = _facts(reply.snapshot)
    if as_json:
        print(json.dumps(facts))
    else:
        of = f"{count_text(facts['keys'])} keys, {amount_text(facts['size'], 'bytes')}"
        print(f"snapshot {clean_line(name)} of job {_name(row)}: {of}" + ("; the job has ended" if cancel else ""))
    return Outcome.OK


def show_snapshots(address: str | None, config: Path | None, *, destroy: str | None, as_json: bool) -> int:
    """Print the exported snapshots, or remove one.

    Args:
        address: of one or more members.
        config: a TOML file with settings.
        destroy: the name of the snapshot to remove.
        as_json: print a JSON list.
    """
    with seen_members(None, address, config) as found:
        there = [(member, row) for member in found for row in member.ask(ListSnapshots).snapshots]
        if destroy is not None:
            meant = [member for member, row in there if row.name == destroy]
            if not meant:
                raise CommandError(f"there is no snapshot {destroy!r}; see `shmjet snapshots`", Outcome.FAILED)
            for member in meant:
                member.ask(lambda number: DestroySnapshot(number, destroy))
            there = [(member, row) for member, row in there if row.name != destroy]
    different = {(row.name, row.created): row for _, row in there}  # the members of one cluster all tell the same
    rows = [_facts(row) for row in different.values()]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif not rows:
        print("there is no exported snapshot")
    else:
        heads = ("name", "job", "created", "keys", "size")
        print_table(heads, [_cells(row) for row in rows])
    return Outcome.OK


def recover(address: str | None, config: Path | None) -> int:
    """Have clusters wait no longer for members that have maps and lists on their disks.

    Args:
        address: of one or more members.
        config: a TOML file with settings.
    """
    refusals: dict[str, ShmjetError] = {}
    with seen_members(None, address, config) as found:
        for member in found:
            try:
                member.ask(GoOnWithout)
            except ShmjetError as error:
                refusals[member.about.address] = error
            else:
                print(f"the cluster of {member.about.address} goes on with the maps and lists that its members have")
                return Outcome.OK
    text = "; ".join(f"{where}: {error}" for where, error in refusals.items()) or "there is no member"
    raise CommandError(text, Outcome.FAILED)


def _facts(row: SnapshotRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "job": row.job_name,
        "created": row.created,
        "size": row.size,
        "keys": row.keys,
        "vertices": {name: {"keys": vertex.keys, "size": vertex.size} for name, vertex in row.vertices.items()},
    }


def _cells(facts: dict[str, Any]) -> tuple[str, ...]:
    created = datetime.fromtimestamp(facts["created"]).isoformat(" ", "seconds")
    return facts["name"], facts["job"] or "", created, str(facts["keys"]), amount_text(facts["size"], "bytes")
