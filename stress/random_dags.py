"""Random DAGs against an interpreter: on the engine in one process, which wakes only for a reason, and on real engines.

A DAG has up to six vertices with every routing, priorities, buffered and ordered edges, lanes of one item and of
thousands, and processors that refuse, hesitate, hold items back and emit from every callback
(`tests/execution/random_dags.py`). On the `harness` it runs with 1, 2 or 4 workers and carriers, with lanes within a
worker and with rings only, with tasklets that are stolen all the time and barriers under way. Then three at a time run
side by side on real engines: 1, 2 and 4 workers, 2 workers whose lanes are all rings, and a cluster of two members,
with distributed edges. Each DAG follows from its own seed: `--seed S --count 1` runs the one of seed S, on an engine
with the two after it.

Usage: stress/random_dags.py [--count N] [--seed S] [--ci] [--only ENGINE]     (--ci: under a minute)
"""

from __future__ import annotations

import sys
import traceback

from _stress import HANG_S, Options, Tally, parse_options, private_shm, watch

SIDE_BY_SIDE = 3
"""Jobs that run at the same time on a real engine."""
HARNESS_SHARE = 10
"""As many DAGs run on the harness as on an engine times this: there they cost little and are watched more closely."""
ENGINES = ("one", "two", "rings", "four", "cluster")


def complain(tally: Tally, seed: int, kind: str, error: Exception) -> None:
    text = "".join(traceback.format_exception_only(error)).strip()
    tally.complain(f"--seed {seed} --count 1 --only {kind}: {text}")


def on_harness(options: Options, tally: Tally) -> None:
    """Run DAGs one after the other in this process."""
    from tests.execution.random_dags import check

    for seed in range(options.seed, options.seed + options.count):
        watch(20 * HANG_S)
        try:
            options.say(check(seed))
        except Exception as error:
            complain(tally, seed, "harness", error)
        tally.done += 1


def on_engine(options: Options, tally: Tally, kind: str) -> None:
    """Run rounds of DAGs on a real engine."""
    from tests.execution.random_dags import check_on, engine

    count = max(1, options.count // HARNESS_SHARE)
    with engine(kind) as jet:
        for first in range(options.seed, options.seed + count, SIDE_BY_SIDE):
            watch(20 * HANG_S)
            seeds = range(first, first + SIDE_BY_SIDE)
            try:
                options.say(f"{kind}, seeds {list(seeds)}: {check_on(jet, kind, seeds, 10 * HANG_S)} items")
            except Exception as error:
                complain(tally, first, kind, error)
            tally.done += SIDE_BY_SIDE


def main() -> int:
    options = parse_options(__doc__, count=3000, ci=150, parts=("harness", *ENGINES))
    private_shm()
    tally = Tally("random_dags", options)
    if options.wants("harness"):
        on_harness(options, tally)
    for kind in ENGINES:
        if options.wants(kind):
            on_engine(options, tally, kind)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
