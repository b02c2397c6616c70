"""Which members get copies of the files of a snapshot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shmjet.cluster.jobs.copies import Keeper, copies_wanted

MEMBERS = [Keeper("a", "x"), Keeper("b", "x"), Keeper("c", "y"), Keeper("d", "z")]


def test_another_host_comes_before_the_next_member() -> None:
    assert copies_wanted({"f": ["a"]}, MEMBERS, 1) == {"c": {"f": ["a"]}}
    assert copies_wanted({"f": ["a"]}, MEMBERS, 2) == {"c": {"f": ["a"]}, "d": {"f": ["a"]}}
    assert copies_wanted({"f": ["a"]}, MEMBERS, 6).keys() == {"b", "c", "d"}


def test_members_of_one_host_keep_copies_for_each_other_where_there_is_no_other() -> None:
    assert copies_wanted({"f": ["b"]}, MEMBERS[:2], 1) == {"a": {"f": ["b"]}}


def test_nothing_is_copied_that_is_on_enough_members_or_on_none() -> None:
    assert copies_wanted({"f": ["a", "b"], "g": ["gone"], "h": []}, MEMBERS, 1) == {}
    assert copies_wanted({"f": ["a"]}, MEMBERS[:1], 1) == {}
    assert copies_wanted({"f": ["a"]}, MEMBERS, 0) == {}


@given(
    hosts=st.lists(st.sampled_from("xyz"), min_size=1, max_size=6),
    files=st.dictionaries(st.sampled_from("fghi"), st.lists(st.integers(0, 7), unique=True, max_size=4)),
    backups=st.integers(0, 6),
)
def test_each_file_that_is_somewhere_is_on_as_many_members_and_hosts_as_can_be(
    hosts: list[str], files: dict[str, list[int]], backups: int
) -> None:
    members = [Keeper(f"m{number}", host) for number, host in enumerate(hosts)]
    host_of = {member.uuid: member.host for member in members}
    holders = {file: [f"m{number}" for number in numbers] for file, numbers in files.items()}
    wanted = copies_wanted(holders, members, backups)
    for file, theirs in holders.items():
        have = [member for member in theirs if member in host_of]
        gets = [member for member, some in wanted.items() if file in some]
        assert not set(have) & set(gets)
        assert all(wanted[member][file] == have for member in gets)
        if not have:
            assert not gets
            continue
        after = {*have, *gets}
        assert len(after) == max(len(have), min(backups + 1, len(members)))
        possible = min(len({host_of[member] for member in have}) + len(gets), len(set(hosts)))
        assert len({host_of[member] for member in after}) == possible
