"""How long a job stands still when members of its cluster are lost or join, compared with a cluster of Hazelcast 5.

Three members on this host, a job with exactly-once and a snapshot each half second, keyed state on all members.

`recovery_member`: kill -9 of a member that does not coordinate, until the first new item; target: <= 1 s, ratio >= 1.
`recovery_coordinator`: the same of the coordinator.
`recovery_silent`: all processes of a member stop answering (SIGSTOP), until the first new item; target: <= 4 s.
`recovery_scale_out`: a third member joins two that have 1 GB of state (`--quick`: 50 MB), from the last item before
the restart to the first after it; target: ratio >= 2. The delay after the join is the same short one for both.
`recovery_backups`: a job on two members with a snapshot each second and one backup, compared with the same job without
a guarantee; items a second; target: ratio >= 0.9.

The peer needs Java and Maven; it is named as skipped where they are missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from _harness import Bench, Options, Report, parse_options, rate
from _hazelcast import Hazelcast
from _hazelcast import member as hazelcast_member
from _recovery_jobs import Attempt, attempts, bounded, counting

TARGETS = {
    "recovery_member": "<= 1 s, ratio >= 1",
    "recovery_coordinator": "<= 1 s, ratio >= 1",
    "recovery_silent": "<= 4 s",
    "recovery_scale_out": "ratio >= 2",
    "recovery_backups": "ratio >= 0.9",
}
SECRET = "a secret of benches"
KEYS = 10_000
VALUE_BYTES = 100
INTERVAL_S = 0.5
JOIN_DELAY_S = 1.0
STEADY_S = 3.0
SOON_S = 120.0
HEAP = {True: "512m", False: "2g"}
"""Of a Java member, in quick runs and others."""


class Shmjet:
    """A cluster of shmjet.

    Args:
        workers: of each member.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._members: list[Any] = []
        self._addresses: list[str] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Shmjet:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def join(self) -> None:
        """Start a member."""
        import shmjet

        config = shmjet.JetConfig(
            cores=self._workers,
            bind="127.0.0.1:0",
            members=self._addresses[:1],
            secret=SECRET,
            scale_up_delay=JOIN_DELAY_S,
        )
        member = shmjet.new_instance(config)
        self._stack.callback(_shut_down, member)
        self._members.append(member)
        self._addresses.append(next(found.address for found in member.cluster.members if found.is_local))

    def client(self) -> Any:
        """Return a client that knows all members, when there are all."""
        import shmjet

        _wait(lambda: len(self._members[0].cluster.members) == len(self._members))
        client = shmjet.new_client(self._addresses, shmjet.ClientConfig(secret=SECRET))
        self._stack.callback(client.shutdown)
        return client

    def start(self, keys: int, value_bytes: int, folder: Path) -> None:
        """Start the job on all members."""
        import shmjet

        guarantee = shmjet.ProcessingGuarantee.EXACTLY_ONCE
        config = shmjet.JobConfig(processing_guarantee=guarantee, snapshot_interval=INTERVAL_S)
        execution = self.client().new_job(counting(keys, value_bytes, folder), config).execute()
        self._stack.callback(execution.cancel)

    def pid(self, place: int) -> int:
        """Of the process that is the member of this place in the order of their start."""
        members = self._members[0].cluster.members
        return next(int(member.pid) for member in members if member.address == self._addresses[place])


class Peer:
    """A cluster of Hazelcast.

    Args:
        workers: cooperative threads of each member.
        heap: of each member.
    """

    def __init__(self, workers: int, heap: str) -> None:
        self._cores = sorted(os.sched_getaffinity(0))[:workers]
        self._heap = heap
        self._members: list[Hazelcast] = []
        self._ports: list[int] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        for member in self._members:  # leaving in good order takes Hazelcast long
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        self._stack.close()

    def join(self) -> None:
        """Start a member."""
        self._ports.append(_free_port())
        arguments = self._ports[-1], self._ports[0], int(JOIN_DELAY_S * 1000)
        found = hazelcast_member(self._cores, "recovery", *arguments, heap=self._heap)
        self._members.append(self._stack.enter_context(found))

    def start(self, keys: int, value_bytes: int, folder: Path) -> None:
        """Start the job on all members."""
        self._members[0].start_job(len(self._members), keys, value_bytes, folder)

    def pid(self, place: int) -> int:
        """Of the member of this place in the order of their start."""
        return self._members[place].pid


Cluster = Shmjet | Peer


