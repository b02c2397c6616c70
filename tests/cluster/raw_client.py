"""A client that sends what the client library never would: any request, over a connection of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shmjet.cluster.client.connection import Connection, Endpoint
from shmjet.cluster.client.endpoint import RemoteEndpoint
from shmjet.cluster.client.tls_settings import tls_settings
from shmjet.net.messages import TlsFiles


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[Connection]:
    """Connect to the member at an endpoint; what comes unasked is not looked at."""
    connection = Connection(endpoint, lambda _: None, lambda: None, lambda: None)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def raw_client(address: str, secret: str, tls: dict[str, object] | None = None) -> Iterator[Connection]:
    """Connect to a member on the network as a client that knows the secret."""
    settings = tls_settings(tls)
    files = None if settings is None else TlsFiles(**settings)
    with connected(RemoteEndpoint([address], "", secret.encode(), files, 60.0)) as connection:
        yield connection
