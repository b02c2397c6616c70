"""The user's code of a job: pickled in the client, carried next to the plan, unpickled in workers only.

What the plan says already (names, ordinals, parallelism, routing) is not in it, so that a small job stays small.
"""

from __future__ import annotations

import pickle
from typing import Any

from shmjet.core import DAG, supplier_for_all
from shmjet.execution.job_plan import JobShape


class EdgeCode:
    """The functions of one edge, as `Edge` has them; `text` is how messages call it.

    `tells_schemas` says that its destination wants to know the columns of batches of which it gets no row.
    """

    __slots__ = ("key_fn", "order_key", "partitioner", "tells_schemas", "text", "to_one_key")

    def __init__(
        self, text: str, key_fn: Any, partitioner: Any, to_one_key: Any, order_key: Any, tells_schemas: bool
    ) -> None:
        self.text = text
        self.key_fn = key_fn
        self.partitioner = partitioner
        self.to_one_key = to_one_key
        self.order_key = order_key
        self.tells_schemas = tells_schemas


class JobCode:
    """Everything that is called.

    Args:
        suppliers: of the vertices, in the order of the plan: what every member gets, or where `VertexShape.has_meta`
            the meta-supplier that has to be asked.
        edges: in the order of the plan.
    """

    __slots__ = ("edges", "suppliers")

    def __init__(self, suppliers: list[Any], edges: list[EdgeCode]) -> None:
        self.suppliers = suppliers
        self.edges = edges


def code_of(dag: DAG, shape: JobShape) -> tuple[Any, ...]:
    """Return the code of a DAG as plain tuples, to be pickled at once, so that what its parts share stays shared."""
    vertices = [dag.vertex(vertex.name) for vertex in shape.vertices]
    given = [(vertex.supplier, supplier_for_all(vertex.supplier)) for vertex in vertices]
    suppliers = [meta if supplier is None else supplier for meta, supplier in given]
    edges = [
        (
            repr(edge),
            edge.key_fn,
            edge.partitioner,
            edge.to_one_key,
            edge.order_key,
            getattr(edge.destination.supplier, "takes_schemas", None) is True,
        )
        for vertex in vertices
        for edge in dag.outbound_edges(vertex)
    ]
    return suppliers, edges


def load_code(data: bytes | memoryview) -> JobCode:
    """Unpickle what `code_of` gave; whatever user code raises comes through.

    Raises:
        ModuleNotFoundError: the code refers to a module that cannot be imported here; the text says what to do.
    """
    try:
        suppliers, edges = pickle.loads(data)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error.msg}: the job's code refers to it, and the workers cannot import it; install it on every host or "
            "extend sys.path, or send it with the job by JobConfig().add_module(module)",
            name=error.name,
            path=error.path,
        ) from error
    return JobCode(suppliers, [EdgeCode(*edge) for edge in edges])
