"""Files as sources: every format, packed and plain, here and behind URLs, good and bad."""

from __future__ import annotations

import bz2
import contextlib
import csv
import dataclasses
import functools
import gzip
import importlib
import json
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmjet
from shmjet import Batch, BatchError, JobFailedError, sources
from shmjet.processors.files.compression import UnpackedStream, compression_of
from shmjet.processors.files.record_text import BadLineError, JsonLines, split_lines
from tests.examples import examples
from tests.sources.running import collected, read

ODD = ["ein wort", "", "zwei  wörter", "日本語", " mit Rand ", "ende"]


def zstd(data: bytes) -> bytes:
    module = pytest.importorskip("zstandard")
    return bytes(module.ZstdCompressor().compress(data))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": functools.partial(bz2.compress, compresslevel=1),
    ".xz": functools.partial(lzma.compress, preset=0),
    ".zst": zstd,
}


@pytest.fixture(params=list(PACKERS), ids=lambda suffix: suffix or "plain")
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, bytes], Path]:
    """Write a file, packed in one of all ways."""

    def write(name: str, data: bytes) -> Path:
        path = tmp_path / f"{name}{request.param}"
        path.write_bytes(PACKERS[request.param](data))
        return path

    return write


# -- lines -------------------------------------------------------------------------------------------------------------


