"""Expressions as columns of Spark's: whatever is translated gives what the engine computes, for odd values too."""

from __future__ import annotations

import datetime
import functools
import math
import operator
import random
import struct
import zoneinfo
from typing import Any

import numpy as np
import pytest

from shmjet import Batch, column, when
from shmjet.columns.expressions import evaluate
from shmjet.core.expressions import Expression
from shmjet.data.errors import BatchError
from shmjet.spark.expressions import NotOnSparkError, Translator

SCHEMA = (
    "a tinyint, b smallint, c int, d bigint, e bigint, f float, g double, h double, p boolean, q boolean, "
    "s string, t string, x binary, day date, other date, at timestamp_ntz, z timestamp"
)
NUMPY = {
    "a": "int8", "b": "int16", "c": "int32", "d": "int64", "e": "int64", "f": "float32", "g": "float64",
    "h": "float64", "p": "bool", "q": "bool", "s": str, "t": str, "x": bytes, "day": "datetime64[D]",
    "other": "datetime64[D]", "at": "datetime64[us]", "z": "timestamp[us, Europe/Rome]",
}  # fmt: skip
ODD: dict[str, list[Any]] = {
    "a": [None, 0, 1, -1, 127, -128, 7],
    "b": [None, 0, 1, -1, 3, 300, -300],
    "c": [None, 0, 1, -1, 2, 70_000, -5],
    "d": [None, 0, 1, -1, 3, 1 << 40, -(1 << 40), 10],
    "e": [None, 0, 5, -5, (1 << 63) - 1, -(1 << 63)],
    "f": [None, 0.0, -0.0, 1.5, -2.5, math.inf, math.nan, 3.0],
    "g": [None, 0.0, -0.0, 1.5, 0.1, math.inf, -math.inf, math.nan, 3.0, -7.25],
    "h": [None, 0.0, -0.0, 2.0, math.nan, -1.5],
    "p": [None, True, False],
    "q": [None, True, False],
    "s": [None, "", "a", "B", "abc", "ä€😀", "A.c", "zz"],
    "t": [None, "", "a", "abc", "Z"],
    "x": [None, b"", b"a", b"\xff\x00"],
    "day": [None, datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), datetime.date(2020, 12, 31)],
    "other": [None, datetime.date(2024, 2, 29), datetime.date(1, 1, 1)],
    "at": [None, datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999), datetime.datetime(1969, 12, 31, 1, 2, 3)],
    "z": [
        None,
        datetime.datetime(2024, 3, 31, 1, tzinfo=datetime.UTC),
        datetime.datetime(1969, 12, 31, 1, 2, 3, tzinfo=datetime.UTC),
    ],
}
ROME = zoneinfo.ZoneInfo("Europe/Rome")
SEED = 17


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    chance = random.Random(SEED)
    found = [{name: chance.choice(values) for name, values in ODD.items()} for _ in range(400)]
    for row in found:
        if row["f"] is not None:
            row["f"] = struct.unpack("f", struct.pack("f", row["f"]))[0]
    return found


@pytest.fixture(scope="module")
def batch(rows: list[dict[str, Any]]) -> Batch:
    found: dict[str, Any] = {}
    for name, kind in NUMPY.items():
        values = [row[name] for row in rows]
        if isinstance(kind, type) or name == "z":
            found[name] = values
            continue
        mask = [value is None for value in values]
        zero = values[mask.index(False)]
        plain = np.array([zero if value is None else value for value in values], kind)
        found[name] = np.ma.masked_array(plain, mask)
    return Batch(found, schema={"z": NUMPY["z"]})


def number(chance: random.Random, depth: int) -> Expression:
    if depth <= 0 or chance.random() < 0.3:
        return column(chance.choice("abcdfgh"))
    one = number(chance, depth - 1)
    kind = chance.randrange(8)
    other: Any = number(chance, depth - 1) if chance.random() < 0.5 else chance.choice([0, 1, -1, 2, 0.5, -2.5])
    if kind == 0:
        return one / other
    if kind == 1:
        return one // other
    if kind == 2:
        return one % other
    if kind == 3:
        return one.fill_null(0)
    if kind == 4:
        return when(truth(chance, depth - 1)).then(one).otherwise(other)
    if kind == 5:
        return one + other
    if kind == 6:
        return one * other
    return abs(one) - other


