"""Distributed edges between two members on loopback, compared with bare sockets and pyzmq.

Each member has one worker, pinned to a core of its own, and a link process, which is not pinned; the engine's workers
and links are real, the coordinator is a few lines (`_members.py`), so that nothing else is measured. Peers get the
same cores: their two processes are pinned to the same two, helper threads of pyzmq are not.

On two cores that is four busy processes of ours against two of a bare connection (four threads of pyzmq), so the
seconds say how well cores are shared, too. Therefore each bench also prints what all processes of a contender have
cost, in processor time and in wake-ups, per item or MiB.

* `link_batches`: batches of 64 Ki rows of two 8-byte columns (1 MiB), four different ones in turn, from member 0 to
  member 1, where their rows are counted. Peer: a bare blocking TCP connection with blocks of 1 MiB. Target 0.6.
* `link_tuples`: small (word, number) tuples, the same way. Peer: pyzmq PUSH/PULL over tcp of pickled lists of 256.
  Target 2.
* `link_latency_p50`, `link_latency_p99`: one item every 2 ms to the other member and back. Peer: pyzmq REQ/REP over
  tcp. Target: at most 1.5 times as long, so a ratio of at least 0.67. (The source that waits for its next turn is
  polled: most of its cost and wake-ups are that.)
* `link_flow_control`: `link_batches` with the receive window compared with the same without. Target 0.9.
* `link_tls`: `link_batches` with TLS compared with the same in the clear; reported.
* `link_wordcount`: words counted on two members of one worker each, over a distributed partitioned edge, against one
  member of two workers. Target 0.85.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, cycle
from pathlib import Path
from typing import Any

from _costs import Account
from _harness import Bench, Options, PeerSkipped, Report, parse_options
from _link_peers import PAUSE_NS, bare_sockets, pairs_of, two_cores, zmq_round_trips, zmq_tuples
from _members import BenchCluster, read_results

from shmjet.core import DAG, Inbox, Outbox, Processor, ProcessorContext, between

ROWS = 1 << 16


# -- processors --------------------------------------------------------------------------------------------------------


class BatchSource(Processor):
    """Emits batches on the first member."""

    movable = False

    def __init__(self, count: int) -> None:
        self._left = count

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        import numpy as np

        from shmjet.data.batch import Batch

        super().init(outbox, context)
        if context.global_index:
            self._left = 0
        kinds = range(4 if self._left else 0)
        batches = [Batch({"key": np.arange(i, i + ROWS), "value": np.arange(ROWS) * (0.5 + i)}) for i in kinds]
        self._batches = cycle(batches)
        self._next = next(self._batches, None)

    def complete(self) -> bool:
        while self._left:
            if not self.outbox.offer(self._next):
                return False
            self._next = next(self._batches)
            self._left -= 1
        return True


class Sum(Processor):
    """Counts items, or the rows of batches, and leaves the number in a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._count = 0

    def process(self, ordinal: int, inbox: Inbox) -> None:
        items = inbox.take()
        self._count += len(items) if isinstance(items[0], tuple) else sum(batch.num_rows for batch in items)

    def complete(self) -> bool:
        leave(self._folder, self.context.global_index, self._count)
        return True


class Ping(Processor):
    """Emits the time, once every `PAUSE_NS`, on the first member."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._at = 0

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        if context.global_index:
            self._left = 0

    def complete(self) -> bool:
        now = time.monotonic_ns()
        if self._left and now >= self._at:
            self._at = now + PAUSE_NS
            self._left -= self.outbox.offer(time.monotonic_ns())
        return not self._left


class Pass(Processor):
    """Hands on what comes."""

    def process(self, ordinal: int, inbox: Inbox) -> None:
        while inbox and self.outbox.offer(inbox.peek()):
            inbox.remove()


class Times(Processor):
    """Notes how long ago what comes was sent, and leaves that in a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._times: list[int] = []

    def process(self, ordinal: int, inbox: Inbox) -> None:
        now = time.monotonic_ns()
        self._times += [now - sent for sent in inbox.take()]

    def complete(self) -> bool:
        if self._times:
            leave(self._folder, self.context.global_index, self._times)
        return True


