"""`shmjet member`: becomes a member of a cluster.

This process turns into the member by executing its program, so that signals and exit status are the member's own and
the program that started the command watches the right process.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shmjet.cluster.client.launch import member_program, member_settings, secret_pipe
from shmjet.cluster.client.unsupported_settings import check_instance
from shmjet.core import JetConfig

DEFAULT_BIND = "0.0.0.0:5701"
_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_member(config: Path | None, bind: str | None, join: Sequence[str] | None, cores: int | None) -> int:
    """Become a member; returns only by an error.

    Args:
        config: a TOML file with settings, None for the environment alone.
        bind: where to listen; else as configured, else `DEFAULT_BIND` where there is a secret, or members to join.
        join: addresses of members, in addition to the configured ones.
        cores: number of workers; else as configured.

    Raises:
        ConfigError: a setting is wrong.
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
    secret = secret_pipe(found)
    if secret >= 0:
        os.set_inheritable(secret, True)
    command = member_program(settings, -1, -1, ["numpy", "shmjet.processors"], secret)
    sys.stdout.flush()
    os.execv(command[0], command)
