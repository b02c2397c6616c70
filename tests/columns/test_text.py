"""Splitting, lower-casing and counting of text columns, against `str` and `collections.Counter`."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.columns.text import WordCounts, count_words, lower, split
from shmjet.data.batch import Batch
from shmjet.data.errors import BatchError
from shmjet.data.text import Text

SAMPLES = st.sampled_from(
    ["ΟΔΟΣ", "Σ", "AΣ", "ΑΣ.", "Σ\u0307b", "İZMİR", "ẞ", "Å", "\u212a", "The", "the", " ", "\u2028", "\x85", ""]
)
VALUES = st.lists(st.one_of(st.text(max_size=12), st.lists(SAMPLES, max_size=8).map("".join)), max_size=12)
BROKEN = st.lists(st.one_of(st.binary(max_size=12), st.just("É ΣΣ ".encode())), max_size=12)


def sliced(values: list[str]) -> Text:
    """A Text of the values whose offsets do not begin at 0 and whose data goes on behind them."""
    return Text.of(["before Σ", *values, "behind É"])[1:-1]


def broken(values: list[bytes]) -> Text:
    """A Text of bytes that may be no UTF-8."""
    given = Text.of([b"", *values])
    return Text(given.offsets, given.data)[1:]


def counted(counts: WordCounts, limit: int = 3) -> Counter[str]:
    """All counts; no word comes twice."""
    found: Counter[str] = Counter()
    position = 0
    while position >= 0:
        batch, position = counts.batch(position, limit)
        assert batch.schema == {"word": "text", "count": np.dtype(np.int64)}
        for word, count in batch.tuples():
            assert word not in found
            found[word] = count
    assert len(found) == len(counts)
    return found


@given(VALUES)
def test_split_is_str_split(values: list[str]) -> None:
    words, rows = split(sliced(values))
    assert list(zip(rows.tolist(), words.tolist(), strict=True)) == [
        (i, w) for i, v in enumerate(values) for w in v.split()
    ]


@given(VALUES)
def test_lower_is_str_lower(values: list[str]) -> None:
    assert lower(sliced(values)).tolist() == [value.lower() for value in values]


def test_lower_is_right_for_every_character() -> None:
    characters = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    assert lower(Text.of(characters)).tolist() == [character.lower() for character in characters]


@given(BROKEN)
def test_bytes_that_are_no_utf8_become_replacement_characters(values: list[bytes]) -> None:
    texts = [value.decode("utf-8", "replace") for value in values]
    assert lower(broken(values)).tolist() == [text.lower() for text in texts]
    words, rows = split(broken(values))
    found = (
        [w.tobytes().decode("utf-8", "replace") for w in np.split(words.data, words.offsets[1:-1])]
        if len(words)
        else []
    )
    assert list(zip(rows.tolist(), found, strict=True)) == [(i, w) for i, t in enumerate(texts) for w in t.split()]
    assert Counter(dict(count_words(broken(values)).tuples())) == Counter(w for t in texts for w in t.lower().split())


@given(VALUES, VALUES, st.booleans())
def test_counts_are_those_of_a_counter(some: list[str], more: list[str], lower: bool) -> None:
    counts = WordCounts(lower=lower)
    counts.add(sliced(some))
    expected = Counter(word for value in some for word in (value.lower() if lower else value).split())
    assert counted(counts) == expected
    counts.add(sliced(more))  # after an export
    expected.update(word for value in more for word in (value.lower() if lower else value).split())
    assert counted(counts, 1000) == expected


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_merged_counts_are_the_sum(parts: list[list[str]]) -> None:
    total = WordCounts()
    for part in parts:
        counts = WordCounts()
        counts.add(sliced(part))
        position = 0
        while position >= 0:
            batch, position = counts.batch(position, 2)
            total.merge(batch)
    assert counted(total) == Counter(word for part in parts for value in part for word in value.lower().split())


@pytest.mark.parametrize("values", [[], [""], [" \n\u3000"], ["", ""]])
def test_text_without_words(values: list[str]) -> None:
    words, rows = split(Text.of(values))
    assert (len(words), len(rows), words.tolist()) == (0, 0, [])
    assert lower(Text.of(values)).tolist() == values
    assert count_words(Text.of(values)).to_dict() == {"word": [], "count": []}


def test_nulls_have_no_words() -> None:
    batch = Batch({"line": ["a b", None, "b"]})
    words, rows = split(batch["line"], batch.validity("line"))
    assert (words.tolist(), rows.tolist()) == (["a", "b", "b"], [0, 0, 2])
    valid = np.array([True, False, False])
    assert dict(count_words(batch["line"], valid).tuples()) == {"a": 1, "b": 1}


def test_words_and_rows_take_the_other_columns_along() -> None:
    batch = Batch({"line": ["to be", "or"], "number": [1, 2]})
    words, rows = split(batch["line"])
    exploded = Batch({"word": words, "number": batch["number"][rows]})
    assert list(exploded.tuples()) == [("to", 1), ("be", 1), ("or", 2)]


def test_a_step_of_folding_is_bounded() -> None:
    counts = WordCounts()
    counts.add(Text.of([f"É{i}" for i in range(100)]))
    steps = 1
    while not counts.fold(10):
        steps += 1
    assert (steps, len(counts)) == (10, 100)


def test_batches_are_bounded_in_rows_and_bytes() -> None:
    counts = WordCounts()
    counts.add(Text.of([" ".join("x" * n for n in range(1, 50))]))
    position = rows = 0
    while position >= 0:
        batch, position = counts.batch(position, 10, most=40)
        assert 1 <= batch.num_rows <= 10
        assert batch["word"].offsets[-1] <= 40 or batch.num_rows == 1
        rows += batch.num_rows
    assert rows == 49


@pytest.mark.parametrize("function", [split, lower, count_words, WordCounts().add])
def test_only_text_will_do(function: Any) -> None:
    with pytest.raises(BatchError, match=r"the column holds bytes; Text\("):
        function(Text.of([b"raw"]))
    with pytest.raises(BatchError, match=r"a column of text .* is needed, got list"):
        function(["text"])


def test_merge_wants_words_and_whole_counts() -> None:
    counts = WordCounts()
    with pytest.raises(BatchError, match="there is no column 'word'"):
        counts.merge(Batch({"w": ["a"], "count": [1]}))
    with pytest.raises(BatchError, match="'word' must hold text, got int64"):
        counts.merge(Batch({"word": [1], "count": [1]}))
    with pytest.raises(BatchError, match="'count' must hold integers up to int64, got float64"):
        counts.merge(Batch({"word": ["a"], "count": [1.5]}))
    with pytest.raises(BatchError, match="'count' has nulls"):
        counts.merge(Batch({"word": ["a", "b"], "count": [1, None]}))
    counts.merge(Batch({"w": ["a", None], "n": np.array([3, 4], np.int8)}), "w", "n")
    assert counted(counts) == {"a": 3}
