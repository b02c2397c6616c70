"""Random stages of columns over awkward data: what polars and DuckDB make of them, however rows are cut.

Groups, joins, sorts, chains of stages of rows and of columns, expressions, and files. Nulls, NaN, -0.0, infinities, the
ends of int64 and uint64, long and empty text, NUL bytes, days before 1970, one key, all distinct, all null, none: each
case runs from rows, from batches cut in several ways and from files, with 1, 2 and 4 workers and on two members. All
outcomes, errors too, have to be the same. `--seed S --count 1` runs the cases of seed S again, `--only` those of one
kind.

Needs polars and DuckDB; without them the script says so and ends well.

Usage: stress/random_columns.py [--count N] [--seed S] [--ci] [--only KIND]     (--ci: under a minute)
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any

from _stress import Tally, parse_options, private_shm, watch

JOB_S = 240.0
"""Seconds that a job may take before it counts as hanging."""
MEMORY = 1 << 10
"""Bytes that the sorts of a job may keep, so that all but the smallest go to files."""


ENGINES = ("1", "2", "4", "members")
KINDS = ("groups", "joins", "sorts", "chains", "files", "stages")


def start(stack: ExitStack, engine: str) -> Any:
    """Start an instance of so many workers, or two members of one worker each, and return what takes jobs."""
    import shmjet
    from shmjet import ClientConfig, JetConfig

    if engine != "members":
        return stack.enter_context(shmjet.new_instance(JetConfig(cores=int(engine))))
    secret = "a secret of this script"
    first = stack.enter_context(shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=secret)))
    addresses = [member.address for member in first.cluster.members]
    second = JetConfig(cores=1, bind="127.0.0.1:0", secret=secret, members=addresses)
    stack.enter_context(shmjet.new_instance(second))
    return stack.enter_context(shmjet.new_client(addresses, ClientConfig(secret=secret)))


def main() -> int:
    options = parse_options(__doc__, count=300, ci=4, parts=KINDS)
    tally = Tally("random_columns", options)
    missing = [name for name in ("polars", "duckdb") if find_spec(name) is None]
    if missing:
        print(f"random_columns: skipped, {' and '.join(missing)} not installed")
        return 0
    private_shm()
    from shmjet import JobConfig
    from tests.columns.oracle import CASES, check

    assert set(CASES) == set(KINDS)
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shmjet-columns-")))
        engines = {engine: start(stack, engine) for engine in ENGINES}

        def run(job: Any, engine: str) -> list[Any]:
            results = engines[engine].get_list("out")
            results.clear()
            engines[engine].new_job(job, JobConfig(memory_limit=MEMORY)).run(JOB_S)
            return list(results)

        for seed in range(options.seed, options.seed + options.count):
            for kind in filter(options.wants, KINDS):
                watch(20 * JOB_S)
                folder = root / f"{kind}-{seed}"
                folder.mkdir()
                try:
                    check(kind, seed, run, ENGINES, folder)
                except AssertionError as error:
                    text = str(error)
                    shown = text if len(text) < 4000 else f"{text[:2000]} ... {text[-2000:]}"
                    tally.complain(f"--count 1 --seed {seed} --only {kind}: {shown}")
                rmtree(folder)
                tally.done += 1
                options.say(f"{kind} {seed}: done")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
