"""Files as sinks: their formats, and that a final name never has only a part of a result."""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, JobFailedError, JobStatus, WorkerLostError, processors, sinks, sources
from shmjet.pipeline.definitions import SinkDef, SourceDef
from shmjet.processors.files.paths import Folder
from shmjet.processors.files.row_text import RowEncoder
from tests.examples import examples
from tests.sources.running import collected, dag_of, read, run

METHODS: list[Any] = [None, "gzip", "bz2", "xz", "zstd"]


def generating(fn: Any, parallelism: int = 1) -> SourceDef[Any]:
    return SourceDef("source", processors.generate(fn), parallelism)


def endless() -> SourceDef[Any]:
    return generating(lambda index, count: iter(lambda: "x", "y"))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# -- formats -----------------------------------------------------------------------------------------------------------


def test_lines(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    folder = tmp_path / "ein Ordner" / "ä"
    run(jet, sources.items(["b", "ü", ""]), sinks.files(folder, lambda item: f"<{item}>"))
    assert names(folder) == ["0", "1"]
    lines = (folder / "0").read_text() + (folder / "1").read_text()
    assert sorted(lines.splitlines()) == ["<>", "<b>", "<ü>"]
    run(jet, sources.items(["ü"]), sinks.files(folder, charset="latin-1"))
    assert (folder / "0").read_bytes() + (folder / "1").read_bytes() == b"\xfc\n"


def test_stages_that_end_in_one_folder_have_files_of_their_own(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    pipeline = shmjet.Pipeline()
    numbers = pipeline.read_from(sources.items(range(100)))
    both = sinks.files(tmp_path)
    numbers.write_to(both)
    numbers.map(lambda n: n + 1000).write_to(both)
    numbers.map(lambda n: n + 2000).write_to(sinks.files(tmp_path))
    numbers.write_to(sinks.files(tmp_path / "alone"))
    jet.new_job(pipeline).run()
    assert names(tmp_path) == ["0", "0-1", "0-2", "1", "1-1", "1-2", "alone"]
    assert names(tmp_path / "alone") == ["0", "1"]
    for part, suffix in enumerate(("", "-1", "-2")):
        text = "".join((tmp_path / f"{index}{suffix}").read_text() for index in range(2))
        assert sorted(map(int, text.split())) == [part * 1000 + n for n in range(100)]


@pytest.mark.parametrize("compression", METHODS)
def test_what_is_written_can_be_read(jet: shmjet.JetInstance, tmp_path: Path, compression: Any) -> None:
    if compression == "zstd":
        pytest.importorskip("zstandard")
    rows = [{"n": n, "t": 'a,"b"\n' * (n % 4), "f": n / 3, "none": None if n % 2 else 0.5} for n in range(20_000)]
    run(
        jet,
        sources.items(rows),
        sinks.json(tmp_path / "json", compression=compression),
        sinks.csv(tmp_path / "csv", compression=compression),
        sinks.files(tmp_path / "lines", lambda row: f"{row['n']}", compression=compression),
    )

    def by_number(found: list[Any]) -> list[Any]:
        return sorted(found, key=lambda row: row["n"])

    assert by_number(collected(jet, sources.json(tmp_path / "json"))) == rows
    schema = {"n": "int64", "t": "text", "f": "float64", "none": "float64"}
    assert by_number(collected(jet, sources.csv(tmp_path / "csv", schema))) == rows
    assert sorted(map(int, collected(jet, sources.files(tmp_path / "lines")))) == list(range(20_000))
    suffix = {None: "", "gzip": ".gz", "bz2": ".bz2", "xz": ".xz", "zstd": ".zst"}[compression]
    assert names(tmp_path / "csv") == [f"0.csv{suffix}", f"1.csv{suffix}"]


def test_batches(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    batch = Batch({"n": np.arange(3), "t": ["a", "", None]})
    run(jet, sources.items([batch]), sinks.csv(tmp_path / "csv"), sinks.json(tmp_path / "json"))
    run(jet, sources.items([batch]), sinks.csv(tmp_path / "some", ["t"], header=False, null="-"))
    rows = list(batch.rows())
    assert collected(jet, sources.csv(f"{tmp_path}/csv/*.csv", {"n": "int64", "t": "text"})) == rows
    assert collected(jet, sources.json(tmp_path / "json")) == rows
    assert "".join(path.read_text() for path in (tmp_path / "some").iterdir()) == 'a\n""\n-\n'


def test_raw(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    run(jet, sources.items([b"a\0", b"", bytearray(b"b")]), sinks.files(tmp_path, format="raw"))
    assert (tmp_path / "0").read_bytes() + (tmp_path / "1").read_bytes() == b"a\0b"
    with pytest.raises(JobFailedError, match="takes bytes, got str"):
        run(jet, sources.items(["a"]), sinks.files(tmp_path, format="raw"))


@dataclasses.dataclass
class Flight:
    carrier: str
    day: datetime.date
    delayed: bool


class Pair(NamedTuple):
    left: int
    right: Any


def text_of(*rows: Any, **options: Any) -> str:
    arguments: dict[str, Any] = {"delimiter": ",", "quote": '"', "header": True, "null": "", "columns": None}
    return RowEncoder(**(arguments | options)).encode(rows)


def test_rows_of_all_kinds_as_csv() -> None:
    day = datetime.date(2024, 2, 29)
    assert text_of(Flight("A,B", day, True)) == 'carrier,day,delayed\n"A,B",2024-02-29,true\n'
    assert text_of(Pair(1, None), Pair(2, float("nan"))) == "left,right\n1,\n2,nan\n"
    assert text_of((1, "x"), (2, "")) == '1,x\n2,""\n'
    assert text_of((1, "x"), columns=["a", "b"]) == "a,b\n1,x\n"
    assert text_of({"b": 1, "a": 2}, {"a": 3, "b": 4}, columns=["a", "b"]) == "a,b\n2,1\n3,4\n"
    assert text_of({"a": "NA", "b": None}, null="NA", header=False) == '"NA",NA\n'
    assert text_of(["x;y", 1e300], delimiter=";", quote="'") == "'x;y';1e+300\n"


@pytest.mark.parametrize(
    ("rows", "options", "text"),
    [
        ([{"a": 1}, {"b": 1}], {}, r"the columns are \['a'\]"),
        ([(1, 2), (1,)], {}, "has 1 values, but the file has 2"),
        ([(1, 2)], {"columns": ["a"]}, "has 2 values, but the file has 1"),
        ([(1,), {"a": 1}], {}, "tuples came first"),
        ([5], {}, "must be a dict"),
        ([{5: 1}], {}, "have names"),
        ([("a,b",)], {"quote": None}, "without quotes"),
        ([(0,)], {"null": "0"}, "stands for None"),
    ],
)
def test_rows_that_do_not_fit_are_shown(rows: list[Any], options: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        text_of(*rows, **options)


@examples(50)
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(max_size=5), st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.floats()
        ),
        min_size=1,
        max_size=20,
    )
)
def test_csv_of_any_rows_is_read_back_equal(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    path = tmp_path_factory.mktemp("csv") / "f.csv"
    path.write_bytes(text_of(*rows, columns=["t", "i", "f"]).encode())
    source = sources.csv(path, {"t": "text", "i": "int64", "f": "float64"}, errors="strict")
    assert [tuple(map(repr, row.values())) for row in read(source, 1)] == [tuple(map(repr, row)) for row in rows]


def test_json_of_all_kinds(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    items = [Flight("A", datetime.date(2024, 1, 1), False), Pair(1, [2]), np.int64(5), {"x": np.arange(2)}, {1: "ü"}]
    run(jet, sources.items(items), sinks.json(tmp_path))
    lines = (tmp_path / "0.json").read_text() + (tmp_path / "1.json").read_text()
    assert sorted((json.loads(line) for line in lines.splitlines()), key=repr) == [
        5,
        [1, [2]],
        {"1": "ü"},
        {"carrier": "A", "day": "2024-01-01", "delayed": False},
        {"x": [0, 1]},
    ]
    with pytest.raises(JobFailedError, match=r"cannot be written as JSON.*object"):
        run(jet, sources.items([{"fine": 1}, {"bad": object()}]), sinks.json(tmp_path / "bad"))
    eventually(lambda: names(tmp_path / "bad") == [])


def test_rows_and_batches_do_not_mix(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    with pytest.raises(JobFailedError, match="rows or of batches"):
        dag = dag_of(sources.items([Batch({"a": [1]}), {"a": 1}]), sinks.csv(tmp_path / "out"))
        dag.vertex("files(out)").local_parallelism = 1
        jet.new_job(dag).run(60)


# -- names -------------------------------------------------------------------------------------------------------------


def test_files_are_replaced_and_others_stay(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    (tmp_path / "0").write_text("old")
    (tmp_path / "other").write_text("other")
    run(jet, sources.items([]), sinks.files(tmp_path))
    assert names(tmp_path) == ["0", "1", "other"]
    assert (tmp_path / "0").read_text() == ""


def test_a_failed_job_leaves_nothing(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    def fail(index: int, count: int) -> Iterator[str]:
        yield from map(str, range(100_000))
        raise RuntimeError("too much")

    (tmp_path / "0").write_text("old")
    with pytest.raises(JobFailedError, match="too much"):
        run(jet, generating(fail), sinks.files(tmp_path, compression="gzip"), sinks.files(tmp_path))
    eventually(lambda: names(tmp_path) == ["0"])
    assert (tmp_path / "0").read_text() == "old"


def test_a_file_that_is_written_has_no_name_when_another_branch_fails(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any
) -> None:
    """One branch is through long before the other fails."""
    slow = sinks.builder("slow", lambda _: 0).receive_fn(lambda *_: None).destroy_fn(lambda zero: 1 // zero).build()
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        run(jet, sources.items(["a"]), sinks.files(tmp_path / "out"), slow)
    eventually(lambda: names(tmp_path / "out") == [])


def test_a_cancelled_job_leaves_nothing(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    execution = jet.new_job(dag_of(endless(), sinks.files(tmp_path))).execute()
    eventually(lambda: any(path.stat().st_size for path in tmp_path.iterdir()))
    assert all(name.startswith(".") for name in names(tmp_path))
    execution.cancel()
    with pytest.raises(CancelledError):
        execution.result(60)
    eventually(lambda: names(tmp_path) == [])


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_leaves_no_part_under_a_final_name(
    jet: shmjet.JetInstance, tmp_path: Path, eventually: Any, victim: int
) -> None:
    execution = jet.new_job(dag_of(endless(), sinks.files(tmp_path, compression="gzip"))).execute()
    eventually(lambda: execution.status is JobStatus.RUNNING and any(p.stat().st_size for p in tmp_path.iterdir()))
    os.kill(jet.cluster.members[0].workers[victim], signal.SIGKILL)
    with pytest.raises(WorkerLostError):
        execution.result(60)
    eventually(lambda: [name for name in names(tmp_path) if not name.startswith(".")] == [])
    assert collected(jet, sources.files(tmp_path)) == []  # an unfinished file does not count
    run(jet, sources.items(["fine"]), sinks.files(tmp_path))
    assert collected(jet, sources.files(tmp_path)) == ["fine"]


def test_files_have_their_names_when_run_returns(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    for round_ in range(10):
        run(jet, sources.items([f"{round_}"]), sinks.files(tmp_path))
        assert collected(jet, sources.files(tmp_path)) == [f"{round_}"]


def test_a_folder_that_cannot_be_made_is_named(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JobFailedError, match="file/below") as caught:
        run(jet, sources.items([1]), sinks.files(tmp_path / "file" / "below"))
    assert isinstance(caught.value.cause, NotADirectoryError)


def test_a_name_that_is_taken_by_a_folder_fails_the_job(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    with pytest.raises(JobFailedError, match="Is a directory"):
        run(jet, sources.items([1]), sinks.files(tmp_path))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_fails_the_job(jet: shmjet.JetInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(Folder):
        def open_new(self, name: str) -> Any:
            super().open_new(name).close()
            return open("/dev/full", "wb")

    monkeypatch.setattr(sys.modules["shmjet.sinks.files"], "Folder", Full)
    with pytest.raises(JobFailedError, match="No space left"):
        run(jet, sources.items(["x"]), sinks.files(tmp_path))


def test_a_folder_behind_a_url(jet: shmjet.JetInstance, tmp_path: Path, eventually: Any) -> None:
    pytest.importorskip("fsspec")
    run(jet, sources.items(range(100)), sinks.files(f"local://{tmp_path}/a b", compression="gzip"))
    assert names(tmp_path / "a b") == ["0.gz", "1.gz"]
    lines = b"".join(gzip.decompress(path.read_bytes()) for path in (tmp_path / "a b").iterdir())
    assert len(lines.splitlines()) == 100
    found = collected(jet, sources.files(f"local://{tmp_path}/a b/"))
    assert sorted(map(int, found)) == list(range(100))
    failing = sinks.files(f"local://{tmp_path}/bad", lambda item: 1 // item)  # type: ignore[arg-type, return-value]
    with pytest.raises(JobFailedError, match="ZeroDivisionError"):
        run(jet, sources.items([0]), failing)
    eventually(lambda: names(tmp_path / "bad") == [])


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: sinks.files(""), TypeError, "non-empty"),
        (lambda: sinks.files(3), TypeError, "got 3"),
        (lambda: sinks.files("a", 3), TypeError, "callable"),
        (lambda: sinks.files("a", format="xml"), ValueError, "xml"),
        (lambda: sinks.files("a", repr, format="json"), ValueError, "to_string_fn"),
        (lambda: sinks.files("a", columns=["x"]), ValueError, "columns"),
        (lambda: sinks.csv("a", ["x", "x"]), ValueError, "different"),
        (lambda: sinks.csv("a", "xy"), ValueError, "different"),
        (lambda: sinks.csv("a", delimiter="xx"), ValueError, "delimiter"),
        (lambda: sinks.files("a", charset="utf-16"), ValueError, "utf-16"),
        (lambda: sinks.files("a", charset="klingon"), LookupError, "klingon"),
        (lambda: sinks.files("a", format="json", charset="latin-1"), ValueError, "UTF-8"),
        (lambda: sinks.json("a", compression="rar"), ValueError, "rar"),
    ],
)
def test_wrong_arguments_are_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_sink_is_a_sink() -> None:
    assert isinstance(sinks.csv("out"), SinkDef)
    assert sinks.csv("/tmp/out").name == "files(out)"
