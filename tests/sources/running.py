"""Runs a source and a sink as the two ends of one job, without a pipeline in between; or a source alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import shmjet
from shmjet import DAG, sinks
from shmjet.core import MetaSupplierContext, Processor
from shmjet.pipeline.definitions import SinkDef, SourceDef
from tests.processors.driving import Driver


def dag_of(source: SourceDef[Any], *targets: SinkDef[Any]) -> DAG:
    """Return a DAG in which the source feeds each of the sinks."""
    dag = DAG()
    first = _vertex(dag, source)
    for ordinal, sink in enumerate(targets):
        last = _vertex(dag, sink)
        dag.edge(shmjet.from_(first, ordinal).to(last))
    return dag


def run(jet: shmjet.JetInstance, source: SourceDef[Any], *targets: SinkDef[Any]) -> None:
    """Run a source into sinks."""
    jet.new_job(dag_of(source, *targets)).run(60)


def collected(jet: shmjet.JetInstance, source: SourceDef[Any]) -> list[Any]:
    """Return what a source emits."""
    with sinks.collect() as results:
        run(jet, source, results)
        return list(results)


def read(source: SourceDef[Any], count: int = 2, between: Callable[[], object] = lambda: None) -> list[Any]:
    """Return what a source emits, without an engine. `between` is called when its files are known, and not yet read."""
    meta = source.supplier
    output: list[Any] = []
    processors: list[Processor] = []
    try:
        meta.init(MetaSupplierContext(vertex_name="v", local_parallelism=count, total_parallelism=count))
        processors += meta.get(["here"])["here"].get(count)
        between()
        for index, processor in enumerate(processors):
            output += Driver(processor, index=index, count=count).complete(())
    finally:
        for processor in processors:
            processor.close()
        meta.close(None)
    return output


def _vertex(dag: DAG, definition: SourceDef[Any] | SinkDef[Any]) -> shmjet.Vertex:
    if definition.expand is not None:
        return definition.expand(dag, definition.name, definition.parallelism)
    return dag.new_unique_vertex(definition.name, definition.supplier, definition.parallelism)
