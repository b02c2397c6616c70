"""Random pipelines on Spark: what Spark makes of them is what the interpreter over plain lists does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given

from shmjet import JetInstance
from shmjet.pipeline import Pipeline
from tests.examples import examples
from tests.pipeline.reference import interpret
from tests.pipeline.running import pipelines
from tests.pipeline.test_random_pipelines import assert_same

pytestmark = pytest.mark.slow


@examples(4, suppress_health_check=list(HealthCheck))
@given(pipelines())
def test_spark_does_what_the_interpreter_does(
    spark: Any, jet: JetInstance, made: tuple[Pipeline, dict[str, list[int]]]
) -> None:
    pipeline, sources = made
    expected = interpret(pipeline, sources)
    for name in expected:
        jet.get_list(name).clear()
    pipeline.run_on_spark(spark, jet=jet)
    assert_same(pipeline, expected, {name: list(jet.get_list(name)) for name in expected})
