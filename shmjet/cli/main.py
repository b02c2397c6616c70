"""The entry point `shmjet`: answers `--version` at once and hands everything else to the typer application."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from shmjet import __version__
from shmjet.cli.outcome import Outcome, guarded


def run(arguments: Sequence[str]) -> int:
    """Run one command line, without the program's name, and return its exit status."""
    if list(arguments) in (["--version"], ["-V"]):
        print(f"shmjet {__version__}")
        return Outcome.OK
    from shmjet.cli.app import run_application

    return run_application(list(arguments))


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    sys.exit(int(guarded(lambda: run(sys.argv[1:]))))
