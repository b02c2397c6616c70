"""Tests for snapshots within the engine: what is saved at a barrier comes back, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shmjet.core import DAG, ProcessingGuarantee, between
from tests.examples import seeds
from tests.execution.random_snapshots import check
from tests.execution.snapshot_runs import Killed, SnapshotRun
from tests.execution.snapshot_stages import RESULTS, Numbered, Positions, Tally


@pytest.fixture(autouse=True)
def no_results() -> Iterator[None]:
    RESULTS.clear()
    yield
    RESULTS.clear()


def counting_dag(parallelism: int = 2, shards: tuple[int, ...] = (300, 200, 100)) -> DAG:
    dag = DAG()
    source = dag.new_vertex("source", lambda: Positions("s", list(shards)), local_parallelism=parallelism)
    number = dag.new_vertex("number", lambda: Numbered("n"), local_parallelism=parallelism)
    tally = dag.new_vertex("tally", lambda: Tally("t"), local_parallelism=parallelism)
    dag.edge(between(source, number).partitioned(lambda item: item[1]))
    dag.edge(between(number, tally).partitioned(lambda item: item))
    return dag


def expected_counts(shards: tuple[int, ...] = (300, 200, 100)) -> dict[Any, int]:
    keys = Counter(number % 5 for size in shards for number in range(size))
    return {("t", ("n", key, 0, number)): 1 for key, count in keys.items() for number in range(count)}


def test_job_with_a_guarantee_ends_with_a_snapshot(tmp_path: Path) -> None:
    run = SnapshotRun(counting_dag(), tmp_path, rate=0)
    run.run()
    assert run.valid == 1
    assert expected_counts() == RESULTS


def test_run_with_many_snapshots_counts_exactly(tmp_path: Path) -> None:
    run = SnapshotRun(counting_dag(), tmp_path, rate=0.3)
    run.run()
    assert run.valid > 3
    assert expected_counts() == RESULTS


@pytest.mark.parametrize("kill_at", [40, 60, 80, 100, 120])
def test_killed_run_goes_on_from_its_last_snapshot(tmp_path: Path, kill_at: int) -> None:
    with pytest.raises(Killed):
        SnapshotRun(counting_dag(), tmp_path, rate=0.3, kill_at=kill_at).run()
    assert list(tmp_path.glob("*.manifest"))
    SnapshotRun(counting_dag(), tmp_path, rate=0.3, restore=True, seed=kill_at).run()
    assert expected_counts() == RESULTS


@pytest.mark.parametrize("seed", [*seeds(20), 198, 228, 254])
def test_random_dag_is_exact_after_kills_and_restores(tmp_path: Path, seed: int) -> None:
    check(seed, tmp_path)


@pytest.mark.parametrize("seed", seeds(12))
def test_random_dag_without_a_guarantee_is_exact_when_it_begins_from_exports(tmp_path: Path, seed: int) -> None:
    check(seed, tmp_path, ProcessingGuarantee.NONE)
