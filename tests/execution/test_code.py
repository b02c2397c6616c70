"""The code of a job, as it travels."""

from __future__ import annotations

import cloudpickle
import pytest

from shmjet.core import DAG, Processor, ProcessorMetaSupplier, ProcessorSupplier, between, from_
from shmjet.execution.code import code_of, load_code
from shmjet.execution.plan import describe


class Same(ProcessorSupplier):
    """Refers to something that others refer to as well."""

    def __init__(self, shared: list[int]) -> None:
        self.shared = shared


def test_suppliers_and_functions_come_in_the_order_of_the_plan() -> None:
    dag = DAG()
    last = dag.new_vertex("last", Processor)
    first = dag.new_vertex("first", Processor)
    dag.edge(from_(first, 1).to(last, 1).ordered(lambda item: -item))
    dag.edge(from_(first, 0).to(last, 0).partitioned(lambda item: item % 3))
    shape = describe(dag)
    assert [vertex.name for vertex in shape.vertices] == ["first", "last"]
    code = load_code(cloudpickle.dumps(code_of(dag, shape)))
    assert code.suppliers == [Processor, Processor]
    assert [(edge.key_fn is None, edge.order_key is None) for edge in code.edges] == [(False, True), (True, False)]
    assert (code.edges[0].key_fn(5), code.edges[1].order_key(5)) == (2, -5)
    assert code.edges[0].text == "between('first', 'last').partitioned(<lambda>)"


def test_only_a_meta_supplier_that_decides_travels_itself() -> None:
    dag = DAG()
    dag.new_vertex("same", ProcessorMetaSupplier.of(Same([])))
    dag.new_vertex("one", ProcessorMetaSupplier.force_total_parallelism_one(Same([])))
    suppliers = load_code(cloudpickle.dumps(code_of(dag, describe(dag)))).suppliers
    assert isinstance(suppliers[0], Same)
    assert isinstance(suppliers[1], ProcessorMetaSupplier)


def test_what_parts_share_stays_shared() -> None:
    shared = [1]
    dag = DAG()
    up, down = dag.new_vertex("up", Same(shared)), dag.new_vertex("down", Same(shared))
    dag.edge(between(up, down).all_to_one("key"))
    code = load_code(cloudpickle.dumps(code_of(dag, describe(dag))))
    assert code.suppliers[0].shared is code.suppliers[1].shared
    assert code.edges[0].to_one_key == "key"


def test_what_unpickling_raises_comes_through() -> None:
    class Broken:
        def __reduce__(self) -> tuple[object, ...]:
            return int, ("no number",)

    data = cloudpickle.dumps(([Broken()], []))
    with pytest.raises(ValueError, match="no number"):
        load_code(data)
