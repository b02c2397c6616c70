"""Pictures of a DAG: Graphviz' language, and an SVG laid out here, so that no other program is needed.

The layout is the classical layered one (Sugiyama): each vertex goes one layer below the lowest vertex that feeds it;
an edge over several layers passes through a bend in each; the order within a layer follows the neighbours' mean place
over a few sweeps; edges are smooth curves. Pure functions of names and edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from shmjet.core.edge import Edge
from shmjet.core.vertex import Vertex
from shmjet.host.terminal_text import clean, clean_line

_FONT = 13
_SMALL = 11
_CHARACTER = 7.4
"""Mean width of a character of the large font, in pixels."""
_SMALL_CHARACTER = 6.3
_BOX_HEIGHT = 46
_LAYER_GAP = 40
_LABEL_LINE = 15
_GAP = 28
_MARGIN = 20
_BEND_WIDTH = 24
_SWEEPS = 12
_TIMES = "\u00d7"
_COLOURS = {
    "unicast": "#546e7a",
    "isolated": "#546e7a",
    "partitioned": "#1565c0",
    "broadcast": "#c62828",
    "all_to_one": "#6a1b9a",
    "fanout": "#00838f",
}


def to_dot(vertices: Sequence[Vertex], edges: Sequence[Edge], default_parallelism: int | None = None) -> str:
    """Return the graph in Graphviz' language; `dag.to_dot()` calls it."""
    lines = [
        "digraph DAG {",
        '    node [shape=box, style=rounded, fontname="sans-serif"];',
        '    edge [fontname="sans-serif"];',
    ]
    for vertex in vertices:
        parallelism = _parallelism(vertex, default_parallelism)
        label = f"{vertex.name}\n{vertex.describe_supplier()}{parallelism}"
        lines.append(f"    {_quoted(vertex.name)} [label={_quoted(label)}];")
    for edge in edges:
        attributes = [f"color={_quoted(_COLOURS[edge.routing.value])}"]
        if label := "\n".join(_edge_label(edge)):
            attributes.append(f"label={_quoted(label)}")
        if edge.is_distributed:
            attributes.append("style=dashed")
        lines.append(f"    {_quoted(edge.source.name)} -> {_quoted(edge.destination.name)} [{', '.join(attributes)}];")
    return "\n".join([*lines, "}", ""])


