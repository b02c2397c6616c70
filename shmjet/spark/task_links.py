"""The links of one Spark worker process to processors, kept from task to task.

A link goes over a Unix socket on the job's host, and over TCP from another host (`remote_task`).
"""

from __future__ import annotations

import socket

from shmjet.cluster.client.endpoint_connection import connect_endpoint
from shmjet.data.errors import MemberLostError, ShmjetError
from shmjet.spark.links import Destination, Link, host_id

_links: dict[tuple[str, int, str, int], Link] = {}


def link_to(destination: Destination, processor: int) -> Link:
    """Return the connection of this process to a processor, the one of earlier tasks if it is still good."""
    key = (destination.member_socket, destination.execution_id, destination.feed, processor)
    for old, link in list(_links.items()):
        if not link.is_open or (old[:3] != key[:3] and not link.is_alive):
            link.close()
            del _links[old]
    if key in _links and not _links[key].is_alive:
        _links.pop(key).close()
    if key not in _links:
        _links[key] = _connected(destination, processor)
    return _links[key]


def _connected(destination: Destination, processor: int) -> Link:
    if host_id() == destination.host[0]:
        try:
            name = f"{destination.feed}/{processor}"
            return Link(connect_endpoint(destination.member_socket, destination.execution_id, name))
        except MemberLostError:  # or this is a container that shares the host's kernel, and nothing else
            if destination.gateway is None:
                raise
    if destination.gateway is None:
        raise ShmjetError(
            f"this Spark task runs on host {socket.gethostname()!r}, the shmjet job on {destination.host[1]!r}: a feed "
            "reaches executors on the job's own host only while Spark's master is local[N] or local-cluster"
        )
    from shmjet.spark.remote_task import OutsideLink, dialled  # most workers need no TCP

    return OutsideLink(dialled(destination), processor)
