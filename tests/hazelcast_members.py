"""Members of Hazelcast on this host, each a JVM; for tests, stress and benches."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.waiting import until

ROOT = Path(__file__).resolve().parents[1]
POM = ROOT / "bench" / "peers" / "hazelcast" / "pom.xml"
VERSION = re.findall(r"<artifactId>hazelcast</artifactId>\s*<version>(.+)</version>", POM.read_text())[0]
_CACHED = Path.home() / ".m2" / "repository" / "com" / "hazelcast" / "hazelcast" / VERSION
_FETCHED = ROOT / "build" / "hazelcast"
_FETCH_S = 120
_START_S = 120

_CONFIG = """<?xml version="1.0" encoding="UTF-8"?>
<hazelcast xmlns="http://www.hazelcast.com/schema/config">
  <cluster-name>{cluster}</cluster-name>
  <properties>
    <property name="hazelcast.logging.type">none</property>
    <property name="hazelcast.phone.home.enabled">false</property>
    <property name="hazelcast.socket.bind.any">false</property>
    <property name="hazelcast.local.localAddress">127.0.0.1</property>
    <property name="hazelcast.partition.count">{partitions}</property>
    <property name="hazelcast.max.no.heartbeat.seconds">{silence}</property>
  </properties>
  <network>
    <port auto-increment="false">{port}</port>
    <interfaces enabled="true"><interface>127.0.0.1</interface></interfaces>
    <join>
      <auto-detection enabled="false"/><multicast enabled="false"/>
      <tcp-ip enabled="true">{members}</tcp-ip>
    </join>
  </network>
  <metrics enabled="false"/>
  {maps}
</hazelcast>
"""

_JOURNAL = '<map name="{name}"><event-journal enabled="true"><capacity>{capacity}</capacity></event-journal></map>'


def jar() -> Path:
    """Return Hazelcast's archive; Maven fetches it, unless it has.

    Raises:
        RuntimeError: there is no Java or no Maven, or Maven fails.
    """
    for place in (_CACHED, _FETCHED):
        found = place / f"hazelcast-{VERSION}.jar"
        if found.exists() and shutil.which("java"):
            return found
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise RuntimeError(f"no {program}")
    command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(
            [*command, f"-Doutput={_FETCHED}", f"-DoutputDirectory={_FETCHED}"],
            capture_output=True,
            text=True,
            timeout=_FETCH_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"Maven took more than {_FETCH_S} s") from None
    found = _FETCHED / f"hazelcast-{VERSION}.jar"
    if done.returncode or not found.exists():
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise RuntimeError(f"Maven: {' '.join(errors[:1])[:200] or done.returncode}")
    return found


def free_ports(count: int) -> list[int]:
    """Return ports of this host that no process listens on now, below the ports that the kernel deals out by itself."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.SystemRandom().randrange(15_000, 32_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports = [*(other for other in ports if other != port), port]
    return ports


class HazelcastMember:
    """A member that runs. It ends with its `close`.

    Args:
        folder: for its configuration and what it writes.
        port: of this member.
        cluster: name of the cluster.
        others: ports of the other members that there may be.
        journals: patterns of names of maps, with the capacity of their journals.
        partitions: how many the cluster has.
        heap: of the JVM.
        silence: seconds after which a silent member counts as lost.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        *,
        cluster: str = "shmjet",
        others: Sequence[int] = (),
        journals: dict[str, int] | None = None,
        partitions: int = 271,
        heap: str = "512m",
        silence: int = 60,
    ) -> None:
        self.port = port
        self.cluster = cluster
        self._config = folder / f"hazelcast-{port}.xml"
        maps = "".join(
            _JOURNAL.format(name=escape(name), capacity=capacity) for name, capacity in (journals or {}).items()
        )
        members = "".join(f"<member>127.0.0.1:{other}</member>" for other in (port, *others))
        self._config.write_text(
            _CONFIG.format(
                cluster=cluster, port=port, members=members, maps=maps, partitions=partitions, silence=silence
            )
        )
        self._command = [
            *("java", f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
            *(f"-Dhazelcast.config={self._config}", "-cp", str(jar())),
            "com.hazelcast.core.server.HazelcastMemberStarter",
        ]
        self.start()

    @property
    def config(self) -> dict[str, Any]:
        """Options of a client of it."""
        address = f"127.0.0.1:{self.port}"
        return {"cluster_name": self.cluster, "cluster_members": [address], "cluster_connect_timeout": 60}

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def start(self) -> None:
        """Start it, again after `kill`; return when it lets clients in."""
        with self._config.with_suffix(".log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        try:
            until(lambda: self._lets_in() or self._process.poll() is not None, _START_S)
        except AssertionError:
            self.close()
        if self._process.poll() is not None:
            raise RuntimeError(f"Hazelcast did not start: {self._config.with_suffix('.log').read_text()[-2000:]}")

    def _lets_in(self) -> bool:
        """Whether it takes connections; a client repeats what comes before it is ready."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False

    def pause(self) -> None:
        """Have it stand still."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Have it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it without notice."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