class Words(Processor):
    """Counts the words of lines that it makes itself, in portions, and emits (word, count)."""

    def __init__(self, lines: int) -> None:
        self._lines = lines
        self._out: Iterator[tuple[str, int]] = iter(())
        self._item: tuple[str, int] | None = None

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        total, index = context.total_parallelism, context.global_index
        self._left = self._lines * (index + 1) // total - self._lines * index // total
        self._text = [" ".join(f"word{i * 7 % 997 * j % 5003}" for j in range(12)) for i in range(1000)]

    def complete(self) -> bool:
        while True:
            while self._item is not None:
                if not self.outbox.offer(self._item):
                    return False
                self._item = next(self._out, None)
            if not self._left:
                return True
            count = min(1000, self._left)
            self._left -= count
            counts = Counter(chain.from_iterable(line.split() for line in self._text[:count]))
            self._out = iter(counts.items())
            self._item = next(self._out)


class Counts(Processor):
    """Adds counts up by word, and leaves their sum in a file."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._counts: Counter[str] = Counter()

    def process(self, ordinal: int, inbox: Inbox) -> None:
        counts = self._counts
        for word, count in inbox.take():
            counts[word] += count

    def complete(self) -> bool:
        leave(self._folder, self.context.global_index, sum(self._counts.values()))
        return True


def leave(folder: str, index: int, value: object) -> None:
    """Write a result where the bench finds it."""
    import json

    Path(folder, f"{index:04d}").write_text(json.dumps(value))


# -- ours --------------------------------------------------------------------------------------------------------------


class Lab:
    """A cluster of two members, and a folder for what processors leave.

    Args:
        bench: that it is made for, and closed with.
        account: where costs go.
        name: under which they go there.
        tls: files of a certificate.
        cores: of the workers, by member; None: one each.
    """

    def __init__(
        self, bench: Bench, account: Account, name: str = "shmjet", tls: Any = None, cores: Any = None
    ) -> None:
        self._account = account
        self._name = name
        first, second = two_cores()
        self.cluster = bench.resources.enter_context(BenchCluster(cores or [[first], [second]], tls))
        self.folder = bench.resources.enter_context(tempfile.TemporaryDirectory())

    def costing(self, count: float, run: Callable[[], float]) -> float:
        """Run something and note what it cost for each of `count` things."""
        return self._account.processes(self._name, self.cluster.pids(), count, run)

    def one_way(self, source: Any, sink: Any, **options: Any) -> float:
        """Run source -> sink, where the source is on the first member and the sink on the last; returns seconds."""
        dag = DAG()
        start = dag.new_vertex("source", source, local_parallelism=1)
        end = dag.new_vertex("sink", sink, local_parallelism=1)
        dag.edge(between(start, end).all_to_one().distribute_to(self.cluster.members[-1].address))
        return self.cluster.run(dag, **options)

    def batches(self, count: int, flow_control: bool = True) -> float:
        """Bytes per second of batches of 1 MiB."""
        source, sink = functools.partial(BatchSource, count), functools.partial(Sum, self.folder)
        seconds = self.costing(count, lambda: self.one_way(source, sink, flow_control=flow_control))
        self.check(count * ROWS)
        return count * ROWS * 16 / seconds

    def tuples(self, count: int) -> float:
        """Tuples per second."""
        from shmjet import processors

        source = processors.generate(functools.partial(pairs_of, count))
        seconds = self.costing(count, lambda: self.one_way(source, functools.partial(Sum, self.folder)))
        self.check(count)
        return count / seconds

    def round_trips(self, count: int) -> list[float]:
        """Microseconds of each."""
        dag, members = DAG(), self.cluster.members
        ping = dag.new_vertex("ping", functools.partial(Ping, count), local_parallelism=1)
        turn = dag.new_vertex("turn", Pass, local_parallelism=1)
        back = dag.new_vertex("back", functools.partial(Times, self.folder), local_parallelism=1)
        dag.edge(between(ping, turn).all_to_one().distribute_to(members[1].address))
        dag.edge(between(turn, back).all_to_one().distribute_to(members[0].address))
        self.costing(count, lambda: self.cluster.run(dag))
        (times,) = read_results(self.folder)
        if len(times) != count:
            raise AssertionError(f"{count} items were sent, {len(times)} came back")
        return [nanoseconds / 1e3 for nanoseconds in times[count // 10 :]]

    def words(self, lines: int, parallelism: int) -> float:
        """Lines per second."""
        from operator import itemgetter

        dag = DAG()
        words = dag.new_vertex("words", functools.partial(Words, lines))
        counts = dag.new_vertex("counts", functools.partial(Counts, self.folder))
        dag.edge(between(words, counts).partitioned(itemgetter(0)).distributed())
        seconds = self.costing(lines, lambda: self.cluster.run(dag, parallelism))
        self.check(lines * 12)
        return lines / seconds

    def check(self, expected: int) -> None:
        """Compare what arrived with what was sent."""
        found = sum(read_results(self.folder))
        if found != expected:
            raise AssertionError(f"{expected} were sent, {found} arrived")


def certificate(folder: str) -> Any:
    """Make a certificate for 127.0.0.1 that is its own authority."""
    from shmjet.net.messages import TlsFiles

    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=bench"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{folder}/key.pem", "-out", f"{folder}/cert.pem"]
    try:
        subprocess.run([*command, *names], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerSkipped(f"openssl cannot make a certificate: {error}") from error
    return TlsFiles(f"{folder}/cert.pem", f"{folder}/key.pem", f"{folder}/cert.pem")


# -- rows --------------------------------------------------------------------------------------------------------------


def percentile(times: list[float], share: float) -> float:
    """Return the time that this share of them does not exceed."""
    return statistics.quantiles(times, n=100, method="inclusive")[int(share * 100) - 1]


def batches(bench: Bench, account: Account, options: Options) -> None:
    count = bench.facts["batches"] = 800 if options.quick else 4000
    lab = Lab(bench, account)
    bench.ours(lambda: lab.batches(count))
    bench.peer("bare sockets", lambda: account.children("bare sockets", count, lambda: bare_sockets(count)))


def tuples(bench: Bench, account: Account, options: Options) -> None:
    count = bench.facts["tuples"] = 5_000_000 if options.quick else 10_000_000
    lab, theirs = Lab(bench, account), count // 2
    bench.ours(lambda: lab.tuples(count))
    bench.peer("pyzmq", lambda: account.children("pyzmq", theirs, lambda: zmq_tuples(theirs)), needs="zmq")


def latency(share: float, bench: Bench, account: Account, options: Options) -> None:
    count = bench.facts["round trips"] = 300 if options.quick else 1500
    lab = Lab(bench, account)
    bench.ours(lambda: percentile(lab.round_trips(count), share))
    bench.peer(
        "pyzmq",
        lambda: account.children("pyzmq", count, lambda: percentile(zmq_round_trips(count), share)),
        needs="zmq",
    )


def flow_control(bench: Bench, account: Account, options: Options) -> None:
    count = bench.facts["batches"] = 800 if options.quick else 4000
    lab, free = Lab(bench, account), Lab(bench, account, "without")
    bench.ours(lambda: lab.batches(count))
    bench.peer("without", lambda: free.batches(count, flow_control=False))


def tls(bench: Bench, account: Account, options: Options) -> None:
    count = bench.facts["batches"] = 200 if options.quick else 1000
    folder = bench.resources.enter_context(tempfile.TemporaryDirectory())
    lab, clear = Lab(bench, account, tls=certificate(folder)), Lab(bench, account, "in the clear")
    bench.ours(lambda: lab.batches(count))
    bench.peer("in the clear", lambda: clear.batches(count))


def wordcount(bench: Bench, account: Account, options: Options) -> None:
    lines = bench.facts["lines"] = 300_000 if options.quick else 1_000_000
    lab, alone = Lab(bench, account), Lab(bench, account, "one member", cores=[list(two_cores())])
    bench.ours(lambda: lab.words(lines, 1))
    bench.peer("one member", lambda: alone.words(lines, 2))


@dataclasses.dataclass(frozen=True)
class Row:
    """One bench: what its figure and its costs are counted in, its target, and how it is set up."""

    unit: str
    noun: str
    target: str
    set_up: Callable[[Bench, Account, Options], None]


TRIPS = "ratio >= 0.67 to pyzmq"
BENCHES = {
    "link_batches": Row("B/s", "MiB", "ratio >= 0.6 to bare sockets", batches),
    "link_tuples": Row("items/s", "item", "ratio >= 2 to pyzmq", tuples),
    "link_latency_p50": Row("us", "round trip", TRIPS, functools.partial(latency, 0.5)),
    "link_latency_p99": Row("us", "round trip", TRIPS, functools.partial(latency, 0.99)),
    "link_flow_control": Row("B/s", "MiB", "ratio >= 0.9 to the same without", flow_control),
    "link_tls": Row("B/s", "MiB", "reported", tls),
    "link_wordcount": Row("lines/s", "line", "ratio >= 0.85 to one member", wordcount),
}


def main() -> int:
    options = parse_options(__doc__, list(BENCHES))
    report = Report(options)
    for name, row in BENCHES.items():
        if options.wants(name):
            with Bench(name, row.unit) as bench:
                bench.facts = {"target": row.target, "cores": len(set(two_cores()))}
                account = Account(row.noun)
                row.set_up(bench, account, options)
                result = bench.measure(rounds=options.rounds)
                bench.facts |= account.facts()
                report.add(result)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
