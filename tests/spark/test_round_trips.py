"""Every type from Spark into columns and back: the rows that Spark collects afterwards are those of before."""

from __future__ import annotations

import datetime as dt
import random
import struct
import zoneinfo
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

import shmjet.spark
from shmjet import Batch, BatchError, JetInstance, Pipeline, sinks
from shmjet.spark.schema import zone_of_session
from tests.spark.conftest import Fed

pytestmark = pytest.mark.slow

DAYS = [dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)]
INSTANTS = [  # in Rome the clock goes forward at 1:00 UTC of 31 March, and back at 1:00 UTC of 27 October
    "2024-03-31 00:59:59.999999", "2024-03-31 01:00:00", "2024-10-27 00:30:00", "2024-10-27 01:30:00",
    "1969-12-31 23:59:59.999999", "1893-10-31 23:10:04", "1800-01-01 00:00:00", "9999-12-30 00:00:00",
]  # fmt: skip
LEAVES: dict[str, list[Any]] = {
    "tinyint": [0, 127, -128],
    "smallint": [0, 32767, -32768],
    "int": [0, (1 << 31) - 1, -(1 << 31)],
    "bigint": [0, (1 << 63) - 1, -(1 << 63), (1 << 53) + 1],
    "float": [0.0, -0.0, float("nan"), float("inf"), struct.unpack("f", struct.pack("f", 0.1))[0]],
    "double": [0.0, -0.0, float("nan"), float("-inf"), 5e-324, 0.1],
    "boolean": [True, False],
    "string": ["", "a", "ä€🚀", "x" * 300],
    "binary": [b"", b"\x00\xff", b"y" * 70],
    "date": DAYS,
    "timestamp": [dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) for text in INSTANTS],
    "timestamp_ntz": [dt.datetime.fromisoformat(text) for text in (*INSTANTS, "2024-03-31 02:30:00")],
    "interval day to second": [dt.timedelta(0), dt.timedelta(days=-3, microseconds=1), dt.timedelta(days=10**6)],
    "decimal(1,0)": [Decimal(0), Decimal(9), Decimal(-9)],
    "decimal(9,9)": [Decimal("0.999999999"), Decimal("-0.999999999"), Decimal("1E-9")],
    "decimal(18,2)": [Decimal(10**18 - 1).scaleb(-2), Decimal(1 - 10**18).scaleb(-2), Decimal("0.01")],
    "decimal(19,0)": [Decimal(10**19 - 1), Decimal(1 - 10**19), Decimal(1 << 63)],
    "decimal(38,0)": [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(1 << 64), Decimal(-1)],
    "decimal(38,38)": [Decimal("0." + "9" * 38), Decimal("-0." + "9" * 38), Decimal("0." + "0" * 37 + "1")],
}


def schema_of(nested: bool) -> str:
    if not nested:
        return ", ".join(f"c{place} {leaf}" for place, leaf in enumerate(LEAVES))
    lists = [f"c{place} array<{leaf}>" for place, leaf in enumerate(LEAVES)]
    fields = ",".join(f"f{place}:{leaf}" for place, leaf in enumerate(LEAVES))
    deep = "deep array<struct<a:array<array<string>>,b:struct<c:decimal(38,5),d:array<timestamp>>>>"
    return ", ".join([*lists, f"s struct<{fields}>", f"many array<struct<{fields}>>", deep])


def made(chance: random.Random, kind: Any, nulls: float) -> Any:
    name = type(kind).__name__
    if chance.random() < nulls:
        return None
    if name == "ArrayType":
        return [made(chance, kind.elementType, nulls) for _ in range(chance.choice([0, 0, 1, 3]))]
    if name == "MapType":
        return {chance.choice(LEAVES["string"]): made(chance, kind.valueType, nulls) for _ in range(3)}
    if name == "StructType":
        return tuple(made(chance, field.dataType, nulls) for field in kind.fields)
    if name == "DecimalType" and kind.simpleString() not in LEAVES:
        return Decimal(chance.randint(-(10**38) + 1, 10**38 - 1)).scaleb(-kind.scale)
    return chance.choice(LEAVES[kind.simpleString()])


def frame(spark: Any, schema: str, nulls: float, rows: int) -> Any:
    from pyspark.sql.types import StructType

    kinds = StructType.fromJson(spark.createDataFrame([], schema).schema.jsonValue())
    chance = random.Random(rows * 1000 + int(nulls * 100))
    listed = [tuple(made(chance, field.dataType, nulls) for field in kinds.fields) for _ in range(rows)]
    return spark.createDataFrame(listed, kinds)


def collected(df: Any) -> Counter[str]:
    """Return what Spark collects, as texts that tell 0.0 from -0.0 and show each digit."""
    return Counter(shown(row) for row in df.collect())


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{sorted((shown(key), shown(each)) for key, each in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(shown, value))})"
    return repr(value)


@pytest.fixture(autouse=True)
def _freed() -> Iterator[None]:
    yield
    shmjet.spark.free_dataframes()


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("nested", [False, True])
def test_columns_come_back_as_they_went(spark: Any, fed: Fed, nested: bool, nulls: float) -> None:
    df = frame(spark, schema_of(nested), nulls, 40)
    batches = fed(shmjet.spark.source(df, batch_rows=7))
    assert all(type(batch) is Batch for batch in batches)
    back = shmjet.spark.to_dataframe(spark, batches, df.schema)
    assert collected(back) == collected(df)
    known = [(name, kind.replace("timestamp_ntz", "timestamp")) for name, kind in df.dtypes]  # without a zone: UTC
    assert shmjet.spark.to_dataframe(spark, batches).dtypes == known


