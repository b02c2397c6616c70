"""The DAG: vertices by name and the edges between them, with the checks of Jet's `DAG.java`.

What can be wrong with one edge is refused by `edge()`, at the user's own line; what only the whole can show (gaps in
ordinals, cycles) by `validate()`. A description only; it pickles with its functions through cloudpickle.
"""

from __future__ import annotations

from collections.abc import Iterator

from shmjet.core.edge import Edge, Routing
from shmjet.core.graph_order import cycle_in, topological_order
from shmjet.core.vertex import Vertex, VertexSupplier
from shmjet.data.errors import DagError


class DAG:
    """A directed acyclic graph of vertices.

    Example:
        >>> from shmjet.core import Processor, between
        >>> dag = DAG()
        >>> source, sink = dag.new_vertex("source", Processor), dag.new_vertex("sink", Processor)
        >>> [vertex.name for vertex in dag.edge(between(source, sink))]
        ['source', 'sink']
    """

    def __init__(self) -> None:
        self._vertices: dict[str, Vertex] = {}
        self._edges: list[Edge] = []
        self._outbound: dict[str, dict[int, Edge]] = {}
        self._inbound: dict[str, dict[int, Edge]] = {}

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """All vertices in the order in which they were made."""
        return tuple(self._vertices.values())

    @property
    def edges(self) -> tuple[Edge, ...]:
        """All edges in the order in which they were added."""
        return tuple(self._edges)

    def new_vertex(self, name: str, supplier: VertexSupplier, local_parallelism: int = -1) -> Vertex:
        """Make a vertex.

        Args:
            name: unique in the DAG.
            supplier: a `Processor` class, a function without arguments that makes one, a `ProcessorSupplier` or a
                `ProcessorMetaSupplier`; see `shmjet.processors` for ready-made ones.
            local_parallelism: processors on each member; -1: what the supplier prefers, else one per worker.

        Raises:
            DagError: the name is taken, or an argument is wrong.
        """
        return self.add_vertex(Vertex(name, supplier, local_parallelism))

    def new_unique_vertex(self, prefix: str, supplier: VertexSupplier, local_parallelism: int = -1) -> Vertex:
        """Make a vertex called `prefix`, or `prefix-2`, `prefix-3`, ... when that is taken.

        Args:
            prefix: what the name begins with.
            supplier, local_parallelism: as for `new_vertex`.

        Raises:
            DagError: an argument is wrong.
        """
        name, number = prefix, 1
        while name in self._vertices:
            number += 1
            name = f"{prefix}-{number}"
        return self.new_vertex(name, supplier, local_parallelism)

    def add_vertex(self, vertex: Vertex) -> Vertex:
        """Add a vertex made elsewhere and return it.

        Raises:
            DagError: the name is taken by another vertex.
        """
        if self._vertices.setdefault(vertex.name, vertex) is not vertex:
            raise DagError(
                f"vertex {vertex.name!r} is in this DAG already; choose another name or use new_unique_vertex()"
            )
        return vertex

    def vertex(self, name: str) -> Vertex:
        """Return the vertex of that name.

        Raises:
            DagError: there is none; the text lists the names.
        """
        try:
            return self._vertices[name]
        except KeyError:
            known = ", ".join(map(repr, self._vertices)) or "none"
            raise DagError(f"no vertex {name!r} in this DAG; vertices: {known}") from None

    def edge(self, edge: Edge) -> DAG:
        """Add an edge and return the DAG, so that calls can be chained.

        Raises:
            DagError: the edge has no destination, ends at its own source, joins a vertex that is not in this DAG, or
                an ordinal of it is taken.
        """
        if not isinstance(edge, Edge):
            raise DagError(f"edge() takes an Edge, made by between() or from_(), got {edge!r}")
        source, destination = edge.source, edge.destination
        self._check_member("source", source, edge)
        self._check_member("destination", destination, edge)
        if source is destination:
            raise DagError(f"{edge!r}: vertex {source.name!r} cannot feed itself; a DAG has no cycles")
        starting = self._outbound.setdefault(source.name, {})
        ending = self._inbound.setdefault(destination.name, {})
        if starting.get(edge.source_ordinal) is edge:
            raise DagError(f"{edge!r} has been added already")
        if edge.source_ordinal in starting:
            raise self._taken("outbound", source, edge, starting[edge.source_ordinal])
        if edge.destination_ordinal in ending:
            raise self._taken("inbound", destination, edge, ending[edge.destination_ordinal])
        starting[edge.source_ordinal] = ending[edge.destination_ordinal] = edge
        self._edges.append(edge)
        return self

    def inbound_edges(self, vertex: Vertex | str) -> list[Edge]:
        """Return the edges that end at a vertex, by ordinal."""
        edges = self._inbound.get(vertex if isinstance(vertex, str) else vertex.name, {})
        return [edges[ordinal] for ordinal in sorted(edges)]

    def outbound_edges(self, vertex: Vertex | str) -> list[Edge]:
        """Return the edges that start at a vertex, by ordinal."""
        edges = self._outbound.get(vertex if isinstance(vertex, str) else vertex.name, {})
        return [edges[ordinal] for ordinal in sorted(edges)]

    def validate(self) -> None:
        """Check the whole.

        Raises:
            DagError: ordinals of a vertex have a gap, a distributed edge is isolated, an edge that is not partitioned
                is distributed to one member, or there is a cycle (the text shows its path).
        """
        self._checked_order()

    def _checked_order(self) -> list[str]:
        """Validate; return the names of the vertices so that each comes after all that feed it."""
        for name, vertex in self._vertices.items():
            self._check_ordinals("outbound", vertex, self._outbound.get(name))
            self._check_ordinals("inbound", vertex, self._inbound.get(name))
        for edge in self._edges:
            if edge.is_distributed and edge.routing is Routing.ISOLATED:
                raise DagError(f"{edge!r}: a distributed edge cannot be isolated; drop distributed() or isolated()")
            if edge.target_address is not None and edge.routing not in (Routing.PARTITIONED, Routing.ALL_TO_ONE):
                raise DagError(f"{edge!r}: distribute_to() needs a partitioned() or all_to_one() edge")
        names, successors = list(self._vertices), self._successors()
        order = topological_order(names, successors)
        if len(order) < len(names):
            cycle = cycle_in(names, successors)
            raise DagError(f"the DAG has a cycle: {' -> '.join(cycle)}; take one of these edges out")
        return order

    def __iter__(self) -> Iterator[Vertex]:
        """Validate, then iterate over the vertices so that each comes after all that feed it."""
        return iter([self._vertices[name] for name in self._checked_order()])

    def __len__(self) -> int:
        return len(self._vertices)

    def __contains__(self, vertex: object) -> bool:
        if isinstance(vertex, Vertex):
            return self._vertices.get(vertex.name) is vertex
        return isinstance(vertex, str) and vertex in self._vertices

    def to_dot(self, default_parallelism: int | None = None) -> str:
        """Return the DAG in Graphviz' language.

        Args:
            default_parallelism: what to write for vertices without a local parallelism; nothing by default.

        Raises:
            DagError: as `validate`.
        """
        self.validate()
        from shmjet.core.graph_drawing import to_dot

        return to_dot(list(self), self._edges, default_parallelism)

    def to_svg(self, default_parallelism: int | None = None) -> str:
        """Return the DAG as a picture: a complete SVG document, drawn without any other program.

        Args:
            default_parallelism: as for `to_dot`.

        Raises:
            DagError: as `validate`.
        """
        self.validate()
        from shmjet.core.graph_drawing import to_svg

        return to_svg(list(self), self._edges, default_parallelism)

    def to_mermaid(self, default_parallelism: int | None = None) -> str:
        """Return the DAG as a flow chart in Mermaid's language.

        Args:
            default_parallelism: as for `to_dot`.

        Raises:
            DagError: as `validate`.

        Example:
            >>> from shmjet.core import Processor, between
            >>> dag = DAG()
            >>> a, b = dag.new_vertex("a", Processor), dag.new_vertex("b", Processor, 1)
            >>> print(dag.edge(between(a, b).all_to_one()).to_mermaid())
            flowchart TB
                v0["a"]
                v1["b (1)"]
                v0 -->|"all_to_one()"| v1
        """
        self.validate()
        from shmjet.core.mermaid import to_mermaid

        return to_mermaid(list(self), self._edges, default_parallelism)

    def _repr_svg_(self) -> str | None:
        try:
            return self.to_svg() if self._vertices else None
        except DagError:  # half built: its text is the better picture
            return None

    def __repr__(self) -> str:
        lines = [f"    {vertex!r}" for vertex in self._vertices.values()]
        lines += [f"    {edge!r}" for edge in self._edges]
        return "\n".join(["DAG", *lines])

    def _successors(self) -> dict[str, list[str]]:
        successors: dict[str, list[str]] = {name: [] for name in self._vertices}
        for edge in self._edges:
            successors[edge.source.name].append(edge.destination.name)
        return successors

    def _check_member(self, role: str, vertex: Vertex, edge: Edge) -> None:
        known = self._vertices.get(vertex.name)
        if known is None:
            raise DagError(f"{edge!r}: its {role} {vertex.name!r} is not in this DAG; make it with dag.new_vertex()")
        if known is not vertex:
            raise DagError(
                f"{edge!r}: its {role} is not the vertex {vertex.name!r} of this DAG but another one of that name"
            )

    @staticmethod
    def _taken(direction: str, vertex: Vertex, edge: Edge, other: Edge) -> DagError:
        ordinal = edge.source_ordinal if direction == "outbound" else edge.destination_ordinal
        advice = ""
        if edge.source_ordinal == 0 and edge.destination_ordinal == 0:
            advice = "; use from_(vertex, ordinal).to(vertex, ordinal) to name other ordinals"
        return DagError(f"vertex {vertex.name!r}: {direction} ordinal {ordinal} is taken by {other!r}{advice}")

    @staticmethod
    def _check_ordinals(direction: str, vertex: Vertex, edges: dict[int, Edge] | None) -> None:
        if edges and max(edges) != len(edges) - 1:
            missing = next(ordinal for ordinal in range(len(edges)) if ordinal not in edges)
            raise DagError(
                f"vertex {vertex.name!r}: {direction} ordinal {missing} is missing, there are {sorted(edges)}; "
                "ordinals count from 0 without gaps"
            )
