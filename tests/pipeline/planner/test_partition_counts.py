"""The three steps to partition counts, each by itself: no pipeline in sight."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet.core import PlanError
from shmjet.pipeline.planner.agreement import check
from shmjet.pipeline.planner.joined_streams import OperatorGraph, joined_streams
from shmjet.pipeline.planner.stream_counts import assign_counts
from shmjet.pipeline.planner.stream_edges import StreamEdge, to_stream_edges

# -- which streams reach which join -----------------------------------------------------------------------------------


def analysed(edges: dict[str, str], streams: str, **roles: Any) -> dict[str, str]:
    """Analyse a graph of operators of one letter each; the streams of a join as one text."""
    for role in ("joins", "ends"):
        roles[role] = frozenset(roles.get(role, ""))
    graph = OperatorGraph(tuple(streams), lambda op: edges.get(op, ""), **roles)
    return {join: "".join(found) for join, found in joined_streams(graph).items()}


def test_both_inputs_reach_a_join() -> None:
    assert analysed({"a": "x", "x": "J", "b": "J"}, "ab", joins="J") == {"J": "ab"}


def test_streams_go_on_behind_a_join() -> None:
    assert analysed({"a": "J", "b": "J", "J": "K", "c": "K"}, "abc", joins="JK") == {"J": "ab", "K": "abc"}


def test_a_walk_ends_where_a_new_stream_begins() -> None:
    edges = {"a": "p", "p": "J", "b": "J"}
    assert analysed(edges, "apb", joins="J", ends="p") == {"J": "pb"}


def test_a_new_stream_does_not_begin_again_in_a_cycle() -> None:
    edges = {"a": "p", "p": "J", "J": "p"}
    assert analysed(edges, "ap", joins="J", ends="p") == {"J": "p"}


def test_what_is_sent_to_a_table_reaches_all_joins_on_it_and_what_follows() -> None:
    edges = {"a": "s", "b": "T", "c": "U", "U": "J", "d": "J"}
    found = analysed(edges, "abcd", joins="J", sends={"s": "t"}, table_joins={"T": "t", "U": "t"})
    assert found == {"T": "ab", "U": "ac", "J": "acd"}


def test_several_streams_may_fill_a_table() -> None:
    edges = {"a": "s", "b": "r", "c": "T"}
    assert analysed(edges, "abc", sends={"s": "t", "r": "t"}, table_joins={"T": "t"}) == {"T": "abc"}


def test_tables_are_told_apart() -> None:
    edges = {"a": "s", "b": "r", "c": "TU"}
    found = analysed(edges, "abc", sends={"s": "t", "r": "u"}, table_joins={"T": "t", "U": "u"})
    assert found == {"T": "ac", "U": "bc"}


def test_a_table_that_is_filled_by_what_is_joined_with_it_ends_the_walk() -> None:
    edges = {"a": "T", "T": "s", "b": "s"}
    assert analysed(edges, "ab", sends={"s": "t"}, table_joins={"T": "t"}) == {"T": "ab"}


def test_two_tables_that_fill_each_other_end_the_walk() -> None:
    edges = {"a": "T", "T": "s", "b": "U", "U": "r"}
    found = analysed(edges, "ab", sends={"s": "u", "r": "t"}, table_joins={"T": "t", "U": "u"})
    assert found == {"T": "ab", "U": "ab"}


def test_a_stream_that_is_joined_with_itself_is_there_once() -> None:
    assert analysed({"a": "xy", "x": "J", "y": "J"}, "a", joins="J") == {"J": "a"}


def test_a_join_with_a_table_to_which_nothing_is_sent_is_an_error() -> None:
    with pytest.raises(PlanError, match=r"join 'T': table 't' is unknown: .* tables that are filled: 'u'"):
        analysed({"a": "Ts"}, "a", sends={"s": "u"}, table_joins={"T": "t"})


# -- conversion -------------------------------------------------------------------------------------------------------


def test_operators_become_streams_and_known_counts_come_first() -> None:
    edges = {"a": StreamEdge("A"), "b": StreamEdge("B", 4), "c": StreamEdge("C")}
    streams = to_stream_edges({"J": "ab"}, edges, {"J": "join"})
    assert streams.known == {"A": None, "B": 4, "C": None}
    assert streams.sets == {"join": ("B", "A")}


def test_side_inputs_join_the_sets_of_their_tables() -> None:
    streams = to_stream_edges(
        {"T": "a"},
        {"a": StreamEdge("A")},
        {"T": "join_table", "U": "alone"},
        {"T": [StreamEdge("side", 16)], "U": [StreamEdge("side", 16)]},
    )
    assert streams.known == {"A": None, "side": 16}
    assert streams.sets == {"join_table": ("side", "A"), "alone": ("side",)}


def test_an_unknown_stream_is_an_error() -> None:
    with pytest.raises(PlanError, match="join 'join': stream 'b' is unknown; streams of the pipeline: 'A'"):
        to_stream_edges({"J": "ab"}, {"a": StreamEdge("A")}, {"J": "join"})


# -- assignment -------------------------------------------------------------------------------------------------------

Known = dict[str, int | None]
Sets = dict[str, tuple[str, ...]]

CASES: dict[str, tuple[Known, dict[str, str], dict[str, Any], dict[str, int]]] = {
    "equal counts stay": ({"a": 8, "b": 8}, {"j": "ab"}, {}, {"a": 8, "b": 8}),
    "an unknown one takes the known one's": ({"a": 8, "b": None}, {"j": "ab"}, {}, {"a": 8, "b": 8}),
    "a known one beats the configured one": ({"a": 8, "b": None}, {"j": "ab"}, {"configured": 3}, {"a": 8, "b": 8}),
    "a known one is not capped": ({"a": 1000, "b": None}, {"j": "ab"}, {}, {"a": 1000, "b": 1000}),
    "through three sets": (
        {"a": 8, "b": None, "c": None, "d": None},
        {"j": "ab", "k": "bc", "l": "cd"},
        {"configured": 3},
        dict.fromkeys("abcd", 8),
    ),
    "two islands": (
        {"a": 8, "b": None, "c": 16, "d": None},
        {"j": "ab", "k": "cd"},
        {},
        {"a": 8, "b": 8, "c": 16, "d": 16},
    ),
    "a set of unknown ones takes the configured": (
        {"a": None, "b": None, "c": 8},
        {"j": "ab"},
        {"configured": 3, "inputs": [8]},
        {"a": 3, "b": 3, "c": 8},
    ),
    "a configured count is not capped": ({"a": None}, {}, {"configured": 1000}, {"a": 1000}),
    "the largest of the inputs": ({"a": 4, "b": 9, "c": None}, {}, {"inputs": [4, 9]}, {"a": 4, "b": 9, "c": 9}),
    "the largest of the outputs": (
        {"a": 4, "c": None},
        {},
        {"inputs": [4], "outputs": [None, 12]},
        {"a": 4, "c": 12},
    ),
    "256 is not capped": ({"a": None}, {}, {"inputs": [256]}, {"a": 256}),
    "more than 256 is capped": ({"a": None}, {}, {"inputs": [257], "outputs": [1000]}, {"a": 256}),
    "the default, where nothing is known": ({"a": None}, {}, {"inputs": [None], "default": 300}, {"a": 300}),
    "nothing to do": ({}, {}, {}, {}),
}


@pytest.mark.parametrize(("known", "sets", "options", "expected"), CASES.values(), ids=CASES)
def test_assignment(known: Known, sets: dict[str, str], options: dict[str, Any], expected: dict[str, int]) -> None:
    for order in permutations(sets):
        counts = assign_counts(known, {join: tuple(sets[join]) for join in order}, **options)
        assert counts == expected
        check(counts, {join: tuple(streams) for join, streams in sets.items()})


@pytest.mark.parametrize("count", [0, -1, -5, 65536])
def test_a_configured_count_that_no_plan_can_have_is_an_error(count: int) -> None:
    with pytest.raises(PlanError, match=rf"intermediate_partitions: .* from 1 to 65535, got {count}"):
        assign_counts({"a": None}, {}, configured=count)


@pytest.mark.parametrize("count", [0, -1])
def test_a_stream_with_such_a_count_is_an_error(count: int) -> None:
    with pytest.raises(PlanError, match=rf"stream 'a': .* from 1 to 65535, got {count}"):
        assign_counts({"a": count}, {})


def test_a_count_that_is_no_integer_is_an_error() -> None:
    for count in (1.5, True, "8"):
        with pytest.raises(PlanError, match="must be an integer"):
            assign_counts({"a": None}, {}, configured=count)  # type: ignore[arg-type]


def test_a_set_of_a_stream_that_is_not_there_is_an_error() -> None:
    with pytest.raises(PlanError, match="join 'j': stream 'b' is unknown; streams: 'a'"):
        assign_counts({"a": 1}, {"j": ["a", "b"]})


# -- agreement --------------------------------------------------------------------------------------------------------


def test_a_disagreement_names_join_both_streams_and_both_counts() -> None:
    with pytest.raises(PlanError, match="join 'j': stream 'a' has 1 partition, but stream 'c' has 16;"):
        check({"a": 1, "b": 1, "c": 16}, {"i": ["a"], "j": ["a", "b", "c"]})


def test_a_stream_between_two_of_different_counts_is_found_out() -> None:
    """The case of figure 5 in Samza's proposal: an intermediate stream is joined with 16 and with 8 partitions."""
    known, sets = {"s1": 16, "s2'": None, "s4": 8}, {"j": ["s1", "s2'"], "k": ["s4", "s2'"]}
    for order in permutations(sets):
        in_order = {join: sets[join] for join in order}
        counts = assign_counts(known, in_order)
        with pytest.raises(PlanError, match=r"join '[jk]': stream 's[14]' has \d+ partitions, but stream \"s2'\""):
            check(counts, in_order)


