"""The submission of a job: its shape, its code by value, its settings, the files attached to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from shmjet.cluster.lifecycle_messages import RunSettings
from shmjet.cluster.protocol import FILE_PIECE, Submission
from shmjet.core import DAG, Edge, JobConfig, Vertex
from shmjet.data.code_pickling import dumps, modules_by_value
from shmjet.data.sendable_text import sendable
from shmjet.execution.code import code_of
from shmjet.execution.job_plan import JobShape
from shmjet.execution.plan import describe

if TYPE_CHECKING:
    from shmjet.cluster.client.job_record import BeginsRun

T = TypeVar("T")

PLAIN = JobConfig()
"""The config of a job that is given none; never changed."""
_PLAIN_CONFIG = dumps(PLAIN)
_PLAIN_SETTINGS = RunSettings()


def submission_of(dag: DAG, config: JobConfig, job_id: str, attachments: dict[str, str]) -> Submission:
    """Return what a member is told of a job.

    Args:
        dag: what to run.
        config: how.
        job_id: 16 hexadecimal digits.
        attachments: where the member has the attached files, by their ids.

    Raises:
        DagError: the DAG is not valid.
        TypeError: something in it cannot be pickled; the text names the vertex.
    """
    shape, is_plain, observables = describe(dag), config == PLAIN, observables_of(dag)
    return Submission(
        job_id=job_id,
        name=config.name,
        shape=shape,
        code=_pickle_code(dag, shape, config),
        config=_PLAIN_CONFIG if is_plain else dumps(config),
        attachments=attachments,
        import_paths=_import_paths(),
        settings=_PLAIN_SETTINGS if is_plain and not observables else _settings(config, observables),
    )


def observables_of(dag: DAG) -> list[str]:
    """Return the names of the observables that the sinks of a job write to, each once."""
    named = (getattr(vertex.supplier, "observable", None) for vertex in dag.vertices)
    return list(dict.fromkeys(name for name in named if isinstance(name, str)))


def _settings(config: JobConfig, observables: list[str]) -> RunSettings:
    return RunSettings(
        guarantee=config.processing_guarantee.value,
        snapshot_interval=config.snapshot_interval,
        suspend_on_failure=config.suspend_on_failure,
        initial_snapshot=config.initial_snapshot_name,
        allow_dropped_state=config.allow_dropped_state,
        max_state_bytes=config.max_state_bytes,
        observables=observables,
        latency_target=config.latency_target,
        auto_scaling=config.auto_scaling,
        split_brain_protection=config.split_brain_protection,
    )


def _import_paths() -> list[bytes]:
    """Return `sys.path` for processes elsewhere, as the system spells it: not every path is Unicode."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = None
    return list(_spelled(tuple(sys.path), folder))


@lru_cache(maxsize=4)
def _spelled(paths: tuple[str, ...], folder: str | None) -> tuple[bytes, ...]:
    """Return paths seen from a current folder; if that is gone (None), what is relative to it leads nowhere."""
    given = [os.fsdecode(path) for path in paths]
    joined = [path if os.path.isabs(path) else folder and os.path.join(folder, path) for path in given]
    return tuple(os.fsencode(os.path.normpath(path)) for path in joined if path)


def listeners_of(dag: DAG) -> tuple[BeginsRun, ...]:
    """Return the methods `on_client` of the suppliers that have one, each once."""
    suppliers = {id(vertex.supplier): vertex.supplier for vertex in dag.vertices}
    found = [getattr(supplier, "on_client", None) for supplier in suppliers.values()]
    return tuple(listener for listener in found if callable(listener))


def graph_of(dag: DAG, shape: JobShape) -> tuple[list[Vertex], list[Edge]]:
    """Return the vertices and edges as they are now, for pictures; changes of the DAG do not change them.

    Args:
        dag: what runs.
        shape: of that DAG as it is now; its vertices are in the order of the flow.
    """
    vertices = {vertex: _twin(vertex) for vertex in (dag.vertex(each.name) for each in shape.vertices)}
    edges = [_twin(edge) for edge in dag.edges]
    for edge in edges:
        edge.source, edge._destination = vertices[edge.source], vertices[edge.destination]
    return list(vertices.values()), edges


def _twin(thing: T) -> T:
    """Copy what has attributes and nothing else; `copy.copy` takes five times as long."""
    twin = object.__new__(type(thing))
    twin.__dict__.update(thing.__dict__)
    return twin


def attachments_of(config: JobConfig) -> dict[str, str]:
    """Return where a member is to have the files attached to a job, relative to the job's folder, by their ids."""
    return {key: f"{number}/{sendable(path.name)}" for number, (key, path) in enumerate(config.attached_files.items())}


def pieces_of(config: JobConfig) -> Iterator[tuple[str, int, bytes]]:
    """Yield the files attached to a job piece by piece: where it is to be, the offset, bytes."""
    copies = attachments_of(config)
    for key, path in config.attached_files.items():
        for offset, piece in _pieces(path):
            yield copies[key], offset, piece


def _pieces(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield a file piece by piece, each with its offset; the last one is shorter than the others, perhaps empty."""
    with path.open("rb") as stream:
        offset = 0
        while True:
            data = stream.read(FILE_PIECE)
            yield offset, data
            if len(data) < FILE_PIECE:
                return
            offset += len(data)


def _pickle_code(dag: DAG, shape: JobShape, config: JobConfig) -> bytes:
    """Pickle a DAG's code, that of the config's modules by value."""
    try:
        with modules_by_value(config.modules):
            return dumps(code_of(dag, shape))
    except MemoryError:
        raise
    except Exception as error:
        raise _explain(dag, error) from error


def _explain(dag: DAG, error: Exception) -> Exception:
    """Name the vertex or edge whose code cannot be pickled."""
    for vertex in dag.vertices:
        try:
            dumps(vertex.supplier)
        except Exception as cause:
            return TypeError(
                f"vertex {vertex.name!r} cannot be sent to the workers: {cause}; "
                "open files, locks and connections in the processor's init() instead of capturing them"
            )
    for edge in dag.edges:
        try:
            dumps((edge.key_fn, edge.partitioner, edge.order_key))
        except Exception as cause:
            return TypeError(f"edge {edge!r} cannot be sent to the workers: {cause}")
    return TypeError(f"the DAG cannot be sent to the workers: {error}")
