"""Producers that lie, and consumers that release in any order: an error, and no crash; each structure released once."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shmjet import Batch
from shmjet.data.errors import BatchError
from tests.data.arrow_producer import Array, Producer, Schema, Stream, structure_in

NUMBERS = np.arange(8)


def column(p: Producer, code: bytes, array: Any, **fields: Any) -> Any:
    """A table of one column."""
    return p.table(p.schema(b"+s", b"", p.schema(code, b"x", **fields)), p.array(array.length, [None], array))


def test_a_right_table_is_read_and_released_once() -> None:
    p = Producer()
    batch = Batch.from_arrow(column(p, b"l", p.array(3, [None, NUMBERS], offset=2)))
    assert batch.to_dict() == {"x": [2, 3, 4]}
    part = batch["x"][1:]
    del batch
    gc.collect()
    assert p.released == []  # a view of one column keeps all
    assert part.tolist() == [3, 4]
    del part
    gc.collect()
    assert p.released == ["array"]


def offsets(*values: int) -> Any:
    return np.array(values, np.int32)


WRONG: dict[str, tuple[Callable[[Producer], Any], str]] = {
    "negative length": (lambda p: column(p, b"l", p.array(-1, [None, NUMBERS])), "has length -1"),
    "negative offset": (lambda p: column(p, b"l", p.array(1, [None, NUMBERS], offset=-1)), "offset -1"),
    "huge length": (lambda p: column(p, b"l", p.array(1 << 62, [None, NUMBERS])), "has length"),
    "no values": (lambda p: column(p, b"l", p.array(3, [None, None])), "buffer 1 is missing"),
    "no buffers": (lambda p: column(p, b"l", p.array(3, [])), "0 buffers"),
    "no list of buffers": (lambda p: column(p, b"l", p.array(3, [], n_buffers=2)), "no list of them"),
    "negative buffers": (lambda p: column(p, b"l", p.array(3, [], n_buffers=-2)), "-2 buffers"),
    "nulls without a bitmap": (lambda p: column(p, b"l", p.array(3, [None, NUMBERS], null_count=2)), "no bitmap"),
    "more nulls than rows": (lambda p: column(p, b"l", p.array(3, [NUMBERS, NUMBERS], null_count=4)), "has 4 nulls"),
    "offsets fall": (lambda p: column(p, b"u", p.array(2, [None, offsets(0, 3, 1), NUMBERS])), "do not ascend"),
    "offsets below 0": (lambda p: column(p, b"u", p.array(1, [None, offsets(-1, 3), NUMBERS])), "do not ascend"),
    "text without bytes": (lambda p: column(p, b"u", p.array(1, [None, offsets(0, 3), None])), "buffer 2 is missing"),
    "view without sizes": (lambda p: column(p, b"vu", p.array(1, [None, NUMBERS])), "array of views"),
    "view of no buffer": (
        lambda p: column(p, b"vu", p.array(1, [None, np.array([20, 0, 7, 0], np.int32), np.zeros(0, np.int64)])),
        "row 0 lies outside",
    ),
    "view beyond its buffer": (
        lambda p: column(
            p, b"vu", p.array(1, [None, np.array([20, 0, 0, 50], np.int32), np.zeros(64, np.uint8), np.array([64])])
        ),
        "row 0 lies outside",
    ),
    "view of negative length": (
        lambda p: column(p, b"vu", p.array(1, [None, np.array([-1, 0, 0, 0], np.int32), np.zeros(0, np.int64)])),
        "row 0 lies outside",
    ),
    "columns missing": (
        lambda p: p.table(p.schema(b"+s", b"", p.schema(b"l", b"x")), p.array(1, [None])),
        "0 columns, its schema 1",
    ),
    "a column is NULL": (
        lambda p: p.table(p.schema(b"+s", b"", p.schema(b"l", b"x")), p.array(1, [None], None)),
        "lacks a child",
    ),
    "a short column": (
        lambda p: p.table(p.schema(b"+s", b"", p.schema(b"l", b"x")), p.array(5, [None], p.array(3, [None, NUMBERS]))),
        "5 values are needed, and the array has 3",
    ),
    "a field is NULL": (lambda p: p.table(p.schema(b"+s", b"", None), p.array(0, [None])), "a field is missing"),
    "negative children": (
        lambda p: p.table(p.schema(b"+s", b"", n_children=-1), p.array(0, [None])),
        "-1 children",
    ),
    "no list of children": (
        lambda p: p.table(p.schema(b"+s", b"", n_children=3), p.array(0, [None])),
        "no list of them",
    ),
    "no format": (lambda p: column(p, None, p.array(1, [None, NUMBERS])), "no format"),  # type: ignore[arg-type]
    "unknown format": (lambda p: column(p, b"?!", p.array(1, [None, NUMBERS])), "'x': values of the Arrow type"),
    "a name that is not text": (lambda p: p.table(p.schema(b"+s", b"\xff"), p.array(0, [None])), "not valid UTF-8"),
    "bad metadata": (
        lambda p: column(p, b"l", p.array(1, [None, NUMBERS]), metadata=b"\xff\xff\xff\xff"),
        "metadata of field 'x'",
    ),
    "list without items": (lambda p: column(p, b"+l", p.array(1, [None, offsets(0, 1)])), "needs 1 children"),
    "endless fixed size": (lambda p: column(p, b"w:99999999999", p.array(1, [None, NUMBERS])), "too large"),
    "dictionary missing": (
        lambda p: column(p, b"c", p.array(1, [None, NUMBERS]), dictionary=ctypes.pointer(p.schema(b"u"))),
        "no dictionary",
    ),
    "index beyond the dictionary": (
        lambda p: column(
            p,
            b"c",
            p.array(1, [None, np.array([5], np.int8)], dictionary=ctypes.pointer(p.array(1, [None, NUMBERS]))),
            dictionary=ctypes.pointer(p.schema(b"l")),
        ),
        "the index 5 is not one of a dictionary of 1",
    ),
}


def refusal(table: Any) -> str:
    """The text of the error that a table is refused with; nothing of it is kept."""
    try:
        Batch.from_arrow(table)
    except BatchError as error:
        return str(error)
    raise AssertionError("it was read")


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_an_error(case: str) -> None:
    make, text = WRONG[case]
    p = Producer()
    table = make(p)
    assert text in refusal(table)
    gc.collect()
    _, array = table.__arrow_c_array__()
    taken = not structure_in(array, b"arrow_array", Array).release
    assert p.released == ["array"] * taken


def test_a_type_without_end_is_refused() -> None:
    p = Producer()
    loop = p.schema(b"+l", b"x")
    loop.n_children = 1
    loop.children = p.children_of(Schema, [loop])
    with pytest.raises(BatchError, match="nested deeper than 64"):
        Batch.from_arrow(p.table(p.schema(b"+s", b"", loop), p.array(0, [None])))


def test_capsules_of_other_names_and_other_things() -> None:
    p = Producer()
    array = p.capsule(p.array(0, [None]), b"arrow_array")
    for given in (array, None, 5, p.capsule(p.array(0, [None]), b"other")):
        table = type("T", (), {"__arrow_c_stream__": lambda _, given=given: given})()
        with pytest.raises(BatchError, match="a capsule named 'arrow_array_stream' is needed"):
            Batch.from_arrow(table)
    with pytest.raises(BatchError, match="must give two capsules"):
        Batch.from_arrow(type("T", (), {"__arrow_c_array__": lambda _: array})())


def test_what_has_been_read_cannot_be_read_again() -> None:
    p = Producer()
    table = column(p, b"l", p.array(3, [None, NUMBERS]))
    assert Batch.from_arrow(table).num_rows == 3
    with pytest.raises(BatchError, match="the array has been released"):
        Batch.from_arrow(table)
    capsule = Batch({"a": [1]}).__arrow_c_stream__()
    once = type("T", (), {"__arrow_c_stream__": lambda _: capsule})()
    assert Batch.from_arrow(once).to_dict() == {"a": [1]}
    with pytest.raises(BatchError, match="read already"):
        Batch.from_arrow(once)


@pytest.mark.parametrize(("error", "text"), [(b"the disk is full", "the disk is full"), (None, "with error 5")])
def test_errors_of_a_stream_have_its_text(error: bytes | None, text: str) -> None:
    p = Producer()
    assert text in refusal(p.stream(lambda *_: 5, lambda *_: 5, error))
    gc.collect()
    assert p.released == ["stream"]

    def get_schema(_: Any, out: Any) -> int:
        made = p.schema(b"+s", b"", p.schema(b"l", b"x"))
        ctypes.memmove(out, ctypes.byref(made), ctypes.sizeof(Schema))
        return 0

    assert text in refusal(p.stream(get_schema, lambda *_: 5, error))
    gc.collect()
    assert sorted(p.released) == ["schema", "stream", "stream"]


# -- consumers ---------------------------------------------------------------------------------------------------------


def test_a_consumer_may_release_in_any_order() -> None:
    values = np.arange(1000)
    batch = Batch({"a": values, "l": [[n] for n in range(1000)]})
    stored = batch.parts()[0]["a"]
    before = sys.getrefcount(stored)
    capsule = batch.__arrow_c_stream__()
    stream = structure_in(capsule, b"arrow_array_stream", Stream)
    schema, array = Schema(), Array()
    assert stream.get_schema(ctypes.byref(stream), ctypes.byref(schema)) == 0
    assert stream.get_next(ctypes.byref(stream), ctypes.byref(array)) == 0
    end = Array()
    assert stream.get_next(ctypes.byref(stream), ctypes.byref(end)) == 0
    assert not end.release
    stream.release(ctypes.byref(stream))
    assert not stream.release
    del capsule, batch, values
    moved = Array()
    child = array.children[0]
    ctypes.memmove(ctypes.byref(moved), child, ctypes.sizeof(Array))
    child.contents.release = type(child.contents.release)()
    array.release(ctypes.byref(array))
    assert not array.release
    there = ctypes.cast(moved.buffers[1], ctypes.POINTER(ctypes.c_int64))
    assert [there[0], there[999]] == [0, 999]
    moved.release(ctypes.byref(moved))
    schema.release(ctypes.byref(schema))
    gc.collect()
    assert sys.getrefcount(stored) <= before


def test_a_capsule_that_is_not_read_is_released() -> None:
    batch = Batch({"a": np.arange(1000), "s": ["x"] * 1000})
    before = sys.getrefcount(batch)
    for _ in range(100):
        batch.__arrow_c_stream__()
        batch.__arrow_c_schema__()
    assert sys.getrefcount(batch) == before


def test_what_goes_wrong_while_a_stream_is_read_is_told_to_the_consumer() -> None:
    text = Batch({"s": ["ab"]}).parts()[0]["s"]
    broken = type(text)(np.array([0, 1]), b"\xff")  # type: ignore[call-arg, arg-type]
    capsule = Batch({"s": broken}).__arrow_c_stream__()
    stream = structure_in(capsule, b"arrow_array_stream", Stream)
    assert stream.get_next(ctypes.byref(stream), ctypes.byref(Array())) != 0
    assert b"BatchError: column 's' has text that is not valid UTF-8" in ctypes.string_at(
        stream.get_last_error(ctypes.byref(stream))
    )
