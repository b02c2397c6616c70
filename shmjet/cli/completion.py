"""`shmjet completion`: the script that makes a shell complete commands, options and files."""

from __future__ import annotations

import os

from shmjet.cli.outcome import CommandError, Outcome

SHELLS = ("bash", "zsh", "fish")

VARIABLE = "_SHMJET_COMPLETE"
"""By this variable the shell's script asks `shmjet` for completions; the name is click's rule."""


def shells(incomplete: str) -> list[str]:
    """Return the shells whose names begin so."""
    return [shell for shell in SHELLS if shell.startswith(incomplete)]


def running_jobs(incomplete: str) -> list[str]:
    """Return the names, or else ids, that begin so, of the jobs of this user's members on this host.

    A name that a shell could take for something else, because of control characters, is left out for the id. Of jobs of
    a cluster far away none is offered: a shell must not wait for a network.
    """
    from shmjet.cli.members import executions_of, leading, members
    from shmjet.core import JobStatus

    with members() as found:
        rows = [row for _, row in leading(executions_of(found)) if not JobStatus(row.status).is_terminal]
    names = {name if (name := row.job_name or "").isprintable() and name else row.job_id for row in rows}
    return sorted(name for name in names if name.startswith(incomplete))


def show(shell: str) -> int:
    """Print the script for a shell.

    Args:
        shell: one of `SHELLS`; empty for the user's own shell.

    Raises:
        CommandError: there is none for it.
    """
    from click import Command
    from click.shell_completion import get_completion_class

    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    if chosen not in SHELLS or (completion := get_completion_class(chosen)) is None:
        named = f"{chosen!r}" if chosen else "your shell, which $SHELL does not tell"
        raise CommandError(f"no completion for {named}; say one of {', '.join(SHELLS)}: shmjet completion bash")
    print(completion(Command("shmjet"), {}, "shmjet", VARIABLE).source())
    return Outcome.OK
