"""Streams for pipelines in the test's process: given events that come to an end, with the time of their own partitions.

Each processor is one source partition and emits its events in order, a few in each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shmjet.core import Processor
from shmjet.core.event_time import EventTimePolicy
from shmjet.core.event_time_mapper import EventTimeMapper
from shmjet.core.outbox import Outbox
from shmjet.core.processor import ProcessorContext
from shmjet.pipeline import Pipeline
from shmjet.pipeline.definitions import StreamSourceDef
from shmjet.pipeline.stream_stage import StreamStage
from shmjet.processors.general.base import Supply
from shmjet.processors.general.emission import Emission
from tests.pipeline.running import list_sink, run

AT_ONCE = 3


class GivenEvents(Processor):
    """Emits item number i where `i % total_parallelism` is its own number."""

    is_endless = True

    def __init__(self, items: tuple[Any, ...], policy: EventTimePolicy | None = None) -> None:
        self._items = list(items)
        self._policy = policy

    def init(self, outbox: Outbox, context: ProcessorContext) -> None:
        super().init(outbox, context)
        self._items = self._items[context.global_index :: context.total_parallelism]
        self._emission = Emission(outbox)
        self._mapper = None if self._policy is None else EventTimeMapper(self._policy, 1)

    def complete(self) -> bool:
        if not self._emission.flush():
            return False
        items, self._items = self._items[:AT_ONCE], self._items[AT_ONCE:]
        self._emission.put(items if self._mapper is None or not items else self._taken(items))
        return self._emission.idle and not self._items

    def _taken(self, items: list[Any]) -> list[Any]:
        mapper = self._mapper
        assert mapper is not None
        if self._policy is not None and self._policy.column is not None:
            return [made for batch in items for made in mapper.take_batch(batch, 0, 0)]
        return mapper.take(items, 0, 0)


def stream_of(
    items: list[Any], parallelism: int = 2, *, keeps_time: bool = True, columnar: bool = False
) -> StreamSourceDef[Any]:
    """Return a source of given items in so many partitions; they are dealt to these in turn."""
    timed = functools.partial(_timed, tuple(items)) if keeps_time else None
    supplier = Supply(GivenEvents, tuple(items))
    return StreamSourceDef("events", supplier, parallelism, columnar=columnar, timed=timed)


def _timed(items: tuple[Any, ...], policy: EventTimePolicy) -> Any:
    return Supply(GivenEvents, items, policy)


def results_of(
    items: list[Any],
    build: Callable[[StreamStage[Any]], StreamStage[Any]],
    timestamps: Any = None,
    *,
    lag: float = 0,
    parallelism: int = 2,
    workers: int = 2,
    **source_options: Any,
) -> list[Any]:
    """Run a pipeline over given events and return what its sink got, in order of arrival."""
    source_stage = Pipeline().read_from(stream_of(items, parallelism, **source_options))
    if timestamps is None:
        stage = source_stage.without_timestamps()
    else:
        stage = source_stage.with_timestamps(timestamps, lag)
    build(stage).write_to(list_sink("out"))
    return run(stage.pipeline, workers).get("out", [])
