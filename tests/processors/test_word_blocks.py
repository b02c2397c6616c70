"""Counting the words of segments: wherever a file is cut, each word counts once, as `Counter` counts it."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.columns.words import WordCounter
from shmjet.processors.columns import word_blocks
from shmjet.processors.columns.word_blocks import WordReader
from shmjet.processors.files.file_blocks import Segment
from tests.examples import examples

PIECES = st.sampled_from(
    [b"a", b"Bc", "ä€😀".encode(), b"\xff\xe2", b"\xe2\x80", b"\n", b" ", "\u2003".encode(), "\x85".encode(), b"x" * 40]
    + [b"\xe3\x80\x80", b"\x80", b"\xc2", b" " * 30]
)


def count(path: Path, cuts: list[int], reader: WordReader) -> None:
    """Count a file in segments that end at the cuts."""
    size = path.stat().st_size
    bounds = sorted({0, size, *(cut for cut in cuts if cut < size)})
    for start, end in itertools.pairwise(bounds):
        reader.open(Segment(str(path), start, end, size))
        while reader.next_piece():
            pass
    reader.close()


def counted(counter: WordCounter) -> dict[str, int]:
    """All counts."""
    while not counter.fold():
        pass
    return dict(counter.piece(0, 1 << 30, most=None)[0].pairs())


def expected(data: bytes) -> Counter[str]:
    """What Python's own methods give."""
    return Counter(data.decode("utf-8", "replace").lower().split())


@examples(150)
@given(
    data=st.lists(PIECES, max_size=40).map(b"".join),
    cuts=st.lists(st.integers(1, 100), max_size=6),
    piece=st.integers(8, 40),
    margin=st.integers(1, 20),
)
def test_each_word_counts_once_wherever_files_and_reads_are_cut(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int], piece: int, margin: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "words"
    path.write_bytes(data)
    counter = WordCounter()
    reader = WordReader(counter, skip_binary=False, piece=piece)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_blocks, "MARGIN", margin)
        count(path, cuts, reader)
    assert counted(counter) == expected(data)
    assert reader.report() == {
        "files": bool(data),
        "bytes": len(data),
        "skipped": 0,
        "words": expected(data).total(),
    }


@pytest.mark.parametrize("cut", [1, 4096, 1 << 20, (1 << 20) + 1])
def test_a_word_longer_than_any_buffer_is_one_word(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"short " + b"Long" * (1 << 20))
    counter = WordCounter()
    reader = WordReader(counter)
    count(path, [cut], reader)
    assert counted(counter) == {"short": 1, "long" * (1 << 20): 1}
    assert reader.bytes == path.stat().st_size


def test_a_segment_inside_a_word_reads_no_further_than_its_own_end_and_a_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one-word"
    path.write_bytes(b"x" * 1_000_000)
    read = 0
    preadv = os.preadv

    def counting_preadv(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal read
        got = preadv(fd, buffers, offset)
        read += got
        return got

    monkeypatch.setattr(os, "preadv", counting_preadv)
    reader = WordReader(WordCounter(), skip_binary=False, piece=1024)
    reader.open(Segment(str(path), 10_000, 20_000, 1_000_000))
    while reader.next_piece():
        pass
    reader.close()
    assert read < 12_000
    assert reader.bytes == 10_000


def test_binary_files_are_skipped_and_counted_once(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"GIF89a\0 word word")
    counter = WordCounter()
    reader = WordReader(counter)
    count(path, [5], reader)
    assert (counted(counter), reader.files, reader.bytes, reader.skipped) == ({}, 0, 0, 1)


def test_a_nul_behind_the_probe_is_part_of_a_word(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b" " * (8 << 10) + b"a\0b a")
    counter = WordCounter()
    count(path, [], WordReader(counter))
    assert counted(counter) == {"a\0b": 1, "a": 1}


@pytest.mark.parametrize(("content", "start"), [(b"one two three", 0), (b"one two three", 50), (b"", 0), (b"", 100)])
def test_a_file_that_became_shorter_is_named(tmp_path: Path, content: bytes, start: int) -> None:
    path = tmp_path / "shrunk"
    path.write_bytes(content)
    reader = WordReader(WordCounter())
    reader.open(Segment(str(path), start, start + 50, 150))
    with pytest.raises(OSError, match=r"had 150 bytes when the job began and ends after .*shrunk'"):
        while reader.next_piece():
            pass
    reader.close()


def test_a_file_that_grew_is_read_to_the_end_of_its_last_word(tmp_path: Path) -> None:
    path = tmp_path / "grown"
    path.write_bytes(b"one tw" + b"o" * 1000 + b" three")
    counter = WordCounter()
    reader = WordReader(counter)
    reader.open(Segment(str(path), 0, 6, 6))
    while reader.next_piece():
        pass
    assert counted(counter) == {"one": 1, "tw" + "o" * 1000: 1}


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    reader = WordReader(WordCounter())
    with pytest.raises(FileNotFoundError, match="no-such"):
        reader.open(Segment(str(tmp_path / "no-such"), 0, 1, 1))
