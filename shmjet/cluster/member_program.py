"""The program of a member: comes up, says so, serves, and cleans up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from shmjet.cluster.banner import banner
from shmjet.cluster.discovery import make_discovery
from shmjet.cluster.member import Member
from shmjet.cluster.memory_policy import prefer_nodes
from shmjet.cluster.network import Network
from shmjet.cluster.network_user import NetworkSettings
from shmjet.cluster.settings import MemberSettings, Started, StartFailed
from shmjet.cluster.workers import ForkServerProcess
from shmjet.core.errors import ConfigError, ShmjetError
from shmjet.execution.child import name_process
from shmjet.execution.logs import MEMBER, send_logs
from shmjet.net.messages import TlsFiles

_LONGEST_SECRET = 1 << 16
_WRONG_USAGE = 2
"""Exit status, as that of `shmjet` for a wrong setting."""

logger = logging.getLogger("shmjet.member")


def main(
    settings: dict[str, Any], ready: int, logs: int, server_pid: int, server: socket.socket, secret_fd: int
) -> None:
    """Be a member until it is asked to end.

    Args:
        settings: the fields of `MemberSettings`.
        ready: descriptor on which to say that the member is up, or why not; -1: standard output and error.
        logs: descriptor of the socket for log records.
        server_pid: of its fork server, a child of this process.
        server: leads to it.
        secret_fd: where to read the secret; -1 without a network.
    """
    name_process("shmjet-member")
    send_logs(socket.socket(fileno=logs), MEMBER, *settings["log_levels"])
    try:
        converted = msgspec.convert(settings, MemberSettings)
        secret = b"" if secret_fd < 0 else _read_all(secret_fd)
        prefer_nodes(converted.memory_nodes)
        if converted.note:
            logger.info(converted.note)
        asyncio.run(_serve(converted, ForkServerProcess(server_pid, server), secret, ready))
    except Exception as error:
        if not isinstance(error, ShmjetError | OSError):
            logger.exception("the member failed")
        _tell_failure(error, ready)
        sys.exit(_WRONG_USAGE if isinstance(error, ConfigError) else 1)


async def _serve(settings: MemberSettings, server: ForkServerProcess, secret: bytes, ready: int) -> None:
    member = Member(settings, server, _network_of(settings, secret))
    try:
        is_up = await member.start()
    except BaseException:
        await member.close()
        raise
    if not is_up:
        await member.close()
        return
    lines = banner(settings, member.folder.path, member.uuid, member.address)
    if ready < 0:
        print("\n".join(lines), flush=True)
    else:
        if settings.bind is not None:
            for line in lines:
                logger.info(line)
        started = Started(str(member.folder.path), member.uuid, os.getpid(), member.address)
        with contextlib.suppress(BrokenPipeError):
            os.write(ready, msgspec.json.encode(started))
        os.close(ready)
    await member.serve()


def _network_of(settings: MemberSettings, secret: bytes) -> Callable[[Member], Network] | None:
    if settings.bind is None:
        return None
    network = NetworkSettings(
        settings.bind,
        tuple(settings.seeds),
        settings.cluster_name,
        secret,
        None if settings.tls is None else TlsFiles(**settings.tls),
        settings.partition_count,
        settings.flow_period_ns,
    )
    discovery = make_discovery(settings.discovery, settings.cluster_name)
    return lambda member: Network(network, member, discovery)


def _tell_failure(error: Exception, ready: int) -> None:
    if isinstance(error, ShmjetError):
        answer = StartFailed(str(error), type(error).__name__)
    else:
        answer = StartFailed(f"{type(error).__name__}: {error}")
    if ready < 0:
        print(f"shmjet: the member could not start: {answer.text}", file=sys.stderr, flush=True)
        return
    with contextlib.suppress(OSError):
        os.write(ready, msgspec.json.encode(answer))


def _read_all(fd: int) -> bytes:
    with open(fd, "rb") as stream:
        return stream.read(_LONGEST_SECRET)
