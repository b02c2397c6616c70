"""The commands of `shmjet` that stop jobs and let them go on, for click; `shmjet.cli.lifecycle` does what they ask."""

from __future__ import annotations

from pathlib import Path

import click

from shmjet.cli.arguments import SEE, Task, as_json, later, of_a_cluster, running_job
from shmjet.cli.help import Argument, Command, Group

_OBJECT = "Print a JSON object."


def add_to(app: Group) -> None:
    """Add the commands."""
    for command in (suspend, resume, restart, save_snapshot, snapshots, recover):
        app.add_command(command)


@click.command(cls=Command, section=SEE)
@running_job
@as_json(_OBJECT)
@of_a_cluster
def suspend(job: str, as_json: bool, address: str | None, config: Path | None) -> Task:
    """Suspend a running job, and wait until it is suspended. It keeps its state if it has a guarantee."""
    return later("lifecycle", "suspend", job, address, config, as_json=as_json)


@click.command(cls=Command, section=SEE)
@running_job
@as_json(_OBJECT)
@of_a_cluster
def resume(job: str, as_json: bool, address: str | None, config: Path | None) -> Task:
    """Let a suspended job go on, and wait until it runs."""
    return later("lifecycle", "resume", job, address, config, as_json=as_json)


@click.command(cls=Command, section=SEE)
@running_job
@click.option("--force", is_flag=True, help="Save no state before; go on from the last snapshot.")
@as_json(_OBJECT)
@of_a_cluster
def restart(job: str, force: bool, as_json: bool, address: str | None, config: Path | None) -> Task:
    """Stop a running job and start it again, and wait until it runs."""
    return later("lifecycle", "restart", job, address, config, graceful=not force, as_json=as_json)


@click.command("save-snapshot", cls=Command, section=SEE)
@running_job
@click.argument("name", cls=Argument, metavar="NAME", text="Of the snapshot; an older one is replaced.")
@click.option("--cancel", "-C", is_flag=True, help="End the job with it.")
@as_json(_OBJECT)
@of_a_cluster
def save_snapshot(job: str, name: str, cancel: bool, as_json: bool, address: str | None, config: Path | None) -> Task:
    """Export a snapshot of a job, and wait until it is saved. Another job can start from it."""
    return later("lifecycle", "save_snapshot", job, name, address, config, cancel=cancel, as_json=as_json)


@click.command(cls=Command, section=SEE)
@click.option("--destroy", metavar="NAME", help="Remove this one, then list the others.")
@as_json("Print a JSON list.")
@of_a_cluster
def snapshots(destroy: str | None, as_json: bool, address: str | None, config: Path | None) -> Task:
    """List the exported snapshots of your running members on this host, or with an address those of a cluster."""
    return later("lifecycle", "show_snapshots", address, config, destroy=destroy, as_json=as_json)


@click.command(cls=Command, section=SEE)
@of_a_cluster
def recover(address: str | None, config: Path | None) -> Task:
    """Have a cluster whose maps and lists wait for members go on without these; what only they have is lost.

    For members that will not come back. The cluster waits when all members have ended, and not all are there again.
    """
    return later("lifecycle", "recover", address, config)
