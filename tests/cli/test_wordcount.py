"""`shmjet wordcount`: counts as `collections.Counter` does, whatever the files are like."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import subprocess
import sys
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.cli.word_pieces import all_pairs, total_of
from shmjet.cli.wordcount import Reading, Tally, most_frequent, split_line, top_lines
from shmjet.columns.words import WordPiece
from tests.cli.conftest import Shmjet, press_ctrl_c, started

COUNTS = st.dictionaries(st.text(max_size=3), st.integers(1, 3))


PIECES = st.lists(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.integers(1, 3)))


def packed(counts: dict[str, int]) -> WordPiece:
    """Counts as the native job leaves them behind."""
    words = [word.encode() for word in counts]
    ends = itertools.accumulate(map(len, words), initial=0)
    return WordPiece(0, b"".join(words), array("q", ends).tobytes(), array("q", counts.values()).tobytes())


@given(PIECES, st.integers(0, 10))
def test_the_top_of_pieces_is_the_top_of_their_words(parts: list[dict[str, int]], top: int) -> None:
    counts: dict[str, int] = {}
    for part in parts:  # a word is in one piece only
        counts.update({word: counts.pop(word, count) for word, count in part.items()})
    pieces = [packed({word: counts.pop(word) for word in part if word in counts}) for part in parts]
    pieces = [piece for piece in pieces if piece.counts]
    everything = most_frequent(all_pairs(pieces), None)
    totals = total_of(pieces, top)
    assert totals.top == everything[:top]
    assert (totals.words, totals.distinct) == (sum(count for _, count in everything), len(everything))


@given(COUNTS, st.integers(0, 10))
def test_the_top_is_the_beginning_of_the_whole_order(counts: dict[str, int], top: int) -> None:
    everything = most_frequent(counts.items(), None)
    assert most_frequent(reversed(counts.items()), top) == everything[:top]
    assert everything == sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def test_the_list_is_aligned_and_shows_control_characters_as_text() -> None:
    lines = list(top_lines([("the", 12345), ("\x1b[31mred", 7), ("naïve", 1)]))
    assert lines == ["12,345  the", "     7  \\x1b[31mred", "     1  naïve"]
    assert list(top_lines([])) == []


def test_the_summary_is_one_line_with_all_the_numbers() -> None:
    tally = Tally(Reading(2, 3_000_000, 1), 1200, 34, 1.5, [("a", 5)])
    assert tally.summary() == (
        "2 files, 3,000,000 bytes, 1,200 words, 34 distinct, 1.50 s, 2.0 MB/s; 1 binary file skipped"
    )
    assert json.loads(tally.to_json()) == {
        "files": 2,
        "bytes": 3_000_000,
        "skipped": 1,
        "words": 1200,
        "distinct": 34,
        "seconds": 1.5,
        "mb_per_s": 2.0,
        "top": [["a", 5]],
    }


def test_what_processors_report_is_added_up() -> None:
    reports = [{"files": 1, "bytes": 10, "skipped": 0}, {"files": 2, "bytes": 5, "skipped": 1}]
    assert Reading.total(reports) == Reading(3, 15, 1)
    assert Reading.total([]) == Reading()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder with everything that files can be like."""
    folder = tmp_path / "corpus"
    (folder / "deeper").mkdir(parents=True)
    (folder / "empty.txt").write_bytes(b"")
    (folder / "plain.txt").write_text("The cat and the hat\nAnd THE dog\n" * 500)
    (folder / "windows.txt").write_bytes(b"one two\r\nthree\rfour")
    (folder / "latin.txt").write_bytes("na\xefve caf\xe9\n".encode("latin-1"))
    (folder / "deeper" / "long.txt").write_text("word " * 60_000)
    (folder / "deeper" / "image.bin").write_bytes(b"GIF89a\0\0 word word")
    return folder


def expected(folder: Path) -> tuple[Counter[str], int]:
    """The words and the bytes of the text files of a folder."""
    counts: Counter[str] = Counter()
    size = 0
    for path in folder.rglob("*.txt"):
        size += path.stat().st_size
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                counts.update(split_line(line))
    return counts, size


FORMS = pytest.mark.parametrize("form", ["--columns", "--objects"])


