"""Random pipelines: what the engine makes of them is what the interpreter over plain lists does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from shmjet.pipeline import Pipeline
from tests.examples import examples
from tests.pipeline.mixed import MIXED, signature
from tests.pipeline.reference import interpret
from tests.pipeline.running import ordered_sinks, pipelines, run

MOST_RESULTS = 20_000
"""A join of joins may make hundreds of thousands of them, which narrow edges would carry two at a time."""


def assert_same(
    pipeline: Pipeline,
    expected: Mapping[str, list[Any]],
    found: Mapping[str, Iterable[Any]],
    tell: Callable[[Any], Any] = lambda item: item,
) -> None:
    """Compare the sinks' lists by what `tell` says of items: in order behind a sort, else as multisets."""
    ordered = ordered_sinks(pipeline)
    for name, items in expected.items():
        got, wanted = [list(map(tell, each)) for each in (found.get(name, []), items)]
        if name in ordered:
            assert got == wanted, f"{name}\n{pipeline.explain()}"
        else:
            assert Counter(got) == Counter(wanted), f"{name}\n{pipeline.explain()}"


@pytest.mark.slow
@examples(80, suppress_health_check=list(HealthCheck))
@given(pipelines(), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_the_engine_does_what_the_interpreter_does(
    made: tuple[Pipeline, dict[str, list[int]]], workers: int, force_rings: bool, narrow: bool, seed: int
) -> None:
    pipeline, sources = made
    expected = interpret(pipeline, sources)
    assume(sum(map(len, expected.values())) < MOST_RESULTS)
    found = run(pipeline, workers, narrow=narrow, force_rings=force_rings, seed=seed)
    assert_same(pipeline, expected, found)


@pytest.mark.slow
@examples(30, suppress_health_check=list(HealthCheck))
@given(pipelines(MIXED), st.sampled_from([1, 2, 4]), st.booleans(), st.booleans(), st.integers(0, 1000))
def test_items_of_every_kind_come_through_as_they_are(
    made: tuple[Pipeline, dict[str, list[Any]]], workers: int, force_rings: bool, narrow: bool, seed: int
) -> None:
    pipeline, sources = made
    expected = interpret(pipeline, sources)
    assume(sum(map(len, expected.values())) < MOST_RESULTS)
    found = run(pipeline, workers, narrow=narrow, force_rings=force_rings, seed=seed)
    assert_same(pipeline, expected, found, signature)
