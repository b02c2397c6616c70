"""Promotion of types: batches of one stream may differ in the type of a column, and one type holds all values."""

from __future__ import annotations

import datetime
import decimal
import itertools
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, BatchError
from shmjet.columns.promotion import converted, promoted
from shmjet.columns.stream_kinds import StreamKinds
from shmjet.data.column_types import kind_of

D = decimal.Decimal

WORDS = [
    *("decimal(5, 2)", "decimal(9, 0)", "decimal(30, 4)", "decimal(38, 38)", "timestamp[us, UTC]", "int8", "int64"),
    *("timestamp[ns, Europe/Berlin]", "timestamp[us, Europe/Berlin]", "category", "list<int64>", "uint64", "float64"),
    *("float32", "text", "U3", "bytes", "struct<a: int64>", "list<float64>", "datetime64[us]", "bool"),
]


@pytest.mark.parametrize(
    ("one", "two", "both"),
    [
        ("decimal(5, 2)", "decimal(9, 0)", "decimal(11, 2)"),
        ("decimal(30, 4)", "decimal(38, 38)", "decimal(38, 38)"),
        ("decimal(5, 2)", "int8", "decimal(21, 2)"),
        ("decimal(5, 2)", "int64", "decimal(21, 2)"),
        ("decimal(5, 2)", "float32", "float64"),
        ("decimal(5, 2)", "bool", "decimal(21, 2)"),
        ("decimal(5, 2)", "text", None),
        ("timestamp[us, UTC]", "timestamp[ns, Europe/Berlin]", "timestamp[ns, UTC]"),
        ("timestamp[us, Europe/Berlin]", "timestamp[ns, Europe/Berlin]", "timestamp[ns, Europe/Berlin]"),
        ("timestamp[us, UTC]", "datetime64[us]", None),
        ("category", "text", "text"),
        ("category", "U3", "text"),
        ("category", "bytes", None),
        ("list<int64>", "list<float64>", None),
        ("list<int64>", "list<int64>", "list<int64>"),
    ],
)
def test_the_type_that_holds_both(one: str, two: str, both: str | None) -> None:
    expected = None if both is None else kind_of("a", both)
    assert promoted(kind_of("a", one), kind_of("a", two)) == expected
    assert promoted(kind_of("a", two), kind_of("a", one)) == expected


def test_promotion_of_decimals_and_instants_does_not_depend_on_the_order() -> None:
    for family in (WORDS[:4] + WORDS[5:7], ["timestamp[us, UTC]", *WORDS[7:9]], ["category", "text", "U3"]):
        for words in itertools.permutations(family, 3):
            kinds: list[Any] = [kind_of("a", word) for word in words]

            def both(one: Any, two: Any) -> Any:
                return None if one is None or two is None else promoted(one, two)

            assert both(both(kinds[0], kinds[1]), kinds[2]) == both(kinds[0], both(kinds[1], kinds[2]))


def test_streams_of_batches_come_to_one_type() -> None:
    batches = [
        Batch({"a": [D("1.5")], "k": ["x"], "at": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)]}),
        Batch({"a": [D("100.25"), None], "k": ["x", "y"], "at": [None, None]}, schema={"k": "category"}),
        Batch({"a": [7], "k": [None], "at": [None]}, schema={"at": "timestamp[ns, Asia/Tokyo]"}),
    ]
    kinds = StreamKinds()
    for batch in batches:
        kinds.add(batch)
    assert {name: str(kind) for name, kind in kinds.kinds.items()} == {
        "a": "decimal(21, 2)",
        "k": "text",
        "at": "timestamp[us, UTC]",
    }
    whole = Batch.concat([kinds.of(batch) for batch in batches])
    assert whole.values("a") == [D("1.50"), D("100.25"), None, D("7.00")]
    assert whole.values("k") == ["x", "x", "y", None]
    assert kinds.head().schema == whole.schema


def test_what_the_common_type_does_not_hold_is_named() -> None:
    prices = Batch({"a": [D("0.1"), D("0.5")]})["a"]
    with pytest.raises(BatchError, match=r"column 'a' has 0.1 as well as floats"):
        converted("a", prices, None, np.dtype(float))
    assert converted("a", prices, np.array([False, True]), np.dtype(float)).tolist()[1] == 0.5
    kinds = StreamKinds()
    kinds.add(Batch({"a": [D("0.1")]}))
    with pytest.raises(BatchError, match=r"column 'a' has values of decimal\(18, 1\) and of text"):
        kinds.add(Batch({"a": ["x"]}))
