"""Random groups of columns over awkward data: what polars and DuckDB make of them, however rows are cut.

Nulls, NaN, -0.0, infinities, the ends of int64 and uint64, long and empty text, NUL bytes, days before 1970, one key,
all distinct, all null, none: each case runs from rows, from batches cut in several ways and from a CSV file, with 1, 2
and 4 workers. All outcomes, errors too, have to be the same.

Needs polars and DuckDB; without them the script says so and ends well.

Usage: stress/random_columns.py [--count N] [--seed S] [--ci]     (--ci: under a minute)
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from _stress import Tally, parse_options, private_shm, watch

JOB_S = 120.0
"""Seconds that a job may take before it counts as hanging."""


def main() -> int:
    options = parse_options(__doc__, count=1000, ci=12)
    tally = Tally("random_columns", options)
    missing = [name for name in ("polars", "duckdb") if find_spec(name) is None]
    if missing:
        print(f"random_columns: skipped, {' and '.join(missing)} not installed")
        return 0
    private_shm()
    import shmjet
    from shmjet import JetConfig
    from tests.columns.oracle import check

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shmjet-columns-")))
        instances = {
            workers: stack.enter_context(shmjet.new_instance(JetConfig(cores=workers))) for workers in (1, 2, 4)
        }

        def run(pipeline: Any, workers: int) -> list[Any]:
            results = instances[workers].get_list("out")
            results.clear()
            instances[workers].new_job(pipeline).run(JOB_S)
            return list(results)

        for seed in range(options.seed, options.seed + options.count):
            watch(20 * JOB_S)
            try:
                check(seed, run, folder)
            except AssertionError as error:
                tally.complain(f"--count 1 --seed {seed}: {str(error)[:2000]}")
            tally.done += 1
            options.say(f"{seed}: done")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
