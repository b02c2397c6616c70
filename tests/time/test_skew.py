"""`set_max_skew`: a source that is far ahead waits for the other processors of its vertex and for other sources."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmjet
from shmjet import JetConfig, Pipeline, aggregate_ops, sinks, sources, tumbling
from shmjet.pipeline import StreamStage

STEP_MS = 100
SKEW_MS = 1_000
COUNT = 100
"""Events of each of the two, `STEP_MS` apart."""


@pytest.fixture(scope="module")
def jet() -> Iterator[shmjet.JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


class Runner:
    """Emits `COUNT` events, one a call; the slower of two, after its first, only while it is far behind.

    `path` is an array of 64-bit words that both map: how many events each has emitted, and the greatest lead seen.
    """

    def __init__(self, path: Path, role: int) -> None:
        self.words: Any = np.memmap(path, np.int64, "r+", shape=(3,))
        self.role = role

    def fill(self, buffer: sources.SourceBuffer[Any]) -> None:
        words, role = self.words, self.role
        position = int(words[role])
        lead = (int(words[0]) - int(words[1])) * STEP_MS
        if position == COUNT:
            buffer.close()
        elif role == 0 or not position or lead >= SKEW_MS - STEP_MS or words[0] == COUNT:
            buffer.add(role, position * STEP_MS)
            words[role] += 1
            if role == 0:
                words[2] = max(words[2], lead + STEP_MS)


def runner_at(path: Path, role: int | None, context: shmjet.ProcessorContext) -> Runner:
    return Runner(path, context.global_index if role is None else role)


def runners(p: Pipeline, path: Path, role: int | None, name: str) -> StreamStage[Any]:
    builder = sources.builder(name, partial(runner_at, path, role)).fill_buffer_fn(Runner.fill)
    source = (builder if role is not None else builder.distributed(2)).stream()
    if role != 1:
        source.set_max_skew(SKEW_MS / 1000)
    return p.read_from(source).with_native_timestamps()


@pytest.mark.parametrize("together", [True, False], ids=["processors of a source", "sources"])
def test_lead_is_bounded(jet: shmjet.JetInstance, tmp_path: Path, together: bool) -> None:
    path = tmp_path / "words"
    path.write_bytes(bytes(24))
    p, counts = Pipeline(), sinks.collect()
    if together:
        stage = runners(p, path, None, "both")
    else:
        stage = runners(p, path, 0, "fast").merge(runners(p, path, 1, "slow"))
    stage.window(tumbling(1)).aggregate(aggregate_ops.counting()).write_to(counts)
    jet.new_job(p).run(timeout=60)
    assert [(found.start, found.result) for found in counts] == [(i * 1000, 20) for i in range(10)]
    assert int(np.fromfile(path, np.int64)[2]) <= SKEW_MS + STEP_MS


def test_scheduled_source_waits_for_one_that_has_had_no_event(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    """The numbers of the one come when the other has ended."""
    path = tmp_path / "words"
    path.write_bytes(bytes(24))
    p, found = Pipeline(), sinks.collect()
    numbers = sources.item_stream(1000, partial(noted, path)).set_max_skew(0.001)
    first = p.read_from(numbers).with_timestamps(stamp)
    other = p.read_from(sources.builder("late", partial(runner_at, path, 1)).fill_buffer_fn(once_both).stream())
    first.merge(other.with_timestamps(stamp)).window(tumbling(1)).aggregate(aggregate_ops.counting()).write_to(found)
    execution = jet.new_job(p).execute()
    results = iter(found)
    assert next(results).result >= 1
    execution.cancel()
    assert int(np.fromfile(path, np.int64)[2]) <= 16


def noted(path: Path, number: int, timestamp: int) -> int:
    words = np.memmap(path, np.int64, "r+", shape=(3,))
    words[0] = number + 1
    return number * STEP_MS


def stamp(item: int) -> int:
    return item


def once_both(runner: Runner, buffer: sources.SourceBuffer[Any]) -> None:
    """Give one event and end, when the other source has begun."""
    if runner.words[0]:
        runner.words[2] = runner.words[0]
        buffer.add(0)
        buffer.close()
