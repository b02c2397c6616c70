"""Hosts made of network namespaces: each has an interface of its own on a bridge, and may run one member.

What the kernel does between real hosts it does here: a cable that is pulled drops packets and says nothing. The bridge
stands in the namespace of the tests, so that clients reach the hosts from there. The tests and `stress/hosts.py` share
this.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import psutil

import shmjet
from shmjet import ClientConfig, JetInstance, ShmjetError
from tests.stopping import stop

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a secret of these hosts"
PORT = 5701
START_S = 60.0
LONGEST_SILENCE = "5"
"""Seconds; more than the pauses of a busy machine, and few enough to wait for the loss of a member."""
_numbers = itertools.count()


@functools.cache
def why_not() -> str | None:
    """Return why there can be no hosts here, None when there can."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    name = f"sjtry{os.getpid()}"
    try:
        run("netns", "add", name)
        try:
            run("link", "add", name[:15], "type", "bridge")
            run("link", "del", name[:15])
        finally:
            run("netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.decode().strip()}"
    return None


@functools.cache
def why_no_rules() -> str | None:
    """Return why cables cannot be narrowed and packets cannot be dropped here, None when they can."""
    missing = [name for name in ("tc", "nft") if shutil.which(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (iproute2, nftables)"
    if (reason := why_not()) is not None:
        return reason
    name = f"sjrule{os.getpid()}"
    run("netns", "add", name)
    try:
        _execute("tc", "qdisc", "add", "dev", "lo", "root", *_TBF, "rate", "10mbit", namespace=name)
        _execute("nft", *_TABLE, namespace=name)
    except subprocess.CalledProcessError as error:
        return f"the kernel does not have it: {error.stderr.decode().strip()}"
    finally:
        run("netns", "del", name)
    return None


_TBF = ("tbf", "burst", "32kb", "latency", "100ms")
_TABLE = ("add", "table", "inet", "shmjet")


def run(*words: str, namespace: str | None = None) -> None:
    """Run `ip`."""
    command = ["ip", *(() if namespace is None else ("-n", namespace)), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _execute(*words: str, namespace: str | None = None) -> None:
    """Run a program, in a namespace."""
    command = [*(() if namespace is None else ("ip", "netns", "exec", namespace)), *words]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


class Host:
    """One namespace with, perhaps, a member in it."""

    def __init__(self, prefix: str, subnet: str, number: int) -> None:
        self.name = f"{prefix}h{number}"
        self.cable = f"{prefix}v{number}"
        self.ip = f"{subnet}.{number + 1}"
        self.address = f"{self.ip}:{PORT}"
        self.process: subprocess.Popen[bytes] | None = None
        self.log: Path | None = None

    @property
    def shm(self) -> Path:
        """Its /dev/shm, while its member lives."""
        return Path(f"/proc/{self.pid}/root/dev/shm")

    @property
    def pid(self) -> int:
        """Of the member."""
        assert self.process is not None
        return self.process.pid

    def children(self, what: str) -> list[int]:
        """Return the pids of the member's children (and theirs) whose name contains a text."""
        found, waiting = [], [self.pid]
        while waiting:
            for child in _children(waiting.pop()):
                waiting.append(child)
                if what in _name(child):
                    found.append(child)
        return found


class Hosts:
    """Several hosts.

    Args:
        count: how many.
        cores: workers of each member.
        memory: of a /dev/shm of its own that each has, such as "300m"; None: they share one.
    """

    def __init__(self, count: int, cores: int = 1, memory: str | None = None) -> None:
        number = next(_numbers)
        self._prefix = f"sj{os.getpid() % 100_000}{chr(97 + number % 26)}"
        self._subnet = _free_subnet(77 + number % 26)
        self._bridges = [f"{self._prefix}b{side}" for side in (0, 1)]
        self._cores = cores
        self._memory = memory
        self._folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        self._spoiled: set[Host] = set()
        self.hosts = [Host(self._prefix, self._subnet, index) for index in range(count)]

    def __enter__(self) -> Hosts:
        try:
            self._plug()
        except BaseException:
            self._remove()
            raise
        return self

    def _plug(self) -> None:
        for bridge in self._bridges:
            run("link", "add", bridge, "type", "bridge")
            run("link", "set", bridge, "up")
        run("addr", "add", f"{self._subnet}.254/24", "dev", self._bridges[0])
        for host in self.hosts:
            run("netns", "add", host.name)
            run("link", "add", host.cable, "type", "veth", "peer", "name", "eth0", "netns", host.name)
            run("link", "set", host.cable, "master", self._bridges[0])
            run("link", "set", host.cable, "up")
            run("addr", "add", f"{host.ip}/24", "dev", "eth0", namespace=host.name)
            for device in ("lo", "eth0"):
                run("link", "set", device, "up", namespace=host.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            print(self.logs(), file=sys.stderr)
        self._remove()

    def _remove(self) -> None:
        for host in self.hosts:
            self.stop(host)
        for name in (*(host.cable for host in self.hosts), *self._bridges):
            subprocess.run(["ip", "link", "del", name], capture_output=True, check=False)
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
        shutil.rmtree(self._folder)

    # -- members ----------------------------------------------------------------------------------------------------

    def start(self, hosts: Sequence[Host] | None = None, **environment: str) -> None:
        """Start members on hosts (all), at once, and wait until each has said that it is up."""
        chosen = self.hosts if hosts is None else list(hosts)
        listed = ",".join(host.address for host in self.hosts)
        for host in chosen:
            host.log = self._folder / f"{host.name}.log"
            with host.log.open("ab") as log:
                host.process = subprocess.Popen(
                    ["ip", "netns", "exec", host.name, *self._own_memory(), sys.executable, "-m", "shmjet", "member"],
                    env={
                        **os.environ,
                        "PYTHONPATH": str(ROOT),
                        "SHMJET_BIND": host.address,
                        "SHMJET_MEMBERS": listed,
                        "SHMJET_SECRET": SECRET,
                        "SHMJET_CORES": str(self._cores),
                        "SHMJET_LONGEST_SILENCE": LONGEST_SILENCE,
                        **environment,
                    },
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                )
        deadline = time.monotonic() + START_S
        for host in chosen:
            assert host.log is not None
            while b"shmjet member" not in host.log.read_bytes():
                assert host.process is not None
                if host.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"no member came up on {host.name}:\n{self.logs()}")
                threading.Event().wait(0.05)

    def _own_memory(self) -> tuple[str, ...]:
        """Return what begins a command with a /dev/shm of its own."""
        if self._memory is None:
            return ()
        return "sh", "-c", f'mount -t tmpfs -o size={self._memory} shm /dev/shm && exec "$@"', "sh"

    def stop(self, host: Host) -> None:
        """Stop a member, kindly at first."""
        process, host.process = host.process, None
        if process is None:
            return
        for number, patience in ((signal.SIGCONT, 0.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            if process.poll() is None:
                process.send_signal(number)
                try:
                    process.wait(patience or 0.001)
                except subprocess.TimeoutExpired:
                    continue

    def kill(self, host: Host) -> None:
        """Kill a member: -9."""
        process, host.process = host.process, None
        assert process is not None
        process.kill()
        process.wait()

    def client(self, hosts: Sequence[Host] | None = None) -> JetInstance:
        """Return a client of the members on some hosts (all)."""
        addresses = [host.address for host in (self.hosts if hosts is None else hosts)]
        return shmjet.new_client(addresses, ClientConfig(secret=SECRET, connect_timeout=60))

    def await_members(self, count: int, hosts: Sequence[Host] | None = None, timeout: float = 60.0) -> None:
        """Wait until the members on hosts (all that run) each see so many."""
        chosen = [host for host in (self.hosts if hosts is None else hosts) if host.process is not None]

        def see() -> bool:
            for host in chosen:
                try:
                    with self.client([host]) as jet:
                        if len(jet.cluster.members) != count:
                            return False
                except ShmjetError:
                    return False
            return True

        wait_until(see, timeout, lambda: f"not {count} members\n{self.logs()}")

    def logs(self) -> str:
        """Return what all members have said."""
        return "\n".join(
            f"--- {host.name} {host.address}\n{host.log.read_text(errors='replace')}"
            for host in self.hosts
            if host.log is not None and host.log.exists()
        )

    def uuids(self, jet: JetInstance) -> dict[str, str]:
        """Return the members' identities by address: a restarted member has another identity."""
        return {member.address: member.uuid for member in jet.cluster.members}

    def pause(self, host: Host, seconds: float) -> None:
        """Let a member and all its processes stand still, as one whose machine is moved."""
        self.pause_all([host], seconds)

    def pause_all(self, hosts: Sequence[Host], seconds: float, *, everything: bool = True) -> None:
        """Let members stand still at the same time.

        Args:
            hosts: of the members.
            seconds: for how long.
            everything: with all their processes; else the members' own processes alone.
        """
        pids = [pid for host in hosts for pid in (host.pid, *(host.children("") if everything else ()))]
        for pid in pids:
            stop(pid)
        threading.Event().wait(seconds)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    # -- the network ------------------------------------------------------------------------------------------------

    def cut(self, apart: Sequence[Host]) -> None:
        """Put some hosts on a switch of their own, out of reach of all others, the tests included."""
        for host in apart:
            run("link", "set", host.cable, "master", self._bridges[1])

    def separate(self, near: Sequence[Host], far: Sequence[Host], *, one_way: bool = False) -> None:
        """Drop all packets between two sides; the tests reach both.

        Args:
            near: hosts of one side.
            far: of the other one.
            one_way: drop only what the near side sends.
        """
        for senders, receivers in ((near, far), (far, near))[: 1 if one_way else 2]:
            addresses = ", ".join(host.ip for host in senders)
            rules = f"""
                table inet shmjet {{
                    chain input {{
                        type filter hook input priority 0;
                        ip saddr {{ {addresses} }} drop
                    }}
                }}"""
            for host in receivers:
                self._spoiled.add(host)
                command = ["ip", "netns", "exec", host.name, "nft", "-f", "-"]
                subprocess.run(command, input=rules.encode(), check=True, capture_output=True, timeout=60)

    def heal(self) -> None:
        """Put all on one switch again, as wide as they were, and drop no packets."""
        for host in self.hosts:
            run("link", "set", host.cable, "master", self._bridges[0])
        for host in sorted(self._spoiled, key=lambda host: host.name):
            for words, namespace in (
                (("tc", "qdisc", "del", "dev", host.cable, "root"), None),
                (("tc", "qdisc", "del", "dev", "eth0", "root"), host.name),
                (("nft", "delete", "table", "inet", "shmjet"), host.name),
            ):
                with contextlib.suppress(subprocess.CalledProcessError):  # there is none
                    _execute(*words, namespace=namespace)
        self._spoiled.clear()

    def narrow(self, host: Host, rate: str) -> None:
        """Let no more through a host's cable, in each direction.

        Args:
            rate: such as "20mbit".
        """
        self._spoiled.add(host)
        _execute("tc", "qdisc", "replace", "dev", host.cable, "root", *_TBF, "rate", rate)
        _execute("tc", "qdisc", "replace", "dev", "eth0", "root", *_TBF, "rate", rate, namespace=host.name)

    def drop(self, host: Host, direction: str, percent: int = 100, of: Host | None = None) -> None:
        """Drop packets at a host: "input" that come, or "output" that it sends; some of them, or all: a one-way cut.

        Args:
            percent: how many, at random.
            of: to or from this other host only.
        """
        self._spoiled.add(host)
        _execute("nft", *_TABLE, namespace=host.name)
        hook = f"{{ type filter hook {direction} priority 0; }}"
        _execute("nft", "add", "chain", "inet", "shmjet", direction, hook, namespace=host.name)
        chance = () if percent >= 100 else ("numgen", "random", "mod", "100", "<", str(percent))
        end = () if of is None else ("ip", "daddr" if direction == "output" else "saddr", of.ip)
        _execute("nft", "add", "rule", "inet", "shmjet", direction, *end, *chance, "drop", namespace=host.name)


@contextlib.contextmanager
def burning() -> Iterator[None]:
    """Keep every core busy, twice over."""
    command = [sys.executable, "-c", "while True: sum(range(10_000))"]
    burners = [subprocess.Popen(command) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def wait_until(predicate: Callable[[], object], timeout: float, what: Callable[[], str]) -> None:
    """Wait until a predicate is true."""
    deadline = time.monotonic() + timeout
    while not predicate():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what()}"
        threading.Event().wait(0.05)


def _free_subnet(second: int) -> str:
    """Return the first three numbers of addresses that no interface has: a run that was killed leaves its bridges."""
    taken = [address.address for addresses in psutil.net_if_addrs().values() for address in addresses]
    for offset in range(256):
        subnet = f"10.{second}.{(os.getpid() + offset) % 256}"
        if not any(address.startswith(f"{subnet}.") for address in taken):
            return subnet
    raise AssertionError(f"all of 10.{second} is taken")


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
