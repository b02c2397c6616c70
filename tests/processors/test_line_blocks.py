from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shmjet.processors.files import line_blocks
from shmjet.processors.files.file_blocks import Segment
from shmjet.processors.files.line_blocks import LineReader, check_encoding


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "PIECE", 8)
    monkeypatch.setattr(line_blocks, "BINARY_PROBE", 8)


def read(path: Path, cuts: list[int], reader: LineReader) -> list[str]:
    """Read a file in segments that end at the cuts."""
    size = path.stat().st_size
    bounds = sorted({0, size, *(cut for cut in cuts if cut < size)})
    lines: list[str] = []
    for start, end in itertools.pairwise(bounds):
        reader.open(Segment(str(path), start, end, size))
        while (more := reader.next_lines()) is not None:
            lines += more
    reader.close()
    return lines


def text_mode(data: bytes) -> list[str]:
    """What Python's own text mode makes of the bytes."""
    return [line.removesuffix("\n") for line in io.TextIOWrapper(io.BytesIO(data), "utf-8", "replace")]


pieces = st.sampled_from(
    [b"a", b"bc", "ä€😀".encode(), b"\xff\xe2", b"\n", b"\n", b"\r\n", b"\r", b"\x0c", b"\x1d", b" " * 30]
)


@pytest.mark.usefixtures("small_pieces")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.lists(pieces, max_size=40).map(b"".join), cuts=st.lists(st.integers(1, 60), max_size=5))
def test_segments_give_the_lines_of_text_mode_wherever_they_are_cut(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "segments"
    path.write_bytes(data)
    reader = LineReader(skip_binary=False)
    assert read(path, cuts, reader) == text_mode(data)
    assert reader.bytes == len(data)


@pytest.fixture
def reader() -> Iterator[LineReader]:
    reader = LineReader(skip_binary=True)
    yield reader
    reader.close()


def test_an_empty_file_has_no_lines_and_is_counted(tmp_path: Path, reader: LineReader) -> None:
    path = tmp_path / "empty"
    path.touch()
    reader.open(Segment(str(path), 0, 0, 0))
    assert reader.next_lines() is None
    assert (reader.files, reader.bytes, reader.skipped) == (1, 0, 0)


def test_a_binary_file_is_skipped_and_counted_once(tmp_path: Path, reader: LineReader) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"text\n" * 1000 + b"\0" + b"text\n" * 1000)
    assert read(path, [3000], reader) == []
    assert (reader.files, reader.bytes, reader.skipped) == (0, 0, 1)


def test_a_nul_behind_the_first_8_kib_does_not_make_a_file_binary(tmp_path: Path, reader: LineReader) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * 8191 + b"\n\0\n")
    assert read(path, [], reader) == ["x" * 8191, "\0"]
    assert reader.files == 1


def test_a_line_longer_than_many_pieces_is_one_line(tmp_path: Path, reader: LineReader) -> None:
    path = tmp_path / "long"
    path.write_text("short\n" + "y" * 1_000_000 + "\nend")
    assert read(path, [100, 500_000, 999_999], reader) == ["short", "y" * 1_000_000, "end"]


@pytest.mark.parametrize(("start", "end", "ends"), [(0, 1000, 4), (1000, 2000, 999), (0, 5, 4), (4, 5, 4)])
def test_a_file_that_became_shorter_is_named(
    tmp_path: Path, reader: LineReader, start: int, end: int, ends: int
) -> None:
    path = tmp_path / "shrunk"
    path.write_text("a\nb\n")
    with pytest.raises(OSError, match=rf"had {end} bytes when the job began and ends after {ends} now.*shrunk'"):
        reader.open(Segment(str(path), start, end, end))
        while reader.next_lines() is not None:
            pass


def test_what_is_appended_to_a_file_after_the_job_began_is_not_read(tmp_path: Path, reader: LineReader) -> None:
    path = tmp_path / "grown"
    path.write_text("a\nb\nlater\n")
    reader.open(Segment(str(path), 0, 4, 4))
    assert reader.next_lines() == ["a", "b"]
    assert reader.next_lines() is None


def test_a_missing_file_is_named_and_no_descriptor_is_left(tmp_path: Path, reader: LineReader) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError, match="gone"):
        reader.open(Segment(str(tmp_path / "gone"), 0, 1, 1))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-8-sig"])
def test_an_encoding_that_cannot_be_cut_at_newline_bytes_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError, match=encoding):
        check_encoding(encoding)


def test_latin_1_is_decoded_as_such(tmp_path: Path) -> None:
    path = tmp_path / "latin"
    path.write_bytes("ä\nö".encode("latin-1"))
    assert read(path, [], LineReader("latin-1")) == ["ä", "ö"]
