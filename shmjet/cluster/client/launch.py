"""Starts a member process. Imports little, because all that is imported first delays the member."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmjet.cluster.client.log_levels import levels
from shmjet.cluster.client.member_start import MemberStart
from shmjet.core import ConfigError, JetConfig, ShmjetError
from shmjet.core.config import IN_MEMORY
from shmjet.core.map_config import most_backups
from shmjet.host.own_code import program
from shmjet.host.placement import place
from shmjet.host.process_limits import lack_text
from shmjet.host.shared_modules import shared_modules
from shmjet.host.standard_descriptors import fill_standard_descriptors
from shmjet.host.topology import read_topology

if TYPE_CHECKING:
    from shmjet.cluster.settings import Started

_STEAL_MARGIN = 2
"""Jet's rule: a worker steals a tasklet from a worker that has at least two more."""
_PROCESSORS = "shmjet.processors"
_USUAL = ("general.generate", "general.transform", "grid.maps_and_lists")
"""Rooms of processors that nearly every DAG has; workers share them when the client has imported the package."""
_OF_OTHERS = f"{_PROCESSORS}.hazelcast"
"""Processors that need a package of others, which is not to be there when processes are forked."""
_OF_COLUMNS = (
    "shmjet.columns.typed_groups",
    "shmjet.columns.group_changes",
    "shmjet.columns.row_gatherer",
    f"{_PROCESSORS}.columns.group_by",
    "shmjet.ring.scatter",
)
"""The same of a client with numpy and `shmjet.columns`; a worker in the place of a lost one goes on the sooner."""


def shared_imports() -> list[str]:
    """Return the modules that workers share with the fork server, because the client's jobs will probably use them.

    These are numpy and processors, as far as the client has loaded them, or what the environment names.
    """
    if (named := shared_modules()) is not None:
        return named
    loaded = list(sys.modules)
    preload = ["numpy"] if "numpy" in loaded else []
    if _PROCESSORS in loaded:
        names = {f"{_PROCESSORS}.{name}" for name in _USUAL}
        names.update(name for name in loaded if name.startswith(f"{_PROCESSORS}.") and not name.startswith(_OF_OTHERS))
        preload += sorted(names)
    if "numpy" in preload and "shmjet.columns" in sys.modules:
        preload += _OF_COLUMNS
    return preload


def _seconds(name: str, usual: str, least: int) -> float:
    """Return the seconds that an environment variable says."""
    text = os.environ.get(name, usual)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not least <= seconds <= 3600:
        raise ConfigError(f"{name} is {text!r}; it must be a number of seconds from {least} to 3600")
    return seconds


def member_settings(config: JetConfig) -> dict[str, Any]:
    """Return the fields of `MemberSettings`, which is not imported before the member starts.

    Raises:
        ConfigError: a core that it names may not be used by this process, or a file of TLS is missing or wrong.
    """
    placement = place(config.cores, read_topology())
    return {
        "cluster_name": config.cluster_name,
        "cores": list(placement.cores),
        "allowed": list(placement.allowed),
        "memory_nodes": list(placement.memory_nodes),
        "spin": placement.spin,
        "note": placement.note,
        "partition_count": config.partition_count,
        "backup_count": most_backups(config.backup_count, config.maps),
        "ring_memory": config.ring_memory,
        "idle_min_ns": int(config.idle_min * 1e9),
        "idle_max_ns": int(config.idle_max * 1e9),
        "steal_margin": int(os.environ.get("SHMJET_STEAL_MARGIN", _STEAL_MARGIN)) if config.work_stealing else None,
        "force_rings": os.environ.get("SHMJET_FORCE_RINGS", "") not in ("", "0"),
        "client_pid": os.getpid(),
        "log_levels": list(levels()),
        "jobs": dict(config.jobs),
        "maps": {name: asdict(given) for name, given in config.maps.items()},
        "scale_up_delay": config.scale_up_delay,
        "restart_pause": _seconds("SHMJET_RESTART_PAUSE", "0.04", 0),
        "storage": "" if config.storage == IN_MEMORY else str(Path(config.storage).absolute()),
        "storage_sync": config.storage_sync,
        **_network_settings(config),
    }


