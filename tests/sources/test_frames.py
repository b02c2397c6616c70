"""`frames()`, and results as tables: other libraries at both ends of a pipeline."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import shmjet
from shmjet import Batch, BatchError, Pipeline, ShmjetError, sinks, sources
from tests.data.peers import duckdb, pl
from tests.sources.running import run


def through(jet: shmjet.JetInstance, *tables: Any) -> Any:
    """The results of a job that emits tables."""
    results: Any = sinks.collect()
    run(jet, sources.frames(*tables), results)
    return results


def test_rows_of_a_frame_come_once(jet: shmjet.JetInstance) -> None:
    frame = pl.DataFrame({"n": np.arange(100_000), "s": [str(n) for n in range(100_000)]})
    results = through(jet, frame)
    assert len(list(results)) == 4
    assert pl.DataFrame(results).sort("n").equals(frame)
    assert duckdb.sql("select count(*), sum(n), max(s) from results").fetchall() == [(100_000, 4999950000, "99999")]


def test_frames_of_several_libraries_go_together(jet: shmjet.JetInstance) -> None:
    one = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    two = duckdb.sql("select 'y' as b, 2.5::double as a")
    results = through(jet, one, two, Batch({"a": [None], "b": ["z"]}))
    frame = pl.DataFrame(results).sort("a", nulls_last=True)
    assert frame.to_dict(as_series=False) == {"a": [1.0, 2.0, 2.5, None], "b": ["x", None, "y", "z"]}


def test_frames_without_rows_keep_their_columns(jet: shmjet.JetInstance) -> None:
    results = through(jet, Batch({"a": np.zeros(0, np.int16), "s": Batch({"s": ["x"]})["s"][:0]}))
    assert Batch.from_arrow(results).schema == {"a": np.dtype(np.int16), "s": "text"}


@pytest.mark.parametrize("tables", [(), (5,), (Batch({"a": [1]}), Batch({"b": [1]}))])
def test_what_is_not_a_table_is_refused(tables: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, BatchError)):
        sources.frames(*tables)


def test_frames_are_explained() -> None:
    pipeline = Pipeline()
    pipeline.read_from(sources.frames(Batch({"a": [1]}))).write_to(sinks.noop())
    assert "frames" in pipeline.explain()


class Point(NamedTuple):
    x: int
    name: str | None


def test_rows_are_a_table_too(jet: shmjet.JetInstance) -> None:
    results: Any = sinks.collect()
    run(jet, sources.items([{"x": 1, "name": "a"}, Point(2, None), Batch({"x": [0.5], "name": ["b"]})]), results)
    assert Batch.from_arrow(results).to_dict() == {"x": [1.0, 2.0, 0.5], "name": ["a", None, "b"]}


def test_what_makes_no_table_is_named(jet: shmjet.JetInstance) -> None:
    results: Any = sinks.collect()
    with pytest.raises(ShmjetError, match="no results before the job"):
        Batch.from_arrow(results)
    run(jet, sources.items([1]), results)
    with pytest.raises(TypeError, match="made of batches, dicts or named tuples, found int 1"):
        Batch.from_arrow(results)
    run(jet, sources.items([]), results)
    assert Batch.from_arrow(results) == Batch({})
