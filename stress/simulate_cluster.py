"""Membership on a virtual clock: many seeded stories of clusters that lose messages, members and their nerve.

Each story kills, pauses, cuts off, clogs and shakes two to five members for some seconds and then lets them find
together; views, epochs, identities, the table of partitions and acknowledged writes are checked all the time
(`tests/cluster/simulation.py`, `tests/cluster/simulated_data.py`). A story that fails is
printed with its seed, and `--seed S --count 1` tells it again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time

from _stress import Tally, parse_options

from tests.cluster.simulation import Broken, Simulation

CHUNK = 50


def tell(seeds: range) -> list[str]:
    """Run the stories of some seeds and return what went wrong."""
    wrong = []
    for seed in seeds:
        try:
            Simulation(seed).run()
        except Broken as error:
            wrong.append(str(error))
        except Exception as error:
            wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
    return wrong


def main() -> int:
    options = parse_options(__doc__, count=10_000, ci=2_000)
    tally = Tally("simulate_cluster", options)
    last = options.seed + options.count
    chunks = [range(first, min(first + CHUNK, last)) for first in range(options.seed, last, CHUNK)]
    start = time.perf_counter()
    with multiprocessing.get_context("forkserver").Pool(len(os.sched_getaffinity(0))) as pool:
        for seeds, wrong in zip(chunks, pool.imap(tell, chunks), strict=True):
            tally.done += len(seeds)
            for text in wrong:
                tally.complain(text)
    elapsed = time.perf_counter() - start
    tally.notes.append(f"{tally.done / elapsed:.0f} stories/s")
    if options.count >= 10_000:
        tally.check(
            elapsed < 120 * options.slack, f"{options.count} stories took {elapsed:.0f} s, not under two minutes"
        )
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
