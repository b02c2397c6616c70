"""Pipelines and their DAGs as pictures."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from shmjet.aggregate_ops import counting
from shmjet.pipeline import Pipeline, Table
from tests.pipeline.running import items_source, list_sink


@pytest.fixture
def pipeline() -> Pipeline:
    made = Pipeline()
    names = made.read_from(items_source('say "hi"', []))
    names.send_to(Table("names"), len)
    items = made.read_from(items_source("items", [])).map(lambda x: x).filter(str.isdigit).set_local_parallelism(2)
    items.join_table(Table("names"), len, max).grouping_key(len).aggregate(counting()).write_to(list_sink("out"))
    return made


def test_dot_shows_stages_and_tables(pipeline: Pipeline) -> None:
    dot = pipeline.to_dot()
    assert '"filter" [label="filter\\nFilter: isdigit \u00d7 2"];' in dot
    assert '"map" -> "filter"' in dot
    assert '"send_to(names)" -> "join_table(names)"' in dot
    assert "combine" not in dot


def test_svg_is_well_formed_and_is_what_a_notebook_shows(pipeline: Pipeline) -> None:
    svg = pipeline.to_svg()
    texts = [element.text for element in ElementTree.fromstring(svg).iter() if element.text]
    assert "aggregate_by_key" in texts
    assert pipeline._repr_svg_() == pipeline._repr_html_() == svg
    assert Pipeline()._repr_svg_() is Pipeline()._repr_html_() is None


def test_mermaid_draws_the_stages_or_the_dag(pipeline: Pipeline) -> None:
    stages = pipeline.to_mermaid()
    assert stages.startswith("flowchart TB\n")
    assert '["say #quot;hi#quot;"]' in stages
    assert '["filter (2)"]' in stages
    dag = pipeline.to_mermaid(dag=True)
    assert '["aggregate_by_key-combine"]' in dag
    assert '-->|"partitioned(' in dag
    assert pipeline.to_dag().to_mermaid() == dag


def test_the_name_of_a_stage_may_have_several_lines() -> None:
    pipeline = Pipeline()
    pipeline.read_from(items_source("two\nlines", [])).write_to(list_sink("out"))
    assert '["two lines"]' in pipeline.to_mermaid()
    assert repr(pipeline) == "<Pipeline of 2 stages: two\nlines out>"
    assert repr(Pipeline()) == "<Pipeline of 0 stages>"


def test_a_table_that_would_close_a_cycle_is_drawn_without_its_edge() -> None:
    pipeline = Pipeline()
    joined = pipeline.read_from(items_source("items", [])).join_table(Table("t"), None, max)
    joined.send_to(Table("t"), len)
    assert '"send_to(t)" -> "join_table(t)"' not in pipeline.to_dot()


def test_an_empty_pipeline_can_be_drawn() -> None:
    assert Pipeline().to_dot().startswith("digraph")
    assert Pipeline().to_mermaid() == "flowchart TB"


def test_names_of_functions_stand_in_the_boxes() -> None:
    class Key:
        def __call__(self, item: Any) -> Any:
            return item

    pipeline = Pipeline()
    pipeline.read_from(items_source("items", [])).map(Key()).distinct(Key()).write_to(list_sink("out"))
    assert "Map: Key" in pipeline.to_dot()
    assert "Distinct: Key" in pipeline.to_dot()