names = st.sampled_from("abcdefgh")


@given(
    known=st.dictionaries(names, st.sampled_from([None, None, None, 4, 8]), min_size=1),
    data=st.data(),
    configured=st.sampled_from([None, 5]),
)
def test_any_order_of_sets_gives_the_same_counts_or_the_same_disagreement(
    known: Known, data: st.DataObject, configured: int | None
) -> None:
    members = st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=4, unique=True)
    sets = dict(enumerate(data.draw(st.lists(members, max_size=5))))
    found: list[dict[str, int] | str] = []
    for _ in range(3):
        order = data.draw(st.permutations(sorted(sets)))
        shuffled = {str(join): data.draw(st.permutations(sets[join])) for join in order}
        counts = assign_counts(known, shuffled, configured)
        try:
            check(counts, shuffled)
        except PlanError:
            found.append("they disagree")
        else:
            found.append(counts)
    assert all(result == found[0] for result in found)


@given(known=st.dictionaries(names, st.sampled_from([None, None, 8]), min_size=1), data=st.data())
def test_unknown_streams_get_the_count_of_all_that_they_are_connected_with(known: Known, data: st.DataObject) -> None:
    members = st.lists(st.sampled_from(sorted(known)), min_size=1, max_size=3, unique=True)
    sets = {str(i): found for i, found in enumerate(data.draw(st.lists(members, max_size=6)))}
    counts = assign_counts(known, sets, configured=3)
    connected = {stream for stream, count in known.items() if count == 8}
    while grown := {s for streams in sets.values() if connected & set(streams) for s in streams} - connected:
        connected |= grown
    assert counts == {stream: 8 if stream in connected else 3 for stream in known}