def _network_settings(config: JetConfig) -> dict[str, Any]:
    if config.bind is None:
        return {}
    return {
        "allow_code": config.allow_code,
        "bind": config.bind,
        "seeds": list(config.members),
        "discovery": config.discovery,
        "tls": None if config.tls is None else _tls(config.tls),
        "flow_period_ns": int(config.flow_control_period * 1e9),
        "tells_members_apart": config.member_secret is not None,
        "longest_silence": _seconds("SHMJET_LONGEST_SILENCE", "2.2", 1),
    }


def _tls(given: Mapping[str, Any]) -> dict[str, Any] | None:
    from shmjet.cluster.client.tls_settings import tls_settings
    from shmjet.net.messages import TlsFiles
    from shmjet.net.tls import check_files

    settings = tls_settings(given)
    if settings is not None:
        check_files(TlsFiles(**settings), listens=True)
    return settings


def secret_pipe(config: JetConfig) -> int:
    """Return a descriptor from which a member can read its secrets, -1 when it needs none.

    Raises:
        ConfigError: a secret's file cannot be read, or the two secrets are the same.
    """
    if config.bind is None or config.secret is None:
        return -1
    from shmjet.core.secret import secret_bytes, send_secrets

    secret = secret_bytes(config.secret)
    member_secret = b"" if config.member_secret is None else secret_bytes(config.member_secret)
    if secret == member_secret:
        raise ConfigError(
            "JetConfig.member_secret is the same as secret: then every client could join as a member; make another one "
            "(`shmjet secret -o FILE`)"
        )
    reader, writer = os.pipe()
    send_secrets(writer, secret, member_secret)
    return reader


def member_program(
    settings: dict[str, Any], ready: int, logs: int, preload: list[str], secret_fd: int, errors_fd: int = -1
) -> list[str]:
    """Return the command line of a member."""
    arguments = f"{ready}, {logs}, {settings['allowed']!r}, {preload!r}, {secret_fd}, {errors_fd}"
    code = f"from shmjet.cluster.member.main import main\nmain({settings!r}, {arguments})"
    if signal.SIGINT in settings.get("stop_signals", ()):  # of a command: Ctrl-C ends it without a traceback
        code = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_DFL)\n{code}"
    return [sys.executable, "-P", "-c", program(code)]


class StartingMember:
    """A member process that has been started and comes up while its client goes on; `wait` for it.

    Until its own code runs, its standard error is a file: an interpreter that fails can be quoted then.

    Raises:
        ConfigError: a core that the config names may not be used by this process.
        ShmjetError: the process cannot be started; the text names the limit.
    """

    def __init__(self, config: JetConfig) -> None:
        fill_standard_descriptors()
        settings = member_settings(config)
        secret = secret_pipe(config)
        self.log_level: int = settings["log_levels"][0]
        preload = shared_imports()
        with contextlib.ExitStack() as stack:
            if secret >= 0:
                stack.callback(os.close, secret)
            try:
                early = os.memfd_create("shmjet-start", os.MFD_CLOEXEC)
                failing = stack.enter_context(contextlib.ExitStack())
                failing.callback(os.close, early)
                errors = os.dup(2)
                stack.callback(os.close, errors)
                reader, writer = os.pipe()
                stack.callback(os.close, writer)
                failing.callback(os.close, reader)
                self.logs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                """Receives the log records of all its processes; the backend that waits for the member takes it."""
                stack.callback(theirs.close)
                failing.callback(self.logs.close)
                self.process = subprocess.Popen(
                    member_program(settings, writer, theirs.fileno(), preload, secret, errors),
                    stdin=subprocess.DEVNULL,
                    stderr=early,
                    pass_fds=[fd for fd in (writer, theirs.fileno(), secret, errors) if fd >= 0],
                    process_group=0,
                )
            except OSError as error:
                raise ShmjetError(f"no member can be started: {lack_text(error)}") from error
            failing.pop_all()
        self._start = MemberStart(self.process, reader, early)

    def wait(self) -> Started:
        """Wait until it serves; called once.

        Raises:
            ShmjetError: it did not come up; the text says why.
        """
        try:
            return self._start.wait()
        except BaseException:
            self.kill()
            raise
        finally:
            self._start.close()

    def kill(self) -> None:
        """End it for good."""
        self.process.kill()
        self.process.wait()
        self.logs.close()
