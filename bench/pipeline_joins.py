"""Joins of a pipeline: two inputs that lie in partitions by the key already, and two that do not.

`join_co_partitioned` joins two maps of the instance, a million entries each, which have their partitions in common, so
that no row moves between workers. Its peer joins what comes nearest in Spark: two RDDs of the same pairs that were
`partitionBy`'d alike and cached. `join_moving` joins a million pairs with a quarter of a million, neither of which lies
in partitions; each side is moved by its key. All keys of the right side are there once, every pair of the left side
finds one, and the results are counted.

Target: 5 times PySpark's `RDD.join`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from _harness import Bench, Options, PeerSkipped, Report, parse_options, rate
from _spark import local_session

from shmjet import JetConfig, JetInstance, Pipeline, new_instance
from shmjet.pipeline import SinkDef, SourceDef
from shmjet.processors import counting, generate, read_map, write_list

LEFT = 1_000_000
RIGHT = 250_000
ROWS = LEFT + RIGHT
PEER = "pyspark_rdd"


def left_pairs(index: int, count: int) -> Iterator[tuple[int, int]]:
    """A share of the left side."""
    return ((i % RIGHT, i) for i in range(LEFT * index // count, LEFT * (index + 1) // count))


def right_pairs(index: int, count: int) -> Iterator[tuple[int, int]]:
    """A share of the right side."""
    return ((i, -i) for i in range(RIGHT * index // count, RIGHT * (index + 1) // count))


def join_and_count(jet: JetInstance, left: SourceDef[Any], right: SourceDef[Any]) -> None:
    """Run the join, and see that it has found everything."""
    p = Pipeline()
    joined = p.read_from(left).join(p.read_from(right), itemgetter(0), itemgetter(0))
    joined.aggregate(counting()).write_to(SinkDef("found", write_list("found"), 1))
    job = jet.new_job(p)
    job.run(300)
    expect(jet.get_list("found")[-1])
    moved = sum(edge.ring_bytes for edge in job.metrics().edges if edge.destination == "join")
    assert (moved == 0) == (left.partitions is not None), f"{moved} bytes have moved"


def expect(rows: int) -> None:
    """Whether all results are there."""
    if rows != LEFT:
        raise AssertionError(f"{LEFT} pairs should have been found, {rows} were")


def co_partitioned(options: Options, report: Report) -> None:
    """Two maps, two cached RDDs."""
    with Bench("join_co_partitioned", "rows/s") as bench:
        bench.facts = {"rows": 2 * LEFT, "target": "ratio >= 5"}
        jet = bench.resources.enter_context(new_instance(JetConfig(cores=options.workers)))
        sides: list[SourceDef[Any]] = []
        for name in ("left", "right"):
            count = jet.config.partition_count
            sides.append(SourceDef(name, read_map(name), -1, count, itemgetter(0)))
        jet.get_map("left").put_all((i, i) for i in range(LEFT))
        jet.get_map("right").put_all((i, -i) for i in range(LEFT))
        bench.ours(lambda: rate(2 * LEFT, lambda: join_and_count(jet, *sides)))
        try:
            spark = bench.resources.enter_context(local_session(options, PEER))
        except PeerSkipped as reason:
            bench.skip(PEER, str(reason))
        else:
            slices = 2 * options.workers
            left, right = (
                spark.sparkContext.range(LEFT, numSlices=slices).map(make).partitionBy(slices).cache()
                for make in (lambda i: (i, i), lambda i: (i, -i))
            )
            expect(left.count())
            expect(right.count())
            bench.peer(PEER, lambda: rate(2 * LEFT, lambda: expect(left.join(right, slices).count())))
        report.add(bench.measure(rounds=options.rounds))


def moving(options: Options, report: Report) -> None:
    """Two generated inputs."""
    with Bench("join_moving", "rows/s") as bench:
        bench.facts = {"rows": ROWS, "target": "ratio >= 5"}
        jet = bench.resources.enter_context(new_instance(JetConfig(cores=options.workers)))
        ours: list[SourceDef[Any]] = [
            SourceDef("left", generate(left_pairs)),
            SourceDef("right", generate(right_pairs)),
        ]
        bench.ours(lambda: rate(ROWS, lambda: join_and_count(jet, *ours)))
        try:
            spark = bench.resources.enter_context(local_session(options, PEER))
        except PeerSkipped as reason:
            bench.skip(PEER, str(reason))
        else:
            slices = 2 * options.workers
            keys = RIGHT
            left = spark.sparkContext.range(LEFT, numSlices=slices).map(lambda i: (i % keys, i))
            right = spark.sparkContext.range(RIGHT, numSlices=slices).map(lambda i: (i, -i))
            bench.peer(PEER, lambda: rate(ROWS, lambda: expect(left.join(right).count())))
        report.add(bench.measure(rounds=options.rounds))


def main() -> int:
    options = parse_options(__doc__, ["join_co_partitioned", "join_moving"])
    report = Report(options)
    if options.wants("join_co_partitioned"):
        co_partitioned(options, report)
    if options.wants("join_moving"):
        moving(options, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
