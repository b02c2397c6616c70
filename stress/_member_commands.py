"""Clusters of three members that are processes of `shmjet member`, for scripts that end and start them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from _stress import HANG_S, ROOT, wait_until

sys.path.insert(0, str(ROOT))

from shmjet import JetInstance, ShmjetError

SECRET = "a secret of stress"


class Wrong(Exception):
    """Something is not as it has to be."""


class Member:
    """One address of the cluster, and the member that is there now."""

    def __init__(self, folder: Path, number: int, *, stores: bool) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.log = folder / f"member{number}.log"
        self._storage = folder / f"storage{number}" if stores else None
        self._process: subprocess.Popen[bytes] | None = None
        self._said = 0

    @property
    def is_up(self) -> bool:
        """Whether it has said so since it was started."""
        return b"shmjet member" in self.log.read_bytes()[self._said :]

    def start(self, tree: Path, others: list[str]) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(tree),
            "SHMJET_BIND": self.address,
            "SHMJET_MEMBERS": ",".join(others),
            "SHMJET_SECRET": SECRET,
            "SHMJET_CORES": "1",
            "SHMJET_SCALE_UP_DELAY": "0.2",
            "SHMJET_LONGEST_SILENCE": "30",  # a member that stands still on a busy machine would be a second loss
            # What has returned within the last `storage_sync` may be gone when all members are killed.
            **({} if self._storage is None else {"SHMJET_STORAGE": str(self._storage), "SHMJET_STORAGE_SYNC": "0"}),
        }
        command = [sys.executable, "-P", "-m", "shmjet", "member"]
        self._said = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.log.parent
            )

    def signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def end(self, *, kindly: bool) -> None:
        self.signal(signal.SIGTERM if kindly else signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            process.wait(HANG_S)


class Cluster:
    """Three members, each started from some folder of the package."""

    def __init__(self, folder: Path, *, stores: bool) -> None:
        self.folder = folder
        self.members = [Member(folder, number, stores=stores) for number in range(3)]

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    def start(self, tree: Path, members: list[Member]) -> None:
        """Start some members, and wait until each says that it is up."""
        for member in members:
            member.start(tree, [address for address in self.addresses if address != member.address])
        if not wait_until(lambda: all(member.is_up for member in members), HANG_S, 0.05):
            raise Wrong(f"HANG: a member does not come up\n{self.logs()}")

    def end(self) -> None:
        for member in self.members:
            member.end(kindly=False)

    def settle(self, jet: JetInstance) -> None:
        """Wait until all members are there, and all that they keep has its backups."""

        def is_settled() -> bool:
            with contextlib.suppress(ShmjetError):
                return len(jet.cluster.members) == len(self.members) and jet.cluster.is_safe
            return False

        if not wait_until(is_settled, HANG_S, 0.05):
            raise Wrong(f"HANG: the members did not find together\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"--- {member.address}\n{member.log.read_text(errors='replace')}" for member in self.members)
