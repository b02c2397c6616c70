"""`collect()` on two members, through losses, and where processors cannot reach the client's socket."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shmjet
from shmjet import (
    DAG,
    BroadcastKey,
    JetConfig,
    JetInstance,
    JobConfig,
    ProcessingGuarantee,
    Processor,
    between,
    processors,
)
from shmjet.processors.general.collect import CollectSupplier
from shmjet.processors.general.remote_results import name_of
from shmjet.sinks.results import Results

SOON_S = 60.0
pytestmark = pytest.mark.slow


class FarSupplier(CollectSupplier):
    """Its processors look for the client's socket at a place where it is not, as on another host."""

    def __getstate__(self) -> dict[str, Any]:
        return {"address": f"\0{self.address}"}


def far_results() -> tuple[Results[Any], Any]:
    results: Results[Any] = Results()
    results.supplier.__class__ = FarSupplier
    return results, results.supplier


class Counting(Processor):
    """Emits numbers as files of that name appear; its position is its state."""

    is_endless = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._number = 0

    def complete(self) -> bool:
        self.next_call = 0.001
        if os.path.exists(f"{self._path}{self._number}") and self.outbox.offer(self._number):
            self._number += 1
        return False

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(0, self._number)

    def restore_from_snapshot(self, inbox: Any) -> None:
        for _, number in inbox.take():
            self._number = number


@pytest.fixture(scope="module")
def networked() -> Iterator[JetInstance]:
    with shmjet.new_instance(JetConfig(cores=1, bind="127.0.0.1:0", secret="of these tests")) as jet:
        yield jet


def counting(path: Path, supplier: Any) -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", partial(Counting, str(path)), 1)
    return dag.edge(between(source, dag.new_vertex("sink", supplier, 1)))


def test_all_results_arrive_and_nothing_is_left(networked: JetInstance) -> None:
    results, supplier = far_results()
    dag = DAG()
    source = dag.new_vertex("source", processors.read_items(range(20_000)), 1)
    dag.edge(between(source, dag.new_vertex("sink", supplier, 1)))
    networked.new_job(dag).run(SOON_S)
    assert list(results) == list(range(20_000))
    assert list(results) == list(range(20_000))
    assert len(networked.get_list(name_of(supplier.address))) == 0
    results.close()


def test_results_arrive_while_the_job_runs(networked: JetInstance, tmp_path: Path) -> None:
    results, supplier = far_results()
    execution = networked.new_job(counting(tmp_path / "n", supplier)).execute()
    items = iter(results)
    for n in range(20):
        (tmp_path / f"n{n}").touch()
        assert next(items) == n
    assert results.so_far() == list(range(20))
    execution.cancel()
    with pytest.raises(CancelledError):
        next(items)
    results.close()


class Halting(Processor):
    """Emits 500 pairs, then 500 others once a file is there; the position is the state."""

    def __init__(self, gate: str) -> None:
        self._gate = gate
        self._number = 0

    def complete(self) -> bool:
        self.next_call = 0.002
        end = 1000 if os.path.exists(self._gate) else 500
        while self._number < end and self.outbox.offer((self.context.global_index, self._number)):
            self._number += 1
        return self._number == 1000

    def save_to_snapshot(self) -> bool:
        return self.outbox.offer_to_snapshot(BroadcastKey(self.context.global_index), self._number)

    def restore_from_snapshot(self, inbox: Any) -> None:
        for key, number in inbox.take():
            if key.key == self.context.global_index:
                self._number = number


@pytest.fixture
def members(eventually: Callable[..., None]) -> Iterator[list[JetInstance]]:
    settings: dict[str, Any] = {"cores": 1, "bind": "127.0.0.1:0", "secret": "hush"}
    with shmjet.new_instance(JetConfig(**settings)) as first:
        seeds = (first.cluster.members[0].address,)
        with shmjet.new_instance(JetConfig(**settings, members=seeds)) as second:
            eventually(lambda: len(first.cluster.members) == 2)
            yield [first, second]


@pytest.mark.parametrize("guarantee", [ProcessingGuarantee.EXACTLY_ONCE, ProcessingGuarantee.AT_LEAST_ONCE])
def test_results_of_two_members_are_there_through_losses_and_restarts(
    members: list[JetInstance], tmp_path: Path, guarantee: ProcessingGuarantee
) -> None:
    results: Results[Any] = Results()
    dag, gate = DAG(), tmp_path / "gate"
    source = dag.new_vertex("source", partial(Halting, str(gate)), 1)
    dag.edge(between(source, dag.new_vertex("sink", results.supplier)))
    config = JobConfig(processing_guarantee=guarantee, snapshot_interval=0.03)
    job = members[1].new_job(dag, config)
    execution = job.execute()
    items = iter(results)
    early = [next(items) for _ in range(1000)]  # with the first snapshot, while the job runs
    assert set(early) == {(index, n) for index in (0, 1) for n in range(500)}
    victim = next(found for found in members[1].cluster.members if found.is_local)
    os.kill(victim.workers[0], signal.SIGKILL)
    gate.touch()
    job.restart(graceful=False)
    execution.result(SOON_S)
    found = Counter([*early, *items])
    assert found == Counter(results)
    assert set(found) == {(index, n) for index in (0, 1) for n in range(1000)}
    if guarantee is ProcessingGuarantee.EXACTLY_ONCE:
        assert set(found.values()) == {1}
    results.close()