def truth(chance: random.Random, depth: int) -> Expression:
    if depth <= 0 or chance.random() < 0.1:
        return column(chance.choice("pq"))
    kind = chance.randrange(9)
    if kind < 3:
        pairs = [("s", "t"), ("day", "other"), ("g", "h"), ("d", "e"), ("a", "c"), ("x", "x"), ("p", "q"), ("f", "b")]
        one, two = (column(name) for name in chance.choice(pairs))
        return compare(chance, one, two)
    if kind == 3:
        return compare(chance, number(chance, depth - 1), chance.choice([0, 1, 3, 0.1, math.nan, math.inf]))
    if kind == 4:
        return truth(chance, depth - 1) & truth(chance, depth - 1)
    if kind == 5:
        return truth(chance, depth - 1) | ~truth(chance, depth - 1)
    if kind == 6:
        return column(chance.choice(list(ODD))).is_null()
    if kind == 7:
        name, values = chance.choice([("s", ["a", None, "zz"]), ("d", [1, 10, None]), ("g", [0.0, 1.5]), ("c", [])])
        return column(name).is_in(values)
    text = column("s").str
    found = [text.contains("b"), text.contains("A.c", literal=True), text.starts_with("a"), text.ends_with("")]
    return chance.choice(found)


def compare(chance: random.Random, one: Any, two: Any) -> Expression:
    kind = chance.randrange(6)
    found: Expression = (one == two, one != two, one < two, one <= two, one > two, one >= two)[kind]
    return found


FIXED = [
    column("s").str.len_chars(),
    column("s").str.slice(1, 2),
    column("s").str.slice(0),
    "<" + column("s") + column("t"),
    *(getattr(column("day").dt, part)() for part in ("year", "quarter", "month", "week")),
    *(getattr(column("day").dt, part)() for part in ("day", "weekday", "ordinal_day")),
    *(getattr(column("at").dt, part)() for part in ("year", "month", "hour", "minute", "second", "weekday")),
    column("day") >= datetime.date(2000, 1, 1),
    column("at") < datetime.datetime(2000, 1, 1, 1, 2, 3, 4),
    column("z") >= datetime.datetime(2024, 3, 31, 3, tzinfo=ROME),
    column("z").is_in([datetime.datetime(2024, 3, 31, 3, tzinfo=ROME), None]),
    column("x") == b"\xff\x00",
    column("s") > "B",
    column("a").cast("int64") * 1000,
    column("c").cast(float),
    column("p").cast(int),
    column("g").fill_null(column("h")),
    when(column("p")).then("yes").when(column("q")).then(column("s")).otherwise(None),
    when(column("a") > 0).then(1).otherwise(2.5),
    column("e") // 3,
    column("e") % -3,
    column("e") % -1,
    column("g") / column("h"),
    column("f") / 3,
    -column("g"),
]


def same(one: Any, two: Any) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return struct.pack("d", one) == struct.pack("d", two) or (math.isnan(one) and math.isnan(two))
    return type(one) is type(two) and one == two


def test_what_is_translated_means_what_the_engine_computes(
    spark: Any, rows: list[dict[str, Any]], batch: Batch
) -> None:
    from pyspark.sql import types

    df = spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA).coalesce(1)
    translator = Translator.of(df, may_raise=True)
    chance = random.Random(SEED)
    made = [*FIXED, *(truth(chance, 2) for _ in range(40)), *(number(chance, 2) for _ in range(40))]
    chosen: list[tuple[Expression, Any, list[Any]]] = []
    for expression in made:
        try:
            found = translator.column(expression)
        except NotOnSparkError:
            continue
        try:
            expected = evaluate(expression, batch)
        except BatchError:
            continue  # both raise; see below
        values = expected.to_list() if hasattr(expected, "to_list") else expected.tolist()
        chosen.append((expression, found, values))
    assert len(chosen) > len(FIXED) + 30
    assert {id(each) for each in FIXED} <= {id(expression) for expression, _, _ in chosen}
    answer = df.select(*(found.column.alias(str(place)) for place, (_, found, _) in enumerate(chosen)))
    kinds = {types.ByteType: "int8", types.ShortType: "int16", types.IntegerType: "int32", types.LongType: "int64"}
    for place, field in enumerate(answer.schema.fields):
        kind = chosen[place][1].kind
        assert kinds.get(type(field.dataType), kind) == kind, chosen[place][0]
    for index, row in enumerate(answer.collect()):
        for place, value in enumerate(row):
            value = bytes(value) if isinstance(value, bytearray) else value
            expression, _, values = chosen[place]
            assert same(values[index], value), f"{expression}: {rows[index]}: {values[index]!r} here, {value!r} there"


def test_what_is_deep_or_numpys_is_left_to_the_engine() -> None:
    translator = Translator({})
    deep = functools.reduce(operator.add, [column("n")] * 1000)
    with pytest.raises(NotOnSparkError, match="more than 300 levels"):
        translator.column(deep)
    with pytest.raises(NotOnSparkError, match="more than 300 levels"):
        translator.condition(deep > 1)
    with pytest.raises(NotOnSparkError, match=r"numpy\.log"):
        translator.column(np.log(column("n")))
