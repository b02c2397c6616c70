"""Clusters on hosts made of network namespaces whose network is bad, or which are busy or stand still for a moment.

Parts: `busy` lets all cores burn for a minute and `pause` lets hosts stand still for a second: both without suspicion.
`narrow` (tbf) and `loss` (nftables) check answers over bad cables, `deaf` cuts in one direction only, `detect` measures
how long a silent member goes unnoticed. `hiccups`: a consumer that stops for a second now and then, next to another
edge on the same connection; all counts are exact, the link's memory is bounded, and the neighbour keeps its rate. Needs
root, iproute2 and nftables; says so otherwise.
"""

from __future__ import annotations

import random
import sys
import threading
import time

import numpy as np
import psutil
from _answers import ROUTINGS, wrong_answers
from _stress import HANG_S, Options, Tally, all_gone, mark_processes, marked, name_of, parse_options, watch
from hosts import start_job

from shmjet import DAG, Batch, EdgeConfig, JetInstance, JobStatus, MemberLostError, Processor, between, processors
from shmjet.net.window import BLOCK, INITIAL_WINDOW
from tests.cluster.hosts import Hosts, burning, why_no_rules, why_not

PARTS = ("busy", "pause", "narrow", "loss", "deaf", "detect", "hiccups")
BUSY_S, PAUSE_S, NOTICED_S, HICCUP_S = 60.0, 1.0, 3.0, 1.0
WINDOW_S = 0.375
"""A window grows to what is taken in three flow-control periods of 0.1 s; the best ones are faster than the mean."""
KEPT_MEMORY = 48 << 20
"""What the link keeps for batches without a slot, with room for the rest."""
KEPT_RATE = 0.9


def unsuspected(hosts: Hosts, tally: Tally, what: str, seconds: float, count: int, rng: random.Random) -> None:
    """Burn, or pause some hosts, with a job under way, and check that no member was lost."""
    with hosts.client() as jet:
        before = hosts.uuids(jet)
        execution = start_job(jet)
        if what == "busy":
            with burning():
                time.sleep(seconds)
        else:
            for _ in range(count):
                for host in rng.sample(hosts.hosts, rng.randint(1, len(hosts.hosts))):
                    hosts.pause(host, PAUSE_S)
                time.sleep(rng.random())
        tally.check(execution.status is JobStatus.RUNNING, f"{what}: the job is {execution!r}")
        tally.check(hosts.uuids(jet) == before, f"{what}: {before} became {hosts.uuids(jet)}")
        execution.cancel()
    tally.done += 1


def bad_cables(hosts: Hosts, tally: Tally, what: str, routing: str, rng: random.Random) -> None:
    """Check answers while cables are narrow, or lose packets."""
    with hosts.client() as jet:
        before = hosts.uuids(jet)
        try:
            for host in rng.sample(hosts.hosts, 2):
                if what == "narrow":
                    hosts.narrow(host, rng.choice(["10mbit", "50mbit"]))
                else:
                    for direction in ("input", "output"):
                        hosts.drop(host, direction, percent=rng.choice([1, 4]))
            config = EdgeConfig(compression="lz4") if rng.random() < 0.5 else None
            for wrong in wrong_answers(jet, routing, config):
                tally.complain(f"{what}: {wrong}")
        finally:
            hosts.heal()
        tally.check(hosts.uuids(jet) == before, f"{what}: {before} became {hosts.uuids(jet)}")
    tally.done += 1


def silent(hosts: Hosts, tally: Tally, what: str, rng: random.Random, noticed: object) -> None:
    """Cut a host off, in one direction or both, and see that the others notice in time."""
    with hosts.client() as jet:
        lead = jet.cluster.members[0].address
    victim = rng.choice([host for host in hosts.hosts if host.address != lead])
    rest = [host for host in hosts.hosts if host is not victim]
    with hosts.client(rest) as jet:
        execution = start_job(jet)
        at = time.perf_counter()
        if what == "detect":
            hosts.cut([victim])
        elif rng.random() < 0.5:
            for host in rest:
                hosts.drop(host, "input", of=victim)
        else:
            for host in rest:
                hosts.drop(host, "output", of=victim)
        try:
            error = execution.exception(HANG_S)
        except TimeoutError:
            error = None
        noticed.add(time.perf_counter() - at)  # type: ignore[attr-defined]
        good = isinstance(error, MemberLostError) and victim.address in str(error)
        tally.check(good, f"{what} of {victim.address}: the job ended with {error!r}")
    hosts.heal()
    hosts.await_members(len(hosts.hosts), timeout=HANG_S)
    tally.done += 1


