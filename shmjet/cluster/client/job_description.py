"""A job as a pickle: what to run and how, without the instance that made it."""

from __future__ import annotations

import copy
import os
import pickle
import sys
import weakref
from typing import Any, Protocol

from shmjet.core import DAG, Edge, JobConfig, Vertex
from shmjet.data import code_pickling


class JobDescription:
    """A job that was unpickled where the instance that made it is not open: `jet.new_job(description)` makes it again.

    Args:
        graph: its vertices in the order of the flow, and its edges.
        config: how to run it.

    Example:
        >>> description = pickle.loads(data)                     # doctest: +SKIP
        >>> jet.new_job(description).run()                       # doctest: +SKIP
    """

    def __init__(self, graph: tuple[list[Vertex], list[Edge]], config: JobConfig) -> None:
        self._graph = graph
        self._config = config

    @property
    def name(self) -> str | None:
        """The job's name."""
        return self._config.name

    @property
    def config(self) -> JobConfig:
        """A copy of the job's config, with those of its modules that this process has."""
        config = copy.copy(self._config)
        if not config.modules:
            known = map(sys.modules.get, config.module_names)
            config.modules = tuple(module for module in known if module is not None)
        return config

    def to_dag(self, config: JobConfig | None = None) -> DAG:
        """Return what the job runs. It was planned for the settings that it had when it was made."""
        dag = DAG()
        vertices, edges = self._graph
        for vertex in vertices:
            dag.add_vertex(vertex)
        for edge in edges:
            dag.edge(edge)
        return dag

    def __repr__(self) -> str:
        return f"<JobDescription {self.name!r}>"


def pickled(description: JobDescription) -> bytes:
    """Return a description as bytes, functions and classes of scripts and of its modules by value.

    Raises what pickling it raises.
    """
    with code_pickling.modules_by_value(description.config.modules):
        return code_pickling.dumps(description)


class JobMaker(Protocol):
    """An instance, as far as it makes jobs."""

    def new_job(self, dag: JobDescription) -> Any: ...
    def new_job_if_absent(self, dag: JobDescription) -> Any: ...


_open: weakref.WeakValueDictionary[str, JobMaker] = weakref.WeakValueDictionary()


def opened(maker: JobMaker) -> str:
    """Note that an instance of this process makes jobs from now on; returns a key for it."""
    key = f"{os.getpid()}-{os.urandom(8).hex()}"
    _open[key] = maker
    return key


def closed(key: str) -> None:
    """Take that an instance makes no more jobs."""
    _open.pop(key, None)


def job_again(data: bytes, key: str, joins: bool) -> Any:
    """Return a job made of what was pickled, where its instance is open in this process; else the description.

    Unpickling a `Job` calls it.

    Args:
        data: from `pickled`.
        key: of the instance that made it.
        joins: see `Job.joins`.
    """
    description: JobDescription = pickle.loads(data)
    maker = _open.get(key) if key.startswith(f"{os.getpid()}-") else None  # a forked child must not use it
    if maker is None:
        return description
    return maker.new_job_if_absent(description) if joins else maker.new_job(description)
