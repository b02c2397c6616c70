"""One instance for all tests of a module, and what they build DAGs of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmjet
from shmjet import DAG, JetConfig, JetInstance, between, processors

_numbers = itertools.count()


@pytest.fixture(scope="module")
def jet() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=2)) as instance:
        yield instance


@pytest.fixture
def out() -> str:
    """A name for a list or map that no other test uses."""
    return f"out-{next(_numbers)}"


@pytest.fixture
def mapping(out: str) -> Callable[..., DAG]:
    """Makes `items -> map(fn) -> list`."""

    def make(fn: Callable[[Any], Any], items: Any = range(100), parallelism: int = -1) -> DAG:
        dag = DAG()
        source = dag.new_vertex("items", processors.read_items(items), 1)
        mapper = dag.new_vertex("map", processors.map(fn), parallelism)
        sink = dag.new_vertex("sink", processors.write_list(out), 1)
        return dag.edge(between(source, mapper)).edge(between(mapper, sink))

    return make