def to_svg(
    vertices: Sequence[Vertex],
    edges: Sequence[Edge],
    default_parallelism: int | None = None,
    notes: Mapping[str, str] | None = None,
    edge_notes: Mapping[tuple[str, int], str] | None = None,
) -> str:
    """Return the graph as an SVG document; `dag.to_svg()` calls it.

    Args:
        vertices: in topological order.
        edges: between them.
        default_parallelism: what to write for vertices without a local parallelism; nothing by default.
        notes: the second line of vertices, by name, in place of what makes their processors.
        edge_notes: the first line of edges, by the source's name and ordinal.
    """
    layout = _Layout(vertices, edges, default_parallelism, notes or {}, edge_notes or {})
    width, height = layout.place()
    body = [layout.draw_edge(edge, bends) for edge, bends in layout.paths]
    body += [layout.draw_box(vertex) for vertex in vertices]
    markers = "".join(
        f'<marker id="arrow-{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0,0 L10,5 L0,10 z" fill="{colour}"/></marker>'
        for name, colour in _COLOURS.items()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="{_FONT}">\n'
        f"<defs>{markers}</defs>\n"
        f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


@dataclass
class _Node:
    """A vertex' box, or a bend of an edge, which may carry the edge's label to its right."""

    layer: int
    width: float
    height: float
    lines: list[str]
    above: list[_Node] = field(default_factory=list)
    below: list[_Node] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    is_bend: bool = False

    @property
    def bend_x(self) -> float:
        """Where an edge passes: left of its label."""
        return self.x - self.width / 2 + _BEND_WIDTH / 2


class _Layout:
    """Places boxes and bends; `paths` gives each edge with the nodes it passes.

    Boxes are on even layers; labels, and the bends of edges next to them, are on odd ones between.
    """

    def __init__(
        self,
        vertices: Sequence[Vertex],
        edges: Sequence[Edge],
        default_parallelism: int | None,
        notes: Mapping[str, str],
        edge_notes: Mapping[tuple[str, int], str],
    ) -> None:
        self._edge_notes = edge_notes
        self._nodes: dict[str, _Node] = {}
        self.paths: list[tuple[Edge, list[_Node]]] = []
        for vertex in vertices:
            plain = f"{vertex.describe_supplier()}{_parallelism(vertex, default_parallelism)}"
            lines = [vertex.name, notes.get(vertex.name, plain)]
            width = max(len(lines[0]) * _CHARACTER * 1.08, len(lines[1]) * _SMALL_CHARACTER) + 28
            self._nodes[vertex.name] = _Node(0, max(width, 80.0), _BOX_HEIGHT, lines)
        for vertex in vertices:  # in topological order: what feeds a vertex is placed before it
            for edge in edges:
                if edge.source is vertex:
                    target = self._nodes[edge.destination.name]
                    target.layer = max(target.layer, self._nodes[vertex.name].layer + 2)
        self._layers: list[list[_Node]] = [
            [] for _ in range(1 + max((n.layer for n in self._nodes.values()), default=0))
        ]
        for node in self._nodes.values():
            self._layers[node.layer].append(node)
        labelled = {self._nodes[edge.source.name].layer + 1 for edge in edges if self._label(edge)}
        for edge in edges:
            self._add_path(edge, labelled)

    def _add_path(self, edge: Edge, labelled: set[int]) -> None:
        source, target = self._nodes[edge.source.name], self._nodes[edge.destination.name]
        path = [source]
        for layer in range(source.layer + 1, target.layer):
            if layer % 2 == 1 and layer not in labelled:
                continue
            lines = self._label(edge) if layer == source.layer + 1 else []
            width = _BEND_WIDTH + max((len(line) * _SMALL_CHARACTER for line in lines), default=0.0)
            bend = _Node(layer, width, len(lines) * _LABEL_LINE, lines, is_bend=True)
            self._layers[layer].append(bend)
            path.append(bend)
        path.append(target)
        for upper, lower in pairwise(path):
            upper.below.append(lower)
            lower.above.append(upper)
        self.paths.append((edge, path))

    def _label(self, edge: Edge) -> list[str]:
        note = self._edge_notes.get((edge.source.name, edge.source_ordinal))
        return _edge_label(edge) if note is None else [note, *_edge_label(edge)]

    def place(self) -> tuple[float, float]:
        """Give every node its place; return width and height of the whole."""
        self._order()
        self._spread()
        nodes = [node for layer in self._layers for node in layer]
        leftmost = min((n.x - n.width / 2 for n in nodes), default=0.0)
        y = float(_MARGIN)
        for layer in self._layers:
            height = max((n.height for n in layer), default=0.0)
            for node in layer:
                node.x += _MARGIN - leftmost
                node.y = y
                node.height = height
            y += height + _LAYER_GAP
        right = max((n.x + n.width / 2 for n in nodes), default=0.0)
        return right + _MARGIN, y - _LAYER_GAP + _MARGIN

    def _order(self) -> None:
        """Sort each layer by the mean place of its neighbours, down and up in turn."""
        for sweep in range(_SWEEPS):
            down = sweep % 2 == 0
            for layer in self._layers if down else reversed(self._layers):
                places = {id(n): i for other in self._layers for i, n in enumerate(other)}

                def mean(node: _Node, places: dict[int, int] = places, down: bool = down) -> float:
                    near = node.above if down else node.below
                    return sum(places[id(n)] for n in near) / len(near) if near else places[id(node)]

                layer.sort(key=mean)

    def _spread(self) -> None:
        """Give x coordinates: packed first, then pulled towards the neighbours as far as the order allows."""
        for layer in self._layers:
            x = 0.0
            for node in layer:
                node.x = x + node.width / 2
                x += node.width + _GAP
            for node in layer:
                node.x -= x / 2
        for sweep in range(2 * _SWEEPS):
            for layer in self._layers if sweep % 2 == 0 else reversed(self._layers):
                wanted = [_mean_x(node, node.above if sweep % 2 == 0 else node.below) for node in layer]
                for node, x in zip(layer, _apart(layer, wanted), strict=True):
                    node.x = x

    def draw_box(self, vertex: Vertex) -> str:
        node = self._nodes[vertex.name]
        left = node.x - node.width / 2
        return (
            f'<g><rect x="{left:.1f}" y="{node.y:.1f}" width="{node.width:.1f}" height="{_BOX_HEIGHT}" rx="7" '
            f'fill="#f5f8fa" stroke="#37474f"/>'
            f'<text x="{node.x:.1f}" y="{node.y + 19:.1f}" text-anchor="middle" font-weight="bold">'
            f"{escape(clean_line(node.lines[0]))}</text>"
            f'<text x="{node.x:.1f}" y="{node.y + 36:.1f}" text-anchor="middle" font-size="{_SMALL}" '
            f'fill="#546e7a">{escape(clean_line(node.lines[1]))}</text></g>'
        )

    def draw_edge(self, edge: Edge, path: list[_Node]) -> str:
        points = [(self._port(path[0], path, out=True), path[0].y + _BOX_HEIGHT)]
        for bend in path[1:-1]:
            points += [(bend.bend_x, bend.y), (bend.bend_x, bend.y + bend.height)]
        points.append((self._port(path[-1], path, out=False), path[-1].y))
        curve = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for number, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
            if number % 2 == 1:
                curve += f" L{x1:.1f},{y1:.1f}"
            else:
                middle = (y0 + y1) / 2
                curve += f" C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
        colour = _COLOURS[edge.routing.value]
        dashes = ' stroke-dasharray="6 4"' if edge.is_distributed else ""
        drawn = (
            f'<path d="{curve}" fill="none" stroke="{colour}" stroke-width="1.5"{dashes} '
            f'marker-end="url(#arrow-{edge.routing.value})"/>'
        )
        for bend in path[1:-1]:
            y = bend.y + (bend.height - len(bend.lines) * _LABEL_LINE) / 2
            for line in bend.lines:
                y += _LABEL_LINE
                drawn += (
                    f'<text x="{bend.bend_x + 7:.1f}" y="{y - 4:.1f}" font-size="{_SMALL}" fill="{colour}">'
                    f"{escape(clean_line(line))}</text>"
                )
        return drawn

    def _port(self, node: _Node, path: list[_Node], *, out: bool) -> float:
        """Where on a box' side an edge starts or ends: side by side, in the order of the other ends."""
        if out:
            sharing = sorted((p for _, p in self.paths if p[0] is node), key=lambda p: _end_x(p[1]))
        else:
            sharing = sorted((p for _, p in self.paths if p[-1] is node), key=lambda p: _end_x(p[-2]))
        place = next(i for i, p in enumerate(sharing) if p is path)
        return node.x + (place - (len(sharing) - 1) / 2) * min(26.0, node.width * 0.7 / len(sharing))


def _end_x(node: _Node) -> float:
    return node.bend_x if node.is_bend else node.x


def _mean_x(node: _Node, near: list[_Node]) -> float:
    """Return where a node's middle should be so that its edges run straight."""
    if not near:
        return node.x
    return sum(map(_end_x, near)) / len(near) + node.x - _end_x(node)


def _apart(layer: list[_Node], wanted: list[float]) -> list[float]:
    """Return places near the wanted ones, in order and without overlap: the mean of packing from left and right."""
    left: list[float] = []
    for i, node in enumerate(layer):
        least = left[-1] + (layer[i - 1].width + node.width) / 2 + _GAP if i else wanted[0]
        left.append(max(wanted[i], least))
    right: list[float] = []
    for i in range(len(layer) - 1, -1, -1):
        most = right[-1] - (layer[i + 1].width + layer[i].width) / 2 - _GAP if right else wanted[i]
        right.append(min(wanted[i], most))
    right.reverse()
    return [(a + b) / 2 for a, b in zip(left, right, strict=True)]


def _parallelism(vertex: Vertex, default: int | None) -> str:
    if vertex.local_parallelism != -1:
        return f" {_TIMES} {vertex.local_parallelism}"
    return "" if default is None else f" {_TIMES} {vertex.effective_parallelism(default)}"


def _edge_label(edge: Edge) -> list[str]:
    lines = edge.traits()
    if edge.source_ordinal or edge.destination_ordinal:
        lines = [f"{edge.source_ordinal} → {edge.destination_ordinal}", *lines]
    return lines


def _quoted(text: str) -> str:
    return '"' + clean(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
