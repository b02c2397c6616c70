"""Pipelines on several members: the same results as on one, whatever lies between."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given

import shmjet
from shmjet import (
    DAG,
    Batch,
    ClientConfig,
    JetConfig,
    JetInstance,
    JobFailedError,
    Pipeline,
    Processor,
    ProcessorMetaSupplier,
    ProcessorSupplier,
    aggregate_ops,
    between,
    new_client,
    processors,
    sinks,
    sources,
)
from shmjet.columns import count, sum_
from shmjet.core import partition_id
from shmjet.processors.general import collect
from shmjet.processors.general.user_functions import SourceBuffer
from tests.examples import examples
from tests.pipeline.reference import interpret
from tests.pipeline.running import ordered_sinks, pipelines

SECRET = "a secret of these tests"
_numbers = itertools.count()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def members() -> Iterator[list[JetInstance]]:
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET)) as first:
        config = JetConfig(
            cores=1, bind="127.0.0.1:0", secret=SECRET, members=[member.address for member in first.cluster.members]
        )
        with shmjet.new_instance(config) as second, shmjet.new_instance(config) as third:
            yield [first, second, third]


@pytest.fixture
def client(members: list[JetInstance]) -> Iterator[JetInstance]:
    address = members[0].cluster.members[1].address
    with new_client([address], ClientConfig(secret=SECRET)) as jet:
        yield jet


@pytest.fixture
def out() -> str:
    return f"out-{next(_numbers)}"


def test_what_is_one_for_the_whole_stream_is_one_for_all_members(client: JetInstance, out: str) -> None:
    def stage(pipeline: Pipeline, items: Sequence[int] = range(100)) -> Any:
        return pipeline.read_from(sources.items(items)).rebalance()

    summing, counting = aggregate_ops.summing(lambda n: n), aggregate_ops.counting()
    columns = {"n": count(), "total": sum_("v")}
    made: dict[str, tuple[Any, list[Any]]] = {
        "sum": (lambda p: stage(p).aggregate(summing), [4950]),
        "count of nothing": (lambda p: stage(p, []).aggregate(counting), [0]),
        "list": (lambda p: stage(p).aggregate(aggregate_ops.to_list()).map(len), [100]),
        "two": (lambda p: stage(p).aggregate2(counting, stage(p), summing).map(tuple), [(100, 4950)]),
        "columns": (
            lambda p: stage(p).map(lambda n: {"v": n}).group_by().agg(**columns).map(lambda r: (r["n"], r["total"])),
            [(100, 4950)],
        ),
        "state": (lambda p: stage(p, [5]).map_stateful(list, lambda state, n: n), [5]),
    }
    for name, (build, wanted) in made.items():
        pipeline = Pipeline()
        build(pipeline).write_to(sinks.list(f"{out}-{name}"))
        client.new_job(pipeline).run(60)
        assert list(client.get_list(f"{out}-{name}")) == wanted, name


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("aimed", [False, True])
def test_a_dag_has_one_result_for_the_whole_stream(
    client: JetInstance, out: str, parallelism: int, aimed: bool
) -> None:
    counting = aggregate_ops.counting()
    for number in range(30, -1, -30):  # of nothing, too
        dag, name = DAG(), f"{out}-{number}"
        source = dag.new_vertex("items", processors.read_items(range(number)))
        first = dag.new_vertex("accumulate", processors.accumulate(counting))
        second = dag.new_vertex("combine", processors.combine(counting), parallelism)
        edge = between(first, second).all_to_one("a key")
        edge = edge.distribute_to(client.cluster.members[2].address) if aimed else edge.distributed()
        dag.edge(between(source, first)).edge(edge)
        dag.edge(between(second, dag.new_vertex("sink", processors.write_list(name))))
        client.new_job(dag).run(60)
        assert list(client.get_list(name)) == [number]


def shares(index: int, total: int) -> Iterator[Batch]:
    """Give batches with 300,000 rows, of which the first 10,000 keys come twice."""
    for start in range(index * 10_000, 300_000, total * 10_000):
        keys = np.arange(start, start + 10_000)
        yield Batch({"k": keys % 290_000, "v": keys})


def test_rows_that_hardly_repeat_a_key_meet_on_their_member(client: JetInstance, out: str) -> None:
    dag, grouping = DAG(), processors.group_by("k").agg(n=count(), total=sum_("v"))
    source = dag.new_vertex("rows", processors.generate(shares))
    first, second = dag.new_vertex("accumulate", grouping.accumulate), dag.new_vertex("combine", grouping.combine)
    dag.edge(between(source, first).isolated()).edge(between(first, second).partitioned(grouping.key).distributed())
    dag.edge(between(second, dag.new_vertex("sink", processors.write_list(out))))
    client.new_job(dag).run(60)
    found = Batch.concat(list(client.get_list(out)))
    assert Counter(found["n"].tolist()) == {1: 280_000, 2: 10_000}
    assert len(set(found["k"].tolist())) == 290_000
    assert int(found["total"].sum()) == sum(range(300_000))


@examples(25, suppress_health_check=list(HealthCheck))
@given(made=pipelines())
def test_random_pipelines_do_what_the_interpreter_does(
    client: JetInstance, made: tuple[Pipeline, dict[str, list[int]]]
) -> None:
    pipeline, given = made
    expected = interpret(pipeline, given)
    assume(sum(map(len, expected.values())) < 5000)
    for name in expected:
        client.get_list(name).clear()
    client.new_job(pipeline).run(60)
    for name, items in expected.items():
        found = list(client.get_list(name))
        assert (found == items) if name in ordered_sinks(pipeline) else (Counter(found) == Counter(items)), name


@pytest.mark.parametrize("check", [sinks.assert_any_order, sinks.assert_ordered])
def test_a_sink_that_checks_gets_the_items_of_all_members(client: JetInstance, check: Any) -> None:
    def checked(expected: Any) -> Pipeline:
        pipeline = Pipeline()
        pipeline.read_from(sources.items([3, 1, 2] * 50)).rebalance().map(lambda n: n).sort().write_to(check(expected))
        return pipeline

    client.new_job(checked([1] * 50 + [2] * 50 + [3] * 50)).run(60)
    with pytest.raises(JobFailedError, match="expected 151 items"):
        client.new_job(checked([1] * 50 + [2] * 50 + [3] * 51)).run(60)


def test_the_one_processor_of_the_cluster_is_where_all_to_one_leads(client: JetInstance, out: str) -> None:
    for number, key in enumerate((None, "a", "b", "c", 7)):
        dag, name = DAG(), f"{out}-{number}"
        source = dag.new_vertex("items", processors.read_items(range(30)))
        one = ProcessorMetaSupplier.force_total_parallelism_one(processors.write_list(name), key)
        dag.edge(between(source, dag.new_vertex("one", one)).all_to_one(key).distributed())
        client.new_job(dag).run(60)
        assert sorted(client.get_list(name)) == list(range(30))


def test_a_source_that_is_one_in_the_cluster_may_block(client: JetInstance, out: str) -> None:
    def fill(numbers: Iterator[int], buffer: SourceBuffer[int]) -> None:
        number = next(numbers, None)
        buffer.close() if number is None else buffer.add(number)

    class Blocks(Processor):
        is_cooperative = False

        def complete(self) -> bool:
            return self.outbox.offer(self.context.member_index)

    pipeline = Pipeline()
    pipeline.read_from(sources.builder("one", lambda _: iter(range(30))).fill_buffer_fn(fill).build()).write_to(
        sinks.list(out)
    )
    client.new_job(pipeline).run(60)
    assert sorted(client.get_list(out)) == list(range(30))
    primaries = [owners[0] for owners in client.cluster.partition_table()]
    uuids = [member.uuid for member in client.cluster.members]
    keys = [next(key for key in range(99) if primaries[partition_id(key, 271)] == uuid) for uuid in uuids]
    for supplier in (Blocks, lambda: Blocks()):  # of the second only a processor can tell
        for member, key in enumerate(keys):
            dag, name = DAG(), f"{out}-{key}-{supplier.__name__}"
            one = ProcessorMetaSupplier.force_total_parallelism_one(supplier, key)
            dag.edge(between(dag.new_vertex("one", one), dag.new_vertex("sink", processors.write_list(name))))
            client.new_job(dag).run(60)
            assert list(client.get_list(name)) == [member]


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("other_lies_alike", [True, False])
def test_what_lies_in_partitions_meets_what_is_brought_there(
    client: JetInstance, out: str, parallelism: int, other_lies_alike: bool
) -> None:
    def key(pair: tuple[int, str]) -> int:
        return pair[0]

    left, right = [(n, f"l{n}") for n in range(60)], [(n, f"r{n}") for n in range(0, 60, 2)]
    pipeline = Pipeline()
    here = pipeline.read_from(sources.items(left, partitions=16, key=key)).set_local_parallelism(parallelism)
    there = pipeline.read_from(
        sources.items(right, partitions=16, key=key) if other_lies_alike else sources.items(right)
    )
    joined = here.join(there, key, key, lambda a, b: (*a, b[1]))
    joined.set_local_parallelism(parallelism).write_to(sinks.list(out))
    client.new_job(pipeline).run(60)
    assert sorted(client.get_list(out)) == [(n, f"l{n}", f"r{n}") for n in range(0, 60, 2)]


@pytest.fixture(params=["near", "far"])
def distance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether processors reach the client's socket; those on other hosts do not."""
    if request.param == "far":
        bound = collect.listen_for_results
        monkeypatch.setattr(collect, "listen_for_results", lambda address: bound(f"{address}-elsewhere"))


