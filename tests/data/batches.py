"""Batches of every kind, for hypothesis."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from shmjet.data.batch import Batch
from shmjet.data.text import Text

DTYPES = (
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "c8", "c16", "S1", "S7", "U3", "V5"),
    *("M8[D]", "M8[us]", "M8[ns]", "m8[s]", "m8[ns]"),
)
STRUCTURED = np.dtype([("place", "i4"), ("of", "f8", (2,)), ("name", "S3"), ("day", "M8[D]")], align=True)


@st.composite
def columns(draw: st.DrawFn, rows: int) -> Any:
    """A numpy array of any fixed width, or a Text, of so many rows."""
    kind = draw(st.sampled_from((*DTYPES, "text", "bytes", "structured")))
    if kind == "text":
        return Text.of(draw(st.lists(st.text(max_size=9), min_size=rows, max_size=rows)))
    if kind == "bytes":
        return Text.of(draw(st.lists(st.binary(max_size=9), min_size=rows, max_size=rows)) or [b""][:rows])
    dtype = STRUCTURED if kind == "structured" else np.dtype(kind)
    seed = draw(st.integers(0, 1 << 32))
    raw = np.random.default_rng(seed).integers(0, 256, rows * dtype.itemsize, np.uint8)
    if kind == "?":
        raw &= 1
    if kind.startswith("U"):  # code points
        raw = raw.view("<u4") % 0xD000
    return raw.view(dtype) if rows else np.zeros(0, dtype)


@st.composite
def batches(draw: st.DrawFn, most_rows: int = 40, most_columns: int = 5) -> Batch:
    """A batch with or without nulls."""
    rows = draw(st.integers(0, most_rows))
    names = draw(st.lists(st.text(min_size=1, max_size=5), max_size=most_columns, unique=True))
    made = {name: draw(columns(rows)) for name in names}
    masks = {}
    for name in names:
        if draw(st.booleans()):
            masks[name] = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)), np.bool_)
    return Batch(made, masks)
