"""What several commands of `shmjet` have in common: arguments, groups of the help, and how a command is put off."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shmjet.cli.completion import running_jobs
from shmjet.cli.help import Argument

RUN_JOBS, SEE, SET_UP = "Run jobs", "See and steer what runs", "Set up and look into"
"""The groups of commands in the help."""

Function = TypeVar("Function", bound=Callable[..., Any])

FILE = click.Path(path_type=Path)

Task = Callable[[], int]
"""What a command line asks for; it returns the exit status."""


def running_job(command: Function) -> Function:
    """Add the argument JOB, passed as `job`."""
    return click.argument(
        "job",
        cls=Argument,
        metavar="JOB",
        text="Name or id; the first digits will do.",
        shell_complete=lambda _context, _parameter, incomplete: running_jobs(incomplete),
    )(command)


def of_a_cluster(command: Function) -> Function:
    """Add the options --address and --config, passed as `address` and `config`."""
    command = config_file(command)
    return click.option(
        "--address", metavar="HOST:PORT[,...]", envvar="SHMJET_ADDRESS", help="Members of the cluster to ask."
    )(command)


def config_file(command: Function) -> Function:
    """Add the option --config, passed as `config`."""
    return click.option(
        "--config", metavar="FILE", type=FILE, help="A TOML file with settings (cluster_name, secret ...)."
    )(command)


def as_json(text: str) -> Callable[[Function], Function]:
    """Add the option --json with that help, passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def later(module: str, function: str, *arguments: Any, **options: Any) -> Task:
    """Return the call of a function of `shmjet.cli`; its module is imported when the call is made."""

    def task() -> int:
        command: Callable[..., int] = getattr(importlib.import_module(f"shmjet.cli.{module}"), function)
        return command(*arguments, **options)

    return task
