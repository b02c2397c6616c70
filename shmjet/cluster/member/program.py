"""The program of a member: comes up, says so, serves, and cleans up."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shmjet.cluster.member.banner import banner
from shmjet.cluster.member.member import Member
from shmjet.cluster.member.start_report import StartReport
from shmjet.cluster.processes.workers import ForkServerProcess
from shmjet.cluster.settings import MemberSettings
from shmjet.core.map_config import settings_of
from shmjet.core.secret import receive_secrets
from shmjet.data.decoders import converter
from shmjet.data.errors import ConfigError, ShmjetError
from shmjet.execution.logs import MEMBER, send_logs
from shmjet.host.child_process import name_process
from shmjet.host.memory_policy import prefer_nodes
from shmjet.host.stacks import offer_stacks
from shmjet.host.terminal_text import clean

if TYPE_CHECKING:
    from shmjet.cluster.membership.network import Network
    from shmjet.cluster.membership.network_user import NetworkUser
    from shmjet.net.forked_link import ForkedLink

    _MakeNetwork = Callable[[NetworkUser], Network]

_SWITCH_S = 0.0005
"""How long a thread that stores, reads or copies may keep the loop waiting for the interpreter's lock. Python's own
5 ms would be added to each message that the loop takes meanwhile."""
_WRONG_USAGE = 2
"""Exit status, as that of `shmjet` for a wrong setting."""

logger = logging.getLogger("shmjet.member")


def main(
    settings: dict[str, Any],
    report: StartReport,
    logs: int,
    server_pid: int,
    server: socket.socket,
    secret_fd: int,
    link: ForkedLink | None,
) -> None:
    """Be a member until it is asked to end.

    Args:
        settings: the fields of `MemberSettings`.
        report: takes how far the member is, that it is up, or why not.
        logs: descriptor of the socket for log records.
        server_pid: of its fork server, a child of this process.
        server: leads to it.
        secret_fd: where to read the secrets; -1 without a network.
        link: its link process; None without a network.
    """
    name_process("shmjet-member", f"member of {settings['cluster_name']}")
    send_logs(socket.socket(fileno=logs), MEMBER, *settings["log_levels"])
    try:
        converted = converter(MemberSettings)(settings)
        secrets = (b"", b"") if secret_fd < 0 else receive_secrets(secret_fd)
        prefer_nodes(converted.memory_nodes)
        sys.setswitchinterval(_SWITCH_S)
        if converted.note:
            logger.info(converted.note)
        network = _network_of(converted, *secrets, link)
        asyncio.run(_serve(converted, ForkServerProcess(server_pid, server), network, report))
    except Exception as error:
        if not isinstance(error, ShmjetError | OSError):
            logger.exception("the member failed")
        report.failed(error)
        sys.exit(_WRONG_USAGE if isinstance(error, ConfigError) else 1)


async def _serve(
    settings: MemberSettings, server: ForkServerProcess, network: _MakeNetwork | None, report: StartReport
) -> None:
    member = Member(settings, server, network, report.phase)
    if not report.has_reader:
        offer_stacks(member.folder.path)
    try:
        is_up = await member.start()
    except BaseException:
        await member.close()
        raise
    if not is_up:
        await member.close()
        return
    lines = banner(settings, member.folder.path, member.uuid, member.address)
    if not report.has_reader:
        print(clean("\n".join(lines)), flush=True)
    elif settings.bind is not None:
        for line in lines:
            logger.info(line)
    if report.has_reader:  # until now a starter that has waited for too long would have read them
        offer_stacks(member.folder.path)
    report.up(str(member.folder.path), member.uuid, member.address)
    await member.serve()


def _network_of(
    settings: MemberSettings, secret: bytes, member_secret: bytes, link: ForkedLink | None
) -> _MakeNetwork | None:
    if settings.bind is None:
        return None
    # Some 20 modules that a member without a network need not load.
    from shmjet.cluster.membership.discovery import make_discovery
    from shmjet.cluster.membership.network import Network
    from shmjet.cluster.membership.network_user import NetworkSettings
    from shmjet.net.messages import TlsFiles

    network = NetworkSettings(
        settings.bind,
        tuple(settings.seeds),
        settings.cluster_name,
        secret,
        member_secret,
        None if settings.tls is None else TlsFiles(**settings.tls),
        settings.partition_count,
        settings.flow_period_ns,
        settings.allow_code,
        settings.longest_silence,
        settings.backup_count,
        settings_of(settings.maps),
    )
    discovery = make_discovery(settings.discovery, settings.cluster_name)
    return lambda user: Network(network, user, discovery, link)
