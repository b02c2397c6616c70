"""Random DAGs on the engine in one process, where a wake-up that gets lost is a deadlock, against an interpreter.

A DAG has up to six vertices with every routing, priorities, buffered and ordered edges, lanes of one item and of
thousands, and processors that refuse, hesitate, hold items back and emit from every callback. It runs on 1, 2 or 4
workers and on carriers, with lanes within a worker and with rings only, with tasklets that are stolen all the time and
barriers under way (`tests/execution/random_dags.py`). Each DAG follows from its own seed: `--seed S --count 1` runs the
one of seed S.

Usage: stress/random_dags.py [--count N] [--seed S] [--ci]     (--ci: half a minute)
"""

from __future__ import annotations

import sys
import traceback

from _stress import HANG_S, Tally, parse_options, watch


def main() -> int:
    options = parse_options(__doc__, count=3000, ci=200)
    tally = Tally("random_dags", options)
    from tests.execution.random_dags import check

    for seed in range(options.seed, options.seed + options.count):
        watch(20 * HANG_S)
        try:
            options.say(check(seed))
        except Exception as error:
            tally.complain(f"--seed {seed} --count 1: {''.join(traceback.format_exception_only(error)).strip()}")
        tally.done += 1
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
