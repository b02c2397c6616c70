"""Hashes of column keys are those of the same keys as objects, for every kind of column."""

from __future__ import annotations

from typing import Any

import mmh3
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shmjet.core.keys import canonical_bytes
from shmjet.data.batch import Batch
from shmjet.data.column_keys import hash_rows
from shmjet.data.errors import BatchError
from shmjet.data.nullable import Nullable
from shmjet.data.text import Text
from tests.examples import examples

INTEGERS = [f"{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)]
FLOATS = ["f2", "f4", "f8", "g"]
UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "as", "25s", "10M", "3Y", "4D", "2W", "7us"]
STRUCTURES: list[Any] = [
    np.dtype([("a", "i4"), ("b", "f8")], align=True),
    np.dtype([("name", "S3"), ("inner", [("x", "u8"), ("when", "M8[s]"), ("none", [])]), ("last", ">i2")]),
]
edges = st.sampled_from([0, 1, -1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1, 2**53, 719_162, -719_163, 10**15])
signed = st.one_of(edges, st.integers(-(2**63), 2**63 - 1), st.integers(-(10**6), 10**6))
floats = st.one_of(
    st.floats(),
    st.integers(-(2**63), 2**64).map(float),
    st.sampled_from([0.0, -0.0, 0.5, 2.0**51, -(2.0**51), 2.0**52 + 1, 2.0**63, -(2.0**63), 1e300, 5e-324]),
)


def reference(batch: Batch, names: list[str]) -> list[int]:
    """The hashes on the path of objects."""
    values = [batch.values(name) for name in names]
    keys = values[0] if len(names) == 1 else list(zip(*values, strict=True))
    return [mmh3.hash(canonical_bytes(key), signed=False) for key in keys]


def is_counted_by_numpy(column: Any) -> bool:
    """Whether numpy knows the dates of a column; 2.5 refuses the dates that earlier versions wrapped."""
    if isinstance(column, np.ndarray | Nullable):
        try:
            (column.parts()[0] if isinstance(column, Nullable) else column).tolist()
        except OverflowError:
            return False
    return True


def check(batch: Batch, *names: str) -> None:
    assert hash_rows(batch, names).tolist() == reference(batch, list(names))


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    """A column of any kind that can be a key."""
    kind = draw(st.sampled_from(["bool", "int", "float", "date", "duration", "S", "U", "V", "text", "bytes", "struct"]))
    if kind == "bool":
        return np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), np.bool_)
    if kind == "int":
        wide = np.array(draw(st.lists(signed, min_size=rows, max_size=rows)), np.int64)
        return wide.astype(draw(st.sampled_from(INTEGERS)))
    if kind == "float":
        with np.errstate(over="ignore"):
            return np.array(draw(st.lists(floats, min_size=rows, max_size=rows))).astype(draw(st.sampled_from(FLOATS)))
    if kind in ("date", "duration"):
        letter = "M" if kind == "date" else "m"
        wide = np.array(draw(st.lists(signed, min_size=rows, max_size=rows)), np.int64)
        return wide.view(f"{letter}8[{draw(st.sampled_from(UNITS))}]")
    if kind == "text":
        return Text.of(draw(st.lists(st.text(), min_size=rows, max_size=rows)))
    if kind == "bytes":
        return Text.of([*draw(st.lists(st.binary(), min_size=rows, max_size=rows)), b""])[:rows]
    if kind == "U":
        points = st.text(st.characters(exclude_categories=[]), max_size=5)
        return np.array(draw(st.lists(points, min_size=rows, max_size=rows)), "U5")
    dtype = draw(st.sampled_from(STRUCTURES)) if kind == "struct" else np.dtype(f"{kind}{draw(st.integers(1, 9))}")
    raw = np.random.default_rng(draw(st.integers(0, 1 << 32))).integers(0, 256, rows * dtype.itemsize, np.uint8)
    raw[raw > 200] = 0
    return raw.view(dtype) if rows else np.zeros(0, dtype)


@st.composite
def keyed(draw: st.DrawFn) -> Batch:
    """Up to four columns, some with nulls."""
    rows = draw(st.integers(0, 20))
    names = "abcd"[: draw(st.integers(1, 4))]
    made = {name: draw(columns(rows)) for name in names}
    masks = {name: draw(st.lists(st.booleans(), min_size=rows, max_size=rows)) for name in names if draw(st.booleans())}
    return Batch(made, {name: np.array(mask, np.bool_) for name, mask in masks.items()})