class Pours(Processor):
    """Emits batches on the first member for some seconds, then how many rows these were to the list `sent NAME`."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self._seconds = name, seconds
        self._rows = 0
        self._refused = False
        self._end = 0.0
        self._batch = Batch({"key": np.arange(8192)})

    def complete(self) -> bool:
        """Emit as much as fits."""
        self._end = self._end or time.monotonic() + self._seconds
        while self._refused or (self.context.member_index == 0 and time.monotonic() < self._end):
            self._refused = not self.outbox.offer(self._batch, 0)
            if self._refused:
                return False
            self._rows += 8192
        return bool(self.outbox.offer((f"sent {self._name}", self._rows), 1))


class Takes(Processor):
    """Counts rows, and stops now and then; in a process of its own, so that no other processor is stopped."""

    is_cooperative = False

    def __init__(self, name: str, hiccup: float) -> None:
        self._name, self._hiccup = name, hiccup
        self._rows = self._sum = 0
        self._next = 0.0

    def process(self, ordinal: int, inbox: object) -> None:
        """Count what there is."""
        for batch in iter(inbox.poll, None):  # type: ignore[attr-defined]
            self._rows += batch.num_rows
            self._sum += int(batch["key"].sum())
        if self._hiccup and time.monotonic() > self._next:
            time.sleep(self._hiccup)
            self._next = time.monotonic() + self._hiccup

    def complete(self) -> bool:
        """Tell the count."""
        good = self._sum == self._rows // 8192 * sum(range(8192))
        return bool(self.outbox.offer((f"got {self._name}", self._rows if good else -1)))


def pour(jet: JetInstance, target: str, seconds: float, hiccup: float) -> dict[str, int]:
    """Let two edges run at the same time to a member, one of them with hiccups, and return the rows of each."""
    dag = DAG()
    sink = dag.new_vertex("sink", processors.write_list("poured"), local_parallelism=1)
    for place, name in enumerate(("slow", "fast")):
        source = dag.new_vertex(name, lambda name=name: Pours(name, seconds), local_parallelism=1)
        stops = hiccup if name == "slow" else 0.0
        taking = dag.new_vertex(f"take {name}", lambda name=name, stops=stops: Takes(name, stops), local_parallelism=1)
        dag.edge(between(source, taking).all_to_one().distribute_to(target))
        dag.edge(_edge(source, 1, sink, 2 * place)).edge(_edge(taking, 0, sink, 2 * place + 1))
    poured = jet.get_list("poured")
    poured.clear()
    jet.new_job(dag).run(seconds + HANG_S)
    rows: dict[str, int] = {}
    for name, number in poured:
        rows[name] = rows.get(name, 0) + number
    return rows


def _edge(source: object, ordinal: int, destination: object, at: int) -> object:
    from shmjet import from_

    return from_(source, ordinal).to(destination, at)


def hiccups(tally: Tally, seconds: float, options: Options) -> None:
    """See the module."""
    with Hosts(2) as hosts:
        hosts.start()
        hosts.await_members(2)
        with hosts.client() as jet:
            members = [member.address for member in jet.cluster.members]
            target = next(host for host in hosts.hosts if host.address == members[1])
            link = psutil.Process(target.children("shmjet-link")[0])
            before, most, over = link.memory_info().rss, 0, threading.Event()

            def look() -> None:
                nonlocal most
                while not over.wait(0.01):
                    most = max(most, link.memory_info().rss - before)

            watching = threading.Thread(target=look)
            watching.start()
            try:
                rates, fastest = [], 0.0
                for hiccup in (0.0, HICCUP_S, 0.0, HICCUP_S):
                    rows = pour(jet, members[1], seconds, hiccup)
                    for name in ("slow", "fast"):
                        good = rows[f"sent {name}"] == rows[f"got {name}"] > 0
                        tally.check(good, f"hiccups of {hiccup} s: {rows}")
                    rates.append(rows["got fast"] / seconds)
                    fastest = max(fastest, 8 * rows["got fast"] / seconds)
                    options.say(f"hiccups of {hiccup} s: {rows}")
            finally:
                over.set()
                watching.join()
        kept = (rates[1] + rates[3]) / (rates[0] + rates[2])
        tally.notes.append(f"during hiccups {kept:.2f} of the rate, the link grew by {most >> 20} MiB")
        tally.check(kept >= KEPT_RATE or options.ci, f"during hiccups an edge keeps {kept:.2f} of its rate")
        # the edge that stops now and then is as fast as the other at its best, while it does not
        bound = KEPT_MEMORY + max(INITIAL_WINDOW * BLOCK, int(WINDOW_S * fastest))
        tally.check(most <= bound, f"the link grew by {most >> 20} MiB, more than {bound >> 20}")
    tally.done += 1


def main() -> int:
    options = parse_options(__doc__, count=5, ci=1, parts=PARTS)
    if (reason := why_not() or why_no_rules()) is not None:
        print(f"slow_hosts: skipped, {reason}")
        return 0
    rng = random.Random(options.seed)
    tally = Tally("slow_hosts", options)
    noticed = tally.timing("a silent member is noticed", NOTICED_S)
    deaf = tally.timing("a member that is cut off one way is", 2 * NOTICED_S)
    mark = mark_processes()
    wanted = [part for part in PARTS if options.wants(part) and part != "hiccups"]
    if wanted:
        with Hosts(3) as hosts:
            hosts.start()
            hosts.await_members(3)
            for part in wanted:
                watch(10 * HANG_S)
                options.say(part)
                if part in ("busy", "pause"):
                    unsuspected(hosts, tally, part, 4.0 if options.ci else BUSY_S, 2 * options.count, rng)
                    continue
                for number in range(options.count):
                    watch(10 * HANG_S)
                    if part in ("narrow", "loss"):
                        bad_cables(hosts, tally, part, ROUTINGS[(options.seed + number) % len(ROUTINGS)], rng)
                    else:
                        silent(hosts, tally, part, rng, noticed if part == "detect" else deaf)
    if options.wants("hiccups"):
        watch(10 * HANG_S)
        hiccups(tally, 2.0 if options.ci else 10.0, options)
    if not all_gone(mark):
        tally.complain(f"left behind: {', '.join(name_of(pid) for pid in marked(mark))}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
