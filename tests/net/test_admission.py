"""Who has to go when there are too many connections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shmjet.net.admission import Admission, source_of


def test_the_oldest_of_the_source_with_the_most_goes_first() -> None:
    room: Admission[str] = Admission()
    for connection, source in (("a1", "a"), ("b1", "b"), ("b2", "b"), ("b3", "b"), ("a2", "a")):
        room.add(connection, source)
    gone = []
    while (connection := room.to_give_up()) is not None:
        gone.append(connection)
        room.discard(connection)
    assert gone == ["b1", "a1", "b2", "b3", "a2"]
    assert len(room) == 0


def test_one_that_was_forgotten_is_no_more() -> None:
    room: Admission[str] = Admission()
    room.add("a", "here")
    room.discard("a")
    room.discard("a")
    assert room.to_give_up() is None
    assert room.count_of("here") == 0


@given(st.lists(st.sampled_from("abcdef"), max_size=60), st.integers(1, 8))
def test_who_has_few_keeps_them_whatever_others_do(sources: list[str], limit: int) -> None:
    """With room for n, a source that never has more than its equal share of n loses none."""
    room: Admission[tuple[str, int]] = Admission()
    alive: list[tuple[str, int]] = []
    for number, source in enumerate(sources):
        room.add((source, number), source)
        alive.append((source, number))
        if len(room) > limit:
            victim = room.to_give_up()
            assert victim is not None
            counts = {s: sum(t == s for t, _ in alive) for s in set(sources)}
            assert counts[victim[0]] == max(counts.values())
            assert victim == next(c for c in alive if counts[c[0]] == max(counts.values()))
            room.discard(victim)
            alive.remove(victim)
        assert list(room) == alive


def test_a_host_is_counted_once_by_its_addresses() -> None:
    assert source_of("2001:db8:0:1::1") == source_of("2001:db8:0:1:ffff::2") != source_of("2001:db8:0:2::1")
    assert source_of("fe80::1%eth0") == source_of("fe80::2%eth1")
    assert source_of("::ffff:10.0.0.5") == source_of("10.0.0.5") != source_of("10.0.0.6")
    assert source_of("no address") == "no address"
