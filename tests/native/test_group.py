"""GroupTable by itself: its contract with descriptors, wrong arguments, its memory and how that is handed over."""

from __future__ import annotations

import mmap
import os
import pickle
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from shmjet._native._columns import GroupTable
from shmjet.data.column_descriptors import descriptor
from shmjet.data.text import Text

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "groups.md"


def column(values: Any, dtype: Any = np.int64) -> Any:
    return descriptor(values if isinstance(values, Text) else np.array(values, dtype))


def sums(keys: Any, values: Any) -> GroupTable:
    table = GroupTable("i", [("sum", "i"), ("count", "-")])
    table.add([column(keys)], [column(values), None], len(keys))
    return table


def words(table: GroupTable, field: int) -> list[int]:
    out, valid = np.empty(len(table), np.int64), np.empty(len(table), np.bool_)
    table.read_words(field, 0, len(table), out, valid)
    return out.tolist()


def test_a_table_groups_in_order_of_arrival() -> None:
    table = sums([7, -1, 7], [1, 2, 3])
    assert [words(table, field) for field in range(4)] == [[7, -1], [4, 2], [0, 0], [2, 1]]


@pytest.mark.parametrize(
    ("keys", "aggregates", "text"),
    [
        ("x", [], "keys are at most 1024 letters of i, f and t, got x"),
        ("i" * 1025, [], "keys are at most 1024 letters"),
        ("", [("count", "-")] * 1025, "at most 1024 aggregates, got 1025"),
        ("", [("median", "i")], "there is no aggregate median of class 'i'"),
        ("", [("sum", "t")], "there is no aggregate sum of class 't'"),
        ("", [("min", "x")], "there is no aggregate min of class 'x'"),
        ("", [("min", "")], "there is no aggregate min of class ''"),
    ],
)
def test_wrong_descriptions_are_refused(keys: str, aggregates: list[tuple[str, str]], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        GroupTable(keys, aggregates)


def test_wrong_columns_are_refused() -> None:
    table = GroupTable("i", [("min", "i")])
    key, value = column([1, 2]), column([1, 2])
    for keys, inputs, rows in (
        ([], [value], 2),
        ([key], [], 2),
        ([key], [None], 2),
        ([key], [value], 3),
        ([key], [value], -1),
        ([column([1.0, 2], np.float64)], [value], 2),
        ([key], [column([1, 2], np.uint64)], 2),
        ([key], [column([1, 2, 3])], 2),
        ([column(Text.of(["a", "b"]))], [value], 2),
    ):
        with pytest.raises(ValueError, match=r"expected|needs|must be|compares"):
            table.add(keys, inputs, rows)
    assert len(table) == 0
    with pytest.raises(TypeError):
        table.add([key], [value])  # type: ignore[call-arg]


def test_wrong_readings_are_refused() -> None:
    table = sums([1, 2], [3, 4])
    out, valid = np.empty(2, np.int64), np.empty(2, np.bool_)
    for field, position, count in ((4, 0, 1), (-1, 0, 1), (0, 1, 2), (0, -1, 1), (0, 0, -1), (0, 3, 0)):
        with pytest.raises(ValueError, match=r"there (is|are) no"):
            table.read_words(field, position, count, out, valid)
    with pytest.raises(ValueError, match="there is no text field 0"):
        table.read_offsets(0, 0, 1, out, valid)
    with pytest.raises(ValueError, match="a buffer of 8 bytes is too short, 16 are needed"):
        table.read_words(0, 0, 2, out[:1], valid)
    with pytest.raises(ValueError, match="a buffer of 1 bytes is too short, 2 are needed"):
        table.read_words(0, 0, 2, out, valid[:1])


def test_sums_of_integers_have_two_words() -> None:
    table = GroupTable("", [("count", "-"), ("sum", "i")])
    table.add([], [None, column([2**63 - 1, 1])], 2)
    table.add([], [None, column([2**64 - 1], np.uint64)], 1)
    low, high = (words(table, field)[0] for field in (1, 2))
    assert (high << 64) + low % 2**64 == 2**63 + 2**64 - 1


# -- memory ------------------------------------------------------------------------------------------------------------


def test_an_attached_table_shares_the_memory() -> None:
    table = sums(range(100_000), range(100_000))
    other = GroupTable.attach(table.fileno())
    assert other.fileno() != table.fileno()
    other.add([column([5])], [column([100]), None], 1)
    assert words(table, 1)[5] == 105
    del table
    other.add([column(range(300_000))], [column(range(300_000)), None], 300_000)
    assert len(other) == 300_000


def test_a_pickled_table_is_a_copy() -> None:
    table = sums(range(10_000), range(10_000))
    copy = pickle.loads(pickle.dumps(table))
    table.add([column([3])], [column([7]), None], 1)
    assert (words(table, 1)[3], words(copy, 1)[3]) == (10, 3)
    copy.add([column(range(20_000))], [column(range(20_000)), None], 20_000)
    assert words(copy, 1) == [2 * n if n < 10_000 else n for n in range(20_000)]


def test_damaged_contents_are_refused() -> None:
    _, (regions,) = sums([1], [2]).__reduce__()
    for damaged in (regions[:5], (b"", *regions[1:]), (bytes(8196), *regions[1:]), (*regions[:3], b"", *regions[4:])):
        with pytest.raises(ValueError, match="GroupTable"):
            GroupTable.restored(damaged)
    with open(os.devnull, "rb") as device, pytest.raises(ValueError, match="is not that of a GroupTable"):
        GroupTable.attach(device.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        GroupTable.attach(-1)


def test_as_many_keys_and_aggregates_as_there_may_be_fit() -> None:
    table = GroupTable("t" * 1024, [("var", "i")] * 1024)
    text, number = column(Text.of(["a" * 20, "b"])), column([3, 4])
    table.add([text] * 1024, [number] * 1024, 2)
    assert len(table) == 2


def test_an_empty_table_takes_little_memory() -> None:
    assert GroupTable("i", [("sum", "i")]).nbytes <= 64 << 10


def test_handing_over_copies_nothing_whatever_the_size() -> None:
    table = sums(np.arange(300_000), np.arange(300_000))
    assert table.nbytes > 10_000_000

    def resident_bytes() -> int:
        return psutil.Process().memory_info().rss

    before = resident_bytes()
    attached = GroupTable.attach(table.fileno())
    assert len(attached) == 300_000
    assert resident_bytes() - before < table.nbytes / 10


def test_the_layout_is_the_documented_one() -> None:
    rows = re.findall(r"^\| (\d+) \| (?:\d+ · )?\d+ \| (\w+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    offset = {name: int(place) for place, name in rows}
    table = GroupTable("it", [("sum", "f"), ("count", "-"), ("last", "t")])
    table.add(
        [column([3, 4]), column(Text.of(["a" * 20, "b"]))],
        [column([0.5, 1], np.float64), None, column(Text.of(["x", "y" * 9]))],
        2,
    )
    with mmap.mmap(table.fileno(), 1 << 16, access=mmap.ACCESS_READ) as header:

        def number(name: str, kind: str) -> int:
            return int(struct.unpack_from("<" + kind, header, offset[name])[0])

        assert header[offset["magic"] :][:8] == b"hmjtgrp1"
        assert number("seed", "Q") != 0
        assert [number(name, "Q") for name in ("groups", "heap", "segments")] == [2, 29, 1]
        names = ("depth", "stride", "mark_bytes", "null_bytes", "keys", "aggregates", "has_null_keys")
        assert [number(name, "I") for name in names] == [0, 64, 2, 1, 2, 3, 0]
        assert struct.unpack_from("<6Q", header, offset["allocated"])[5] >= 29
        fields = struct.iter_unpack("<cBBBHH", header[offset["key_fields"] :][:16])
        assert [field[:3] + field[4:5] for field in fields] == [(b"i", 0, 1, 0), (b"t", 0, 1, 8)]
        fields = struct.iter_unpack("<cBBBHH", header[offset["aggregate_fields"] :][:24])
        assert [(f[0], f[1], f[2], f[4], f[5]) for f in fields] == [
            (b"f", 2, 2, 24, 0),
            (b"-", 1, 1, 40, 0),
            (b"t", 7, 1, 48, 1),
        ]
        assert struct.unpack_from("<I", header, 20480) == (0,)
    with mmap.mmap(table.fileno(), 4096, access=mmap.ACCESS_READ, offset=3 << 40) as data:
        assert struct.unpack_from("<qI4sQddqIIQ", data, 64) == (3, 20, b"aaaa", 0, 0.5, 0.0, 1, 1, 0, ord("x"))
        assert struct.unpack_from("<qI12sddqIIQ", data, 128) == (4, 1, b"b".ljust(12, b"\0"), 1.0, 0.0, 1, 9, 9, 20)
    with mmap.mmap(table.fileno(), 4096, access=mmap.ACCESS_READ, offset=4 << 40) as marks:
        assert marks[2:6] == b"\0\3\0\3"
    with mmap.mmap(table.fileno(), 4096, access=mmap.ACCESS_READ, offset=5 << 40) as heap:
        assert heap[:29] == b"a" * 20 + b"y" * 9
    with mmap.mmap(table.fileno(), 1 << 14, access=mmap.ACCESS_READ, offset=1 << 40) as slots:
        used = [(place, slot) for place, (slot,) in enumerate(struct.iter_unpack("<Q", slots)) if slot]
        assert sorted(slot & 0xFFFFFFFF for _, slot in used) == [1, 2]
        assert all((place - (slot >> 32)) % 2048 <= 1 for place, slot in used)
    with mmap.mmap(table.fileno(), 4096, access=mmap.ACCESS_READ, offset=2 << 40) as fills:
        assert struct.unpack_from("<I", fills) == (2,)


def test_groups_can_be_read_in_any_order() -> None:
    table = sums([5, 6, 7], [10, 20, 30])
    out, valid = np.empty(4, np.int64), np.empty(4, np.bool_)
    assert table.read_words(1, np.array([2, 0, 2, 1], np.uint32), 4, out, valid) is False
    assert out.tolist() == [30, 10, 30, 20]
    with pytest.raises(ValueError, match="there is no group 3; there are 3"):
        table.read_words(1, np.array([0, 3], np.uint32), 2, out, valid)
    with pytest.raises(ValueError, match="positions must be an aligned uint32 array of 2 elements"):
        table.read_words(1, np.array([0], np.uint32), 2, out, valid)
    with pytest.raises(TypeError):
        table.read_words(1, "0", 1, out, valid)  # type: ignore[arg-type]


def captured_of(table: GroupTable) -> GroupTable:
    """Return what a table held before more is added to it."""
    captured = table.capture()
    table.add([column([1, 5, 6])], [column([100, 100, 100]), None], 3)
    return captured


def test_a_captured_table_is_what_it_was() -> None:
    table = sums(range(2000), range(2000))
    captured = captured_of(table)
    while captured.copy_on(1):
        table.add([column(range(3000))], [column(range(3000)), None], 3000)
    assert [words(captured, field) for field in (0, 1, 3)] == [list(range(2000)), list(range(2000)), [1] * 2000]
    assert len(table) == 3000
    again = table.capture()
    assert again.copy_on(1000) is False
    assert words(again, 1) == words(table, 1)


def test_a_captured_table_is_read_only_and_read_when_it_is_complete() -> None:
    captured = captured_of(sums([1, 2], [3, 4]))  # whose table nothing else holds
    out, valid = np.empty(2, np.int64), np.empty(2, np.bool_)
    with pytest.raises(ValueError, match="when all of it has been copied"):
        captured.read_words(0, 0, 2, out, valid)
    with pytest.raises(ValueError, match="blocks must be at least 1"):
        captured.copy_on(0)
    assert captured.copy_on(9) is False
    assert words(captured, 1) == [3, 4]
    for refused in (captured.capture, captured.__reduce__, lambda: captured.add([column([1])], [column([1]), None], 1)):
        with pytest.raises(ValueError, match="captured"):
            refused()


def test_a_table_has_one_capture_at_a_time() -> None:
    table = sums([1, 2], [3, 4])
    captured = table.capture()
    with pytest.raises(ValueError, match="is being captured already"):
        table.capture()
    del captured
    table.add([column([1])], [column([1]), None], 1)
    assert table.capture().copy_on(9) is False
    assert len(GroupTable("i", []).capture()) == 0


def test_groups_that_get_rows_are_noted() -> None:
    table = sums([1, 2, 3], [1, 1, 1])
    assert table.take_updates() is None
    table.note_updates(9)
    assert table.take_updates() == bytes(3)
    assert table.take_updates() is None
    table.note_updates(2)
    for _ in range(3):
        table.add([column([2, 9])], [column([5, 5]), None], 2)
    assert table.take_updates() == bytes([0, 1, 0, 1])
    table.note_updates(1)
    table.add([column([2, 9])], [column([5, 5]), None], 2)
    assert table.take_updates() is None  # there were too many
    with pytest.raises(ValueError, match="captured"):
        captured_of(table).note_updates(9)


def contents(table: GroupTable, fields: int) -> list[list[int]]:
    return [words(table, field) for field in range(fields)]


@pytest.mark.parametrize("first", [3, 1_000, 200_000])
def test_an_emptied_table_is_as_a_new_one_and_keeps_its_memory(first: int) -> None:
    rng = np.random.default_rng(first)
    table = GroupTable("i", [("sum", "i"), ("count", "-"), ("min", "i")])
    masked = descriptor(np.zeros(first, np.int64), np.zeros(first, np.bool_))
    table.add([descriptor(np.arange(first) * 7919)], [masked, None, masked], first)
    taken = table.nbytes
    for rows in (0, 5, 3_000, 250_000):
        assert table.empty()
        assert len(table) == 0
        keys, values = rng.integers(-rows, rows + 1, rows), rng.integers(-9, 9, rows)
        fresh = GroupTable("i", [("sum", "i"), ("count", "-"), ("min", "i")])
        for each in (table, fresh):
            each.add([descriptor(keys)], [descriptor(values), None, descriptor(values)], rows)
        assert contents(table, 5) == contents(fresh, 5)
    assert table.nbytes >= taken


def test_an_emptied_table_of_texts_is_as_a_new_one() -> None:
    table = GroupTable("t", [("max", "t")])
    texts = Text.of([f"a rather long key {i}" for i in range(2_000)])
    table.add([column(texts)], [column(texts)], 2_000)
    assert table.empty()
    few = Text.of(["another rather long key", "x", "x"])
    table.add([column(few)], [column(few)], 3)
    assert len(table) == 2
    offsets, valid = np.empty(3, np.int64), np.empty(2, np.bool_)
    table.read_offsets(0, 0, 2, offsets, valid)
    data = np.empty(int(offsets[-1]), np.uint8)
    table.read_data(0, 0, 2, data, 0)
    assert data.tobytes() == b"another rather long keyx"


def test_a_table_that_others_look_at_is_not_emptied() -> None:
    table = sums(range(50_000), [1] * 50_000)
    captured = table.capture()
    assert not table.empty()
    with pytest.raises(ValueError, match="stays as it is"):
        captured.empty()
    while captured.copy_on(1_000):
        pass
    table.note_updates(9)
    assert not table.empty()
    table.take_updates()
    assert len(table) == 50_000
    assert table.empty()
    assert len(captured) == 50_000
    loaded = GroupTable("i", [("count", "-")])
    loaded.load([column([1, 2])], [column([3, 4])], 2)
    assert not loaded.empty()
