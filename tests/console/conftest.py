"""Jobs to look at: an instance, DAGs that run until they are told to stop, and a console without a socket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmjet
from shmjet import DAG, AbstractProcessor, JetConfig, JetInstance, between, processors

TOKEN = "a-token-of-more-than-16-characters"


class Endless(AbstractProcessor):
    """Emits numbers until the job is cancelled, or a file appears."""

    def __init__(self, stop: str = "") -> None:
        self._stop = stop
        self._next = 0

    def complete(self) -> bool:
        for _ in range(64):
            if not self.try_emit(self._next):
                return False
            self._next += 1
        return bool(self._stop) and os.path.exists(self._stop)


def slowly(item: int) -> int:
    """Keep a core busy for some 100 microseconds."""
    return sum(range(item % 7 + 6000)) + item


def endless_dag(stop: Path | None = None) -> DAG:
    """numbers -> parse -> transform (slow) -> drop, the bottleneck being `transform`."""
    dag = DAG()
    path = "" if stop is None else str(stop)
    source = dag.new_vertex("numbers", lambda: Endless(path), 1)
    parse = dag.new_vertex("parse", processors.map(lambda item: item + 1), 1)
    work = dag.new_vertex("transform", processors.map(slowly), 1)
    sink = dag.new_vertex("drop", processors.filter(lambda item: False), 1)
    return dag.edge(between(source, parse)).edge(between(parse, work)).edge(between(work, sink))


def failing_dag() -> DAG:
    """Fails at item 50, in a function whose source a traceback can show."""

    def parse(item: int) -> int:
        if item == 50:
            raise ValueError(f"cannot parse item {item}")
        return item

    dag = DAG()
    source = dag.new_vertex("items", processors.read_items(range(100)), 1)
    return dag.edge(between(source, dag.new_vertex("parse <b>", processors.map(parse), 1)))


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance
