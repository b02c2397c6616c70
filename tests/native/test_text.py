"""The native text kernels and `WordTable`, against Python's own `split`, `lower` and `Counter`."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native._columns import WordTable, text_lower, text_split, text_split_size

if TYPE_CHECKING:
    from shmjet._native._columns import Column

SPACES = [chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()]
PIECES = st.sampled_from([*SPACES, "a", "Word", "É", "Σ", "İ", "seventeen-letters", "exactly-16-bytes", "\0", "漢字"])
RAW = st.lists(
    st.one_of(
        st.binary(max_size=4),
        PIECES.map(str.encode),
        st.sampled_from([b"\xe2", b"\xe2\x80", b"\xc2", b"\xe3\x80", b"\x80", b"\xed\xa0\x80", b" " * 70, b"x" * 70]),
    ),
    max_size=60,
).map(b"".join)


def column(*values: bytes) -> Column:
    """A text column with something before and behind the values."""
    offsets = np.cumsum([3, *map(len, values)]).astype(np.int64)
    return "t", 0, len(values), b"\xe2\x80\x83" + b"".join(values) + b"\xe2\x80", offsets, None


def exported(table: WordTable, rows: int = 1000, *share: int) -> Counter[bytes]:
    """All words and counts of a table; no word comes twice."""
    found: Counter[bytes] = Counter()
    position = 0
    while position >= 0:
        data, offsets, counts, position = table.export(position, rows, 1 << 20, *share)
        ends = np.frombuffer(offsets, np.int64).tolist()
        amounts = np.frombuffer(counts, np.int64).tolist()
        assert len(amounts) == len(ends) - 1 <= rows
        for (start, end), amount in zip(pairwise(ends), amounts, strict=True):
            assert data[start:end] not in found
            found[data[start:end]] = amount
    return found


def words_of(raw: bytes) -> list[bytes]:
    """What `str.split` finds, as the bytes that were there."""
    text = raw.decode("utf-8", "surrogateescape")
    return [word.encode("utf-8", "surrogateescape") for word in text.split()]


def folded(word: bytes) -> bytes:
    """ASCII letters in lower case."""
    return bytes(byte + 32 if 65 <= byte <= 90 else byte for byte in word)


@given(st.lists(RAW, max_size=4))
def test_split_finds_the_words_of_str_split(values: list[bytes]) -> None:
    count, size = text_split_size(column(*values))
    data, ends, rows = np.zeros(size, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
    text_split(column(*values), data, ends, rows)
    found = [data[a:b].tobytes() for a, b in pairwise([0, *ends.tolist()])]
    assert list(zip(rows.tolist(), found, strict=True)) == [(i, w) for i, v in enumerate(values) for w in words_of(v)]


def test_every_white_space_character_separates_and_no_other_does() -> None:
    text = "".join(f"a{chr(code)}b " for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    count, size = text_split_size(column(text.encode()))
    assert (count, size) == (len(text.split()), len("".join(text.split()).encode()))


@given(st.lists(RAW, max_size=4))
def test_lower_folds_ascii_and_names_the_values_with_more(values: list[bytes]) -> None:
    data, other = np.zeros(sum(map(len, values)), np.uint8), np.zeros(len(values), np.bool_)
    assert text_lower(column(*values), data, other) == other.sum()
    assert other.tolist() == [not value.isascii() for value in values]
    assert data.tobytes() == b"".join(map(folded, values))


@given(st.lists(RAW, max_size=4), st.booleans())
def test_a_table_counts_what_a_counter_counts(values: list[bytes], lower: bool) -> None:
    table = WordTable(lower, 42)
    table.add(column(*values))
    expected = Counter(folded(word) if lower else word for value in values for word in words_of(value))
    assert len(table) == sum(word.isascii() for word in expected)
    assert table.raw == sum(not word.isascii() for word in expected)
    raw = table.take_raw()
    assert table.raw == 0
    assert exported(table, 3) + exported(raw, 1) == expected


@given(RAW, st.data())
def test_blocks_cut_anywhere_count_each_word_once(raw: bytes, data: st.DataObject) -> None:
    table = WordTable()
    at = 0
    while at < len(raw):
        stop = data.draw(st.integers(at + 1, len(raw)))
        limit = data.draw(st.integers(at + 1, stop))
        following = table.add_block(raw[:stop], at, limit, stop, stop == len(raw))
        while following == at:  # a word that goes on
            stop = min(2 * stop, len(raw))
            following = table.add_block(raw[:stop], at, limit, stop, stop == len(raw))
        at = following
    assert exported(table) + exported(table.take_raw()) == Counter(map(folded, words_of(raw)))


@given(st.dictionaries(st.binary(max_size=20), st.integers(-(2**31), 2**31)), st.integers(1, 9))
def test_merged_words_are_taken_as_they_are_and_shares_are_disjoint(counts: dict[bytes, int], shares: int) -> None:
    table = WordTable(True, 5)
    for _ in range(2):
        table.merge(column(*counts), np.array(list(counts.values()), np.int64))
    parts = [exported(table, 2, share, shares) for share in range(shares)]
    assert sum(map(len, parts)) == len(table) == len(counts)
    assert {word: n for part in parts for word, n in part.items()} == {word: 2 * n for word, n in counts.items()}


def test_tables_of_one_seed_agree_on_shares() -> None:
    small, large = WordTable(True, 9), WordTable(True, 9)
    small.add(column(b"some words"))
    large.add(column(b"some words", b" ".join(b"%d" % i for i in range(20_000))))
    for share in range(3):
        assert set(exported(small, 10, share, 3)) <= set(exported(large, 9999, share, 3))


def test_nulls_have_no_words() -> None:
    kind, itemsize, rows, data, offsets, _ = column(b"a", b"b", b"a")
    valid = np.array([True, False, True])
    masked: Column = (kind, itemsize, rows, data, offsets, valid)
    assert text_split_size(masked) == (2, 2)
    table = WordTable()
    table.add(masked)
    table.merge(masked, np.array([10, 10, 10], np.int64))
    assert exported(table) == {b"a": 22}


def test_a_table_that_grows_while_blocks_are_added_has_every_word_once() -> None:
    words = [b"%x" % (i * 0x9E3779B97F4A7C15 % 2**64) for i in range(300_000)]
    text = b" ".join(words)
    table, at = WordTable(), 0
    while at < len(text):
        at = table.add_block(text, at, min(at + 16384, len(text)), len(text), True)
    assert exported(table) == dict.fromkeys(words, 1)


def test_a_word_of_megabytes_is_one_word() -> None:
    word = b"Ab" * 3_000_000
    table = WordTable()
    assert table.add_block(word + b" ", 0, len(word) + 1, len(word) + 1, False) >= len(word)
    assert table.add_block(word, 0, len(word), len(word), False) == 0
    assert table.add_block(word, 0, len(word), len(word), True) == len(word)
    assert exported(table) == {word.lower(): 2}


def test_counts_and_arguments_that_do_not_fit_are_refused() -> None:
    table = WordTable()
    most = np.array([2**63 - 1], np.int64)
    table.merge(column(b"a"), most)
    with pytest.raises(OverflowError, match="64 bits"):
        table.merge(column(b"a"), most)
    with pytest.raises(ValueError, match="counts has 0 bytes, but needs 8"):
        table.merge(column(b"a"), b"")
    with pytest.raises(TypeError, match=r"text is needed.*'i'"):
        table.add(("i", 8, 0, b"", None, None))
    for arguments in ((-1, 1, 1), (2, 1, 1), (0, 2, 1), (0, 0, 9)):
        with pytest.raises(ValueError, match="no text from"):
            table.add_block(b"text", *arguments, True)
    for position, rows, share, shares in ((-1, 1, 0, 1), (0, 0, 0, 1), (0, 1, 1, 1)):
        with pytest.raises(ValueError, match="no share"):
            table.export(position, rows, 1, share, shares)
    with pytest.raises(ValueError, match="ends has 0 bytes, but needs 8"):
        text_split(column(b"a"), np.zeros(1, np.uint8), np.zeros(0, np.int64), np.zeros(1, np.int64))
