"""The commands of `shmjet` that stop jobs and let them go on, for typer; `shmjet.cli.lifecycle` does what they ask."""

from __future__ import annotations

from typing import Annotated

import typer

from shmjet.cli.arguments import SEE, Address, ConfigFile, RunningJob, Task, later

_Json = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (suspend, resume, restart):
        app.command(rich_help_panel=SEE)(command)
    app.command("save-snapshot", rich_help_panel=SEE)(save_snapshot)
    app.command(rich_help_panel=SEE)(snapshots)
    app.command(rich_help_panel=SEE)(recover)


def suspend(job: RunningJob, as_json: _Json = False, address: Address = None, config: ConfigFile = None) -> Task:
    """Suspend a running job, and wait until it is suspended. It keeps its state if it has a guarantee."""
    return later("lifecycle", "suspend", job, address, config, as_json=as_json)


def resume(job: RunningJob, as_json: _Json = False, address: Address = None, config: ConfigFile = None) -> Task:
    """Let a suspended job go on, and wait until it runs."""
    return later("lifecycle", "resume", job, address, config, as_json=as_json)


def restart(
    job: RunningJob,
    force: Annotated[bool, typer.Option("--force", help="Save no state before; go on from the last snapshot.")] = False,
    as_json: _Json = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """Stop a running job and start it again, and wait until it runs."""
    return later("lifecycle", "restart", job, address, config, graceful=not force, as_json=as_json)


def save_snapshot(
    job: RunningJob,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the snapshot; an older one is replaced.")],
    cancel: Annotated[bool, typer.Option("--cancel", "-C", help="End the job with it.")] = False,
    as_json: _Json = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """Export a snapshot of a job, and wait until it is saved. Another job can start from it."""
    return later("lifecycle", "save_snapshot", job, name, address, config, cancel=cancel, as_json=as_json)


def snapshots(
    destroy: Annotated[
        str | None, typer.Option("--destroy", metavar="NAME", help="Remove this one, then list the others.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list.")] = False,
    address: Address = None,
    config: ConfigFile = None,
) -> Task:
    """List the exported snapshots of your running members on this host, or with an address those of a cluster."""
    return later("lifecycle", "show_snapshots", address, config, destroy=destroy, as_json=as_json)


def recover(address: Address = None, config: ConfigFile = None) -> Task:
    """Have a cluster whose maps and lists wait for members go on without these; what only they have is lost.

    For members that will not come back. The cluster waits when all members have ended, and not all are there again.
    """
    return later("lifecycle", "recover", address, config)
