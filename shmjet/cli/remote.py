"""What the command line does with a running cluster: submit, list, cancel, look."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import shmjet
from shmjet.cli.outcome import CommandError, Outcome, complain
from shmjet.cli.script import run_script
from shmjet.cluster.client import ClientConfig, new_client
from shmjet.cluster.instance import JetInstance
from shmjet.cluster.job import Job
from shmjet.core import JetConfig

_CANCEL_S = 30.0


def connect(address: str | None, config: Path | None) -> JetInstance:
    """Return a client of the cluster at an address, with settings from a file and the environment.

    Raises:
        CommandError: there is no address.
        ShmjetError: the cluster cannot be reached.
    """
    addresses = [part.strip() for part in (address or "").split(",") if part.strip()]
    found = JetConfig() if config is None else JetConfig.from_toml(config)
    if not addresses:
        addresses = [*found.members] or ([found.bind] if found.bind else [])
    if not addresses:
        raise CommandError("which cluster? pass --address HOST:PORT or set SHMJET_ADDRESS")
    return new_client(addresses, ClientConfig(cluster_name=found.cluster_name, secret=found.secret, tls=found.tls))


def submit_script(script: Path, arguments: Sequence[str], address: str | None, config: Path | None) -> int:
    """Run a script whose instances are clients of the cluster; returns its exit status."""
    connect(address, config).shutdown()  # what is wrong with address or secret is said before the script runs

    def client(*_arguments: Any, **_options: Any) -> JetInstance:
        return connect(address, config)

    with _instances_by(client):
        return run_script(script, arguments)


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
    """Print the jobs."""
    with connect(address, config) as jet:
        found = [job for job in jet.jobs() if everything or not job.status.is_terminal]
        if as_json:
            rows = [{"id": job.id, "name": job.name, "status": job.status.value} for job in found]
            print(json.dumps(rows))
            return Outcome.OK
        _print_table(("ID", "STATUS", "NAME"), [(job.id, job.status.name, job.name or "") for job in found])
    return Outcome.OK


def cancel_job(wanted: str, address: str | None, config: Path | None) -> int:
    """Cancel a job and wait until it has ended."""
    with connect(address, config) as jet:
        job = find_job(jet, wanted)
        execution = job.latest
        if execution is None or not execution.cancel():
            complain(f"job {wanted} has ended already ({job.status.name})")
            return Outcome.FAILED
        try:
            execution.result(_CANCEL_S)
        except CancelledError:
            print(f"{job.id} cancelled")
            return Outcome.OK
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
    """Print the members."""
    with connect(address, config) as jet:
        members = jet.cluster.members
    if as_json:
        rows = [
            {
                "address": member.address,
                "uuid": member.uuid,
                "pid": member.pid,
                "cores": list(member.cores),
                "workers": list(member.workers),
                "is_coordinator": member.is_coordinator,
            }
            for member in members
        ]
        print(json.dumps(rows))
        return Outcome.OK
    table = [
        (m.address, m.uuid[:8], str(m.pid), str(len(m.workers)), "coordinator" if m.is_coordinator else "")
        for m in members
    ]
    _print_table(("ADDRESS", "UUID", "PID", "WORKERS", ""), table)
    return Outcome.OK


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
