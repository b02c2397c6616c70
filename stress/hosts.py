"""Clusters on hosts made of network namespaces: kill, stop and cut, and see that every job ends and the rest goes on.

Each round starts jobs from a client, lets one thing go wrong and checks: within five seconds each job has ended with an
error that names the member that was lost, or goes on; the members that are left agree on who they are; a new job
runs; the cluster comes together again. Parts: `member`, `coordinator`, `worker`, `link` and `client` are killed -9,
`stop` halts a member for longer than the time-out, `cut` cuts one off, `halves` cuts two apart, `answers` counts
words, groups and joins by every routing on 1, 2, 3 and 5 hosts. Needs root; says so otherwise.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError

from _answers import ROUTINGS, wrong_answers
from _stress import HANG_S, ROOT, Options, Tally, Times, all_gone, mark_processes, marked, name_of, parse_options, watch

from shmjet import (
    DAG,
    Execution,
    JetInstance,
    JobConfig,
    JobStatus,
    MemberLostError,
    Processor,
    ShmjetError,
    WorkerLostError,
    between,
    processors,
)
from tests.cluster.hosts import SECRET, Host, Hosts, why_not

KILLS = ("member", "coordinator", "worker", "link", "client", "stop", "cut")
END_S = 5.0

CLIENT = """
    import sys
    import shmjet
    from shmjet import DAG, ClientConfig, Processor, between, processors

    class Endless(Processor):
        def complete(self):
            self.outbox.offer_all(list(range(64)))
            return False

    dag = DAG()
    dag.edge(between(dag.new_vertex("s", Endless), dag.new_vertex("k", processors.noop())).distributed())
    jet = shmjet.new_client(sys.argv[2:], ClientConfig(secret=sys.argv[1]))
    execution = jet.new_job(dag).execute()
    print("running", flush=True)
    execution.result()