@FORMS
def test_counts_equal_those_of_a_counter(shmjet: Shmjet, corpus: Path, tmp_path: Path, form: str) -> None:
    counts, size = expected(corpus)
    answer = shmjet("wordcount", corpus, form, "--json", "--top", 5, "--output", tmp_path / "words.tsv")
    assert (answer.returncode, answer.stderr) == (0, "")
    found = json.loads(answer.stdout)
    assert found["top"] == [list(pair) for pair in most_frequent(counts.items(), 5)]
    assert (found["files"], found["bytes"], found["skipped"]) == (5, size, 1)
    assert (found["words"], found["distinct"]) == (counts.total(), len(counts))
    written = [line.split("\t") for line in (tmp_path / "words.tsv").read_text().splitlines()]
    assert [(word, int(count)) for word, count in written] == most_frequent(counts.items(), None)


def test_for_a_person_there_is_a_list_and_a_summary_and_no_progress_without_a_terminal(
    shmjet: Shmjet, corpus: Path
) -> None:
    answer = shmjet("wordcount", corpus / "plain.txt", "--top", 2, "--cores", 1)
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert lines[:2] == ["1,500  the", "1,000  and"]
    size = f"{(corpus / 'plain.txt').stat().st_size:,}"
    assert re.fullmatch(rf"1 file, {size} bytes, 4,000 words, 5 distinct, \d+\.\d\d s, [\d.]+ MB/s", lines[2])
    assert len(lines) == 3


def test_globs_and_files_named_twice_count_once(shmjet: Shmjet, corpus: Path) -> None:
    answer = shmjet("wordcount", corpus / "**/*.txt", corpus / "plain.txt", "--json", "--top", 0)
    found = json.loads(answer.stdout)
    counts, size = expected(corpus)
    assert (found["files"], found["bytes"], found["words"], found["top"]) == (5, size, counts.total(), [])


@pytest.mark.parametrize(("name", "form"), [("empty.txt", "--columns"), ("deeper/image.bin", "--objects")])
def test_files_without_words_are_no_error(shmjet: Shmjet, corpus: Path, name: str, form: str) -> None:
    answer = shmjet("wordcount", corpus / name, form)
    assert answer.returncode == 0
    assert " 0 words, 0 distinct" in answer.stdout


@pytest.mark.parametrize("path", ["no/such/file", "no/such/*.txt"])
def test_a_path_that_is_not_there_is_wrong_usage_and_named(shmjet: Shmjet, tmp_path: Path, path: str) -> None:
    answer = shmjet("wordcount", tmp_path, path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert path in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_an_output_that_cannot_be_written_is_wrong_usage_and_named(shmjet: Shmjet, corpus: Path) -> None:
    answer = shmjet("wordcount", corpus, "--output", "/nonexistent/words")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "shmjet: cannot write /nonexistent/words: No such file or directory\n"


@FORMS
def test_on_a_terminal_there_is_a_progress_bar_that_disappears(
    environment: dict[str, str], tmp_path: Path, form: str
) -> None:
    times = 600_000 if form == "--objects" else 12_000_000
    with (tmp_path / "text").open("w") as file:
        for _ in range(times // 60_000):
            file.write("so many words in a line of text\n" * 60_000)
    ours, theirs = pty.openpty()
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "shmjet", "wordcount", str(tmp_path / "text"), "--top", "1", form],
            stdout=subprocess.PIPE,
            stderr=theirs,
            stdin=subprocess.DEVNULL,
            env={**environment, "TERM": "xterm", "COLUMNS": "120"},
            timeout=60,
            check=True,
        )
        os.set_blocking(ours, False)
        shown = os.read(ours, 1 << 20).decode(errors="replace")  # the buffer may end within a character
    finally:
        os.close(ours)
        os.close(theirs)
    assert "MB" in shown
    assert "words/s" in shown
    assert "busy" in shown
    assert answer.stdout.splitlines()[0] == f"{times:,}  a".encode()


@pytest.mark.parametrize("terminal", [False, True])
def test_ctrl_c_is_back_at_the_prompt_with_one_line(
    environment: dict[str, str], tmp_path: Path, eventually: Callable[..., None], terminal: bool
) -> None:
    text = tmp_path / "long"
    text.write_text("so many words in a line of text\n" * 4_000_000)
    master, slave = pty.openpty() if terminal else os.pipe()
    with started(
        environment, "wordcount", text, "--objects", "--cores", 1, stdout=subprocess.DEVNULL, stderr=slave
    ) as child:
        os.close(slave)
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        eventually(lambda: children.read_text().split())
        press_ctrl_c(child)
        assert child.wait(timeout=60) == 130
    shown = b""
    try:
        while piece := os.read(master, 1 << 16):
            shown += piece
    except OSError:  # a terminal that is closed
        pass
    os.close(master)
    assert b"Traceback" not in shown
    assert shown.replace(b"\r", b"").endswith(b"shmjet: interrupted\n")
    if not terminal:
        assert shown == b"shmjet: interrupted\n"
