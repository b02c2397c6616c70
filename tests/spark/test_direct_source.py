"""The source of the writer in Spark's JVM, without a JVM."""

from __future__ import annotations

import struct

import numpy as np
import pytest

pytest.importorskip("pyspark")

from shmjet import Batch, Text
from shmjet.data.column_types import DecimalType, ZonedType
from shmjet.data.typed_column import TypedColumn
from shmjet.ring.batch_frames import BatchCodec
from shmjet.spark.direct.source import is_writable, schema_text, source_of
from shmjet.spark.schema import Field


def test_schemas_are_described_as_batches_describe_theirs() -> None:
    fields = [
        Field("a'\n", "int64"),
        Field("ü", "text"),
        Field("t", "timestamp_ntz"),
        Field("z", "timestamp", zone="Europe/Rome"),
        Field("p", "decimal", scale=2, digits=10),
        Field("d", "date"),
        Field("b", "bool"),
    ]
    plain, masked = schema_text(fields).split("\n")[::2], schema_text(fields).split("\n")[1::2]
    when = np.zeros(1, "datetime64[us]")
    zoned = TypedColumn(ZonedType("us", "Europe/Rome"), when)
    price = TypedColumn(DecimalType(10, 2), np.zeros(1, np.int64))
    days = when.astype("datetime64[D]")
    values = {"a'\n": [1], "ü": Text.of(["x"]), "t": when, "z": zoned, "p": price, "d": days, "b": [True]}
    for described, validity in ((plain, {}), (masked, {name: np.zeros(1, np.bool_) for name in values})):
        head = bytes(BatchCodec().encode(Batch(values, validity))[0][0])
        buffers, size = struct.unpack_from("<II", head)
        assert head[16 + 8 * buffers :].decode() == "[" + ", ".join(described) + "]"
        assert len(head) == 16 + 8 * buffers + size


def test_methods_stay_small_whatever_the_columns() -> None:
    body = source_of([Field(f"c{n}", "int64") for n in range(500)], [True] * 500)
    assert "void cells496(" in body
    assert "void cells512(" not in body
    assert "$" not in body.partition("public Object generate")[2]


def test_what_no_column_stands_for_is_left_to_others() -> None:
    assert is_writable([Field("price", "decimal", scale=2, digits=18)])
    assert not is_writable([Field("price", "decimal", scale=2, digits=19)])
    assert not is_writable([Field("a", "int64"), Field("s", "struct", (Field("x", "int64"),))])
