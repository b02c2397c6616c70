"""Nested columns back in Spark: what `to_dataframe` and sinks make of rows is what Spark's `createDataFrame` makes."""

from __future__ import annotations

import datetime as dt
import random
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

import shmjet.spark
from shmjet import BatchError, ConfigError, JetInstance, Pipeline, sinks, sources

pytestmark = pytest.mark.slow

ROME, TOKYO = dt.timezone(dt.timedelta(hours=1)), dt.timezone(dt.timedelta(hours=9))
LEAVES: dict[str, Any] = {
    "tinyint": lambda chance: chance.randint(-128, 127),
    "smallint": lambda chance: chance.randint(-(1 << 15), (1 << 15) - 1),
    "int": lambda chance: chance.randint(-(1 << 31), (1 << 31) - 1),
    "bigint": lambda chance: chance.randint(-(1 << 63), (1 << 63) - 1),
    "float": lambda chance: float(np.float32(chance.gauss(0, 1e9))),
    "double": lambda chance: chance.choice([float("inf"), -0.0, 5e-324, chance.gauss(0, 1)]),
    "boolean": lambda chance: chance.random() < 0.5,
    "string": lambda chance: "".join(chance.choices("abß🚀", k=chance.randint(0, 5))),
    "binary": lambda chance: bytearray(chance.randbytes(chance.randint(0, 5))),
    "date": lambda chance: dt.date.fromordinal(chance.randint(1, 3_600_000)),
    "timestamp": lambda chance: moment(chance).replace(tzinfo=chance.choice([ROME, TOKYO, dt.UTC])),
    "timestamp_ntz": lambda chance: moment(chance),
    "interval day to second": lambda chance: dt.timedelta(seconds=chance.uniform(-1e6, 1e6)),
    "decimal(5,2)": lambda chance: Decimal(chance.randint(-99_999, 99_999)).scaleb(-2),
    "decimal(18,6)": lambda chance: Decimal(chance.randint(-(10**17), 10**17)).scaleb(-6),
    "decimal(38,10)": lambda chance: Decimal(chance.randint(-(10**37), 10**37)).scaleb(-10),
}


def moment(chance: random.Random) -> dt.datetime:
    return dt.datetime(1950, 1, 1) + dt.timedelta(microseconds=chance.randrange(10**16))


def made(chance: random.Random, kind: Any) -> Any:
    """Return a random value of a Spark type; at every level a null, and empty containers, now and then."""
    name = type(kind).__name__
    if chance.random() < 0.15:
        return None
    if name == "ArrayType":
        return [made(chance, kind.elementType) for _ in range(chance.choice([0, 1, 3]))]
    if name == "MapType":
        keys = {LEAVES[kind.keyType.simpleString()](chance) for _ in range(chance.choice([0, 1, 3]))}
        return {key: made(chance, kind.valueType) for key in keys}
    if name == "StructType":
        return tuple(made(chance, field.dataType) for field in kind.fields)
    return LEAVES[kind.simpleString()](chance)


@pytest.fixture(autouse=True)
def _freed() -> Iterator[None]:
    yield
    shmjet.spark.free_dataframes()


def same(left: Any, right: Any) -> None:
    """Check that two DataFrames have the same rows, in the same order, and the same types."""
    assert [(f.name, f.dataType.simpleString()) for f in left.schema] == [
        (f.name, f.dataType.simpleString()) for f in right.schema
    ]
    assert [shown(row) for row in left.collect()] == [shown(row) for row in right.collect()]


def shown(value: Any) -> str:
    """Return a value as text that tells 0.0 and -0.0 apart, and does not care for the order of a map."""
    if isinstance(value, dict):
        return f"{{{', '.join(sorted(f'{shown(key)}: {shown(each)}' for key, each in value.items()))}}}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    return repr(value)


def test_rows_of_every_type_in_every_container_are_what_spark_makes_of_them(spark: Any) -> None:
    fields = [
        f"s struct<{','.join(f'f{n}:{leaf}' for n, leaf in enumerate(LEAVES))}>",
        f"a struct<{','.join(f'a{n}:array<{leaf}>' for n, leaf in enumerate(LEAVES))}>",
        "lists array<array<array<int>>>",
        "words map<string,decimal(18,6)>",
        "maps map<int,map<string,array<bigint>>>",
        "days map<date,struct<at:timestamp,tags:array<string>>>",
        "structs array<struct<a:int,b:struct<c:array<struct<d:decimal(38,10),e:map<bigint,string>>>>>>",
    ]
    schema = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL(", ".join(fields)).json()
    from pyspark.sql.types import _parse_datatype_json_string

    struct = _parse_datatype_json_string(schema)
    chance = random.Random(6)
    rows = [tuple(made(chance, field.dataType) for field in struct.fields) for _ in range(40)]
    same(shmjet.spark.to_dataframe(spark, rows, struct), spark.createDataFrame(rows, struct))


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Stop:
    at: dt.date
    tags: list[str]


