"""`new_instance`: starts a member process for this process, and while that comes up imports the client of it."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmjet.cluster.availability import check_instance
from shmjet.cluster.log_levels import levels
from shmjet.cluster.placement import place
from shmjet.cluster.topology import read_topology
from shmjet.core import JetConfig, ShmjetError, errors

if TYPE_CHECKING:
    from shmjet.cluster.instance import JetInstance
    from shmjet.cluster.settings import Started

_START_S = 60.0
_STEAL_MARGIN = 2
"""Jet's rule: a worker takes a tasklet from one that has at least two more."""
_SHARED = ("numpy", "shmjet.processors")
"""Imports that workers share with the fork server when the client has made them: then its jobs will use them."""
_ROOT = str(Path(__file__).resolve().parents[2])


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
        "ring_memory": config.ring_memory,
        "idle_min_ns": int(config.idle_min * 1e9),
        "idle_max_ns": int(config.idle_max * 1e9),
        "steal_margin": int(os.environ.get("SHMJET_STEAL_MARGIN", _STEAL_MARGIN)) if config.work_stealing else None,
        "force_rings": os.environ.get("SHMJET_FORCE_RINGS", "") not in ("", "0"),
        "client_pid": os.getpid(),
        "log_levels": list(levels()),
        "jobs": dict(config.jobs),
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
    }


def _tls(given: Mapping[str, Any]) -> dict[str, Any] | None:
    from shmjet.cluster.tls_settings import tls_settings
    from shmjet.net.messages import TlsFiles
    from shmjet.net.tls import check_files

    settings = tls_settings(given)
    if settings is not None:
        check_files(TlsFiles(**settings), listens=True)
    return settings


def secret_pipe(config: JetConfig) -> int:
    """Return a descriptor from which a member can read its secret, -1 when it needs none.

    Raises:
        ConfigError: the secret's file cannot be read.
    """
    if config.bind is None or config.secret is None:
        return -1
    from shmjet.core.secret import secret_bytes

    reader, writer = os.pipe()
    with open(writer, "wb") as stream:
        stream.write(secret_bytes(config.secret))
    return reader


def member_program(settings: dict[str, Any], ready: int, logs: int, preload: list[str], secret_fd: int) -> list[str]:
    """Return the command line of a member."""
    program = (
        f"import sys; sys.path.insert(0, {_ROOT!r})\n"
        "from shmjet.cluster.member_main import main\n"
        f"main({settings!r}, {ready}, {logs}, {settings['allowed']!r}, {preload!r}, {secret_fd})"
    )
    return [sys.executable, "-P", "-c", program]


class StartingMember:
    """A member process that has been started and comes up while its client goes on; `wait` for it.

    Raises:
        ConfigError: a core that the config names may not be used by this process.
        OSError: the process cannot be started.
    """

    def __init__(self, config: JetConfig) -> None:
        settings = member_settings(config)
        secret = secret_pipe(config)
        self.log_level: int = settings["log_levels"][0]
        self._reader, writer = os.pipe()
        self.logs, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        """On which the records of all its processes will arrive; whoever waits for the member takes it."""
        preload = [name for name in _SHARED if name in sys.modules]
        try:
            self.process = subprocess.Popen(
                member_program(settings, writer, theirs.fileno(), preload, secret),
                stdin=subprocess.DEVNULL,
                pass_fds=[fd for fd in (writer, theirs.fileno(), secret) if fd >= 0],
                process_group=0,
            )
        except BaseException:
            os.close(self._reader)
            self.logs.close()
            raise
        finally:
            os.close(writer)
            theirs.close()
            if secret >= 0:
                os.close(secret)

    def wait(self) -> Started:
        """Wait until it serves; called once.

        Raises:
            ShmjetError: it did not come up; the text says why.
        """
        try:
            return _read_answer(self._reader, self.process)
        except BaseException:
            self.kill()
            raise
        finally:
            os.close(self._reader)

    def kill(self) -> None:
        """End it for good."""
        self.process.kill()
        self.process.wait()
        self.logs.close()


def _read_answer(reader: int, process: subprocess.Popen[bytes]) -> Started:
    deadline = time.monotonic() + _START_S
    data = b""
    while True:
        ready, _, _ = select.select([reader], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise ShmjetError(f"the member process (pid {process.pid}) did not come up within {_START_S:.0f} s")
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        data += chunk
    if not data:
        status = process.wait()
        raise ShmjetError(f"the member process ended with status {status} before it was up; its messages are on stderr")
    import msgspec  # here it costs nothing: the member was waited for

    from shmjet.cluster.settings import StartAnswer, Started

    answer = msgspec.json.decode(data, type=StartAnswer)
    if not isinstance(answer, Started):
        kind = getattr(errors, answer.error, ShmjetError)
        raise kind(f"the member could not start: {answer.text}")
    return answer


def new_instance(config: JetConfig | None = None) -> JetInstance:
    """Start a member with its workers for this process.

    Args:
        config: settings; by default from the environment (`SHMJET_*`), else one worker per core.

    Returns:
        the instance, a context manager that ends it.

    Raises:
        ConfigError: a setting is wrong.
        AuthenticationError: the members that it was to join do not accept its secret.
        ShmjetError: the member could not start.

    Example:
        >>> jet = shmjet.new_instance(JetConfig(cores=2))    # doctest: +SKIP
        >>> jet.shutdown()                                   # doctest: +SKIP
    """
    config = JetConfig() if config is None else config
    check_instance(config)
    member = StartingMember(config)
    try:
        from shmjet.cluster.homes import OwnMember  # the client's half is imported while the member starts
        from shmjet.cluster.instance import JetInstance
    except BaseException:
        member.kill()
        raise
    home = OwnMember(member, has_network=config.bind is not None)
    try:
        return JetInstance(config, home)
    except BaseException:
        member.kill()
        raise
