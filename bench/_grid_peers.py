"""What maps of a cluster are measured against: members of Hazelcast, Redis, bare sockets; and our own members."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from _harness import PeerSkipped

import shmjet
from tests.hazelcast_members import HazelcastMember, free_ports, jar

SECRET = "a secret of this bench"
HEAP = "1g"
PATIENCE_S = 120.0
_CHUNK = 1 << 20


def until(is_so: Callable[[], object], pause: float = 0.002) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:.0f} s")
        time.sleep(pause)


class Members:
    """Members of ours on this host, each with one worker, and a client of theirs.

    Args:
        resources: end them.
        count: of members.
        backups: of each partition.
        client_of: the place of the member that the client is connected to.
    """

    def __init__(self, resources: ExitStack, count: int, backups: int, client_of: int = 0) -> None:
        self._resources = resources
        self._backups = backups
        self.instances: list[shmjet.JetInstance] = []
        for _ in range(count):
            self.add()
        self.settle()
        address = self.instances[client_of].cluster.members[client_of].address
        self.client = resources.enter_context(shmjet.new_client([address], shmjet.ClientConfig(secret=SECRET)))

    def add(self) -> shmjet.JetInstance:
        """Start another member."""
        addresses = [member.address for member in self.instances[0].cluster.members] if self.instances else []
        config = shmjet.JetConfig(
            cores=1, bind="127.0.0.1:0", members=addresses, secret=SECRET, backup_count=self._backups
        )
        instance = shmjet.new_instance(config)
        self._resources.callback(self._end, instance)
        self.instances.append(instance)
        return instance

    def remove(self) -> None:
        """End the last member; its partitions go to the others first."""
        self.instances.pop().shutdown()
        self.settle()

    def settle(self) -> None:
        """Wait until partitions and backups are where they should be."""
        cluster, count = self.instances[0].cluster, len(self.instances)
        until(lambda: len(cluster.members) == count and cluster.is_safe)
        until(lambda: len({row[0] for row in cluster.partition_table()}) == count and cluster.is_safe)

    @staticmethod
    def _end(instance: shmjet.JetInstance) -> None:
        with suppress(shmjet.ShmjetError):  # it is gone already
            instance.shutdown()


def hazelcast_client(resources: ExitStack, members: int = 2) -> Any:
    """Return a client of a cluster of Hazelcast, which has one backup of each partition.

    Raises:
        PeerSkipped: there is no Java, no Maven, or no client.
    """
    try:
        jar()
        import hazelcast
    except (RuntimeError, ModuleNotFoundError) as error:
        raise PeerSkipped(str(error)) from None
    folder = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="shmjet-bench-")))
    ports = free_ports(members)
    config: dict[str, Any] = {}
    for port in ports:
        member = HazelcastMember(folder, port, others=[other for other in ports if other != port], heap=HEAP)
        resources.callback(member.close)
        config = config or member.config
    client = hazelcast.HazelcastClient(**config)
    resources.callback(client.shutdown)
    until(lambda: len(client.cluster_service.get_members()) == members)
    return client


def redis_client(resources: ExitStack) -> Any:
    """Return a client of a Redis server of its own, which writes nothing to disk.

    Raises:
        PeerSkipped: there is no server, or no client.
    """
    server = shutil.which("redis-server")
    if server is None:
        raise PeerSkipped("no redis-server (Debian's package of that name)")
    try:
        import redis
    except ModuleNotFoundError as error:
        raise PeerSkipped(str(error)) from None
    (port,) = free_ports(1)
    command = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    resources.callback(process.wait)
    resources.callback(process.terminate)
    client = redis.Redis(port=port)
    resources.callback(client.close)

    def answers() -> bool:
        with suppress(redis.ConnectionError):
            return bool(client.ping())
        return False

    until(answers)
    return client


_TAKE = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as here:
    room = bytearray(1 << 20)
    while here.recv_into(room):
        pass
    here.sendall(b"x")
"""


def send_by_sockets(size: int) -> float:
    """Return the seconds that so many bytes take from this process to another one, with nothing around them."""
    data = memoryview(os.urandom(_CHUNK))
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-S", "-c", _TAKE, str(server.getsockname()[1])]
        with subprocess.Popen(command) as process:
            there, _ = server.accept()
            with there:
                begin = time.perf_counter()
                left = size
                while left > 0:
                    there.sendall(data[: min(left, _CHUNK)])
                    left -= _CHUNK
                there.shutdown(socket.SHUT_WR)
                there.recv(1)
                seconds = time.perf_counter() - begin
            process.wait()
    return seconds
