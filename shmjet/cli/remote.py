"""What the command line does with a running cluster: submit, list, cancel, look."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

import shmjet
from shmjet.cli.cluster_access import connect, remote_monitor
from shmjet.cli.members import (
    cores_text,
    executions_of,
    job_facts,
    leading,
    partitions_text,
    print_jobs,
    print_table,
    seen_members,
)
from shmjet.cli.outcome import CommandError, Outcome, complain
from shmjet.cli.script import run_script
from shmjet.cluster.client.instance import JetInstance
from shmjet.cluster.client.job import Job
from shmjet.core import JobFailedError, JobStatus
from shmjet.host.terminal_text import clean_line
from shmjet.observe.numbers import time_text

_CANCEL_S = 30.0


def submit_script(
    script: Path, arguments: Sequence[str], address: str | None, config: Path | None, *, progress: bool = False
) -> int:
    """Run a script whose instances are clients of the cluster; returns its exit status."""
    connect(address, config).shutdown()  # what is wrong with address or secret is said before the script runs

    def client(*_arguments: Any, **_options: Any) -> JetInstance:
        return connect(address, config)

    with _instances_by(client):
        return run_script(script, arguments, progress=progress)


def submit_named(name: str, address: str | None, config: Path | None, *, progress: bool = False) -> int:
    """Run a job of the members' own configuration, and wait for its end; at Ctrl-C it is cancelled."""
    with connect(address, config) as jet:
        try:
            jet.named_job(name).run(progress=progress)
        except JobFailedError as error:
            complain(str(error))
            return Outcome.FAILED
        except CancelledError:
            complain(f"job {name} was cancelled")
            return Outcome.FAILED
    return Outcome.OK


@contextmanager
def _instances_by(make: Any) -> Iterator[None]:
    """Have `shmjet.new_instance` make something else."""
    namespace: dict[str, Any] = vars(shmjet)
    before = namespace.get("new_instance")
    namespace["new_instance"] = make
    try:
        yield
    finally:
        del namespace["new_instance"]
        if before is not None:
            namespace["new_instance"] = before


def list_jobs(address: str | None, config: Path | None, *, everything: bool, as_json: bool) -> int:
    """Print the jobs, each with its newest execution.

    Args:
        address: of one or more members.
        config: a TOML file with settings.
        everything: include ended jobs.
        as_json: as a JSON list.
    """
    with seen_members(None, address, config) as found:
        told = leading(executions_of(found))
    newest = {row.job_id: (member, row) for member, row in told}
    shown = [(member, row) for member, row in newest.values() if everything or not JobStatus(row.status).is_terminal]
    if as_json:
        rows = [
            {**job_facts(member, row), "status": row.status, "cancelled": row.cancelled, "member": member.about.address}
            for member, row in shown
        ]
        print(json.dumps(rows, indent=2))
    elif not shown:
        if address is not None or config is not None:
            with connect(address, config) as jet:
                jet.jobs()  # says what keeps the cluster from knowing its jobs, where that is why there are none
        print("no job is running" + ("" if everything else "; with -a ended jobs are listed, too"))
    else:
        print_jobs([{**job_facts(member, row), "member": member.about.address} for member, row in shown])
    return Outcome.OK


def cancel_job(wanted: str, address: str | None, config: Path | None, *, as_json: bool = False) -> int:
    """Cancel a job and wait until it has ended; with `as_json` print one JSON object."""
    with connect(address, config) as jet:
        job = find_job(jet, wanted)
        execution = job.execution
        if execution is None or not execution.cancel():
            complain(f"job {wanted} has ended already ({job.status.name})")
            return Outcome.FAILED
        try:
            execution.result(_CANCEL_S)
        except CancelledError:
            print(
                json.dumps({"id": job.id, "name": job.name, "status": "cancelled"})
                if as_json
                else f"{clean_line(job.id)} cancelled"
            )
            return Outcome.OK
        except TimeoutError:
            complain(f"job {wanted} has been told to stop, but runs still after {_CANCEL_S:.0f} s")
            return Outcome.FAILED
    return Outcome.FAILED


def find_job(jet: JetInstance, wanted: str) -> Job:
    """Return the job of that name, or with an id that begins so.

    Raises:
        CommandError: there is none, or there are several.
    """
    found = jet.jobs()
    named = [job for job in found if job.name == wanted]
    meant = [job for job in named if not job.status.is_terminal] or named[-1:]
    meant = meant or [job for job in found if job.id.startswith(wanted)]
    if len(meant) > 1:
        ids = ", ".join(job.id for job in meant)
        raise CommandError(f"several jobs are meant by {wanted!r}: {ids}; give the id", Outcome.FAILED)
    if not meant:
        raise CommandError(f"there is no job {wanted!r}; `shmjet jobs -a` lists all", Outcome.FAILED)
    return meant[0]


def show_cluster(address: str | None, config: Path | None, *, as_json: bool) -> int:
    """Print the members, the coordinator first, and members that do not answer."""
    cluster = remote_monitor(address, config)
    try:
        status = cluster.status()
    finally:
        cluster.close()
    rows = [
        {
            "address": member.address,
            "uuid": member.uuid,
            "pid": member.pid,
            "cluster": member.settings["cluster_name"],
            "version": member.version,
            "cores": [worker.core for worker in member.workers],
            "workers": [worker.pid for worker in member.workers],
            "partitions": msgspec.structs.asdict(member.partitions),
            "up_s": round(time.time() - member.started_at, 1),
            "running_jobs": sum(not JobStatus(row.status).is_terminal for row in member.executions),
            "is_coordinator": member.address == status.coordinator,
        }
        for member in status.members
    ]
    if as_json:
        mute = [
            {"address": silent, "is_coordinator": silent == status.coordinator, "silent": True}
            for silent in status.silent
        ]
        print(json.dumps([*rows, *mute], indent=2))
        return Outcome.OK
    table = [
        (
            row["address"],
            str(row["pid"]),
            str(len(row["workers"])),
            cores_text(row["cores"]),
            partitions_text(row["partitions"]),
            time_text(row["up_s"]),
            str(row["running_jobs"]),
            row["version"],
            "coordinator" if row["is_coordinator"] else "",
        )
        for row in rows
    ]
    table += [
        (silent, "", "", "", "", "", "", "", f"{'coordinator, ' * (silent == status.coordinator)}does not answer")
        for silent in status.silent
    ]
    print_table(("address", "pid", "workers", "cores", "partitions", "up", "jobs", "version", ""), table)
    return Outcome.OK
