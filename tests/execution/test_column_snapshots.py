"""Tables of columns in jobs that are killed and restored, also with another number of processors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import Batch
from shmjet.columns import count, group_changes, sum_
from shmjet.columns.group_export import RestoredGroups
from shmjet.core import DAG, between, column, columns, from_
from shmjet.processors import group_by, hash_join_batches, map_batches, read_items, to_batches, to_rows
from shmjet.processors.columns.project_batches import project_batches
from shmjet.processors.columns.sort_batches import sorted_share
from shmjet.processors.columns.sorted_shares import ColumnOrder
from shmjet.snapshots.manifest import read_manifest
from tests.execution.snapshot_runs import Killed, SnapshotRun
from tests.execution.snapshot_stages import RESULTS, Positions, Tally

SHARDS = (300, 200, 150)
MANY = (4000, 3000)
NAMES = {key: f"name {key}" for key in range(5)}


@pytest.fixture(autouse=True)
def no_results() -> Iterator[None]:
    RESULTS.clear()
    yield
    RESULTS.clear()


class PostponingRun(SnapshotRun):
    """A run that takes no snapshot while the build side is open, as the coordinator of a cluster does."""

    def _begins(self) -> bool:
        is_open = any(tasklet.context.vertex_name in ("names", "named") for tasklet in self._left())
        return not is_open and super()._begins()


def job(parallelism: int, two_stages: bool) -> DAG:
    """Items become batches, meet names, are grouped by key and shard, and sorted."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Positions("s", list(SHARDS)), local_parallelism=parallelism)
    batches = dag.new_vertex("batches", to_batches(13, ["label", "key", "shard", "number"]), parallelism)
    names = dag.new_vertex("names", read_items(list(NAMES.items())), local_parallelism=1)
    named = dag.new_vertex("named", to_batches(2, ["key", "name"]), local_parallelism=1)
    join = dag.new_vertex("join", hash_join_batches("key"), parallelism)
    grouping = group_by("name", "shard").agg(n=count(), total=sum_("number"))
    order = ColumnOrder(("name", "shard"), (False, False))
    share = dag.new_vertex("share", sorted_share(order.by, order.descending), parallelism)
    ordered = dag.new_vertex("ordered", project_batches(()), local_parallelism=1)
    dag.edge(between(share, ordered).all_to_one().ordered(order))
    rows = dag.new_vertex("rows", to_rows(tuple), local_parallelism=1)
    tally = dag.new_vertex("tally", lambda: Tally("t"), local_parallelism=1)
    dag.edge(between(source, batches)).edge(between(names, named))
    dag.edge(from_(batches).to(join, 0)).edge(from_(named).to(join, 1).broadcast().priority(-1))
    if two_stages:
        accumulate = dag.new_vertex("accumulate", grouping.accumulate, parallelism)
        combine = dag.new_vertex("combine", grouping.combine, parallelism)
        dag.edge(between(join, accumulate)).edge(between(accumulate, combine).partitioned(columns("name", "shard")))
        dag.edge(between(combine, share))
    else:
        group = dag.new_vertex("group", grouping, parallelism)
        dag.edge(between(join, group).partitioned(column("shard")))
        dag.edge(between(group, share))
    dag.edge(between(ordered, rows)).edge(between(rows, tally))
    return dag


def expected() -> dict[Any, int]:
    numbers: Counter[tuple[str, int]] = Counter()
    totals: Counter[tuple[str, int]] = Counter()
    for shard, size in enumerate(SHARDS):
        for number in range(size):
            numbers[NAMES[number % 5], shard] += 1
            totals[NAMES[number % 5], shard] += number
    return {("t", (*key, n, totals[key])): 1 for key, n in numbers.items()}


def test_without_a_kill_all_is_counted(tmp_path: Path) -> None:
    run = PostponingRun(job(2, False), tmp_path, rate=0.2)
    run.run()
    assert run.valid > 3
    assert expected() == RESULTS


@pytest.mark.parametrize("two_stages", [False, True])
@pytest.mark.parametrize("kills", [(40, 20), (60, 60), (110, 20)])
def test_a_killed_job_gives_exactly_what_it_would_have_given(
    tmp_path: Path, kills: tuple[int, int], two_stages: bool
) -> None:
    killed = 0
    for at, kill_at in enumerate(kills):
        try:
            PostponingRun(
                job(2 + at, two_stages), tmp_path, rate=0.3, restore=at > 0, kill_at=kill_at, seed=kill_at
            ).run()
        except Killed:
            killed += 1
    assert killed
    PostponingRun(job(4, two_stages), tmp_path, rate=0.3, restore=True, seed=7).run()
    assert expected() == RESULTS


# -- kills while captured tables are saved -----------------------------------------------------------------------------


