"""Every type, by every rung of the ladder."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")

from shmjet import Batch, ConfigError
from shmjet.data.column_types import DecimalType, ZonedType
from shmjet.spark import row_readers
from shmjet.spark import source as spark_source
from tests.spark.conftest import Fed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("spark")]

ROME = zoneinfo.ZoneInfo("Europe/Rome")
RUNGS = [rung.__name__ for rung in row_readers.LADDER]

FLAT = """
    select id,
      cast(if(id % 3 = 0, null, id - 2) as tinyint) t, cast(id * 7 as smallint) s, cast(id * -9 as int) i,
      if(id = 1, null, id * 10000000000) l, cast(id * 0.5D as float) f,
      case id when 0 then double('NaN') when 1 then double('-Infinity') when 2 then -0.0D else id / 3D end d,
      id % 2 = 0 b, cast(if(id = 2, null, id * 1.25) as decimal(10, 2)) m,
      date_add(date'1969-12-30', cast(id as int)) dt,
      timestamp'2024-07-01 12:00:00.000001' + make_dt_interval(0, 0, 0, id) ts,
      timestamp_ntz'2024-07-01 12:00:00' tn,
      if(id = 3, null, concat('naïve ', id)) x, cast(concat('b', id) as binary) y,
      make_dt_interval(1, 2, 3, id) iv, null n
    from range(0, 6, 1, 2)
"""

NESTED = """
    select id, if(id = 1, null, array(id, null, 7)) a, map(concat('k', id), cast(id as decimal(4, 1))) m,
      case id when 0 then cast('-123456789012345678901234567890123456.78' as decimal(38, 2))
        when 2 then cast('0.02' as decimal(38, 2)) end price,
      struct(id as p, date'2024-02-29' as q, array(concat('z', id)) as r, timestamp'2024-07-01 12:00:00' as t) s
    from range(0, 3, 1, 2)
"""


@pytest.fixture(params=RUNGS)
def rung(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    chosen = next(found for found in row_readers.LADDER if found.__name__ == request.param)
    monkeypatch.setattr(row_readers, "LADDER", (chosen,))
    return str(request.param)


def only(spark: Any, rung: str, *, flat: bool = True) -> None:
    """Skip where this version of Spark does not have the rung, or the rung not the types."""
    if rung == "direct" and not flat:
        pytest.skip("what is nested, or has many digits, does not go directly")
    if rung == "direct" and row_readers.direct(spark.range(1), 10) is None:
        pytest.skip("this Spark does not compile the writer")
    if rung == "plain_frames" and row_readers.plain_frames(spark.range(1), 10) is None:
        pytest.skip("this Spark has no toArrowBatchRdd without arguments")
    if rung == "frames" and row_readers.frames(spark.range(1), 10) is None:
        pytest.skip("this Spark has no toArrowBatchRdd with arguments")


def test_every_flat_type_is_a_column(spark: Any, rung: str, fed: Fed) -> None:
    only(spark, rung)
    found = Batch.concat(sorted(fed(spark_source(spark.sql(FLAT), batch_rows=2)), key=lambda b: b["id"][0]))
    assert found["id"].tolist() == [0, 1, 2, 3, 4, 5]
    assert {name: found[name].dtype for name in "tsilfdbm"} == {
        "t": np.int8, "s": np.int16, "i": np.int32, "l": np.int64,
        "f": np.float32, "d": np.float64, "b": np.bool_, "m": DecimalType(10, 2),
    }  # fmt: skip
    assert found.values("t") == [None, -1, 0, None, 2, 3]
    assert found.values("i") == [0, -9, -18, -27, -36, -45]
    assert found.values("l") == [0, None, 2 * 10**10, 3 * 10**10, 4 * 10**10, 5 * 10**10]
    d = found["d"]
    assert math.isnan(d[0])
    assert d[1] == -math.inf
    assert math.copysign(1, d[2]) == -1
    assert d[3:].tolist() == [1.0, 4 / 3, 5 / 3]
    assert found.values("m") == [0, Decimal("1.25"), None, Decimal("3.75"), 5, Decimal("6.25")]
    assert found["b"].tolist() == [True, False] * 3
    assert found["dt"].tolist()[:3] == [datetime.date(1969, 12, 30 + day) for day in (0, 1)] + [
        datetime.date(1970, 1, 1)
    ]
    assert found.schema["ts"] == ZonedType("us", "Europe/Rome")
    assert found["ts"].tolist()[1] == datetime.datetime(2024, 7, 1, 12, 0, 1, 1, ROME)
    assert found["tn"].tolist()[0] == datetime.datetime(2024, 7, 1, 12)
    assert found.schema["x"] == "text"
    assert found.values("x") == ["naïve 0", "naïve 1", "naïve 2", None, "naïve 4", "naïve 5"]
    assert found.values("y")[:2] == [b"b0", b"b1"]
    assert found["iv"].tolist()[5] == datetime.timedelta(days=1, hours=2, minutes=3, seconds=5)
    assert found.values("n") == [None] * 6


def test_rows_with_maps_are_dicts(spark: Any, rung: str, fed: Fed) -> None:
    only(spark, rung, flat=False)
    found = sorted(fed(spark_source(spark.sql(NESTED))), key=lambda row: row["id"])
    assert found[1] == {
        "id": 1,
        "a": None,
        "m": {"k1": Decimal("1.0")},
        "price": None,
        "s": {
            "p": 1,
            "q": datetime.date(2024, 2, 29),
            "r": ["z1"],
            "t": datetime.datetime(2024, 7, 1, 12, tzinfo=ROME),
        },
    }
    assert [row["a"] for row in found] == [[0, None, 7], None, [2, None, 7]]


def test_arrays_and_structs_are_columns(spark: Any, rung: str, fed: Fed) -> None:
    only(spark, rung, flat=False)
    df = spark.sql(NESTED).select("id", "a", "s", "price")
    found = Batch.concat(sorted(fed(spark_source(df)), key=lambda b: b["id"][0]))
    assert str(found.schema["a"]) == "list<int64>"
    assert str(found.schema["s"]) == (
        "struct<p: int64, q: datetime64[D], r: list<text>, t: timestamp[us, Europe/Rome]>"
    )
    assert found.values("a") == [[0, None, 7], None, [2, None, 7]]
    at = datetime.datetime(2024, 7, 1, 12, tzinfo=ROME)
    day = datetime.date(2024, 2, 29)
    assert found.values("s") == [{"p": n, "q": day, "r": [f"z{n}"], "t": at} for n in range(3)]
    assert str(found.schema["price"]) == "decimal(38, 2)"
    assert found.values("price") == [Decimal("-123456789012345678901234567890123456.78"), None, Decimal("0.02")]


def test_a_type_without_a_counterpart_is_refused_by_name(spark: Any) -> None:
    with pytest.raises(ConfigError, match=r"column 'c' has type interval, which has no counterpart here"):
        spark_source(spark.sql("select 1 a, make_interval(1, 2) c"))


def test_the_ladder_goes_down_to_what_is_there(spark: Any, rows: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [lambda df, batch_rows: row_readers.call_scala(df._jdf, "noSuchMethod", batch_rows)] * 2
    monkeypatch.setattr(row_readers, "LADDER", (*missing, row_readers.raw_rows, row_readers.rows))
    source = spark_source(spark.range(3))
    assert rows(source) == [(0,), (1,), (2,)]
    assert source.origin.rung == "raw_rows"
