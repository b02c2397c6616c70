"""What members and clients of neighbouring versions send one another can be read by both."""

from __future__ import annotations

import re

import pytest

from tests.cluster.wire_messages import structures, unreadable, written


def test_the_last_version_reads_what_this_one_sends() -> None:
    assert unreadable(written(), structures()) == []


def test_all_that_is_sent_is_written_down() -> None:
    assert structures() == written(), "python -m tests.cluster.wire_messages"


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ({}, "is gone"),
        ({"Greeting": ["name: str"]}, "had the fields"),
        ({"Greeting": ["age: int", "name: str"]}, "had the fields"),
        ({"Greeting": ["name: str", "age: float"]}, "had the fields"),
        ({"Greeting": ["name: str", "age: int", "town: str"]}, r"needs \['town: str'\]"),
    ],
)
def test_a_change_that_cannot_be_read_is_found(now: dict[str, list[str]], why: str) -> None:
    [found] = unreadable({"Greeting": ["name: str", "age: int"]}, now)
    assert re.search(why, found)


def test_what_may_be_missing_can_be_new() -> None:
    before = {"Greeting": ["name: str"]}
    assert unreadable(before, {"Greeting": ["name: str", "town: str?"], "Farewell": ["name: str"]}) == []
