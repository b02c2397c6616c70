"""`shmjet member`: becomes a member of a cluster.

This process turns into the member by executing its program, so that signals and exit status are the member's own and
the program that started the command watches the right process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from shmjet.cli.supervisor import Supervisor
from shmjet.cluster.client.launch import member_program, member_settings, secret_pipe
from shmjet.cluster.client.unsupported_settings import check_instance
from shmjet.core import JetConfig

DEFAULT_BIND = "0.0.0.0:5701"
_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_member(
    config: Path | None, bind: str | None, join: Sequence[str] | None, cores: int | None, *, supervise: bool = False
) -> int:
    """Become a member, which returns only by an error, or supervise one.

    Args:
        config: a TOML file with settings, None for the environment alone.
        bind: where to listen; else as configured, else `DEFAULT_BIND` where there is a secret, or members to join.
        join: addresses of members, in addition to the configured ones.
        cores: number of workers; else as configured.
        supervise: start the member as a child, and again when its process has died.

    Raises:
        ConfigError: a setting is wrong.
        CommandError: a supervised member has died too often soon after its start.
    """
    given: dict[str, Any] = {}
    if bind is not None:
        given["bind"] = bind
    if cores is not None:
        given["cores"] = cores
    if join:
        given["members"] = list(join)
    found = JetConfig(**given) if config is None else JetConfig.from_toml(config, **given)
    if found.bind is None and (found.secret is not None or found.members or found.discovery):
        given["bind"] = DEFAULT_BIND
        found = JetConfig(**given) if config is None else JetConfig.from_toml(config, **given)
    check_instance(found)
    settings = {**member_settings(found), "client_pid": 0, "stop_signals": [int(number) for number in _STOP]}
    if not supervise:
        _become(*_command(found, settings))
    settings["client_pid"] = os.getpid()  # with which it ends
    return Supervisor(lambda: _child(found, settings)).run()


def _become(command: list[str], secret: int) -> NoReturn:
    if secret >= 0:
        os.set_inheritable(secret, True)
    sys.stdout.flush()
    os.execv(command[0], command)


def _command(config: JetConfig, settings: dict[str, Any]) -> tuple[list[str], int]:
    """Return the command line of a member, and the descriptor that it inherits, -1 for none."""
    secret = secret_pipe(config)
    return member_program(settings, -1, -1, ["numpy", "shmjet.processors"], secret), secret


def _child(config: JetConfig, settings: dict[str, Any]) -> subprocess.Popen[bytes]:
    command, secret = _command(config, settings)
    try:
        return subprocess.Popen(command, pass_fds=[secret] if secret >= 0 else [])
    finally:
        if secret >= 0:
            os.close(secret)