def until_new_item(make: Callable[[], Cluster], place: int, *, silent: bool = False) -> float:
    """Return the seconds from the loss of one of three members to the first item of a new attempt.

    Args:
        make: a cluster without members.
        place: of the member, in the order of their start.
        silent: whether its processes are stopped, and not killed.
    """
    with _running(make, 3, KEYS, VALUE_BYTES) as (cluster, folder):
        pid = cluster.pid(place)
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)] if silent else []
        before = attempts(folder)
        began = time.monotonic()
        if silent:
            for process in processes:
                process.suspend()
        else:
            os.kill(pid, signal.SIGKILL)
        try:
            first = _wait(lambda: _first_new(folder, before))
        finally:
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
        return float(first - began)


def pause_of_join(make: Callable[[], Cluster], keys: int, value_bytes: int) -> float:
    """Return the seconds between the last item of two members and the first of three."""
    with _running(make, 2, keys, value_bytes) as (cluster, folder):
        before = attempts(folder)
        cluster.join()
        first = _wait(lambda: _first_new(folder, before))
        return float(first - max(attempts(folder)[name].last for name in before))


@contextlib.contextmanager
def _running(make: Callable[[], Cluster], size: int, keys: int, value_bytes: int) -> Iterator[tuple[Cluster, Path]]:
    """Have a cluster run the job with its whole state."""
    with tempfile.TemporaryDirectory() as place, make() as cluster:
        folder = Path(place)
        for _ in range(size):
            cluster.join()
        cluster.start(keys, value_bytes, folder)
        _wait(lambda: sum(attempt.items for attempt in attempts(folder).values()) >= size * keys)
        time.sleep(STEADY_S)
        yield cluster, folder


def _first_new(folder: Path, before: dict[str, Attempt]) -> float:
    """Return when the first item of an attempt came that is not among those before; 0 when none has come."""
    return min((attempt.first for name, attempt in attempts(folder).items() if name not in before), default=0.0)


def with_snapshots(bench: Bench, workers: int, count: int) -> None:
    """Two members that stay; the job with and without a guarantee."""
    import shmjet

    cluster = bench.resources.enter_context(Shmjet(workers))
    for _ in range(2):
        cluster.join()
    jet = cluster.client()
    guarantees = shmjet.ProcessingGuarantee

    def run(guarantee: shmjet.ProcessingGuarantee) -> float:
        config = shmjet.JobConfig(processing_guarantee=guarantee, snapshot_interval=1.0)
        return rate(2 * count, lambda: jet.new_job(bounded(KEYS, count), config).run(timeout=SOON_S))

    bench.ours(lambda: run(guarantees.EXACTLY_ONCE))
    bench.peer("without", lambda: run(guarantees.NONE))


def recovery(options: Options, report: Report, name: str) -> None:
    """One bench."""
    workers = options.workers
    with Bench(name, "items/s" if name == "recovery_backups" else "s") as bench:
        bench.facts = {"target": TARGETS[name], "workers": f"{workers} a member"}

        def ours() -> Cluster:
            return Shmjet(workers)

        def theirs() -> Cluster:
            return Peer(workers, HEAP[options.quick])

        if name == "recovery_backups":
            with_snapshots(bench, workers, 200_000 if options.quick else 2_000_000)
        elif name == "recovery_scale_out":
            keys = 500 if options.quick else 10_000
            bench.facts["state"] = f"{keys} keys of 100 KB"
            bench.ours(lambda: pause_of_join(ours, keys, 100_000))
            bench.peer("hazelcast", lambda: pause_of_join(theirs, keys, 100_000))
        elif name == "recovery_silent":
            bench.ours(lambda: until_new_item(ours, 2, silent=True))
        else:
            place = 0 if name == "recovery_coordinator" else 2
            bench.ours(lambda: until_new_item(ours, place))
            bench.peer("hazelcast", lambda: until_new_item(theirs, place))
        report.add(bench.measure(rounds=3 if options.quick else 7, warm_up=0))


def _wait(found: Callable[[], Any]) -> Any:
    """Return what a function finds as soon as it finds something."""
    deadline = time.monotonic() + SOON_S
    while not (value := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing has come within {SOON_S:.0f} s")
        time.sleep(0.002)
    return value


def _shut_down(member: Any) -> None:
    """End a member that may be gone."""
    import shmjet

    with contextlib.suppress(shmjet.ShmjetError):
        member.shutdown()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main() -> int:
    """Measure what was asked for."""
    options = parse_options(__doc__, benches=list(TARGETS))
    logging.getLogger("shmjet").setLevel(logging.ERROR)
    report = Report(options)
    for name in TARGETS:
        if options.wants(name):
            recovery(options, report, name)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
