"""The ring of an observable, against a plain list of all that was ever added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shmjet.cluster.member.observable_ring import MOST_ENDS, READ_FRAMES, ObservableRing
from shmjet.cluster.observable_messages import OLDEST, JobEnd

END = JobEnd("job", 0)


def read_all(ring: ObservableRing, sequence: int) -> tuple[int, list[int]]:
    """Return where reading begins, and the bytes of all items as numbers; -1 is an end."""
    first, found = -1, list[int]()
    while True:
        start, skip, frames = ring.read(sequence)
        if first < 0:
            first = start + skip
        if not frames:
            return first, found
        assert skip < frames[0].count
        for frame in frames:
            items = [-1] if frame.end is not None else list(frame.items)
            assert len(items) == frame.count
            found += items[skip:]
            start, skip = start + frame.count, 0
        sequence = start


@given(
    st.integers(1, 12),
    st.lists(st.one_of(st.none(), st.lists(st.integers(0, 255), min_size=1, max_size=20)), max_size=30),
    st.integers(-1, 100),
)
def test_a_reader_gets_the_last_items_and_what_lies_between_them(
    capacity: int, added: list[list[int] | None], sequence: int
) -> None:
    ring, everything = ObservableRing(1, capacity), list[int]()
    for items in added:
        if items is None:
            ring.add_end(END)
            everything.append(-1)
        else:
            ring.add_items(len(items), bytes(items))
            everything += items
    assert ring.next == len(everything)
    places = [at for at, item in enumerate(everything) if item >= 0][-capacity:]
    first, found = read_all(ring, sequence)
    wanted = [item for item in found if item >= 0]
    if sequence == OLDEST:
        assert wanted == [everything[at] for at in places]
        assert [-1 for item in everything[places[0] if places else 0 :] if item < 0] == [-1 for n in found if n < 0]
    else:
        assert found == everything[first:] if first < len(everything) else not found
        assert first >= min(sequence, len(everything))
        assert wanted == [everything[at] for at in places if at >= sequence]


def test_bytes_ends_and_the_items_of_one_answer_are_bounded() -> None:
    ring = ObservableRing(1, 1_000_000, most_bytes=1000)
    for _ in range(100):
        ring.add_items(1, bytes(300))
    assert ring.read(OLDEST)[0] == 97
    ring.add_items(1, bytes(5000))
    assert [len(frame.items) for frame in ring.read(OLDEST)[2]] == [5000]
    ring.add_items(7, bytes(7))
    assert ring.read(OLDEST)[0] == 101
    for _ in range(2 * MOST_ENDS):
        ring.add_end(END)
    assert len(read_all(ring, OLDEST)[1]) == MOST_ENDS
    assert len(ring.read(OLDEST)[2]) == READ_FRAMES
