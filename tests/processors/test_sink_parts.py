from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shmjet import JobConfig, ProcessingGuarantee, processors, sinks
from shmjet.core.inbox import Inbox
from shmjet.data.batch import Batch
from shmjet.processors.files.part_files import FileSync
from tests.examples import seeds

from .crashing import EXACTLY_ONCE, Attempt, Snapshot, run_sink

AT_LEAST_ONCE = JobConfig(processing_guarantee=ProcessingGuarantee.AT_LEAST_ONCE)
NONE = JobConfig()


def lines_in(folder: Path) -> list[str]:
    """The lines of all files that are committed; nothing else may be left."""
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
    return [line for path in sorted(folder.iterdir()) for line in path.read_text().splitlines()]


FILES: dict[str, Callable[[Path], Any]] = {
    "sinks.files": lambda folder: sinks.files(folder).supplier,
    "sinks.files, rolled": lambda folder: sinks.files(folder, roll_by_size=20).supplier,
    "write_files": processors.write_files,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("seed", seeds(8))
def test_each_line_is_written_once_through_kills_at_any_step(tmp_path: Path, name: str, seed: int) -> None:
    run_sink(lambda: FILES[name](tmp_path), range(200), seed)
    assert sorted(map(int, lines_in(tmp_path))) == list(range(200))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files of processors that are killed
@pytest.mark.parametrize("seed", seeds(5))
def test_records_of_csv_json_and_arrays_are_written_once_through_kills(tmp_path: Path, seed: int) -> None:
    run_sink(lambda: sinks.json(tmp_path / "json", compression="gzip").supplier, range(60), seed)
    values = [
        json.loads(line)
        for path in (tmp_path / "json").iterdir()
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    assert sorted(values) == list(range(60))
    rows = [{"n": n} for n in range(60)]
    run_sink(lambda: sinks.csv(tmp_path / "csv").supplier, rows, seed)
    for path in (tmp_path / "csv").iterdir():
        assert path.read_text().startswith("n\n")
    assert sorted(line for line in lines_in(tmp_path / "csv") if line != "n") == sorted(map(str, range(60)))
    batches = [Batch({"n": np.arange(n, n + 2)}) for n in range(0, 60, 2)]
    run_sink(lambda: processors.write_npy(tmp_path / "npy"), batches, seed)
    assert sorted(n for path in (tmp_path / "npy").iterdir() for n in np.load(path)["n"]) == list(range(60))


@pytest.mark.parametrize("seed", seeds(5))
def test_at_least_once_no_line_is_lost_through_kills(tmp_path: Path, seed: int) -> None:
    run_sink(lambda: sinks.files(tmp_path).supplier, range(100), seed, config=AT_LEAST_ONCE)
    assert set(map(int, lines_in(tmp_path))) == set(range(100))


@pytest.mark.parametrize("seed", seeds(4))
def test_parts_behind_a_url_are_written_once_through_kills(tmp_path: Path, seed: int) -> None:
    pytest.importorskip("fsspec")
    run_sink(lambda: sinks.files(f"file://{tmp_path}/out").supplier, range(60), seed)
    assert sorted(map(int, lines_in(tmp_path / "out"))) == list(range(60))


def feed(attempt: Attempt, *items: Any) -> None:
    inbox = Inbox()
    inbox.fill(list(items))
    while inbox:
        attempt.call(0, attempt.processors[0].process, 0, inbox)


def committed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_part_gets_its_name_in_phase_two_and_only_with_success(tmp_path: Path) -> None:
    attempt = Attempt(sinks.files(tmp_path).supplier, 1)
    feed(attempt, "a")
    attempt.save(0)
    attempt.prepare(0)
    assert committed(tmp_path) == []
    attempt.finish(0, False)
    feed(attempt, "b")
    attempt.save(0)
    feed(attempt, "c")
    attempt.prepare(0)
    attempt.finish(0)
    assert [(tmp_path / name).read_text() for name in committed(tmp_path)] == ["a\n", "b\n"]
    attempt.end(ValueError())
    assert len(list(tmp_path.iterdir())) == 2


def test_a_snapshot_without_items_makes_no_part(tmp_path: Path) -> None:
    run_sink(lambda: sinks.files(tmp_path).supplier, [], 1, kills=0)
    assert list(tmp_path.iterdir()) == []


def test_restoring_the_same_snapshot_repeatedly_names_a_part_once_even_if_it_was_taken_away(tmp_path: Path) -> None:
    first = Attempt(sinks.files(tmp_path).supplier, 1)
    feed(first, "a")
    snapshot = Snapshot({0: first.save(0)}, (), 1)
    first.prepare(0)
    for _ in range(2):
        attempt = Attempt(sinks.files(tmp_path).supplier, 2)
        attempt.restore(snapshot)
        assert committed(tmp_path) == ["0_000000"]
        attempt.end(ValueError())
    (tmp_path / "0_000000").unlink()  # a reader has taken it in
    attempt = Attempt(sinks.files(tmp_path).supplier, 1)
    attempt.restore(snapshot)
    feed(attempt, "b")
    attempt.complete(0)
    attempt.end()
    assert committed(tmp_path) == ["0_000001"]
    first.end()


def test_parts_of_later_runs_do_not_overwrite_earlier_ones(tmp_path: Path) -> None:
    for _ in range(3):
        run_sink(lambda: sinks.files(tmp_path).supplier, range(30), 7)
    assert sorted(map(int, lines_in(tmp_path))) == sorted([*range(30)] * 3)


def test_without_exactly_once_parts_get_their_names_before_the_snapshot_is_valid(tmp_path: Path) -> None:
    attempt = Attempt(sinks.files(tmp_path, exactly_once=False).supplier, 1)
    feed(attempt, "a")
    attempt.save(0)
    assert committed(tmp_path) == ["0_000000"]
    attempt.end(ValueError())


@pytest.mark.parametrize("config", [NONE, EXACTLY_ONCE])
def test_parts_roll_by_size(tmp_path: Path, config: JobConfig) -> None:
    attempt = Attempt(sinks.files(tmp_path, roll_by_size=8).supplier, 1, config=config)
    for word in ("one", "two", "three"):
        feed(attempt, word)
    assert committed(tmp_path) == (["0_000000"] if config is NONE else [])
    feed(attempt, "four")
    attempt.complete(0)
    attempt.end()
    texts = [(tmp_path / name).read_text() for name in committed(tmp_path)]
    assert texts == ["one\ntwo\n", "three\nfour\n"]


@pytest.mark.parametrize("lengths", [(9,), range(60), (1, 1, 1, 500)])
def test_a_list_of_items_is_divided_between_parts_by_their_size(tmp_path: Path, lengths: Sequence[int]) -> None:
    lines = ["x" * length for length in lengths] * (3000 // len(lengths))
    attempt = Attempt(sinks.files(tmp_path, roll_by_size=2000).supplier, 1, config=NONE)
    feed(attempt, *lines)
    attempt.complete(0)
    attempt.end()
    assert lines_in(tmp_path) == lines
    *full, last = [path.stat().st_size for path in sorted(tmp_path.iterdir())]
    assert len(full) > 5
    assert all(2000 <= size < 4000 for size in full)
    assert last < 4000


def test_parts_roll_by_time_without_an_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("shmjet.processors.files.output_file.monotonic", lambda: now)
    attempt = Attempt(sinks.files(tmp_path, roll_by_time=timedelta(seconds=5)).supplier, 1, config=NONE)
    (processor,) = attempt.processors
    feed(attempt, "a")
    assert processor.next_call == 5.0
    now += 4
    processor.try_process()
    assert (processor.next_call, committed(tmp_path)) == (1.0, [])
    now += 1
    processor.try_process()
    assert (processor.next_call, committed(tmp_path)) == (float("inf"), ["0_000000"])
    attempt.end(ValueError())


def test_two_stages_keep_their_hands_off_each_others_parts(tmp_path: Path) -> None:
    first = sinks.files(tmp_path).supplier
    second = first.after_sinks([first])
    one, other = Attempt(first, 1), Attempt(second, 1)
    for attempt in (one, other):
        feed(attempt, "a")
    again = Attempt(first, 1)
    again.restore(Snapshot({0: []}, (), 1))
    assert [path.name for path in tmp_path.iterdir()] == [".0-1_000000.job.unfinished"]
    for attempt in (one, other, again):
        attempt.end(ValueError())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"roll_by_size": "1 MB"}, TypeError),
        ({"roll_by_size": 0}, ValueError),
        ({"roll_by_time": -1}, ValueError),
        ({"roll_by_time": float("nan")}, ValueError),
    ],
)
def test_sizes_and_times_that_make_no_sense_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="roll_by_"):
        sinks.files("/tmp/parts", **options)


def test_an_error_of_the_disk_is_raised_where_it_is_waited_for(tmp_path: Path) -> None:
    sync = FileSync()
    sync.begin([str(tmp_path / "missing")])
    with pytest.raises(FileNotFoundError, match="missing"):
        while not sync.is_done():
            pass
    assert not sync.is_begun
