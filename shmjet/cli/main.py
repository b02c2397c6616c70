"""The entry point `shmjet`: answers `--version` at once and hands everything else to click."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from shmjet.cli.outcome import Outcome, guarded
from shmjet.host.standard_descriptors import fill_standard_descriptors


def run(arguments: Sequence[str]) -> int:
    """Run one command line, without the program's name, and return its exit status."""
    if list(arguments) in (["--version"], ["-V"]):
        from shmjet import __version__  # from the metadata of the package, whose modules no other command needs

        print(f"shmjet {__version__}")
        return Outcome.OK
    from shmjet.cli.app import run_application

    return run_application(list(arguments))


def main() -> NoReturn:
    """Run the command line of this process and exit with its status."""
    _prepare_streams()
    sys.exit(int(guarded(lambda: run(sys.argv[1:]))))


def _prepare_streams() -> None:
    """Have somewhere to print to, and print whatever there is: what an encoding lacks is shown escaped."""
    fill_standard_descriptors()
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
