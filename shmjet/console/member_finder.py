"""Where the console finds members: in this user's folders on this host, or in a cluster over the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from shmjet.cluster.monitor.base import MonitoredMember
from shmjet.cluster.monitor.local import AttachedMember
from shmjet.cluster.monitor.remote import RemoteMember, RemoteMonitor
from shmjet.cluster.protocol import MemberStatus

Found = dict[str, Callable[[], MonitoredMember]]
"""By a key that names a member for good: what connects to it. It may raise MemberLostError."""


def local_members(folders: Iterable[Path]) -> Found:
    """Return the members of this host that have these folders."""
    return {str(folder): partial(AttachedMember, folder) for folder in folders}


def remote_members(cluster: RemoteMonitor) -> Found:
    """Return the members of a cluster.

    Raises:
        MemberLostError: no member can be reached.
    """

    def connect(status: MemberStatus) -> MonitoredMember:
        return RemoteMember(cluster, status)

    return {status.uuid: partial(connect, status) for status in cluster.status().members}