@given(keyed())
@examples(400)
def test_a_column_hashes_as_its_values_do(batch: Batch) -> None:
    assume(all(is_counted_by_numpy(column) for _, column in batch.items()))
    for name in batch.names:
        check(batch, name)
    check(batch, *batch.names)
    part = batch[batch.num_rows // 2 :]
    check(part, *batch.names)


@pytest.mark.parametrize("dtype", [*INTEGERS, "f4", "f8", "M8[s]", "m8[us]", "M8[M]"])
@pytest.mark.parametrize("rows", [1, 511, 512, 513, 2000])
def test_blocks_of_rows_are_hashed_as_single_ones(dtype: str, rows: int) -> None:
    numbers = np.random.default_rng(rows).integers(-(10**5), 10**5, rows)
    values = numbers.view(dtype) if dtype[0] in "mM" else numbers.astype(dtype)
    check(Batch({"a": values, "b": numbers}), "a")
    check(Batch({"a": values, "b": numbers}), "b", "a")
    mask = numbers % 7 != 0
    check(Batch({"a": values, "b": numbers}, {"a": mask}), "a")
    check(Batch({"a": values, "b": numbers}, {"a": mask}), "a", "b")


def test_large_numbers_among_small_ones_keep_their_own_form() -> None:
    unsigned = np.arange(2000, dtype=np.uint64)
    unsigned[[3, 600, 1999]] = [2**63, 2**64 - 1, 2**63 + 1]
    real = np.arange(2000) * 0.5
    real[[5, 700]] = [2.0**63, np.nan]
    batch = Batch({"u": unsigned, "f": real})
    check(batch, "u")
    check(batch, "f")
    check(batch, "u", "f", "u")


def test_bools_made_of_other_bytes_are_true() -> None:
    check(Batch({"a": np.array([0, 1, 2, 255], np.uint8).view(np.bool_)}), "a")


def test_sliced_text_of_any_length() -> None:
    values = ["", "a", "é", "日本語", "x" * 100_000, "\0", "tail"]
    text = Text.of(values)[1:]
    assert text.offsets[0] == 0
    sliced = Text.of(["front", *values])[2:]
    batch = Batch({"t": sliced, "y": Text.of([value.encode() for value in values])[1:], "n": np.arange(6)})
    check(batch, "t")
    check(batch, "t", "n")
    check(batch, "y", "t")


def test_dates_without_a_unit_are_null_or_integers() -> None:
    check(Batch({"a": np.array([-(2**63)], "i8").view("M8")}), "a")
    check(Batch({"a": np.array([5, -(2**63)], "i8").view("m8")}), "a")


def test_unaligned_memory() -> None:
    raw = np.zeros(8 * 700 + 1, np.uint8)[1:]
    column = raw.view(np.int64)
    column[:] = np.arange(700)
    assert not column.flags.aligned
    check(Batch({"a": column}), "a")
    check(Batch({"a": column}), "a", "a")


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_numbers_cannot_be_keys(dtype: str) -> None:
    with pytest.raises(BatchError, match=f"column 'z' of dtype {np.dtype(dtype)} cannot be a key"):
        hash_rows(Batch({"z": np.zeros(2, dtype)}), ["z"])


def test_structures_with_arrays_or_complex_numbers_cannot_be_keys() -> None:
    with pytest.raises(BatchError, match=r"column 's' .* cannot be a key: its field 'of' is an array"):
        hash_rows(Batch({"s": np.zeros(2, [("of", "f8", (2,))])}), ["s"])
    with pytest.raises(BatchError, match=r"column 's\.z' of dtype complex64 cannot be a key"):
        hash_rows(Batch({"s": np.zeros(2, [("z", "c8")])}), ["s"])


def test_a_key_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(BatchError, match=r"no column 'b'.*\['a'\]"):
        hash_rows(Batch({"a": [1]}), ["b"])
    with pytest.raises(BatchError, match="at least one column"):
        hash_rows(Batch({"a": [1]}), [])
