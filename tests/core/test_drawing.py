"""Drawings are well-formed, complete, and nothing in them overlaps."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import DAG, Processor, between, from_
from tests.examples import examples

SVG = "{http://www.w3.org/2000/svg}"


def fork_join():
    dag = DAG()
    source, left, right, join = (dag.new_vertex(n, Processor) for n in ("source", "left", "right", 'join <&> "x"'))
    dag.edge(between(source, left)).edge(from_(source, 1).to(right)).edge(from_(source, 2).to(join, 2).broadcast())
    return dag.edge(between(left, join).partitioned(lambda i: i)).edge(
        from_(right).to(join, 1).distributed().priority(1)
    )


def boxes_of(svg):
    root = ElementTree.fromstring(svg)
    rects = [group.find(f"{SVG}rect") for group in root.iter(f"{SVG}g")]
    return root, [tuple(float(r.get(k)) for k in ("x", "y", "width", "height")) for r in rects]


def test_svg_shows_every_vertex_edge_and_trait():
    root, boxes = boxes_of(fork_join().to_svg(default_parallelism=4))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert len(boxes) == 4
    assert {
        "source",
        'join <&> "x"',
        "Processor \u00d7 4",
        "broadcast()",
        "partitioned(<lambda>)",
        "distributed()",
    } <= set(texts)
    assert len([path for path in root.iter(f"{SVG}path") if path.get("marker-end")]) == 5


def test_an_empty_dag_can_be_drawn():
    ElementTree.fromstring(DAG().to_svg())
    assert DAG().to_dot().startswith("digraph DAG {")


def test_dot_quotes_names_and_writes_traits():
    dot = fork_join().to_dot(default_parallelism=2)
    assert '"join <&> \\"x\\"" [label="join <&> \\"x\\"\\nProcessor \u00d7 2"];' in dot
    assert '"right" -> "join <&> \\"x\\"" [color="#546e7a", label="0 \u2192 1\\n' in dot
    assert 'distributed()\\npriority(1)", style=dashed];' in dot


@examples(50)
@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16))
def test_boxes_lie_apart_inside_the_picture_and_edges_point_down(pairs):
    dag = DAG()
    vertices = [dag.new_vertex("v" * (1 + 5 * i), Processor) for i in range(8)]
    outbound, inbound = [0] * 8, [0] * 8
    for low, high in sorted({(min(p), max(p)) for p in pairs if p[0] != p[1]}):
        dag.edge(from_(vertices[low], outbound[low]).to(vertices[high], inbound[high]))
        outbound[low] += 1
        inbound[high] += 1
    root, boxes = boxes_of(dag.to_svg())
    for i, (x, y, width, height) in enumerate(boxes):
        assert x >= 0
        assert x + width <= float(root.get("width")) + 1
        assert y + height <= float(root.get("height")) + 1
        for x2, y2, width2, height2 in boxes[:i]:
            assert x + width <= x2 or x2 + width2 <= x or y + height <= y2 or y2 + height2 <= y
    top = {vertex: boxes[i][1] for i, vertex in enumerate(dag)}
    assert all(top[edge.source] < top[edge.destination] for edge in dag.edges)