def test_a_schema_is_inferred_as_spark_infers_it(spark: Any, jet: JetInstance) -> None:
    from pyspark.sql import Row

    lots: list[list[Any]] = [
        [([1, None, 3], {"a": 0.5}), ([], {}), (None, None)],
        [([], {"a": []}, (1, "x")), ([[1], None, []], {"b": [(True, b"x")]}, (None, None))],
        [Row(name="ada", visits=[Row(day=dt.date(2020, 1, 2), n=3)]), Row(name=None, visits=[])],
        [(Pair(1, [Decimal("1.5")]), dt.timedelta(seconds=3)), (Pair(2, None), None)],
        [({"a": {"b": {1: "x"}}},), ({},)],
    ]
    for rows in lots:
        items = jet.get_list("inferred")
        items.clear()
        items.extend(rows)
        same(shmjet.spark.to_dataframe(spark, items), spark.createDataFrame(rows))
    arrays = [(np.array([1.5, 2.5], np.float32), np.array([[1, 2], [3, 4]], np.int16))]
    df = shmjet.spark.to_dataframe(spark, arrays)
    assert df.dtypes == [("_1", "array<float>"), ("_2", "array<array<smallint>>")]
    assert [tuple(row) for row in df.collect()] == [([1.5, 2.5], [[1, 2], [3, 4]])]


def test_maps_with_nested_values(spark: Any, jet: JetInstance) -> None:
    routes = jet.get_map("routes")
    routes.put_all({1: [Stop(dt.date(2020, 2, 29), ["a"]), Stop(dt.date(2021, 1, 1), [])], 2: []})
    df = shmjet.spark.to_dataframe(spark, routes)
    assert df.dtypes == [("key", "bigint"), ("value", "array<struct<at:date,tags:array<string>>>")]
    assert sorted(map(tuple, df.selectExpr("key", "size(value)").collect())) == [(1, 2), (2, 0)]
    df = shmjet.spark.to_dataframe(spark, {"x": {"a": 1}, "y": {}}, "k string, counts map<string,int>")
    assert sorted(map(tuple, df.collect())) == [("x", {"a": 1}), ("y", {})]
    df = shmjet.spark.to_dataframe(spark, {"x": {"a": 1}, "y": (2,)}, "k string, s struct<a:int>")
    assert sorted((row.k, row.s.a) for row in df.collect()) == [("x", 1), ("y", 2)]
    df = shmjet.spark.to_dataframe(
        spark, {1: {"tags": ["a"]}, 2: (["b", "c"],), 3: ["d"]}, {"k": int, "tags": "array<string>"}
    )
    assert sorted(map(tuple, df.collect())) == [(1, ["a"]), (2, ["b", "c"]), (3, ["d"])]


def test_what_does_not_fit_inside_is_named(spark: Any) -> None:
    def refused(rows: Any, schema: Any, why: str) -> None:
        with pytest.raises((BatchError, ConfigError), match=why):
            shmjet.spark.to_dataframe(spark, rows, schema)

    refused([([1, "x"],)], "a array<int>", r"partition 0: column 'a' at element \(int\) does not take 'x' of type str")
    refused([([{"d": "today"}],)], "v array<struct<d:date>>", r"column 'v' at element.d \(date\) does not take 'today'")
    refused(
        [({"a": 1 << 40},)], "m map<string,int>", r"column 'm' at value \(int\) does not take 1099511627776 .*range"
    )
    refused([({None: 1},)], "m map<string,int>", r"column 'm' at key \(string not null\) does not take None")
    refused([(1,)], "a array<int>", r"column 'a' \(array<int>\) does not take 1 of type int")
    refused([(None,)], "a array<void>", "column 'a' at element has type void, which cannot be sent")
    refused([(None,)], "a struct<>", "column 'a' has type struct<>, which cannot be sent")
    refused([([],)], None, "column '_1' is None in the first 1 rows, or what is in it is empty")
    refused([({1, 2},)], None, r"\{1, 2\} of type set has no type in Spark's columns")


@pytest.mark.parametrize(("runs_on", "kind"), [("engine", "parquet"), ("engine", "json"), ("spark", "orc")])
def test_nested_rows_go_through_a_sink_and_come_back_through_a_source(
    spark: Any, jet: JetInstance, tmp_path: Path, runs_on: str, kind: str
) -> None:
    schema = "id int, tags array<string>, at map<string,timestamp>, who struct<name:string,ages:array<int>>"
    rows: list[dict[str, Any]] = [
        {
            "id": n,
            "tags": None if n % 7 == 0 else [f"tag-{n}", None][: n % 3],
            "at": {"x": dt.datetime(2020, 1, 1, n % 24, tzinfo=dt.UTC)} if n % 2 else {},
            "who": None if n % 5 == 0 else {"name": f"name-{n}", "ages": [n] * (n % 4)},
        }
        for n in range(100)
    ]

    def run(pipeline: Pipeline) -> None:
        if runs_on == "spark":
            pipeline.run_on_spark(spark)
        else:
            jet.new_job(pipeline).run(timeout=120)

    p = Pipeline()
    sink = shmjet.spark.sink(spark, schema, path=tmp_path / kind, format=kind)
    p.read_from(sources.items(rows)).rebalance().write_to(sink)
    run(p)
    read = spark.read.schema(schema).format(kind).load(str(tmp_path / kind)).orderBy("id")
    same(read, spark.createDataFrame(rows, schema))
    p = Pipeline()
    with sinks.collect() as found:
        p.read_from(shmjet.spark.source(read)).write_to(found)
        run(p)
        assert sorted(found, key=lambda row: row["id"]) == rows
