"""Types flow through stages: `make check` has mypy read this file, and nothing runs it."""

from __future__ import annotations

from typing import Any, assert_type

from shmjet.aggregate_ops import AggregateOperation, counting
from shmjet.pipeline import BatchStage, KeyedBatchStage, Pipeline, ServiceFactory, SinkDef, SourceDef, Table
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.pipeline.keyed import KeyedStreamStage
from shmjet.pipeline.source_stage import StreamSourceStage
from shmjet.pipeline.stream_stage import StreamStage


class Model:
    def score(self, text: str) -> float:
        return float(len(text))


def words(source: SourceDef[str], sink: SinkDef[tuple[str, int]]) -> None:
    lines = Pipeline().read_from(source)
    assert_type(lines, BatchStage[str])
    found = lines.flat_map(lambda line: line.split())
    assert_type(found, BatchStage[str])
    assert_type(found.map(len), BatchStage[int])
    assert_type(found.filter(str.isdigit).peek().sort().distinct().rebalance(), BatchStage[str])
    keyed = found.grouping_key(lambda word: len(word))
    assert_type(keyed, KeyedBatchStage[str, int])
    assert_type(found.merge(found), BatchStage[str])
    assert_type(found.apply(lambda stage: stage.map(len)), BatchStage[int])
    found.map(lambda word: (word, 1)).write_to(sink)


def aggregated(texts: BatchStage[str], op: AggregateOperation[str, list[str], float]) -> None:
    assert_type(texts.aggregate(op), BatchStage[float])
    assert_type(texts.grouping_key(len).aggregate(op), BatchStage[tuple[int, float]])
    assert_type(texts.rolling_aggregate(op), BatchStage[float])
    assert_type(texts.grouping_key(len).rolling_aggregate(op), BatchStage[tuple[int, float]])
    assert_type(texts.grouping_key(len).aggregate(counting()), BatchStage[tuple[int, int]])


def stateful(texts: BatchStage[str]) -> None:
    def number(state: list[str], text: str) -> int | None:
        state.append(text)
        return len(state)

    def of_key(state: list[str], key: int, text: str) -> bytes:
        return text.encode()

    assert_type(texts.map_stateful(list[str], number), BatchStage[int])
    assert_type(texts.grouping_key(len).map_stateful(list[str], of_key), BatchStage[bytes])


async def fetch(service: Model, text: str) -> float | None:
    return service.score(text)


def services(texts: BatchStage[str]) -> None:
    factory = ServiceFactory(lambda context: Model())
    assert_type(texts.map_using_service(factory, lambda model, text: model.score(text)), BatchStage[float])
    assert_type(texts.map_using_service(Model, Model.score), BatchStage[float])
    assert_type(texts.map_using_service_async(Model, fetch), BatchStage[float])


def joined(texts: BatchStage[str], numbers: BatchStage[int]) -> None:
    assert_type(texts.join(numbers, len, None), BatchStage[tuple[str, int]])
    assert_type(texts.join(numbers, len, lambda n: n, lambda text, n: text * n), BatchStage[str])
    assert_type(texts.inner_hash_join(numbers, (len, None), lambda text, n: n * 0.5), BatchStage[float])
    assert_type(texts.join_table(Table("t"), len, lambda text, value: len(text)), BatchStage[int])
    builder = texts.hash_join_builder()
    tag = builder.add_inner(numbers, (len, None))
    assert_type(builder.build(lambda text, found: (text, len(found))), BatchStage[tuple[str, int]])
    _: Any = tag


def endless(source: StreamSourceDef[str], numbers: BatchStage[int], sink: SinkDef[int]) -> None:
    source_stage = Pipeline().read_from(source)
    assert_type(source_stage, StreamSourceStage[str])
    assert_type(source_stage.with_native_timestamps(), StreamStage[str])
    clicks = source_stage.with_timestamps(len, allowed_lag=1)
    assert_type(clicks, StreamStage[str])
    assert_type(clicks.map(len), StreamStage[int])
    assert_type(clicks.filter(str.isdigit).peek().rebalance().partition_by(len), StreamStage[str])
    assert_type(clicks.flat_map(lambda line: line.split()), StreamStage[str])
    assert_type(clicks.merge(clicks), StreamStage[str])
    assert_type(clicks.apply(lambda stage: stage.map(len)), StreamStage[int])
    assert_type(clicks.rolling_aggregate(counting()), StreamStage[int])
    assert_type(clicks.map_using_service(Model, Model.score), StreamStage[float])
    assert_type(clicks.join_table(Table("t"), len, lambda text, value: len(text)), StreamStage[int])
    keyed = clicks.grouping_key(len)
    assert_type(keyed, KeyedStreamStage[str, int])
    assert_type(keyed.rolling_aggregate(counting()), StreamStage[tuple[int, int]])
    assert_type(keyed.filter_stateful(list[str], lambda state, key, text: key > 2), StreamStage[str])
    clicks.hash_join(numbers, (len, None)).write_to(sink)


def endless_without_a_window(clicks: StreamStage[str]) -> None:
    clicks.sort()  # type: ignore[attr-defined]
    clicks.distinct()  # type: ignore[attr-defined]
    clicks.aggregate(counting())  # type: ignore[attr-defined]
    clicks.group_by("user")  # type: ignore[attr-defined]
    clicks.grouping_key(len).aggregate(counting())  # type: ignore[attr-defined]
    clicks.grouping_key(len).distinct()  # type: ignore[attr-defined]
