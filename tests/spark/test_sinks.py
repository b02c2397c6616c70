"""`shmjet.spark.sink` through each of Spark's writers, in each mode, from the engine and from Spark."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("pyspark")

import shmjet.spark
from shmjet import JetInstance, JobFailedError, Pipeline, sources
from shmjet.spark.back.areas import new_area

pytestmark = pytest.mark.slow

SCHEMA = "word string, n int"
ROWS = [(f"word-{n}", n) for n in range(30)]
MORE = [("more", 100), (None, None)]

Write = Callable[..., None]


on_spark_too = pytest.mark.parametrize("write", ["engine", "spark"], indirect=True)
on_spark = pytest.mark.parametrize("write", ["spark"], indirect=True)


@pytest.fixture
def write(
    request: pytest.FixtureRequest, spark: Any, jet: JetInstance, eventually: Callable[..., None]
) -> Iterator[Write]:
    """`write(rows, **sink arguments)` runs a pipeline that writes rows; files in between must be gone at the end."""
    runs_on = getattr(request, "param", "engine")
    areas = []

    def noting(*arguments: Any) -> Any:
        areas.append(new_area(*arguments))
        return areas[-1]

    def run(rows: list[Any], schema: str = SCHEMA, **arguments: Any) -> None:
        pipeline = Pipeline()
        pipeline.read_from(sources.items(rows)).rebalance().write_to(shmjet.spark.sink(spark, schema, **arguments))
        if runs_on == "spark":
            pipeline.run_on_spark(spark)
        else:
            jet.new_job(pipeline).run(timeout=120)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shmjet.spark.back.sinks.new_area", noting)
        yield run
    for area in areas:
        eventually(lambda area=area: not area.path.exists())


def rows_of(df: Any) -> list[Any]:
    return sorted(map(tuple, df.collect()), key=repr)


def in_each_mode(write: Write, read: Callable[[], Any], **where: Any) -> None:
    """Write to a place in each mode, and look at what is there after each."""
    write(ROWS, **where)
    assert rows_of(read()) == sorted(ROWS, key=repr)
    with pytest.raises(JobFailedError, match=r"already exists|ALREADY_EXISTS") as caught:
        write(MORE, **where)  # mode="error"
    assert "\tat " not in str(caught.value)
    write(MORE, mode="ignore", **where)
    assert rows_of(read()) == sorted(ROWS, key=repr)
    write(MORE, mode="append", **where)
    assert rows_of(read()) == sorted(ROWS + MORE, key=repr)
    write(MORE, mode="overwrite", **where)
    assert rows_of(read()) == sorted(MORE, key=repr)


def test_files_in_each_mode(spark: Any, write: Write, tmp_path: Path) -> None:
    path = tmp_path / "csv"
    in_each_mode(write, lambda: spark.read.schema(SCHEMA).csv(str(path)), path=path, format="csv")


@pytest.mark.parametrize("kind", ["parquet", "orc", "json"])
def test_files_of_the_other_formats(spark: Any, write: Write, tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    write(ROWS, path=path, format=kind)
    write(MORE, path=path, format=kind, mode="append")
    assert rows_of(spark.read.schema(SCHEMA).format(kind).load(str(path))) == sorted(ROWS + MORE, key=repr)


@on_spark
def test_csv_takes_the_options_of_sparks_writer(write: Write, tmp_path: Path) -> None:
    options = {"header": True, "sep": ";", "nullValue": "-", "compression": "none"}
    write([('say "hi"; bye', 1), (None, 2)], path=tmp_path / "out", format="csv", options=options)
    found = []
    for part in (tmp_path / "out").glob("*.csv"):
        with open(part, newline="") as file:
            found += list(csv.DictReader(file, delimiter=";", doublequote=False, escapechar="\\"))
    assert sorted(found, key=lambda row: row["n"]) == [{"word": 'say "hi"; bye', "n": "1"}, {"word": "-", "n": "2"}]


@on_spark
def test_tables_in_each_mode(spark: Any, write: Write) -> None:
    name = f"words_{uuid4().hex}"
    in_each_mode(write, lambda: spark.table(name), table=name)
    write(ROWS, table=name, mode="overwrite", format="orc", partition_by="n")
    assert [row.n for row in spark.sql(f"select n from {name} where word = 'word-7'").collect()] == [7]
    assert "Provider: orc" in {f"{r.col_name}: {r.data_type}" for r in spark.sql(f"describe extended {name}").collect()}
    spark.sql(f"drop table {name}")


def test_a_database_by_jdbc_in_each_mode(spark: Any, write: Write) -> None:
    database = f"jdbc:derby:memory:words_{uuid4().hex}"
    options = {"url": f"{database};create=true", "dbtable": "words"}
    read = spark.read.format("jdbc").options(**options)
    in_each_mode(write, read.load, format="jdbc", options=options)
    with pytest.raises(JobFailedError, match="No suitable driver"):
        write(MORE, format="jdbc", options={"url": "jdbc:nothing:at:all", "dbtable": "words"})
    narrow = {**options, "dbtable": "narrow", "createTableColumnTypes": "word varchar(3)"}
    with pytest.raises(JobFailedError, match=r"Spark: [\s\S]*VARCHAR 'word-\d+'") as caught:
        write(ROWS, format="jdbc", options=narrow)
    assert "\tat " not in str(caught.value)


@on_spark_too
def test_what_sparks_writer_refuses_arrives_with_its_message(spark: Any, write: Write, tmp_path: Path) -> None:
    for arguments, why in (
        ({"path": tmp_path / "a", "format": "nonsense"}, "nonsense"),
        (
            {"path": tmp_path / "b", "format": "csv", "schema": "word string, n array<int>"},
            "CSV datasource doesn't supp",
        ),
        ({"table": "no.such.catalog.table"}, "catalog"),
        ({"path": tmp_path / "d", "options": {"compression": "sandwich"}}, "sandwich"),
    ):
        rows = [("a", [1])] if "schema" in arguments else [("a", 1)]
        with pytest.raises(JobFailedError, match=why) as caught:
            write(rows, **arguments)
        assert "\tat " not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_job_that_fails_elsewhere_writes_nothing(spark: Any, jet: JetInstance, tmp_path: Path) -> None:
    name = f"never_{uuid4().hex}"
    database = f"jdbc:derby:memory:{name}"
    options = {"url": f"{database};create=true", "dbtable": "words"}
    for runs_on in ("engine", "spark"):
        pipeline = Pipeline()
        stage = pipeline.read_from(sources.items(ROWS))
        shared = shmjet.spark.sink(spark, SCHEMA, path=tmp_path / "csv", format="csv")
        stage.write_to(shared)
        stage.write_to(shmjet.spark.sink(spark, SCHEMA, table=name))
        stage.write_to(shmjet.spark.sink(spark, SCHEMA, format="jdbc", options=options))
        broken = stage.map(lambda row: (row[0], 1 // (row[1] - 29)))
        broken.write_to(shared)
        broken.map(lambda row: row[1]).write_to(
            shmjet.spark.sink(spark, "n int", path=tmp_path / "other", mode="append")
        )
        with pytest.raises(JobFailedError, match="ZeroDivisionError"):
            pipeline.run_on_spark(spark) if runs_on == "spark" else jet.new_job(pipeline).run(timeout=120)
        assert not list(tmp_path.iterdir())
        assert not spark.catalog.tableExists(name)
        with pytest.raises(Exception, match=r"WORDS|words"):
            spark.read.format("jdbc").options(**options).load()


@pytest.mark.parametrize("runs_on", ["engine", "spark"])
def test_stages_that_end_in_one_sink_make_one_table(spark: Any, jet: JetInstance, tmp_path: Path, runs_on: str) -> None:
    """Written stage by stage, the second would be refused, doubled, left alone, or be the only one."""
    name = f"both_{uuid4().hex}"
    options = {"url": f"jdbc:derby:memory:{name};create=true", "dbtable": "words"}
    pipeline = Pipeline()
    rows = pipeline.read_from(sources.items(ROWS))
    few, many = rows.filter(lambda row: row[1] < 10), rows.filter(lambda row: row[1] >= 10)
    for arguments in (
        {"path": tmp_path / "error", "format": "csv"},
        {"path": tmp_path / "ignore", "format": "json", "mode": "ignore"},
        {"table": name, "mode": "overwrite"},
        {"format": "jdbc", "options": options, "mode": "append"},
    ):
        one = shmjet.spark.sink(spark, SCHEMA, **arguments)
        few.write_to(one)
        many.write_to(one)
    pipeline.run_on_spark(spark) if runs_on == "spark" else jet.new_job(pipeline).run(timeout=120)
    for found in (
        spark.read.schema(SCHEMA).csv(str(tmp_path / "error")),
        spark.read.schema(SCHEMA).json(str(tmp_path / "ignore")),
        spark.table(name),
        spark.read.format("jdbc").options(**options).load(),
    ):
        assert rows_of(found) == sorted(ROWS, key=repr)
    spark.sql(f"drop table {name}")


@on_spark
def test_no_rows_make_an_empty_table_with_the_schema(spark: Any, write: Write, tmp_path: Path) -> None:
    write([], path=tmp_path / "none")
    df = spark.read.parquet(str(tmp_path / "none"))
    assert (df.dtypes, df.collect()) == ([("word", "string"), ("n", "int")], [])