def test_lines(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("a text.txt", "\n".join(ODD).encode())
    assert read(sources.files(path)) == ODD
    assert read(sources.files(path, with_path=True)) == [(str(path), line) for line in ODD]


def test_lines_of_a_large_file(packed: Callable[[str, bytes], Path]) -> None:
    lines = [f"line {number} {'x' * (number % 300)}" for number in range(10_000)]
    path = packed("large", "".join(f"{line}\r\n" for line in lines).encode())
    assert sorted(read(sources.files(path))) == sorted(lines)


def test_a_line_longer_than_any_piece(packed: Callable[[str, bytes], Path]) -> None:
    lines = ["short", "x" * 1_000_000, "short again"]
    assert sorted(read(sources.files(packed("long", "\n".join(lines).encode())))) == sorted(lines)


def test_an_empty_file_has_no_lines(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("empty", b"")
    assert read(sources.files(path)) == []
    assert read(sources.json(path)) == []
    assert read(sources.files(path, "raw")) == [b""]
    assert read(sources.csv(path, {"a": "int64"})) == []


def test_another_charset(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("latin", "größe\nmaß".encode("latin-1"))
    assert read(sources.files(path, charset="latin-1")) == ["größe", "maß"]
    assert read(sources.files(path)) == ["gr\ufffd\ufffde", "ma\ufffd"]
    with pytest.raises(UnicodeDecodeError):
        read(sources.files(path, errors="strict"))


@examples(30)
@given(st.lists(st.text(alphabet="ab\r\n", max_size=30), max_size=30), st.sampled_from([".gz", ""]))
def test_lines_end_as_in_text_mode(tmp_path_factory: pytest.TempPathFactory, parts: list[str], suffix: str) -> None:
    text = "".join(parts)
    path = tmp_path_factory.mktemp("lines") / f"f{suffix}"
    path.write_bytes(PACKERS[suffix](text.encode()))
    expected = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert read(sources.files(path), 1) == (expected[:-1] if not expected[-1] else expected)


def test_folders_and_globs_on_the_engine(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "one.txt").write_text("1\n")
    (tmp_path / "a b" / "zwei äö.txt").write_text("2\n")
    (tmp_path / "a b" / "drei\n.txt.gz").write_bytes(gzip.compress(b"3\n"))
    (tmp_path / "a b" / "other.log").write_text("4\n")
    (tmp_path / ".0.job.unfinished").write_text("half a re")
    assert sorted(collected(jet, sources.files(tmp_path))) == ["1", "2", "3", "4"]
    assert sorted(collected(jet, sources.files(f"{tmp_path}/**/*.txt*"))) == ["1", "2", "3"]
    assert sorted(collected(jet, sources.files([tmp_path / "one.txt", f"{tmp_path}/*/*.log"]))) == ["1", "4"]
    assert collected(jet, sources.files(tmp_path / ".0.job.unfinished")) == ["half a re"]


def test_a_file_given_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n")
    assert read(sources.files([tmp_path / "a", tmp_path, f"{tmp_path}/*"])) == ["1"]


# -- JSON --------------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [{"a": 1, "ü": [1.5, None, True]}, [], "text", 10**40, -0.0, {}, False, {"n": {"m": "\n"}}]


def test_json(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("v.jsonl", "\n".join(json.dumps(value, ensure_ascii=False) for value in VALUES).encode())
    assert read(sources.json(path)) == VALUES
    assert read(sources.json(path, with_path=True)) == [(str(path), value) for value in VALUES]


def test_json_with_a_byte_order_mark_empty_lines_and_nan(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("v.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n[NaN, Infinity]\n')
    first, second = read(sources.json(path))
    assert first == {"a": 1}
    assert second[0] != second[0]
    assert second[1] == float("inf")


def test_json_on_the_engine(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    for part in range(3):
        (tmp_path / f"{part}.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(part, 90_000, 3)))
    assert sorted(value["n"] for value in collected(jet, sources.json(f"{tmp_path}/*.json"))) == list(range(90_000))


TOKENS = ["{}", "[]", "1", "-2.5", '"a,"', '"}"', '{"a": 1}', "[1, 2]", "{", "}", "[", "]", ",", ":", "null", "true"]
SPACES = [" ", "\t", "\n", "\n", "\n", "\n", "\r", "\r\n"]


def test_json_lines_are_those_of_python() -> None:
    rng = random.Random(7)
    lines = JsonLines(None, "utf-8", "strict")
    good = 0
    for _ in range(20_000):
        text = "".join(rng.choice(rng.choice((TOKENS, SPACES))) for _ in range(rng.randint(0, 9)))
        try:
            expected = [json.loads(line) for line in split_lines(text.encode(), "utf-8", "strict") if line.strip()]
        except ValueError:
            expected = [None]
        if None in expected:
            with pytest.raises(BadLineError):
                lines.decode(text.encode())
        else:
            assert lines.decode(text.encode()) == expected
            good += bool(expected)
    assert good > 1000


@pytest.mark.parametrize(
    "bad", ['{"a": 1', "{'a': 1}", "nothing", '{"a": 1}}', "{} {}", '{"a":\n1}', "[1\n]\n1 2", "null"]
)
def test_a_bad_line_is_named(packed: Callable[[str, bytes], Path], bad: str) -> None:
    path = packed("bad.jsonl", ("".join(f'{{"n": {n}}}\n' for n in range(30_000)) + f"\n{bad}\n1\n").encode())
    with pytest.raises(ValueError, match=f"line 30002: .*{'null' if bad == 'null' else 'JSON'}") as caught:
        read(sources.json(path))
    assert str(path) in str(caught.value)


def test_a_bad_line_fails_the_job(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(JobFailedError, match=r"bad\.jsonl, line 2") as caught:
        collected(jet, sources.json(path))
    assert isinstance(caught.value.cause, ValueError)


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


def test_json_as_a_type(packed: Callable[[str, bytes], Path]) -> None:
    good = packed("good.jsonl", b'{"x": 1}\n{"x": 2, "y": 3}\n')
    assert read(sources.json(good, Point)) == [Point(1), Point(2, 3.0)]
    bad = packed("bad.jsonl", b'{"x": 1}\n{"x": "one"}\n')
    with pytest.raises(ValueError, match=r"line 2: Expected `int`, got `str`"):
        read(sources.json(bad, Point))


# -- raw ---------------------------------------------------------------------------------------------------------------


def test_raw_gives_whole_files(packed: Callable[[str, bytes], Path], jet: shmjet.JetInstance) -> None:
    data = os.urandom(300_000)
    path = packed("blob", data)
    assert collected(jet, sources.files(path, "raw")) == [data]
    assert collected(jet, sources.files(path, "raw", with_path=True)) == [(str(path), data)]


# -- CSV ---------------------------------------------------------------------------------------------------------------

TABLE = 'id,name,score,day\n1,"Ada, Countess",2.5,1815-12-10\n2,"line\nbreak",,1912-06-23\n3,"say ""hi""",-1e3,\n'
ROWS = [
    {"id": 1, "name": "Ada, Countess", "score": 2.5},
    {"id": 2, "name": "line\nbreak", "score": None},
    {"id": 3, "name": 'say "hi"', "score": -1000.0},
]
SCHEMA = {"id": "int64", "name": "text", "score": "float64", "day": "datetime64[D]"}


def test_csv_rows(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("t.csv", TABLE.encode())
    columns = ["id", "name", "score"]
    assert read(sources.csv(path, SCHEMA, columns=columns)) == ROWS
    assert read(sources.csv(path, columns=columns)) == ROWS  # types are inferred
    assert read(sources.csv(path, SCHEMA, columns=columns, with_path=True)) == [(str(path), row) for row in ROWS]
    assert str(read(sources.csv(path, columns=["day"]))[0]["day"]) == "1815-12-10"


def test_csv_of_a_byte_order_mark_alone_is_empty(packed: Callable[[str, bytes], Path]) -> None:
    for content in (b"\xef\xbb\xbf", b""):
        path = packed("t.csv", content)
        assert read(sources.csv(path)) == read(sources.csv(path, SCHEMA)) == []
        assert read(sources.csv(path, as_=Batch)) == []


def test_csv_batches(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("t.csv", TABLE.encode())
    source = sources.csv(path, SCHEMA, columns=["id", "name", "score"], as_=Batch)
    assert source.columnar
    batches = read(source)
    assert [row for batch in batches for row in batch.rows()] == ROWS
    marked = read(sources.csv(path, SCHEMA, columns=["id"], as_=Batch, with_path=True))
    assert [row for batch in marked for row in batch.rows()] == [{"id": n, "path": str(path)} for n in (1, 2, 3)]


def test_csv_as_a_type(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("p.csv", b"x,y\n1,2\n3,4.5\n")
    assert read(sources.csv(path, as_=Point)) == [Point(1, 2.0), Point(3, 4.5)]
    with pytest.raises(ValueError, match="not a valid Point"):
        read(sources.csv(packed("q.csv", b"y\n2\n"), as_=Point))


def test_csv_on_the_engine_is_what_pythons_module_reads(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    rows = [(str(n), "a,b" * (n % 3), 'q"' * (n % 2), "x\ny" if n % 1000 == 0 else "z") for n in range(60_000)]
    for suffix, some in (("", rows[:40_000]), (".gz", rows[40_000:])):
        plain = tmp_path / "part.csv"
        with plain.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([("id", "a", "b", "c"), *some])
        if suffix:
            Path(f"{plain}{suffix}").write_bytes(gzip.compress(plain.read_bytes()))
        else:
            plain.rename(tmp_path / "first.csv")
    (tmp_path / "part.csv").unlink()
    source = sources.csv(tmp_path, dict.fromkeys(("id", "a", "b", "c"), "text"), nulls=())
    found = sorted((tuple(row.values()) for row in collected(jet, source)), key=lambda row: int(row[0]))
    assert found == rows


def test_a_bad_record_is_named(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("bad.csv", b"a,b\n1,2\n3,four\n")
    with pytest.raises(BatchError, match=r"line 3, column 'b'.*four") as caught:
        read(sources.csv(path, {"a": "int64", "b": "int64"}))
    assert str(caught.value).startswith(str(path))
    assert read(sources.csv(path, {"a": "int64", "b": "int64"}, on_bad_line="skip")) == [{"a": 1, "b": 2}]


def test_lines_as_batches(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("t.txt", "eins\nzwölf\n".encode())
    batches = read(sources.files(path, as_=Batch, with_path=True))
    assert [row for batch in batches for row in batch.rows()] == [
        {"line": line, "path": str(path)} for line in ("eins", "zwölf")
    ]


# -- what cannot be read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("format_", ["lines", "csv"])
def test_a_packed_file_cut_short_is_named(jet: shmjet.JetInstance, tmp_path: Path, suffix: str, format_: Any) -> None:
    whole = PACKERS[suffix](b"a\n" + os.urandom(300_000).hex().encode())
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(whole[:-20_000])
    schema = {"a": "text"} if format_ == "csv" else None
    with pytest.raises(JobFailedError, match=f"cut{suffix}"):
        collected(jet, sources.files(path, format_, schema=schema))


def test_packed_parts_one_behind_the_other_are_one_file(packed: Callable[[str, bytes], Path]) -> None:
    path = packed("parts", b"1\n2")
    path.write_bytes(path.read_bytes() * 2)
    assert read(sources.files(path)) == ["1", "21", "2"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@pytest.mark.parametrize("tail", ["garbage", "damaged part", "part cut short"])
def test_what_follows_a_packed_part_is_read_or_refused(tmp_path: Path, suffix: str, tail: str) -> None:
    whole = PACKERS[suffix](b"1\n" * 100_000)
    path = tmp_path / f"parts{suffix}"
    path.write_bytes(
        whole + {"garbage": b"garbage", "damaged part": b"\1" + whole[1:], "part cut short": whole[:3]}[tail]
    )
    with pytest.raises(OSError, match="not a whole") as caught:
        read(sources.files(path))
    assert caught.value.filename == str(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_zeros_behind_a_packed_part_are_padding(tmp_path: Path, suffix: str) -> None:
    whole = PACKERS[suffix](b"1\n")
    path = tmp_path / f"padded{suffix}"
    path.write_bytes(whole + bytes(200_000) + whole + bytes(512))
    assert read(sources.files(path)) == ["1", "1"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_small_packed_file_of_much_text_takes_little_memory(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"zeros{suffix}"
    path.write_bytes(PACKERS[suffix](bytes(20 << 20)))
    pieces = []
    with contextlib.closing(UnpackedStream(path.open("rb"), compression_of(str(path)), str(path))) as stream:
        while piece := stream.read(1 << 16):
            pieces.append(len(piece))
    assert sum(pieces) == 20 << 20
    assert max(pieces) <= 1 << 16


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("lines", {}),
        ("lines", {"as_": Batch}),
        ("json", {}),
        ("csv", {"schema": {"a": "int64"}}),
        ("csv", {"as_": Batch, "schema": {"a": "int64"}}),
        ("csv", {"as_": Batch, "schema": {"a": "int64"}, "quote": None}),
    ],
)
@pytest.mark.parametrize("left", [0, 100_000, 100_003])
def test_a_file_that_becomes_shorter_loses_no_rows_in_silence(
    tmp_path: Path, format_: Any, options: dict[str, Any], left: int
) -> None:
    path = tmp_path / "shrunk"
    path.write_text("a\n" * (format_ == "csv") + "12345\n" * 100_000)

    def shrink() -> None:
        os.truncate(path, left)

    with pytest.raises((OSError, BatchError), match=r"had 60000. bytes when the job began|shrunk, line") as caught:
        read(sources.files(path, format_, **options), between=shrink)
    assert left or isinstance(caught.value, OSError)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_file_that_is_not_packed_as_its_name_says_is_named(tmp_path: Path, suffix: str) -> None:
    PACKERS[suffix](b"")
    path = tmp_path / f"no{suffix}"
    path.write_text("this is plain text, " * 10)
    with pytest.raises(OSError, match="not a whole") as caught:
        read(sources.files(path))
    assert caught.value.filename == str(path)


def test_what_does_not_exist_is_named(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    for missing in (tmp_path / "nowhere" / "a.txt", f"{tmp_path}/*.nothing"):
        with pytest.raises(JobFailedError, match=str(Path(missing).name).replace("*", r"\*")) as caught:
            collected(jet, sources.files(missing))
        assert isinstance(caught.value.cause, FileNotFoundError)


def test_a_file_that_vanishes_is_named(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    (tmp_path / "link.gz").symlink_to(tmp_path / "nowhere.gz")
    with pytest.raises(JobFailedError, match=r"link\.gz"):
        collected(jet, sources.files(tmp_path / "link.gz"))


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = tmp_path / "secret.gz"
    path.write_bytes(gzip.compress(b"x"))
    path.chmod(0)
    with pytest.raises(PermissionError, match=r"secret\.gz"):
        read(sources.files(path))


# -- arguments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"paths": []}, ValueError, "no paths"),
        ({"paths": [3]}, TypeError, "got 3"),
        ({"paths": 3}, TypeError, "got 3"),
        ({"paths": b"a"}, TypeError, "got b'a'"),
        ({"paths": ""}, TypeError, "non-empty"),
        ({"paths": "a", "format": "parquet"}, ValueError, "parquet"),
        ({"paths": "a", "format": "raw", "as_": Batch}, TypeError, "raw"),
        ({"paths": "a", "as_": dict}, TypeError, "lines"),
        ({"paths": "a", "columns": ["a"]}, ValueError, "columns"),
        ({"paths": "a", "charset": "utf-16"}, ValueError, "utf-16"),
        ({"paths": "a", "charset": "klingon"}, LookupError, "klingon"),
        ({"paths": "a", "errors": "shrug"}, LookupError, "shrug"),
        ({"paths": "a", "format": "csv", "delimiter": ",,"}, ValueError, "delimiter"),
        ({"paths": "a", "format": "csv", "schema": {"a": "nothing"}}, BatchError, "nothing"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        sources.files(**arguments)


# -- URLs --------------------------------------------------------------------------------------------------------------


def test_files_behind_urls_on_the_engine(jet: shmjet.JetInstance, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b" / "x.txt").write_text("1\n2\n")
    (tmp_path / "a b" / "y.txt.gz").write_bytes(gzip.compress(b"3\n"))
    (tmp_path / "t.csv").write_text(TABLE)
    assert sorted(collected(jet, sources.files(f"local://{tmp_path}/a b/*.txt*"))) == ["1", "2", "3"]
    assert sorted(collected(jet, sources.files([f"local://{tmp_path}/a b", tmp_path / "a b" / "x.txt"]))) == [
        *("1", "1", "2", "2", "3"),
    ]
    assert collected(jet, sources.csv(f"local://{tmp_path}/t.csv", columns=["id", "name", "score"])) == ROWS
    with pytest.raises(JobFailedError, match="nowhere"):
        collected(jet, sources.files(f"local://{tmp_path}/nowhere.txt"))
    with pytest.raises(JobFailedError, match="nothing matches"):
        collected(jet, sources.files(f"local://{tmp_path}/*.nothing"))


def test_a_file_system_of_this_process_and_a_chain_of_urls(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe({"/logs/a.json": b'{"n": 1}\n', "/logs/sub/b.json.gz": gzip.compress(b'{"n": 2}\n')})
    try:
        assert sorted(row["n"] for row in read(sources.json("memory://logs"))) == [1, 2]
        assert read(sources.json("memory://logs/*.json", with_path=True)) == [("memory:///logs/a.json", {"n": 1})]
        import zipfile

        with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
            archive.writestr("in/a.csv", "n\n7\n")
        assert read(sources.csv(f"zip://in/*.csv::local://{tmp_path}/z.zip")) == [{"n": 7}]
    finally:
        memory.rm("/logs", recursive=True)


@pytest.mark.parametrize(("missing", "path"), [("fsspec", "s3://bucket/a"), ("zstandard", "a.zst")])
def test_a_missing_package_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch, missing: str, path: str) -> None:
    real = importlib.import_module

    def without(name: str, package: str | None = None) -> Any:
        if name in (missing, "compression.zstd"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ModuleNotFoundError, match=f"pip install {missing}$"):
        sources.files(path)
