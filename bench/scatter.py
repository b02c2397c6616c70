"""Rows of a batch to consumers: hash of the key and scatter of two 8-byte columns, in rows per second on one core.

Batches of 65,536 rows with random int64 keys and a float64 column go through `BatchScatter` to 2, 8 or 64 consumers,
one after the other; builders of 8,192 rows leave when they are full, as in the engine.

Peers: `numpy`, which gets the hashes from the same kernel, looks the consumers up, sorts them with argsort (stable, of
16 bits: its radix sort), takes both columns in that order and slices them; all into warm arrays. `memcpy`, a plain copy
of both columns into warm memory. Targets: 2.5 and 0.08 times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from _harness import Bench, Report, parse_options, rate

from shmjet.data.batch import Batch
from shmjet.data.column_keys import hash_rows
from shmjet.ring.scatter import BatchScatter

BENCHES = {"scatter_2": 2, "scatter_8": 8, "scatter_64": 64}
ROWS = 65_536
PARTITIONS = 271
TARGET = "ratio >= 2.5 to numpy, 0.08 to memcpy"


def scattered(scatter: BatchScatter, batch: Batch) -> int:
    """Put the batch and take out what is full; rows of it that went in."""
    before, row, left = scatter.gathered, 0, 0
    while (row := scatter.put(batch, row)) < batch.num_rows:
        for consumer in scatter.full:
            left += scatter.batch_of(consumer).num_rows
            scatter.reset(consumer)
    return left + scatter.gathered - before


class ByNumpy:
    """The same with numpy, in memory that is warm."""

    def __init__(self, table: Any, consumers: int, batch: Batch) -> None:
        self.table, self.consumers, self.batch = table, consumers, batch
        self.partitions, self.assigned = np.zeros(ROWS, np.uint32), np.zeros(ROWS, np.uint16)
        self.taken = [np.zeros_like(batch["key"]), np.zeros_like(batch["value"])]

    def __call__(self) -> int:
        np.remainder(hash_rows(self.batch, ["key"]), PARTITIONS, out=self.partitions)
        assigned = self.table.take(self.partitions, out=self.assigned, mode="clip")
        order = np.argsort(assigned, kind="stable")
        for name, out in zip(self.batch.names, self.taken, strict=True):
            np.take(self.batch[name], order, out=out, mode="clip")
        ends = np.searchsorted(assigned.take(order), np.arange(self.consumers + 1)).tolist()
        parts = [[column[start:end] for column in self.taken] for start, end in pairwise(ends)]
        return sum(len(part[0]) for part in parts)


def repeated(run: Callable[[], int], times: int) -> float:
    """Rows per second of a run over one batch, done so often."""

    def all_times() -> None:
        for _ in range(times):
            if run() != ROWS:
                raise AssertionError("rows are missing")

    return rate(times * ROWS, all_times)


def main() -> int:
    options = parse_options(__doc__, benches=list(BENCHES))
    report = Report(options)
    random = np.random.default_rng(1)
    key, value = random.integers(-(2**62), 2**62, ROWS), random.random(ROWS)
    batch, warm = Batch({"key": key, "value": value}), (np.zeros_like(key), np.zeros_like(value))

    def copied() -> int:
        np.copyto(warm[0], key)
        np.copyto(warm[1], value)
        return len(warm[0])

    for name, consumers in BENCHES.items():
        if not options.wants(name):
            continue
        table = (np.arange(PARTITIONS) % consumers).astype(np.uint16)
        times = 100 if options.quick else 400
        ours = partial(scattered, BatchScatter(table, consumers, ("key",)), batch)
        with Bench(name, "rows/s") as bench:
            bench.facts["target"] = TARGET
            bench.ours(partial(repeated, ours, times))
            if options.wants_peer("numpy"):
                bench.peer("numpy", partial(repeated, ByNumpy(table, consumers, batch), times))
            if options.wants_peer("memcpy"):
                bench.peer("memcpy", partial(repeated, copied, times))
            report.add(bench.measure(rounds=options.rounds))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
