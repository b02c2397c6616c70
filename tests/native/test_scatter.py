"""The bindings of the hash and scatter kernels: what they refuse, and the native take of text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmjet._native import murmur3_32
from shmjet._native._columns import assign, bucket_rows, hash_columns, number_places, scatter, take_text, take_text_ends
from shmjet.data.text import Text

NUMBERS = np.arange(4)
COLUMN = ("i", 8, 4, NUMBERS, None, None)
TABLE = np.array([0, 1], np.int32)


def test_hashes_of_a_column() -> None:
    out = np.zeros(4, np.uint32)
    hash_columns([COLUMN], out)
    assert out.tolist() == [murmur3_32(i.to_bytes(8, "little")) for i in range(4)]


@pytest.mark.parametrize(
    ("columns", "forms", "error", "text"),
    [
        ([], None, ValueError, "at least one column"),
        ([COLUMN], [None, None], ValueError, "a form for each"),
        ([COLUMN], [3], TypeError, "kind 'i', itemsize 8 and form 3 cannot be a key"),
        ([("c", 16, 2, NUMBERS, None, None)], None, TypeError, "kind 'c'"),
        ([("M", 8, 4, NUMBERS, None, None)], None, TypeError, "kind 'M'"),
        ([("f", 16, 2, NUMBERS, None, None)], None, TypeError, "kind 'f', itemsize 16"),
        ([("i", 3, 4, NUMBERS, None, None)], None, TypeError, "itemsize 3"),
        ([("M", 8, 4, NUMBERS, None, None)], [("d", 1)], TypeError, "the form of a date"),
        ([("V", 8, 4, NUMBERS, None, None)], [1], ValueError, "end before the fields"),
        ([("V", 8, 4, NUMBERS, None, None)], [-1], ValueError, "end before the fields"),
    ],
)
def test_what_cannot_be_a_key_is_refused(columns: Any, forms: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        hash_columns(columns, np.zeros(4, np.uint32), forms)
    with pytest.raises(error, match=text):
        assign(columns, TABLE, np.zeros(4, np.uint16), None, forms)


def test_short_or_read_only_buffers_are_refused() -> None:
    with pytest.raises(ValueError, match="uint32 array of 4"):
        hash_columns([COLUMN], np.zeros(3, np.uint32))
    with pytest.raises((BufferError, ValueError)):
        hash_columns([COLUMN], bytes(16))
    with pytest.raises(ValueError, match="assigned must have at least 8 bytes"):
        assign([COLUMN], TABLE, np.zeros(3, np.uint16), None)
    with pytest.raises(ValueError, match="table must have at least 4 bytes"):
        assign([COLUMN], b"", np.zeros(4, np.uint16), None)
    with pytest.raises(ValueError, match="partition 1 goes to consumer 1 of 1"):
        assign([COLUMN], TABLE, np.zeros(4, np.uint16), np.zeros(1, np.int64))
    with pytest.raises(ValueError, match="partition 0 goes to consumer -1"):
        assign([COLUMN], np.array([-1], np.int32), np.zeros(4, np.uint16), None)


def test_consumers_are_counted() -> None:
    many = np.arange(3000)
    assigned, counts = np.zeros(3000, np.uint16), np.array([10, 0], np.int64)
    assign([("i", 8, 3000, many, None, None)], TABLE, assigned, counts)
    assert (counts - [10, 0]).tolist() == np.bincount(assigned, minlength=2).tolist()


def call(**changed: Any) -> int:
    """Scatter four rows to two consumers, with some arguments changed."""
    given = {
        "columns": [COLUMN],
        "assigned": np.array([0, 1, 0, 1], np.uint16),
        "start": 0,
        "builders": [(np.zeros(10, np.int64), None, None)],
        "filled": np.zeros(2, np.int64),
        "capacity": 4,
        "stride": 5,
    }
    return scatter(*{**given, **changed}.values())


def test_rows_go_to_their_consumers() -> None:
    values, filled = np.full(10, -1), np.zeros(2, np.int64)
    assert call(builders=[(values, None, None)], filled=filled) == 4
    assert values.reshape(2, 5).tolist() == [[0, 2, -1, -1, -1], [1, 3, -1, -1, -1]]
    assert filled.tolist() == [2, 2]
    assert call(filled=np.array([0, 3], np.int64)) == 3
    assert call(start=4) == 4


TEXT = ("t", 0, 2, b"abcd", np.array([0, 1, 4]), None)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"start": 5}, "no row 5 in 4"),
        ({"start": -1}, "no row -1"),
        ({"assigned": np.zeros(3, np.uint16)}, "assigned must have at least 8 bytes"),
        ({"assigned": np.array([0, 2, 0, 0], np.uint16)}, "row 1 is assigned to consumer 2 of 2"),
        ({"builders": []}, "each column needs memory"),
        ({"builders": [(np.zeros(9, np.int64), None, None)]}, "values must have at least 80 bytes"),
        ({"builders": [(np.zeros(10, np.int64), np.zeros(10, np.int64), None)]}, "a column of text needs ends"),
        ({"columns": [(*COLUMN[:5], b"1011")]}, "a column with nulls needs valid"),
        ({"columns": [TEXT], "builders": [(np.zeros(9, np.uint8), np.zeros(9, np.int64), None)]}, "ends must have"),
        ({"filled": np.array([0, 5], np.int64)}, "consumer 1 cannot have 5 rows"),
        ({"filled": np.array([-1, 0], np.int64)}, "consumer 0 cannot have -1 rows"),
        ({"filled": np.zeros(0, np.int64)}, "filled must have at least 8 bytes"),
        ({"capacity": 5}, "capacity 5 and stride 5"),
        ({"capacity": 0}, "capacity 0"),
        ({"stride": 1 << 40}, "stride 1099511627776"),
    ],
)
def test_memory_that_does_not_fit_is_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(**changed)


def test_text_stops_where_its_bytes_end() -> None:
    values, ends = np.zeros(2, np.uint8), np.zeros(5, np.int64)
    arguments = {"columns": [TEXT], "builders": [(values, ends, None)], "filled": np.zeros(1, np.int64)}
    assert call(**arguments, assigned=np.zeros(2, np.uint16)) == 1
    assert ends[:2].tolist() == [0, 1]
    assert values.tobytes() == b"a\0"


@given(st.lists(st.text(max_size=40), min_size=1, max_size=30), st.data())
def test_take_gives_the_values_at_the_indices(values: list[str], data: st.DataObject) -> None:
    text = Text.of(["before", *values, "behind"])[1:-1]
    chosen = data.draw(st.lists(st.integers(-len(values), len(values) - 1), max_size=40))
    taken = text.take(chosen)
    assert taken.tolist() == [values[index] for index in chosen]
    assert taken.offsets[0] == 0
    assert taken.offsets[-1] == len(taken.data)


def test_take_of_bytes_and_of_nothing() -> None:
    column = Text.of([b"a", b"", b"ccc"])
    assert column.take(np.array([2, 0, -2], np.int8)).tolist() == [b"ccc", b"a", b""]
    assert column.take([]).equals(Text.trusted(np.zeros(1, np.int64), np.zeros(0, np.uint8), True))
    assert column.take(np.arange(6)[::2][:1]).tolist() == [b"a"]


@pytest.mark.parametrize("index", [3, -4, 2**62, -(2**63)])
def test_an_index_out_of_range_is_named(index: int) -> None:
    with pytest.raises(IndexError, match=f"row {index} is out of range: there are 3"):
        Text.of(["a", "b", "c"]).take([0, index])


def test_take_refuses_offsets_that_are_wrong() -> None:
    one, ends = np.zeros(1, np.int64), np.zeros(2, np.int64)
    for offsets in ([0, 5], [3, 1], [-1, 2]):
        with pytest.raises(ValueError, match="the offsets of value 0 leave the 4 bytes"):
            take_text_ends(np.array(offsets), b"abcd", one, ends)
    with pytest.raises(ValueError, match="not those of take_text_ends"):
        take_text(np.array([0, 4]), b"abcd", one, np.array([0, 3]), bytearray(4))
    with pytest.raises(ValueError, match="out is shorter"):
        take_text(np.array([0, 4]), b"abcd", one, np.array([0, 4]), bytearray(3))
    with pytest.raises(ValueError, match="ends must have at least 16 bytes"):
        take_text(np.array([0, 4]), b"abcd", one, one, bytearray(4))


def test_rows_are_sorted_into_buckets_step_by_step() -> None:
    buckets = np.random.default_rng(7).integers(0, 9, 1000).astype(np.uint32)
    sizes = np.bincount(buckets, minlength=9)
    places, out = (np.cumsum(sizes) - sizes).astype(np.uint32), np.empty(1000, np.uint32)
    for start in range(0, 1000, 300):
        bucket_rows(buckets, start, min(300, 1000 - start), places, out)
    assert out.tolist() == np.argsort(buckets, kind="stable").tolist()


@pytest.mark.parametrize(
    ("bucket", "start", "count", "room"), [(9, 0, 1, 4), (0, 0, 5, 5), (0, -1, 1, 5), (0, 4, 1, 5), (0, 0, 4, 3)]
)
def test_buckets_and_places_that_do_not_exist_are_refused(bucket: int, start: int, count: int, room: int) -> None:
    out = np.empty(room, np.uint32)
    with pytest.raises(ValueError, match=r"there are no|does not exist"):
        bucket_rows(np.full(4, bucket, np.uint32), start, count, np.zeros(2, np.uint32), out)


def test_numbers_are_written_each_at_its_place() -> None:
    places = np.random.default_rng(7).permutation(1000).astype(np.uint32)
    out = np.empty(1000, np.uint32)
    number_places(places[:300], 0, out)
    number_places(places[300:], 300, out)
    assert out[places].tolist() == list(range(1000))


@pytest.mark.parametrize(("place", "first"), [(4, 0), (0, -1), (0, 2**32 - 2)])
def test_places_and_numbers_that_do_not_exist_are_refused(place: int, first: int) -> None:
    with pytest.raises(ValueError, match=r"more than 32 bits|does not exist"):
        number_places(np.array([0, place], np.uint32), first, np.empty(4, np.uint32))
