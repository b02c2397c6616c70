"""Endless inputs: stages of their own type, and a planner that refuses by name what needs their end."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import cloudpickle
import pytest

from shmjet import sinks, sources, tumbling
from shmjet.aggregate_ops import counting
from shmjet.columns import count
from shmjet.core import Processor
from shmjet.core.latency_policy import LOW_LATENCY, THROUGHPUT
from shmjet.data.errors import PlanError
from shmjet.execution.plan import describe, policy_of
from shmjet.pipeline import BatchStage, Pipeline, Table
from shmjet.pipeline import transforms as t
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.pipeline.endless import KNOWN, NEEDS_ALL
from shmjet.pipeline.keyed import KeyedStreamStage
from shmjet.pipeline.stream_stage import StreamStage


class Clicks(Processor):
    """A source that would never complete."""

    is_endless = True

    def complete(self) -> bool:
        return False


CLICKS: StreamSourceDef[Any] = StreamSourceDef("clicks", Clicks, parallelism=1)


def clicks() -> StreamStage[Any]:
    return Pipeline().read_from(CLICKS).without_timestamps()


def timed_clicks() -> StreamStage[Any]:
    return Pipeline().read_from(CLICKS).with_timestamps(int)


def users(stage: StreamStage[Any]) -> BatchStage[Any]:
    return stage.pipeline.read_from(sources.items([("ann", 1)]))


def as_batch(stage: StreamStage[Any]) -> BatchStage[Any]:
    """Return a handle that claims what is wrong, as a stage that a user wrote might."""
    return BatchStage(stage.pipeline, stage.node_id)


STAYS: dict[str, Callable[[StreamStage[Any]], Any]] = {
    "map": lambda stage: stage.map(str),
    "filter": lambda stage: stage.filter(bool),
    "flat_map": lambda stage: stage.flat_map(list),
    "map_batches": lambda stage: stage.map_batches(lambda batch: batch),
    "peek": lambda stage: stage.peek(),
    "map_stateful": lambda stage: stage.map_stateful(list, lambda state, item: item),
    "rolling_aggregate": lambda stage: stage.rolling_aggregate(counting()),
    "map_using_service": lambda stage: stage.map_using_service(dict, lambda service, item: item),
    "merge": lambda stage: stage.merge(stage.map(str)),
    "merge into bounded": lambda stage: users(stage).merge(stage),  # type: ignore[type-var]
    "rebalance": lambda stage: stage.rebalance(),
    "partition_by": lambda stage: stage.partition_by(None),
    "hash_join": lambda stage: stage.hash_join(users(stage), (None, itemgetter(0))),
    "inner_hash_join": lambda stage: stage.inner_hash_join(users(stage), (None, itemgetter(0))),
    "custom": lambda stage: stage.custom_transform("own", Processor),
    "keyed": lambda stage: stage.grouping_key(None).map_stateful(list, lambda state, key, item: item),
    "keyed rolling": lambda stage: stage.grouping_key(None).rolling_aggregate(counting()),
}


@pytest.mark.parametrize("made", STAYS.values(), ids=STAYS)
def test_what_works_item_by_item_works_on_a_stream_and_makes_a_stream(made: Callable[[StreamStage[Any]], Any]) -> None:
    stage = made(clicks())
    assert type(stage) is StreamStage
    stage.write_to(sinks.list("out"))
    assert "clicks" in stage.pipeline.explain()


WHOLE: dict[str, Callable[[BatchStage[Any]], BatchStage[Any]]] = {
    "sort": lambda stage: stage.sort(),
    "distinct": lambda stage: stage.distinct(),
    "aggregate": lambda stage: stage.aggregate(counting()),
    "aggregate by key": lambda stage: stage.grouping_key(None).aggregate(counting()),
    "aggregate2": lambda stage: stage.aggregate2(counting(), stage, counting()),
    "group_by": lambda stage: stage.group_by("user").agg(n=count()),
}


@pytest.mark.parametrize("made", WHOLE.values(), ids=WHOLE)
def test_the_planner_refuses_by_name_what_needs_the_end_of_a_stream(
    made: Callable[[BatchStage[Any]], BatchStage[Any]],
) -> None:
    stage = made(as_batch(clicks().map(str)))
    stage.set_name("whole").write_to(sinks.list("out"))
    with pytest.raises(PlanError, match=r"stage 'whole' needs the end of its input, but 'clicks' is endless.*window"):
        stage.pipeline.to_dag()


@pytest.mark.parametrize("name", sorted(NEEDS_ALL))
def test_a_stream_has_no_method_that_needs_its_end_and_says_so(name: str) -> None:
    stage = clicks()
    assert hasattr(BatchStage, name)
    with pytest.raises(PlanError, match=rf"clicks\.{name}\(\) needs the end of its input, but 'clicks'.*window"):
        getattr(stage, name)
    with pytest.raises(PlanError, match=rf"{name}\(\) needs the end of its input, but 'clicks' is endless"):
        getattr(stage.grouping_key(None), name)


def test_other_names_are_missing_as_usual() -> None:
    assert not hasattr(clicks(), "no_such_thing")
    assert not hasattr(clicks().grouping_key(None), "no_such_thing")
    assert not hasattr(timed_clicks().window(tumbling(1)), "no_such_thing")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda s: s.key_by(None), r"a stream has no 'key_by'; grouping_key\(fn\) does that"),
        (lambda s: s.groupingKey(None), "did you mean 'grouping_key'"),
        (lambda s: s.late_to(sinks.noop()), r"window\(...\).late_to\(...\).aggregate\(op\)"),
        (lambda s: s.window(tumbling(1)).write_to(sinks.noop()), r"no 'write_to' before its items are aggregated"),
        (lambda s: s.window(tumbling(1)).grouping_key(None).map(str), r"no 'map' before .* window\(...\).aggregate"),
        (lambda s: s.window(tumbling(1)).agregate(counting()), "did you mean 'aggregate'"),
        (lambda s: users(s).window(tumbling(1)), "windows are of endless sources"),
        (lambda s: users(s).with_timestamps(int), "only endless sources have event time"),
    ],
)
def test_names_of_other_places_are_told_what_to_do(made: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(AttributeError, match=text):
        made(timed_clicks())


def test_a_joined_side_is_bounded() -> None:
    stage = clicks()
    users(stage).hash_join(as_batch(stage), (itemgetter(0), None)).write_to(sinks.list("out"))
    with pytest.raises(PlanError, match=r"'hash_join' reads all of a joined side .* but 'clicks' is endless"):
        stage.pipeline.to_dag()


def test_a_table_is_not_filled_from_a_stream_but_joined_with_one() -> None:
    stage, table = clicks(), Table("t")
    users(stage).send_to(table)
    stage.join_table(table, None, lambda item, value: item).write_to(sinks.list("out"))
    stage.pipeline.to_dag()
    stage.send_to(table, itemgetter(0))
    with pytest.raises(PlanError, match=r"a table is complete before .* but 'clicks' is endless"):
        stage.pipeline.to_dag()


def concrete(kind: type[t.Transform]) -> Iterator[type[t.Transform]]:
    for each in kind.__subclasses__():
        yield each
        yield from concrete(each)


def test_of_each_kind_of_stage_it_is_known_what_it_does_with_a_stream() -> None:
    assert set(concrete(t.Transform)) == KNOWN


def test_an_endless_source_makes_the_job_one_of_low_latency() -> None:
    stage = clicks()
    stage.write_to(sinks.list("out"))
    assert policy_of(describe(stage.pipeline.to_dag())) is LOW_LATENCY
    p = Pipeline()
    p.read_from(sources.items([1])).write_to(sinks.list("out"))
    assert policy_of(describe(p.to_dag())) is THROUGHPUT


def test_stages_of_streams_can_be_copied_and_pickled() -> None:
    stage = clicks()
    assert type(pickle.loads(cloudpickle.dumps(stage))) is StreamStage
    assert copy.copy(stage) == stage
    assert isinstance(copy.copy(stage.grouping_key(None)), KeyedStreamStage)
