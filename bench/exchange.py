"""Small tuples partitioned by key from P processors to P others, end to end, against one multiprocessing.Queue each.

20 million (word, number) pairs, 2 million with `--quick`, leave P sources, are routed by the word over a partitioned
edge and are counted by P processors; P is `--workers`. The sources repeat pairs that they made at the start, so that
generating costs little; the count is checked. `exchange` is a whole job on a warm instance: deployed, run, reported.

Peers: `multiprocessing.Queue`, one for each of P consumer processes, in which P producer processes put pair by pair by
`hash(word) % P`; `multiprocessing.Queue_batched`, the same with lists of 256 pairs of one consumer, which is what
a user would do after the first. They move fewer pairs, as many as take a few seconds; their processes are
started before the clock is.

Target: 20 times the pairs per second of the first.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Any

from _harness import Bench, Options, Report, parse_options, rate

TARGET = "ratio >= 20 to multiprocessing.Queue"
Pair = tuple[str, int]
fork = multiprocessing.get_context("fork")


def share_of(count: int, index: int, total: int) -> Iterator[Pair]:
    """The pairs of one of `total` sources, `count` in all: 16,384 with 5,000 distinct words, repeated."""
    mine = count * (index + 1) // total - count * index // total
    pairs = [(f"word{i * 7919 % 5000}", i % 1000) for i in range(1 << 14)]
    return islice(chain.from_iterable(repeat(pairs)), mine)


class ShmjetJob:
    """The DAG: source, partitioned edge, count, and a list with the counts."""

    def __init__(self, count: int, options: Options, bench: Bench) -> None:
        import shmjet
        from shmjet import DAG, between, processors

        self._count, self._dag = count, DAG()
        self._jet = bench.resources.enter_context(shmjet.new_instance(shmjet.JetConfig(cores=options.workers)))
        self._counts = self._jet.get_list("counts")
        source = self._dag.new_vertex("source", processors.generate(functools.partial(share_of, count)))
        counter = self._dag.new_vertex("count", processors.aggregate(processors.counting()))
        sink = self._dag.new_vertex("sink", processors.write_list("counts"), local_parallelism=1)
        self._dag.edge(between(source, counter).partitioned(itemgetter(0))).edge(between(counter, sink))

    def run(self) -> float:
        """Pairs per second."""
        self._counts.clear()
        job = self._jet.new_job(self._dag)
        speed = rate(self._count, lambda: job.run(timeout=600))
        if sum(self._counts) != self._count:
            raise AssertionError(f"{self._count} pairs were sent, {sum(self._counts)} counted")
        return speed


# -- peers -------------------------------------------------------------------------------------------------------------


def put_each(pairs: Iterator[Pair], queues: list[Any]) -> None:
    """Put pair by pair."""
    consumers = len(queues)
    for pair in pairs:
        queues[hash(pair[0]) % consumers].put(pair)


def get_each(queue: Any, producers: int) -> int:
    """Count pairs until every producer has put its None."""
    count = 0
    while producers:
        if queue.get() is None:
            producers -= 1
        else:
            count += 1
    return count


def put_batches(pairs: Iterator[Pair], queues: list[Any]) -> None:
    """Put lists of 256 pairs."""
    consumers = len(queues)
    batches: list[list[Pair]] = [[] for _ in queues]
    for pair in pairs:
        consumer = hash(pair[0]) % consumers
        batch = batches[consumer]
        batch.append(pair)
        if len(batch) == 256:
            queues[consumer].put(batch)
            batches[consumer] = []
    for queue, batch in zip(queues, batches, strict=True):
        queue.put(batch)


def get_batches(queue: Any, producers: int) -> int:
    """Count the pairs of lists until every producer has put its None."""
    count = 0
    while producers:
        batch = queue.get()
        if batch is None:
            producers -= 1
        else:
            count += len(batch)
    return count


def through_queues(
    count: int, workers: int, put: Callable[[Iterator[Pair], list[Any]], None], get: Callable[[Any, int], int]
) -> float:
    """Pairs per second through one queue for each consumer."""
    queues = [fork.Queue() for _ in range(workers)]
    counted, start = fork.SimpleQueue(), fork.Barrier(2 * workers + 1)

    def produce(index: int) -> None:
        start.wait()
        put(share_of(count, index, workers), queues)
        for queue in queues:
            queue.put(None)

    def consume(index: int) -> None:
        start.wait()
        counted.put(get(queues[index], workers))

    children = [fork.Process(target=role, args=(i,)) for role in (produce, consume) for i in range(workers)]
    for child in children:
        child.start()
    start.wait()
    total = 0

    def collect() -> None:
        nonlocal total
        total = sum(counted.get() for _ in range(workers))

    speed = rate(count, collect)
    for child in children:
        child.join()
    for queue in queues:
        queue.close()
        queue.join_thread()
    counted.close()
    if total != count:
        raise AssertionError(f"{count} pairs were sent, {total} counted")
    return speed


def main() -> int:
    options = parse_options(__doc__, ["exchange"])
    report = Report(options)
    scale = 1 if options.quick else 10
    with Bench("exchange", "items/s") as bench:
        bench.facts = {"target": TARGET, "workers": options.workers, "pairs": 2_000_000 * scale}
        bench.ours(ShmjetJob(2_000_000 * scale, options, bench).run)
        peers = {"multiprocessing.Queue": (put_each, get_each, 100_000 if options.quick else 400_000)}
        peers["multiprocessing.Queue_batched"] = (put_batches, get_batches, 500_000 * scale)
        for name, (put, get, count) in peers.items():
            if options.wants_peer(name):
                bench.peer(name, functools.partial(through_queues, count, options.workers, put, get))
        report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
