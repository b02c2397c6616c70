"""Random pipelines on real engines: each gives what an interpreter over plain lists gives, with any number of workers.

A pipeline has one or two sources and up to eight stages of any kind, forks, joins and tables; its items are ints or of
every kind that Python has (`tests/pipeline/mixed.py`). Three of them run side by side, on one engine after the other:
1, 2 and 4 workers, 2 workers whose lanes are all rings, and a cluster of two members. So results also do not depend on
how many workers there are, or on what else runs.

Needs hypothesis; without it the script says so and ends well.

Usage: stress/random_pipelines.py [--count N] [--seed S] [--ci] [--only ENGINE]     (--ci: under a minute)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any

from _stress import Options, Tally, parse_options, private_shm, watch

SIDE_BY_SIDE = 3
"""Jobs that run at the same time."""
MOST_RESULTS = 10_000
"""Of a pipeline; joins of joins may make any number of them."""
JOB_S = 240.0
"""Seconds that a job may take before it counts as hanging."""
ENGINES = ("one", "two", "four", "rings", "cluster")


@contextmanager
def engine(kind: str) -> Iterator[Any]:
    """Start what jobs are submitted to."""
    import shmjet
    from shmjet import ClientConfig, JetConfig

    with ExitStack() as stack:
        if kind == "cluster":
            secret = "a secret of this script"
            config = JetConfig(cores=1, bind="127.0.0.1:0", secret=secret)
            first = stack.enter_context(shmjet.new_instance(config))
            addresses = [member.address for member in first.cluster.members]
            second = JetConfig(cores=1, bind="127.0.0.1:0", secret=secret, members=addresses)
            stack.enter_context(shmjet.new_instance(second))
            yield stack.enter_context(shmjet.new_client(addresses, ClientConfig(secret=secret)))
            return
        os.environ["SHMJET_FORCE_RINGS"] = "1" if kind == "rings" else "0"
        cores = {"one": 1, "two": 2, "rings": 2, "four": 4}[kind]
        yield stack.enter_context(shmjet.new_instance(JetConfig(cores=cores)))


def compare(jet: Any, made: list[Any]) -> None:
    """Run pipelines side by side and compare each with the interpreter."""
    from tests.pipeline.mixed import signature
    from tests.pipeline.reference import interpret
    from tests.pipeline.test_random_pipelines import assert_same

    expected = [interpret(pipeline, sources) for pipeline, sources in made]
    some = [number for number, each in enumerate(expected) if sum(map(len, each.values())) < MOST_RESULTS]
    for number in some:
        for name in expected[number]:
            jet.get_list(name).clear()
    executions = {number: jet.new_job(made[number][0]).execute() for number in some}
    for number, execution in executions.items():
        execution.result(JOB_S)
        found = {name: list(jet.get_list(name)) for name in expected[number]}
        assert_same(made[number][0], expected[number], found, signature)


def run(options: Options, tally: Tally, kind: str) -> None:
    """Run rounds of pipelines on one engine."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    from tests.pipeline.mixed import MIXED
    from tests.pipeline.running import INTS, pipelines

    kits = [INTS if number == 0 else MIXED for number in range(SIDE_BY_SIDE)]
    several = st.tuples(*(pipelines(kit, f"{number}-") for number, kit in enumerate(kits)))
    with engine(kind) as jet:

        @seed(options.seed)
        @settings(
            max_examples=options.count,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(several)
        def one(made: Any) -> None:
            watch(2 * JOB_S * SIDE_BY_SIDE)
            start = time.perf_counter()
            compare(jet, list(made))
            tally.done += 1
            stages = [len(pipeline.nodes) for pipeline, _ in made]
            options.say(f"{kind}: {stages} stages in {time.perf_counter() - start:.2f} s")

        try:
            one()
        except Exception as error:
            tally.complain(f"{kind}: {type(error).__name__}: {error}")


def main() -> int:
    options = parse_options(__doc__, count=300, ci=8, parts=ENGINES)
    if find_spec("hypothesis") is None:
        print("random_pipelines: skipped, hypothesis is not installed")
        return 0
    private_shm()
    tally = Tally("random_pipelines", options)
    for kind in ENGINES:
        if options.wants(kind):
            run(options, tally, kind)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
