"""The stage of an endless source: nothing but saying what the time of its items is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from shmjet import column, columns, sinks, tumbling
from shmjet.aggregate_ops import counting
from shmjet.core import Processor
from shmjet.core.event_time import EventTimePolicy
from shmjet.data.errors import ConfigError, PlanError
from shmjet.pipeline import Pipeline, SourceDef
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.pipeline.source_stage import StreamSourceStage
from shmjet.pipeline.stream_stage import StreamStage


class Clicks(Processor):
    is_endless = True


class TimedClicks(Clicks):
    """A source that keeps the time of its own partitions."""

    def __init__(self, policy: EventTimePolicy) -> None:
        self.policy = policy


def own_time(policy: EventTimePolicy) -> Any:
    def supplier() -> Processor:
        return TimedClicks(policy)

    return supplier


def timed_source(**options: Any) -> StreamSourceDef[Any]:
    return StreamSourceDef("clicks", Clicks, 1, timed=own_time, has_native_timestamps=True, **options)


def policy_of(source: StreamSourceDef[Any], said: Callable[[StreamSourceStage[Any]], StreamStage[Any]]) -> Any:
    """Return the policy that the source gets in the plan; None: it makes bare items."""
    stage = said(Pipeline().read_from(source))
    stage.write_to(sinks.noop())
    return getattr(stage.pipeline.to_dag().vertex("clicks").supplier(), "policy", None)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (lambda stage: stage.with_timestamps(int, 2), ("items", int, 2_000)),
        (lambda stage: stage.with_native_timestamps(timedelta(milliseconds=5)), ("native", None, 5)),
        (lambda stage: stage.with_ingestion_timestamps(), ("ingestion", None, 0)),
    ],
)
def test_a_source_with_its_own_time_gets_the_policy(
    said: Callable[[StreamSourceStage[Any]], StreamStage[Any]], expected: tuple[Any, ...]
) -> None:
    policy = policy_of(timed_source(), said)
    assert (policy.timestamps, policy.timestamp_fn, policy.allowed_lag) == expected
    assert policy_of(timed_source(), lambda stage: stage.without_timestamps()) is None


def test_settings_of_the_source_are_in_the_policy_and_may_come_after_the_stage() -> None:
    source = timed_source()

    def said(stage: StreamSourceStage[Any]) -> StreamStage[Any]:
        timed = stage.with_ingestion_timestamps()
        assert source.set_partition_idle_timeout(None).set_advance_when_idle(0.5) is source
        source.set_max_skew(timedelta(seconds=3))
        return timed

    assert (source.partition_idle_timeout, source.advance_when_idle, source.max_skew) == (60_000, None, None)
    policy = policy_of(source, said)
    assert (policy.idle_timeout, policy.advance_when_idle, policy.max_skew) == (None, 500, 3_000)


def test_sources_are_aligned_when_one_of_them_has_a_greatest_skew() -> None:
    p = Pipeline()
    ahead = p.read_from(timed_source().set_max_skew(2)).with_timestamps(int)
    other = p.read_from(timed_source()).with_timestamps(int)
    ahead.merge(other).window(tumbling(1)).aggregate(counting()).write_to(sinks.noop())
    assert p.explain().count("waits when 2000 ms ahead of other sources") == 1
    policies = [getattr(p.to_dag().vertex(name).supplier(), "policy") for name in ("clicks", "clicks-2")]  # type: ignore[operator] # noqa: B009
    assert [(policy.is_aligned, policy.max_skew) for policy in policies] == [(True, 2_000), (True, None)]


def test_timestamps_of_batches_are_in_a_column() -> None:
    policy = policy_of(timed_source(columnar=True), lambda stage: stage.with_timestamps(column("ts")))
    assert (policy.timestamps, policy.column, policy.timed) == ("items", "ts", False)
    with pytest.raises(PlanError, match=r"source 'clicks' gives batches of columns: name the column"):
        policy_of(timed_source(columnar=True), lambda stage: stage.with_timestamps(int))
    policy = policy_of(timed_source(columnar=True), lambda stage: stage.with_native_timestamps())
    assert (policy.timestamps, policy.column) == ("native", "timestamp")


def test_wrong_settings_are_refused() -> None:
    source = timed_source()
    with pytest.raises(ConfigError, match=r"source 'clicks': max_skew must be at least 0.001 s"):
        source.set_max_skew(0)
    stage = Pipeline().read_from(source)
    with pytest.raises(ConfigError, match="allowed_lag must be at least 0"):
        stage.with_timestamps(int, -1)
    with pytest.raises(TypeError, match="allowed_lag must be seconds"):
        stage.with_native_timestamps("1s")
    with pytest.raises(TypeError, match=r"with_timestamps: timestamps are in a column, got the expression"):
        stage.with_timestamps(column("ts") + 1)
    with pytest.raises(TypeError, match="with_timestamps: expected a function that gives the timestamp"):
        stage.with_timestamps("ts")
    with pytest.raises(PlanError, match="timestamps are in one column"):
        stage.with_timestamps(columns("a", "b"))


def test_a_source_without_timestamps_of_its_own_says_so() -> None:
    stage: StreamSourceStage[Any] = Pipeline().read_from(StreamSourceDef("clicks", Clicks, 1))
    with pytest.raises(PlanError, match=r"source 'clicks' has no timestamps of its own: say with_timestamps"):
        stage.with_native_timestamps()


@pytest.mark.parametrize("name", ["map", "filter", "write_to", "sort", "merge", "grouping_key"])
def test_nothing_else_can_be_done_with_it(name: str) -> None:
    stage = Pipeline().read_from(timed_source())
    with pytest.raises(PlanError, match=rf"clicks\.{name}\(\): first say .* with_timestamps\(fn\), .* or without_tim"):
        getattr(stage, name)


def test_it_is_no_input_of_other_stages() -> None:
    p = Pipeline()
    stage = p.read_from(timed_source())
    with pytest.raises(TypeError, match="first say what the time of the source's items is"):
        p.write_to(sinks.noop(), stage)
    assert not hasattr(stage, "no_such_thing")
    assert stage.set_name("other").name == "other"


def test_the_time_of_a_source_is_said_once() -> None:
    stage = Pipeline().read_from(timed_source())
    stage.without_timestamps()
    with pytest.raises(PlanError, match="the time of source 'clicks' has been said before"):
        stage.with_ingestion_timestamps()


def test_a_bounded_source_has_no_such_stage() -> None:
    assert hasattr(Pipeline().read_from(SourceDef("items", Clicks)), "sort")
