"""What several commands of `shmjet` have in common: arguments, groups of the help, and how a command is put off."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from shmjet.cli.completion import running_jobs

RUN_JOBS, SEE, SET_UP = "Run jobs", "See and steer what runs", "Set up and look into"
"""The groups of commands in the help."""

Task = Callable[[], int]
"""What a command line asks for; it returns the exit status."""

RunningJob = Annotated[
    str, typer.Argument(metavar="JOB", help="Name or id; the first digits will do.", autocompletion=running_jobs)
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT[,...]", envvar="SHMJET_ADDRESS", help="Members of the cluster to ask."
    ),
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings (cluster_name, secret ...).")
]


def later(module: str, function: str, *arguments: Any, **options: Any) -> Task:
    """Return the call of a function of `shmjet.cli`; its module is imported when the call is made."""

    def task() -> int:
        command: Callable[..., int] = getattr(importlib.import_module(f"shmjet.cli.{module}"), function)
        return command(*arguments, **options)

    return task