def test_each_type_by_spark_s_own_jvm(spark: Any, fed: Fed) -> None:
    kinds = {f"c{place}": leaf for place, leaf in enumerate(LEAVES)}
    narrow = [name for name, leaf in kinds.items() if leaf not in ("decimal(19,0)", "decimal(38,0)", "decimal(38,38)")]
    df = frame(spark, schema_of(False), 0.2, 60).select(*narrow)
    source = shmjet.spark.source(df, batch_rows=16)
    back = shmjet.spark.to_dataframe(spark, fed(source), df.schema)
    assert collected(back) == collected(df)


@pytest.mark.parametrize("on_spark", [False, True])
def test_through_a_pipeline_and_a_sink(spark: Any, jet: JetInstance, tmp_path: Path, on_spark: bool) -> None:
    schema = f"{schema_of(False)}, tags array<decimal(38,5)>, s struct<at:timestamp,day:date>"
    df = frame(spark, schema, 0.2, 50)
    path = str(tmp_path / "out")
    p = Pipeline()
    stage = p.read_from(shmjet.spark.source(df, batch_rows=9)).map_batches(lambda batch: batch.filter(batch["c0"] >= 0))
    stage.write_to(shmjet.spark.sink(spark, df.schema, path=path))
    if on_spark:
        p.run_on_spark(spark)
    else:
        jet.new_job(p).run(timeout=120)
    assert collected(spark.read.schema(df.schema).parquet(path)) == collected(df.where("c0 >= 0"))


def test_rows_with_maps_come_back_too(spark: Any, fed: Fed) -> None:
    df = frame(spark, "id bigint, m map<string,decimal(38,5)>, t map<string,timestamp>, d array<date>", 0.2, 30)
    rows = fed(shmjet.spark.source(df))
    assert all(type(row) is dict for row in rows)
    assert collected(shmjet.spark.to_dataframe(spark, rows, df.schema)) == collected(df)


@pytest.mark.parametrize(
    ("zone", "known"),
    [
        ("Europe/Rome", "Europe/Rome"), ("America/St_Johns", "America/St_Johns"), ("UTC", "UTC"), ("Z", "UTC"),
        ("+01:30", "+01:30"), ("GMT+8", "+08:00"), ("UTC-03:00", "-03:00"), ("-7:00", "-07:00"),
    ],
)  # fmt: skip
def test_timestamps_have_the_zone_of_the_session(spark: Any, fed: Fed, zone: str, known: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert zone_of_session(spark) == known
        df = spark.sql("select timestamp'2024-07-01 12:00:00' t, hour(timestamp'2024-03-31 01:00:00Z') h")
        (batch,) = fed(shmjet.spark.source(df))
        (at,), (hour,) = batch.values("t"), batch.values("h")
        assert (at.hour, at.tzinfo is not None) == (12, True)
        if "/" in known:
            assert dt.datetime(2024, 3, 31, 1, tzinfo=dt.UTC).astimezone(zoneinfo.ZoneInfo(known)).hour == hour
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_nat_is_null_and_categories_are_text(spark: Any) -> None:
    instants = np.array(["2024-01-01T00:00:00", "NaT"], "M8[s]")
    batch = Batch(
        {"t": instants, "z": instants, "c": ["a", None]}, schema={"z": "timestamp[s, Asia/Tokyo]", "c": "category"}
    )
    found = shmjet.spark.to_dataframe(spark, [batch])
    assert found.dtypes == [("t", "timestamp"), ("z", "timestamp"), ("c", "string")]
    utc = found.selectExpr("cast(t as double) t", "cast(z as double) z", "c").collect()
    assert [tuple(row) for row in utc] == [(1704067200.0, 1704067200.0, "a"), (None, None, None)]


def test_what_a_column_would_lose_is_an_error(spark: Any) -> None:
    def refused(values: list[Any], kind: str, schema: str, why: str) -> None:
        with pytest.raises(BatchError, match=why):
            shmjet.spark.to_dataframe(spark, [Batch({"a": values}, schema={"a": kind})], schema)

    price = [Decimal("1.25")]
    refused(price, "decimal(5, 2)", "a decimal(5,1)", r"column 'a' \(decimal\(5,1\)\): ")
    refused([Decimal(100)], "decimal(5, 2)", "a decimal(3,1)", r"column 'a' \(decimal\(3,1\)\): ")
    refused([Decimal("9" * 38)], "decimal(38, 0)", "a double", "no float is exactly that")
    refused(price, "decimal(5, 2)", "a int", "does not take a column of decimal")
    at = [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
    refused(at, "timestamp[us, UTC]", "a timestamp_ntz", "does not take a column of timestamp")
    exact = shmjet.spark.to_dataframe(
        spark, [Batch({"a": price}, schema={"a": "decimal(5, 2)"})], "a decimal(38,10)"
    ).collect()
    assert exact[0].a == Decimal("1.25")
    floats = shmjet.spark.to_dataframe(spark, [Batch({"a": price}, schema={"a": "decimal(5, 2)"})], "a double")
    assert floats.collect()[0].a == 1.25


def test_decimals_and_instants_of_an_rdd(spark: Any, jet: JetInstance) -> None:
    at = dt.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))
    rows = [(Decimal("1.5"), at), (Decimal("12345678901234567890.25"), at)]
    p, results = Pipeline(), sinks.collect()
    p.read_from(shmjet.spark.source(spark.sparkContext.parallelize(rows, 2), batch_rows=1)).write_to(results)
    jet.new_job(p).run(timeout=120)
    found = Batch.concat(list(results))
    results.close()
    assert {name: str(kind) for name, kind in found.schema.items()} == {
        "_1": "decimal(38, 18)",
        "_2": "timestamp[us, UTC]",
    }
    assert sorted(found.values("_1")) == [Decimal("1.5"), Decimal("12345678901234567890.25")]
    assert set(found.values("_2")) == {at}
