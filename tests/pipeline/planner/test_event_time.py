"""How often watermarks are sent behind a source, and how far items carry their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shmjet import sinks
from shmjet.aggregate_ops import counting
from shmjet.core import AbstractProcessor
from shmjet.core.windows import session, sliding, tumbling
from shmjet.pipeline import Pipeline
from shmjet.pipeline import transforms as t
from shmjet.pipeline.planner.graph import LogicalGraph
from shmjet.pipeline.stream_stage import StreamStage
from tests.pipeline.streams import stream_of

Build = Callable[[StreamStage[Any]], StreamStage[Any]]


def policy_of(build: Build) -> Any:
    stage = Pipeline().read_from(stream_of([])).with_timestamps(int)
    build(stage).write_to(sinks.noop())
    graph = LogicalGraph(stage.pipeline.nodes)
    transform = graph.nodes[0].transform
    assert isinstance(transform, t.Source)
    assert transform.policy is not None
    return graph.times.policy(graph.nodes[0], transform.policy, transform.source)


STRIDES: dict[str, tuple[Build, int, bool]] = {
    "nothing": (lambda s: s.map(str), 1000, False),
    "tumbling": (lambda s: s.window(tumbling(0.3)).aggregate(counting()), 300, True),
    "long": (lambda s: s.window(sliding(600, 2.5)).aggregate(counting()), 500, True),
    "two": (
        lambda s: s.window(sliding(1, 0.4 / 4)).aggregate(counting()).window(tumbling(0.15)).aggregate(counting()),
        50,
        True,
    ),
    "session": (lambda s: s.window(session(0.7)).aggregate(counting()), 700, True),
    "custom": (lambda s: s.map(str).custom_transform("own", AbstractProcessor), 1, False),
    "custom behind a window": (
        lambda s: s.window(tumbling(10)).aggregate(counting()).custom_transform("own", AbstractProcessor),
        1,
        True,
    ),
    "ttl": (lambda s: s.map_stateful(list, lambda state, x: x, ttl=5), 1, True),
    "state": (lambda s: s.map_stateful(list, lambda state, x: x), 1000, False),
    "join": (lambda s: s.join(s, None, None, within=0.25), 250, True),
    "join of long": (lambda s: s.join(s, None, None, within=1000.001), 1000, True),
    "join of an odd time": (lambda s: s.join(s, None, None, within=0.101), 100, True),
    "join in front of a window": (
        lambda s: s.join(s, None, None, within=0.101).window(tumbling(0.3)).aggregate(counting()),
        100,
        True,
    ),
    "join in front of timers": (
        lambda s: s.join(s, None, None, within=2).custom_transform("a", AbstractProcessor),
        1,
        True,
    ),
    "group_by": (lambda s: s.window(tumbling(0.2)).group_by("user").agg(n=_count()), 200, True),
}


def _count() -> Any:
    from shmjet.columns import count

    return count()


@pytest.mark.parametrize(("build", "stride", "timed"), STRIDES.values(), ids=STRIDES)
def test_the_slides_behind_a_source_say_how_often_watermarks_are_sent(build: Build, stride: int, timed: bool) -> None:
    policy = policy_of(build)
    assert (policy.stride, policy.timed) == (stride, timed)


def test_each_source_has_a_stride_of_its_own() -> None:
    p = Pipeline()
    one = p.read_from(stream_of([])).with_timestamps(int)
    other = p.read_from(stream_of([])).with_timestamps(int)
    one.window(tumbling(0.3)).aggregate(counting()).write_to(sinks.noop())
    other.custom_transform("own", AbstractProcessor).write_to(sinks.noop())
    graph = LogicalGraph(p.nodes)
    assert [graph.times.stride(graph.nodes[i]) for i in (0, 1)] == [300, 1]


def test_a_fork_takes_the_time_off_where_it_is_not_needed() -> None:
    s = Pipeline().read_from(stream_of([])).with_timestamps(int)
    s.window(tumbling(1)).aggregate(counting()).write_to(sinks.noop())
    s.map(str).write_to(sinks.noop())
    plan = s.pipeline.explain()
    assert "no stage behind looks at event time: it is taken off" in plan
    assert "noop-2-items" not in plan
