"""`explain` names what each source and sink guarantees in a job with a processing guarantee."""

from __future__ import annotations

from typing import Any

import pytest

from shmjet import JobConfig, Pipeline, ProcessingGuarantee, sinks, sources

EXACTLY, AT_LEAST = ProcessingGuarantee.EXACTLY_ONCE, ProcessingGuarantee.AT_LEAST_ONCE


def explained(source: Any, sink: Any, guarantee: ProcessingGuarantee) -> list[str]:
    """The lines about guarantees, that of the sink first."""
    p = Pipeline()
    p.read_from(source).write_to(sink)
    text = p.explain(JobConfig(processing_guarantee=guarantee))
    return [line.strip(" │") for line in text.splitlines() if "guarantee" in line]


def built_source(*, has_position: bool) -> Any:
    builder = sources.builder("built", lambda context: None).fill_buffer_fn(lambda _, buffer: buffer.close())
    if has_position:
        builder = builder.create_snapshot_fn(lambda _: 0).restore_snapshot_fn(lambda _, states: None)
    return builder.build()


@pytest.mark.parametrize(
    ("source", "own"),
    [
        (sources.items([1]), "exactly once"), (sources.list("l"), "exactly once"),
        (sources.map("m"), "exactly once"), (sources.files("/etc/hosts"), "exactly once"),
        (built_source(has_position=True), "exactly once"),
        (built_source(has_position=False), "none, weaker than that of the job"),
        (sources.socket("localhost", 5000), "none, weaker than that of the job"),
    ],
)  # fmt: skip
def test_of_sources(source: Any, own: str) -> None:
    assert explained(source, sinks.noop(), EXACTLY) == ["guarantee: exactly once", f"guarantee: {own}"]


@pytest.mark.parametrize(
    ("sink", "own"),
    [
        (sinks.files("/tmp/out"), "exactly once"),
        (sinks.json("/tmp/out", exactly_once=False), "at least once, weaker than that of the job"),
        (sinks.list("l"), "exactly once"), (sinks.map("m"), "exactly once"),
        (sinks.map("m", merge_fn=max), "exactly once"),
        (sinks.socket("localhost", 5000), "at least once, weaker than that of the job"),
        (sinks.collect(), "at least once, weaker than that of the job"),
        (sinks.logger(), "none, weaker than that of the job"),
    ],
)  # fmt: skip
def test_of_sinks(sink: Any, own: str) -> None:
    assert explained(sources.items([1]), sink, EXACTLY) == [f"guarantee: {own}", "guarantee: exactly once"]


def test_the_weaker_one_counts_and_without_a_guarantee_there_is_nothing_to_say() -> None:
    found = explained(sources.items([1]), sinks.list("l"), AT_LEAST)
    assert found == ["guarantee: at least once"] * 2
    assert explained(sources.items([1]), sinks.list("l"), ProcessingGuarantee.NONE) == []


def test_state_without_a_name_of_its_own_is_named_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    def pipeline(**names: str) -> Pipeline:
        p = Pipeline()
        stage = p.read_from(sources.items([1])).map(str).map_stateful(list, lambda state, item: item)
        if names:
            stage.set_name(names["total"])
        stage.sort().write_to(sinks.list("l"))
        return p

    def warned(p: Pipeline, guarantee: ProcessingGuarantee) -> str:
        caplog.clear()
        p.to_dag(JobConfig(processing_guarantee=guarantee))
        return " ".join(caplog.messages)

    assert "use set_name() for 'map_stateful', 'sort'" in warned(pipeline(), EXACTLY)
    found = warned(pipeline(total="total"), AT_LEAST)
    assert "'total'" not in found
    assert "'sort'" in found
    assert warned(pipeline(), ProcessingGuarantee.NONE) == ""
    text = pipeline(total="total").explain(JobConfig(processing_guarantee=EXACTLY))
    assert text.count("state: saved under this name") == 1
    assert "state:" not in pipeline().explain()