@pytest.mark.usefixtures("distance")
def test_results_of_all_members_are_collected(client: JetInstance, members: list[JetInstance]) -> None:
    for jet in (client, members[2]):
        results: Any = sinks.collect()
        pipeline = Pipeline()
        pipeline.read_from(sources.items(range(3000))).rebalance().map(lambda n: (n, os.getpid())).write_to(results)
        job = jet.new_job(pipeline)
        for _ in range(2):
            job.run(60)
            for _ in range(2):
                found = list(results)
                assert sorted(n for n, _ in found) == list(range(3000))
        assert len({pid for _, pid in found}) == 3
        results.close()


@pytest.mark.usefixtures("distance")
def test_results_before_an_error_are_collected_too(client: JetInstance) -> None:
    def last_fails(n: int) -> int:
        if n == 299:
            raise ValueError("the last one")
        return n

    results: Any = sinks.collect()
    pipeline = Pipeline()
    pipeline.read_from(sources.items(range(300))).map(last_fails).write_to(results)
    execution = client.new_job(pipeline).execute()
    found: Counter[int] = Counter()
    with pytest.raises(JobFailedError, match="the last one"):
        for item in results:
            found[item] += 1
    assert execution.done()
    assert max(found.values(), default=1) == 1
    results.close()


def test_results_that_nobody_collects_fail_the_job(client: JetInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    results: Any = sinks.collect()
    pipeline = Pipeline()
    pipeline.read_from(sources.items([1])).write_to(results)
    monkeypatch.setattr(
        "shmjet.processors.general.collect.CollectSupplier.on_client", lambda *_: None
    )  # as if another process executed it
    with pytest.raises(JobFailedError, match="no client collects its results"):
        client.new_job(pipeline).run(60)


def test_a_job_goes_on_though_a_member_joins_while_it_is_started(
    client: JetInstance, members: list[JetInstance], out: str, tmp_path: Path
) -> None:
    asked, go_on = tmp_path / "asked", tmp_path / "go on"

    class Waits(ProcessorMetaSupplier):
        def get(self, addresses: Sequence[str]) -> Mapping[str, ProcessorSupplier]:
            asked.touch()
            while not go_on.exists():
                threading.Event().wait(0.01)
            return dict.fromkeys(addresses, ProcessorSupplier.of(processors.generate(lambda index, count: [index])))

    dag = DAG()
    dag.edge(between(dag.new_vertex("waits", Waits(), 1), dag.new_vertex("sink", processors.write_list(out))))
    execution = client.new_job(dag).execute()
    while not asked.exists():
        threading.Event().wait(0.01)
    known = [member.address for member in members[0].cluster.members]
    config = JetConfig(cores=1, bind="127.0.0.1:0", secret=SECRET, members=known)
    with shmjet.new_instance(config) as joining:
        assert len(joining.cluster.members) == 4
        go_on.touch()
        execution.result(60)
    assert sorted(client.get_list(out)) == [0, 1, 2]
