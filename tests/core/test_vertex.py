"""Vertices: suppliers of every kind, and parallelism."""

import pytest

from shmjet import processors
from shmjet.core import DagError, Processor, ProcessorMetaSupplier, ProcessorSupplier, Vertex


class Supplier(ProcessorSupplier):
    def get(self, count):
        return [Processor() for _ in range(count)]


def needs_an_argument(function):
    return Processor


@pytest.mark.parametrize(
    "supplier",
    [Processor, lambda: Processor(), Supplier(), ProcessorMetaSupplier.of(Processor), lambda limit=3: Processor()],
)
def test_every_kind_of_supplier_becomes_a_meta_supplier(supplier):
    meta = Vertex("v", supplier).meta_supplier
    processors = meta.get(["here"])["here"].get(2)
    assert [type(p) for p in processors] == [Processor, Processor]


@pytest.mark.parametrize(
    ("supplier", "text"),
    [
        (Processor(), "got a Processor object; pass its class or a function that makes one"),
        (Supplier, r"got the class Supplier; pass an object of it: Supplier\(\.\.\.\)"),
        (ProcessorMetaSupplier, "got the class ProcessorMetaSupplier"),
        (3, "expected a Processor class, .* got 3"),
        (needs_an_argument, r"needs_an_argument\(function\) cannot be called without arguments \(missing"),
    ],
)
def test_a_wrong_supplier_is_refused_with_advice(supplier, text):
    with pytest.raises(DagError, match=f"vertex 'v': {text}"):
        Vertex("v", supplier)


@pytest.mark.parametrize("name", ["", None, 7, "caf\udce9"])
def test_a_name_is_a_non_empty_text(name):
    with pytest.raises(DagError, match=r"non-empty text|UTF-8 has not"):
        Vertex(name, Processor)


@pytest.mark.parametrize("parallelism", [0, -2])
def test_a_local_parallelism_of_zero_or_below_minus_one_is_refused(parallelism):
    with pytest.raises(DagError, match=f"'v': local_parallelism must be -1 .* or at least 1, got {parallelism}"):
        Vertex("v", Processor, parallelism)
    vertex = Vertex("v", Processor)
    with pytest.raises(DagError, match="local_parallelism"):
        vertex.local_parallelism = parallelism


@pytest.mark.parametrize("parallelism", [1.0, "2", True, None])
def test_a_local_parallelism_is_an_integer(parallelism):
    with pytest.raises(DagError, match="'v': local_parallelism must be an integer"):
        Vertex("v", Processor, parallelism)


def test_effective_parallelism_is_the_users_then_the_preferred_then_the_default():
    preferring_one = ProcessorMetaSupplier.prefer_local_parallelism_one(Processor)
    assert Vertex("v", Processor).effective_parallelism(4) == 4
    assert Vertex("v", preferring_one).effective_parallelism(4) == 1
    assert Vertex("v", preferring_one, 3).effective_parallelism(4) == 3
    assert Vertex("v", ProcessorMetaSupplier.of(Processor, 9)).effective_parallelism(4) == 4


def test_a_supplier_can_be_wrapped():
    vertex = Vertex("v", Processor)
    assert vertex.update_supplier(lambda inner: ProcessorSupplier.of(inner)) is vertex
    assert isinstance(vertex.supplier, ProcessorSupplier)
    with pytest.raises(DagError, match="expected a Processor class"):
        vertex.update_supplier(lambda inner: None)


def test_text_form_names_what_makes_the_processors():
    assert repr(Vertex("v", Supplier(), 2)) == "Vertex('v', Supplier, local_parallelism=2)"


def test_a_vertex_is_described_by_what_runs_in_it() -> None:
    for supplier in (
        processors.map(str),
        ProcessorMetaSupplier.prefer_local_parallelism_one(processors.map(str)),
        ProcessorMetaSupplier.force_total_parallelism_one(processors.map(str)),
    ):
        assert Vertex("v", supplier).describe_supplier() == "MapProcessor"
    assert Vertex("v", lambda: Processor()).describe_supplier() == "<lambda>"
