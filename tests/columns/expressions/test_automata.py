"""Automata of regular expressions against `re`."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shmjet import Batch, Text, column
from shmjet.columns.expressions import automata, evaluate
from shmjet.core.expressions.text_functions import checked_pattern
from shmjet.data.errors import BatchError
from tests.examples import examples

pieces = st.sampled_from(
    [
        "a",
        "b",
        ".",
        "[ab]",
        "[^a]",
        "[b-y]",
        r"\d",
        r"\w",
        r"\S",
        "é",
        "[à-ü]",
        "[^é]",
        "^",
        "$",
        r"\A",
        r"\Z",
        r"\b",
        r"\n",
        "K",
        " ",
    ]
)


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "{0}"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, repeats).map(lambda pair: f"({pair[0]}){pair[1]}"),
        inner.map(lambda each: f"(?i:{each})"),
        inner.map(lambda each: f"(?s:{each})"),
    )


patterns = st.recursive(pieces, _joined, max_leaves=8)
letters = "abkKs\u017féÀ\n 1\u212a🙂"
values = st.one_of(
    st.lists(st.text(alphabet=letters, max_size=7), max_size=8),
    st.lists(st.text(alphabet=letters, min_size=4, max_size=30), min_size=8, max_size=20),
)


@examples(400)
@given(patterns, values)
@example("b$", ["b\n", "b\n\n", "b", "bé"])
@example("^$|[\u0100-\u0200]", ["", "\u0150", "a"])
@example("(?i:[^k])", ["K", "K", "k"])
def test_a_pattern_is_found_where_python_finds_it(pattern: str, listed: list[str]) -> None:
    try:
        checked_pattern("contains", pattern, False)
    except BatchError:
        return
    expected = [re.search(pattern, value) is not None for value in listed]
    batch = Batch({"text": Text.of(listed)})
    assert evaluate(column("text").str.contains(pattern), batch).tolist() == expected


@pytest.mark.parametrize(
    "pattern", ["special.*requests", "a|bc", "^PROMO", "[0-9]{4}-[0-9]{2}", "(?i)green", "BRASS$", "x+y"]
)
def test_common_patterns_have_an_automaton(pattern: str) -> None:
    assert automata.compiled(pattern) is not None


@pytest.mark.parametrize("pattern", [r"\bword\b", "(?:[ab]*a[ab]{12})", "a{3000}", "(?m)^a", "(?a)\\w"])
def test_others_are_left_to_python(pattern: str) -> None:
    assert automata.compiled(pattern) is None


def test_a_match_needs_the_literal_of_its_pattern() -> None:
    automaton = automata.compiled("[xy]special.*request")
    assert automaton is not None
    assert automaton.literal in (b"request", b"special")