"""


class Endless(Processor):
    """Emits for ever."""

    def complete(self) -> bool:
        """Emit some."""
        self.outbox.offer_all(list(range(64)))
        return False


def start_job(jet: JetInstance) -> Execution:
    """Start a job over all members that fails when one is lost, and wait until it runs."""
    dag = DAG()
    edge = between(dag.new_vertex("source", Endless), dag.new_vertex("sink", processors.noop()))
    dag.edge(edge.partitioned(lambda item: item).distributed())
    execution = jet.new_job(dag, JobConfig(auto_scaling=False)).execute()
    deadline = time.monotonic() + HANG_S
    while execution.status is not JobStatus.RUNNING and time.monotonic() < deadline and not execution.done():
        time.sleep(0.01)
    return execution


class Round:
    """One thing that goes wrong, on hosts that are whole before and after.

    Args:
        hosts: with a member on each.
        tally: what is found.
        ends: times from the fault to the end of each job.
        whole: times from there until the cluster is whole again.
    """

    def __init__(self, hosts: Hosts, tally: Tally, ends: Times, whole: Times) -> None:
        self.hosts, self.tally, self.ends, self.whole = hosts, tally, ends, whole

    def run(self, what: str, rng: random.Random) -> None:
        """Let it go wrong once."""
        hosts = self.hosts
        with hosts.client() as jet:
            leader = jet.cluster.members[0].address
        followers = [host for host in hosts.hosts if host.address != leader]
        lead = next(host for host in hosts.hosts if host.address == leader)
        victim = lead if what == "coordinator" or (what in ("stop", "cut") and rng.random() < 0.5) else followers[0]
        with hosts.client([host for host in hosts.hosts if host is not victim]) as jet:
            executions = [start_job(jet) for _ in range(3)]
            at = time.perf_counter()
            self._do(what, victim, jet)
            if what != "client":
                self._ended(what, victim, executions, at)
            self._goes_on(what, jet)
        self._mend(what, victim)
        at = time.perf_counter()
        hosts.await_members(len(hosts.hosts), timeout=HANG_S)
        self.whole.add(time.perf_counter() - at)
        self.tally.done += 1

    def _do(self, what: str, victim: Host, jet: JetInstance) -> None:
        match what:
            case "member" | "coordinator":
                self.hosts.kill(victim)
            case "worker":
                member = next(m for m in jet.cluster.members if m.address == victim.address)
                os.kill(member.workers[0], signal.SIGKILL)
            case "link":
                os.kill(victim.children("shmjet-link")[0], signal.SIGKILL)
            case "stop":
                os.kill(victim.pid, signal.SIGSTOP)
            case "cut":
                self.hosts.cut([victim])
            case "client":
                self._kill_client()

    def _kill_client(self) -> None:
        addresses = [host.address for host in self.hosts.hosts]
        command = [sys.executable, "-c", textwrap.dedent(CLIENT), SECRET, *addresses]
        client = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert client.stdout is not None
        client.stdout.readline()
        client.kill()
        client.communicate()

    def _ended(self, what: str, victim: Host, executions: list[Execution], at: float) -> None:
        for execution in executions:
            try:
                error = execution.exception(HANG_S)
            except TimeoutError:
                self.tally.complain(f"{what} of {victim.address}: HANG: {execution}")
                execution.cancel()
                continue
            self.ends.add(time.perf_counter() - at)
            kind = WorkerLostError if what == "worker" else MemberLostError
            good = isinstance(error, kind) and victim.address in str(error)
            self.tally.check(good, f"{what} of {victim.address}: the job ended with {error!r}")

    def _goes_on(self, what: str, jet: JetInstance) -> None:
        """A new job runs; while views change, one may be refused."""
        deadline = time.monotonic() + HANG_S
        while True:
            try:
                execution = start_job(jet)
                if execution.status is JobStatus.RUNNING:
                    break
                error: BaseException | None = execution.exception(HANG_S)
            except (ShmjetError, TimeoutError) as refused:
                error = refused
            if time.monotonic() > deadline:
                self.tally.complain(f"{what}: no new job runs: {error!r}")
                return
            time.sleep(0.2)
        for job in jet.jobs():
            if job.execution is not None and not job.status.is_terminal:
                job.cancel()
        try:
            execution.result(HANG_S)
        except CancelledError:
            pass
        except BaseException as error:
            self.tally.complain(f"{what}: a cancelled job ended with {error!r}")

    def _mend(self, what: str, victim: Host) -> None:
        if what in ("member", "coordinator"):
            self.hosts.start([victim])
        elif what == "stop":
            os.kill(victim.pid, signal.SIGCONT)
        elif what == "cut":
            self.hosts.heal()


def answers(hosts: Hosts, tally: Tally, routings: Sequence[str]) -> None:
    """Count words, group rows and join items, by each routing, and compare."""
    with hosts.client() as jet:
        for routing in routings:
            watch(20 * HANG_S)
            for wrong in wrong_answers(jet, routing):
                tally.complain(f"other answers: {wrong}")
            tally.done += 1


def split_in_halves(tally: Tally) -> None:
    """Cut two members apart: each goes on alone, and they join again."""
    with Hosts(2) as hosts:
        hosts.start()
        hosts.await_members(2)
        near, far = hosts.hosts
        with hosts.client([near]) as jet:
            execution = start_job(jet)
            hosts.cut([far])
            error = execution.exception(HANG_S)
            tally.check(far.address in str(error), f"halves: the job ended with {error!r}")
            hosts.await_members(1, [near])
            start_job(jet).cancel()
        hosts.heal()
        hosts.await_members(2)
    tally.done += 1


def main() -> int:
    options: Options = parse_options(__doc__, count=20, ci=1, parts=[*KILLS, "halves", "answers"])
    if (reason := why_not()) is not None:
        print(f"hosts: skipped, {reason}")
        return 0
    rng = random.Random(options.seed)
    tally = Tally("hosts", options)
    ends = tally.timing("fault to the end of a job", END_S)
    whole = tally.timing("repaired to whole again", 10.0)
    mark = mark_processes()
    wanted = [what for what in KILLS if options.wants(what)]
    if wanted or options.wants("answers"):
        with Hosts(3) as hosts:
            hosts.start()
            hosts.await_members(3)
            if options.wants("answers"):
                answers(hosts, tally, ROUTINGS)
            for number in range(options.count):
                for what in wanted:
                    watch(20 * HANG_S)
                    options.say(f"round {number}: {what}")
                    Round(hosts, tally, ends, whole).run(what, rng)
    if options.wants("halves"):
        watch(20 * HANG_S)
        split_in_halves(tally)
    for size in (1, 2, 5) if options.wants("answers") else ():
        watch(20 * HANG_S)
        if size == 2 or not options.ci:
            with Hosts(size, cores=2 if size == 2 else 1) as hosts:
                hosts.start()
                hosts.await_members(size)
                answers(hosts, tally, ROUTINGS if not options.ci else ROUTINGS[:2])
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
