from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import processors, sources
from shmjet.core.context import MetaSupplierContext, ProcessorContext
from shmjet.core.inbox import Inbox
from shmjet.core.outbox import Outbox
from shmjet.data.batch import Batch
from shmjet.data.errors import ProcessorError
from shmjet.processors.files.file_work import FilePositions, Partial
from tests.examples import seeds

from .crashing import EXACTLY_ONCE, Attempt, Snapshot, run_source

LINES = [f"line {n} {'x' * (n % 17)}" for n in range(700)]
RECORDS = [(n, 'a "quoted",\ntext\n' * (n % 3)) for n in range(400)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Text files of several sizes, packed ones, CSV with quoted newlines, JSON lines and arrays."""
    for name in ("text", "csv", "json", "npy"):
        (tmp_path / name).mkdir()
    (tmp_path / "text" / "long").write_text("\n".join(LINES[:500]))
    (tmp_path / "text" / "short").write_text("\n".join(LINES[500:600]))
    (tmp_path / "text" / "empty").write_text("")
    with gzip.open(tmp_path / "text" / "packed.gz", "wt") as packed:
        packed.write("\n".join(LINES[600:]))
    quoted = ['{},"{}"\n'.format(n, text.replace('"', '""')) for n, text in RECORDS]
    (tmp_path / "csv" / "a.csv").write_text("n,text\n" + "".join(quoted[:300]))
    (tmp_path / "csv" / "b.csv").write_text("n,text\n" + "".join(quoted[300:]))
    (tmp_path / "json" / "a").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(300)))
    np.save(tmp_path / "npy" / "a.npy", np.arange(500))
    np.save(tmp_path / "npy" / "b.npy", np.arange(500, 520))
    return tmp_path


def rows(outputs: list[list[Any]]) -> Counter[Any]:
    return Counter(row for batch in chain.from_iterable(outputs) for row in batch.tuples())


@pytest.mark.parametrize("seed", seeds(6))
@pytest.mark.parametrize("block_size", [64, 4096])
def test_lines_are_read_once_through_kills(folder: Path, seed: int, block_size: int) -> None:
    def supplier() -> Any:
        return processors.read_files(folder / "text" / "[!p]*", block_size=block_size)

    assert Counter(chain.from_iterable(run_source(supplier, seed))) == Counter(LINES[:600])


@pytest.mark.parametrize("seed", seeds(6))
def test_packed_files_are_read_once_through_kills(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shmjet.processors.files.record_reader.PIECE", 100)
    emitted = run_source(lambda: sources.files(folder / "text").supplier, seed)
    assert Counter(chain.from_iterable(emitted)) == Counter(LINES)


CSV = {"n": "int64", "text": "text"}


@pytest.mark.parametrize("seed", seeds(10))
def test_csv_with_quoted_newlines_is_read_once_through_kills(folder: Path, seed: int) -> None:
    def supplier() -> Any:
        return processors.read_files(
            folder / "csv", as_=Batch, format="csv", schema=CSV, batch_rows=1 + 7 * (seed % 4), block_size=200
        )

    assert rows(run_source(supplier, seed)) == Counter(RECORDS)


@pytest.mark.parametrize("seed", seeds(8))
def test_another_number_of_processors_that_would_cut_otherwise_goes_on_with_the_cut_of_the_snapshot(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shmjet.processors.files.file_blocks.SMALLEST_UNIT", 50)

    def supplier() -> Any:
        return processors.read_files(folder / "csv", as_=Batch, format="csv", schema=CSV, batch_rows=3)

    assert rows(run_source(supplier, seed, counts=[1, 2, 5])) == Counter(RECORDS)


@pytest.mark.parametrize("seed", seeds(6))
def test_rows_of_csv_and_values_of_json_come_once_through_kills(folder: Path, seed: int) -> None:
    emitted = run_source(lambda: sources.csv(folder / "csv", CSV, batch_rows=5).supplier, seed)
    assert Counter((row["n"], row["text"]) for row in chain.from_iterable(emitted)) == Counter(RECORDS)
    emitted = run_source(lambda: sources.json(folder / "json").supplier, seed)
    assert Counter(row["n"] for row in chain.from_iterable(emitted)) == Counter(range(300))


@pytest.mark.parametrize("seed", seeds(6))
def test_lines_as_batches_with_their_path_come_once_through_kills(folder: Path, seed: int) -> None:
    def supplier() -> Any:
        return sources.files(folder / "text", as_=Batch, with_path=True, batch_rows=13).supplier

    assert Counter(line for line, _ in rows(run_source(supplier, seed)).elements()) == Counter(LINES)


@pytest.mark.parametrize("seed", seeds(6))
def test_arrays_are_read_once_through_kills(folder: Path, seed: int) -> None:
    emitted = run_source(lambda: processors.read_npy(folder / "npy", batch_rows=7), seed)
    assert rows(emitted) == Counter((n,) for n in range(520))


def stopped_in_the_middle(supplier: Callable[[], Any]) -> Snapshot:
    attempt = Attempt(supplier(), 1, room=lambda: 10)
    attempt.complete(0)
    snapshot = Snapshot({0: attempt.save(0)}, (), 1)
    attempt.end()
    return snapshot


def resumed(supplier: Callable[[], Any], snapshot: Snapshot) -> list[Any]:
    attempt = Attempt(supplier(), 1)
    try:
        attempt.restore(snapshot)
        while attempt.live:
            attempt.complete(0)
    finally:
        attempt.end()
    return attempt.outputs[0]


def test_a_file_that_was_changed_meanwhile_is_an_error_that_names_it(folder: Path) -> None:
    def supplier() -> Any:
        return processors.read_files(folder / "text" / "long")

    snapshot = stopped_in_the_middle(supplier)
    assert resumed(supplier, snapshot) == LINES[499:500]
    with (folder / "text" / "long").open("a") as file:
        file.write("more\n")
    os.utime(folder / "text" / "long", ns=(1, 1))
    with pytest.raises(ProcessorError, match="text/long: the file was changed since the job began"):
        resumed(supplier, snapshot)


def test_a_resumed_job_reads_the_files_that_it_began_with(folder: Path) -> None:
    def supplier() -> Any:
        return processors.read_files(folder / "text" / "s*")

    snapshot = stopped_in_the_middle(supplier)
    (folder / "text" / "surplus").write_text("surplus\n")
    assert resumed(supplier, snapshot) == LINES[599:600]


def test_blocks_with_quotes_are_not_read_where_there_is_no_table_of_seams(folder: Path) -> None:
    def supplier() -> Any:
        return processors.read_files(folder / "csv", as_=Batch, format="csv", schema=CSV, block_size=200)

    snapshot = stopped_in_the_middle(supplier)
    meta = supplier()
    meta.init(MetaSupplierContext(job_config=EXACTLY_ONCE, member_count=2, total_parallelism=2))
    (processor,) = meta.get(["here", "there"])["here"].get(1)
    processor.init(Outbox([10]), ProcessorContext(job_config=EXACTLY_ONCE, member_count=2, total_parallelism=2))
    inbox = Inbox()
    inbox.fill(snapshot.entries[0])
    processor.restore_from_snapshot(inbox)
    with pytest.raises(ProcessorError, match="CSV files that one member was reading in blocks"):
        processor.finish_snapshot_restore()
    processor.close()


def test_a_snapshot_of_other_paths_is_refused(folder: Path) -> None:
    snapshot = stopped_in_the_middle(lambda: processors.read_files(folder / "text" / "s*"))
    with pytest.raises(ProcessorError, match="the snapshot is of files"):
        resumed(lambda: processors.read_files(folder / "text" / "long"), snapshot)


def test_of_a_unit_that_several_processors_know_the_farthest_position_counts() -> None:
    early, late = FilePositions(), FilePositions()
    early.reach(3, Partial(0, 100))
    late.reach(3, Partial(1, 5))
    late.reach(70, Partial(0, 1))
    early.finish(70)
    both = FilePositions.of([late.saved(), early.saved()])
    assert (both.partial, both.is_done(70), both.is_done(69)) == ({3: (1, 5)}, True, False)
