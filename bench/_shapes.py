"""What the sweeps of `shapes.py` share: an instance, sources of many shapes, and how much of everything is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from _harness import Options, elapsed

from shmjet import DAG, JetInstance, processors, sinks
from shmjet.pipeline import BatchStage, Pipeline, SinkDef, SourceDef

KEPT = 1000
"""Items in each thousand decide what is kept: those below a bound."""

SHARES = (1.0, 0.5, 0.1, 0.01, 0.001, 0.0)

bounds = {share: round(share * KEPT) for share in SHARES}
"""The bound for each share."""

PIECE = 8192


def with_ends(size: int, kind: type, count: int) -> Iterator[Any]:
    """Make bytes or text of a size with many different ends."""
    if kind is bytes:
        start = b"x" * (size - 4)
        return (start + b"%04d" % (x % 10_000) for x in range(count))
    text = "x" * (size - 4)
    return (f"{text}{x % 10_000:04d}" for x in range(count))


def ran_and_waited(pids: Sequence[int]) -> tuple[float, float]:
    """How long processes have run, and been ready to run while others had the core: seconds, mean of the processes."""
    stats = [Path(f"/proc/{pid}/schedstat").read_text().split() for pid in pids]
    return tuple(sum(int(stat[field]) for stat in stats) / 1e9 / len(pids) for field in (0, 1))  # type: ignore[return-value]


class Lab:
    """Makes jobs.

    Args:
        jet: runs them.
        options: of the bench.
        folder: for files.
    """

    def __init__(self, jet: JetInstance, options: Options, folder: Path) -> None:
        self.jet = jet
        self.folder = folder
        self.workers = options.workers
        self.items = 120_000 if options.quick else 1_000_000
        self.bytes = (48 if options.quick else 512) << 20

    def job(
        self,
        then: Callable[[BatchStage[Any]], BatchStage[Any]],
        source: SourceDef[Any],
        sink: SinkDef[Any] | None = None,
    ) -> Callable[[], float]:
        """Return what runs a pipeline from a source to a sink, which by default forgets everything."""
        p = Pipeline()
        then(p.read_from(source)).write_to(sinks.noop() if sink is None else sink)
        return self.timed(p)

    def timed(self, what: Pipeline | DAG) -> Callable[[], float]:
        """Return what runs a job and returns the seconds that it took, less those in which others had the cores."""
        job = self.jet.new_job(what)
        pids = self.jet.cluster.members[0].workers

        def run() -> float:
            ran, waited = ran_and_waited(pids)
            seconds = elapsed(job.run)
            ran_now, waited_now = ran_and_waited(pids)
            return max(seconds - (waited_now - waited), ran_now - ran)

        return run

    def numbers(self, items: int, alone: bool = False) -> SourceDef[int]:
        """The ints from 0 on, dealt out to all workers, or from one (`alone`)."""
        return SourceDef("numbers", processors.generate(lambda i, n: range(i, items, n)), 1 if alone else -1)

    def drawn(self, keys: int, skew: float = 0.0) -> Callable[[int, int, int], Iterator[list[int]]]:
        """Return what draws a share of random ints below `keys`, of which `skew` (0 to 1) are all the same."""

        def draw(index: int, total: int, items: int) -> Iterator[list[int]]:
            rng = np.random.default_rng(index)
            left = items * (index + 1) // total - items * index // total
            while left > 0:
                drawn = rng.integers(0, keys, min(left, PIECE))
                if skew:
                    drawn[rng.random(len(drawn)) < skew] = 0
                yield drawn.tolist()
                left -= len(drawn)

        return draw

    def random(self, items: int, keys: int, skew: float = 0.0) -> SourceDef[int]:
        """Random ints, as `drawn` makes them."""
        draw = self.drawn(keys, skew)
        return SourceDef("random", processors.generate(lambda i, n: chain.from_iterable(draw(i, n, items))))

    def repeated(self, items: int, item: Any) -> SourceDef[Any]:
        """The same object, repeatedly."""
        return SourceDef(
            "repeated", processors.generate(lambda i, n: repeat(item, items * (i + 1) // n - items * i // n))
        )

    def prefixed(self, items: int, size: int, kind: type) -> SourceDef[Any]:
        """Bytes or text of a size with many different ends."""

        def make(i: int, n: int) -> Iterator[Any]:
            return with_ends(size, kind, items * (i + 1) // n - items * i // n)

        return SourceDef("prefixed", processors.generate(make))
