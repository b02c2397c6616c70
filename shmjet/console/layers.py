"""The layout of a DAG's picture: layers, and places within them. Pure; the page turns it into pixels.

The classical layered drawing (Sugiyama): a vertex lies one layer after the last of its inputs; an edge over
several layers passes through a bend in each; the order within a layer follows the neighbours' mean place over a few
sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

_SWEEPS = 8
_BEND = 0.4
"""How much room a bend needs; a vertex needs 1."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A place in the picture: the layer's number, and where across it, in widths of a vertex from 0 on."""

    layer: int
    across: float


class Arrangement(msgspec.Struct, frozen=True):
    """The place of each vertex, the bends of each edge, and how large the whole is."""

    vertices: list[Place]
    bends: list[list[Place]]
    layers: int
    breadth: float


@dataclass(eq=False)
class _Node:
    layer: int
    room: float
    near: list[_Node] = field(default_factory=list)
    across: float = 0.0


def arrange(count: int, edges: Sequence[tuple[int, int]]) -> Arrangement:
    """Lay a DAG out.

    Args:
        count: of vertices, which are numbered in topological order.
        edges: as (source, destination).
    """
    nodes = [_Node(0, 1.0) for _ in range(count)]
    for vertex in range(count):
        for source, destination in edges:
            if source == vertex:
                nodes[destination].layer = max(nodes[destination].layer, nodes[vertex].layer + 1)
    layers: list[list[_Node]] = [[] for _ in range(1 + max((n.layer for n in nodes), default=0))]
    for node in nodes:
        layers[node.layer].append(node)
    bends = []
    for source, destination in edges:
        between = [_Node(layer, _BEND) for layer in range(nodes[source].layer + 1, nodes[destination].layer)]
        for node in between:
            layers[node.layer].append(node)
        for left, right in pairwise([nodes[source], *between, nodes[destination]]):
            left.near.append(right)
            right.near.append(left)
        bends.append(between)
    _order(layers)
    _spread(layers)
    every = [node for layer in layers for node in layer]
    start = min((node.across - node.room / 2 for node in every), default=0.0)
    end = max((node.across + node.room / 2 for node in every), default=0.0)
    return Arrangement(
        [_place(node, start) for node in nodes],
        [[_place(node, start) for node in path] for path in bends],
        len(layers),
        end - start,
    )


def _place(node: _Node, start: float) -> Place:
    return Place(node.layer, round(node.across - start, 3))


def _neighbours(node: _Node, step: int) -> list[_Node]:
    return [other for other in node.near if (other.layer - node.layer) * step < 0]


def _order(layers: list[list[_Node]]) -> None:
    """Sort each layer by the mean place of its neighbours, forwards and backwards in turn."""
    place = {id(node): float(i) for layer in layers for i, node in enumerate(layer)}
    for sweep in range(_SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for layer in layers[::step]:
            wanted = {
                id(node): _mean([place[id(n)] for n in _neighbours(node, step)], place[id(node)]) for node in layer
            }
            layer.sort(key=lambda node, wanted=wanted: wanted[id(node)])  # type: ignore[misc]
            place.update((id(node), float(i)) for i, node in enumerate(layer))


def _spread(layers: list[list[_Node]]) -> None:
    """Give places: side by side first, then pulled towards the neighbours as far as the order allows."""
    for layer in layers:
        at = -sum(node.room for node in layer) / 2
        for node in layer:
            node.across = at + node.room / 2
            at += node.room
    for sweep in range(2 * _SWEEPS):
        step = 1 if sweep % 2 == 0 else -1
        for layer in layers[::step]:
            wanted = [_mean([n.across for n in _neighbours(node, step)], node.across) for node in layer]
            for node, across in zip(layer, _apart(layer, wanted), strict=True):
                node.across = across


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _apart(layer: Sequence[_Node], wanted: Sequence[float]) -> list[float]:
    """Return places near the wanted ones, in order and without overlap: the mean of packing from both sides."""
    forwards: list[float] = []
    for i, node in enumerate(layer):
        least = forwards[-1] + (layer[i - 1].room + node.room) / 2 if i else wanted[i]
        forwards.append(max(wanted[i], least))
    backwards: list[float] = []
    for i in range(len(layer) - 1, -1, -1):
        most = backwards[-1] - (layer[i + 1].room + layer[i].room) / 2 if backwards else wanted[i]
        backwards.append(min(wanted[i], most))
    return [(a + b) / 2 for a, b in zip(forwards, reversed(backwards), strict=True)]
