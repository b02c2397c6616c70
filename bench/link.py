"""Distributed edges between two members on loopback, beside bare sockets and pyzmq.

Each member has one worker, pinned to a core of its own, and a link process, which is not pinned; the engine's workers
and links are real, the coordinator is a few lines (`_members.py`), so that nothing else is measured.

* `link_batches`: batches of 64 Ki rows of two 8-byte columns (1 MiB), four different ones in turn, from member 0 to
  member 1, where their rows are counted. Peer: a bare blocking TCP connection with blocks of 1 MiB. Target 0.6.
* `link_tuples`: small (word, number) tuples, the same way. Peer: pyzmq PUSH/PULL over tcp of pickled lists of 256.
  Target 2.
* `link_latency_p50`, `link_latency_p99`: one item every 2 ms to the other member and back. Peer: pyzmq REQ/REP over
  tcp. Target: at most 1.5 times as long, so a ratio of at least 0.67.
* `link_flow_control`: `link_batches` with the receive window beside the same without. Target 0.9.
* `link_tls`: `link_batches` with TLS beside the same in the clear; reported.
* `link_wordcount`: words counted on two members of one worker each, over a distributed partitioned edge, beside one
  member of two workers. Target 0.85.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import pickle
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice, repeat
from pathlib import Path
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, parse_options
from _members import BenchCluster, read_results

from shmjet.core import DAG, Inbox, Outbox, Processor, ProcessorContext, between

BENCHES = [
    "link_batches",
    "link_tuples",
    "link_latency_p50",
    "link_latency_p99",
    "link_flow_control",
    "link_tls",
    "link_wordcount",
]
ROWS = 1 << 16
BLOCK = 1 << 20
PAUSE_NS = 2_000_000
fork = multiprocessing.get_context("fork")


# -- processors --------------------------------------------------------------------------------------------------------


class BatchSource(Processor):
    """Emits batches on the first member."""

    movable = False

    def __init__(self, count: int) -> None:
        self._left = count

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        import numpy as np

        from shmjet.ring.batch import Batch

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


def pairs_of(count: int, index: int, total: int) -> Iterator[tuple[str, int]]:
    """Pairs on the first member only: 16,384 with 5,000 distinct words, again and again."""
    pairs = [(f"word{i * 7919 % 5000}", i % 1000) for i in range(1 << 14)]
    return islice(chain.from_iterable(repeat(pairs)), 0 if index else count)


# -- ours --------------------------------------------------------------------------------------------------------------


class Lab:
    """A cluster of two members, and a folder for what processors leave."""

    def __init__(self, bench: Bench, options: Options, tls: Any = None, cores: Any = None) -> None:
        available = sorted(os.sched_getaffinity(0))
        self.cluster = bench.resources.enter_context(
            BenchCluster(cores or [[available[0]], [available[1 % len(available)]]], tls)
        )
        self.folder = bench.resources.enter_context(tempfile.TemporaryDirectory())

    def one_way(self, source: Any, sink: Any, **options: Any) -> float:
        """Run source -> sink, where the source is on the first member and the sink on the last; returns seconds."""
        dag = DAG()
        start = dag.new_vertex("source", source, local_parallelism=1)
        end = dag.new_vertex("sink", sink, local_parallelism=1)
        dag.edge(between(start, end).all_to_one().distribute_to(self.cluster.members[-1].address))
        return self.cluster.run(dag, **options)

    def batches(self, count: int, flow_control: bool = True) -> float:
        """Bytes per second of batches of 1 MiB."""
        seconds = self.one_way(
            functools.partial(BatchSource, count), functools.partial(Sum, self.folder), flow_control=flow_control
        )
        self.check(count * ROWS)
        return count * ROWS * 16 / seconds

    def tuples(self, count: int) -> float:
        """Tuples per second."""
        from shmjet import processors

        seconds = self.one_way(
            processors.generate(functools.partial(pairs_of, count)), functools.partial(Sum, self.folder)
        )
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
        self.cluster.run(dag)
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
        seconds = self.cluster.run(dag, parallelism)
        self.check(lines * 12)
        return lines / seconds

    def check(self, expected: int) -> None:
        """Compare what arrived with what was sent."""
        found = sum(read_results(self.folder))
        if found != expected:
            raise AssertionError(f"{expected} were sent, {found} arrived")


# -- peers -------------------------------------------------------------------------------------------------------------


def in_two(first: Callable[[], None], second: Callable[[Callable[[Any], None]], None]) -> Any:
    """Run two functions in processes of their own; returns what the second one says."""
    said = fork.SimpleQueue()
    children = [fork.Process(target=first), fork.Process(target=second, args=(said.put,))]
    for child in children:
        child.start()
    result = said.get()
    for child in children:
        child.join()
    said.close()
    return result


def bare_sockets(count: int) -> float:
    """Bytes per second of a blocking TCP connection that sends blocks of 1 MiB."""
    listener = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        with socket.create_connection(listener.getsockname()) as sock:
            block = bytes(BLOCK)
            for _ in range(count):
                sock.sendall(block)

    def receive(say: Callable[[Any], None]) -> None:
        sock, _ = listener.accept()
        buffer, left = memoryview(bytearray(BLOCK)), count * BLOCK
        start = time.perf_counter()
        while left:
            left -= sock.recv_into(buffer)
        say(time.perf_counter() - start)
        sock.close()

    with listener:
        return count * BLOCK / float(in_two(send, receive))


def zmq_tuples(count: int) -> float:
    """Tuples per second of pyzmq PUSH/PULL over tcp, in pickled lists of 256."""
    import zmq

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def send() -> None:
        with zmq.Context() as context, context.socket(zmq.PUSH) as sock:
            sock.connect(address)
            pairs = pairs_of(count, 0, 1)
            while portion := list(islice(pairs, 256)):
                sock.send(pickle.dumps(portion, 5))

    def receive(say: Callable[[Any], None]) -> None:
        with zmq.Context() as context, context.socket(zmq.PULL) as sock:
            sock.bind(address)
            got, start = len(pickle.loads(sock.recv())), time.perf_counter()
            while got < count:
                got += len(pickle.loads(sock.recv()))
            say(time.perf_counter() - start)

    return count / float(in_two(send, receive))


def zmq_round_trips(count: int) -> list[float]:
    """Microseconds of REQ/REP over tcp, one every `PAUSE_NS`."""
    import zmq

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"

    def answer() -> None:
        with zmq.Context() as context, context.socket(zmq.REP) as sock:
            sock.bind(address)
            for _ in range(count):
                sock.send(pickle.dumps(pickle.loads(sock.recv())))

    def ask(say: Callable[[Any], None]) -> None:
        times = []
        with zmq.Context() as context, context.socket(zmq.REQ) as sock:
            sock.connect(address)
            for number in range(count):
                start = time.monotonic_ns()
                sock.send(pickle.dumps(number))
                pickle.loads(sock.recv())
                times.append((time.monotonic_ns() - start) / 1e3)
                time.sleep(PAUSE_NS / 1e9)
        say(times[count // 10 :])

    return list(in_two(answer, ask))


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


def main() -> int:
    options = parse_options(__doc__, BENCHES)
    report = Report(options)
    count = 800 if options.quick else 4000
    tuples = 2_000_000 if options.quick else 10_000_000
    trips = 300 if options.quick else 1500
    lines = 200_000 if options.quick else 1_000_000
    if options.wants("link_batches"):
        with Bench("link_batches", "B/s") as bench:
            lab = Lab(bench, options)
            bench.facts = {"target": "ratio >= 0.6 to bare sockets", "rows": ROWS, "batches": count}
            bench.ours(lambda: lab.batches(count))
            bench.peer("bare sockets", lambda: bare_sockets(count))
            report.add(bench.measure(rounds=options.rounds))
    if options.wants("link_tuples"):
        with Bench("link_tuples", "items/s") as bench:
            lab = Lab(bench, options)
            bench.facts = {"target": "ratio >= 2 to pyzmq", "tuples": tuples}
            bench.ours(lambda: lab.tuples(tuples))
            bench.peer("pyzmq", lambda: zmq_tuples(tuples // 2), needs="zmq")
            report.add(bench.measure(rounds=options.rounds))
    for name, share in (("link_latency_p50", 0.5), ("link_latency_p99", 0.99)):
        if options.wants(name):
            with Bench(name, "us") as bench:
                lab = Lab(bench, options)
                bench.facts = {"target": "ratio >= 0.67 to pyzmq", "round trips": trips}
                bench.ours(lambda lab=lab, share=share: percentile(lab.round_trips(trips), share))  # type: ignore[misc]
                bench.peer(
                    "pyzmq",
                    lambda share=share: percentile(zmq_round_trips(trips), share),  # type: ignore[misc]
                    needs="zmq",
                )
                report.add(bench.measure(rounds=options.rounds))
    if options.wants("link_flow_control"):
        with Bench("link_flow_control", "B/s") as bench:
            lab = Lab(bench, options)
            bench.facts = {"target": "ratio >= 0.9 to the same without", "batches": count}
            bench.ours(lambda: lab.batches(count))
            bench.peer("without", lambda: lab.batches(count, flow_control=False))
            report.add(bench.measure(rounds=options.rounds))
    if options.wants("link_tls"):
        with Bench("link_tls", "B/s") as bench, tempfile.TemporaryDirectory() as folder:
            lab, clear = Lab(bench, options, certificate(folder)), Lab(bench, options)
            bench.facts = {"target": "reported", "batches": count // 4}
            bench.ours(lambda: lab.batches(count // 4))
            bench.peer("in the clear", lambda: clear.batches(count // 4))
            report.add(bench.measure(rounds=options.rounds))
    if options.wants("link_wordcount"):
        with Bench("link_wordcount", "lines/s") as bench:
            available = sorted(os.sched_getaffinity(0))
            two = [available[0], available[1 % len(available)]]
            lab, alone = Lab(bench, options), Lab(bench, options, cores=[two])
            bench.facts = {"target": "ratio >= 0.85 to one member", "lines": lines}
            bench.ours(lambda: lab.words(lines, 1))
            bench.peer("one member", lambda: alone.words(lines, 2))
            report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
