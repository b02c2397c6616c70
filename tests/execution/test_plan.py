"""Planning and layout are pure: numbers in, numbers out."""

from __future__ import annotations

import pytest

from shmjet.core import DAG, DagError, Processor, ProcessorMetaSupplier, ProcessorSupplier, between, from_
from shmjet.execution.job_plan import JobPlan
from shmjet.execution.layout import lay_out
from shmjet.execution.plan import cooperative_of, describe, effective_parallelism, make_plan
from shmjet.execution.plan_lanes import lane_pairs


def dag_of(up: int, down: int, route: str = "unicast") -> DAG:
    dag = DAG()
    edge = between(dag.new_vertex("up", Processor, up), dag.new_vertex("down", Processor, down))
    getattr(edge, route)()
    return dag.edge(edge)


def plan_of(dag: DAG, workers: int, memory: int = 64 << 20, **more: object) -> JobPlan:
    arguments = {"non_cooperative": set(), "ring_memory": memory, "partition_count": 271, **more}
    return make_plan(describe(dag), worker_count=workers, **arguments)


@pytest.mark.parametrize(
    ("own", "preferred", "default", "expected"), [(3, 1, 8, 3), (-1, 1, 8, 1), (-1, 16, 8, 8), (-1, -1, 8, 8)]
)
def test_effective_parallelism_is_jets_rule(own: int, preferred: int, default: int, expected: int) -> None:
    dag = DAG()
    dag.new_vertex("v", ProcessorMetaSupplier.of(Processor, preferred), own)
    assert effective_parallelism(describe(dag).vertices[0], default) == expected


def test_processor_i_starts_on_worker_i_mod_w() -> None:
    plan = plan_of(dag_of(5, 3), 3)
    assert [vertex.endpoints for vertex in plan.vertices] == [[0, 1, 2, 0, 1], [0, 1, 2]]
    shifted = plan_of(dag_of(2, 1), 3, offset=2)
    assert [vertex.endpoints for vertex in shifted.vertices] == [[2, 0], [2]]


def test_every_non_cooperative_processor_has_a_carrier_of_its_own() -> None:
    plan = plan_of(dag_of(2, 3), 4, non_cooperative={0, 1})
    assert [vertex.endpoints for vertex in plan.vertices] == [[4, 5], [6, 7, 8]]
    assert plan.carrier_count == 5


def test_only_lanes_that_cross_workers_have_rings() -> None:
    layout = lay_out(plan_of(dag_of(3, 3), 3))
    assert sorted((p, c) for _, p, c in layout.rings) == [(p, c) for p in range(3) for c in range(3) if p != c]
    assert len(lay_out(plan_of(dag_of(3, 3), 3, force_rings=True)).rings) == 9
    assert lay_out(plan_of(dag_of(3, 3, "isolated"), 3)).rings == {}


@pytest.mark.parametrize(("up", "down"), [(1, 1), (2, 5), (5, 2), (3, 3), (4, 6)])
def test_isolated_pairs_give_everyone_a_partner(up: int, down: int) -> None:
    plan = plan_of(dag_of(up, down, "isolated"), 2)
    pairs = lane_pairs(plan, plan.edges[0])
    assert {p for p, _ in pairs} == set(range(up))
    assert {c for _, c in pairs} == set(range(down))
    assert len(pairs) == max(up, down)


def test_a_suppliers_manners_are_read_without_making_a_processor() -> None:
    class Blocking(Processor):
        is_cooperative = False

    class Depends(Processor):
        @property
        def is_cooperative(self) -> bool:
            return False

    assert cooperative_of(Processor) is True
    assert cooperative_of(Blocking) is False
    assert cooperative_of(Depends) is None
    assert cooperative_of(lambda: Blocking()) is None


def test_only_meta_suppliers_that_decide_something_are_asked() -> None:
    class Deciding(ProcessorMetaSupplier):
        """Gives what it likes."""

    dag = DAG()
    dag.new_vertex("plain", Processor)
    dag.new_vertex("same", ProcessorMetaSupplier.of(Processor))
    dag.new_vertex("one", ProcessorMetaSupplier.prefer_local_parallelism_one(ProcessorSupplier.of(Processor)))
    dag.new_vertex("single", ProcessorMetaSupplier.force_total_parallelism_one(Processor))
    dag.new_vertex("deciding", Deciding())
    assert [v.has_meta for v in describe(dag).vertices] == [False, False, False, True, True]


def test_an_invalid_dag_has_no_shape() -> None:
    dag = DAG()
    a, b = dag.new_vertex("a", Processor), dag.new_vertex("b", Processor)
    dag.edge(from_(a, 1).to(b))
    with pytest.raises(DagError, match="outbound ordinal 0 is missing"):
        describe(dag)