class KilledWhileSaving(SnapshotRun):
    """A run that is killed in a round in which a captured table is being saved.

    Args:
        at: how many such rounds there are before.
        arguments, options: of `SnapshotRun`.
    """

    def __init__(self, *arguments: Any, at: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._at = at

    def between_rounds(self) -> bool:
        saving = sum(tasklet.background is not None for each in self.deployments for tasklet in each.tasklets)
        if saving:
            self._at -= 1
            if self._at < 0:
                raise Killed
        return super().between_rounds() or saving > 0


def sums_of_many_keys(parallelism: int) -> DAG:
    """Items become batches and are grouped by some hundred keys."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Positions("s", list(MANY), keys=190), local_parallelism=2)
    batches = dag.new_vertex("batches", to_batches(13, ["label", "key", "shard", "number"]), parallelism)
    group = dag.new_vertex("group", group_by("key").agg(n=count(), total=sum_("number")), parallelism)
    rows = dag.new_vertex("rows", to_rows(tuple), local_parallelism=1)
    tally = dag.new_vertex("tally", lambda: Tally("t"), local_parallelism=1)
    dag.edge(between(source, batches)).edge(between(batches, group).partitioned(column("key")))
    return dag.edge(between(group, rows)).edge(between(rows, tally))


@pytest.mark.parametrize("kills", [(0, 400, 800), (350, 500, 700), (200, 600, 1000)])
def test_a_job_killed_while_tables_are_saved_counts_exactly(
    tmp_path: Path, kills: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.execution.snapshot_steps.BACKGROUND_SLICE_NS", 0)
    monkeypatch.setattr("shmjet.columns.group_export.SLICE_ROWS", 3)
    killed = 0
    for turn, at in enumerate(kills):
        dag = sums_of_many_keys(1 + turn)
        try:
            KilledWhileSaving(dag, tmp_path, rate=0.5, restore=turn > 0, at=at, seed=at).run()
        except Killed:
            killed += 1
    assert killed
    RESULTS.clear()
    run = SnapshotRun(sums_of_many_keys(4), tmp_path, rate=0.3, restore=True, seed=7)
    run.run()
    assert run.valid
    numbers: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for size in MANY:
        for number in range(size):
            numbers[number % 190] += 1
            totals[number % 190] += number
    assert {("t", (key, n, totals[key])): 1 for key, n in numbers.items()} == RESULTS


# -- state that does not change ----------------------------------------------------------------------------------------

STANDING = 6000


def few_changes(parallelism: int) -> DAG:
    """Many keys come once, then some keys time after time; rows meet many names."""
    dag = DAG()
    source = dag.new_vertex("source", lambda: Positions("s", [STANDING]), local_parallelism=1)
    batches = dag.new_vertex("batches", to_batches(40, ["label", "key", "shard", "number"]), local_parallelism=1)
    keyed = dag.new_vertex("keyed", map_batches(spread_keys), local_parallelism=1)
    names = dag.new_vertex("names", read_items([(key, f"name {key}") for key in range(3000)]), local_parallelism=1)
    named = dag.new_vertex("named", to_batches(500, ["many", "name"]), local_parallelism=1)
    join = dag.new_vertex("join", hash_join_batches("many"), parallelism)
    group = dag.new_vertex("group", group_by("many").agg(n=count(), total=sum_("number")), parallelism)
    rows = dag.new_vertex("rows", to_rows(tuple), local_parallelism=1)
    tally = dag.new_vertex("tally", lambda: Tally("t"), local_parallelism=1)
    dag.edge(between(source, batches)).edge(between(batches, keyed)).edge(between(names, named))
    dag.edge(from_(keyed).to(join, 0)).edge(from_(named).to(join, 1).broadcast().priority(-1))
    dag.edge(between(join, group).partitioned(column("many")))
    return dag.edge(between(group, rows)).edge(between(rows, tally))


def spread_keys(batch: Batch) -> Batch:
    number = np.asarray(batch["number"])
    return Batch({"many": np.where(number < STANDING // 2, number % 3000, number % 5), "number": number})


def files_by_vertex(folder: Path) -> dict[str, list[set[str]]]:
    """Return the files that each manifest names, in order, by vertex."""
    found: dict[str, list[set[str]]] = {}
    for path in sorted(folder.glob("*.manifest"), key=lambda path: int(path.stem)):
        for vertex in read_manifest(path).vertices:
            found.setdefault(vertex.name, []).append({piece.file for piece in vertex.pieces()})
    return found


def test_state_that_did_not_change_is_referred_to_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_changes, "LEAST_GROUPS", 2)
    loaded, merge = Counter[bool](), RestoredGroups.merge

    def noted(groups: RestoredGroups, states: Batch, positions: Any, are_new: bool = False) -> None:
        loaded[are_new] += not isinstance(positions, range)  # those of one partition
        merge(groups, states, positions, are_new)

    monkeypatch.setattr(RestoredGroups, "merge", noted)
    ends = []
    for at, kill_at in enumerate((500, 900, None)):
        ends.append(kill_at)
        with suppress(Killed):
            PostponingRun(
                few_changes((2, 3, 1)[at]), tmp_path, rate=0.3, restore=at > 0, kill_at=kill_at, seed=at
            ).run()
            ends.pop()
    assert ends == [500, 900]
    numbers: Counter[int] = Counter()
    totals: Counter[int] = Counter()
    for number in range(STANDING):
        key = number % 3000 if number < STANDING // 2 else number % 5
        numbers[key] += 1
        totals[key] += number
    assert {("t", (key, n, totals[key])): 1 for key, n in numbers.items()} == RESULTS
    for name in ("join", "group"):
        files = files_by_vertex(tmp_path)[name]
        assert any(before & after for before, after in pairwise(files)), name
    assert loaded[True]  # by the processor that had saved them
    assert loaded[False]  # by another one
